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
    '…*frame* …' AND file IS NULL AND module IS NULL FROM symbol WHERE id > 0 ORDER BY id

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

-- statement sql_first_device_failures
SELECT seq, ts_ns, pid, device, function, bytes, result, callsite_id FROM device_failure ORDER BY seq LIMIT ?1

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
