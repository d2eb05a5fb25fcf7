-- SPDX-License-Identifier: Apache-2.0
-- Statements of this folder, each after the name of its constant in C; codes as cmake/EmbedText.cmake has them.

-- statement sql_perfetto_counters
SELECT process_id, domain || iif(domain IN ('block', 'device', 'managed', 'pinned'), ', GPU ' || device, ''),
    ts_ns, allocated, iif(domain = 'block', active, NULL), iif(domain = 'block', reserved, NULL),
    iif(domain = 'block', requested, NULL) FROM timeline_process
    WHERE ?1 IN (0, process_id) AND (?2 IS NULL OR domain = ?2) ORDER BY process_id, domain, device, seq

-- statement sql_perfetto_calls_of_segments
SELECT call, segment_id FROM (SELECT segment_id, lag(seq) OVER w AS call, lag(segment_id) OVER w AS before
    FROM (SELECT t.process_id, e.addr, e.seq, NULL AS segment_id FROM device_event d CROSS JOIN event_own e
    ON e.seq = d.seq JOIN thread t ON t.id = e.thread_id WHERE d.kind IN (@KIND_DEV_ALLOC@, @KIND_DEV_ALLOC_ASYNC@,
    @KIND_VMM_MAP@) AND e.flags & (@FLAG_FAILED@ | @FLAG_DUPLICATE@) = 0
    UNION ALL SELECT process_id, addr, alloc_seq, id FROM segment)
    WHERE ?1 IN (0, process_id) WINDOW w AS (PARTITION BY process_id, addr ORDER BY seq))
    WHERE segment_id IS NOT NULL AND call IS NOT NULL AND before IS NULL

-- statement sql_perfetto_segments
SELECT s.process_id, s.device, s.stream, s.id, s.pool, s.addr, s.size, s.alloc_ns, s.free_ns,
    coalesce(s.is_expandable, 0), x.text, a.thread_id, f.thread_id, y.function, coalesce(y.file, y.module),
    y.line FROM segment s LEFT JOIN event_cause x ON x.code = s.cause LEFT JOIN event_own a ON a.seq = s.alloc_seq
    LEFT JOIN event_own f ON f.seq = s.free_seq LEFT JOIN callsite c ON c.id = a.callsite_id
    LEFT JOIN symbol y ON y.id = coalesce(c.user_symbol_id, c.symbol_id) WHERE ?1 IN (0, s.process_id)
    ORDER BY s.process_id, s.device, s.stream, s.alloc_ns, s.id

-- statement sql_perfetto_blocks
SELECT a.process_id, a.device, a.stream, a.id, a.segment_id, a.addr, a.size, a.requested, a.alloc_ns,
    a.free_ns, y.function, coalesce(y.file, y.module), y.line FROM (SELECT * FROM allocation
    WHERE domain = @DOMAIN_BLOCK@ AND
    ?1 IN (0, process_id) ORDER BY size DESC, id LIMIT ?2) a LEFT JOIN callsite c ON c.id = a.callsite_id
    LEFT JOIN symbol y ON y.id = coalesce(c.user_symbol_id, c.symbol_id)
    ORDER BY a.process_id, a.device, a.stream, a.alloc_ns, a.id

-- statement sql_perfetto_calls
SELECT e.thread_id, e.seq, e.ts_ns, e.requested, coalesce(c.text, k.name), k.name, e.device, e.stream,
    e.addr, e.size, e.flags & @FLAG_FAILED@, e.arg, y.function, coalesce(y.file, y.module), y.line FROM device_event d
    CROSS JOIN event_own e ON e.seq = d.seq LEFT JOIN thread t ON t.id = e.thread_id
    LEFT JOIN event_kind k ON k.code = e.kind LEFT JOIN event_cause c ON c.code = e.cause
    LEFT JOIN callsite s ON s.id = e.callsite_id LEFT JOIN symbol y ON y.id = coalesce(s.user_symbol_id,
    s.symbol_id) WHERE (d.kind BETWEEN @KIND_DEV_ALLOC@ AND @KIND_DEV_POOL@
    OR d.kind BETWEEN @KIND_VMM_SET_ACCESS@ AND @KIND_DEV_SYNC@) AND coalesce(e.flags, 0) & @FLAG_DUPLICATE@ = 0
    AND ?1 IN (0, t.process_id) ORDER BY e.thread_id, e.ts_ns - e.requested, e.ts_ns DESC, e.seq

-- statement sql_perfetto_oom_chains
SELECT thread_id, seq, ts_ns, kind, stage, size, requested, arg, addr, device, sum(coalesce(ended, 0))
    OVER (w ROWS UNBOUNDED PRECEDING) AS chain, lag(ended, 1, 1) OVER w, lead(1) OVER w IS NOT NULL AND ended = 0
    FROM (SELECT e.thread_id, e.seq, e.ts_ns, e.kind, c.text AS stage, e.size, e.requested, e.arg, e.addr,
    e.device, e.kind = @KIND_OOM@ OR e.arg = 1 AS ended FROM event_own e LEFT JOIN thread t ON t.id = e.thread_id
    LEFT JOIN event_cause c ON c.code = e.cause WHERE e.kind IN (@KIND_OOM_RETRY@, @KIND_OOM@) AND ?1 IN (0,
    t.process_id))
    WINDOW w AS (PARTITION BY thread_id ORDER BY seq) ORDER BY thread_id, seq

-- statement sql_pprof_mappings
SELECT s.module, (SELECT m.build_id FROM module m WHERE m.path = s.module LIMIT 1), s.pc FROM
    (SELECT s.module, max(f.pc) AS pc FROM stack_frame f JOIN symbol s ON s.id = f.symbol_id WHERE s.module IS
    NOT NULL AND f.pc IS NOT NULL GROUP BY s.module) s ORDER BY s.module IN (SELECT executable FROM process)
    DESC, s.module

-- statement sql_perfetto_processes
SELECT id, pid, coalesce(command_line, executable, 'process'), start_ns FROM process WHERE ?1 IN (0, id) ORDER BY
    id

-- statement sql_perfetto_marks
SELECT coalesce(t.id, 0), m.name, m.begin_ns, coalesce(m.end_ns, max(m.begin_ns, ?2)), m.end_ns IS NULL FROM mark m
    LEFT JOIN thread t ON t.process_id = m.process_id AND t.tid = m.tid WHERE ?1 IN (0, m.process_id) GROUP BY m.id
    ORDER BY 1, 3, 4 DESC, m.id

-- statement sql_pprof_samples
SELECT t.pid, c.node_id, coalesce(c.symbol_id, c.user_symbol_id), t.allocations, t.bytes, t.live_allocations,
    t.live_bytes, t.peak_bytes FROM callsite_total_process t LEFT JOIN callsite c ON c.id = t.callsite_id WHERE
    t.domain = ?1 AND (?2 = 0 OR t.process_id = ?2)
