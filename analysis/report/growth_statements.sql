-- SPDX-License-Identifier: Apache-2.0
-- What diff_growth.c compares: two traces, attached as a and b (side 0 and 1), or two beginnings of one. What a part
-- has of each figure becomes a row of `usage` for each side: part 0 is a domain, 1 a size class (key: its largest
-- size), 2 a line, function, module or stack (key: its number, diff_stacks.c; 0: none was recorded). `entry` then has
-- both sides in one row, and says what changed.

-- statement sql_growth_tables
CREATE TABLE asked(metric TEXT, domain TEXT, is_all INTEGER, seq_a INTEGER, seq_b INTEGER);
CREATE TABLE usage(side INTEGER, part INTEGER, domain TEXT, key INTEGER, callsite_id INTEGER, bytes INTEGER,
    allocations INTEGER, live_bytes INTEGER, live_allocations INTEGER, peak_bytes INTEGER, peak_allocations INTEGER);
CREATE TABLE size_class(most INTEGER PRIMARY KEY);
WITH RECURSIVE n(most) AS (SELECT 1 UNION ALL SELECT most * 2 FROM n WHERE most < 4611686018427387904)
    INSERT INTO size_class SELECT 0 UNION ALL SELECT most FROM n UNION ALL SELECT 9223372036854775807;
CREATE TABLE code(side INTEGER, code INTEGER, domain TEXT, PRIMARY KEY(side, code)) WITHOUT ROWID;
INSERT INTO code SELECT 0, code, name FROM a.domain UNION ALL SELECT 1, code, name FROM b.domain;
CREATE TABLE site(side INTEGER, callsite_id INTEGER, stack INTEGER, PRIMARY KEY(side, callsite_id)) WITHOUT ROWID;
INSERT INTO site SELECT 0, callsite_id, stack FROM stack_a UNION ALL SELECT 1, callsite_id, stack FROM stack_b;

-- Of whole traces domains and call sites come from their totals, size classes from the allocations. Each device has its
-- own peak; live_* is what was left at the end of its process's main, as in the totals.
-- statement sql_growth_whole
CREATE TEMP VIEW whole AS
    SELECT 0 AS side, domain, device, bytes, allocations, live_bytes, live_allocations, peak_bytes, peak_allocations,
        peak_seq FROM a.total
    UNION ALL SELECT 1, domain, device, bytes, allocations, live_bytes, live_allocations, peak_bytes, peak_allocations,
        peak_seq FROM b.total;
CREATE TEMP VIEW block AS
    SELECT 0 AS side, domain, coalesce(device, 0) AS device, process_id, size, alloc_seq, free_completed_seq, alloc_ns,
        free_ns FROM a.allocation
    UNION ALL SELECT 1, domain, coalesce(device, 0), process_id, size, alloc_seq, free_completed_seq, alloc_ns, free_ns
        FROM b.allocation;
CREATE TEMP VIEW site_total AS
    SELECT 0 AS side, domain, callsite_id, bytes, allocations, live_bytes, live_allocations, peak_bytes,
        peak_allocations FROM a.callsite_stat
    UNION ALL SELECT 1, domain, callsite_id, bytes, allocations, live_bytes, live_allocations, peak_bytes,
        peak_allocations FROM b.callsite_stat;
CREATE TABLE moment(side INTEGER, domain INTEGER, device INTEGER, seq INTEGER, PRIMARY KEY(side, domain, device))
    WITHOUT ROWID;
INSERT OR IGNORE INTO moment SELECT w.side, c.code, w.device, w.peak_seq
    FROM whole w JOIN code c ON c.side = w.side AND c.domain = w.domain;
CREATE TABLE ending(side INTEGER, process_id INTEGER, at_ns INTEGER, PRIMARY KEY(side, process_id)) WITHOUT ROWID;
INSERT INTO ending SELECT 0, process_id, at_ns FROM a.leak_moment UNION ALL
    SELECT 1, process_id, at_ns FROM b.leak_moment;
INSERT INTO usage SELECT side, 0, domain, 0, NULL, sum(bytes), sum(allocations), sum(live_bytes),
    sum(live_allocations), sum(peak_bytes), sum(peak_allocations) FROM whole GROUP BY side, domain;
