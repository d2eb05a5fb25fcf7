-- SPDX-License-Identifier: Apache-2.0
-- Statements of this folder, each after the name of its constant in C; codes as cmake/EmbedText.cmake has them.

-- statement sql_oom_sites
SELECT max(a.callsite_id), sum(a.size), count(*) FROM allocation a LEFT JOIN callsite c
    ON c.id = a.callsite_id WHERE a.domain = @DOMAIN_BLOCK@ AND a.device = ?1 AND a.process_id IS ?2 AND
    a.alloc_seq <= ?3 AND (a.free_requested_seq IS NULL OR a.free_requested_seq > ?3)
    GROUP BY coalesce(c.user_symbol_id, c.symbol_id) ORDER BY 2 DESC, coalesce(c.user_symbol_id, c.symbol_id) DESC
    LIMIT ?4

-- statement sql_oom_stages
SELECT c.text, e.seq, e.requested FROM event_own e LEFT JOIN event_cause c
    ON c.code = e.cause WHERE e.seq IN (SELECT seq FROM event_own WHERE seq < ?1 AND thread_id = ?2 AND
    device = ?3 AND kind = @KIND_OOM_RETRY@ AND coalesce(arg, 0) = 0 AND seq > (SELECT coalesce(max(seq), 0)
    FROM event_own WHERE
    seq < ?1 AND thread_id = ?2 AND device = ?3 AND (kind IN (@KIND_ALLOC@, @KIND_OOM@) OR (kind = @KIND_OOM_RETRY@
    AND coalesce(arg, 0) <> 0)))
    ORDER BY seq DESC LIMIT ?4) ORDER BY e.seq

-- statement sql_oom_allocations_between
SELECT count(*) FROM event_own WHERE kind = @KIND_ALLOC@ AND device = ?1 AND seq > ?2 AND seq < ?3

-- statement sql_help_of_name
SELECT s.name, s.type || ' ' || s.name || coalesce(': ' || h.meaning, '') FROM sqlite_schema s LEFT JOIN help h ON
    h.name = s.name AND h.column = '' WHERE s.type IN ('table', 'view') AND lower(s.name) = lower(?1)

-- statement sql_peak_of_ladders
SELECT seq FROM ladder_peak WHERE (?1 < 0 OR device = ?1) AND (?2 = 0 OR pid = ?2) ORDER BY reserved DESC, seq
    LIMIT 1

-- statement sql_oom_requests
SELECT o.seq, o.ts_ns, o.device, e.pid, e.tid, o.requested, o.allocated, o.reserved, o.largest_free, e.callsite_id,
    e.thread_id, o.process_id, e.stream, e.pool FROM oom o JOIN event_own e ON e.seq = o.seq
    WHERE ?1 < 0 OR o.device = ?1
    ORDER BY o.seq

-- statement sql_info_meta
SELECT key, CAST(value AS TEXT) FROM meta ORDER BY key

-- statement sql_info_processes
SELECT id, pid, parent_pid, rank, executable, command_line, start_ns, end_ns, end_cause, exit_status, exec_path FROM
    process ORDER BY id LIMIT ?1

-- statement sql_info_threads
SELECT id, process_id, ring, pid, tid, name, start_ns, end_ns, emitted, stored, spilled, lost, lost_bytes, uncommitted
    FROM thread ORDER BY id LIMIT ?1

-- statement sql_info_kinds
-- Counted by code and named afterwards: the view `events` would join a name to each of the millions.
SELECT coalesce(k.name, 'kind ' || e.kind), e.events FROM (SELECT kind, count(*) AS events FROM event GROUP BY kind) e
    LEFT JOIN event_kind k ON k.code = e.kind ORDER BY e.events DESC, e.kind

-- statement sql_info_stats
SELECT severity, name, idx, source, value FROM stats ORDER BY severity, name, idx LIMIT ?1

-- statement sql_info_devices
SELECT id AS device, name, total_bytes, uuid FROM device ORDER BY id LIMIT ?1

-- statement sql_info_streams
SELECT process_id, device, number, handle FROM stream ORDER BY process_id, device, number LIMIT ?1

-- statement sql_info_streams_text
SELECT p.pid, s.device, s.number, s.handle FROM stream s LEFT JOIN process p ON p.id = s.process_id ORDER BY
    s.process_id, s.device, s.number LIMIT ?1

-- statement sql_info_processes_text
SELECT pid, parent_pid, start_ns, end_ns, CASE end_cause WHEN 'unknown' THEN 'unknown (killed?)' WHEN 'running' THEN
    'still running' ELSE end_cause || coalesce(' ' || exit_status, '') END, coalesce(command_line, executable) FROM
    process ORDER BY id LIMIT ?1

-- statement sql_info_threads_text
SELECT pid, tid, emitted, stored, spilled, lost, uncommitted, name FROM thread ORDER BY stored DESC, id LIMIT ?1

-- statement sql_info_stats_text
SELECT severity, name, sum(value), source FROM stats WHERE severity = 'info' OR value <> 0 GROUP BY severity, name,
    source ORDER BY severity, name, source

-- statement sql_columns_of_statement
SELECT DISTINCT c.name FROM sqlite_schema s JOIN pragma_table_info(s.name) c WHERE s.type IN ('table', 'view') AND
    instr(lower(?1), lower(s.name)) > 0 ORDER BY 1

-- statement sql_query_schema
SELECT s.name, s.type, coalesce(h.meaning, '') AS meaning FROM sqlite_schema s LEFT JOIN help h ON h.name = s.name AND
    h.column = '' WHERE s.type IN ('table', 'view') AND s.name NOT LIKE 'sqlite%' ORDER BY s.type DESC, s.name
