-- SPDX-License-Identifier: Apache-2.0
-- Views: the one definition of every metric, shared by the command, the notebooks and SQL users.
--
-- Rows of one view may be added up as they are. NAME is all processes together, NAME_process has a row for each
-- process: nothing is in the same view twice. What CUPTI reports beside the CUDA recorder (domain 'cupti') is in views
-- cupti_* alone. Domains do nest: blocks of a caching allocator are cut from device memory, so sums go over one domain
-- (domain.contained_in).

-- These views have no joins: SQLite reads them as if they were tables.
--- the same of events that are not held by rows of allocations, in order: of caching allocators, the CUDA API,
---     storages, rematerialization, mappings, reallocs that move, and what is not usual
--- pid: number of the process in the operating system, which may be given again
--- tid: number of the thread in the operating system | requested: as event_kind.requested says of the kind
--- ring_seq: number in its ring, lost ones counted; NULL: stands for missing ones
--- like: event_row
CREATE VIEW event_own AS
    SELECT seq, ts_ns, coalesce(pid, (SELECT t.pid FROM thread t WHERE t.id = e.thread_id)) AS pid,
        coalesce(tid, (SELECT t.tid FROM thread t WHERE t.id = e.thread_id)) AS tid, device, dev_seq, kind, stream,
        pool, id, addr,
        size, coalesce(size, 0) - padding AS requested, arg, cause, callsite_id, thread_id, flags,
        seq - ring_lag AS ring_seq
    FROM event_row e;

--- one row: the address near which most allocations are, from which their rows count: small numbers
--- base: address, 0: none was chosen
CREATE VIEW addr_base AS SELECT coalesce((SELECT value FROM meta WHERE key = 'addr_base'), 0) AS base;

-- The rows of allocations hold their own events where these say nothing else, which are most of all.
--- all events, with codes; in order only by ORDER BY seq, which sorts them; read them as events
--- like: event_own
CREATE VIEW event AS
    SELECT seq, ts_ns, coalesce(pid, (SELECT t.pid FROM thread t WHERE t.id = e.thread_id)) AS pid,
        coalesce(tid, (SELECT t.tid FROM thread t WHERE t.id = e.thread_id)) AS tid, device, dev_seq, kind, stream,
        pool, id, addr, size, requested, arg, cause, callsite_id, thread_id, flags, ring_seq
    FROM (SELECT seq, ts_ns, pid, tid, device, dev_seq, kind, stream, pool, id, addr, size,
            coalesce(size, 0) - padding AS requested, arg, cause, callsite_id, thread_id, flags,
            seq - ring_lag AS ring_seq
        FROM event_row
        UNION ALL SELECT alloc_seq, alloc_ns, pid, tid, NULL, NULL,
            CASE own_events & 8 WHEN 0 THEN iif(domain = @DOMAIN_HEAP@, @KIND_HEAP_ALLOC@, @KIND_PYTHON_ALLOC@)
                ELSE iif(domain = @DOMAIN_HEAP@, @KIND_HEAP_REALLOC@, @KIND_PYTHON_REALLOC@) END,
            NULL, NULL, id, offset + (SELECT base FROM addr_base), size, size,
            CASE own_events & 8 WHEN 0 THEN iif(domain = @DOMAIN_HEAP@, 0, NULL)
                ELSE offset + (SELECT base FROM addr_base) END,
            source, callsite_id, thread_id, 0, alloc_seq - lag
        FROM allocation_row WHERE domain IN (@DOMAIN_HEAP@, @DOMAIN_PYTHON@) AND own_events & 1 = 0
        UNION ALL SELECT alloc_seq + lifetime_events, alloc_ns + lifetime_ns, NULL, NULL, NULL, NULL,
            iif(domain = @DOMAIN_HEAP@, @KIND_HEAP_FREE@, @KIND_PYTHON_FREE@), NULL, NULL, id,
            offset + (SELECT base FROM addr_base), size, NULL, NULL,
            iif(own_events & 4, @CAUSE_REALLOC@, @CAUSE_FREE@), NULL, coalesce(free_thread_id, thread_id), 0,
            alloc_seq + lifetime_events - lag - free_lag_change
        FROM allocation_row WHERE domain IN (@DOMAIN_HEAP@, @DOMAIN_PYTHON@) AND own_events & 2 = 0
            AND lifetime_events IS NOT NULL) e;

--- allocations, one row each, with codes; read them as allocations
--- pid: number of the process in the operating system, which may be given again
--- tid: number of the thread in the operating system | requested: bytes asked for
--- free_requested_seq: event that freed it; NULL: never
--- free_completed_seq: event after which its memory could be used again; of the heap the same
--- free_ns: when it was freed; NULL: never
--- like: allocation_row
CREATE VIEW allocation AS
    SELECT id, domain, coalesce(pid, (SELECT t.pid FROM thread t WHERE t.id = a.thread_id)) AS pid,
        coalesce(tid, (SELECT t.tid FROM thread t WHERE t.id = a.thread_id)) AS tid, device, pool, stream, segment_id,
        offset + (SELECT base FROM addr_base) AS addr, size, size - padding AS requested, alloc_seq,
        alloc_seq + lifetime_events AS free_requested_seq,
        alloc_seq + coalesce(lifetime_events, 0) + pending_events AS free_completed_seq, alloc_ns,
        alloc_ns + lifetime_ns AS free_ns, callsite_id, source, process_id, temporary, memory_kind
    FROM allocation_row a;

--- stacks as a tree: a stack is a path from a node to its root
--- id: number of the row; smaller than those of its callees | parent_id: caller: stack_node.id; NULL: outermost frame
--- like: stack_frame
CREATE VIEW stack_node AS
    SELECT id, id - parent_lag AS parent_id,
        (SELECT f.symbol_id FROM stack_frame f WHERE f.id = n.frame_id) AS symbol_id,
        (SELECT f.pc FROM stack_frame f WHERE f.id = n.frame_id) AS pc
    FROM stack_node_row n;

--- one row: the recording as a whole
--- begin_ns: when the program was started, which is when the trace began: 0
--- end_ns: when the program and all recorded processes had ended, or when the recording stopped while some still ran
--- duration_ns: the same, as begin_ns is 0
--- processes: recorded processes; one that executes another program stays the same process
--- images: rows of process: a process has one for each program that it executed
--- processes_running: processes that still ran when the recording stopped | threads: rows of thread
--- events: stored events of all threads
CREATE VIEW recording AS
    SELECT 0 AS begin_ns, t.end_ns, t.end_ns AS duration_ns, p.processes, p.images, p.processes_running,
        (SELECT count(*) FROM thread) AS threads, (SELECT sum(stored) FROM thread) AS events
    FROM (SELECT max(0, coalesce((SELECT value FROM meta WHERE key = 'duration_ns'),
                    (SELECT max(ts_ns) FROM event), 0),
                coalesce((SELECT max(end_ns) FROM process), 0)) AS end_ns) t
        CROSS JOIN (SELECT count(*) FILTER (WHERE previous IS NOT 'exec') AS processes, count(*) AS images,
                count(*) FILTER (WHERE end_cause = 'running') AS processes_running
            FROM (SELECT end_cause, lag(end_cause) OVER (PARTITION BY pid ORDER BY id) AS previous FROM process)) p;

-- coalesce(x, NULL) is x, but a condition on it leaves the join an outer one: then SQLite reads event row by row, and
-- does not write all of it to a temporary table first.
--- events, with names; in order by ORDER BY seq
--- kind: event_kind.name | cause: event_cause.text: the function called, or the reason
--- like: event
CREATE VIEW events AS
    SELECT e.seq, e.ts_ns, e.pid, e.tid, e.device, e.dev_seq, coalesce(k.name, NULL) AS kind, e.stream, e.pool, e.id,
        e.addr, e.size, e.requested, e.arg, coalesce(c.text, NULL) AS cause, e.callsite_id, e.thread_id, e.flags,
        e.ring_seq
    FROM event e LEFT JOIN event_kind k ON k.code = e.kind LEFT JOIN event_cause c ON c.code = e.cause;

--- allocations, one row each, with names; without what CUPTI reports of the same memory
--- source: function that was called, or where the block came from | lifetime_ns: free_ns - alloc_ns; NULL: never freed
--- like: allocation
CREATE VIEW allocations AS
    SELECT a.id, d.name AS domain, a.pid, a.tid, a.device, a.pool, a.stream, a.segment_id, a.addr, a.size, a.requested,
        a.alloc_seq, a.free_requested_seq, a.free_completed_seq, a.alloc_ns, a.free_ns, a.callsite_id,
        c.text AS source, a.process_id, a.temporary, a.free_ns - a.alloc_ns AS lifetime_ns, a.memory_kind
    FROM allocation a LEFT JOIN domain d ON d.code = a.domain LEFT JOIN event_cause c ON c.code = a.source
    WHERE a.domain <> @DOMAIN_CUPTI@;

-- Allocations that were live at the moment of leak_moment; what ended them later, if anything did, is in free_ns. An
-- mmap that is still there then is normal; a heap block may be too.
--- allocations that were live at the moment of leak_moment; to be there then may be right, as of tables that live as
---     long as the program
--- source: function that was called, or where the block came from
--- like: allocation
CREATE VIEW leak AS
    SELECT a.id, d.name AS domain, a.pid, a.tid, a.device, a.pool, a.stream, a.segment_id, a.addr, a.size, a.requested,
        a.alloc_seq, a.free_requested_seq, a.free_completed_seq, a.alloc_ns, a.free_ns, a.callsite_id,
        c.text AS source, a.process_id, a.temporary, a.memory_kind
    FROM allocation a CROSS JOIN leak_moment m ON m.process_id = a.process_id
        LEFT JOIN domain d ON d.code = a.domain LEFT JOIN event_cause c ON c.code = a.source
    WHERE a.alloc_ns > m.from_ns AND a.alloc_ns <= m.at_ns AND coalesce(a.free_ns > m.at_ns, 1)
        AND a.domain <> @DOMAIN_CUPTI@;

-- Frames of a call site, innermost (depth 0) first. The path of each call site is walked by itself, as an array,
-- because a recursive query as a table would be walked for all of them whatever is asked for; and without a join, for
-- which SQLite would read all nodes into a filter once ANALYZE has run. Ids fall on the way: a walk ends.
--- frames of a call site; quick for some call sites (WHERE or JOIN by callsite_id), slow for all
--- depth: 0: innermost | function: name; NULL: unresolved, then module and pc say where
--- pc: address in the module, from its start; the lowest of several, see frame_address; NULL for Python
--- user_rank: as symbol.user_rank; 0: plumbing
--- like: symbol
CREATE VIEW frame AS
    SELECT c.id AS callsite_id, path.key AS depth, s.function, s.file, s.line, s.module, s.is_python, s.is_inlined,
        f.pc, s.user_rank
    FROM callsite c
        CROSS JOIN json_each((
            WITH RECURSIVE walk(id) AS (
                SELECT c.node_id
                UNION ALL
                SELECT (SELECT p.parent_id FROM stack_node p WHERE p.id = walk.id AND p.parent_id < p.id) FROM walk
                WHERE walk.id IS NOT NULL
                LIMIT 65536)
            SELECT '[' || group_concat(id) || ']' FROM walk)) path
        CROSS JOIN stack_node_row n ON n.id = path.value
        CROSS JOIN stack_frame f ON f.id = n.frame_id
        CROSS JOIN symbol s ON s.id = f.symbol_id;

--- as callsite_total, by codes
--- callsite_id: callsite.id; 0: no stack | domain: domain.code
--- peak_allocations: allocations live at the peak of the domain (of each device at its own)
--- peak_bytes: bytes of those
--- lifetime_ns: lifetimes of the freed ones, added up
--- process_id: process.id of the only one that used the call site; NULL: several did, see callsite_share
--- shared_bytes: of objects of Python that are in the heap as well | live_shared_bytes: of them, those in live_bytes
--- peak_shared_bytes: of them, those in peak_bytes
--- like: total_stat
CREATE VIEW callsite_stat AS
    SELECT id & 4294967295 AS callsite_id, (id >> 32) + 1 AS domain, allocations, frees, bytes, live_allocations,
        live_bytes, peak_allocations, peak_bytes, temporary, lifetime_ns, process_id, shared_bytes, live_shared_bytes,
        peak_shared_bytes
    FROM callsite_stat_row;

--- sums per call site and domain, of all processes and devices together
--- user_function: of the user's line, the innermost frame that is not plumbing | user_file: its source file
--- user_line: line in it | callsite_id: call site: callsite.id, whose frames are in view frame; 0 or NULL: no stack
--- domain: whose memory: domain.name
--- mean_lifetime_ns: mean time from allocation to free, of the freed ones; NULL: none was
--- user_module: its program or library; NULL for Python | user_is_python: 1: a line of Python
--- like: callsite_stat
CREATE VIEW callsite_total AS
    SELECT u.function AS user_function, u.file AS user_file, u.line AS user_line, t.callsite_id, d.name AS domain,
        t.allocations,
        t.frees, t.bytes, t.live_allocations, t.live_bytes, t.peak_allocations, t.peak_bytes, t.temporary,
        CASE WHEN t.frees > 0 THEN t.lifetime_ns / t.frees END AS mean_lifetime_ns,
        s.function, s.file, s.line, s.module, s.is_python, u.module AS user_module, u.is_python AS user_is_python
    FROM callsite_stat t JOIN domain d ON d.code = t.domain
        LEFT JOIN callsite c ON c.id = t.callsite_id LEFT JOIN symbol s ON s.id = c.symbol_id
        LEFT JOIN symbol u ON u.id = coalesce(c.user_symbol_id, c.symbol_id);

-- The same of each process: rows of a call site add up to that of callsite_total, also at the peak, which is that
-- of all processes.
--- as callsite_total, of each process: rows of a call site add up to its row there
--- process_id: process.id; NULL: many processes that had ended, together
--- like: callsite_total
CREATE VIEW callsite_total_process AS
    SELECT t.process_id, p.pid, u.function AS user_function, u.file AS user_file, u.line AS user_line, t.callsite_id,
        d.name AS domain, t.allocations, t.frees, t.bytes, t.live_allocations, t.live_bytes, t.peak_allocations,
        t.peak_bytes, t.temporary, CASE WHEN t.frees > 0 THEN t.lifetime_ns / t.frees END AS mean_lifetime_ns,
        s.function, s.file, s.line, s.module, s.is_python, u.module AS user_module, u.is_python AS user_is_python
    FROM (SELECT process_id, callsite_id, domain, allocations, frees, bytes, live_allocations, live_bytes,
        peak_allocations,
            peak_bytes, temporary, lifetime_ns FROM callsite_stat WHERE process_id IS NOT NULL
        UNION ALL SELECT nullif(process_id, 0), callsite_id, domain, allocations, frees, bytes, live_allocations,
            live_bytes, peak_allocations, peak_bytes, temporary, lifetime_ns FROM callsite_share) t
        JOIN domain d ON d.code = t.domain LEFT JOIN process p ON p.id = t.process_id
        LEFT JOIN callsite c ON c.id = t.callsite_id LEFT JOIN symbol s ON s.id = c.symbol_id
        LEFT JOIN symbol u ON u.id = coalesce(c.user_symbol_id, c.symbol_id);

