-- SPDX-License-Identifier: Apache-2.0
-- A GPU run, made by hand: two ranks, each with a GPU that it calls 0. Rank 0 runs a caching allocator on segments of
-- cudaMalloc, and CUPTI reports its calls again, but for one that it missed; rank 1 uses stream-ordered allocations
-- and did
-- not get CUPTI. Two requests fail. The driver is asked for its memory three times. One event each millisecond.

INSERT INTO meta VALUES ('command', 'torchrun train.py'), ('host', 'golden'), ('start_real_ns', 1767225600000000000),
    ('complete', 1);
INSERT INTO domain(code, name, meaning) VALUES (1, 'heap', 'the malloc family'), (2, 'mmap',
    'mmap by the program itself'),
    (3, 'device', 'CUDA API: memory of a device'), (4, 'block', 'blocks of a caching allocator'),
    (5, 'pinned', 'CUDA API: memory of the host that devices reach'), (6, 'managed', 'CUDA API: memory that moves'),
    (7, 'cupti', 'what device is, as CUPTI reports it');
INSERT INTO process(id, pid, parent_pid, rank, executable, command_line, start_ns, end_ns, end_cause, exit_status)
    VALUES
    (1, 700, 699, 0, '/usr/bin/python3.11', 'python3 train.py', 0, 80000000, 'exit', 0),
    (2, 701, 699, 1, '/usr/bin/python3.11', 'python3 train.py', 0, 80000000, 'exit', 1);
INSERT INTO device(id, name, total_bytes, uuid) VALUES
    (0, 'NVIDIA H200', 150754820096, 'GPU-5fd4f087-86f3-7a43-b711-4771313afc50'),
    (1, 'NVIDIA H200', 150754820096, 'GPU-0b1e7a52-3c44-91d0-a1b2-f00dfeed0001');
INSERT INTO process_device(process_id, ordinal, device) VALUES (1, 0, 0), (2, 0, 1);
INSERT INTO stream(process_id, device, number, handle) VALUES (1, 0, 1, 94000000000000), (2, 1, 1, 95000000000000);
INSERT INTO symbol(id, function, file, line, module, is_python, is_inlined) VALUES
    (1, 'forward', 'model.py', 31, NULL, 1, 0), (2, 'train', 'train.py', 55, NULL, 1, 0),
    (3, 'load_table', '/src/solver/table.cu', 140, '/opt/solver/libsolver.so', 0, 0);
INSERT INTO stack_node(id, parent_id, symbol_id, pc) VALUES (1, NULL, 2, NULL), (2, 1, 1, NULL), (3, 1, 3, 4096);
INSERT INTO callsite(id, node_id, depth, symbol_id) VALUES (1, 2, 2, 1), (2, 3, 2, 3);

INSERT INTO allocation(id, domain, pid, tid, device, pool, stream, addr, size, requested, alloc_seq, free_requested_seq,
    free_completed_seq, alloc_ns, free_ns, callsite_id, source, process_id, temporary, memory_kind)
    WITH recipe(id, domain, process_id, device, pool, stream, addr, size, requested, alloc_seq, free_seq, site,
        source, kind) AS (
        VALUES
        -- segments and a table of rank 0; CUPTI missed the table
        (1, 3, 1, 0, 12289, 0, 140000000000000, 20971520, 20971520, 11, NULL, 1, 33, 3),
        (2, 7, 1, 0, 12289, 0, 140000000000000, 20971520, 20971520, 12, NULL, 1, 33, 3),
        (3, 3, 1, 0, 12289, 0, 140000100000000, 20971520, 20971520, 20, 50, 1, 33, 3),
        (4, 7, 1, 0, 12289, 0, 140000100000000, 20971520, 20971520, 21, 51, 1, 33, 3),
        (5, 3, 1, 0, 12289, 0, 140000200000000, 1073741824, 1073741824, 24, NULL, 2, 55, 3),
        -- blocks in the segments
        (6, 4, 1, 0, 0, 0, 140000000000000, 12582912, 12582400, 15, 30, 1, 2, NULL),
        (7, 4, 1, 0, 0, 0, 140000000000000 + 12582912, 4194304, 4194304, 17, NULL, 1, 1, NULL),
        (8, 4, 1, 0, 0, 1, 140000100000000, 16777216, 16777216, 23, 40, 1, 2, NULL),
        -- rank 1
        (9, 3, 2, 1, 12288, 1, 150000000000000, 536870912, 536870912, 31, 60, 2, 43, 3),
        (10, 3, 2, 1, 12288, 1, 150001000000000, 268435456, 268435456, 33, NULL, 2, 43, 3),
        (11, 6, 2, 1, 20481, 0, 160000000000000, 67108864, 67108864, 35, NULL, 2, 34, 5),
        (12, 5, 1, 0, 8193, 0, 170000000000000, 8388608, 8388608, 36, 63, 2, 41, 2))
    SELECT r.id, domain, p.pid, p.pid, device, pool & 4095, stream, addr, size, requested, alloc_seq, free_seq,
        free_seq,
        alloc_seq * 1000000, free_seq * 1000000, site, source, process_id, 0, kind
    FROM recipe r JOIN process p ON p.id = r.process_id;

