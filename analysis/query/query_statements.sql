-- SPDX-License-Identifier: Apache-2.0
-- Statements of this folder, each after the name of its constant in C; codes as cmake/EmbedText.cmake has them.

-- statement sql_groups_at_peak
SELECT coalesce(a.callsite_id, 0) AS site, CASE ?3 WHEN 4 THEN a.process_id WHEN 5 THEN
    (SELECT r.thread_id FROM allocation_row r WHERE r.id = a.id) WHEN 6 THEN a.size END AS key, count(*),
    sum(a.size) FROM total_process t CROSS JOIN allocations a ON a.process_id = t.process_id AND
    a.domain = t.domain AND coalesce(a.device, 0) = t.device WHERE t.domain = ?1 AND t.process_id = ?2 AND
    a.alloc_seq <= t.peak_seq AND (a.free_requested_seq IS NULL OR a.free_requested_seq > t.peak_seq)
    GROUP BY site, key ORDER BY site, key

-- statement sql_ladder_at
WITH moment AS MATERIALIZED (SELECT coalesce(max(seq), 0) AS seq FROM keyframe WHERE seq <= ?1),
    part AS (
    SELECT * FROM (SELECT reserved, live AS live_requested, rounding, unsplit AS unsplit_remainder,
    quantum AS segment_quantum, pools AS pool_segregation, pending AS stream_pending,
    cached AS cached_segments,
    reserved - live - rounding - unsplit - quantum - pools - pending - cached AS external_holes
    FROM keyframe WHERE seq <= ?1 AND process_id = ?2 AND device = ?3 ORDER BY seq DESC LIMIT 1)
    UNION ALL SELECT reserved, live_requested, rounding, unsplit_remainder, segment_quantum,
    pool_segregation, stream_pending, cached_segments, external_holes
    FROM moment m CROSS JOIN ladder_change c ON c.seq > m.seq AND c.seq <= ?1
    WHERE c.process_id = ?2 AND c.device = ?3)
    SELECT sum(reserved), sum(live_requested), sum(rounding), sum(unsplit_remainder), sum(segment_quantum),
    sum(pool_segregation), sum(stream_pending), sum(cached_segments), sum(external_holes) FROM part

-- statement sql_bytes_of_totals
-- What `record --keep totals` would have taken, about: without rows of events and of what was freed, and with as large
-- a part of the stacks as there are call sites that have 1/10,000 of anything (trace/model/derive_join.c).
WITH part AS (SELECT name, sum(pgsize) AS bytes FROM dbstat GROUP BY name),
    whole AS (SELECT domain, sum(allocations) AS allocations, sum(bytes) AS bytes, sum(peak_bytes) AS peak_bytes,
            sum(live_bytes) AS live_bytes, count(*) AS callsites
        FROM callsite_stat GROUP BY domain),
    large AS (SELECT count(DISTINCT t.callsite_id) * 1.0 / (SELECT sum(callsites) FROM whole) AS share
        FROM callsite_stat t JOIN whole w ON w.domain = t.domain
        WHERE 10000 * t.allocations >= w.allocations OR 10000 * t.bytes >= w.bytes
            OR (w.peak_bytes > 0 AND 10000 * t.peak_bytes >= w.peak_bytes)
            OR (w.live_bytes > 0 AND 10000 * t.live_bytes >= w.live_bytes))
    SELECT CAST(total(CASE WHEN name IN ('event_row', 'allocation_row') THEN 0
            WHEN name IN ('callsite', 'callsite_stat_row', 'stack_node_row', 'stack_frame', 'symbol') THEN bytes * share
            ELSE bytes END) AS INTEGER) + 60 * (SELECT total(live_allocations) FROM total_stat WHERE process_id = 0)
    FROM part, large

-- statement sql_moment_of_segments
SELECT (SELECT ts_ns FROM event WHERE seq = ?1), (SELECT max(seq) FROM event),
    (SELECT max(seq) FROM keyframe WHERE seq <= ?1)

-- statement sql_keyframes_before
SELECT k.process_id, k.device, k.data FROM keyframe k JOIN (SELECT process_id, device, max(seq) AS
    seq FROM keyframe WHERE seq <= ?1 GROUP BY process_id, device) USING (process_id, device, seq)
    LEFT JOIN process p ON p.id = k.process_id
    WHERE k.data IS NOT NULL AND (?2 < 0 OR k.device = ?2) AND (?3 = 0 OR p.pid = ?3)

