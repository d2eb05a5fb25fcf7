-- SPDX-License-Identifier: Apache-2.0
-- Statements of this folder, each after the name of its constant in C; codes as cmake/EmbedText.cmake has them.

-- place: of the default domains a line is shown once, where it looks more like a leak; together: of both, an object
-- that is in both once.
-- statement sql_leak_lines
SELECT live_allocations, live_bytes, domain, pattern, CAST(round(score * 100) AS INTEGER) AS points, by_bytes,
    is_library, coalesce(allocations, -1), first_ns, last_ns, coalesce(callsite_id, 0),
    live_1, live_2, live_3, live_4, live_5, live_6, live_7, live_8, live_9,
    live_bytes_1, live_bytes_2, live_bytes_3, live_bytes_4, live_bytes_5, live_bytes_6, live_bytes_7,
    live_bytes_8, live_bytes_9,
    row_number() OVER (PARTITION BY user_symbol_id ORDER BY score DESC, domain DESC) AS place, shared_bytes,
    sum(live_bytes - shared_bytes) OVER line AS together,
    coalesce(sum(live_bytes) FILTER (WHERE domain = 'heap') OVER line, -1),
    coalesce(sum(live_bytes) FILTER (WHERE domain = 'python') OVER line, -1), score < 0.005
FROM leak_line WHERE domain = ?1 OR ?1 IS NULL AND domain IN ('heap', 'python')
WINDOW line AS (PARTITION BY user_symbol_id) ORDER BY points DESC, is_library, together DESC, user_symbol_id, domain

-- statement sql_report_processes
SELECT t.pid, replace(p.executable, rtrim(p.executable, replace(p.executable, '/', '')),
    '') AS program, t.domain || CASE WHEN t.device > 0 THEN ', GPU ' || t.device ELSE '' END AS
    domain, t.bytes, t.peak_bytes, t.live_bytes, t.allocations FROM total_process t JOIN process p
    ON p.id = t.process_id ORDER BY t.peak_bytes DESC, t.process_id, t.domain LIMIT ?1

-- statement sql_report_peak_lines
SELECT s.function AS user_function, coalesce(s.file || ':' || s.line, s.module) AS user_line,
    g.domain, g.peak_bytes, g.bytes, g.live_bytes, g.allocations, g.live_allocations, g.temporary,
    g.callsites FROM (SELECT domain, user_symbol_id AS symbol_id, peak_bytes, bytes, live_bytes,
    allocations, live_allocations, temporary, callsites FROM line_total
    ORDER BY 3 DESC, 4 DESC, 1, 2 LIMIT ?1) g LEFT JOIN symbol s ON s.id = g.symbol_id

-- statement sql_report_ranks
-- The domain that says most about a rank comes first: blocks of tensors, memory of GPUs, the heap.
SELECT domain, rank, device, pid, peak_bytes, peak_ns, reserved_bytes, bytes, allocations, failed, processes,
    count(*) OVER (PARTITION BY domain) AS ranks FROM rank_total ORDER BY CASE domain WHEN 'block' THEN 0
    WHEN 'device' THEN 1 WHEN 'heap' THEN 2 ELSE 3 END, domain, peak_bytes DESC, rank LIMIT ?1

-- statement sql_report_ranks_json
SELECT * FROM rank_total ORDER BY domain, rank LIMIT ?1

-- statement sql_report_rank_differences
SELECT domain, rank, figure, value, CAST(median AS INTEGER) AS median, CAST(round(1000 * deviation) AS INTEGER) AS
    deviation, iif(is_unlike, 'yes', '') AS is_unlike FROM rank_difference ORDER BY abs(rank_difference.deviation) DESC,
    domain, figure, rank LIMIT ?1

-- statement sql_report_rank_differences_json
SELECT * FROM rank_difference ORDER BY domain, figure, rank LIMIT ?1

-- statement sql_report_rank_lines
SELECT domain, rank, iif(figure = 'bytes', 'allocated', 'at the peak') AS of, user_function,
    coalesce(user_file || ':' || user_line, user_module) AS user_line, value, CAST(median AS INTEGER) AS median,
    CAST(difference AS INTEGER) AS difference FROM rank_line_difference WHERE difference <> 0
    AND figure <> 'allocations' ORDER BY figure DESC, abs(rank_line_difference.difference) DESC, domain, user_symbol_id,
    rank LIMIT ?1