-- seq, process, device, kind, stream, pool, addr, size, requested, arg, cause, callsite, flags
CREATE TEMP TABLE script(seq INTEGER PRIMARY KEY, process_id, device, kind, stream, pool, id, addr, size, requested,
    arg, cause,
    site, flags);
INSERT INTO script
    SELECT alloc_seq, process_id, device, CASE WHEN domain = 4 THEN 1 WHEN source = 43 THEN 39 ELSE 37 END, stream,
        coalesce(memory_kind, 0) << 12 | pool, id, addr,
        size, CASE WHEN domain = 4 THEN requested ELSE 100000 + 10000 * id END, domain = 4, source, callsite_id,
        CASE domain WHEN 7 THEN 8 ELSE 0 END FROM allocation
    UNION ALL
    SELECT free_completed_seq, process_id, device, CASE WHEN domain = 4 THEN 3 WHEN source = 43 THEN 40 ELSE 38 END,
        stream,
        coalesce(memory_kind, 0) << 12 | pool, id, addr, size, CASE WHEN domain = 4 THEN requested ELSE 0 END, domain
            = 4,
        CASE WHEN domain = 4 THEN 0 WHEN source = 43 THEN 50 WHEN domain = 5 THEN 48 ELSE 45 END, callsite_id,
        CASE domain WHEN 7 THEN 8 ELSE 0 END FROM allocation WHERE free_ns IS NOT NULL;
INSERT INTO script VALUES
    (1, 1, 0, 58, 0, 0, NULL, 1, 150754820096, 0, 2, 0, 0, 0), (2, 2, 1, 58, 0, 0, NULL, 3, 150754820096, 0, 4, 0, 0,
        0),
    (3, 1, 0, 60, 1, 0, NULL, 94000000000000, 0, 0, 0, 0, 0, 0), (4, 2, 1, 60, 1, 0, NULL, 95000000000000, 0, 0, 0, 0,
        0, 0),
    (5, 1, 0, 63, 0, 0, NULL, 0, 0, 0, 130001, 95, 0, 0), (6, 2, 0, 63, 0, 0, NULL, 0, 0, 0, 39, 96, 0, 0),
    (7, 1, 0, 57, 0, 0, NULL, 0, 150754820096, 150205366272, 0, 93, 0, 0),
    (13, 1, 0, 6, 0, 0, 1, 140000000000000, 20971520, 20971520, 1, 0, 0, 0),
    (14, 1, 0, 4, 0, 0, 1, 140000000000000, 12582912, 8388608, 1, 0, 0, 0),
    (16, 1, 0, 4, 0, 0, 1, 140000000000000 + 12582912, 4194304, 4194304, 1, 0, 0, 0),
    (18, 1, 0, 56, 0, 0, NULL, 0, 0, 3000000, 0, 53, 1, 0), (19, 1, 0, 56, 0, 0, NULL, 0, 0, 5000000, 0, 53, 1, 0),
    (22, 1, 0, 6, 1, 0, 2, 140000100000000, 20971520, 16777216, 2, 0, 0, 0),
    (25, 1, 0, 57, 0, 0, NULL, 0, 150754820096, 149131624448, 0, 93, 0, 0),
    (27, 1, 0, 37, 0, 12289, NULL, 0, 0, 900, 1, 55, 2, 1),
    (29, 1, 0, 2, 0, 0, 6, 140000000000000, 12582912, 12582400, 1, 0, 1, 0),
    (37, 2, 1, 47, 0, 12289, NULL, 0, 214748364800, 2500000, 2, 33, 2, 1),
    (39, 1, 0, 2, 1, 0, 8, 140000100000000, 16777216, 16777216, 2, 0, 1, 0),
    (49, 1, 0, 7, 1, 0, 2, 140000100000000, 20971520, 0, 2, 7, 0, 0),
    (52, 1, 0, 56, 0, 12289, NULL, 0, 0, 600000, 0, 45, 1, 0), (61, 2, 1, 56, 1, 0, NULL, 0, 0, 40000, 0, 50, 2, 0),
    (64, 1, 0, 56, 0, 0, NULL, 0, 0, 200000, 0, 48, 2, 0), (70, 2, 1, 57, 0, 0, NULL, 0, 150754820096, 149913862144,
        0, 93, 0, 0),
    (75, 1, 0, 63, 0, 0, NULL, 0, 0, 0, 3, 99, 0, 0), (76, 1, 0, 63, 0, 0, NULL, 0, 0, 0, 0, 97, 0, 0);
