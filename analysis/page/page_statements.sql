-- SPDX-License-Identifier: Apache-2.0
-- Statements of this folder, each after the name of its constant in C; codes as cmake/EmbedText.cmake has them.

-- statement sql_page_live_moments
SELECT seq, ts_ns FROM (SELECT seq, ts_ns, 0 AS rank FROM peak_time UNION ALL
    SELECT seq, ts_ns, 1 FROM (SELECT seq, ts_ns FROM peak_time_process ORDER BY bytes DESC, domain LIMIT 40)
    UNION ALL SELECT (SELECT max(t.seq) FROM timeline t WHERE t.seq <= o.seq), o.ts_ns, 2 FROM
    (SELECT seq, ts_ns FROM oom ORDER BY seq LIMIT 20) o UNION ALL
    SELECT (SELECT max(t.seq) FROM timeline t WHERE t.seq <= m.end_seq), m.end_ns, 3 FROM
    (SELECT end_seq, end_ns FROM mark WHERE end_seq IS NOT NULL ORDER BY end_ns - begin_ns DESC LIMIT 40) m)
    WHERE seq IS NOT NULL ORDER BY rank, seq LIMIT ?1

-- statement sql_page_allocations
SELECT domain, process_id, device, stream, addr, size, alloc_seq, alloc_ns,
    coalesce(free_requested_seq, free_completed_seq, ?1), coalesce(free_ns, ?1), callsite_id, tid
    FROM allocation WHERE domain <> @DOMAIN_CUPTI@

-- statement sql_page_ranges
SELECT domain, process_id, device, addr, size FROM allocation WHERE domain <> @DOMAIN_CUPTI@

-- statement sql_page_address_spaces
SELECT d.code, t.process_id, t.pid, t.device, t.domain FROM total_process t JOIN domain d ON d.name = t.domain
    WHERE t.domain NOT IN ('address_space', 'cupti') AND t.peak_bytes > 0 ORDER BY t.domain = 'block' DESC, t.domain =
    'device' DESC, t.peak_bytes DESC, t.process_id LIMIT ?1

-- statement sql_page_largest_segments
SELECT addr, size, alloc_ns, free_ns, stream, pool FROM segment WHERE process_id = ?1 AND device = ?2 AND addr IS
    NOT NULL AND size > 0 ORDER BY size DESC, id LIMIT ?3

-- statement sql_page_peaks
SELECT * FROM (SELECT 0 AS process_id, 0 AS pid, domain, device, peak_bytes, peak_ns, peak_seq FROM total UNION ALL
    SELECT process_id, pid, domain, device, peak_bytes, peak_ns, peak_seq FROM total_process WHERE (SELECT images FROM
    recording) > 1) ORDER BY process_id > 0, peak_bytes DESC, domain LIMIT ?1

-- statement sql_page_longest_marks
SELECT name, begin_ns, end_ns, pid FROM mark ORDER BY coalesce(end_ns, 9223372036854775807) - begin_ns DESC LIMIT
    ?1

-- statement sql_page_failures
SELECT seq, ts_ns, device, requested, 'a caching allocator' AS what FROM oom UNION ALL SELECT seq, ts_ns, device,
    bytes, function FROM device_failure ORDER BY seq LIMIT ?1

-- statement sql_page_ladder_changes
SELECT process_id, device, ts_ns, reserved, live_requested, rounding, unsplit_remainder, segment_quantum,
    pool_segregation, stream_pending, cached_segments, external_holes FROM ladder_change ORDER BY seq

-- statement sql_page_flame_domains
SELECT domain FROM total WHERE domain <> 'address_space' GROUP BY domain ORDER BY domain = 'heap' DESC, domain =
    'python' DESC, domain = 'block' DESC, sum(peak_bytes) DESC LIMIT ?1

-- statement sql_page_processes
SELECT p.id, p.pid, p.rank, p.executable FROM process p ORDER BY p.id LIMIT ?1

-- statement sql_page_stack_of_callsite
SELECT node_id, coalesce(user_symbol_id, symbol_id) FROM callsite WHERE id = ?1

-- statement sql_page_threads
SELECT process_id, tid, name FROM thread ORDER BY id LIMIT ?1

-- Of a comparison (report/growth_statements.sql): the lines that have more or less than before.
-- statement sql_page_changed_lines
SELECT e.domain, e.state, from_bytes, to_bytes, to_bytes - from_bytes, from_allocations, to_allocations,
    to_allocations - from_allocations, s.function, coalesce(s.file, s.module), s.line
FROM entry e JOIN shown_domain d ON d.domain = e.domain
    LEFT JOIN (SELECT 0 AS side, c.id, u.* FROM a.callsite c JOIN a.symbol u
            ON u.id = coalesce(c.user_symbol_id, c.symbol_id)
        UNION ALL SELECT 1, c.id, u.* FROM b.callsite c JOIN b.symbol u
            ON u.id = coalesce(c.user_symbol_id, c.symbol_id)) s
        ON s.side = (e.callsite_b IS NOT NULL) AND s.id = coalesce(e.callsite_b, e.callsite_a)
WHERE e.part = 2 AND NOT e.is_noise AND e.state <> 'same'
ORDER BY abs(to_bytes - from_bytes) DESC, d.place, e.key LIMIT ?1

-- The stacks whose figures changed most, and the sums of all others of a domain.
-- statement sql_page_changed_stacks
WITH ranked AS MATERIALIZED (
    SELECT c.domain AS domain, callsite_a, callsite_b, peak_bytes_b - peak_bytes_a AS peak, bytes_b - bytes_a AS bytes,
        live_bytes_b - live_bytes_a AS live, row_number() OVER (ORDER BY max(abs(peak_bytes_b - peak_bytes_a),
            abs(bytes_b - bytes_a), abs(live_bytes_b - live_bytes_a)) DESC, d.place, c.domain, key) AS rank
    FROM change c JOIN shown_domain d ON d.domain = c.domain
    WHERE part = 2 AND (peak_bytes_a <> peak_bytes_b OR bytes_a <> bytes_b OR live_bytes_a <> live_bytes_b))
SELECT domain, callsite_a, callsite_b, peak, bytes, live FROM ranked WHERE rank <= ?1
UNION ALL SELECT domain, NULL, NULL, sum(max(peak, 0)), sum(max(bytes, 0)), sum(max(live, 0)) FROM ranked
    WHERE rank > ?1 GROUP BY domain
UNION ALL SELECT domain, NULL, NULL, sum(min(peak, 0)), sum(min(bytes, 0)), sum(min(live, 0)) FROM ranked
    WHERE rank > ?1 GROUP BY domain
