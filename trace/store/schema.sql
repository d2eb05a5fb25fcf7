-- SPDX-License-Identifier: Apache-2.0
-- Tables of a trace database. Times: ns since the trace began (the program's start). Sizes: bytes. Addresses: integers.
-- Codes (kind, cause, domain) are small integers here and text in the views. Columns may be added, never
-- renamed or dropped; a change that a reader must know about raises user_version.

CREATE TABLE meta(key TEXT PRIMARY KEY NOT NULL, value ANY) STRICT;

-- The vocabulary, copied from the one list in the source, so that a database explains itself.
CREATE TABLE event_kind(code INTEGER PRIMARY KEY, name TEXT NOT NULL, grp TEXT NOT NULL, addr TEXT, size TEXT,
    requested TEXT, arg TEXT, meaning TEXT NOT NULL) STRICT;
CREATE TABLE event_cause(code INTEGER PRIMARY KEY, text TEXT NOT NULL) STRICT;
-- contained_in: the domain whose memory this one's is cut from, or reported of once more: never add up both.
CREATE TABLE domain(code INTEGER PRIMARY KEY, name TEXT NOT NULL, meaning TEXT NOT NULL, contained_in TEXT) STRICT;
CREATE TABLE element_type(code INTEGER PRIMARY KEY, name TEXT NOT NULL, bytes INTEGER NOT NULL) STRICT;

-- One row per process image (exec starts a new one); id is the number in the recording, pid may repeat.
CREATE TABLE process(id INTEGER PRIMARY KEY, pid INTEGER NOT NULL, parent_pid INTEGER, parent_id INTEGER,
    rank INTEGER, executable TEXT, command_line TEXT, start_ns INTEGER, end_ns INTEGER,
    end_cause TEXT,           -- 'exit', 'signal', 'exec', 'unknown' (killed?), 'running'
    exit_status INTEGER,      -- exit code or signal number, NULL where only its own parent knows
    exec_path TEXT,           -- what it executed last
    unattached INTEGER NOT NULL DEFAULT 0,              -- events that no ring could take
    unattached_bytes INTEGER NOT NULL DEFAULT 0,
    peak_rss_bytes INTEGER,                             -- as the kernel counts it; NULL: unknown
    -- Its own code was over: main returned, exit was called, or its Python interpreter began to end. NULL:
    -- _exit, a signal.
    main_end_seq INTEGER, main_end_ns INTEGER) STRICT;
-- Resident memory as the kernel counts it, thinned by time; process_id 0: added up over all recorded processes that
-- lived then, pages that several share counted in each. rss_bytes_max: the most since the row before.
CREATE TABLE rss_sample(process_id INTEGER NOT NULL, ts_ns INTEGER NOT NULL, rss_bytes INTEGER NOT NULL,
    rss_bytes_max INTEGER NOT NULL, PRIMARY KEY(process_id, ts_ns)) STRICT, WITHOUT ROWID;

-- One row per ring, that is per thread that recorded; emitted = stored + lost + uncommitted. Where `damage` says so,
-- what the ring held is not known: emitted and lost are lower bounds then.
CREATE TABLE thread(id INTEGER PRIMARY KEY, process_id INTEGER NOT NULL, ring INTEGER NOT NULL,
    pid INTEGER NOT NULL, tid INTEGER NOT NULL, name TEXT, start_ns INTEGER, end_ns INTEGER,
    emitted INTEGER NOT NULL DEFAULT 0, stored INTEGER NOT NULL DEFAULT 0, spilled INTEGER NOT NULL DEFAULT 0,
    lost INTEGER NOT NULL DEFAULT 0, lost_bytes INTEGER NOT NULL DEFAULT 0,
    uncommitted INTEGER NOT NULL DEFAULT 0, -- being written when the process was killed
    unreadable INTEGER NOT NULL DEFAULT 0,  -- of the lost ones: stood in a file that was cut, damaged or gone
    damage TEXT) STRICT;                    -- of the ring's file: 'missing', 'cut', 'damaged'; NULL: whole

-- Devices of all processes; what a process called them, which may hide some from itself, is in process_device.
CREATE TABLE device(id INTEGER PRIMARY KEY, name TEXT, total_bytes INTEGER, uuid TEXT) STRICT;
CREATE TABLE process_device(process_id INTEGER NOT NULL, ordinal INTEGER NOT NULL, device INTEGER NOT NULL,
    PRIMARY KEY(process_id, ordinal)) STRICT, WITHOUT ROWID;

-- What there are millions of is read as the views event, allocation and stack_node (views.sql), and stored as ..._row:
-- small differences instead of large numbers, what few rows have last. Where a record ends early, the other columns
-- read as their default, or NULL. pid and tid: NULL where they are those of the thread.
CREATE TABLE event_row(ts_ns INTEGER NOT NULL, kind INTEGER NOT NULL, cause INTEGER, callsite_id INTEGER, id INTEGER,
    addr INTEGER, size INTEGER, thread_id INTEGER,
    ring_lag INTEGER DEFAULT 0, -- seq - ring_seq
    arg INTEGER,
    padding INTEGER,            -- size - requested
    flags INTEGER DEFAULT 0, device INTEGER, dev_seq INTEGER, stream INTEGER, pool INTEGER, pid INTEGER, tid INTEGER,
    -- by how many bytes it changed the rungs of its allocator's ladder; external holes: reserved_change less all others
    live_change INTEGER DEFAULT 0, rounding_change INTEGER DEFAULT 0, pending_change INTEGER DEFAULT 0,
    pools_change INTEGER DEFAULT 0, quantum_change INTEGER DEFAULT 0, cached_change INTEGER DEFAULT 0,
    unsplit_change INTEGER DEFAULT 0, reserved_change INTEGER DEFAULT 0,
    seq INTEGER PRIMARY KEY) STRICT;

CREATE TABLE allocation_row(domain INTEGER NOT NULL, source INTEGER, addr INTEGER NOT NULL, size INTEGER NOT NULL,
    callsite_id INTEGER, thread_id INTEGER, process_id INTEGER NOT NULL, alloc_seq INTEGER NOT NULL,
    alloc_ns INTEGER NOT NULL, temporary INTEGER,
    lifetime_events INTEGER,          -- free_requested_seq - alloc_seq
    lifetime_ns INTEGER,              -- free_ns - alloc_ns
    pending_events INTEGER DEFAULT 0, -- free_completed_seq - free_requested_seq, or alloc_seq if that is NULL
    padding INTEGER DEFAULT 0,        -- size - requested
    device INTEGER, pool INTEGER, stream INTEGER, segment_id INTEGER, memory_kind INTEGER, pid INTEGER, tid INTEGER,
    id INTEGER PRIMARY KEY) STRICT;

-- Numbers in the events of a process. Where `pool` has no row: bit 0 says whether it is the small pool, the bits above
-- it number the private pools, 0 is the default pool; that is a caching allocator's, not a pool of the CUDA driver.
CREATE TABLE stream(process_id INTEGER NOT NULL, device INTEGER NOT NULL, number INTEGER NOT NULL,
    handle INTEGER NOT NULL, PRIMARY KEY(process_id, device, number)) STRICT, WITHOUT ROWID;
CREATE TABLE pool(process_id INTEGER NOT NULL, device INTEGER NOT NULL, number INTEGER NOT NULL,
    capture_id INTEGER NOT NULL,
    user_id INTEGER NOT NULL, is_small INTEGER NOT NULL, PRIMARY KEY(process_id, device, number)) STRICT, WITHOUT ROWID;

-- Memory that an allocator got from the device. Of an expandable segment: the lowest address, the most bytes mapped
-- at a time. cause: why it was given back; number: the allocator's own, as in event.arg.
CREATE TABLE segment(id INTEGER PRIMARY KEY, device INTEGER, pool INTEGER, stream INTEGER, addr INTEGER, size INTEGER,
    alloc_seq INTEGER, free_seq INTEGER, alloc_ns INTEGER, free_ns INTEGER, cause INTEGER, process_id INTEGER,
    number INTEGER, is_expandable INTEGER) STRICT;
-- Segments and blocks of an allocator as they were after event seq: state at a later event = the last one before it and
-- the events since. All allocators are written at the same events; none of an allocator: as it was at its last one;
-- process_id 0: none has changed. What `data` holds is in trace/model/layout_code.c.
CREATE TABLE keyframe(seq INTEGER NOT NULL, process_id INTEGER NOT NULL, device INTEGER NOT NULL, data BLOB,
    -- the ladder then, as in ladder_peak_stat
    live INTEGER, rounding INTEGER, pending INTEGER, pools INTEGER, quantum INTEGER, cached INTEGER, unsplit INTEGER,
    reserved INTEGER, PRIMARY KEY(seq, process_id, device)) STRICT;
-- Storages and views of the storage layer. What they were when they were created; a view has the device and the
-- allocation of its base. Storages in memory of the C library, and foreign memory, have no device.
CREATE TABLE storage(number INTEGER NOT NULL, -- event.id: their own number in their process
    kind INTEGER NOT NULL,                    -- 1 of its own or wrapped memory, 2 view, 3 shared memory, 4 mapped file
    dtype INTEGER, addr INTEGER NOT NULL, size INTEGER NOT NULL, elements INTEGER, callsite_id INTEGER,
    thread_id INTEGER NOT NULL, process_id INTEGER NOT NULL, pid INTEGER NOT NULL, tid INTEGER NOT NULL,
    create_seq INTEGER NOT NULL, create_ns INTEGER NOT NULL,
    destroy_seq INTEGER, destroy_ns INTEGER,  -- NULL: it was never destroyed, or its process was killed before
    device INTEGER, allocation_id INTEGER,
    base_id INTEGER,                          -- of a view: the storage that it is a view of, as far as that is known
    last_use_ns INTEGER,                      -- of the last copy into it or out of it; NULL: none was seen
    writes INTEGER NOT NULL DEFAULT 0, reads INTEGER NOT NULL DEFAULT 0, -- copies into and out of it, and its views
    leak_seq INTEGER,                         -- the tracker's last word that it looks leaked, if no copy followed
    leak_cause INTEGER, leak_references INTEGER, -- as event.cause; references to it then
    id INTEGER PRIMARY KEY) STRICT;
-- Named phases of a program; end NULL: it did not end.
CREATE TABLE mark(id INTEGER PRIMARY KEY, name TEXT, pid INTEGER, tid INTEGER, begin_seq INTEGER, end_seq INTEGER,
    begin_ns INTEGER, end_ns INTEGER, process_id INTEGER) STRICT;
-- Of each caching allocator the moment with the most reserved, and of such moments the first with the most in use:
-- bytes by rung of the ladder, then, as view `ladder` has them.
CREATE TABLE ladder_peak_stat(process_id INTEGER NOT NULL, device INTEGER NOT NULL, seq INTEGER NOT NULL,
    ts_ns INTEGER NOT NULL,
    live INTEGER NOT NULL, rounding INTEGER NOT NULL, pending INTEGER NOT NULL, pools INTEGER NOT NULL,
    quantum INTEGER NOT NULL,
    cached INTEGER NOT NULL, unsplit INTEGER NOT NULL, reserved INTEGER NOT NULL, PRIMARY KEY(process_id, device))
    STRICT, WITHOUT ROWID;
CREATE TABLE oom(seq INTEGER PRIMARY KEY, ts_ns INTEGER, device INTEGER, requested INTEGER, allocated INTEGER,
    reserved INTEGER, largest_free INTEGER, stage INTEGER, -- the last stage tried, as in event.cause
    process_id INTEGER) STRICT;

-- Call sites: stacks are paths in a tree whose roots are outermost frames, so that what they share is there once; a
-- symbol is one resolved function and line of source code.
CREATE TABLE module(id INTEGER PRIMARY KEY, path TEXT NOT NULL, build_id TEXT) STRICT;
CREATE TABLE symbol(id INTEGER PRIMARY KEY, function TEXT, file TEXT, line INTEGER, module TEXT,
    is_python INTEGER NOT NULL, is_inlined INTEGER NOT NULL,
    -- 0 plumbing, 1 run-time library, 2 no name, 3 native, 4 with its source line, or Python that runs other code
    -- (PyTorch's own, threads), 5 library in Python, 6 Python that is in no file, 7 Python
    user_rank INTEGER NOT NULL DEFAULT 0) STRICT;
-- of the nodes, each once
CREATE TABLE stack_frame(symbol_id INTEGER NOT NULL, pc INTEGER, id INTEGER PRIMARY KEY) STRICT;
CREATE TABLE stack_node_row(frame_id INTEGER NOT NULL,
    parent_lag INTEGER DEFAULT 1, -- id - parent_id
    id INTEGER PRIMARY KEY) STRICT;
CREATE TABLE callsite(id INTEGER PRIMARY KEY,
    node_id INTEGER,          -- the innermost frame; NULL: no frames
    depth INTEGER NOT NULL,   -- number of frames
    symbol_id INTEGER,         -- of the innermost frame that is not an allocation function
    -- of the user's line: the innermost frame of the largest symbol.user_rank above 0, if there is one; else, and where
    -- it is NULL, symbol_id
    user_symbol_id INTEGER) STRICT;

-- Derived while recording, in the order of seq; tests compare each with its definition over event/allocation.
-- process_id 0 = all processes together. A block counts as freed when its free was requested (active: completed).
CREATE TABLE callsite_stat(callsite_id INTEGER NOT NULL, domain INTEGER NOT NULL, allocations INTEGER NOT NULL,
    frees INTEGER NOT NULL, bytes INTEGER NOT NULL, live_allocations INTEGER NOT NULL, live_bytes INTEGER NOT NULL,
    peak_allocations INTEGER NOT NULL, peak_bytes INTEGER NOT NULL, -- live at the peak of the domain, of each device
    temporary INTEGER NOT NULL, lifetime_ns INTEGER NOT NULL,       -- lifetimes of the freed ones, added up
    process_id INTEGER, -- the only one that used it; NULL: see callsite_share
    -- of domain python: bytes of objects that are in the heap as well (above 512 bytes), in all, live and at the peak
    shared_bytes INTEGER NOT NULL DEFAULT 0, live_shared_bytes INTEGER NOT NULL DEFAULT 0,
    peak_shared_bytes INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY(callsite_id, domain)) STRICT, WITHOUT ROWID;
-- Of call sites that several processes used, what each of them has; process_id 0: processes that had ended, together,
-- once there were a million rows of such.
CREATE TABLE callsite_share(process_id INTEGER NOT NULL, domain INTEGER NOT NULL, callsite_id INTEGER NOT NULL,
    allocations INTEGER NOT NULL, frees INTEGER NOT NULL, bytes INTEGER NOT NULL, live_allocations INTEGER NOT NULL,
    live_bytes INTEGER NOT NULL, peak_allocations INTEGER NOT NULL, peak_bytes INTEGER NOT NULL,
    temporary INTEGER NOT NULL,
    lifetime_ns INTEGER NOT NULL, PRIMARY KEY(process_id, domain, callsite_id)) STRICT, WITHOUT ROWID;
CREATE TABLE total_stat(process_id INTEGER NOT NULL, domain INTEGER NOT NULL, device INTEGER NOT NULL,
    allocations INTEGER NOT NULL, frees INTEGER NOT NULL, bytes INTEGER NOT NULL, live_allocations INTEGER NOT NULL,
    live_bytes INTEGER NOT NULL, peak_bytes INTEGER NOT NULL, peak_allocations INTEGER NOT NULL,
    peak_seq INTEGER, peak_ns INTEGER, temporary INTEGER NOT NULL, failed INTEGER NOT NULL,
    PRIMARY KEY(process_id, domain, device)) STRICT, WITHOUT ROWID;
-- The most of the domains heap and mmap together, of all processes, for the first time; a row if there are both.
CREATE TABLE host_peak(bytes INTEGER NOT NULL, heap_bytes INTEGER NOT NULL, mmap_bytes INTEGER NOT NULL,
    seq INTEGER NOT NULL, ts_ns INTEGER NOT NULL) STRICT;
-- The same by size: above half of up_to_bytes, a power of two, up to it.
CREATE TABLE size_stat(process_id INTEGER NOT NULL, domain INTEGER NOT NULL, device INTEGER NOT NULL,
    up_to_bytes INTEGER NOT NULL, allocations INTEGER NOT NULL, frees INTEGER NOT NULL, bytes INTEGER NOT NULL,
    live_allocations INTEGER NOT NULL, live_bytes INTEGER NOT NULL, temporary INTEGER NOT NULL,
    lifetime_ns INTEGER NOT NULL, -- lifetimes of the freed ones, added up
    PRIMARY KEY(process_id, domain, device, up_to_bytes)) STRICT, WITHOUT ROWID;
-- What of a call site was live after each tenth of its own allocations, the nearest marks in proportion; of those with
-- 64 allocations or more some of which were freed, devices together.
CREATE TABLE callsite_growth(callsite_id INTEGER NOT NULL, domain INTEGER NOT NULL, tenth INTEGER NOT NULL,
    live_allocations INTEGER NOT NULL, live_bytes INTEGER NOT NULL, PRIMARY KEY(callsite_id, domain, tenth))
    STRICT, WITHOUT ROWID;
-- A process's own work: how long it had been active by event seq (from one allocation to the next, 200 us at most), the
-- allocations that it had made, and what each event until end_seq adds to both.
CREATE TABLE work(process_id INTEGER NOT NULL, seq INTEGER NOT NULL, ts_ns INTEGER NOT NULL,
    active_ns INTEGER NOT NULL, allocations INTEGER NOT NULL, end_seq INTEGER NOT NULL, end_ns INTEGER NOT NULL,
    rate REAL NOT NULL, allocation_rate REAL NOT NULL, PRIMARY KEY(process_id, seq)) STRICT, WITHOUT ROWID;
-- Every event while a trace is short, else thinned by time: allocated_max is the maximum since the row before.
CREATE TABLE sample(process_id INTEGER NOT NULL, domain INTEGER NOT NULL, device INTEGER NOT NULL, seq INTEGER NOT NULL,
    ts_ns INTEGER NOT NULL, allocated INTEGER NOT NULL, allocated_max INTEGER NOT NULL, active INTEGER,
    reserved INTEGER, requested INTEGER, live INTEGER NOT NULL,
    PRIMARY KEY(process_id, domain, device, seq)) STRICT, WITHOUT ROWID;

-- The CUDA API: which events are of the group `device`, so that nobody has to look for them among all.
CREATE TABLE device_event(seq INTEGER PRIMARY KEY, kind INTEGER NOT NULL) STRICT;
-- Calls per function (cause, as in event.cause), without what CUPTI reports of the same calls. class: 1 allocates, 2
-- frees, 3 waits for the device, 4 other. Of a free, calls, failed and bytes are those of its events, the time is that
-- of the dev_sync that follows it.
CREATE TABLE device_call_stat(process_id INTEGER NOT NULL, device INTEGER NOT NULL, stream INTEGER NOT NULL,
    cause INTEGER NOT NULL, class INTEGER NOT NULL, calls INTEGER NOT NULL, failed INTEGER NOT NULL,
    ns INTEGER NOT NULL,
    max_ns INTEGER NOT NULL, bytes INTEGER NOT NULL, PRIMARY KEY(process_id, device, stream, cause)) STRICT,
    WITHOUT ROWID;
-- Memory by stream, of the domains that have devices; block: counts as freed when its free was requested.
CREATE TABLE stream_stat(process_id INTEGER NOT NULL, domain INTEGER NOT NULL, device INTEGER NOT NULL,
    stream INTEGER NOT NULL, allocations INTEGER NOT NULL, frees INTEGER NOT NULL, bytes INTEGER NOT NULL,
    live_bytes INTEGER NOT NULL, peak_bytes INTEGER NOT NULL, PRIMARY KEY(process_id, domain, device, stream))
    STRICT, WITHOUT ROWID;
-- What the driver said of a device as a whole, and what was live in domain device then, of all processes.
CREATE TABLE device_memory(seq INTEGER PRIMARY KEY, ts_ns INTEGER NOT NULL, process_id INTEGER NOT NULL,
    device INTEGER NOT NULL, total_bytes INTEGER NOT NULL, free_bytes INTEGER NOT NULL, live_bytes INTEGER NOT NULL)
    STRICT;

-- Rematerialization: which events are of the group `remat`; is_wasted, of a remat: within 16 runs of operators
-- after the eviction.
CREATE TABLE remat_event(seq INTEGER PRIMARY KEY, kind INTEGER NOT NULL, is_wasted INTEGER NOT NULL) STRICT;
-- By operator: its runs in the program, and what became of the storages that it made. number: as event.pool, of its
-- name in the process; 0: it had none.
CREATE TABLE operator_stat(process_id INTEGER NOT NULL, number INTEGER NOT NULL, name TEXT, runs INTEGER NOT NULL,
    run_ns INTEGER NOT NULL, input_bytes INTEGER NOT NULL, output_bytes INTEGER NOT NULL, remats INTEGER NOT NULL,
    collateral INTEGER NOT NULL, remat_ns INTEGER NOT NULL, depth_max INTEGER NOT NULL, wasted INTEGER NOT NULL,
    PRIMARY KEY(process_id, number)) STRICT, WITHOUT ROWID;
CREATE TABLE eviction_stat(process_id INTEGER NOT NULL, operator INTEGER NOT NULL, -- operator_stat.number
    cause INTEGER NOT NULL, evictions INTEGER NOT NULL, bytes INTEGER NOT NULL,
    PRIMARY KEY(process_id, operator, cause)) STRICT, WITHOUT ROWID;
-- Storages that were evicted, recomputed or pinned. A planner may give the number of one that it has forgotten to
-- another: one of another operator or size has a row of its own.
CREATE TABLE remat_storage_stat(id INTEGER PRIMARY KEY, process_id INTEGER NOT NULL, number INTEGER NOT NULL,
    operator INTEGER NOT NULL, size INTEGER NOT NULL, evictions INTEGER NOT NULL, remats INTEGER NOT NULL,
    collateral INTEGER NOT NULL, remat_ns INTEGER NOT NULL, wasted INTEGER NOT NULL, is_evicted INTEGER NOT NULL,
    is_pinned INTEGER NOT NULL) STRICT;
CREATE TABLE remat_budget(seq INTEGER PRIMARY KEY, ts_ns INTEGER NOT NULL, process_id INTEGER NOT NULL,
    budget INTEGER) STRICT; -- NULL: none from here on
-- Operators that did not get their memory, and what was in the way, by the operators that made it.
CREATE TABLE remat_failure_stat(seq INTEGER PRIMARY KEY, ts_ns INTEGER NOT NULL, process_id INTEGER NOT NULL,
    op_id INTEGER NOT NULL, operator INTEGER NOT NULL, needed INTEGER NOT NULL, budget INTEGER,
    blocked INTEGER NOT NULL) STRICT;
CREATE TABLE remat_blocked_stat(failure_seq INTEGER NOT NULL, operator INTEGER NOT NULL, cause INTEGER NOT NULL,
    storages INTEGER NOT NULL, bytes INTEGER NOT NULL, PRIMARY KEY(failure_seq, operator, cause)) STRICT, WITHOUT ROWID;

-- Health of the recording: severity 'info', 'error' or 'data_loss'.
CREATE TABLE stats(name TEXT NOT NULL, idx INTEGER, severity TEXT NOT NULL, source TEXT NOT NULL,
    value INTEGER NOT NULL) STRICT;
CREATE UNIQUE INDEX stats_once ON stats(name, idx, source); -- stored again, a figure replaces the one before
-- Programs that ran under the recording without the recorder in them, and why it could not be loaded.
CREATE TABLE unrecorded_program(path TEXT NOT NULL, reason TEXT NOT NULL, count INTEGER NOT NULL,
    PRIMARY KEY(path, reason)) STRICT, WITHOUT ROWID;
CREATE TABLE clock_anchor(ticks INTEGER PRIMARY KEY, mono_ns INTEGER NOT NULL, real_ns INTEGER NOT NULL) STRICT;
-- How far each ring has been stored, in the same transaction as its events; empty once a trace is complete. orphans:
-- records of signal handlers; unreadable: taken but not stored; unfolded: events of these records beyond one each,
-- with the `parts` of the next record that are stored already; last_ticks, last_ns: of the last record.
CREATE TABLE ring_position(thread_id INTEGER PRIMARY KEY, process_id INTEGER NOT NULL, ring INTEGER NOT NULL,
    tail INTEGER NOT NULL, spill_tail INTEGER NOT NULL, sequence INTEGER NOT NULL, orphans INTEGER NOT NULL,
    unreadable INTEGER NOT NULL, unfolded INTEGER NOT NULL, parts INTEGER NOT NULL, last_ticks INTEGER NOT NULL,
    last_ns INTEGER NOT NULL) STRICT;
-- The process and its number under which call sites, `count` of them in turn, were first seen; empty once a
-- trace is complete.
CREATE TABLE callsite_origin(callsite_id INTEGER PRIMARY KEY, process_id INTEGER NOT NULL, site INTEGER NOT NULL,
    count INTEGER NOT NULL) STRICT;