-- statement sql_report_rank_lines_json
SELECT * FROM rank_line_difference WHERE difference <> 0 ORDER BY domain, figure, abs(difference) DESC, user_symbol_id,
    rank LIMIT ?1

-- statement sql_report_rank_imbalance
SELECT domain, begin_ns, end_ns, ranks, difference, most_bytes, most_rank, least_bytes, least_rank FROM rank_imbalance
    ORDER BY difference DESC, domain, begin_ns LIMIT ?1

-- statement sql_report_rank_imbalance_json
SELECT * FROM rank_imbalance ORDER BY domain, begin_ns LIMIT ?1

-- statement sql_ranks_unlike
-- By rank the figures in which it is unlike the others, the rank that is farthest away first.
SELECT rank, figure, value, CAST(median AS INTEGER), CAST(round(1000 * abs(deviation)) AS INTEGER), value > median
    FROM (SELECT *, max(coalesce(abs(deviation), 1)) OVER (PARTITION BY rank) AS farthest FROM rank_difference
        WHERE domain = ?1 AND is_unlike)
    ORDER BY farthest DESC, rank, CASE figure WHEN 'peak_bytes' THEN 0 WHEN 'reserved_bytes' THEN 1 WHEN 'bytes' THEN 2
    WHEN 'allocations' THEN 3 ELSE 4 END

-- statement sql_ranks_alike
-- Rounded up: in tenths of a percent, how far a rank is from the median at most.
SELECT CAST(most AS INTEGER) + (most > CAST(most AS INTEGER)) FROM (SELECT 1000 * max(abs(deviation)) AS most FROM
    rank_difference WHERE domain = ?1)

-- statement sql_rank_lines_unlike
-- Of each rank that has another peak than the others, or else other bytes, the line that makes most of that.
SELECT rank, user_function, coalesce(user_file || ':' || user_line, user_module) AS user_line, value, CAST(median AS
    INTEGER), CAST(difference AS INTEGER) FROM (SELECT l.*, abs(u.deviation) AS away, row_number() OVER (
        PARTITION BY l.rank ORDER BY l.figure DESC, abs(l.difference) DESC, l.user_symbol_id) AS place
        FROM rank_difference u JOIN rank_line_difference l ON l.domain = u.domain AND l.rank = u.rank
            AND l.figure = u.figure
        WHERE u.domain = ?1 AND u.is_unlike AND u.figure IN ('peak_bytes', 'bytes')
            AND l.difference * (u.value - u.median) > 0)
    WHERE place = 1 ORDER BY away DESC, rank

-- statement sql_ranks_apart
-- On average, the share of that of what the largest rank had, and when it was most.
SELECT CAST(avg(difference) OVER () AS INTEGER), sum(difference) OVER (), sum(most_bytes) OVER (), difference, begin_ns,
    most_rank, most_bytes, least_rank, least_bytes FROM rank_imbalance WHERE domain = ?1
    ORDER BY difference DESC, begin_ns LIMIT 1

-- statement sql_rank_line_apart
SELECT s.function, coalesce(s.file || ':' || s.line, s.module), g.difference FROM (SELECT user_symbol_id,
        sum(CASE moment WHEN 'most' THEN bytes WHEN 'least' THEN -bytes END) AS difference FROM rank_live
        WHERE domain = ?1 AND moment <> 'peak' GROUP BY user_symbol_id ORDER BY difference DESC, user_symbol_id LIMIT 1)
    g JOIN symbol s ON s.id = g.user_symbol_id

-- statement sql_report_lines_together
SELECT user_function, coalesce(user_file || ':' || user_line, user_module) AS user_line,
    peak_together_bytes, peak_heap_bytes, peak_python_bytes, together_bytes, heap_bytes, python_bytes,
    live_together_bytes, live_heap_bytes, live_python_bytes FROM line_together
    ORDER BY 3 DESC, 6 DESC, user_symbol_id LIMIT ?1