-- The sums of callsite_total by the user's line and domain. shared_bytes, live_shared_bytes, peak_shared_bytes: of
-- objects of Python that are in the heap as well (see leak_tenth).
--- sums per line of the user and domain, of all processes and devices together
--- user_symbol_id: symbol of the user line; NULL: no stack was recorded | callsites: call sites of the line
--- live_shared_bytes: the same of the live ones | peak_shared_bytes: the same of those live at the peak
--- like: callsite_total
CREATE VIEW line_total AS
    SELECT d.name AS domain, g.user_symbol_id, s.function AS user_function, s.file AS user_file, s.line AS user_line,
        s.module AS user_module, s.is_python AS user_is_python, g.callsites, g.allocations, g.frees, g.bytes,
        g.live_allocations, g.live_bytes, g.peak_allocations, g.peak_bytes, g.temporary, g.shared_bytes,
        g.live_shared_bytes, g.peak_shared_bytes
    FROM (SELECT t.domain, coalesce(c.user_symbol_id, c.symbol_id) AS user_symbol_id, count(*) AS callsites,
            sum(t.allocations) AS allocations, sum(t.frees) AS frees, sum(t.bytes) AS bytes,
            sum(t.live_allocations) AS live_allocations, sum(t.live_bytes) AS live_bytes,
            sum(t.peak_allocations) AS peak_allocations, sum(t.peak_bytes) AS peak_bytes,
            sum(t.temporary) AS temporary, sum(t.shared_bytes) AS shared_bytes,
            sum(t.live_shared_bytes) AS live_shared_bytes, sum(t.peak_shared_bytes) AS peak_shared_bytes
        FROM callsite_stat t LEFT JOIN callsite c ON c.id = t.callsite_id GROUP BY 1, 2) g
        JOIN domain d ON d.code = g.domain LEFT JOIN symbol s ON s.id = g.user_symbol_id;

-- What SQL can't add up in a moment: see function_totals.c. Rows are no parts of a whole: what is allocated counts in
-- each function that is in its stack.
--- sums per function anywhere in the stack and domain: what it and all that it called allocated; a call site counts
---     once in a function, however often that is in its stack; sums over rows mean nothing
--- domain: whose memory: domain.name | function: its name; NULL: unresolved, only the module is known
--- file: its source file; NULL: unknown | module: its program or library; NULL for Python | is_python: 1: of Python
--- like: function_stat
CREATE VIEW function_total AS
    SELECT d.name AS domain, f.symbol_id, s.function, s.file, s.module, s.is_python, f.callsites, f.allocations,
        f.frees, f.bytes, f.live_allocations, f.live_bytes, f.peak_allocations, f.peak_bytes, f.temporary
    FROM function_stat f JOIN domain d ON d.code = f.domain LEFT JOIN symbol s ON s.id = f.symbol_id;

-- Lines that have bytes in the heap and in Python's own memory (record --python-allocators): what they have of each,
-- and together, where objects that are in both count once. At the peak: of either domain at its own, as of several
-- devices.
--- lines of the user with bytes in the heap and in Python's own memory: each, and together
--- user_function: function of the user line | user_file: its file | user_line: its line
--- user_module: its program or library | heap_bytes: allocated in all, in the heap
--- python_bytes: the same of Python's objects | together_bytes: of both, objects that are in both once
--- live_heap_bytes: live at the moment of leak_moment, in the heap | live_python_bytes: the same of Python's objects
--- live_together_bytes: of both, objects that are in both once | peak_heap_bytes: live at the peak of the heap
--- peak_python_bytes: live at the peak of Python's objects
--- peak_together_bytes: of both, each at its own peak, objects that are in both once
--- like: line_total
CREATE VIEW line_together AS
    SELECT g.user_symbol_id, s.function AS user_function, s.file AS user_file, s.line AS user_line,
        s.module AS user_module, s.is_python AS user_is_python, g.heap_bytes, g.python_bytes,
        g.heap_bytes + g.python_bytes - g.shared AS together_bytes, g.live_heap_bytes, g.live_python_bytes,
        g.live_heap_bytes + g.live_python_bytes - g.live_shared AS live_together_bytes, g.peak_heap_bytes,
        g.peak_python_bytes, g.peak_heap_bytes + g.peak_python_bytes - g.peak_shared AS peak_together_bytes
    FROM (SELECT user_symbol_id, sum(iif(domain = 'heap', bytes, 0)) AS heap_bytes,
            sum(iif(domain = 'python', bytes, 0)) AS python_bytes, sum(shared_bytes) AS shared,
            sum(iif(domain = 'heap', live_bytes, 0)) AS live_heap_bytes,
            sum(iif(domain = 'python', live_bytes, 0)) AS live_python_bytes, sum(live_shared_bytes) AS live_shared,
            sum(iif(domain = 'heap', peak_bytes, 0)) AS peak_heap_bytes,
            sum(iif(domain = 'python', peak_bytes, 0)) AS peak_python_bytes, sum(peak_shared_bytes) AS peak_shared
        FROM line_total WHERE domain IN ('heap', 'python') AND EXISTS (SELECT 1 FROM total_stat
            WHERE domain = @DOMAIN_PYTHON@)
        GROUP BY 1 HAVING count(*) = 2) g
        LEFT JOIN symbol s ON s.id = g.user_symbol_id;

-- Per domain and device: all processes together. peak_*: when the sum of all processes was largest, for the first time.
--- sums per domain and device, of all processes together
--- domain: whose memory: domain.name
--- like: total_stat
CREATE VIEW total AS
    SELECT d.name AS domain, t.device, t.allocations, t.frees, t.bytes, t.live_allocations, t.live_bytes, t.peak_bytes,
        t.peak_allocations, t.peak_seq, t.peak_ns, t.temporary, t.failed
    FROM total_stat t JOIN domain d ON d.code = t.domain WHERE t.process_id = 0 AND t.domain <> @DOMAIN_CUPTI@;

-- The same of each process, whose peak is its own: these add up to more than that of all together.
--- as total, of each process: peaks are its own
--- process_id: process.id
--- like: total
CREATE VIEW total_process AS
    SELECT t.process_id, p.pid, d.name AS domain, t.device, t.allocations, t.frees, t.bytes, t.live_allocations,
        t.live_bytes, t.peak_bytes, t.peak_allocations, t.peak_seq, t.peak_ns, t.temporary, t.failed
    FROM total_stat t JOIN domain d ON d.code = t.domain LEFT JOIN process p ON p.id = t.process_id
    WHERE t.process_id <> 0 AND t.domain <> @DOMAIN_CUPTI@;

--- sums per domain, device and size, of all processes together
--- domain: whose memory: domain.name
--- mean_lifetime_ns: mean time from allocation to free, of the freed ones; NULL: none was
--- like: size_stat
CREATE VIEW size_total AS
    SELECT d.name AS domain, t.device, t.up_to_bytes, t.allocations, t.frees, t.bytes, t.live_allocations, t.live_bytes,
        t.temporary, CASE WHEN t.frees > 0 THEN t.lifetime_ns / t.frees END AS mean_lifetime_ns
    FROM size_stat t JOIN domain d ON d.code = t.domain WHERE t.process_id = 0;

--- as size_total, of each process
--- process_id: process.id
--- like: size_total
CREATE VIEW size_total_process AS
    SELECT t.process_id, p.pid, d.name AS domain, t.device, t.up_to_bytes, t.allocations, t.frees, t.bytes,
        t.live_allocations,
        t.live_bytes, t.temporary, CASE WHEN t.frees > 0 THEN t.lifetime_ns / t.frees END AS mean_lifetime_ns
    FROM size_stat t JOIN domain d ON d.code = t.domain LEFT JOIN process p ON p.id = t.process_id
    WHERE t.process_id <> 0;

-- Of several devices each has its own peak.
--- what was live at the peak of all processes together, per call site and domain
--- bytes: bytes live then | allocations: allocations live then
--- like: callsite_total
CREATE VIEW peak AS
    SELECT user_function, user_file, user_line, domain, peak_bytes AS bytes, peak_allocations AS allocations,
        callsite_id, function, file, line, module, is_python, user_module, user_is_python
    FROM callsite_total WHERE peak_allocations > 0;

--- when the most bytes were live, per domain and device
--- seq: event after which that was so for the first time | ts_ns: when that was, ns since the trace began
--- bytes: bytes live then | allocations: allocations live then
CREATE VIEW peak_time AS
    SELECT domain, device, peak_seq AS seq, peak_ns AS ts_ns, peak_bytes AS bytes, peak_allocations AS allocations
    FROM total WHERE peak_seq IS NOT NULL;

--- as peak_time, of each process at its own peak
--- like: peak_time
CREATE VIEW peak_time_process AS
    SELECT process_id, pid, domain, device, peak_seq AS seq, peak_ns AS ts_ns, peak_bytes AS bytes,
        peak_allocations AS allocations
    FROM total_process WHERE peak_seq IS NOT NULL;

-- Live bytes after an event: of each while a trace is short, else of those that had the most in an interval of time,
-- and of the last in it (base/downsample.h); allocated_max: the most since the row before.
--- bytes live over time per domain and device, of all processes together: a row an event while a trace is short, else,
---     of each interval of time, those where a figure was largest, and the last
--- domain: whose memory: domain.name | live_allocations: number of allocations
--- like: sample
CREATE VIEW timeline AS
    SELECT d.name AS domain, s.device, s.seq, s.ts_ns, s.allocated, s.allocated_max, s.active, s.reserved, s.requested,
        s.live AS live_allocations
    FROM sample s JOIN domain d ON d.code = s.domain WHERE s.process_id = 0;

--- as timeline, of each process
--- process_id: process.id
--- like: timeline
CREATE VIEW timeline_process AS
    SELECT s.process_id, p.pid, d.name AS domain, s.device, s.seq, s.ts_ns, s.allocated, s.allocated_max, s.active,
        s.reserved, s.requested, s.live AS live_allocations
    FROM sample s JOIN domain d ON d.code = s.domain LEFT JOIN process p ON p.id = s.process_id
    WHERE s.process_id <> 0;

--- resident memory of each process over time
--- process_id: row of process | pid: of the process | ts_ns: as in rss_sample | rss_bytes: as in rss_sample
--- rss_bytes_max: as in rss_sample
CREATE VIEW rss AS
    SELECT s.process_id, p.pid, s.ts_ns, s.rss_bytes, s.rss_bytes_max
    FROM rss_sample s LEFT JOIN process p ON p.id = s.process_id WHERE s.process_id > 0;
--- resident memory of all recorded processes together over time; pages that several share count in each
--- like: rss
CREATE VIEW rss_total AS
    SELECT ts_ns, rss_bytes, rss_bytes_max FROM rss_sample WHERE process_id = 0;
--- one row: the most that was resident at a time
--- rss_bytes: the largest of rss_total and process.peak_rss_bytes; NULL: unknown
CREATE VIEW rss_peak AS
    SELECT nullif(max(coalesce((SELECT max(rss_bytes_max) FROM rss_total), 0),
        coalesce((SELECT max(peak_rss_bytes) FROM process), 0)), 0) AS rss_bytes;

--- splits and merges of free blocks in caching allocators
--- kind: event_kind.code: 4 split, 5 merge | segment_id: segment.number, as the allocator numbers it
--- addr: address of the front part, or of the merged block | size: bytes of it
--- other_addr: address of the remainder, or of the neighbour that was absorbed | other_size: bytes of it
--- cause: event_cause.code
CREATE VIEW block_op AS
    SELECT seq, ts_ns, device, kind, id AS segment_id, addr, size,
        CASE kind WHEN @KIND_SPLIT@ THEN addr + size ELSE arg END AS other_addr, requested AS other_size, cause
    FROM event_own WHERE kind IN (@KIND_SPLIT@, @KIND_MERGE@);

--- bytes in segments of caching allocators that no allocation used, over time, of each process
--- process_id: process.id | reserved: bytes in segments | unused_share: 1 - allocated / reserved, from 0 to 1
--- like: timeline
CREATE VIEW fragmentation AS
    SELECT process_id, domain, device, seq, ts_ns, allocated, reserved,
        1.0 - CAST(allocated AS REAL) / reserved AS unused_share
    FROM timeline_process WHERE reserved > 0;

-- ---- The fragmentation ladder of each caching allocator: reserved - live_requested = rounding + unsplit_remainder +
-- segment_quantum + pool_segregation + stream_pending + cached_segments + external_holes, after every event and to the
-- byte. Each reserved byte counts once. An island is memory of one segment without a gap: the segment, or of an
-- expandable one a run of mappings.
--   live_requested      requested bytes of blocks in use: handed out, and their free not asked for
--   rounding            of blocks in use: their size by the size rules of the policy and its settings, less the request
--   unsplit_remainder   of blocks in use: their size less the rounded one: they were given out whole
--   stream_pending      blocks whose free was asked for and that wait for other streams
--   cached_segments     islands without any block in use or pending, but those of private pools, which a CUDA graph or
--                       a MemPool keeps
--   segment_quantum     of other islands: bytes that no block has had since they were reserved: more than a
--                       request has needed yet
--   pool_segregation    the rest that is free, where pool or stream are not those that asked the
--                       device last, with success (segment_alloc, segment_map) or without (oom): the request
--                       could not use it
--   external_holes      the same where they are: holes between blocks
-- Blocks in memory that no event reserved (recordings that begin late, or have lost events) are no part of it.

--- by how many bytes an event of a caching allocator changed each column of ladder
--- seq: the event
--- like: ladder
CREATE VIEW ladder_change AS
    SELECT e.seq, e.ts_ns, (SELECT t.process_id FROM thread t WHERE t.id = e.thread_id) AS process_id, e.device,
        e.reserved_change AS reserved, e.live_change AS live_requested, e.rounding_change AS rounding,
        e.unsplit_change AS unsplit_remainder, e.quantum_change AS segment_quantum, e.pools_change AS pool_segregation,
        e.pending_change AS stream_pending, e.cached_change AS cached_segments,
        e.reserved_change - e.live_change - e.rounding_change - e.unsplit_change - e.quantum_change - e.pools_change
            - e.pending_change - e.cached_change AS external_holes
    FROM event_row e WHERE e.kind BETWEEN @KIND_ALLOC@ AND @KIND_EMPTY_CACHE@;

--- why reserved memory serves no request, of each caching allocator after each of its events: reserved - live_requested
---     = the sum of the other seven, to the byte
--- seq: event after which it was so | reserved: bytes in segments
--- live_requested: bytes that were asked for, of blocks in use
--- rounding: bytes that the size rules (multiples of 512, divisions of powers of two, or those of another policy) added
---     to the requests of blocks in use
--- unsplit_remainder: bytes by which blocks in use are larger than their rounded size: a free block was given out whole
--- segment_quantum: free bytes that no block has had since they were reserved, in partly used segments: these were made
---     larger than has been needed yet
--- pool_segregation: other free bytes whose pool or stream is not the one that asked the device for memory last
---     (segment_alloc, segment_map, oom): in partly used segments, and in all of private pools
--- stream_pending: bytes of blocks whose free was asked for and that wait for other streams
--- cached_segments: bytes of segments, or of contiguous mapped ranges of expandable ones, without any block in use or
---     pending; not of private pools, which a CUDA graph or a MemPool keeps
--- external_holes: the other free bytes: holes between blocks of the pool and stream that asked the device for memory
---     last
CREATE VIEW ladder AS
    SELECT seq, ts_ns, process_id, device, sum(reserved) OVER so_far AS reserved,
        sum(live_requested) OVER so_far AS live_requested,
        sum(rounding) OVER so_far AS rounding, sum(unsplit_remainder) OVER so_far AS unsplit_remainder,
        sum(segment_quantum) OVER so_far AS segment_quantum, sum(pool_segregation) OVER so_far AS pool_segregation,
        sum(stream_pending) OVER so_far AS stream_pending, sum(cached_segments) OVER so_far AS cached_segments,
        sum(external_holes) OVER so_far AS external_holes
    FROM ladder_change WINDOW so_far AS (PARTITION BY process_id, device ORDER BY seq ROWS UNBOUNDED PRECEDING);

-- The row of `ladder` with the most reserved, and of such rows the first with the most in blocks in use (live_requested
-- + rounding + unsplit_remainder); kept with totals only, too.
--- the row of ladder with the most reserved, of each caching allocator; if there are several, the first with the most
---     in blocks in use
--- like: ladder
CREATE VIEW ladder_peak AS
    SELECT l.process_id, p.pid, l.device, l.seq, l.ts_ns, l.reserved, l.live AS live_requested, l.rounding,
        l.unsplit AS unsplit_remainder, l.quantum AS segment_quantum, l.pools AS pool_segregation,
        l.pending AS stream_pending, l.cached AS cached_segments,
        l.reserved - l.live - l.rounding - l.unsplit - l.quantum - l.pools - l.pending - l.cached AS external_holes
    FROM ladder_peak_stat l LEFT JOIN process p ON p.id = l.process_id;

