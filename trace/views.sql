-- SPDX-License-Identifier: Apache-2.0
-- Views: the one definition of every metric, shared by the command, the notebooks and SQL users.

CREATE VIEW events AS
    SELECT e.seq, e.ts_ns, e.pid, e.tid, e.device, e.dev_seq, k.name AS kind, e.stream, e.pool, e.id, e.addr, e.size,
        e.requested, e.arg, c.text AS cause, e.callsite_id, e.thread_id, e.flags,
        e.ring_seq
    FROM event e LEFT JOIN event_kind k ON k.code = e.kind LEFT JOIN event_cause c ON c.code = e.cause;

CREATE VIEW allocations AS
    SELECT a.id, d.name AS domain, a.pid, a.tid, a.device, a.pool, a.stream, a.segment_id, a.addr, a.size, a.requested,
        a.alloc_seq, a.free_requested_seq, a.free_completed_seq, a.alloc_ns, a.free_ns, a.callsite_id,
        c.text AS source, a.process_id, a.temporary, a.free_ns - a.alloc_ns AS lifetime_ns
    FROM allocation a LEFT JOIN domain d ON d.code = a.domain LEFT JOIN event_cause c ON c.code = a.source;

-- Allocations that were never freed. An mmap that is still there at the end is normal; a heap block may be too.
CREATE VIEW leak AS
    SELECT a.id, d.name AS domain, a.pid, a.tid, a.device, a.pool, a.stream, a.segment_id, a.addr, a.size, a.requested,
        a.alloc_seq, a.free_requested_seq, a.free_completed_seq, a.alloc_ns, a.free_ns, a.callsite_id,
        c.text AS source, a.process_id, a.temporary
    FROM allocation a LEFT JOIN domain d ON d.code = a.domain LEFT JOIN event_cause c ON c.code = a.source
    WHERE a.free_completed_seq IS NULL AND a.free_requested_seq IS NULL;

-- Frames of a call site, innermost (depth 0) first.
CREATE VIEW frame AS
    SELECT f.callsite_id, f.depth, s.function, s.file, s.line, s.module, s.is_python, s.is_inlined, f.pc
    FROM callsite_frame f JOIN symbol s ON s.id = f.symbol_id;

-- Per call site and domain; function, file and line are those of the innermost frame that is no allocation function.
CREATE VIEW callsite_total AS
    SELECT t.callsite_id, d.name AS domain, t.allocations, t.frees, t.bytes, t.live_allocations, t.live_bytes,
        t.peak_allocations, t.peak_bytes, t.temporary,
        CASE WHEN t.frees > 0 THEN t.lifetime_ns / t.frees END AS mean_lifetime_ns,
        s.function, s.file, s.line, s.module, s.is_python
    FROM callsite_stat t JOIN domain d ON d.code = t.domain
        LEFT JOIN callsite c ON c.id = t.callsite_id LEFT JOIN symbol s ON s.id = c.symbol_id;

-- Totals per process, domain and device; process_id 0 (pid NULL) is all processes together.
CREATE VIEW total AS
    SELECT t.process_id, p.pid, d.name AS domain, t.device, t.allocations, t.frees, t.bytes, t.live_allocations,
        t.live_bytes, t.peak_bytes, t.peak_allocations, t.peak_seq, t.peak_ns, t.temporary, t.failed
    FROM total_stat t JOIN domain d ON d.code = t.domain LEFT JOIN process p ON p.id = t.process_id;

-- The moment of the largest sum of live bytes (the first, if it was reached more than once).
CREATE VIEW peak AS
    SELECT t.process_id, p.pid, d.name AS domain, t.device, t.peak_seq AS seq, t.peak_ns AS ts_ns,
        t.peak_bytes AS bytes, t.peak_allocations AS allocations
    FROM total_stat t JOIN domain d ON d.code = t.domain LEFT JOIN process p ON p.id = t.process_id
    WHERE t.peak_seq IS NOT NULL;

-- Call sites whose blocks were live at the peak of all processes together.
CREATE VIEW peak_callsite AS
    SELECT callsite_id, domain, peak_bytes AS bytes, peak_allocations AS allocations, function, file, line, module, is_python
    FROM callsite_total WHERE peak_bytes > 0;

CREATE VIEW timeline AS
    SELECT s.process_id, p.pid, d.name AS domain, s.device, s.seq, s.ts_ns, s.allocated, s.allocated_max, s.active,
        s.reserved, s.requested, s.live
    FROM sample s JOIN domain d ON d.code = s.domain LEFT JOIN process p ON p.id = s.process_id;

-- Splits (other: the remainder) and merges (other: the neighbour that was absorbed) of caching allocators.
CREATE VIEW block_op AS
    SELECT seq, ts_ns, device, kind, id AS segment_id, addr, size, CASE kind WHEN 4 THEN addr + size ELSE arg END AS other_addr,
        requested AS other_size, cause
    FROM event WHERE kind IN (4, 5);

-- Share of the reserved bytes that no allocation used.
CREATE VIEW fragmentation AS
    SELECT process_id, domain, device, seq, ts_ns, allocated, reserved,
        1.0 - CAST(allocated AS REAL) / reserved AS unused_share
    FROM timeline WHERE reserved > 0;

CREATE VIEW oom_retry AS
    SELECT e.seq, e.ts_ns, e.pid, e.tid, e.device, c.text AS stage, e.size AS bytes_asked, e.requested AS bytes_freed,
        e.arg AS succeeded
    FROM event e LEFT JOIN event_cause c ON c.code = e.cause WHERE e.kind = 11;

-- Rows say what a report on this trace must admit; none = every event is here.
CREATE VIEW data_loss AS
    SELECT name, idx, source, value FROM stats WHERE severity = 'data_loss' AND value <> 0;