-- statement sql_segment_events
SELECT thread_id, device, kind, stream, pool, id, addr, size, requested, arg, cause, flags
    FROM event_own WHERE seq > ?1 AND seq <= ?2 AND kind BETWEEN @KIND_ALLOC@ AND @KIND_SEGMENT_UNMAP@ ORDER BY seq

-- statement sql_block_owners
SELECT addr, process_id, device, alloc_seq, free_completed_seq, callsite_id, alloc_ns FROM allocation
    WHERE domain = @DOMAIN_BLOCK@ AND addr IN (SELECT value FROM json_each(?1))
    AND alloc_seq <= ?2 AND (free_completed_seq IS NULL OR free_completed_seq > ?3)

-- statement sql_place_of_callsite
SELECT s.function, coalesce(s.file, s.module), s.line FROM callsite c JOIN symbol s ON s.id =
    coalesce(c.user_symbol_id, c.symbol_id) WHERE c.id = ?1

-- statement sql_symbols_of_callsite
SELECT u.function, u.file, u.line, u.module, u.is_python, s.function, s.file, s.line, s.module, s.is_python FROM
    callsite c LEFT JOIN symbol u ON u.id = coalesce(c.user_symbol_id, c.symbol_id) LEFT JOIN symbol s ON s.id =
    c.symbol_id WHERE c.id = ?1

-- statement sql_frames_of_callsite
SELECT depth, function, file, line, module, is_python, is_inlined, coalesce(pc, -1), user_rank FROM frame WHERE
    callsite_id = ?1 ORDER BY depth

-- statement sql_pool_of_number
SELECT is_small, capture_id, user_id FROM pool WHERE process_id = ?1 AND device = ?2 AND number = ?3

-- statement sql_private_pools
SELECT number, kind, capture_id, user_id, coalesce(callsite_id, 0), user_function, user_file, user_line
    FROM private_pool WHERE process_id = ?1 AND device = ?2 ORDER BY number

-- statement sql_usual_domain
SELECT min(CASE domain WHEN 'heap' THEN 0 WHEN 'block' THEN 1 WHEN 'device' THEN 2 WHEN 'managed' THEN 3 WHEN
    'pinned' THEN 4 ELSE 0 END) FROM total WHERE allocations > 0

-- statement sql_process_of_pid
SELECT p.id FROM process p LEFT JOIN total_process t ON t.process_id = p.id AND t.domain = ?2 WHERE p.pid = ?1
    ORDER BY coalesce(t.peak_bytes, -1) DESC, p.id LIMIT 1

-- statement sql_threads_of_pid
SELECT t.id, t.process_id FROM thread t JOIN process p ON p.id = t.process_id WHERE ?1 = 0 OR p.pid = ?1 ORDER BY
    t.id

-- statement sql_storage_leaks
SELECT callsite_id, kind, CAST(round(score * 1000) AS INTEGER), storages, bytes, evidence, pid FROM
    storage_leak_callsite WHERE ?1 = 0 OR pid = ?1 ORDER BY bytes * score DESC, callsite_id, kind, process_id

-- statement sql_storages_alive
-- All, and what of them is alive. That less what looks leaked is what view storage_kept has, which would work out the
-- leaks again.
SELECT sum(storages), sum(alive), sum(alive_bytes) FROM storage_total WHERE kind <> 'view' AND (?1 = 0 OR pid = ?1)

-- statement sql_timeline
SELECT ts_ns, allocated, reserved, requested, live_allocations FROM timeline WHERE domain = ?1 AND device = ?2
    ORDER BY seq

-- statement sql_timeline_of_process
SELECT ts_ns, allocated, reserved, requested, live_allocations FROM timeline_process WHERE domain = ?1 AND
    device = ?2 AND process_id = ?3 ORDER BY seq

-- statement sql_hidden_tables
PRAGMA query_only = 0; PRAGMA temp_store = 2; BEGIN;
CREATE TEMP TABLE symbol(id INTEGER PRIMARY KEY, function TEXT, file TEXT, line INTEGER, module TEXT,
    is_python INTEGER, is_inlined INTEGER, user_rank INTEGER);
INSERT INTO temp.symbol
    SELECT id, function, file, line, module, is_python, is_inlined, user_rank FROM main.symbol;
CREATE TEMP TABLE callsite(id INTEGER PRIMARY KEY, node_id INTEGER, depth INTEGER, symbol_id INTEGER,
    user_symbol_id INTEGER);
INSERT INTO temp.callsite SELECT id, node_id, depth, symbol_id, NULL FROM main.callsite;

-- statement sql_place_of_symbol
SELECT function, coalesce(file, module), line FROM symbol WHERE id = ?1