INSERT INTO usage SELECT s.side, 1, c.domain, (SELECT most FROM size_class WHERE most >= s.size ORDER BY most LIMIT 1),
        NULL, sum(s.size * s.blocks), sum(s.blocks), sum(s.size * s.remained), sum(s.remained), sum(s.size * s.at_peak),
        sum(s.at_peak)
    FROM (SELECT x.side, x.domain, x.size, count(*) AS blocks,
            count(*) FILTER (WHERE x.alloc_ns <= e.at_ns AND coalesce(x.free_ns > e.at_ns, 1)) AS remained,
            count(*) FILTER (WHERE x.alloc_seq <= m.seq
                AND (x.free_completed_seq IS NULL OR x.free_completed_seq > m.seq)) AS at_peak
        FROM block x LEFT JOIN moment m ON m.side = x.side AND m.domain = x.domain AND m.device = x.device
            LEFT JOIN ending e ON e.side = x.side AND e.process_id = x.process_id
        GROUP BY x.side, x.domain, x.size) s
    JOIN code c ON c.side = s.side AND c.code = s.domain GROUP BY 1, 3, 4;
INSERT INTO usage SELECT t.side, 2, c.domain, coalesce(k.stack, 0), min(t.callsite_id), sum(t.bytes),
        sum(t.allocations), sum(t.live_bytes), sum(t.live_allocations), sum(t.peak_bytes), sum(t.peak_allocations)
    FROM site_total t JOIN code c ON c.side = t.side AND c.code = t.domain
        LEFT JOIN site k ON k.side = t.side AND k.callsite_id = t.callsite_id GROUP BY 1, 3, 4;

-- Of beginnings all comes from the allocations; they have no peak.
-- statement sql_growth_begun
CREATE TABLE begun AS
    SELECT 0 AS side, d.name AS domain, x.size, coalesce(x.callsite_id, 0) AS callsite_id,
        x.free_completed_seq IS NULL OR x.free_completed_seq > (SELECT seq_a FROM asked) AS is_live
    FROM a.allocation x JOIN a.domain d ON d.code = x.domain WHERE x.alloc_seq <= (SELECT seq_a FROM asked)
    UNION ALL SELECT 1, d.name, x.size, coalesce(x.callsite_id, 0),
        x.free_completed_seq IS NULL OR x.free_completed_seq > (SELECT seq_b FROM asked)
    FROM b.allocation x JOIN b.domain d ON d.code = x.domain WHERE x.alloc_seq <= (SELECT seq_b FROM asked);
INSERT INTO usage SELECT side, 0, domain, 0, NULL, sum(size), count(*), sum(size * is_live), sum(is_live), NULL, NULL
    FROM begun GROUP BY side, domain;
INSERT INTO usage SELECT side, 1, domain, (SELECT most FROM size_class WHERE most >= size ORDER BY most LIMIT 1), NULL,
    sum(size), count(*), sum(size * is_live), sum(is_live), NULL, NULL FROM begun GROUP BY 1, 3, 4;
INSERT INTO usage SELECT x.side, 2, x.domain, coalesce(k.stack, 0), min(x.callsite_id), sum(size), count(*),
        sum(size * is_live), sum(is_live), NULL, NULL
    FROM begun x LEFT JOIN site k ON k.side = x.side AND k.callsite_id = x.callsite_id GROUP BY 1, 3, 4;

-- figure_*: what is asked for; bytes_* and allocations_* of a measure: what is shown of it. Two equal runs differ by a
-- few blocks: an arena that another line happened to need, a thread that was still there. That is noise, and no change,
-- if it is fewer than 8 blocks, unless its bytes are more than a 20th of what is live and all of that has changed so.
-- is_last: among the unchanged, those that one side alone has.
-- statement sql_growth_entries
CREATE TABLE change AS
    SELECT part, domain, key, max(iif(side = 0, callsite_id, NULL)) AS callsite_a,
        max(iif(side = 1, callsite_id, NULL)) AS callsite_b,
        sum(bytes * (side = 0)) AS bytes_a, sum(bytes * (side = 1)) AS bytes_b,
        sum(allocations * (side = 0)) AS allocations_a, sum(allocations * (side = 1)) AS allocations_b,
        sum(live_bytes * (side = 0)) AS live_bytes_a, sum(live_bytes * (side = 1)) AS live_bytes_b,
        sum(live_allocations * (side = 0)) AS live_allocations_a,
        sum(live_allocations * (side = 1)) AS live_allocations_b,
        sum(peak_bytes * (side = 0)) AS peak_bytes_a, sum(peak_bytes * (side = 1)) AS peak_bytes_b,
        sum(peak_allocations * (side = 0)) AS peak_allocations_a,
        sum(peak_allocations * (side = 1)) AS peak_allocations_b
    FROM usage GROUP BY part, domain, key;