--- what a caching allocator tried before a request failed or could be served, stage by stage
--- stage: what it tried | bytes_asked: bytes of the request | bytes_freed: bytes that the stage freed
--- succeeded: 1: the request could be served afterwards
CREATE VIEW oom_retry AS
    SELECT e.seq, e.ts_ns, e.pid, e.tid, e.device, c.text AS stage, e.size AS bytes_asked, e.requested AS bytes_freed,
        e.arg AS succeeded
    FROM event_own e LEFT JOIN event_cause c ON c.code = e.cause WHERE e.kind = @KIND_OOM_RETRY@;

-- Caching allocators at the end of the trace (`varve segments --at` has any moment). Segments without a block in use:
-- the allocator could give them back, but for those of private pools, which a CUDA graph or a MemPool keeps. A
-- segment's memory is its row, or for an expandable one the sum of its mappings.
--- segments of caching allocators that have no block in use at the end of the trace: they could be given back (those of
---     private pools could not, and are no rows)
--- is_expandable: 1: mapped in parts | addr: address; of an expandable one the lowest
--- size: bytes that are mapped at the end | alloc_seq: event that made it | alloc_ns: when, ns since the trace began
--- like: hole
CREATE VIEW empty_segment AS
    SELECT s.id AS segment_id, s.process_id, p.pid, s.device, s.pool, s.stream,
        coalesce(s.is_expandable, 0) AS is_expandable, s.addr,
        CASE WHEN s.is_expandable THEN (SELECT sum(iif(e.kind = @KIND_SEGMENT_MAP@, e.size, -e.size)) FROM event_row e
            WHERE e.kind IN (@KIND_SEGMENT_MAP@, @KIND_SEGMENT_UNMAP@) AND e.id = s.id) ELSE s.size END AS size,
                s.alloc_seq, s.alloc_ns
    FROM segment s LEFT JOIN process p ON p.id = s.process_id
    WHERE s.free_seq IS NULL AND s.pool < 2 AND s.id NOT IN (SELECT segment_id FROM allocation_row
        WHERE domain = @DOMAIN_BLOCK@
        AND pending_events IS NULL AND segment_id IS NOT NULL);