-- statement sql_losses
-- The figures of struct report_loss. A damaged file may have threads of no process: how these ended nobody knows.
SELECT t.*, p.*, u.*, d.*, (SELECT sum(value) FROM stats WHERE name = 'python_lines_missing') FROM
    (SELECT count(*), sum(emitted), sum(stored), sum(spilled), sum(lost), sum(lost_bytes), sum(uncommitted),
    count(*) FILTER (WHERE lost > 0), sum(uncommitted) FILTER (WHERE uncommitted > 0 AND end_cause = 'signal'),
    sum(uncommitted) FILTER (WHERE uncommitted > 0 AND end_cause = 'exec'),
    sum(uncommitted) FILTER (WHERE uncommitted > 0 AND end_cause = 'running'),
    sum(uncommitted) FILTER (WHERE uncommitted > 0 AND coalesce(end_cause, '') NOT IN ('signal', 'exec', 'running'))
    FROM thread t LEFT JOIN (SELECT id AS process_id, end_cause FROM process) USING (process_id)) t,
    (SELECT count(*) FILTER (WHERE end_cause = 'running'), count(*) FILTER (WHERE end_cause = 'signal'),
    count(*) FILTER (WHERE end_cause = 'unknown'), iif(min(exit_status) FILTER (WHERE end_cause = 'signal') =
    max(exit_status) FILTER (WHERE end_cause = 'signal'), max(exit_status) FILTER (WHERE end_cause = 'signal'), 0)
    FROM process) p,
    (SELECT count(*), sum(count) FROM unrecorded_program) u,
    (SELECT count(*), count(*) FILTER (WHERE name NOT IN ('processes_unrecorded', 'events_lost', 'bytes_lost',
    'events_unattached', 'processes_unattached', 'processes_missing', 'frees_unknown', 'heap_not_recorded',
    'library_not_recorded')), sum(value) FILTER (WHERE name = 'events_not_derived'),
    sum(value) FILTER (WHERE name = 'frees_unknown'), sum(value) FILTER (WHERE name = 'heap_not_recorded'),
    sum(value) FILTER (WHERE name = 'library_not_recorded'), sum(value) FILTER (WHERE name = 'events_unattached'),
    sum(value) FILTER (WHERE name IN ('processes_unattached', 'processes_missing')),
    sum(value) FILTER (WHERE name IN ('rings_damaged', 'rings_missing')) FROM data_loss) d

-- statement sql_losses_without_words
SELECT name, source, sum(value), count(*) FROM data_loss WHERE name NOT IN ('processes_unrecorded', 'events_lost',
    'bytes_lost', 'events_unattached', 'processes_unattached', 'processes_missing', 'frees_unknown')
    GROUP BY name, source ORDER BY name, source

-- statement sql_losses_listed
SELECT name, CASE WHEN idx >= 0 THEN idx END AS idx, source, value FROM data_loss ORDER BY name, idx

-- statement sql_figure
-- One figure by its name. They are one statement, so that an answer prepares it once; only what is asked for is
-- worked out.
SELECT CASE ?1
    WHEN 'gpu' THEN EXISTS (SELECT 1 FROM total WHERE domain NOT IN ('heap', 'mmap')) OR EXISTS (SELECT 1 FROM device)
        OR EXISTS (SELECT 1 FROM cupti_state)
    WHEN 'python' THEN EXISTS (SELECT 1 FROM total WHERE domain = 'python')
    WHEN 'exit of main' THEN EXISTS (SELECT 1 FROM leak_moment WHERE moment = 'exit of main')
    WHEN 'storages' THEN EXISTS (SELECT 1 FROM storage)
    WHEN 'streams' THEN (SELECT count(*) FROM stream)
    WHEN 'devices' THEN (SELECT count(*) FROM device)
    WHEN 'rss peak' THEN (SELECT rss_bytes FROM rss_peak)
    WHEN 'rss last' THEN (SELECT rss_bytes FROM rss_total ORDER BY ts_ns DESC LIMIT 1)
    WHEN 'host peak' THEN (SELECT bytes FROM host_peak)
    WHEN 'ladders' THEN EXISTS (SELECT 1 FROM ladder_peak)
    WHEN 'unattributed' THEN EXISTS (SELECT 1 FROM device_unattributed)
    WHEN 'least unattributed' THEN (SELECT min(unattributed) FROM device_unattributed)
    WHEN 'device failures' THEN (SELECT count(*) FROM device_failure)
    WHEN 'cupti' THEN EXISTS (SELECT 1 FROM cupti_state)
    WHEN 'by cuda' THEN (SELECT sum(allocations) FROM total_process WHERE domain = 'device' AND process_id IN
        (SELECT process_id FROM cupti_total)) -- of the processes in which both recorded
    WHEN 'by cupti' THEN (SELECT sum(allocations) FROM cupti_total)
    WHEN 'operators' THEN EXISTS (SELECT 1 FROM operator_stat)
    WHEN 'wasted' THEN (SELECT sum(wasted) FROM operator_stat)
    WHEN 'evictions' THEN (SELECT sum(evictions) FROM eviction_stat)
    WHEN 'evicted bytes' THEN (SELECT sum(bytes) FROM eviction_stat)
    WHEN 'failed operators' THEN (SELECT count(*) FROM remat_failure_stat)
    WHEN 'ranks' THEN (SELECT count(DISTINCT rank) FROM rank_total)
    END