CREATE TABLE shown_domain AS
    SELECT c.domain, CASE c.domain WHEN 'block' THEN 1 WHEN 'device' THEN 2 WHEN 'heap' THEN 3 ELSE 4 END AS place,
        max(live_bytes_a, live_bytes_b) / 20 AS live_part, abs(live_bytes_b - live_bytes_a) AS live_change
    FROM change c CROSS JOIN asked s WHERE part = 0 AND CASE WHEN s.domain IS NULL THEN c.domain <> 'cupti'
        ELSE c.domain = s.domain END;
CREATE TEMP VIEW measure AS
    SELECT c.*, 0 AS place, 'peak' AS metric, 'at the peak' AS words, peak_bytes_a AS from_bytes,
        peak_bytes_b AS to_bytes, peak_allocations_a AS from_allocations, peak_allocations_b AS to_allocations,
        peak_bytes_b - peak_bytes_a AS change FROM change c
    UNION ALL SELECT c.*, 1, 'allocated', 'allocated', bytes_a, bytes_b, allocations_a, allocations_b,
        bytes_b - bytes_a FROM change c
    UNION ALL SELECT c.*, 2, 'leaked', iif((SELECT seq_a FROM asked) < 0, 'live at the end', 'live'), live_bytes_a,
        live_bytes_b, live_allocations_a, live_allocations_b, live_bytes_b - live_bytes_a FROM change c
    UNION ALL SELECT c.*, 3, 'count', 'allocations', bytes_a, bytes_b, allocations_a, allocations_b,
        allocations_b - allocations_a FROM change c;
CREATE TABLE entry AS
    SELECT m.*, CASE WHEN allocations_a = 0 AND allocations_b > 0 THEN 'new'
            WHEN allocations_b = 0 AND allocations_a > 0 THEN 'gone'
            WHEN change > 0 THEN 'grew' WHEN change < 0 THEN 'shrank' ELSE 'same' END AS state,
        s.metric = 'leaked' AND s.seq_a < 0 AND NOT s.is_all AND part > 0
            AND abs(live_allocations_b - live_allocations_a) < 8
            AND (d.live_change < d.live_part OR abs(live_bytes_b - live_bytes_a) < d.live_part) AS is_noise,
        change = 0 AND (allocations_a = 0 OR allocations_b = 0) AND (part = 1 OR s.seq_a >= 0) AS is_last
    FROM measure m JOIN asked s ON s.metric = m.metric JOIN shown_domain d ON d.domain = m.domain
    WHERE change <> 0 OR s.is_all OR part = 0;
CREATE TABLE together(key INTEGER PRIMARY KEY, heap_a INTEGER, python_a INTEGER, together_a INTEGER, heap_b INTEGER,
    python_b INTEGER, together_b INTEGER);

-- By line, of whole traces: of the figure that is asked for, what lines have in the heap, in Python's memory, and
-- together. Where one of the two has nothing, together is what the other has.
-- statement sql_growth_together
CREATE TABLE line(side INTEGER, key INTEGER, together INTEGER, PRIMARY KEY(side, key)) WITHOUT ROWID;
INSERT INTO line
    SELECT t.side, t.number, sum(CASE metric WHEN 'peak' THEN t.peak_together_bytes WHEN 'leaked'
        THEN t.live_together_bytes ELSE t.together_bytes END)
    FROM asked CROSS JOIN (SELECT 0 AS side, s.number, x.peak_together_bytes, x.live_together_bytes, x.together_bytes
            FROM a.line_together x JOIN symbol_a s ON s.id = x.user_symbol_id
        UNION ALL SELECT 1, s.number, x.peak_together_bytes, x.live_together_bytes, x.together_bytes
            FROM b.line_together x JOIN symbol_b s ON s.id = x.user_symbol_id) t GROUP BY 1, 2;