-- statement sql_report_leaks
SELECT l.score, s.function AS user_function, coalesce(s.file || ':' || s.line, s.module) AS
    user_line, l.domain, l.bytes, l.allocations, l.evidence FROM temp.leak_list l LEFT JOIN callsite c
    ON c.id = l.callsite_id LEFT JOIN symbol s ON s.id = coalesce(c.user_symbol_id, c.symbol_id)
    ORDER BY l.rowid LIMIT ?1

-- statement sql_report_devices
SELECT u.device, d.name, d.total_bytes, d.uuid, (SELECT count(*) FROM device_process p
    WHERE p.device = u.device) AS processes FROM (SELECT id AS device FROM device UNION
    SELECT device FROM device_process) u LEFT JOIN device d ON d.id = u.device ORDER BY u.device
    LIMIT ?1

-- statement sql_report_device_users
SELECT u.device, d.name, d.total_bytes, d.uuid, p.process_id, p.pid, p.rank, count(p.process_id) OVER (PARTITION BY
    u.device) FROM (SELECT id AS device FROM device UNION SELECT device FROM device_process) u LEFT JOIN device d
    ON d.id = u.device LEFT JOIN device_process p ON p.device = u.device ORDER BY u.device, p.process_id

-- statement sql_report_device_calls
SELECT device, function, sum(calls) AS calls, sum(failed) AS failed, sum(total_ns) AS total_ns,
    CAST(1000.0 * sum(total_ns) / max((SELECT duration_ns FROM recording), 1) AS INTEGER) AS share,
    sum(total_ns) / max(sum(calls), 1) AS mean_ns, max(max_ns) AS max_ns FROM device_call
    GROUP BY device, function ORDER BY sum(device_call.total_ns) DESC, function LIMIT ?1

-- statement sql_tree_symbols
SELECT id, min(id) OVER (PARTITION BY function, file, coalesce(line, 0), module), user_rank <= 2, function GLOB
    '…*frame* …' AND file IS NULL AND module IS NULL,
    is_python AND (file GLOB '<frozen importlib*' OR file GLOB '*/importlib/_bootstrap*')
    FROM symbol WHERE id > 0 ORDER BY id

-- statement sql_diff_frames
SELECT s.field, s.text_a, s.text_b, '' FROM detail d JOIN stack_difference s ON s.a = d.a AND s.b = d.b WHERE
    d.place = ?1 AND d.field = 'frames' ORDER BY s.number

-- statement sql_diff_detail
SELECT field, a, b, a_belongs_to, b_belongs_to, field = 'frames', field IN ('id', 'callsite_id') FROM detail WHERE
    place = ?1 ORDER BY number

-- statement sql_diff_verdict
SELECT run, rings, in_both, only_in_a, only_in_b, differing, callsites, callsites_differing, differences_all,
    tables_all FROM verdict

-- statement sql_leak_moments
SELECT count(*), sum(moment = 'exit of main'), sum(moment = 'end'), sum(moment = 'exec'), min(end_ns), max(end_ns)
    FROM leak_moment

-- statement sql_cupti_differences
SELECT process_id, pid, device, addr, size, by_cuda, by_cupti FROM cupti_difference ORDER BY process_id, device,
    addr, size LIMIT ?1

-- statement sql_gpu_time_by_activity
SELECT activity, sum(total_ns) FROM device_call WHERE activity <> 'other' GROUP BY activity ORDER BY activity

-- statement sql_remat_budgets
SELECT min(budget), max(budget), count(*), count(budget) FROM remat_budget b WHERE seq = (SELECT max(seq) FROM
    remat_budget l WHERE l.process_id = b.process_id)

-- statement sql_remat_work
SELECT sum(runs), sum(run_ns), sum(remats), sum(collateral), sum(remat_ns), max(depth_max) FROM operator_stat

-- statement sql_remat_evictions
SELECT coalesce(nullif(cause, ''), 'no cause'), sum(evictions) AS evictions FROM eviction_total GROUP BY cause
    ORDER BY evictions DESC, cause

-- statement sql_remat_blocked_of
SELECT operator, cause, storages, bytes FROM remat_blocked WHERE failure_seq = ?1 ORDER BY bytes DESC, operator,
    cause