-- A pool has no name of its own. Whose it is shows in the stack by which it first had the device's memory: CUDA graph
-- trees (torch.compile's reduce-overhead) are frames of it. What a graph captured has a capture_id; a MemPool, and a
-- handle that several graphs share, a user_id.
--- private pools of caching allocators: whose they are, and who first asked the device for memory there
--- number: of the pool, half of pool.number | capture_id: as in pool | user_id: as in pool
--- kind: 'CUDA graph trees', 'CUDA graph', 'MemPool or handle'; NULL: unknown
--- callsite_id: of its first segment; NULL: no stack | segments: that it had in all
--- like: hole, callsite_total
CREATE VIEW private_pool AS
    SELECT f.process_id, p.pid, f.device, f.number, n.capture_id, n.user_id,
        CASE WHEN EXISTS (SELECT 1 FROM frame t WHERE t.callsite_id = e.callsite_id
            AND t.file GLOB '*/torch/_inductor/cudagraph_trees.py') THEN 'CUDA graph trees'
            WHEN n.capture_id <> 0 THEN 'CUDA graph' WHEN n.user_id <> 0 THEN 'MemPool or handle' END AS kind,
        e.callsite_id, u.function AS user_function, coalesce(u.file, u.module) AS user_file, u.line AS user_line,
        f.segments
    FROM (SELECT process_id, device, pool >> 1 AS number, min(alloc_seq) AS seq, count(*) AS segments FROM segment
            WHERE pool > 1 GROUP BY 1, 2, 3) f
        LEFT JOIN (SELECT process_id, device, number >> 1 AS number, max(capture_id) AS capture_id,
            max(user_id) AS user_id FROM pool GROUP BY 1, 2, 3) n
            ON n.process_id = f.process_id AND n.device = f.device AND n.number = f.number
        LEFT JOIN event_row e ON e.seq = f.seq LEFT JOIN callsite c ON c.id = e.callsite_id
        LEFT JOIN symbol u ON u.id = coalesce(c.user_symbol_id, c.symbol_id) LEFT JOIN process p ON p.id = f.process_id;

-- Free ranges in segments with a block in use: at the end, and at the moment of ladder_peak. Edges are blocks in use
-- and the ends of what is mapped (kind 0 begin, 2 end); a hole begins where one ends and ends where the next begins.
--- free ranges in segments with a block in use, at the end of the trace and at the moment of ladder_peak, with the
---     blocks that keep each from growing
--- moment: end or peak | seq: event after which it was so
--- like: hole
CREATE VIEW hole_moment AS
    WITH moments(moment, process_id, device, seq) AS MATERIALIZED (
            SELECT 'end', process_id, device, 9223372036854775807 FROM segment GROUP BY 2, 3
            UNION ALL
            SELECT 'peak', process_id, device, seq FROM ladder_peak_stat),
        present AS MATERIALIZED (
            SELECT m.moment, m.seq, s.id, s.process_id, s.device, s.pool, s.stream, s.addr, s.size, s.is_expandable
            FROM moments m JOIN segment s ON s.process_id = m.process_id AND s.device = m.device
            WHERE s.alloc_seq <= m.seq AND coalesce(s.free_seq > m.seq, 1)),
        used AS MATERIALIZED (
            SELECT s.moment, a.segment_id, a.addr, a.size, a.id
            FROM (SELECT segment_id, offset + (SELECT base FROM addr_base) AS addr, size, id, alloc_seq,
                alloc_seq + coalesce(lifetime_events, 0) + pending_events AS free_seq
                FROM allocation_row WHERE domain = @DOMAIN_BLOCK@) a JOIN present s ON s.id = a.segment_id
            WHERE a.alloc_seq <= s.seq AND coalesce(a.free_seq > s.seq, 1)),
        segments AS MATERIALIZED (
            SELECT * FROM present WHERE (moment, id) IN (SELECT moment, segment_id FROM used)),
        mapping AS (
            SELECT s.moment, e.id AS segment_id, iif(b.value = 0, e.addr, e.addr + e.size) AS addr,
                iif((e.kind = @KIND_SEGMENT_MAP@) = (b.value = 0), 1, -1) AS step
            FROM event_row e CROSS JOIN json_each('[0,1]') b JOIN segments s ON s.id = e.id AND e.seq <= s.seq
            WHERE (SELECT count(*) FROM segments WHERE is_expandable) > 0 AND e.kind IN (@KIND_SEGMENT_MAP@,
                @KIND_SEGMENT_UNMAP@) AND s.is_expandable),
        mapped AS (
            SELECT moment, segment_id, addr, sum(step) AS step FROM mapping GROUP BY moment, segment_id, addr
            HAVING sum(step) <> 0),
        edge AS (
            SELECT moment, segment_id, addr, size, 1 AS kind, id FROM used
            UNION ALL
            SELECT moment, segment_id, addr, 0, iif(step > 0, 0, 2), NULL FROM mapped
            UNION ALL
            SELECT s.moment, s.id, s.addr + b.value * s.size, 0, b.value * 2, NULL FROM segments s
            CROSS JOIN json_each('[0,1]') b WHERE s.is_expandable IS NOT 1),
        gap AS (
            SELECT moment, segment_id, kind, id, addr + size AS addr, lead(addr) OVER next - addr - size AS size,
                lead(id) OVER next AS next_id
            FROM edge WINDOW next AS (PARTITION BY moment, segment_id ORDER BY addr, kind))
    SELECT g.moment, s.seq, g.segment_id, s.process_id, p.pid, s.device, s.pool, s.stream,
        coalesce(s.is_expandable, 0) AS is_expandable, g.addr, g.size, g.id AS before_id, g.next_id AS behind_id
    FROM gap g JOIN segments s ON s.moment = g.moment AND s.id = g.segment_id LEFT JOIN process p ON p.id = s.process_id
    WHERE g.kind < 2 AND g.size > 0;

-- The largest first.
--- free ranges in segments with a block in use, at the end of the trace, the largest first
--- segment_id: row of segment | process_id: row of process | pid: of the process | device: that the memory is of
--- pool: number of the pool, as in pool | stream: number of the stream, as in stream
--- is_expandable: 1: the segment is mapped in parts | addr: address of the first free byte | size: free bytes
--- before_id: row of allocation that ends where it begins; NULL: it begins with what is mapped
--- behind_id: row of allocation that begins where it ends; NULL: it ends with what is mapped
CREATE VIEW hole AS
    SELECT segment_id, process_id, pid, device, pool, stream, is_expandable, addr, size, before_id, behind_id
    FROM hole_moment WHERE moment = 'end' ORDER BY size DESC, addr;

-- The same, with the user's lines that allocated the blocks around each.
--- hole_moment at the moment of ladder_peak, the largest first
--- before_size: bytes of the block that ends where it begins
--- before_function: function of the user's line that allocated that block | before_file: its source file
--- before_line: line in it | behind_size: bytes of the block that begins where it ends
--- behind_function: function of the user's line that allocated that block | behind_file: its source file
--- behind_line: line in it
--- like: hole_moment
CREATE VIEW peak_hole AS
    SELECT h.seq, h.segment_id, h.process_id, h.pid, h.device, h.pool, h.stream, h.is_expandable, h.addr, h.size,
        h.before_id, b.size AS before_size, bs.function AS before_function, coalesce(bs.file, bs.module) AS before_file,
        bs.line AS before_line, h.behind_id, a.size AS behind_size, s.function AS behind_function,
        coalesce(s.file, s.module) AS behind_file, s.line AS behind_line
    FROM hole_moment h LEFT JOIN allocation_row b ON b.id = h.before_id LEFT JOIN callsite bc ON bc.id = b.callsite_id
        LEFT JOIN symbol bs ON bs.id = coalesce(bc.user_symbol_id, bc.symbol_id)
        LEFT JOIN allocation_row a ON a.id = h.behind_id LEFT JOIN callsite c ON c.id = a.callsite_id
        LEFT JOIN symbol s ON s.id = coalesce(c.user_symbol_id, c.symbol_id)
    WHERE h.moment = 'peak' ORDER BY h.size DESC, h.addr;

-- Rows say what a report on this trace must admit; none = every event is here.
--- what a report on this trace must admit; no rows: nothing is missing
--- name: what was lost | idx: of which process or kind; NULL: of all | source: what counted it | value: how many
CREATE VIEW data_loss AS
    SELECT name, idx, source, value FROM stats WHERE severity = 'data_loss' AND value <> 0;

-- ---- Leaks: what was live at a moment, by the line of the user's code, and whether it kept growing. Definitions that
-- hold for all of these views are here.

-- Moments by process: what was allocated after from_ns (-1: ever) and live at at_ns; tenths are those of begin_ns to
-- end_ns; exit_ns: the process's end. A process image that another one replaced (exec) has left nothing: it is counted,
-- and no sign of a leak. live_allocations and live_bytes of all totals are of this moment, too.
-- `varve leaks` with --at, --from, --to or --pid has a temporary view of this name in place of this one.
--- moment of each process at which leaks are looked at: the end of its own code where it is known, else its end
--- process_id: row of process | pid: of the process | begin_ns: when the first tenth of its run begins
--- end_ns: when the last tenth ends | from_ns: allocated later than this; -1: ever
--- at_ns: live then; the largest number: never freed | moment: exit of main, end, or exec: another program replaced it
--- exit_ns: when the process ended
CREATE VIEW leak_moment AS
    SELECT p.id AS process_id, p.pid, coalesce(p.start_ns, 0) AS begin_ns,
        coalesce(p.main_end_ns, p.exit_ns) AS end_ns,
        -1 AS from_ns, coalesce(p.main_end_ns, 9223372036854775807) AS at_ns,
        CASE WHEN p.end_cause = 'exec' THEN 'exec' WHEN p.main_end_ns IS NULL THEN 'end' ELSE 'exit of main' END
            AS moment,
        p.exit_ns
    FROM (SELECT *, coalesce(end_ns, (SELECT max(ts_ns) FROM event), 0) AS exit_ns
        FROM process) p;

-- Blocks by line, and by the tenths of the line's time in which they were made and freed: live at the end of tenth i
-- are those with made_in <= i AND freed_in > i; freed_in 11: live at the moment. Time is the program's own work: how
-- long its process had been active by then, so that waiting is no time, and how much it had allocated, so that neither
-- a burst of allocations nor a long computation is all of it; both as parts of the process's whole, which is 2. The
-- line's time is that from its first block that lasted to the end. Blocks that lived within one tenth are not counted,
-- nor are those freed within a hundredth of the process's work. first_ns, last_ns: when the first and the last of them
-- were allocated; largest: size and, in the low 32 bits, call site of the largest; allocations: of the line in the
-- whole recording; process_work: allocations of the processes of the live ones, on average, 0 of those that exec
-- replaced; cover: the largest part of a process's allocations, or of the time that it was active, that was in the
-- line's time; line_work: allocations in the line's time, of all processes; recurrence: over how many tenths each of
-- its call sites made those that live, of all that the line did: 0 where each did in one, 1 where chance could have
-- dealt them so; shared_bytes: of objects of Python that are in the heap as well (above 512 bytes: Python's allocator
-- asks malloc for each).
--- blocks by user line, and by the tenths of the line's time in which they were made and freed, without those of one
---     tenth; time is what the process had allocated, and begins with the line's first block that lasted
--- domain: domain.code | user_symbol_id: symbol of the user line | made_in: tenth in which they were allocated, 1 to 10
--- freed_in: tenth in which they were freed; 11: live at the moment | blocks: number of them | bytes: of them
--- shared_bytes: of objects of Python that are in the heap as well
--- first_ns: when the first was allocated, ns since the trace began | last_ns: the same of the last
--- largest: of the largest: bytes, 1 GiB at most, times 2^32, and its call site
--- allocations: of the line in the whole recording
--- process_work: allocations of the live ones' processes, on average; 0: exec replaced them
--- cover: how much of a process's work the line's time is, 0 to 1
--- line_work: allocations in the line's time, of all processes
--- recurrence: how evenly its call sites made them over the tenths, 0 to 1
CREATE VIEW leak_tenth AS
    WITH edge AS (
            SELECT l.process_id, l.ns, (SELECT w.seq FROM work w WHERE w.process_id = l.process_id AND w.ts_ns <= l.ns
                ORDER BY w.seq DESC LIMIT 1) AS seq, EXISTS (SELECT 1 FROM work w WHERE w.process_id = l.process_id)
                AS is_known
            FROM (SELECT process_id, begin_ns AS ns FROM leak_moment
                UNION SELECT process_id, end_ns FROM leak_moment) l),
        reached AS MATERIALIZED (
            SELECT e.process_id, e.ns, coalesce(w.active_ns + w.rate * (w.end_seq - w.seq)
                    * (min(e.ns, w.end_ns) - w.ts_ns) / max(1, w.end_ns - w.ts_ns), iif(is_known, 0, e.ns)) AS active,
                coalesce(w.allocations + w.allocation_rate * (w.end_seq - w.seq)
                    * (min(e.ns, w.end_ns) - w.ts_ns) / max(1, w.end_ns - w.ts_ns), iif(is_known, 0, e.ns))
                    AS allocations
            FROM edge e LEFT JOIN work w ON w.process_id = e.process_id AND w.seq = e.seq),
        moment AS MATERIALIZED (
            SELECT l.process_id, l.begin_ns, l.from_ns, l.at_ns, l.moment, 1.0 * max(1, t.active - f.active) AS active,
                1.0 * max(1, t.allocations - f.allocations) AS run, t.allocations AS to_allocations,
                1.0 * t.active / max(1, t.active - f.active)
                    + 1.0 * t.allocations / max(1, t.allocations - f.allocations) AS to_work
            FROM leak_moment l JOIN reached f ON f.process_id = l.process_id AND f.ns = l.begin_ns
                JOIN reached t ON t.process_id = l.process_id AND t.ns = l.end_ns),
        placed AS (
            SELECT a.domain, coalesce(c.user_symbol_id, c.symbol_id, 0) AS symbol_id, a.process_id, a.callsite_id,
                a.size, a.alloc_seq, a.alloc_ns,
                coalesce((SELECT (w.active_ns + (min(a.alloc_seq, w.end_seq) - w.seq) * w.rate) / m.active
                        + (w.allocations + (min(a.alloc_seq, w.end_seq) - w.seq) * w.allocation_rate) / m.run
                    FROM work w
                    WHERE w.process_id = a.process_id AND w.seq <= a.alloc_seq ORDER BY w.seq DESC LIMIT 1),
                    a.alloc_ns / m.active + a.alloc_ns / m.run) AS made,
                CASE WHEN a.free_ns <= m.at_ns THEN
                    coalesce((SELECT (w.active_ns + (min(a.free_requested_seq, w.end_seq) - w.seq) * w.rate) / m.active
                            + (w.allocations + (min(a.free_requested_seq, w.end_seq) - w.seq) * w.allocation_rate)
                            / m.run FROM work w
                        WHERE w.process_id = a.process_id AND w.seq <= a.free_requested_seq
                        ORDER BY w.seq DESC LIMIT 1),
                        a.free_ns / m.active + a.free_ns / m.run) END AS freed
            FROM allocation a CROSS JOIN moment m ON m.process_id = a.process_id
                LEFT JOIN callsite c ON c.id = a.callsite_id
            WHERE (a.free_ns IS NULL OR a.free_ns > (SELECT min(at_ns) FROM moment) -- most are not, of any process
                    OR a.free_ns - a.alloc_ns >= (SELECT min(active) / 100 FROM moment)
                    OR a.free_requested_seq - a.alloc_seq >= (SELECT min(run) / 100 FROM moment))
                AND (a.free_ns IS NULL OR a.free_ns > m.at_ns OR a.free_ns - a.alloc_ns >= m.active / 100
                    OR a.free_requested_seq - a.alloc_seq >= m.run / 100) -- in time and in events, which are more
                AND a.alloc_ns <= m.at_ns AND a.alloc_ns > m.from_ns AND a.domain <> @DOMAIN_CUPTI@
            LIMIT -1), -- so that made and freed are worked out once a row, and no row is copied twice
        lasting AS MATERIALIZED (SELECT * FROM placed WHERE freed IS NULL OR freed - made >= 0.02),
        first AS MATERIALIZED (
            SELECT domain, symbol_id, process_id, min(made) AS made, min(alloc_seq) AS seq, min(alloc_ns) AS ns,
                sum(freed IS NULL) AS kept
            FROM lasting GROUP BY 1, 2, 3 HAVING kept > 0),
        whole AS MATERIALIZED (
            SELECT x.domain, coalesce(c.user_symbol_id, c.symbol_id, 0) AS symbol_id, sum(x.allocations) AS allocations
            FROM callsite_stat x LEFT JOIN callsite c ON c.id = x.callsite_id
            WHERE coalesce(c.user_symbol_id, c.symbol_id, 0) IN (SELECT symbol_id FROM first) GROUP BY 1, 2),
        axis AS MATERIALIZED (
            SELECT f.domain, f.symbol_id, f.process_id, m.run, f.made AS first, m.moment, f.kept, h.allocations,
                max(1e-9, m.to_work - f.made) AS span,
                1.0 * max(1, m.to_allocations - coalesce(
                    (SELECT w.allocations + (min(f.seq, w.end_seq) - w.seq) * w.allocation_rate FROM work w
                    WHERE w.process_id = f.process_id AND w.seq <= f.seq ORDER BY w.seq DESC LIMIT 1), f.ns)) AS work
            FROM first f JOIN moment m ON m.process_id = f.process_id
                LEFT JOIN whole h ON h.domain = f.domain AND h.symbol_id = f.symbol_id),
        line AS MATERIALIZED (
            SELECT domain, symbol_id, max(allocations) AS allocations,
                1.0 * sum(iif(moment = 'exec', 0.0, run) * kept) / sum(kept) AS run,
                max(max(work / run, span - work / run)) AS cover, sum(work) AS work
            FROM axis GROUP BY 1, 2),
        crossing AS MATERIALIZED (
            SELECT p.domain, p.symbol_id, p.size, p.alloc_ns, p.callsite_id,
                CAST(min(10, max(1, (p.made - x.first) * 10 / x.span + 1)) AS INTEGER) AS made_in,
                CAST(iif(p.freed IS NULL, 11, min(10, (p.freed - x.first) * 10 / x.span + 1)) AS INTEGER) AS freed_in
            FROM lasting p CROSS JOIN axis x ON x.domain = p.domain AND x.symbol_id = p.symbol_id
                AND x.process_id = p.process_id),
        cell AS (
            SELECT domain, symbol_id, made_in, freed_in, count(*) AS blocks, sum(size) AS bytes,
                sum(iif(domain = @DOMAIN_PYTHON@ AND size > 512, size, 0)) AS shared_bytes,
                min(alloc_ns) AS first_ns, max(alloc_ns) AS last_ns,
                max((min(size, 1073741823) << 32) + coalesce(callsite_id, 0)) AS largest
            FROM crossing WHERE freed_in > made_in GROUP BY 1, 2, 3, 4),
        made AS (
            SELECT domain, symbol_id, callsite_id, made_in, count(*) AS blocks FROM crossing WHERE freed_in = 11
            GROUP BY 1, 2, 3, 4),
        whole_made AS (
            SELECT domain, symbol_id, 1.0 * sum(blocks) * sum(blocks) / sum(blocks * blocks) AS even
            FROM (SELECT domain, symbol_id, sum(blocks) AS blocks FROM made GROUP BY domain, symbol_id, made_in)
            GROUP BY 1, 2),
        site AS (
            SELECT domain, symbol_id, sum(blocks) AS blocks,
                1.0 * sum(blocks) * sum(blocks) / sum(blocks * blocks) AS even
            FROM made GROUP BY domain, symbol_id, callsite_id HAVING sum(blocks) > 1),
        again AS (
            SELECT s.domain, s.symbol_id, sum(s.blocks * (s.even - 1) * (w.even + s.blocks - 1)
                / ((w.even - 1) * (s.blocks - 1))) / sum(s.blocks) AS recurrence
            FROM site s JOIN whole_made w ON w.domain = s.domain AND w.symbol_id = s.symbol_id AND w.even > 1
            GROUP BY 1, 2)
    SELECT c.domain, nullif(c.symbol_id, 0) AS user_symbol_id, c.made_in, c.freed_in, c.blocks, c.bytes,
        c.shared_bytes, c.first_ns, c.last_ns, c.largest, l.allocations, l.run AS process_work, l.cover,
        l.work AS line_work, min(1.0, coalesce(r.recurrence, 1.0)) AS recurrence
    FROM cell c CROSS JOIN line l ON l.domain = c.domain AND l.symbol_id = c.symbol_id
        LEFT JOIN again r ON r.domain = c.domain AND r.symbol_id = c.symbol_id;

-- By domain and line, what was live at the moment of leak_moment: live_allocations, live_bytes; live_1 to live_9 and
-- live_bytes_1 to live_bytes_9: at the end of the first tenths. score, 0 to 1: the larger of growth (in number) and
-- byte_growth. Both are products of
--   - how evenly it grew over the tenths of the line's time (see leak_tenth), from the one on in which it began (with a
--     fiftieth of what is live): by the number of tenths that are as uneven (the inverse of the sum of the squares of
--     their shares) both in what stayed from each tenth on, that is the least that there ever was later, and, of the
--     number, in when the live ones were made; the smaller of the two: 0 up to three tenths of them all, 1 from eight
--     on, as a busy machine makes steps uneven, too;
--   - whether it still grows: 0.15, and 0.85 times the growth of the last three tenths (two or one, of a line that
--     began late) by three quarters of that of as many on average, 1 at most;
--   - how steadily: what is live by the sum of all rises and falls from tenth to tenth, which is 1 where it never fell;
--   - how many blocks say so: n / (n + 8) of the live ones, and for bytes of those that were live at the
--     end of any tenth;
--   - for how long: 1 if the line's time was a quarter of the process's work or more, below in proportion; or, of a
--     line that began late, whether others worked meanwhile: four allocations for each live one, a fiftieth of all;
--   - whether its call sites come again (recurrence): an import has each once;
--   - whether the processes of the live ones worked for long, on average: 1 from a quarter of the most work of a
--     process on, below in proportion. Short helpers are all start, and what another program replaced is gone.
-- So a leak in each step of the work has nearly 1, a table that is made first and kept 0, a cache that has filled a
-- tenth or two. Of a line of which 19 in 20 were freed again all this is by the tenths of its own allocations
-- (callsite_growth): those that stay are few, and come all along, as in the error path of work that is over long before
-- the end. pattern: 'few' (of these), 'growing', 'stopped' (it grew, and no longer does), 'late' (it began in the last
-- two tenths),
-- 'early' (nearly all in the first tenth), or 'mixed'; by_bytes: it is that of the bytes, whose growth is larger by a
-- quarter. is_library: no line of the user's code, but the interpreter's, the standard library's or an installed
-- package's. allocations: of the line in the whole recording; callsite_id: of the largest block.
--- what was live at the moment of leak_moment, by user line, with how it grew with the work
--- domain: as in domain.name | user_function: function of the user line | user_file: its file | user_line: its line
--- user_module: its program or library | live_allocations: live at the moment | live_bytes: of them
--- allocations: of the line in the whole recording
--- score: how much this looks like a leak, 0 to 1: the larger of growth and byte_growth
--- growth: of the number: how evenly over the tenths of the line's time, whether it still grew in the last three, and
---     how many blocks
--- byte_growth: the same of the bytes | by_bytes: 1: pattern is that of the bytes
--- pattern: growing, stopped, late, early, mixed, or few: most of the line's were freed, and some stayed all along
--- is_library: 1: a line of an interpreter, a standard library or an installed package
--- first_ns: when the first live one was allocated, ns since the trace began | last_ns: the same of the last
--- callsite_id: of the largest live block | live_1: live after 1 tenths of the line's time
--- live_2: live after 2 tenths of the line's time | live_3: live after 3 tenths of the line's time
--- live_4: live after 4 tenths of the line's time | live_5: live after 5 tenths of the line's time
--- live_6: live after 6 tenths of the line's time | live_7: live after 7 tenths of the line's time
--- live_8: live after 8 tenths of the line's time | live_9: live after 9 tenths of the line's time
--- live_bytes_1: bytes of them | live_bytes_2: bytes of them | live_bytes_3: bytes of them
--- live_bytes_4: bytes of them | live_bytes_5: bytes of them | live_bytes_6: bytes of them
--- live_bytes_7: bytes of them | live_bytes_8: bytes of them | live_bytes_9: bytes of them
--- like: line_total
CREATE VIEW leak_line AS
    WITH work_line AS (
            SELECT domain, user_symbol_id, sum(blocks) AS blocks,
                sum(iif(freed_in = 11, 1.0 * blocks * blocks, 0)) AS made_squares,
                sum(iif(made_in <= 1 AND freed_in > 1, blocks, 0)) AS n_1,
                sum(iif(made_in <= 2 AND freed_in > 2, blocks, 0)) AS n_2,
                sum(iif(made_in <= 3 AND freed_in > 3, blocks, 0)) AS n_3,
                sum(iif(made_in <= 4 AND freed_in > 4, blocks, 0)) AS n_4,
                sum(iif(made_in <= 5 AND freed_in > 5, blocks, 0)) AS n_5,
                sum(iif(made_in <= 6 AND freed_in > 6, blocks, 0)) AS n_6,
                sum(iif(made_in <= 7 AND freed_in > 7, blocks, 0)) AS n_7,
                sum(iif(made_in <= 8 AND freed_in > 8, blocks, 0)) AS n_8,
                sum(iif(made_in <= 9 AND freed_in > 9, blocks, 0)) AS n_9,
                sum(iif(made_in <= 10 AND freed_in > 10, blocks, 0)) AS n_10,
                sum(iif(made_in <= 1 AND freed_in > 1, bytes, 0)) AS b_1,
                sum(iif(made_in <= 2 AND freed_in > 2, bytes, 0)) AS b_2,
                sum(iif(made_in <= 3 AND freed_in > 3, bytes, 0)) AS b_3,
                sum(iif(made_in <= 4 AND freed_in > 4, bytes, 0)) AS b_4,
                sum(iif(made_in <= 5 AND freed_in > 5, bytes, 0)) AS b_5,
                sum(iif(made_in <= 6 AND freed_in > 6, bytes, 0)) AS b_6,
                sum(iif(made_in <= 7 AND freed_in > 7, bytes, 0)) AS b_7,
                sum(iif(made_in <= 8 AND freed_in > 8, bytes, 0)) AS b_8,
                sum(iif(made_in <= 9 AND freed_in > 9, bytes, 0)) AS b_9,
                sum(iif(made_in <= 10 AND freed_in > 10, bytes, 0)) AS b_10,
                min(iif(freed_in = 11, first_ns, NULL)) AS first_ns, max(iif(freed_in = 11, last_ns, NULL)) AS last_ns,
                max(process_work) AS run, max(cover) AS cover, max(line_work) AS work, max(recurrence) AS recurrence,
                max(allocations) AS allocations,
                max(iif(freed_in = 11, largest, 0)) AS largest,
                sum(iif(freed_in = 11, shared_bytes, 0)) AS shared_bytes
            FROM leak_tenth GROUP BY domain, user_symbol_id HAVING n_10 > 0),
        own AS (
            SELECT o.domain, coalesce(c.user_symbol_id, c.symbol_id) AS user_symbol_id,
                sum(iif(o.tenth = 1, o.live_allocations, 0)) AS n_1, sum(iif(o.tenth = 1, o.live_bytes, 0)) AS b_1,
                sum(iif(o.tenth = 2, o.live_allocations, 0)) AS n_2, sum(iif(o.tenth = 2, o.live_bytes, 0)) AS b_2,
                sum(iif(o.tenth = 3, o.live_allocations, 0)) AS n_3, sum(iif(o.tenth = 3, o.live_bytes, 0)) AS b_3,
                sum(iif(o.tenth = 4, o.live_allocations, 0)) AS n_4, sum(iif(o.tenth = 4, o.live_bytes, 0)) AS b_4,
                sum(iif(o.tenth = 5, o.live_allocations, 0)) AS n_5, sum(iif(o.tenth = 5, o.live_bytes, 0)) AS b_5,
                sum(iif(o.tenth = 6, o.live_allocations, 0)) AS n_6, sum(iif(o.tenth = 6, o.live_bytes, 0)) AS b_6,
                sum(iif(o.tenth = 7, o.live_allocations, 0)) AS n_7, sum(iif(o.tenth = 7, o.live_bytes, 0)) AS b_7,
                sum(iif(o.tenth = 8, o.live_allocations, 0)) AS n_8, sum(iif(o.tenth = 8, o.live_bytes, 0)) AS b_8,
                sum(iif(o.tenth = 9, o.live_allocations, 0)) AS n_9, sum(iif(o.tenth = 9, o.live_bytes, 0)) AS b_9,
                sum(iif(o.tenth = 10, o.live_allocations, 0)) AS n_10, sum(iif(o.tenth = 10, o.live_bytes, 0)) AS b_10
            FROM callsite_growth o JOIN callsite c ON c.id = o.callsite_id
            WHERE NOT EXISTS (SELECT 1 FROM leak_moment WHERE from_ns >= 0 OR moment = 'time') GROUP BY 1, 2),
        line AS (
            SELECT w.domain, w.user_symbol_id, w.blocks, w.first_ns, w.last_ns, w.run, w.cover, w.work, w.allocations,
                w.recurrence, w.largest, w.shared_bytes, w.n_10, w.b_10, o.n_10 IS NOT NULL AS is_few,
                iif(o.n_10 IS NULL, w.made_squares, 0.0) AS made_squares,
                coalesce(w.n_10 * o.n_1 / o.n_10, w.n_1) AS n_1,
                coalesce(CAST(1.0 * w.b_10 * o.b_1 / o.b_10 AS INTEGER), w.b_1) AS b_1,
                coalesce(w.n_10 * o.n_2 / o.n_10, w.n_2) AS n_2,
                coalesce(CAST(1.0 * w.b_10 * o.b_2 / o.b_10 AS INTEGER), w.b_2) AS b_2,
                coalesce(w.n_10 * o.n_3 / o.n_10, w.n_3) AS n_3,
                coalesce(CAST(1.0 * w.b_10 * o.b_3 / o.b_10 AS INTEGER), w.b_3) AS b_3,
                coalesce(w.n_10 * o.n_4 / o.n_10, w.n_4) AS n_4,
                coalesce(CAST(1.0 * w.b_10 * o.b_4 / o.b_10 AS INTEGER), w.b_4) AS b_4,
                coalesce(w.n_10 * o.n_5 / o.n_10, w.n_5) AS n_5,
                coalesce(CAST(1.0 * w.b_10 * o.b_5 / o.b_10 AS INTEGER), w.b_5) AS b_5,
                coalesce(w.n_10 * o.n_6 / o.n_10, w.n_6) AS n_6,
                coalesce(CAST(1.0 * w.b_10 * o.b_6 / o.b_10 AS INTEGER), w.b_6) AS b_6,
                coalesce(w.n_10 * o.n_7 / o.n_10, w.n_7) AS n_7,
                coalesce(CAST(1.0 * w.b_10 * o.b_7 / o.b_10 AS INTEGER), w.b_7) AS b_7,
                coalesce(w.n_10 * o.n_8 / o.n_10, w.n_8) AS n_8,
                coalesce(CAST(1.0 * w.b_10 * o.b_8 / o.b_10 AS INTEGER), w.b_8) AS b_8,
                coalesce(w.n_10 * o.n_9 / o.n_10, w.n_9) AS n_9,
                coalesce(CAST(1.0 * w.b_10 * o.b_9 / o.b_10 AS INTEGER), w.b_9) AS b_9
            FROM work_line w LEFT JOIN own o ON o.domain = w.domain AND o.user_symbol_id = w.user_symbol_id
                AND 20 * w.n_10 <= w.allocations AND 2 * o.n_10 >= w.n_10),
        low AS (
            SELECT *,
                min(n_1, n_2, n_3, n_4, n_5, n_6, n_7, n_8, n_9, n_10) AS ln_1,
                min(n_2, n_3, n_4, n_5, n_6, n_7, n_8, n_9, n_10) AS ln_2,
                min(n_3, n_4, n_5, n_6, n_7, n_8, n_9, n_10) AS ln_3,
                min(n_4, n_5, n_6, n_7, n_8, n_9, n_10) AS ln_4, min(n_5, n_6, n_7, n_8, n_9, n_10) AS ln_5,
                min(n_6, n_7, n_8, n_9, n_10) AS ln_6, min(n_7, n_8, n_9, n_10) AS ln_7, min(n_8, n_9, n_10) AS ln_8,
                min(n_9, n_10) AS ln_9,
                min(b_1, b_2, b_3, b_4, b_5, b_6, b_7, b_8, b_9, b_10) AS lb_1,
                min(b_2, b_3, b_4, b_5, b_6, b_7, b_8, b_9, b_10) AS lb_2,
                min(b_3, b_4, b_5, b_6, b_7, b_8, b_9, b_10) AS lb_3,
                min(b_4, b_5, b_6, b_7, b_8, b_9, b_10) AS lb_4, min(b_5, b_6, b_7, b_8, b_9, b_10) AS lb_5,
                min(b_6, b_7, b_8, b_9, b_10) AS lb_6, min(b_7, b_8, b_9, b_10) AS lb_7, min(b_8, b_9, b_10) AS lb_8,
                min(b_9, b_10) AS lb_9
            FROM line),
        even AS (
            SELECT *,
                min(iif(is_few, 10.0, 1.0 * n_10 * n_10 / made_squares), 1.0 * n_10 * n_10 / (
                    1.0 * ln_1 * ln_1 + 1.0 * (ln_2 - ln_1) * (ln_2 - ln_1) + 1.0 * (ln_3 - ln_2) * (ln_3 - ln_2)
                    + 1.0 * (ln_4 - ln_3) * (ln_4 - ln_3) + 1.0 * (ln_5 - ln_4) * (ln_5 - ln_4)
                    + 1.0 * (ln_6 - ln_5) * (ln_6 - ln_5)
                    + 1.0 * (ln_7 - ln_6) * (ln_7 - ln_6) + 1.0 * (ln_8 - ln_7) * (ln_8 - ln_7)
                    + 1.0 * (ln_9 - ln_8) * (ln_9 - ln_8)
                    + 1.0 * (n_10 - ln_9) * (n_10 - ln_9))) AS tenths,
                iif(b_10 = 0, 1.0, 1.0 * b_10 * b_10 / (
                    1.0 * lb_1 * lb_1 + 1.0 * (lb_2 - lb_1) * (lb_2 - lb_1) + 1.0 * (lb_3 - lb_2) * (lb_3 - lb_2)
                    + 1.0 * (lb_4 - lb_3) * (lb_4 - lb_3) + 1.0 * (lb_5 - lb_4) * (lb_5 - lb_4)
                    + 1.0 * (lb_6 - lb_5) * (lb_6 - lb_5)
                    + 1.0 * (lb_7 - lb_6) * (lb_7 - lb_6) + 1.0 * (lb_8 - lb_7) * (lb_8 - lb_7)
                    + 1.0 * (lb_9 - lb_8) * (lb_9 - lb_8)
                    + 1.0 * (b_10 - lb_9) * (b_10 - lb_9))) AS byte_tenths,
                1.0 * n_10 / (
                    n_1 + abs(n_2 - n_1) + abs(n_3 - n_2) + abs(n_4 - n_3) + abs(n_5 - n_4) + abs(n_6 - n_5)
                    + abs(n_7 - n_6) + abs(n_8 - n_7) + abs(n_9 - n_8) + abs(n_10 - n_9)) AS steadiness,
                iif(b_10 = 0, 0.0, 1.0 * b_10 / (
                    b_1 + abs(b_2 - b_1) + abs(b_3 - b_2) + abs(b_4 - b_3) + abs(b_5 - b_4) + abs(b_6 - b_5)
                    + abs(b_7 - b_6) + abs(b_8 - b_7) + abs(b_9 - b_8) + abs(b_10 - b_9))) AS byte_steadiness,
                CASE WHEN 50 * ln_1 > n_10 THEN 10 WHEN 50 * ln_2 > n_10 THEN 9 WHEN 50 * ln_3 > n_10 THEN 8
                    WHEN 50 * ln_4 > n_10 THEN 7 WHEN 50 * ln_5 > n_10 THEN 6 WHEN 50 * ln_6 > n_10 THEN 5
                    WHEN 50 * ln_7 > n_10 THEN 4 WHEN 50 * ln_8 > n_10 THEN 3 WHEN 50 * ln_9 > n_10 THEN 2
                        ELSE 1 END AS span
            FROM low),
        recent AS (
            SELECT *,
                min(1.0, 4.0 / 3 * (n_10 - CASE WHEN span > 8 THEN ln_7 WHEN span > 4 THEN ln_8 ELSE ln_9 END) * span
                    / n_10 / CASE WHEN span > 8 THEN 3 WHEN span > 4 THEN 2 ELSE 1 END) AS recent,
                iif(b_10 = 0, 0.0, min(1.0, 4.0 / 3 * (b_10 - CASE WHEN span > 8 THEN lb_7 WHEN span > 4 THEN lb_8
                    ELSE lb_9 END) * span
                    / b_10 / CASE WHEN span > 8 THEN 3 WHEN span > 4 THEN 2 ELSE 1 END)) AS byte_recent,
                min(1.0, max(0.0, ((tenths - 1) / max(1, span - 1) - 0.3) / 0.5)) AS evenness,
                min(1.0, max(0.0, ((byte_tenths - 1) / max(1, span - 1) - 0.3) / 0.5)) AS byte_evenness
            FROM even),
        weighed AS (
            SELECT *, max(is_few, recurrence * max(min(1.0, 0.4 * cover * span),
                    min(1.0, max(0.0, (work - coalesce(allocations, work)) / (4.0 * n_10)))
                    * min(1.0, 5.0 * cover * span))) * min(1.0, 4.0 * run / max(1, max(run) OVER ())) AS weight
            FROM recent),
        scored AS (
            SELECT *, evenness * (0.15 + 0.85 * recent) * steadiness * n_10 / (n_10 + 8.0) * weight AS growth,
                byte_evenness * (0.15 + 0.85 * byte_recent) * byte_steadiness * blocks / (blocks + 8.0) * weight
                    AS byte_growth
            FROM weighed),
        grown AS (
            SELECT *, byte_growth > 1.25 * growth AS by_bytes FROM scored)
    SELECT d.name AS domain, g.user_symbol_id, s.function AS user_function, s.file AS user_file, s.line AS user_line,
        s.module AS user_module, s.is_python AS user_is_python, n_10 AS live_allocations, b_10 AS live_bytes,
        shared_bytes, g.allocations, max(growth, byte_growth) AS score, growth, byte_growth, by_bytes,
        CASE WHEN is_few AND iif(by_bytes, byte_evenness, evenness) >= 0.33 THEN 'few'
            WHEN iif(by_bytes, lb_1, ln_1) >= 0.9 * iif(by_bytes, b_10, n_10) THEN 'early'
            WHEN span > 2 AND iif(by_bytes, byte_evenness, evenness) >= 0.33
                AND iif(by_bytes, byte_recent, recent) >= 0.5
                    AND iif(by_bytes, byte_steadiness, steadiness) >= 0.7 THEN 'growing'
            WHEN span <= 2 THEN 'late'
            WHEN iif(by_bytes, byte_recent, recent) < 0.1 THEN 'stopped'
            ELSE 'mixed' END AS pattern,
        CASE WHEN s.user_rank = 5 OR (s.user_rank = 4 AND s.is_python) THEN 1 WHEN s.user_rank > 3 THEN 0
            ELSE coalesce(s.module GLOB '/lib*' OR s.module GLOB '/usr/lib*' OR s.module GLOB '/usr/local/lib*'
                OR s.module GLOB '*/python[0-9]*' OR s.module GLOB '*/libpython*', 0) END AS is_library,
        first_ns, last_ns, nullif(largest & 4294967295, 0) AS callsite_id,
        n_1 AS live_1, n_2 AS live_2, n_3 AS live_3, n_4 AS live_4, n_5 AS live_5, n_6 AS live_6, n_7 AS live_7,
        n_8 AS live_8,
        n_9 AS live_9, b_1 AS live_bytes_1, b_2 AS live_bytes_2, b_3 AS live_bytes_3, b_4 AS live_bytes_4,
        b_5 AS live_bytes_5, b_6 AS live_bytes_6, b_7 AS live_bytes_7, b_8 AS live_bytes_8, b_9 AS live_bytes_9
    FROM grown g LEFT JOIN domain d ON d.code = g.domain LEFT JOIN symbol s ON s.id = g.user_symbol_id;