INSERT INTO thread(id, process_id, ring, pid, tid, start_ns, end_ns, emitted, stored)
    SELECT process_id, process_id, 1, 699 + process_id, 699 + process_id, min(seq) * 1000000, max(seq) * 1000000,
        count(*),
        count(*) FROM script GROUP BY process_id;
INSERT INTO event(seq, ts_ns, pid, tid, device, dev_seq, kind, stream, pool, id, addr, size, requested, arg, cause,
    callsite_id,
    thread_id, flags)
    SELECT seq, seq * 1000000, 699 + process_id, 699 + process_id, device, 0, kind, stream, pool, id, addr, size,
        requested, arg,
        cause, site, process_id, flags FROM script;
DROP TABLE script;

-- The derived tables, each by its definition. Pinned memory is of no device.
INSERT INTO sample(process_id, domain, device, seq, ts_ns, allocated, allocated_max, active, reserved, requested, live)
    WITH change AS (
        SELECT who.id AS process_id, a.domain, CASE a.domain WHEN 5 THEN 0 ELSE a.device END AS device, e.seq, e.ts_ns,
            CASE WHEN e.seq = a.alloc_seq THEN 1 ELSE -1 END AS sign, a.size
        FROM allocation a JOIN event e ON e.seq IN (a.alloc_seq, a.free_completed_seq)
            JOIN (SELECT 0 AS id UNION ALL SELECT 1 UNION ALL SELECT 2) who ON who.id IN (0, a.process_id)),
    running AS (
        SELECT *, sum(sign * size) OVER (PARTITION BY process_id, domain, device ORDER BY seq) AS allocated,
            sum(sign) OVER (PARTITION BY process_id, domain, device ORDER BY seq) AS live FROM change)
    SELECT r.process_id, domain, device, seq, ts_ns, allocated, allocated, CASE domain WHEN 4 THEN allocated END,
        CASE domain WHEN 4 THEN (SELECT sum(CASE kind WHEN 6 THEN size ELSE -size END) FROM event s WHERE s.kind IN
            (6, 7)
            AND s.device = r.device AND s.seq <= r.seq) END, NULL, live FROM running r;
-- two segments of 20 MiB, in each 4 MiB that no block has had
INSERT INTO ladder_peak_stat(process_id, device, seq, ts_ns, live, rounding, pending, pools, quantum, cached, unsplit,
    reserved)
    VALUES (1, 0, 23, 23000000, 33553920, 512, 0, 0, 8388608, 0, 0, 41943040);
INSERT INTO total_stat(process_id, domain, device, allocations, frees, bytes, live_allocations, live_bytes, peak_bytes,
    peak_allocations, peak_seq, peak_ns, temporary, failed)
    WITH both AS (
        SELECT who.id AS whose, CASE a.domain WHEN 5 THEN 0 ELSE a.device END AS slot, a.* FROM allocation a
            JOIN (SELECT 0 AS id UNION ALL SELECT 1 UNION ALL SELECT 2) who ON who.id IN (0, a.process_id)),
    top AS (
        SELECT process_id, domain, device, seq, ts_ns, allocated, live,
            row_number() OVER (PARTITION BY process_id, domain, device ORDER BY allocated DESC, seq) AS place FROM
                sample)
    SELECT b.whose, b.domain, b.slot, count(*), count(b.free_ns), sum(b.size), count(*) - count(b.free_ns),
        coalesce(sum(b.size) FILTER (WHERE b.free_ns IS NULL), 0), t.allocated, t.live, t.seq, t.ts_ns, 0, CASE
            b.domain WHEN 3 THEN 1 ELSE 0 END
    FROM both b JOIN top t ON t.process_id = b.whose AND t.domain = b.domain AND t.device = b.slot AND t.place = 1
    GROUP BY b.whose, b.domain, b.slot;
