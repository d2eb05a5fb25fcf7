-- SPDX-License-Identifier: Apache-2.0
-- A recording under way, at one moment: the file live.db of its directory, written anew each second while `varve top`
-- watches. Not a part of the trace database, whose tables of figures are made at the end. Views and columns have the
-- names and meanings that they have there (views.sql); ..._per_s: since the moment before, NULL where there was none.

CREATE TABLE moment(number INTEGER NOT NULL, -- of the moment, from 1
    ts_ns INTEGER NOT NULL, before_ns INTEGER, command TEXT,
    pid INTEGER NOT NULL,      -- of the collector
    is_over INTEGER NOT NULL,  -- no event will follow
    events INTEGER NOT NULL, events_before INTEGER, waiting INTEGER NOT NULL, -- in rings, not taken yet
    lost INTEGER NOT NULL, rss_bytes INTEGER, processes INTEGER NOT NULL, processes_running INTEGER NOT NULL,
    threads INTEGER NOT NULL) STRICT;
CREATE TABLE domain(code INTEGER PRIMARY KEY, name TEXT, meaning TEXT, contained_in TEXT) STRICT;
-- process_id 0: all processes together
CREATE TABLE total_stat(process_id INTEGER NOT NULL, domain INTEGER NOT NULL, device INTEGER NOT NULL,
    allocations INTEGER NOT NULL, frees INTEGER NOT NULL, bytes INTEGER NOT NULL, live_allocations INTEGER NOT NULL,
    live_bytes INTEGER NOT NULL, peak_bytes INTEGER NOT NULL, peak_allocations INTEGER NOT NULL, peak_ns INTEGER,
    temporary INTEGER NOT NULL, failed INTEGER NOT NULL, allocations_before INTEGER NOT NULL,
    bytes_before INTEGER NOT NULL, PRIMARY KEY(process_id, domain, device)) STRICT, WITHOUT ROWID;
-- Those that lead in their domain by live bytes, bytes, or bytes since the moment before.
CREATE TABLE callsite_stat(callsite_id INTEGER NOT NULL, domain INTEGER NOT NULL, allocations INTEGER NOT NULL,
    frees INTEGER NOT NULL, bytes INTEGER NOT NULL, live_allocations INTEGER NOT NULL, live_bytes INTEGER NOT NULL,
    peak_allocations INTEGER NOT NULL, peak_bytes INTEGER NOT NULL, temporary INTEGER NOT NULL,
    allocations_before INTEGER NOT NULL, bytes_before INTEGER NOT NULL, PRIMARY KEY(callsite_id, domain)) STRICT,
    WITHOUT ROWID;
-- Names come later than events: a call site may have none yet.
CREATE TABLE callsite_name(callsite_id INTEGER PRIMARY KEY, user_function TEXT, user_file TEXT, user_line INTEGER,
    user_module TEXT, function TEXT, file TEXT, line INTEGER, module TEXT) STRICT;
CREATE TABLE allocator_stat(process_id INTEGER NOT NULL, device INTEGER NOT NULL, segments INTEGER NOT NULL,
    reserved INTEGER NOT NULL, active INTEGER NOT NULL, allocated INTEGER NOT NULL, requested INTEGER NOT NULL,
    cached INTEGER NOT NULL, PRIMARY KEY(process_id, device)) STRICT, WITHOUT ROWID;
CREATE TABLE process(id INTEGER PRIMARY KEY, pid INTEGER NOT NULL, rank INTEGER, command_line TEXT, rss_bytes INTEGER,
    threads INTEGER NOT NULL) STRICT; -- threads that record

-- One row.
CREATE VIEW recording AS
    SELECT number, command, pid, is_over, ts_ns AS duration_ns, events,
        1e9 * (events - events_before) / (ts_ns - before_ns) AS events_per_s, waiting, lost, rss_bytes, processes,
        processes_running, threads
    FROM moment;

CREATE VIEW total AS
    SELECT d.name AS domain, t.device, t.allocations, t.frees, t.bytes, t.live_allocations, t.live_bytes, t.peak_bytes,
        t.peak_allocations, t.peak_ns, t.temporary, t.failed,
        1e9 * (t.allocations - t.allocations_before) / (m.ts_ns - m.before_ns) AS allocations_per_s,
        1e9 * (t.bytes - t.bytes_before) / (m.ts_ns - m.before_ns) AS bytes_per_s
    FROM total_stat t CROSS JOIN moment m JOIN domain d ON d.code = t.domain
    WHERE t.process_id = 0 AND t.domain <> @DOMAIN_CUPTI@;

CREATE VIEW callsite_total AS
    SELECT t.callsite_id, d.name AS domain, n.user_function, n.user_file, n.user_line, n.user_module, n.function,
        n.file, n.line,
        n.module, n.callsite_id IS NOT NULL AS is_named, t.allocations, t.frees, t.bytes, t.live_allocations,
        t.live_bytes, t.peak_allocations, t.peak_bytes, t.temporary,
        1e9 * (t.allocations - t.allocations_before) / (m.ts_ns - m.before_ns) AS allocations_per_s,
        1e9 * (t.bytes - t.bytes_before) / (m.ts_ns - m.before_ns) AS bytes_per_s
    FROM callsite_stat t CROSS JOIN moment m JOIN domain d ON d.code = t.domain
        LEFT JOIN callsite_name n ON n.callsite_id = t.callsite_id;

-- Lines of the user's code: those of its call sites that lead, added up; callsite_id: one of them.
CREATE VIEW line_total AS
    SELECT domain, user_function, user_file, user_line, user_module, is_named, min(callsite_id) AS callsite_id,
        count(*) AS callsites,
        sum(allocations) AS allocations, sum(frees) AS frees, sum(bytes) AS bytes,
        sum(live_allocations) AS live_allocations,
        sum(live_bytes) AS live_bytes, sum(peak_allocations) AS peak_allocations, sum(peak_bytes) AS peak_bytes,
        sum(temporary) AS temporary, sum(allocations_per_s) AS allocations_per_s, sum(bytes_per_s) AS bytes_per_s
    FROM callsite_total
    GROUP BY domain, user_function, user_file, user_line, user_module, is_named, iif(is_named, 0, callsite_id);

-- Caching allocators: bytes as in view timeline; cached: of segments without any block in use (view ladder,
-- cached_segments).
CREATE VIEW allocator AS
    SELECT p.pid, p.rank, a.device, a.segments, a.reserved, a.active, a.allocated, a.requested, a.cached,
        1.0 - CAST(a.allocated AS REAL) / nullif(a.reserved, 0) AS unused_share
    FROM allocator_stat a LEFT JOIN process p ON p.id = a.process_id;

-- Those that run. Domains nest: of host memory the heap, of devices what the CUDA API gave.
CREATE VIEW process_total AS
    SELECT p.id, p.pid, p.rank, p.command_line, p.threads, p.rss_bytes,
        sum(t.live_bytes) FILTER (WHERE t.domain = @DOMAIN_HEAP@) AS heap_bytes,
        sum(t.live_bytes) FILTER (WHERE t.domain = @DOMAIN_DEVICE@) AS device_bytes,
        1e9 * sum(t.allocations - t.allocations_before) FILTER (WHERE t.domain = @DOMAIN_HEAP@)
            / (m.ts_ns - m.before_ns)
            AS allocations_per_s
    FROM process p CROSS JOIN moment m LEFT JOIN total_stat t ON t.process_id = p.id
    GROUP BY p.id;