-- ---- Storages and views of the storage layer.

-- kind: 'storage', 'view', 'shared', 'mapped'; segment_id: that its block lies in; last_use_ns, writes, reads: copies,
-- as far as they are events: elements that are read or written in place are not; function, file, line: who created it.
--- table storage with names instead of codes
--- kind: storage, view, shared or mapped | dtype: f32 and so on | segment_id: row of segment that its block lies in
--- lifetime_ns: destroy_ns - create_ns | is_alive: 1: it was never destroyed
--- leak_cause: cycle, held by views, untouched, or empty
--- function: of the innermost frame of who created it that is not of the storage layer | file: its source file
--- line: its line | module: its program or library
--- like: storage
CREATE VIEW storages AS
    SELECT s.id, s.number, s.process_id, s.pid, s.tid,
        CASE s.kind WHEN @STORAGE_VIEW@ THEN 'view' WHEN @STORAGE_SHARED@ THEN 'shared'
            WHEN @STORAGE_MAPPED@ THEN 'mapped' ELSE 'storage' END AS kind,
        t.name AS dtype, s.device, s.base_id, s.allocation_id, a.segment_id, s.addr, s.size, s.elements,
        s.create_seq, s.destroy_seq, s.create_ns, s.destroy_ns, s.destroy_ns - s.create_ns AS lifetime_ns,
        s.last_use_ns, s.writes,
        s.reads, s.destroy_seq IS NULL AS is_alive, s.leak_seq, e.text AS leak_cause, s.leak_references, s.callsite_id,
        y.function, y.file, y.line, y.module
    FROM storage s LEFT JOIN element_type t ON t.code = s.dtype LEFT JOIN allocation_row a ON a.id = s.allocation_id
        LEFT JOIN event_cause e ON e.code = s.leak_cause LEFT JOIN callsite c ON c.id = s.callsite_id
        LEFT JOIN symbol y ON y.id = c.symbol_id;

--- sums of storages, by process, kind and type
--- storages: created | bytes: of them | alive: never destroyed | alive_bytes: of those
--- unused: no copy into or out of them was seen
--- like: storages
CREATE VIEW storage_total AS
    SELECT g.process_id, g.pid,
        CASE g.kind WHEN @STORAGE_VIEW@ THEN 'view' WHEN @STORAGE_SHARED@ THEN 'shared'
            WHEN @STORAGE_MAPPED@ THEN 'mapped' ELSE 'storage' END AS kind,
            t.name AS dtype, g.storages, g.bytes, g.alive, g.alive_bytes, g.unused
    FROM (SELECT process_id, pid, kind, dtype, count(*) AS storages, sum(size) AS bytes,
        sum(destroy_seq IS NULL) AS alive,
            sum(iif(destroy_seq IS NULL, size, 0)) AS alive_bytes, sum(writes + reads = 0) AS unused
        FROM storage GROUP BY process_id, kind, dtype) g LEFT JOIN element_type t ON t.code = g.dtype;

--- by phase and call site: storages that were created in a phase and outlived it
--- mark_id: row of mark | name: of the phase | begin_ns: of the phase | end_ns: of the phase; NULL: it did not end
--- callsite_id: who created them | storages: that outlived the phase | bytes: of them
--- left_over: those that were never destroyed | left_over_bytes: of those
CREATE VIEW storage_growth AS
    SELECT m.id AS mark_id, m.name, m.process_id, m.begin_ns, m.end_ns, s.callsite_id, count(*) AS storages,
        sum(s.size) AS bytes,
        sum(s.destroy_seq IS NULL) AS left_over, sum(CASE WHEN s.destroy_seq IS NULL THEN s.size
            ELSE 0 END) AS left_over_bytes
    FROM mark m CROSS JOIN storage s ON s.process_id = m.process_id AND s.create_seq > m.begin_seq
        AND s.create_seq < coalesce(m.end_seq, 9223372036854775807)
    WHERE s.kind <> @STORAGE_VIEW@ AND (s.destroy_seq IS NULL OR s.destroy_seq > m.end_seq)
    GROUP BY m.id, s.callsite_id;