-- statement sql_remat_storages
SELECT * FROM remat_storage WHERE id IN (SELECT id FROM remat_storage_stat WHERE evictions > 0 ORDER BY evictions
    DESC, size DESC, id LIMIT ?1) ORDER BY evictions DESC, size DESC, id

-- statement sql_report_totals
SELECT domain, device, bytes, peak_bytes, peak_ns, live_bytes, allocations, live_allocations, temporary, failed FROM
    total ORDER BY peak_bytes DESC, domain, device LIMIT ?1

-- statement sql_report_host_peak
SELECT bytes, heap_bytes, mmap_bytes, ts_ns, seq FROM host_peak LIMIT ?1

-- statement sql_has_host_peak
SELECT count(*) FROM host_peak

-- statement sql_host_figures
SELECT coalesce((SELECT bytes FROM host_peak), max(peak_bytes)), sum(live_bytes), sum(bytes), sum(allocations)
    FROM total WHERE domain IN ('heap', 'mmap')

-- statement sql_report_sizes
SELECT domain, device, up_to_bytes, allocations, bytes, live_allocations, live_bytes, temporary, mean_lifetime_ns FROM
    size_total ORDER BY domain, device, up_to_bytes LIMIT ?1

-- statement sql_report_marks
SELECT name, pid, tid, begin_ns, end_ns - begin_ns AS duration_ns, begin_seq FROM mark ORDER BY begin_seq LIMIT ?1

-- statement sql_report_ooms
SELECT seq, ts_ns, device, requested, allocated, reserved, largest_free FROM oom ORDER BY seq LIMIT ?1

-- statement sql_report_streams
SELECT device, pid, domain, stream, allocations, frees, bytes, peak_bytes, live_bytes FROM stream_total ORDER BY device,
    process_id, domain, bytes DESC, stream LIMIT ?1

-- statement sql_report_streams_json
SELECT process_id, pid, domain, device, stream, handle, allocations, frees, bytes, live_bytes, peak_bytes FROM
    stream_total ORDER BY process_id, domain, device, stream

-- statement sql_report_device_calls_json
SELECT process_id, pid, device, activity, function, calls, failed, total_ns, mean_ns, max_ns, bytes FROM device_call
    ORDER BY process_id, device, function, activity

-- statement sql_report_segments
SELECT device, pid, reserved, live_requested + rounding + unsplit_remainder AS allocated, stream_pending, CAST(1000.0 *
    (reserved - live_requested - rounding - unsplit_remainder) / max(reserved, 1) AS INTEGER) AS unused, seq, ts_ns FROM
    ladder_peak ORDER BY reserved DESC, process_id, device LIMIT ?1

-- statement sql_report_ladder
SELECT device, pid, live_requested, rounding, unsplit_remainder, segment_quantum, pool_segregation, stream_pending,
    cached_segments, external_holes FROM ladder_peak ORDER BY reserved DESC, process_id, device LIMIT ?1

-- statement sql_report_holes
SELECT device, pid, size, before_size, before_function, behind_size, behind_function FROM peak_hole LIMIT iif(?1 < 0,
    10, min(?1, 10))

-- statement sql_report_failures
SELECT seq, ts_ns, pid, device, stream, function, bytes, result FROM device_failure ORDER BY seq LIMIT ?1

-- statement sql_report_failures_json
SELECT seq, ts_ns, process_id, pid, tid, device, stream, kind, function, bytes, result, took_ns, callsite_id FROM
    device_failure ORDER BY seq LIMIT ?1

-- statement sql_report_cupti
SELECT pid, state, seq, ts_ns, arg FROM cupti_state ORDER BY seq LIMIT ?1

-- statement sql_report_remat
SELECT coalesce(name, '(no name)') AS operator, sum(runs) AS runs, sum(run_ns) AS run_ns, sum(remats) AS again,
    sum(collateral) AS collateral, sum(remat_ns) AS ns, CAST(1000.0 * sum(remat_ns) / max((SELECT sum(remat_ns) FROM
    operator_stat), 1) AS INTEGER) AS share, sum(wasted) AS wasted FROM operator_stat GROUP BY operator HAVING again > 0
    OR sum(collateral) > 0 ORDER BY ns DESC, again DESC, operator LIMIT ?1