INSERT INTO size_stat
    WITH RECURSIVE class(size) AS (SELECT 1 UNION ALL SELECT size * 2 FROM class WHERE size < 1 << 40)
    SELECT p.id, a.domain, coalesce(a.device, 0), (SELECT min(c.size) FROM class c WHERE c.size >= a.size), count(*),
        count(a.free_ns), sum(a.size), sum(a.free_ns IS NULL), sum(iif(a.free_ns IS NULL, a.size, 0)), sum(a.temporary),
        sum(coalesce(a.free_ns - a.alloc_ns, 0))
    FROM allocation a JOIN (SELECT 0 AS id UNION SELECT process_id FROM allocation) p ON p.id IN (0, a.process_id)
    GROUP BY 1, 2, 3, 4;
INSERT INTO callsite_stat_row(id, allocations, frees, bytes, live_allocations, live_bytes,
    peak_allocations,
    peak_bytes, temporary, lifetime_ns)
    SELECT ((a.domain - 1) << 32) + a.callsite_id, count(*), count(a.free_ns), sum(a.size), count(*) - count(a.free_ns),
        coalesce(sum(a.size) FILTER (WHERE a.free_ns IS NULL), 0),
        count(*) FILTER (WHERE a.alloc_seq <= t.peak_seq AND coalesce(a.free_completed_seq, 1000) > t.peak_seq),
        coalesce(sum(a.size) FILTER (WHERE a.alloc_seq <= t.peak_seq AND coalesce(a.free_completed_seq, 1000) >
            t.peak_seq), 0), 0,
        coalesce(sum(a.free_ns - a.alloc_ns), 0)
    FROM allocation a JOIN total_stat t ON t.process_id = 0 AND t.domain = a.domain
        AND t.device = CASE a.domain WHEN 5 THEN 0 ELSE a.device END
    GROUP BY a.callsite_id, a.domain;
INSERT INTO stream_stat(process_id, domain, device, stream, allocations, frees, bytes, live_bytes, peak_bytes)
    WITH change AS (
        SELECT a.process_id, a.domain, a.device, a.stream, CASE WHEN e.seq = a.alloc_seq THEN a.size ELSE -a.size END
            AS delta, e.seq
        FROM allocation a JOIN event e ON e.seq IN (a.alloc_seq, a.free_completed_seq)),
    running AS (
        SELECT *, sum(delta) OVER (PARTITION BY process_id, domain, device, stream ORDER BY seq) AS live FROM change)
    SELECT process_id, domain, device, stream, count(*) FILTER (WHERE delta > 0), count(*) FILTER (WHERE delta < 0),
        sum(delta) FILTER (WHERE delta > 0), sum(delta), max(live) FROM running GROUP BY process_id, domain, device,
            stream;
-- Of CUPTI's domain there are totals only.
DELETE FROM sample WHERE domain = 7;
DELETE FROM size_stat WHERE domain = 7;
DELETE FROM callsite_stat_row WHERE (id >> 32) + 1 = 7;
DELETE FROM stream_stat WHERE domain = 7;
INSERT INTO device_event(seq, kind) SELECT seq, kind FROM event WHERE kind IN (57, 58, 60, 63) OR kind BETWEEN 37 AND
    56;
INSERT INTO device_memory(seq, ts_ns, process_id, device, total_bytes, free_bytes, live_bytes)
    SELECT e.seq, e.ts_ns, e.thread_id, e.device, e.size, e.requested, coalesce((SELECT s.allocated FROM sample s
        WHERE s.process_id = 0 AND s.domain = 3 AND s.device = e.device AND s.seq < e.seq ORDER BY s.seq DESC LIMIT
            1), 0)
    FROM event e WHERE e.kind = 57;
INSERT INTO device_call_stat(process_id, device, stream, cause, class, calls, failed, ns, max_ns, bytes)
    SELECT thread_id, device, stream, cause, CASE WHEN cause IN (45, 48, 50) THEN 2 WHEN kind = 56 THEN 3 ELSE 1 END,
        count(*) FILTER (WHERE kind <> 56 OR cause NOT IN (45, 48, 50)), count(*) FILTER (WHERE flags & 1),
            sum(requested), max(requested),
        coalesce(sum(size) FILTER (WHERE flags & 1 = 0), 0)
    FROM event WHERE kind IN (37, 38, 39, 40, 47, 56) AND flags & 8 = 0 GROUP BY thread_id, device, stream, cause;
INSERT INTO stats(name, idx, severity, source, value) VALUES ('cupti_dropped', 1, 'info', 'cupti', 3);