-- Storages that look leaked, each for the surest reason that holds, with a score from 0 to 1. That one is alive accuses
-- it only where its process exited: one that was killed had no time to release it. Else the tracker's word counts
-- (varve_tracker_check_leaks), unless it was used since, and growth: 8 or more of one call site, left by half of the
-- phases of a name or more.
--- storages that look leaked, each for the surest reason that holds; none for being alive when its process was killed
--- storage_id: row of storage | kind: cycle, held by views, growth, untouched, alive at the end
--- score: how sure that is, from 0 to 1 | evidence: why, in a sentence
--- like: storage
CREATE VIEW storage_leak AS
    WITH alive AS MATERIALIZED (
            SELECT s.id, s.number, s.process_id, s.pid, s.size, s.callsite_id, s.create_ns, s.writes + s.reads AS uses,
                s.leak_seq, s.leak_cause, s.leak_references, coalesce(p.end_cause = 'exit', 0) AS has_exited
            FROM storage s LEFT JOIN process p ON p.id = s.process_id WHERE s.destroy_seq IS NULL
                AND s.kind <> @STORAGE_VIEW@),
        held AS MATERIALIZED (
            SELECT base_id, count(*) AS views, sum(size) AS shown FROM storage
            WHERE destroy_seq IS NULL AND base_id IS NOT NULL GROUP BY base_id),
        left_by AS MATERIALIZED (
            SELECT s.id, s.callsite_id, m.process_id, m.name, m.id AS mark_id
            FROM mark m CROSS JOIN storage s ON s.process_id = m.process_id AND s.create_seq > m.begin_seq
                AND s.create_seq < coalesce(m.end_seq, 9223372036854775807)
            -- by the order of creation, not by what is alive
            WHERE +s.destroy_seq IS NULL AND s.kind <> @STORAGE_VIEW@),
        phase AS MATERIALIZED (SELECT process_id, name, count(*) AS phases FROM mark GROUP BY process_id, name),
        grown AS MATERIALIZED (
            SELECT l.process_id, l.name, l.callsite_id, count(DISTINCT l.id) AS storages,
                count(DISTINCT l.mark_id) AS leaving, p.phases
            FROM left_by l JOIN phase p ON p.process_id = l.process_id AND p.name = l.name
            GROUP BY l.process_id, l.name, l.callsite_id
            HAVING count(DISTINCT l.id) >= 8 AND 2 * count(DISTINCT l.mark_id) >= p.phases),
        growth AS MATERIALIZED (
            SELECT l.id, max(g.storages) AS storages, g.leaving, g.phases, g.name
            FROM left_by l JOIN grown g ON g.process_id = l.process_id AND g.name = l.name
                AND g.callsite_id = l.callsite_id
            GROUP BY l.id),
        tracked AS MATERIALIZED (
            SELECT process_id, callsite_id, count(*) AS storages FROM alive
            WHERE leak_seq IS NOT NULL AND leak_cause NOT IN (@CAUSE_LEAK_CYCLE@, @CAUSE_LEAK_HELD@)
                GROUP BY process_id, callsite_id
            HAVING count(*) >= 8),
        judged AS (
            SELECT a.*, h.views, h.shown, g.storages AS grown, g.leaving, g.phases, g.name AS phase,
                t.storages AS tracked, CASE WHEN a.leak_cause = @CAUSE_LEAK_CYCLE@ THEN 1
                    WHEN (a.has_exited OR a.leak_cause = @CAUSE_LEAK_HELD@) AND 2 * h.shown < a.size THEN 2
                    WHEN g.id IS NOT NULL OR a.leak_seq IS NOT NULL AND t.storages IS NOT NULL THEN 3
                    WHEN a.leak_cause = @CAUSE_LEAK_UNTOUCHED@ THEN 4
                    WHEN a.has_exited OR a.leak_seq IS NOT NULL THEN 5 END AS reason
            FROM alive a LEFT JOIN held h ON h.base_id = a.id LEFT JOIN growth g ON g.id = a.id
                LEFT JOIN tracked t ON t.process_id = a.process_id AND t.callsite_id = a.callsite_id)
    SELECT id AS storage_id, number, process_id, pid, size, callsite_id, create_ns,
        CASE reason WHEN 1 THEN 'cycle' WHEN 2 THEN 'held by views' WHEN 3 THEN 'growth' WHEN 4 THEN 'untouched'
            ELSE 'alive at the end' END AS kind,
        max(CASE reason WHEN 1 THEN 1.0 WHEN 2 THEN 1.0 - CAST(shown AS REAL) / size
                WHEN 3 THEN 1.0 - 1.0 / max(coalesce(grown, 0), coalesce(tracked, 0)) WHEN 4 THEN 0.5 ELSE 0.9 END,
            has_exited * 0.9) AS score,
        CASE reason WHEN 1 THEN 'kept alive by what it keeps alive itself'
            WHEN 2 THEN views || iif(views = 1, ' view shows ',
                ' views show ') || shown || ' of its ' || size || ' bytes'
                || iif(leak_cause = @CAUSE_LEAK_HELD@, ', and nobody else refers to it', '')
            WHEN 3 THEN iif(grown IS NULL, 'one of ' || tracked || ' of this call site that the tracker found',
                'one of ' || grown || ' of this call site that ' || leaving || ' of ' || phases
                    || iif(phases = 1, ' phase "', ' phases "') || phase || '" left')
            WHEN 4 THEN 'nobody has looked at it since it was created'
            ELSE iif(leak_seq IS NULL, 'not released', 'alive when nothing should be, with ' || leak_references
                || iif(leak_references = 1, ' reference', ' references') || ' to it') END
            || iif(has_exited, iif(reason = 5 AND leak_seq IS NULL, ' before the process exited',
                '; not released before the process exited'), '')
            || iif(reason = 5 AND uses = 0, '; nothing was copied into it or out of it', '') AS evidence
    FROM judged WHERE reason IS NOT NULL;

--- storage_leak by process, call site and kind
--- callsite_id: who created them | storages: number of them | bytes: of them | score: mean of theirs
--- evidence: of the largest | is_python: 1: a line of Python
--- like: storage_leak, storages
CREATE VIEW storage_leak_callsite AS
    SELECT g.process_id, g.pid, g.callsite_id, g.kind, g.storages, g.bytes, g.score, g.evidence, y.function, y.file,
        y.line, y.module, y.is_python
    FROM (SELECT process_id, pid, callsite_id, kind, count(*) AS storages, sum(size) AS bytes, avg(score) AS score,
            max(size), evidence
        FROM storage_leak GROUP BY process_id, callsite_id, kind) g
        LEFT JOIN callsite c ON c.id = g.callsite_id LEFT JOIN symbol y ON y.id = c.symbol_id;

-- Alive, and accused of nothing: what a process had when it was killed.
--- rows of storages that are alive, no views, and accused of nothing
--- like: storages
CREATE VIEW storage_kept AS
    SELECT * FROM storages s WHERE is_alive AND kind <> 'view' AND id NOT IN (SELECT storage_id FROM storage_leak);

-- ---- The CUDA API. None of these reads through `event`: device_event says which of them matter, and CROSS JOIN that
-- it is read first. What CUPTI reports of calls that the CUDA recorder reports too (event.flags & 8) is left out, but
-- for cupti_*, vmm.

--- which process used which GPU
--- rank: rank in a distributed program (RANK); NULL: none
--- ordinal: number by which the process called the GPU; NULL: no event says
CREATE VIEW device_process AS
    SELECT u.device, u.process_id, p.pid, p.rank, max(u.ordinal) AS ordinal
    FROM (SELECT device, process_id, ordinal FROM process_device UNION ALL
        SELECT device, process_id, NULL FROM total_stat WHERE domain IN (@DOMAIN_DEVICE@, @DOMAIN_BLOCK@,
            @DOMAIN_MANAGED@, @DOMAIN_CUPTI@) AND process_id <> 0) u
        LEFT JOIN process p ON p.id = u.process_id
    GROUP BY u.device, u.process_id;

--- calls of the CUDA API per function and GPU
--- activity: allocate, free, wait (for the GPU) or other | function: of the CUDA API | total_ns: time in them
--- mean_ns: time in one on average
--- like: device_call_stat
CREATE VIEW device_call AS
    SELECT s.process_id, p.pid, s.device, CASE s.class WHEN @CALL_ALLOC@ THEN 'allocate' WHEN @CALL_FREE@ THEN 'free'
            WHEN @CALL_WAIT@ THEN 'wait'
        ELSE 'other' END AS activity, c.text AS function, sum(s.calls) AS calls, sum(s.failed) AS failed,
        sum(s.ns) AS total_ns,
        sum(s.ns) / max(sum(s.calls), 1) AS mean_ns, max(s.max_ns) AS max_ns, sum(s.bytes) AS bytes
    FROM device_call_stat s LEFT JOIN process p ON p.id = s.process_id LEFT JOIN event_cause c ON c.code = s.cause
    GROUP BY s.process_id, s.device, s.class, s.cause;

-- Memory may be of another device than the stream that it was given out on.
--- time in calls of the CUDA API per stream
--- handle: CUDA's handle of the stream; NULL: unknown | allocate_ns: time in calls that allocate
--- free_ns: time in calls that free | wait_ns: time waiting for the GPU | other_ns: time in others
--- like: device_call_stat
CREATE VIEW device_time AS
    SELECT s.process_id, p.pid, s.device, s.stream, CASE s.stream WHEN 0 THEN 0 ELSE coalesce(
            (SELECT handle FROM stream t WHERE t.process_id = s.process_id AND t.device = s.device
                AND t.number = s.stream),
            (SELECT handle FROM stream t WHERE t.process_id = s.process_id AND t.number = s.stream)) END AS handle,
        sum(s.calls) AS calls, sum(s.failed) AS failed,
        sum(CASE WHEN s.class = @CALL_ALLOC@ THEN s.ns ELSE 0 END) AS allocate_ns,
        sum(CASE WHEN s.class = @CALL_FREE@ THEN s.ns ELSE 0 END) AS free_ns,
        sum(CASE WHEN s.class = @CALL_WAIT@ THEN s.ns ELSE 0 END) AS wait_ns,
        sum(CASE WHEN s.class = @CALL_OTHER@ THEN s.ns ELSE 0 END) AS other_ns
    FROM device_call_stat s LEFT JOIN process p ON p.id = s.process_id
    GROUP BY s.process_id, s.device, s.stream;

--- memory per stream, of the CUDA API and of caching allocators
--- domain: whose memory: domain.name | handle: CUDA's handle of the stream; NULL: unknown
--- like: stream_stat
CREATE VIEW stream_total AS
    SELECT s.process_id, p.pid, d.name AS domain, s.device, s.stream, CASE s.stream WHEN 0 THEN 0 ELSE coalesce(
            (SELECT handle FROM stream t WHERE t.process_id = s.process_id AND t.device = s.device
                AND t.number = s.stream),
            (SELECT handle FROM stream t WHERE t.process_id = s.process_id AND t.number = s.stream)) END AS handle,
        s.allocations, s.frees, s.bytes, s.live_bytes, s.peak_bytes
    FROM stream_stat s JOIN domain d ON d.code = s.domain LEFT JOIN process p ON p.id = s.process_id;

--- calls that the CUDA driver refused
--- stream: number of the stream; 0: the default one | kind: event_kind.name | function: of the CUDA API
--- bytes: bytes asked for | result: CUresult of the call | took_ns: time in the call
CREATE VIEW device_failure AS
    SELECT e.seq, e.ts_ns, t.process_id, e.pid, e.tid, e.device, e.stream, k.name AS kind, c.text AS function,
        e.size AS bytes, e.arg AS result, e.requested AS took_ns, e.callsite_id
    FROM device_event d CROSS JOIN event_own e ON e.seq = d.seq LEFT JOIN thread t ON t.id = e.thread_id
        LEFT JOIN event_kind k ON k.code = e.kind LEFT JOIN event_cause c ON c.code = e.cause
    WHERE (d.kind = @KIND_DEV_OOM@ OR (d.kind IN (@KIND_DEV_ALLOC@, @KIND_DEV_ALLOC_ASYNC@, @KIND_VMM_RESERVE@,
        @KIND_VMM_CREATE@, @KIND_VMM_MAP@) AND e.flags & @FLAG_FAILED@)) AND coalesce(e.flags,
            0) & @FLAG_DUPLICATE@ = 0;

-- What the driver said was in use on a device, and how much of it was live in domain device of all processes that had
-- not ended. The rest is unattributed: contexts of CUDA, other programs, what libraries get in other ways.
--- memory in use on a GPU, and how much of it belongs to no recorded allocation: contexts of CUDA, other programs,
---     libraries
--- process_id: process.id of the process that queried the driver | total: bytes of the GPU | free: bytes free
--- used: total - free | attributed: bytes live in domain device, of processes that had not ended
--- unattributed: used - attributed
CREATE VIEW device_unattributed AS
    SELECT seq, ts_ns, process_id, pid, device, total, free, total - free AS used, attributed,
        total - free - attributed AS unattributed
    FROM (SELECT m.seq, m.ts_ns, m.process_id, p.pid, m.device, m.total_bytes AS total, m.free_bytes AS free,
            m.live_bytes - coalesce((SELECT sum((SELECT s.allocated FROM sample s WHERE s.process_id = q.id
                    AND s.domain = @DOMAIN_DEVICE@ AND s.device = m.device ORDER BY s.seq DESC LIMIT 1))
                FROM process q WHERE q.end_ns < m.ts_ns), 0) AS attributed
        FROM device_memory m LEFT JOIN process p ON p.id = m.process_id);

-- Per process and device: the first moment at which a caching allocator held most, and what there was then of blocks
-- and, as far as events of the CUDA API say, of device memory; live_*: the same at the end.
--- when a caching allocator had reserved most, per process and GPU, and what was in it
--- peak_reserved: the most bytes in segments | seq: event after which that was so for the first time
--- ts_ns: when that was, ns since the trace began | allocated: bytes of allocations then
--- active: bytes allocated, or freed but still waited for, then
--- device_bytes: bytes live in domain device then; NULL: not recorded | live_segments: segments at the end
--- live_reserved: bytes in them at the end | live_allocated: bytes of allocations at the end
--- live_device_bytes: bytes live in domain device at the end; NULL: not recorded
CREATE VIEW device_segment AS
    SELECT s.process_id, p.pid, s.device, s.reserved AS peak_reserved, min(s.seq) AS seq, s.ts_ns, s.allocated,
        s.active,
        (SELECT a.allocated FROM sample a WHERE a.process_id = s.process_id AND a.domain = @DOMAIN_DEVICE@
            AND a.device = s.device
            AND a.seq <= s.seq ORDER BY a.seq DESC LIMIT 1) AS device_bytes,
        (SELECT count(*) FROM segment g WHERE g.process_id = s.process_id AND g.device = s.device
            AND g.free_seq IS NULL) AS live_segments,
        (SELECT l.reserved FROM sample l WHERE l.process_id = s.process_id AND l.domain = @DOMAIN_BLOCK@
            AND l.device = s.device
            ORDER BY l.seq DESC LIMIT 1) AS live_reserved,
        (SELECT l.allocated FROM sample l WHERE l.process_id = s.process_id AND l.domain = @DOMAIN_BLOCK@
            AND l.device = s.device
            ORDER BY l.seq DESC LIMIT 1) AS live_allocated,
        (SELECT l.allocated FROM sample l WHERE l.process_id = s.process_id AND l.domain = @DOMAIN_DEVICE@
            AND l.device = s.device
            ORDER BY l.seq DESC LIMIT 1) AS live_device_bytes
    FROM sample s
        JOIN (SELECT process_id, device, max(reserved) AS most FROM sample WHERE domain = @DOMAIN_BLOCK@
            GROUP BY process_id,
            device) m
        ON m.process_id = s.process_id AND m.device = s.device AND s.reserved = m.most
        LEFT JOIN process p ON p.id = s.process_id
    WHERE s.domain = @DOMAIN_BLOCK@ AND s.process_id <> 0 AND s.reserved > 0
    GROUP BY s.process_id, s.device;

--- calls of CUDA's virtual memory management
--- kind: event_kind.name | function: of the CUDA API
--- handle: of the physical memory; NULL: of addresses alone, or it failed | addr: first address | size: bytes
--- allocation_id: allocation.id of the physical memory | failed: 1: the call failed
--- is_duplicate: 1: CUPTI's record of a call that is recorded already
CREATE VIEW vmm AS
    SELECT e.seq, e.ts_ns, t.process_id, e.pid, e.device, k.name AS kind, c.text AS function,
        CASE WHEN e.flags & @FLAG_FAILED@ THEN NULL WHEN e.kind IN (@KIND_VMM_CREATE@, @KIND_VMM_MAP@,
            @KIND_VMM_RELEASE@) THEN e.arg END AS handle, e.addr, e.size,
        e.id AS allocation_id, e.flags & @FLAG_FAILED@ AS failed, e.flags & @FLAG_DUPLICATE@ <> 0 AS is_duplicate
    FROM device_event d CROSS JOIN event_own e ON e.seq = d.seq LEFT JOIN thread t ON t.id = e.thread_id
        LEFT JOIN event_kind k ON k.code = e.kind LEFT JOIN event_cause c ON c.code = e.cause
    WHERE d.kind IN (@KIND_VMM_RESERVE@, @KIND_VMM_CREATE@, @KIND_VMM_MAP@, @KIND_VMM_UNMAP@, @KIND_VMM_RELEASE@,
        @KIND_VMM_ADDRESS_FREE@, @KIND_VMM_SET_ACCESS@);