-- statement sql_report_unattributed
-- Per device: how often the driver was queried, its memory, the most in use and what was attributed of it then, and
-- the rest: the least, the most, the last.
SELECT device, count(*) AS queries, max(total) AS total, max(used) AS most_used,
    (SELECT attributed FROM device_unattributed m WHERE m.device = u.device ORDER BY used DESC, seq LIMIT 1)
    AS attributed, min(unattributed) AS least, max(unattributed) AS most,
    (SELECT unattributed FROM device_unattributed l WHERE l.device = u.device ORDER BY seq DESC LIMIT 1)
    AS last FROM device_unattributed u GROUP BY device ORDER BY device

-- statement sql_report_segments_with_driver
SELECT process_id, pid, device, seq, ts_ns, (SELECT a.allocated FROM timeline_process a WHERE a.process_id =
    m.process_id AND a.domain = 'device' AND a.device = m.device AND a.seq <= m.seq ORDER BY a.seq DESC LIMIT 1) AS
    from_driver, reserved, live_requested + rounding + unsplit_remainder AS allocated, live_requested + rounding +
    unsplit_remainder + stream_pending AS active FROM ladder_peak m ORDER BY reserved DESC, process_id, device LIMIT ?1

-- statement sql_ladder_peaks
SELECT * FROM ladder_peak ORDER BY reserved DESC, process_id, device

-- statement sql_peak_holes
SELECT * FROM peak_hole LIMIT ?1

-- statement sql_unattributed_short
SELECT device, max(total), max(used), (SELECT attributed FROM device_unattributed m WHERE m.device = u.device ORDER BY
    used DESC, seq LIMIT 1), max(unattributed) FROM device_unattributed u GROUP BY device ORDER BY device

-- statement sql_remat_storages_most_evicted
SELECT evictions, number, pid, coalesce(operator, '(no name)'), size, remats + collateral, remat_ns, wasted FROM
    remat_storage WHERE id IN (SELECT id FROM remat_storage_stat WHERE evictions > 0 ORDER BY evictions DESC, size DESC,
    id LIMIT ?1) ORDER BY evictions DESC, size DESC, id

-- statement sql_remat_blocked_last
SELECT coalesce(operator, '(no name)'), cause, storages, bytes FROM remat_blocked WHERE failure_seq = (SELECT max(seq)
    FROM remat_failure_stat) ORDER BY bytes DESC, operator, cause LIMIT ?1

-- statement sql_remat_last_failure
SELECT seq, ts_ns, coalesce(operator, '(no name)'), needed, budget, blocked FROM remat_failure ORDER BY seq DESC LIMIT 1

-- statement sql_cupti_differences_text
SELECT pid, device, addr, size, by_cuda, by_cupti FROM cupti_difference ORDER BY process_id, device, addr, size LIMIT ?1

-- statement sql_cupti_states_counted
-- has_begun: a refusal of a process that has got CUPTI's subscription is about activity records.
SELECT state, EXISTS (SELECT 1 FROM cupti_state b WHERE b.process_id = s.process_id AND b.state = 'cupti_begin' AND
    b.seq < s.seq) AS has_begun, count(DISTINCT process_id), sum(arg), max(arg) FROM cupti_state s GROUP BY state,
    has_begun ORDER BY min(seq)

-- statement sql_cupti_states
SELECT process_id, pid, state, seq, ts_ns, arg, CASE WHEN state = 'cupti_refused' THEN CASE WHEN EXISTS (SELECT 1 FROM
    cupti_state b WHERE b.process_id = s.process_id AND b.state = 'cupti_begin' AND b.seq < s.seq) THEN 'activity' ELSE
    'subscription' END END AS refused FROM cupti_state s ORDER BY seq

-- statement sql_tree_callsites
-- Figures are in the order of enum call_tree_metric.
SELECT c.node_id, coalesce(c.user_symbol_id, c.symbol_id), t.peak_bytes, t.peak_allocations, t.bytes, t.allocations,
    t.live_bytes, t.live_allocations, 0, t.temporary FROM callsite_stat t LEFT JOIN callsite c ON c.id = t.callsite_id
    WHERE t.domain = (SELECT d.code FROM domain d WHERE d.name = ?1)

