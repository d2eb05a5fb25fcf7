-- SPDX-License-Identifier: Apache-2.0
-- Tables of a trace database. Times: ns since the trace began (the program's start). Sizes: bytes. Addresses: integers.
-- Codes (kind, cause, domain) are small integers here and text in the views. Columns may be added, never
-- renamed or dropped; a change that a reader must know about raises user_version.
--
-- What begins with three dashes is the meaning that users read (table `help`): of a column behind it and indented
-- below it; of a table or view above it, then `column: meaning` of columns, several with ` | ` between them. `like`
-- names what has the meanings of its other columns, `*.column` is what is meant where nothing else is said.
-- Of tables whose rows C code packs, brackets say what of (cmake/declare_database.py makes columns_generated.h): of a
-- table the pointer whose members its columns are, of a column another expression (of events a member, as they are read
-- back), and `if` which bit of `uses` gives it a value; `?` is a value that the code computes. event_row,
-- allocation_row, callsite_stat_row and storage have their rowid last.

--- facts of the recording, by name
CREATE TABLE meta(
    key TEXT PRIMARY KEY NOT NULL,
        --- name: command, host, start_real_ns (when the trace began, ns since 1970), complete (1: totals are made) and
        --- so on
    value ANY) STRICT; --- text or number

-- The vocabulary, copied from the one list in the source, so that a database explains itself.
--- kinds of events, and what the fields of each hold
CREATE TABLE event_kind(
    code INTEGER PRIMARY KEY, --- number, as in event.kind
    name TEXT NOT NULL, --- as in events.kind
    grp TEXT NOT NULL, --- which allocator, recorder or API emits it
    addr TEXT, --- what event.addr holds; NULL: nothing
    size TEXT, --- what event.size holds
    requested TEXT, --- what event.requested holds
    arg TEXT, --- what event.arg holds
    meaning TEXT NOT NULL) STRICT; --- in words
--- functions and reasons in events
CREATE TABLE event_cause(
    code INTEGER PRIMARY KEY, --- number, as in event.cause
    text TEXT NOT NULL) STRICT; --- as in events.cause
--- whose memory it is: sums go over one domain
CREATE TABLE domain(
    code INTEGER PRIMARY KEY, --- number, as in allocation.domain
    name TEXT NOT NULL, --- as in all views
    meaning TEXT NOT NULL, --- in words
    contained_in TEXT) STRICT;
        --- domain that this one's memory is cut from, or reports once more: never add up both; NULL: none
--- types of the elements of storages
CREATE TABLE element_type(
    code INTEGER PRIMARY KEY, --- as in storage.dtype
    name TEXT NOT NULL, --- f32 and so on
    bytes INTEGER NOT NULL) STRICT; --- of one element

--- processes, one row each time that a program is started in one (exec)
CREATE TABLE process(
    id INTEGER PRIMARY KEY, --- number in the recording, never given twice
    pid INTEGER NOT NULL, --- number in the operating system, which may be given again
    parent_pid INTEGER, --- pid of its parent
    parent_id INTEGER, --- process.id of its parent; NULL: not recorded
    rank INTEGER, --- rank in a distributed program (RANK); NULL: none
    executable TEXT, --- path of the program
    command_line TEXT, --- as it was started
    start_ns INTEGER, --- when it began, ns since the trace began
    end_ns INTEGER, --- when it ended; NULL: unknown, or it had not
    end_cause TEXT,
        --- exit, signal, exec (another program in its place), unknown (killed?), running (when the recording stopped)
    exit_status INTEGER, --- exit code, or number of the signal; NULL: unknown
    exec_path TEXT, --- program that it started last in its own place
    unattached INTEGER NOT NULL DEFAULT 0, --- events that no ring could take
    unattached_bytes INTEGER NOT NULL DEFAULT 0, --- bytes of their allocations
    peak_rss_bytes INTEGER,
        --- the most that was resident (VmHWM); of one whose end waitpid did not report as of the last sample; NULL:
        --- unknown
    main_end_seq INTEGER,
        --- event main_end: main had returned, exit was called, or the Python interpreter began to end; NULL: none was
        --- seen
    main_end_ns INTEGER) STRICT; --- when that was
--- resident memory (RSS) as the kernel counts it, sampled every 10 ms or less often and thinned; of a recording whose
---     collector was killed only processes that had ended before; read it as rss and rss_total
CREATE TABLE rss_sample(
    process_id INTEGER NOT NULL, --- row of process; 0: added up over all recorded processes that lived then
    ts_ns INTEGER NOT NULL,
    rss_bytes INTEGER NOT NULL, --- resident then
    rss_bytes_max INTEGER NOT NULL, --- the most that was sampled since the row before
    PRIMARY KEY(process_id, ts_ns)) STRICT, WITHOUT ROWID;

--- threads that recorded, one row a ring; emitted = stored + lost + uncommitted
CREATE TABLE thread(
    id INTEGER PRIMARY KEY, --- number in the recording
    process_id INTEGER NOT NULL,
    ring INTEGER NOT NULL, --- number of its ring in the process
    pid INTEGER NOT NULL, tid INTEGER NOT NULL,
    name TEXT, --- as the operating system knows it
    start_ns INTEGER, --- when it began to record
    end_ns INTEGER, --- when it ended; NULL: unknown
    emitted INTEGER NOT NULL DEFAULT 0, --- events of the thread
    stored INTEGER NOT NULL DEFAULT 0, --- of those: in the database
    spilled INTEGER NOT NULL DEFAULT 0, --- of the stored: were on disk in between
    lost INTEGER NOT NULL DEFAULT 0, --- of those: lost
    lost_bytes INTEGER NOT NULL DEFAULT 0, --- bytes of the lost allocations
    uncommitted INTEGER NOT NULL DEFAULT 0, --- of those: were being written when the process was killed
    unreadable INTEGER NOT NULL DEFAULT 0, --- of the lost: in a file that was cut, damaged or gone
    damage TEXT) STRICT;
        --- of the ring's file: missing, cut, damaged; emitted and lost are lower bounds then; NULL: whole

--- GPUs of all processes
CREATE TABLE device(
    id INTEGER PRIMARY KEY, --- number in the recording
    name TEXT, --- as the driver calls it
    total_bytes INTEGER, --- memory of the GPU
    uuid TEXT) STRICT; --- as the driver says
--- [ordinal] by which number a process called a GPU, as it may hide some from itself
CREATE TABLE process_device(
    process_id INTEGER NOT NULL,
    ordinal INTEGER NOT NULL, --- its own number
    device INTEGER NOT NULL, PRIMARY KEY(process_id, ordinal)) STRICT, WITHOUT ROWID;

-- What there are millions of is read as the views event, allocation and stack_node (views.sql), and stored as ..._row:
-- small differences instead of large numbers, what few rows have last. Where a record ends early, the other columns
-- read as their default, or NULL. pid and tid: NULL where they are those of the thread.
--- [event] events that are not held by the rows of their allocations: read view event
CREATE TABLE event_row(
    ts_ns INTEGER NOT NULL,
    kind INTEGER NOT NULL, --- event_kind.code
    cause INTEGER, --- event_cause.code
    callsite_id INTEGER,
        --- [rows_callsite(store, event->callsite) if CALLSITE] who called: callsite.id; of a free: who freed; NULL: no
        --- stack
    id INTEGER,
        --- [event->id if ID] number of the allocation, storage, segment or phase: equal for the allocation and its free
    addr INTEGER, --- [event->addr if ADDR] as event_kind.addr says of the kind
    size INTEGER, --- [? if SIZE] as event_kind.size says of the kind; most are bytes
    thread_id INTEGER,
    ring_lag INTEGER DEFAULT 0, --- [? if RING] seq - ring_seq
    arg INTEGER, --- [event->arg if ARG] as event_kind.arg says of the kind
    padding INTEGER, --- [? if REQUESTED] size - requested
    flags INTEGER DEFAULT 0,
        --- sum of 1 failed, 2 nested in a signal handler, 4 late, 8 CUPTI's record of a call that is recorded already
    device INTEGER, --- [event->device if DEVICE]
    dev_seq INTEGER, --- [event->dev_seq if DEVICE] number of the event among those of its allocator
    stream INTEGER, --- [event->stream if DEVICE] number of the stream: table stream; 0: the default one
    pool INTEGER, --- [event->pool if DEVICE] of which pool: table pool, or of what event_kind says
    pid INTEGER, --- [event->pid if OTHERS] number of the process in the operating system; NULL: that of the thread
    tid INTEGER, --- [event->tid if OTHERS] number of the thread in the operating system; NULL: that of the thread's row
    -- external holes: reserved_change less all others
    live_change INTEGER DEFAULT 0, --- [event->ladder_change.bytes[LADDER_LIVE]] ladder_change.live_requested
    rounding_change INTEGER DEFAULT 0, --- [event->ladder_change.bytes[LADDER_ROUNDING]] ladder_change.rounding
    pending_change INTEGER DEFAULT 0, --- [event->ladder_change.bytes[LADDER_PENDING]] ladder_change.stream_pending
    pools_change INTEGER DEFAULT 0, --- [event->ladder_change.bytes[LADDER_POOLS]] ladder_change.pool_segregation
    quantum_change INTEGER DEFAULT 0, --- [event->ladder_change.bytes[LADDER_QUANTUM]] ladder_change.segment_quantum
    cached_change INTEGER DEFAULT 0, --- [event->ladder_change.bytes[LADDER_CACHED]] ladder_change.cached_segments
    unsplit_change INTEGER DEFAULT 0, --- [event->ladder_change.bytes[LADDER_UNSPLIT]] ladder_change.unsplit_remainder
    reserved_change INTEGER DEFAULT 0, --- [event->ladder_change.bytes[LADDER_RESERVED]] ladder_change.reserved
    seq INTEGER PRIMARY KEY) STRICT; --- [?] number of the event: 1, 2, … in the order of time, of all threads

--- [row] allocations as they are stored: read view allocation
--- like: event_row
CREATE TABLE allocation_row(
    offset INTEGER NOT NULL, --- [?] addr - meta.addr_base
    size INTEGER NOT NULL, --- bytes, rounded up as the allocator does
    callsite_id INTEGER, --- [rows_callsite(store, row->callsite)] who allocated it: callsite.id; NULL: no stack
    alloc_seq INTEGER NOT NULL, --- event that allocated it
    alloc_ns INTEGER NOT NULL, --- when it was allocated
    temporary INTEGER, --- [?] 1: freed before its thread allocated again
    lifetime_events INTEGER, --- [? if FREED] free_requested_seq - alloc_seq
    lifetime_ns INTEGER, --- [? if FREED] free_ns - alloc_ns
    -- its events, in view event
    source INTEGER DEFAULT @CAUSE_MALLOC@,
        --- event_cause.code: function that was called, or where the block came from
    domain INTEGER NOT NULL DEFAULT @DOMAIN_HEAP@, --- domain.code
    lag INTEGER DEFAULT 0, --- [?] alloc_seq - ring_seq of the event that allocated it
    thread_id INTEGER DEFAULT 1, --- thread.id of who allocated it
    process_id INTEGER NOT NULL DEFAULT 1, --- [thread->process_id]
    own_events INTEGER DEFAULT 0,
        --- [?] of heap and Python, sum of 1 the event that allocated it is in event_row, 2 so is the one that freed it,
        --- or there is none, 4 a realloc freed it, 8 a realloc allocated it at the address where it was
    free_lag_change INTEGER DEFAULT 0, --- [?] as lag, of the event that freed it, less lag
    free_thread_id INTEGER, --- [? if FREE_THREAD] thread.id of who freed it; NULL: who allocated it
    pending_events INTEGER DEFAULT 0,
        --- [? if COMPLETED] free_completed_seq - free_requested_seq, or - alloc_seq if that is NULL
    padding INTEGER DEFAULT 0, --- [?]
    device INTEGER, --- [block->device if BLOCK]
    pool INTEGER, --- [? if BLOCK] as event.pool of its allocation
    stream INTEGER, --- [block->stream if BLOCK] as event.stream of its allocation
    segment_id INTEGER, --- [block->segment_id if SEGMENT] of a block: segment.id that it lies in
    memory_kind INTEGER,
        --- [block->pool >> VARVE_MEMORY_KIND_SHIFT if API] CUDA API: 2 pinned, 3 device, 4 array, 5 managed, 6 device
        --- static, 7 managed static
    pid INTEGER, --- [thread->pid if OTHERS]
    tid INTEGER, --- [thread->tid if OTHERS]
    id INTEGER PRIMARY KEY) STRICT; --- [?] number of the allocation, event.id of its events

--- streams of CUDA, as numbered in event.stream
CREATE TABLE stream(
    process_id INTEGER NOT NULL, device INTEGER NOT NULL,
    number INTEGER NOT NULL, --- its number in events of the process
    handle INTEGER NOT NULL, --- CUDA's handle
    PRIMARY KEY(process_id, device, number)) STRICT, WITHOUT ROWID;
--- pools of caching allocators, as numbered in event.pool; a number without a row: bit 0 is is_small, the bits above
---     number private pools, 0 is the default pool
CREATE TABLE pool(
    process_id INTEGER NOT NULL, device INTEGER NOT NULL,
    number INTEGER NOT NULL, --- its number in events of the process
    capture_id INTEGER NOT NULL, --- first part of the number of the private pool (graph capture); 0: not private
    user_id INTEGER NOT NULL, --- second part of it (pool made by the program)
    is_small INTEGER NOT NULL, --- 1: of small blocks
    PRIMARY KEY(process_id, device, number)) STRICT, WITHOUT ROWID;

--- memory that a caching allocator got from the device
CREATE TABLE segment(
    id INTEGER PRIMARY KEY, --- number of the row
    device INTEGER,
    pool INTEGER, --- as event.pool of its events
    stream INTEGER, --- as event.stream of its events
    addr INTEGER, --- address; of an expandable segment the lowest
    size INTEGER, --- bytes; of an expandable segment the most that were mapped at a time
    alloc_seq INTEGER, --- event that got it
    free_seq INTEGER, --- event that gave it back; NULL: never
    alloc_ns INTEGER, --- when it was got
    free_ns INTEGER, --- when it was given back; NULL: never
    cause INTEGER, --- event_cause.code: why it was given back
    process_id INTEGER,
    number INTEGER, --- the allocator's own number, as in event.arg
    is_expandable INTEGER) STRICT; --- 1: it grows and shrinks
-- Segments and blocks of an allocator as they were after event seq: state at a later event = the last one before it and
-- the events since. All allocators are written at the same events; none of an allocator: as it was at its last one;
-- process_id 0: none has changed. What `data` holds is in trace/model/layout_code.c.
--- segments and blocks of an allocator after an event, from which varve segments starts
--- like: ladder_peak_stat
CREATE TABLE keyframe(
    seq INTEGER NOT NULL,
    process_id INTEGER NOT NULL, --- process.id; 0: no allocator has changed since
    device INTEGER NOT NULL,
    data BLOB, --- packed
    live INTEGER, rounding INTEGER, pending INTEGER, pools INTEGER, quantum INTEGER, cached INTEGER, unsplit INTEGER,
    reserved INTEGER, PRIMARY KEY(seq, process_id, device)) STRICT;
-- Storages and views of the storage layer. What they were when they were created; a view has the device and the
-- allocation of its base. Storages in memory of the C library, and foreign memory, have no device.
--- [row] storages and views of the storage layer, as they were when they were created
CREATE TABLE storage(
    number INTEGER NOT NULL, --- its own number in its process: id of its events
    kind INTEGER NOT NULL, --- 1 of its own or wrapped memory, 2 view, 3 shared memory, 4 mapped file
    dtype INTEGER,
        --- [row->dtype if KNOWN] type of the elements, element_type.code; of a view its base's; NULL: unknown
    addr INTEGER NOT NULL, --- address of the first element
    size INTEGER NOT NULL, --- [?] bytes of the elements; of a view of those that it shows
    elements INTEGER, --- [? if KNOWN] number of elements
    callsite_id INTEGER, --- [rows_callsite(store, row->callsite)] who created it
    thread_id INTEGER NOT NULL, --- row of thread: who created it
    process_id INTEGER NOT NULL, --- [thread->process_id]
    pid INTEGER NOT NULL, --- [thread->pid]
    tid INTEGER NOT NULL, --- [thread->tid]
    create_seq INTEGER NOT NULL, --- event that created it
    create_ns INTEGER NOT NULL, --- when, ns since the trace began
    destroy_seq INTEGER,
        --- [row->destroy_seq if DESTROYED] event that destroyed it; NULL: it was alive when the trace or its process
        --- ended
    destroy_ns INTEGER, --- [row->destroy_ns if DESTROYED] when
    device INTEGER, --- [row->device if DEVICE] that its allocator is of; NULL: memory of the C library, or of others
    allocation_id INTEGER,
        --- [row->allocation_id if ALLOCATION] row of allocation that it lies in; of a view its base's; NULL: none that
        --- was recorded
    base_id INTEGER,
        --- [row->base if BASE] of a view: row of the storage that it is a view of; NULL: no view, or unknown
    last_use_ns INTEGER,
        --- [row->last_use_ns if COPIED] of the last copy into it or out of it, or a view of it; NULL: none was seen
    writes INTEGER NOT NULL DEFAULT 0, --- copies, casts and transfers into it and its views
    reads INTEGER NOT NULL DEFAULT 0, --- the same out of it and its views
    leak_seq INTEGER,
        --- [row->leak_seq if LEAK] event by which the tracker said last that it looks leaked; NULL: it did not, or the
        --- storage was used since
    leak_cause INTEGER, --- [row->leak_cause if LEAK] cause of that event
    leak_references INTEGER, --- [? if LEAK] references to it then
    id INTEGER PRIMARY KEY) STRICT; --- [?] number of the row
--- named phases of a program (varve_mark_begin, varve_mark_end)
CREATE TABLE mark(
    id INTEGER PRIMARY KEY, --- number of the row, in order of their beginnings
    name TEXT, --- as the program calls it, 24 bytes at most
    pid INTEGER,
    tid INTEGER, --- thread that began it
    begin_seq INTEGER, --- event that began it
    end_seq INTEGER, --- event that ended it; NULL: none did
    begin_ns INTEGER, --- when it began
    end_ns INTEGER, --- when it ended
    process_id INTEGER) STRICT;
-- Of each caching allocator the moment with the most reserved, and of such moments the first with the most in use:
-- bytes by rung of the ladder, then, as view `ladder` has them.
--- ladder_peak as it is stored
--- like: ladder
CREATE TABLE ladder_peak_stat(
    process_id INTEGER NOT NULL, device INTEGER NOT NULL, seq INTEGER NOT NULL, ts_ns INTEGER NOT NULL,
    live INTEGER NOT NULL, --- ladder_peak.live_requested
    rounding INTEGER NOT NULL,
    pending INTEGER NOT NULL, --- ladder_peak.stream_pending
    pools INTEGER NOT NULL, --- ladder_peak.pool_segregation
    quantum INTEGER NOT NULL, --- ladder_peak.segment_quantum
    cached INTEGER NOT NULL, --- ladder_peak.cached_segments
    unsplit INTEGER NOT NULL, --- ladder_peak.unsplit_remainder
    reserved INTEGER NOT NULL, PRIMARY KEY(process_id, device)) STRICT, WITHOUT ROWID;
--- requests that a caching allocator could not serve
CREATE TABLE oom(
    seq INTEGER PRIMARY KEY, ts_ns INTEGER, device INTEGER,
    requested INTEGER, --- bytes asked for
    allocated INTEGER, --- bytes allocated then
    reserved INTEGER, --- bytes in segments then
    largest_free INTEGER, --- bytes of the largest free block then; 0: unknown
    stage INTEGER, --- event_cause.code: the last thing that it tried
    process_id INTEGER) STRICT;

-- Call sites: stacks are paths in a tree whose roots are outermost frames, so that what they share is there once; a
-- symbol is one resolved function and line of source code.
--- programs and libraries of the recorded processes
CREATE TABLE module(
    id INTEGER PRIMARY KEY, --- number of the row
    path TEXT NOT NULL, --- of the file
    build_id TEXT) STRICT; --- of the file, in hexadecimal digits; NULL: none
--- functions and lines of source, each once: GROUP BY its id gives one row per line
CREATE TABLE symbol(
    id INTEGER PRIMARY KEY, --- number of the row
    function TEXT, --- name; NULL: unresolved, only the module is known
    file TEXT, --- source file; NULL: unknown
    line INTEGER,
    module TEXT, --- program or library; NULL for Python
    is_python INTEGER NOT NULL, --- 1: of Python
    is_inlined INTEGER NOT NULL, --- 1: inlined into its caller, which is the next frame
    user_rank INTEGER NOT NULL DEFAULT 0) STRICT;
        --- how near to the user's code: 0 plumbing (allocators, containers), 1 run-time libraries, 2 native without a
        --- name, 3 native, 4 with its source line, or PyTorch's own Python and what begins threads, 5 Python's
        --- libraries, 6 Python in no file, 7 Python
-- One for each symbol; of native code without a name, whose symbol is its module, one for each function that the
-- module's unwind table lists, or, where it lists none, for each address.
--- frames of stacks, each once
CREATE TABLE stack_frame(
    symbol_id INTEGER NOT NULL, --- symbol.id
    pc INTEGER, --- address in the module, from its start, the lowest of several; NULL for Python
    id INTEGER PRIMARY KEY) STRICT; --- number of the row
--- addresses of frames that were seen at several
CREATE TABLE frame_address(
    frame_id INTEGER NOT NULL, --- stack_frame.id
    pc INTEGER NOT NULL, --- address in the module, from its start; one of them is stack_frame.pc
    id INTEGER PRIMARY KEY) STRICT; --- number of the row
--- the tree as it is stored: read view stack_node
CREATE TABLE stack_node_row(
    frame_id INTEGER NOT NULL, --- stack_frame.id
    parent_lag INTEGER DEFAULT 1, --- id - parent_id; NULL: outermost frame
    id INTEGER PRIMARY KEY) STRICT; --- number of the row; smaller than those of its callees
--- call sites: stacks of allocations and frees, those that differ in a frame
CREATE TABLE callsite(
    node_id INTEGER, --- innermost frame: stack_node.id; NULL: no frames
    depth INTEGER NOT NULL, --- number of frames
    symbol_id INTEGER, --- symbol.id of the innermost frame that is no allocation function
    user_symbol_id INTEGER,
        --- symbol.id of the user's line: the innermost frame of the largest user_rank above 0; without one, and where
        --- it is NULL, symbol_id
    id INTEGER PRIMARY KEY) STRICT; --- number of the row

-- Derived while recording, in the order of seq; tests compare each with its definition over event/allocation.
-- process_id 0 = all processes together. A block counts as freed when its free was requested (active: completed). Only
-- total_stat has domain cupti.
--- [total] callsite_stat as it is stored: read that view
--- like: callsite_stat
CREATE TABLE callsite_stat_row(
    allocations INTEGER NOT NULL, --- [total->sum.allocations]
    bytes INTEGER NOT NULL, --- [total->sum.bytes]
    frees INTEGER NOT NULL DEFAULT 0, --- [total->sum.frees]
    lifetime_ns INTEGER NOT NULL DEFAULT 0, --- [total->sum.lifetime_ns]
    temporary INTEGER NOT NULL DEFAULT 0, --- [total->sum.temporary]
    process_id INTEGER DEFAULT 1, --- [owner if OWNER]
    peak_allocations INTEGER NOT NULL DEFAULT 0,
    peak_bytes INTEGER NOT NULL DEFAULT 0,
    live_allocations INTEGER NOT NULL DEFAULT 0, --- [total->sum.left_allocations]
    live_bytes INTEGER NOT NULL DEFAULT 0, --- [total->sum.left_bytes]
    shared_bytes INTEGER NOT NULL DEFAULT 0, --- [total->sum.shared_bytes]
    live_shared_bytes INTEGER NOT NULL DEFAULT 0, --- [total->sum.left_shared]
    peak_shared_bytes INTEGER NOT NULL DEFAULT 0, --- [total->peak_shared]
    id INTEGER PRIMARY KEY) STRICT; --- [?] (domain - 1) * 4294967296 + callsite_id
-- Small: a row for each function and domain. Made of callsite_stat and the stacks at the end (function_totals.c), and
-- tests compare it with them.
--- as function_total, as it is stored
--- like: callsite_stat
CREATE TABLE function_stat(
    symbol_id INTEGER NOT NULL, --- symbol.id: the smallest of those of the same function, file and module
    domain INTEGER NOT NULL, --- domain.code
    callsites INTEGER NOT NULL, --- call sites with the function anywhere in their stack
    allocations INTEGER NOT NULL, frees INTEGER NOT NULL, bytes INTEGER NOT NULL, live_allocations INTEGER NOT NULL,
    live_bytes INTEGER NOT NULL, peak_allocations INTEGER NOT NULL, peak_bytes INTEGER NOT NULL,
    temporary INTEGER NOT NULL, PRIMARY KEY(symbol_id, domain)) STRICT, WITHOUT ROWID;
-- Of call sites that several processes used, what each of them has; process_id 0: processes that had ended, together,
-- once there were a million rows of such.
--- what each process has of call sites that several used
--- like: callsite_stat
CREATE TABLE callsite_share(
    process_id INTEGER NOT NULL, --- process.id; 0: many processes that had ended, together
    domain INTEGER NOT NULL, callsite_id INTEGER NOT NULL, allocations INTEGER NOT NULL, frees INTEGER NOT NULL,
    bytes INTEGER NOT NULL, live_allocations INTEGER NOT NULL, live_bytes INTEGER NOT NULL,
    peak_allocations INTEGER NOT NULL, peak_bytes INTEGER NOT NULL, temporary INTEGER NOT NULL,
    lifetime_ns INTEGER NOT NULL, PRIMARY KEY(process_id, domain, callsite_id)) STRICT, WITHOUT ROWID;
--- as total and total_process, as it is stored
CREATE TABLE total_stat(
    process_id INTEGER NOT NULL, --- process.id; 0: all processes together
    domain INTEGER NOT NULL, --- domain.code
    device INTEGER NOT NULL,
    allocations INTEGER NOT NULL, --- number of allocations
    frees INTEGER NOT NULL, --- of those: freed
    bytes INTEGER NOT NULL, --- bytes of all allocations
    live_allocations INTEGER NOT NULL, --- those live at the moment of leak_moment: when main ended, else at the end
    live_bytes INTEGER NOT NULL, --- bytes of those
    peak_bytes INTEGER NOT NULL, --- the most bytes live at a time
    peak_allocations INTEGER NOT NULL, --- allocations live then
    peak_seq INTEGER, --- event after which that was so for the first time
    peak_ns INTEGER, --- when that was
    temporary INTEGER NOT NULL, --- allocations freed before their thread allocated again
    failed INTEGER NOT NULL, --- requests that failed
    PRIMARY KEY(process_id, domain, device)) STRICT, WITHOUT ROWID;
-- a row if there are both
--- the most of heap and mappings together, of all processes, for the first time
CREATE TABLE host_peak(
    bytes INTEGER NOT NULL, --- of both
    heap_bytes INTEGER NOT NULL, --- of them, of the heap
    mmap_bytes INTEGER NOT NULL, --- of them, of mappings
    seq INTEGER NOT NULL, --- event after which that was so
    ts_ns INTEGER NOT NULL) STRICT; --- when that was, ns since the trace began
--- as size_total and size_total_process, as it is stored
--- like: total_stat
CREATE TABLE size_stat(
    process_id INTEGER NOT NULL, domain INTEGER NOT NULL, device INTEGER NOT NULL,
    up_to_bytes INTEGER NOT NULL, --- sizes above half of this power of two, up to it
    allocations INTEGER NOT NULL, frees INTEGER NOT NULL, bytes INTEGER NOT NULL, live_allocations INTEGER NOT NULL,
    live_bytes INTEGER NOT NULL, temporary INTEGER NOT NULL,
    lifetime_ns INTEGER NOT NULL, --- lifetimes of the freed ones, added up
    PRIMARY KEY(process_id, domain, device, up_to_bytes)) STRICT, WITHOUT ROWID;
-- What of a call site was live after each tenth of its own allocations, the nearest marks in proportion; of those with
-- 64 allocations or more some of which were freed, devices together. Of stacks that became one call site only at the
-- end: what each had by the same event, its own marks in proportion.
--- what of a call site was live after each tenth of its own allocations; only of those of which some were freed
CREATE TABLE callsite_growth(
    callsite_id INTEGER NOT NULL, --- call site
    domain INTEGER NOT NULL, --- domain.code
    tenth INTEGER NOT NULL, --- 1 to 10
    live_allocations INTEGER NOT NULL, --- live then, in proportion between two marks
    live_bytes INTEGER NOT NULL, --- bytes of them
    PRIMARY KEY(callsite_id, domain, tenth)) STRICT, WITHOUT ROWID;
--- how long each process had been active by when, and what it had allocated: the time by which leaks are looked at
CREATE TABLE work(
    process_id INTEGER NOT NULL, --- row of process
    seq INTEGER NOT NULL, --- event by which that was so
    ts_ns INTEGER NOT NULL, --- its time, ns since the trace began
    active_ns INTEGER NOT NULL, --- from one allocation to the next, 200 us at most
    allocations INTEGER NOT NULL, --- made by then
    end_seq INTEGER NOT NULL, --- event up to which these are the rates
    end_ns INTEGER NOT NULL, --- its time
    rate REAL NOT NULL, --- active ns an event
    allocation_rate REAL NOT NULL, --- allocations an event
    PRIMARY KEY(process_id, seq)) STRICT, WITHOUT ROWID;
--- as timeline and timeline_process, as it is stored
CREATE TABLE sample(
    process_id INTEGER NOT NULL, --- process.id; 0: all processes together
    domain INTEGER NOT NULL, --- domain.code
    device INTEGER NOT NULL,
    seq INTEGER NOT NULL, --- event after which it was so
    ts_ns INTEGER NOT NULL,
    allocated INTEGER NOT NULL, --- bytes of allocations
    allocated_max INTEGER NOT NULL, --- the most bytes since the row before
    active INTEGER,
        --- of a caching allocator: bytes that are allocated, or freed but still waited for; NULL in other domains
    reserved INTEGER, --- of a caching allocator: bytes in segments; NULL in other domains
    requested INTEGER, --- of a caching allocator: bytes asked for, before rounding; NULL in other domains
    live INTEGER NOT NULL, --- number of allocations
    PRIMARY KEY(process_id, domain, device, seq)) STRICT, WITHOUT ROWID;

-- So that nobody has to look for them among all.
--- which events are calls of the CUDA API
CREATE TABLE device_event(
    seq INTEGER PRIMARY KEY,
    kind INTEGER NOT NULL) STRICT; --- event_kind.code
-- Without what CUPTI reports of the same calls. Of a free, calls, failed and bytes are those of its events, the time is
-- that of the dev_sync that follows it.
--- [call] as device_call, as it is stored, by stream
CREATE TABLE device_call_stat(
    process_id INTEGER NOT NULL, device INTEGER NOT NULL,
    stream INTEGER NOT NULL, --- number of the stream; 0: the default one
    cause INTEGER NOT NULL, --- event_cause.code: function of the CUDA API
    class INTEGER NOT NULL, --- 1 allocates, 2 frees, 3 waits for the device, 4 other
    calls INTEGER NOT NULL, --- number of calls
    failed INTEGER NOT NULL, --- of those: failed
    ns INTEGER NOT NULL, --- time in them
    max_ns INTEGER NOT NULL, --- time in the longest
    bytes INTEGER NOT NULL, --- bytes allocated or freed
    PRIMARY KEY(process_id, device, stream, cause)) STRICT, WITHOUT ROWID;
-- Memory by stream, of the domains that have devices; block: counts as freed when its free was requested.
--- [stream] as stream_total, as it is stored
--- like: total_stat
CREATE TABLE stream_stat(
    process_id INTEGER NOT NULL, --- process.id
    domain INTEGER NOT NULL, device INTEGER NOT NULL,
    stream INTEGER NOT NULL, --- number of the stream; 0: the default one
    allocations INTEGER NOT NULL, --- [stream->sum.allocations]
    frees INTEGER NOT NULL, --- [stream->sum.frees]
    bytes INTEGER NOT NULL, --- [stream->sum.bytes]
    live_bytes INTEGER NOT NULL, --- [stream->sum.left_bytes] bytes live at the moment of leak_moment
    peak_bytes INTEGER NOT NULL, PRIMARY KEY(process_id, domain, device, stream)) STRICT, WITHOUT ROWID;
--- [memory] what the CUDA driver said of a GPU as a whole
CREATE TABLE device_memory(
    seq INTEGER PRIMARY KEY, ts_ns INTEGER NOT NULL,
    process_id INTEGER NOT NULL, --- process.id of who asked
    device INTEGER NOT NULL,
    total_bytes INTEGER NOT NULL, --- memory of the GPU
    free_bytes INTEGER NOT NULL, --- of that: free
    live_bytes INTEGER NOT NULL) STRICT; --- live in domain device then, of all processes

--- which events are of rematerialization
CREATE TABLE remat_event(
    seq INTEGER PRIMARY KEY,
    kind INTEGER NOT NULL, --- as in event
    is_wasted INTEGER NOT NULL, --- of a remat: 1: within 16 runs of operators after the eviction
    score REAL) STRICT; --- by the heuristic; of those looked at the lowest goes; NULL: it had none
--- rematerialization: by operator, its runs, and what became of the storages that it made
CREATE TABLE operator_stat(
    process_id INTEGER NOT NULL,
    number INTEGER NOT NULL, --- pool of its events, which numbers its name in the process; 0: it had none
    name TEXT, --- of the operator; NULL: the trace does not say
    runs INTEGER NOT NULL, --- of the program
    run_ns INTEGER NOT NULL, --- their cost
    input_bytes INTEGER NOT NULL, --- of them
    output_bytes INTEGER NOT NULL, --- of them
    remats INTEGER NOT NULL, --- recomputations of a storage because it was needed
    collateral INTEGER NOT NULL, --- storages made again beside one that was needed
    remat_ns INTEGER NOT NULL, --- cost of the recomputations
    depth_max INTEGER NOT NULL, --- the most recomputations that waited for each other
    wasted INTEGER NOT NULL, --- storages made again within 16 runs of operators after their eviction
    PRIMARY KEY(process_id, number)) STRICT, WITHOUT ROWID;
--- evictions by operator that made the storage, and cause
CREATE TABLE eviction_stat(
    process_id INTEGER NOT NULL,
    operator INTEGER NOT NULL, --- as in operator_stat.number
    cause INTEGER NOT NULL, --- event_cause.code
    evictions INTEGER NOT NULL, --- number of them
    bytes INTEGER NOT NULL, --- of them
    PRIMARY KEY(process_id, operator, cause)) STRICT, WITHOUT ROWID;
-- A planner may give the number of a storage that it has forgotten to another: one of another operator or size has a
-- row of its own.
--- storages that were evicted, recomputed or pinned; read it as remat_storage
CREATE TABLE remat_storage_stat(
    id INTEGER PRIMARY KEY, --- number of the row
    process_id INTEGER NOT NULL,
    number INTEGER NOT NULL,
        --- of the storage in its planner, from 0 on: id of its events; given again when the planner has forgotten it
    operator INTEGER NOT NULL, --- as in operator_stat.number: it made the storage
    size INTEGER NOT NULL, --- bytes
    evictions INTEGER NOT NULL, --- of it
    remats INTEGER NOT NULL, --- because it was needed
    collateral INTEGER NOT NULL, --- beside one that was needed
    remat_ns INTEGER NOT NULL, --- cost of its recomputations
    wasted INTEGER NOT NULL, --- evictions that were followed by its recomputation within 16 runs of operators
    is_evicted INTEGER NOT NULL, --- 1: it was evicted last, not recomputed
    is_pinned INTEGER NOT NULL) STRICT; --- 1: pinned last, not unpinned
--- budgets, each from its event on
CREATE TABLE remat_budget(
    seq INTEGER PRIMARY KEY, --- event that set it
    ts_ns INTEGER NOT NULL, process_id INTEGER NOT NULL,
    budget INTEGER) STRICT; --- bytes; NULL: no limit
--- operators that did not get their memory; read it as remat_failure
CREATE TABLE remat_failure_stat(
    seq INTEGER PRIMARY KEY, --- event that said so
    ts_ns INTEGER NOT NULL, process_id INTEGER NOT NULL,
    op_id INTEGER NOT NULL, --- number of the operator
    operator INTEGER NOT NULL, --- as in operator_stat.number
    needed INTEGER NOT NULL, --- bytes that it needed
    budget INTEGER, --- in force then; NULL: none was said
    blocked INTEGER NOT NULL) STRICT; --- bytes that could not be evicted
--- what could not be evicted at a failure, by operator that made it; read it as remat_blocked
CREATE TABLE remat_blocked_stat(
    failure_seq INTEGER NOT NULL, --- row of remat_failure
    operator INTEGER NOT NULL, --- as in operator_stat.number
    cause INTEGER NOT NULL, --- event_cause.code
    storages INTEGER NOT NULL, --- number of them
    bytes INTEGER NOT NULL, --- of them
    PRIMARY KEY(failure_seq, operator, cause)) STRICT, WITHOUT ROWID;

--- figures on the recording's health
CREATE TABLE stats(
    name TEXT NOT NULL, --- what is counted
    idx INTEGER, --- of which process or kind; NULL: of all
    severity TEXT NOT NULL, --- info, error or data_loss
    source TEXT NOT NULL, --- what counted it
    value INTEGER NOT NULL) STRICT; --- how many
CREATE UNIQUE INDEX stats_once ON stats(name, idx, source); -- stored again, a figure replaces the one before
--- programs that ran without the recorder
CREATE TABLE unrecorded_program(
    path TEXT NOT NULL, --- of the program
    reason TEXT NOT NULL, --- why the recorder could not be loaded
    count INTEGER NOT NULL, --- how often it was started
    PRIMARY KEY(path, reason)) STRICT, WITHOUT ROWID;
--- the same moments by three clocks
CREATE TABLE clock_anchor(
    ticks INTEGER PRIMARY KEY, --- of the processor's counter
    mono_ns INTEGER NOT NULL, --- ns of CLOCK_MONOTONIC
    real_ns INTEGER NOT NULL) STRICT; --- ns since 1970
-- In the same transaction as its events. unfolded: with the `parts` of the next record.
--- [position] how far each ring was stored; empty once the trace is complete
CREATE TABLE ring_position(
    thread_id INTEGER PRIMARY KEY, process_id INTEGER NOT NULL,
    ring INTEGER NOT NULL, --- number of the ring in the process
    tail INTEGER NOT NULL, --- bytes read of the ring
    spill_tail INTEGER NOT NULL, --- bytes read of its spill file
    sequence INTEGER NOT NULL, --- of the last record read
    orphans INTEGER NOT NULL, --- records of signal handlers
    unreadable INTEGER NOT NULL, --- records taken and not stored
    unfolded INTEGER NOT NULL, --- events of its records beyond one each
    parts INTEGER NOT NULL, --- events of the next record that are stored already
    last_ticks INTEGER NOT NULL, --- clock of the last record
    last_ns INTEGER NOT NULL) STRICT; --- the same, ns since the trace began
--- where call sites were first seen; empty once the trace is complete
CREATE TABLE callsite_origin(
    callsite_id INTEGER PRIMARY KEY, process_id INTEGER NOT NULL,
    site INTEGER NOT NULL, --- their first number in that process
    count INTEGER NOT NULL) STRICT; --- how many in turn

--- what tables, views and columns mean; varve query DB --schema [NAME] shows it
--- *.process_id: process.id | *.pid: number of the process in the operating system, which may be given again
--- *.tid: number of the thread in the operating system | *.thread_id: thread.id
--- *.device: GPU: device.id; 0 or NULL where the domain has none | *.domain: whose memory: domain.name
--- *.seq: event.seq | *.ts_ns: when, ns since the trace began
--- *.callsite_id: call site: callsite.id, whose frames are in view frame; 0 or NULL: no stack
--- *.user_function: function of the user's line: the innermost frame that is no plumbing (allocators, containers,
---     interpreters); NULL: unresolved
--- *.user_file: source file of the user's line; NULL: unknown | *.user_line: line in it; NULL: unknown
--- *.user_module: program or library of the user's line; NULL for Python
--- *.user_is_python: 1: the user's line is Python
--- *.function: innermost function that is no allocation function; NULL: unresolved, only the module is known
--- *.file: source file of that function; NULL: unknown | *.line: line in it; NULL: unknown
--- *.module: program or library of that function; NULL for Python | *.is_python: 1: that function is Python
CREATE TABLE help(
    name TEXT NOT NULL, --- table or view
    column TEXT NOT NULL, --- its column; empty: the table or view as a whole
    meaning TEXT NOT NULL, --- in words, with units
    PRIMARY KEY(name, column)) STRICT, WITHOUT ROWID;