-- What CUPTI reported beside the CUDA recorder: domain 'cupti' of allocation and total_stat; other tables have none.
--- as total_process, of device memory as CUPTI reported it beside the CUDA recorder
--- process_id: process.id
--- like: total
CREATE VIEW cupti_total AS
    SELECT t.process_id, p.pid, t.device, t.allocations, t.frees, t.bytes, t.live_allocations, t.live_bytes,
        t.peak_bytes, t.peak_allocations, t.failed
    FROM total_stat t LEFT JOIN process p ON p.id = t.process_id WHERE t.process_id <> 0 AND t.domain = @DOMAIN_CUPTI@;

--- memory operations as CUPTI's activity records give them
--- stream: number of the stream; 0: the default one | op: allocation or release | addr: address | size: bytes
--- memory_kind: 2 pinned, 3 device, 4 array, 5 managed, 6 device static, 7 managed static
--- pool: number of the driver's pool | correlation_id: CUPTI's number of the call
--- time_ns: when it was by CUPTI's clock, ns since the trace began
CREATE VIEW cupti_memory AS
    SELECT e.seq, e.ts_ns, t.process_id, e.pid, e.device, e.stream,
        CASE e.arg >> 32 & 255 WHEN 1 THEN 'allocation' WHEN 2 THEN 'release' ELSE e.arg >> 32 & 255 END AS op,
        e.addr, e.size, e.pool >> 12 & 15 AS memory_kind, e.pool & 4095 AS pool,
        e.arg & 4294967295 AS correlation_id, e.requested - (SELECT value FROM meta
        WHERE key = 'start_real_ns') AS time_ns
    FROM device_event d CROSS JOIN event_own e ON e.seq = d.seq LEFT JOIN thread t ON t.id = e.thread_id
        WHERE d.kind = @KIND_CUPTI_MEMORY@;

--- the driver's memory pools as CUPTI reports them
--- pool: number of the driver's pool | handle: CUDA's handle of the pool | op: what was done with it
--- bytes: of the pool | release_threshold: bytes that it keeps | used_bytes: bytes of its allocations
CREATE VIEW cupti_pool AS
    SELECT e.seq, e.ts_ns, t.process_id, e.pid, e.device, e.pool & 4095 AS pool, e.addr AS handle,
        CASE e.cause WHEN @CAUSE_NONE@ THEN 'changed' ELSE c.text END AS op, e.size AS bytes,
        e.requested AS release_threshold, e.arg AS used_bytes
    FROM device_event d CROSS JOIN event_own e ON e.seq = d.seq LEFT JOIN thread t ON t.id = e.thread_id
        LEFT JOIN event_cause c ON c.code = e.cause
    WHERE d.kind = @KIND_DEV_POOL@ AND (e.cause = @CAUSE_NONE@
        OR e.cause BETWEEN @CAUSE_POOL_CREATED@ AND @CAUSE_POOL_TRIMMED@);

-- What became of CUPTI's recorder; arg: a CUptiResult, version or number, as state says; of cupti_end 1: it heard of no
-- call any more. cupti_refused after cupti_begin: of activity records, which only add kinds of memory.
--- what became of CUPTI's recorder
--- state: what happened | arg: a CUptiResult, version or number, as state says | detail: more of the same
--- time_ns: when it was by CUPTI's clock, ns since the trace began
CREATE VIEW cupti_state AS
    SELECT e.seq, e.ts_ns, t.process_id, e.pid, c.text AS state, e.arg, e.size AS detail,
        nullif(e.requested, 0) - (SELECT value FROM meta WHERE key = 'start_real_ns') AS time_ns
    FROM device_event d CROSS JOIN event_own e ON e.seq = d.seq LEFT JOIN thread t ON t.id = e.thread_id
        LEFT JOIN event_cause c ON c.code = e.cause
    WHERE d.kind = @KIND_CUPTI_STATE@;

-- Allocations of device memory that one of the two recorders reported more often than the other, in processes that both
-- reported of and as long as CUPTI was there: until it failed, or was given up to another profiler.
--- allocations of device memory that CUDA recorder and CUPTI did not report equally often
--- addr: address | size: bytes | by_cuda: times in the CUDA recorder | by_cupti: times in CUPTI
CREATE VIEW cupti_difference AS
    SELECT a.process_id, p.pid, a.device, a.addr, a.size, count(CASE WHEN a.domain = @DOMAIN_DEVICE@ THEN 1 END)
        AS by_cuda,
        count(CASE WHEN a.domain = @DOMAIN_CUPTI@ THEN 1 END) AS by_cupti
    FROM device_event d CROSS JOIN event_own e ON e.seq = d.seq CROSS JOIN allocation a ON a.id = e.id
        AND a.alloc_seq = e.seq LEFT JOIN process p ON p.id = a.process_id
        LEFT JOIN (SELECT process_id, min(seq) AS seq FROM cupti_state
            WHERE state = 'cupti_fatal' OR (state = 'cupti_end' AND arg = 1) GROUP BY process_id) gone
            ON gone.process_id = a.process_id
    WHERE d.kind IN (@KIND_DEV_ALLOC@, @KIND_DEV_ALLOC_ASYNC@, @KIND_VMM_CREATE@) AND a.domain IN (@DOMAIN_DEVICE@,
        @DOMAIN_CUPTI@) AND (gone.seq IS NULL OR a.alloc_seq < gone.seq)
        AND a.process_id IN (SELECT process_id FROM total_stat WHERE domain = @DOMAIN_CUPTI@ AND allocations > 0)
    GROUP BY a.process_id, a.device, a.addr, a.size HAVING by_cuda <> by_cupti;

-- ---- Ranks of a distributed program: processes that were started with RANK, or with what stands for it. A rank may
-- have several processes (workers that load data), and these several devices: allocations, bytes and failures are of
-- all of them; peak, reserved bytes and what is live over time are of the one process and device that has the rank's
-- largest peak, since peaks of different times don't add up.

--- processes that do a rank's work: not one that has started those of another rank, such as torchrun under srun
--- id: process.id | rank: in the distributed program (RANK)
CREATE VIEW rank_process AS
    WITH RECURSIVE launcher(pid) AS (
            SELECT p.pid FROM process c JOIN process p ON p.pid = c.parent_pid WHERE p.rank <> c.rank
            UNION
            SELECT p.parent_pid FROM launcher l JOIN process p ON p.pid = l.pid WHERE p.parent_pid IS NOT NULL)
    SELECT id, rank FROM process WHERE rank IS NOT NULL AND pid NOT IN launcher;

--- sums per rank and domain; process, device, peak and reserved bytes are those where the rank has its largest peak
--- rank: in the distributed program (RANK) | processes: of the rank that allocated in the domain
--- process_id: process with the largest peak | device: of that peak
--- reserved_bytes: the most that its caching allocator had in segments; NULL: it has none
--- reserved_ns: when that was
--- like: total_process
CREATE VIEW rank_total AS
    SELECT t.rank, t.domain, t.processes, t.process_id, t.pid, t.device, t.allocations, t.frees, t.bytes,
        t.live_allocations, t.live_bytes, t.peak_bytes, t.peak_seq, t.peak_ns, l.reserved AS reserved_bytes,
        l.ts_ns AS reserved_ns, t.failed
    FROM (SELECT p.rank, t.domain, count(DISTINCT t.process_id) AS processes, t.process_id, t.pid, t.device,
            sum(t.allocations) AS allocations, sum(t.frees) AS frees, sum(t.bytes) AS bytes,
            sum(t.live_allocations) AS live_allocations, sum(t.live_bytes) AS live_bytes,
            max(t.peak_bytes) AS peak_bytes, t.peak_seq, t.peak_ns, sum(t.failed) AS failed
        FROM total_process t JOIN rank_process p ON p.id = t.process_id GROUP BY p.rank, t.domain) t
        LEFT JOIN ladder_peak_stat l ON t.domain = 'block' AND l.process_id = t.process_id AND l.device = t.device;

-- The median of an even number of ranks is the mean of the two in the middle. A rank without memory in a domain that
-- others have has 0 there.
--- figures of rank_total, each rank's beside the median of all ranks
--- figure: peak_bytes, reserved_bytes, bytes, allocations or failed | value: of the rank | median: of all ranks
--- deviation: value / median - 1; NULL: the median is 0
--- is_unlike: 1: the value is more than a tenth away from the median
--- like: rank_total
CREATE VIEW rank_difference AS
    WITH known AS MATERIALIZED (SELECT * FROM rank_total),
        figures AS (
            SELECT r.rank, d.domain, f.value AS figure,
                coalesce(CASE f.value WHEN 'peak_bytes' THEN k.peak_bytes WHEN 'reserved_bytes' THEN k.reserved_bytes
                    WHEN 'bytes' THEN k.bytes WHEN 'allocations' THEN k.allocations ELSE k.failed END, 0) AS value
            FROM (SELECT DISTINCT rank FROM known) r
                CROSS JOIN (SELECT domain, max(reserved_bytes) AS reserved_bytes FROM known GROUP BY domain) d
                CROSS JOIN json_each('["peak_bytes", "reserved_bytes", "bytes", "allocations", "failed"]') f
                LEFT JOIN known k ON k.rank = r.rank AND k.domain = d.domain
            WHERE f.value <> 'reserved_bytes' OR d.reserved_bytes IS NOT NULL),
        placed AS (
            SELECT rank, domain, figure, value, row_number() OVER (PARTITION BY domain, figure ORDER BY value) AS place,
                count(*) OVER (PARTITION BY domain, figure) AS ranks
            FROM figures),
        beside AS (
            SELECT rank, domain, figure, value,
                avg(iif(place IN ((ranks + 1) / 2, (ranks + 2) / 2), value, NULL)) OVER (PARTITION BY domain, figure)
                    AS median
            FROM placed)
    SELECT rank, domain, figure, value, median, value / nullif(median, 0) - 1 AS deviation,
        coalesce(abs(value / nullif(median, 0) - 1) > 0.1, value <> 0) AS is_unlike
    FROM beside;

-- Fifty parts of the time from the first event of a domain in any rank to the last one: long enough that ranks which
-- do the same a little later look the same. A rank is there from its first event of the domain to its process's end.
--- the most that was live of each rank in each fiftieth of the time: what was live before stays so without an event
--- begin_ns: the span's first ns | end_ns: the next one's first | allocated: the most bytes that were live in it
--- seq: event after which that was so
--- like: rank_total
CREATE VIEW rank_span AS
    WITH moment AS MATERIALIZED (
            SELECT t.rank, t.domain, t.process_id, t.device, s.seq, s.ts_ns, s.allocated,
                coalesce(p.end_ns, 9223372036854775807) AS exit_ns
            FROM rank_total t JOIN domain d ON d.name = t.domain JOIN process p ON p.id = t.process_id
                JOIN sample s ON s.process_id = t.process_id AND s.domain = d.code AND s.device = t.device),
        bound AS MATERIALIZED (
            SELECT domain, min(ts_ns) AS from_ns, (max(ts_ns) - min(ts_ns)) / 50 + 1 AS width_ns
            FROM moment GROUP BY domain),
        inside AS MATERIALIZED (
            SELECT m.rank, m.domain, (m.ts_ns - b.from_ns) / b.width_ns AS span, m.seq, m.allocated
            FROM moment m JOIN bound b ON b.domain = m.domain),
        top AS (SELECT rank, domain, span, max(allocated) AS allocated, seq FROM inside GROUP BY rank, domain, span),
        last AS (SELECT rank, domain, span, allocated, max(seq) AS seq FROM inside GROUP BY rank, domain, span),
        number(span) AS (SELECT 0 UNION ALL SELECT span + 1 FROM number WHERE span < 49),
        known AS (
            SELECT r.rank, r.domain, r.process_id, r.device, n.span, b.from_ns + n.span * b.width_ns AS begin_ns,
                b.width_ns, r.exit_ns, t.allocated, t.seq, l.allocated AS last_allocated, l.seq AS last_seq,
                count(l.seq) OVER (PARTITION BY r.rank, r.domain ORDER BY n.span) AS spans_with_events
            FROM (SELECT rank, domain, process_id, device, exit_ns FROM moment GROUP BY rank, domain) r
                JOIN bound b ON b.domain = r.domain CROSS JOIN number n
                LEFT JOIN top t ON t.rank = r.rank AND t.domain = r.domain AND t.span = n.span
                LEFT JOIN last l ON l.rank = r.rank AND l.domain = r.domain AND l.span = n.span),
        kept AS (
            SELECT *, first_value(last_allocated) OVER since AS kept_allocated, first_value(last_seq) OVER since
                AS kept_seq
            FROM known WHERE spans_with_events > 0
            WINDOW since AS (PARTITION BY rank, domain, spans_with_events ORDER BY span)),
        before AS (
            SELECT *, lag(kept_allocated) OVER so_far AS before_allocated, lag(kept_seq) OVER so_far AS before_seq
            FROM kept WINDOW so_far AS (PARTITION BY rank, domain ORDER BY span))
    SELECT rank, domain, process_id, device, begin_ns, begin_ns + width_ns AS end_ns,
        max(coalesce(allocated, before_allocated), coalesce(before_allocated, allocated)) AS allocated,
        iif(coalesce(allocated > before_allocated, before_allocated IS NULL), seq, before_seq) AS seq
    FROM before WHERE begin_ns <= exit_ns;

--- how far ranks are apart in each span of rank_span in which there are several
--- ranks: that are there | difference: most_bytes - least_bytes
--- most_bytes: the largest of their allocated | most_rank: rank that has it | most_seq: event after which it had it
--- least_bytes: the smallest | least_rank: rank that has it | least_seq: event after which it had it
--- like: rank_span
CREATE VIEW rank_imbalance AS
    SELECT domain, begin_ns, end_ns, count(*) AS ranks, max(allocated) - min(allocated) AS difference,
        max(allocated) AS most_bytes, max(iif(from_top = 1, rank, NULL)) AS most_rank,
        max(iif(from_top = 1, seq, NULL)) AS most_seq, min(allocated) AS least_bytes,
        max(iif(from_bottom = 1, rank, NULL)) AS least_rank, max(iif(from_bottom = 1, seq, NULL)) AS least_seq
    FROM (SELECT *, row_number() OVER (PARTITION BY domain, begin_ns ORDER BY allocated DESC, rank) AS from_top,
            row_number() OVER (PARTITION BY domain, begin_ns ORDER BY allocated, rank DESC) AS from_bottom
        FROM rank_span)
    GROUP BY domain, begin_ns HAVING count(*) > 1;

-- The rows of allocations are read once for all moments, and not at all if there is none. Of recordings that did not
-- keep them there is nothing.
--- what of a rank was live at moments that matter, by the user's line: with the rows of allocations, else none
--- moment: peak: of the rank; most, least: of rank_imbalance, where the difference is largest
--- user_symbol_id: symbol of the user line; NULL: no stack was recorded | bytes: live then | allocations: live then
--- like: rank_total
CREATE VIEW rank_live AS
    WITH apart AS MATERIALIZED (
            SELECT domain, max(difference) AS difference, most_rank, most_seq, least_rank, least_seq
            FROM rank_imbalance GROUP BY domain),
        moment AS MATERIALIZED (
            SELECT m.moment, m.rank, m.domain, m.seq, t.process_id, t.device, d.code
            FROM (SELECT 'peak' AS moment, rank, domain, peak_seq AS seq FROM rank_total
                    UNION ALL SELECT 'most', most_rank, domain, most_seq FROM apart
                    UNION ALL SELECT 'least', least_rank, domain, least_seq FROM apart) m
                JOIN rank_total t ON t.rank = m.rank AND t.domain = m.domain JOIN domain d ON d.name = m.domain
            WHERE NOT EXISTS (SELECT 1 FROM meta WHERE key = 'kept_events' OR (key = 'keep' AND value = 'totals')))
    SELECT m.moment, m.rank, m.domain, coalesce(c.user_symbol_id, c.symbol_id) AS user_symbol_id,
        sum(a.size) AS bytes, count(*) AS allocations
    FROM (SELECT 1 FROM moment LIMIT 1) CROSS JOIN allocation_row a
        CROSS JOIN moment m ON m.process_id = a.process_id AND m.code = a.domain AND m.device = coalesce(a.device, 0)
        LEFT JOIN callsite c ON c.id = a.callsite_id
    WHERE a.alloc_seq <= m.seq AND coalesce(a.alloc_seq + a.lifetime_events > m.seq, 1)
    GROUP BY 1, 2, 3, 4;