-- statement sql_tree_callsites_of_process
-- The view of processes has its domains by name.
SELECT c.node_id, coalesce(c.user_symbol_id, c.symbol_id), t.peak_bytes, t.peak_allocations, t.bytes, t.allocations,
    t.live_bytes, t.live_allocations, 0, t.temporary FROM callsite_total_process t LEFT JOIN callsite c ON c.id =
    t.callsite_id WHERE t.domain = ?1 AND t.process_id = ?2

-- statement sql_tree_callsites_of_part
-- Of the allocations of process ?2 and thread ?3 (0: of all), those live at ?5 (-1: at the domain's peak), those made
-- later than ?4 and until ?5 (-1: until the end), and of these the ones live at ?5 (-1: at the moment of varve leaks).
WITH marked AS (
    SELECT a.callsite_id, a.size, a.temporary, a.alloc_ns > ?4 AND (?5 < 0 OR a.alloc_ns <= ?5) AS is_in,
        iif(?5 < 0, a.alloc_seq <= p.seq AND coalesce(a.free_requested_seq > p.seq, 1),
            a.alloc_ns <= ?5 AND coalesce(a.free_ns > ?5, 1)) AS is_at,
        a.alloc_ns <= iif(?5 < 0, m.at_ns, ?5) AND coalesce(a.free_ns > iif(?5 < 0, m.at_ns, ?5), 1) AS is_left
    FROM allocation a
        LEFT JOIN (SELECT device, peak_seq AS seq FROM total WHERE domain = ?1) p ON p.device = coalesce(a.device, 0)
        LEFT JOIN leak_moment m ON m.process_id = a.process_id
    WHERE a.domain = (SELECT d.code FROM domain d WHERE d.name = ?1) AND (?3 = 0 OR a.tid = ?3)
        AND (?2 = 0 OR a.process_id IN (SELECT id FROM process WHERE pid = ?2)))
SELECT c.node_id, coalesce(c.user_symbol_id, c.symbol_id), t.at_bytes, t.at_count, t.bytes, t.count, t.left_bytes,
    t.left_count, 0, t.temporary
FROM (SELECT callsite_id, sum(size) FILTER (WHERE is_at) AS at_bytes, count(*) FILTER (WHERE is_at) AS at_count,
        sum(size) FILTER (WHERE is_in) AS bytes, count(*) FILTER (WHERE is_in) AS count,
        sum(size) FILTER (WHERE is_in AND is_left) AS left_bytes,
        count(*) FILTER (WHERE is_in AND is_left) AS left_count,
        count(*) FILTER (WHERE is_in AND temporary) AS temporary FROM marked GROUP BY callsite_id) t
    LEFT JOIN callsite c ON c.id = t.callsite_id

-- statement sql_leak_list_made
PRAGMA query_only = 0; CREATE TEMP TABLE leak_list(score TEXT, callsite_id INTEGER, domain TEXT, bytes INTEGER,
    allocations INTEGER, evidence TEXT)

-- statement sql_remat_evictions_json
SELECT * FROM eviction_total ORDER BY process_id, evictions DESC, cause

-- statement sql_remat_operators_json
SELECT * FROM operator_total ORDER BY remat_ns DESC, run_ns DESC, process_id, name LIMIT ?1

-- statement sql_leak_views_dropped
PRAGMA query_only = 0; DROP VIEW IF EXISTS temp.leak_moment;DROP VIEW IF EXISTS temp.leak_tenth; DROP VIEW IF EXISTS
    temp.leak_line

-- statement sql_diff_kinds
-- This one and the next three are of the comparison event by event (diff_events.sql).
SELECT * FROM kind_total ORDER BY rowid
-- statement sql_diff_fields
SELECT * FROM field_total ORDER BY rowid
-- statement sql_diff_heads
SELECT place, head, seq_b FROM listed_head JOIN listed l ON l.rowid = place ORDER BY place
-- statement sql_diff_listed
SELECT what, process_id, ring, first, last, kind, seq_a, seq_b, seq, rowid FROM listed ORDER BY rowid
