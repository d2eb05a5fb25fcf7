-- SPDX-License-Identifier: Apache-2.0
-- Statements of this folder, each after the name of its constant in C; codes as cmake/EmbedText.cmake has them.

-- statement sql_history_allocations
SELECT a.id, a.device, a.addr, CASE a.domain WHEN @DOMAIN_BLOCK@ THEN a.requested ELSE a.size END,
    coalesce((SELECT handle FROM stream s WHERE s.process_id = a.process_id AND s.device = a.device
    AND s.number = a.stream), a.stream), a.callsite_id, a.alloc_seq, a.alloc_ns,
    a.free_requested_seq, a.free_ns FROM allocation a WHERE a.domain = ?1 AND a.process_id = ?2
    AND a.addr > 0 AND a.size > 0 AND a.device BETWEEN 0 AND 255 ORDER BY a.id

-- statement sql_history_events
SELECT seq, device, kind, stream, pool, addr, size, requested, arg, id, cause, callsite_id,
    flags, ts_ns FROM event_own WHERE kind BETWEEN @KIND_ALLOC@ AND @KIND_OOM@ ORDER BY seq

-- statement sql_history_pids
SELECT count(DISTINCT pid) FROM event_own WHERE kind BETWEEN @KIND_ALLOC@ AND @KIND_OOM@

-- statement sql_history_last_inherited
SELECT max(seq) FROM event_own WHERE cause = @CAUSE_INHERITED@ AND kind IN (SELECT code FROM event_kind WHERE
    name IN ('alloc', 'segment_alloc', 'segment_map'))

-- statement sql_history_failed_requests
SELECT seq, device, size, coalesce((SELECT handle FROM stream s WHERE s.process_id = ?2 AND s.device = e.device AND
    s.number = e.stream), e.stream), callsite_id, ts_ns FROM event_own e
    WHERE kind = ?1 AND size > 0 AND device BETWEEN 0 AND 255 ORDER BY seq

-- statement sql_history_processes_of
SELECT count(DISTINCT process_id) FROM total_stat WHERE domain = ?1 AND process_id > 0 AND allocations > 0

-- statement sql_history_last_process_of
SELECT max(process_id) FROM total_stat WHERE domain = ?1 AND process_id > 0 AND allocations > 0

-- statement sql_history_stack_nodes
SELECT n.id, n.id - n.parent_lag, f.symbol_id FROM stack_node_row n CROSS JOIN stack_frame f ON f.id = n.frame_id
    CROSS JOIN symbol s ON s.id = f.symbol_id