--- what each rank's lines allocated, and what of it was live at the rank's own peak
--- user_symbol_id: symbol of the user line; NULL: no stack was recorded
--- peak_bytes: bytes live at the rank's peak; NULL: rows of allocations were not kept
--- like: rank_total
CREATE VIEW rank_line AS
    SELECT rank, domain, user_symbol_id, sum(allocations) AS allocations, sum(bytes) AS bytes,
        iif(EXISTS (SELECT 1 FROM meta WHERE key = 'kept_events' OR (key = 'keep' AND value = 'totals')), NULL,
            sum(peak_bytes)) AS peak_bytes
    FROM (SELECT p.rank, t.domain, coalesce(c.user_symbol_id, c.symbol_id) AS user_symbol_id, t.allocations, t.bytes,
                0 AS peak_bytes
            FROM callsite_total_process t JOIN rank_process p ON p.id = t.process_id
                LEFT JOIN callsite c ON c.id = t.callsite_id
        UNION ALL SELECT rank, domain, user_symbol_id, 0, 0, bytes FROM rank_live WHERE moment = 'peak')
    GROUP BY 1, 2, 3;

--- figures of rank_line, each rank's beside the median of all ranks: which lines make a rank unlike the others
--- user_function: function of the user line | user_file: its source file | user_line: its line
--- user_module: its program or library
--- figure: peak_bytes, bytes or allocations | value: of the rank | median: of all ranks | difference: value - median
--- like: rank_line
CREATE VIEW rank_line_difference AS
    WITH known AS MATERIALIZED (SELECT * FROM rank_line),
        figures AS (
            SELECT r.rank, l.domain, l.user_symbol_id, f.value AS figure,
                coalesce(CASE f.value WHEN 'peak_bytes' THEN k.peak_bytes WHEN 'bytes' THEN k.bytes
                    ELSE k.allocations END, 0) AS value
            FROM (SELECT domain, user_symbol_id, max(peak_bytes) AS peak_bytes FROM known GROUP BY 1, 2) l
                CROSS JOIN (SELECT DISTINCT rank FROM known) r
                CROSS JOIN json_each('["peak_bytes", "bytes", "allocations"]') f
                LEFT JOIN known k ON k.rank = r.rank AND k.domain = l.domain AND k.user_symbol_id IS l.user_symbol_id
            WHERE f.value <> 'peak_bytes' OR l.peak_bytes IS NOT NULL),
        placed AS (
            SELECT *, row_number() OVER (PARTITION BY domain, user_symbol_id, figure ORDER BY value) AS place,
                count(*) OVER (PARTITION BY domain, user_symbol_id, figure) AS ranks
            FROM figures),
        beside AS (
            SELECT *, avg(iif(place IN ((ranks + 1) / 2, (ranks + 2) / 2), value, NULL))
                OVER (PARTITION BY domain, user_symbol_id, figure) AS median
            FROM placed)
    SELECT b.rank, b.domain, b.user_symbol_id, s.function AS user_function, s.file AS user_file, s.line AS user_line,
        s.module AS user_module, b.figure, b.value, b.median, b.value - b.median AS difference
    FROM beside b LEFT JOIN symbol s ON s.id = b.user_symbol_id;

-- ---- Rematerialization. remat_event says which events matter, and CROSS JOIN that it is read first. operator: the
-- name of the operator that made the storage, NULL: it has none; number: of the storage in its planner, from 0 on,
-- while it knows it.

--- operators of the program, run by run
--- ts_ns: when it had run | id: number of the operator in its planner | name: of it; NULL: the trace does not say
--- cost_ns: what it took | input_bytes: of its inputs | output_bytes: of its outputs | callsite_id: who ran it
CREATE VIEW op AS
    SELECT e.seq, e.ts_ns, coalesce(e.id, 0) AS id, o.name, e.arg AS cost_ns, e.requested AS input_bytes,
        e.size AS output_bytes, e.callsite_id, t.process_id, e.pid
    FROM remat_event r CROSS JOIN event_own e ON e.seq = r.seq LEFT JOIN thread t ON t.id = e.thread_id
        LEFT JOIN operator_stat o ON o.process_id = t.process_id AND o.number = e.pool
    WHERE r.kind = @KIND_OP@;

--- evictions, one by one
--- number: of the storage, as in remat_storage | addr: of the elements; NULL: unknown
--- clock_ns: the planner's clock: 1 and the cost of all runs before
--- cause: released: by the program; budget: an operator needed room below it; allocator: it had no such block;
---     requested: the program said so; banished
--- callsite_id: who evicted it
--- like: remat_storage, remat_event
CREATE VIEW eviction AS
    SELECT e.seq, e.ts_ns, t.process_id, e.pid, coalesce(e.id, 0) AS number, o.name AS operator,
        nullif(e.addr, 0) AS addr, e.size, r.score, e.requested AS clock_ns, c.text AS cause, e.callsite_id
    FROM remat_event r CROSS JOIN event_own e ON e.seq = r.seq LEFT JOIN thread t ON t.id = e.thread_id
        LEFT JOIN operator_stat o ON o.process_id = t.process_id AND o.number = e.pool
        LEFT JOIN event_cause c ON c.code = e.cause
    WHERE r.kind = @KIND_EVICT@;

-- The cost of what was made beside a storage that was needed is in the row of that storage.
--- storages that were computed again, one by one
--- depth: 1: the program needs it, 2: a recomputation needs it, and so on | cost_ns: of the run; 0 if collateral
--- cause: direct: it was needed; collateral: made beside one that was
--- is_wasted: 1: evicted no more than 16 runs of operators ago | callsite_id: who needed it
--- like: eviction
CREATE VIEW rematerialization AS
    SELECT e.seq, e.ts_ns, t.process_id, e.pid, coalesce(e.id, 0) AS number, o.name AS operator,
        nullif(e.addr, 0) AS addr, e.size,
        e.requested AS depth, e.arg AS cost_ns, c.text AS cause, r.is_wasted, e.callsite_id
    FROM remat_event r CROSS JOIN event_own e ON e.seq = r.seq LEFT JOIN thread t ON t.id = e.thread_id
        LEFT JOIN operator_stat o ON o.process_id = t.process_id AND o.number = e.pool
        LEFT JOIN event_cause c ON c.code = e.cause
    WHERE r.kind = @KIND_REMAT@;

--- operator_stat with sums of evictions
--- evictions: of storages that it made | evicted_bytes: of those
--- released: those evicted because the program had released them
--- like: operator_stat
CREATE VIEW operator_total AS
    SELECT o.process_id, p.pid, o.name, o.runs, o.run_ns, o.input_bytes, o.output_bytes, o.remats, o.collateral,
        o.remat_ns, o.depth_max, coalesce(v.evictions, 0) AS evictions, coalesce(v.bytes, 0) AS evicted_bytes,
        coalesce(v.released, 0) AS released, o.wasted
    FROM operator_stat o LEFT JOIN process p ON p.id = o.process_id
        LEFT JOIN (SELECT process_id, operator, sum(evictions) AS evictions, sum(bytes) AS bytes,
                sum(iif(cause = @CAUSE_EVICT_RELEASED@, evictions, 0)) AS released
            FROM eviction_stat GROUP BY process_id, operator) v ON v.process_id = o.process_id
                AND v.operator = o.number;

--- evictions by process and cause
--- cause: released: by the program; budget: an operator needed room below it; allocator: it had no such block;
---     requested: the program said so; banished
--- like: eviction_stat
CREATE VIEW eviction_total AS
    SELECT v.process_id, p.pid, c.text AS cause, sum(v.evictions) AS evictions, sum(v.bytes) AS bytes
    FROM eviction_stat v LEFT JOIN event_cause c ON c.code = v.cause LEFT JOIN process p ON p.id = v.process_id
    GROUP BY v.process_id, v.cause;

--- rematerialization by process
--- budget: the last one; NULL: no limit | runs: sum of operator_total | run_ns: sum of operator_total
--- remats: sum of operator_total | collateral: sum of operator_total | remat_ns: sum of operator_total
--- overhead: remat_ns / run_ns | depth_max: of operator_total | evictions: sum of operator_total
--- evicted_bytes: sum of operator_total | wasted: sum of operator_total | failures: rows of remat_failure
CREATE VIEW remat_total AS
    SELECT o.process_id, p.pid, (SELECT b.budget FROM remat_budget b WHERE b.process_id = o.process_id
        ORDER BY b.seq DESC LIMIT 1)
            AS budget, o.runs, o.run_ns, o.remats, o.collateral, o.remat_ns,
            CAST(o.remat_ns AS REAL) / nullif(o.run_ns, 0) AS overhead,
        o.depth_max, coalesce(v.evictions, 0) AS evictions, coalesce(v.bytes, 0) AS evicted_bytes, o.wasted,
        (SELECT count(*) FROM remat_failure_stat f WHERE f.process_id = o.process_id) AS failures
    FROM (SELECT process_id, sum(runs) AS runs, sum(run_ns) AS run_ns, sum(remats) AS remats,
        sum(collateral) AS collateral,
            sum(remat_ns) AS remat_ns, max(depth_max) AS depth_max, sum(wasted) AS wasted
        FROM operator_stat GROUP BY process_id) o
        LEFT JOIN (SELECT process_id, sum(evictions) AS evictions, sum(bytes) AS bytes FROM eviction_stat
            GROUP BY process_id) v ON v.process_id = o.process_id
        LEFT JOIN process p ON p.id = o.process_id;

--- the same with names
--- operator: name of the operator that made it; NULL: none is known
--- like: remat_storage_stat
CREATE VIEW remat_storage AS
    SELECT s.id, s.process_id, p.pid, s.number, o.name AS operator, s.size, s.evictions, s.remats, s.collateral,
        s.remat_ns, s.wasted, s.is_evicted, s.is_pinned
    FROM remat_storage_stat s LEFT JOIN operator_stat o ON o.process_id = s.process_id AND o.number = s.operator
        LEFT JOIN process p ON p.id = s.process_id;

--- the same with names
--- operator: its name
--- like: remat_failure_stat
CREATE VIEW remat_failure AS
    SELECT f.seq, f.ts_ns, f.process_id, p.pid, f.op_id, o.name AS operator, f.needed, f.budget, f.blocked
    FROM remat_failure_stat f LEFT JOIN operator_stat o ON o.process_id = f.process_id AND o.number = f.operator
        LEFT JOIN process p ON p.id = f.process_id;

--- the same with names
--- operator: name of the operator that made them; NULL: none is known
--- cause: pinned: by the program; input: of an operator that was waiting
--- like: remat_blocked_stat
CREATE VIEW remat_blocked AS
    SELECT b.failure_seq, f.process_id, o.name AS operator, c.text AS cause, b.storages, b.bytes
    FROM remat_blocked_stat b JOIN remat_failure_stat f ON f.seq = b.failure_seq
        LEFT JOIN operator_stat o ON o.process_id = f.process_id AND o.number = b.operator
        LEFT JOIN event_cause c ON c.code = b.cause;

-- ---- Rows that others than varve write ----

CREATE TRIGGER event_insert INSTEAD OF INSERT ON event BEGIN
    INSERT INTO event_row(ts_ns, kind, cause, callsite_id, id, addr, size, thread_id, ring_lag, arg, padding, flags,
        device, dev_seq, stream, pool, pid, tid, seq)
    SELECT NEW.ts_ns, NEW.kind, NEW.cause, NEW.callsite_id, NEW.id, NEW.addr, NEW.size, NEW.thread_id,
        n.seq - NEW.ring_seq,
        NEW.arg, coalesce(NEW.size, 0) - NEW.requested, NEW.flags, NEW.device, NEW.dev_seq, NEW.stream, NEW.pool,
        NEW.pid, NEW.tid, n.seq
    FROM (SELECT coalesce(NEW.seq, (SELECT max(seq) FROM event_row) + 1, 1) AS seq) n;
END;
CREATE TRIGGER event_delete INSTEAD OF DELETE ON event BEGIN
    DELETE FROM event_row WHERE seq = OLD.seq;
END;
CREATE TRIGGER event_update INSTEAD OF UPDATE ON event BEGIN
    DELETE FROM event_row WHERE seq = OLD.seq;
    INSERT INTO event VALUES (NEW.seq, NEW.ts_ns, NEW.pid, NEW.tid, NEW.device, NEW.dev_seq, NEW.kind, NEW.stream,
        NEW.pool,
        NEW.id, NEW.addr, NEW.size, NEW.requested, NEW.arg, NEW.cause, NEW.callsite_id, NEW.thread_id, NEW.flags,
        NEW.ring_seq);
END;

CREATE TRIGGER allocation_insert INSTEAD OF INSERT ON allocation BEGIN
    INSERT INTO allocation_row(domain, source, offset, size, callsite_id, alloc_seq, alloc_ns, temporary,
        lifetime_events, lifetime_ns, thread_id, own_events, pending_events, padding, device, pool, stream, segment_id,
        memory_kind, pid, tid, process_id, id)
    VALUES (NEW.domain, NEW.source, NEW.addr - (SELECT base FROM addr_base), NEW.size, NEW.callsite_id, NEW.alloc_seq,
        NEW.alloc_ns, NEW.temporary,
        NEW.free_requested_seq - NEW.alloc_seq, NEW.free_ns - NEW.alloc_ns, NULL, 3,
        NEW.free_completed_seq - coalesce(NEW.free_requested_seq, NEW.alloc_seq), NEW.size - NEW.requested, NEW.device,
        NEW.pool, NEW.stream, NEW.segment_id, NEW.memory_kind, NEW.pid, NEW.tid, NEW.process_id, NEW.id);
END;
CREATE TRIGGER allocation_delete INSTEAD OF DELETE ON allocation BEGIN
    DELETE FROM allocation_row WHERE id = OLD.id;
END;
CREATE TRIGGER allocation_update INSTEAD OF UPDATE ON allocation BEGIN
    DELETE FROM allocation_row WHERE id = OLD.id;
    INSERT INTO allocation VALUES (NEW.id, NEW.domain, NEW.pid, NEW.tid, NEW.device, NEW.pool, NEW.stream,
        NEW.segment_id, NEW.addr,
        NEW.size, NEW.requested, NEW.alloc_seq, NEW.free_requested_seq, NEW.free_completed_seq, NEW.alloc_ns,
        NEW.free_ns, NEW.callsite_id, NEW.source, NEW.process_id, NEW.temporary, NEW.memory_kind);
END;
CREATE TRIGGER stack_node_insert INSTEAD OF INSERT ON stack_node BEGIN
    INSERT INTO stack_frame(symbol_id, pc) SELECT NEW.symbol_id, NEW.pc
    WHERE NOT EXISTS (SELECT 1 FROM stack_frame f WHERE f.symbol_id = NEW.symbol_id AND f.pc IS NEW.pc);
    INSERT INTO stack_node_row(frame_id, parent_lag, id)
    SELECT (SELECT min(f.id) FROM stack_frame f WHERE f.symbol_id = NEW.symbol_id AND f.pc IS NEW.pc),
        n.id - NEW.parent_id, n.id
    FROM (SELECT coalesce(NEW.id, (SELECT max(id) FROM stack_node_row) + 1, 1) AS id) n;
END;
CREATE TRIGGER stack_node_delete INSTEAD OF DELETE ON stack_node BEGIN
    DELETE FROM stack_node_row WHERE id = OLD.id;
END;
CREATE TRIGGER stack_node_update INSTEAD OF UPDATE ON stack_node BEGIN
    DELETE FROM stack_node_row WHERE id = OLD.id;
    INSERT INTO stack_node VALUES (NEW.id, NEW.parent_id, NEW.symbol_id, NEW.pc);
END;