-- statement sql_storage_totals
SELECT pid, kind, dtype, storages, bytes, alive, alive_bytes, unused FROM storage_total ORDER BY bytes DESC, process_id,
    kind, dtype LIMIT ?1

-- statement sql_symbol
SELECT function, file, line, module, is_python FROM symbol WHERE id = ?1

-- statement sql_groups_of_all
SELECT callsite_id, allocations, frees, bytes, live_allocations, live_bytes, peak_allocations, peak_bytes, temporary,
    lifetime_ns FROM callsite_stat WHERE domain = (SELECT code FROM domain WHERE name = ?1)

-- statement sql_groups_peaks
SELECT device, coalesce(peak_seq, -1) FROM total_stat WHERE process_id = 0 AND domain = (SELECT code FROM domain WHERE
    name = ?1)

-- statement sql_groups_by_process
SELECT callsite_id, allocations, frees, bytes, live_allocations, live_bytes, peak_allocations, peak_bytes, temporary,
    lifetime_ns, process_id FROM callsite_stat WHERE process_id IS NOT NULL AND domain = (SELECT code FROM domain WHERE
    name = ?1) UNION ALL SELECT callsite_id, allocations, frees, bytes, live_allocations, live_bytes, peak_allocations,
    peak_bytes, temporary, lifetime_ns, process_id FROM callsite_share WHERE domain = (SELECT code FROM domain WHERE
    name = ?1)

-- statement sql_groups_allocations
SELECT coalesce(thread_id, 0), size, temporary, lifetime_events, lifetime_ns, alloc_seq, device, alloc_ns <= at_ns AND
    coalesce(alloc_ns + lifetime_ns > at_ns, 1) FROM allocation_row a LEFT JOIN leak_moment m ON m.process_id =
    a.process_id WHERE domain = (SELECT code FROM domain WHERE name = ?1)

-- statement sql_unrecorded_programs
SELECT path, reason, count FROM unrecorded_program ORDER BY count DESC, path, reason LIMIT ?1

-- statement sql_unread_pythons
SELECT source FROM stats WHERE name = 'python_lines_missing' GROUP BY source ORDER BY source LIMIT 3

-- statement sql_lines_together
-- The symbol, and for each of enum together_of heap, python, together.
SELECT coalesce(user_symbol_id, 0), heap_bytes, python_bytes, together_bytes, live_heap_bytes, live_python_bytes,
    live_together_bytes, peak_heap_bytes, peak_python_bytes, peak_together_bytes FROM line_together

-- statement sql_line_total_made
PRAGMA query_only = 0; CREATE TEMP TABLE line_total AS SELECT * FROM main.line_total

-- statement sql_totals
SELECT domain, device, allocations, frees, bytes, temporary, failed, live_allocations, live_bytes, peak_bytes,
    peak_allocations, peak_seq, peak_ns FROM total ORDER BY CASE domain WHEN 'block' THEN 1 WHEN 'device' THEN 2 WHEN
    'managed' THEN 4 WHEN 'pinned' THEN 5 WHEN 'mmap' THEN 7 WHEN 'address_space' THEN 8 ELSE 6 END, domain, device

-- statement sql_totals_of_processes
SELECT domain, device, allocations, frees, bytes, temporary, failed, live_allocations, live_bytes, peak_bytes,
    peak_allocations, peak_seq, peak_ns, process_id, pid FROM total_process WHERE ?1 < 0 OR process_id = ?1 ORDER BY
    process_id, CASE domain WHEN 'block' THEN 1 WHEN 'device' THEN 2 WHEN 'managed' THEN 4 WHEN 'pinned' THEN 5 WHEN
    'mmap' THEN 7 WHEN 'address_space' THEN 8 ELSE 6 END, domain, device

-- statement sql_stream_of_number
SELECT handle FROM stream WHERE process_id = ?1 AND device = ?2 AND number = ?3