INSERT INTO together
    SELECT key, sum(iif(m.domain = 'heap', from_bytes, 0)) AS heap_a,
        sum(iif(m.domain = 'python', from_bytes, 0)) AS python_a,
        coalesce((SELECT together FROM line l WHERE l.side = 0 AND l.key = m.key), sum(from_bytes)),
        sum(iif(m.domain = 'heap', to_bytes, 0)) AS heap_b,
        sum(iif(m.domain = 'python', to_bytes, 0)) AS python_b,
        coalesce((SELECT together FROM line l WHERE l.side = 1 AND l.key = m.key), sum(to_bytes))
    FROM measure m JOIN asked USING (metric)
    WHERE part = 2 AND m.domain IN ('heap', 'python') AND key IN (SELECT key FROM line) GROUP BY key
    HAVING (heap_a > 0 AND python_a > 0) OR (heap_b > 0 AND python_b > 0);

-- statement sql_growth_domains
SELECT m.domain AS domain, m.words, from_bytes, to_bytes, to_bytes - from_bytes, from_allocations, to_allocations,
    to_allocations - from_allocations, d.place AS domain_place, m.place
FROM measure m JOIN shown_domain d ON d.domain = m.domain
WHERE part = 0 AND m.place < 3 AND from_bytes IS NOT NULL
UNION ALL SELECT 'RSS', 'at its peak', x.rss_bytes, y.rss_bytes, y.rss_bytes - x.rss_bytes, '', '', '', 5, 0
    FROM a.rss_peak x CROSS JOIN b.rss_peak y CROSS JOIN asked WHERE x.rss_bytes >= 0 AND y.rss_bytes >= 0
    AND seq_a < 0 AND EXISTS (SELECT 1 FROM shown_domain)
ORDER BY domain_place, domain, 10

-- statement sql_growth_sizes
SELECT key, from_bytes, to_bytes, to_bytes - from_bytes, from_allocations, to_allocations,
    to_allocations - from_allocations FROM entry WHERE part = 1 AND domain = ?2 AND NOT is_noise
ORDER BY abs(change) DESC, is_last, abs(bytes_b - bytes_a) DESC, key LIMIT ?1

-- statement sql_growth_counts
SELECT count(*) FILTER (WHERE NOT is_noise) AS entries_all,
    count(*) FILTER (WHERE NOT is_noise AND state = 'new') AS new,
    count(*) FILTER (WHERE NOT is_noise AND state = 'gone') AS gone,
    count(*) FILTER (WHERE NOT is_noise AND state = 'grew') AS grew,
    count(*) FILTER (WHERE NOT is_noise AND state = 'shrank') AS shrank,
    count(*) FILTER (WHERE is_noise) AS noise, coalesce(sum(change) FILTER (WHERE is_noise), 0) AS noise_bytes,
    (SELECT words FROM measure m JOIN asked USING (metric) LIMIT 1) AS words
FROM entry WHERE part = ?1 AND domain = ?2

-- What is JSON comes first: members of the entry, then its members a, b and change.
-- statement sql_growth_entry
SELECT state, callsite_a, callsite_b, bytes_a AS bytes, allocations_a AS allocations, live_bytes_a AS live_bytes,
    live_allocations_a AS live_allocations, peak_bytes_a AS peak_bytes, peak_allocations_a AS peak_allocations,
    bytes_b AS bytes, allocations_b AS allocations, live_bytes_b AS live_bytes,
    live_allocations_b AS live_allocations, peak_bytes_b AS peak_bytes, peak_allocations_b AS peak_allocations,
    bytes_b - bytes_a AS bytes, allocations_b - allocations_a AS allocations,
    live_bytes_b - live_bytes_a AS live_bytes, live_allocations_b - live_allocations_a AS live_allocations,
    peak_bytes_b - peak_bytes_a AS peak_bytes, peak_allocations_b - peak_allocations_a AS peak_allocations,
    e.key AS size_max, from_bytes, to_bytes, to_bytes - from_bytes, to_allocations - from_allocations, heap_a,
    python_a, coalesce(together_a, -1), heap_b, python_b, coalesce(together_b, -1)
FROM entry e LEFT JOIN together t ON t.key = e.key AND part = 2 AND domain IN ('heap', 'python')
WHERE part = ?1 AND domain = ?2 AND NOT is_noise
ORDER BY abs(change) DESC, is_last, abs(bytes_b - bytes_a) DESC, e.key LIMIT ?3
