-- SPDX-License-Identifier: Apache-2.0
-- A small trace, made by hand: two processes, three threads, heap and mmap, a C, a C++, a Python and an unnamed
-- call site, one without a stack. Allocations are the source; events and derived tables follow from them, each by
-- its definition, so that the figures agree. One event each millisecond.

INSERT INTO meta VALUES ('command', 'python3 train.py --epochs 2'), ('host', 'golden'), ('clock', 'tsc'),
    ('start_real_ns', 1767225600000000000), ('stacks', 'all'), ('overflow', 'spill'), ('complete', 1);
INSERT INTO domain(code, name, meaning) VALUES (1, 'heap', 'the malloc family'), (2, 'mmap',
    'mmap by the program itself');

INSERT INTO process(id, pid, parent_pid, parent_id, rank, executable, command_line, start_ns, end_ns,
    end_cause, exit_status, exec_path) VALUES
    (1, 4000, 3999, NULL, NULL, '/usr/bin/python3.11', 'python3 train.py --epochs 2', 0, 300000000, 'exit', 0, NULL),
    (2, 4001, 4000, 1, NULL, '/usr/bin/python3.11', 'python3 worker', 100000000, 290000000, 'signal', 9, NULL);
INSERT INTO module(id, path, build_id) VALUES (1, '/opt/app/lib/libparse.so.2', 'aa01'), (2,
    '/opt/app/lib/libmystery.so', 'aa02');
INSERT INTO symbol(id, function, file, line, module, is_python, is_inlined) VALUES
    (1, 'operator new(unsigned long)', NULL, NULL, '/usr/lib/libstdc++.so.6', 0, 0),
    (2, 'parse_line', '/src/app/parse/line.c', 41, '/opt/app/lib/libparse.so.2', 0, 0),
    (3, 'parse_file', '/src/app/parse/file.c', 120, '/opt/app/lib/libparse.so.2', 0, 1),
    (4, 'main', '/src/app/main.c', 12, '/opt/app/bin/app', 0, 0),
    (5, '__libc_start_call_main', NULL, NULL, '/lib/libc.so.6', 0, 0),
    (6, '_start', NULL, NULL, '/opt/app/bin/app', 0, 0),
    (7, 'std::vector<std::pair<std::string, unsigned long>, std::allocator<std::pair<std::string, unsigned long> > >'
        || '::_M_realloc_insert<std::pair<std::string, unsigned long> >(std::pair<std::string, unsigned long>&&)',
        '/usr/include/c++/12/bits/vector.tcc', 440, '/opt/app/lib/libparse.so.2', 0, 0),
    (8, 'load_batch', '/srv/app/very/long/path/of/a/package/with/many/folders/data/loader/batches.py', 10, NULL, 1, 0),
    (9, 'train', 'train.py', 55, NULL, 1, 0),
    (10, '<module>', 'train.py', 80, NULL, 1, 0),
    (11, NULL, NULL, NULL, '/opt/app/lib/libmystery.so', 0, 0),
    (12, 'map_weights', 'weights.c', 7, '/opt/app/bin/app', 0, 0);
INSERT INTO stack_node(id, parent_id, symbol_id, pc) VALUES
    (1, NULL, 6, 300), (2, 1, 5, 200), (3, 2, 4, 100), (4, 3, 3, 8200), (5, 4, 2, 8192), (6, 5, 1, 4096),
    (7, 1, 4, 110), (8, 7, 7, 9000), (9, 8, 1, 4096),
    (10, NULL, 10, NULL), (11, 10, 9, NULL), (12, 11, 9, NULL), (13, 12, 9, NULL), (14, 13, 9, NULL), (15, 14, 9, NULL),
    (16, 15, 9, NULL), (17, 16, 8, NULL),
    (18, NULL, 11, 66051), (19, NULL, 4, 120), (20, 19, 12, 400);
INSERT INTO callsite(id, node_id, depth, symbol_id) VALUES
    (1, 6, 6, 2), (2, 9, 4, 7), (3, 17, 8, 8), (4, 18, 1, 11), (5, 20, 2, 12);

-- site, domain, process, pid, tid, size, first alloc_seq, step, count, first free_seq (NULL: never), freed, temporary
CREATE TEMP TABLE recipe(site, domain, process_id, pid, tid, size, grow, seq, step, n, free_seq, freed, temporary);
INSERT INTO recipe VALUES
    (1, 1, 1, 4000, 4000, 64, 1, 1, 2, 100, 2, 100, 1),
    (3, 1, 1, 4000, 4002, 1048576, 0, 201, 1, 20, 241, 15, 0),
    (2, 1, 2, 4001, 4001, 4096, 4096, 221, 1, 10, 256, 8, 0),
    (4, 1, 1, 4000, 4000, 24, 0, 231, 1, 3, NULL, 0, 0),
    (NULL, 1, 1, 4000, 4000, 100, 0, 234, 1, 3, 270, 3, 0),
    (5, 2, 1, 4000, 4000, 67108864, 0, 237, 1, 1, 280, 1, 0),
    (5, 2, 1, 4000, 4000, 2097152, 0, 238, 1, 1, NULL, 0, 0);
INSERT INTO allocation(id, domain, pid, tid, device, pool, stream, segment_id, addr, size, requested,
    alloc_seq, free_requested_seq, free_completed_seq, alloc_ns, free_ns, callsite_id, source, process_id,
    temporary)
    WITH RECURSIVE step(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM step WHERE i < 99)
    SELECT row_number() OVER (ORDER BY r.seq + i * r.step), r.domain, r.pid, r.tid, NULL, NULL, NULL, NULL,
        16777216 + (r.seq + i * r.step) * 4096, r.size + i * r.grow, r.size + i * r.grow, r.seq + i * r.step,
        CASE WHEN i < r.freed THEN r.free_seq + i * r.step END, CASE WHEN i < r.freed THEN r.free_seq + i * r.step END,
        (r.seq + i * r.step) * 1000000, CASE WHEN i < r.freed THEN (r.free_seq + i * r.step) * 1000000 END, r.site,
        CASE r.domain WHEN 1 THEN 16 ELSE 26 END, r.process_id, r.temporary
    FROM recipe r JOIN step ON i < r.n;
DROP TABLE recipe;

INSERT INTO event(seq, ts_ns, pid, tid, kind, id, addr, size, requested, arg, cause, callsite_id, thread_id, flags)
    SELECT alloc_seq, alloc_ns, pid, tid, CASE domain WHEN 1 THEN 32 ELSE 35 END, id, addr, size, size, 0, source,
        callsite_id, CASE tid WHEN 4000 THEN 1 WHEN 4001 THEN 2 ELSE 3 END, 0 FROM allocation
    UNION ALL
    SELECT free_completed_seq, free_ns, pid, tid, CASE domain WHEN 1 THEN 33 ELSE 36 END, id, addr, size, NULL, NULL,
        CASE domain WHEN 1 THEN 25 ELSE 27 END, callsite_id,
        CASE tid WHEN 4000 THEN 1 WHEN 4001 THEN 2 ELSE 3 END, 0 FROM allocation WHERE free_ns IS NOT NULL;
INSERT INTO event(seq, ts_ns, pid, tid, kind, cause, thread_id, flags)
    VALUES (300, 300000000, 4000, 4000, 50, 0, 1, 0);
INSERT INTO thread(id, process_id, ring, pid, tid, name, start_ns, end_ns, emitted, stored)
    SELECT thread_id, CASE pid WHEN 4000 THEN 1 ELSE 2 END, 1, pid, tid, CASE tid WHEN 4002 THEN 'loader' END,
        min(ts_ns), max(ts_ns), count(*), count(*) FROM event GROUP BY thread_id, pid, tid;

INSERT INTO sample(process_id, domain, device, seq, ts_ns, allocated, allocated_max, active, reserved,
    requested, live)
    WITH change AS (
        SELECT 0 AS process_id, a.domain, e.seq, e.ts_ns, CASE WHEN e.seq = a.alloc_seq THEN 1 ELSE -1 END AS sign,
            a.size
        FROM event e JOIN allocation a ON a.id = e.id
        UNION ALL
        SELECT a.process_id, a.domain, e.seq, e.ts_ns, CASE WHEN e.seq = a.alloc_seq THEN 1 ELSE -1 END, a.size
        FROM event e JOIN allocation a ON a.id = e.id),
    running AS (
        SELECT *, sum(sign * size) OVER (PARTITION BY process_id, domain ORDER BY seq) AS allocated,
            sum(sign) OVER (PARTITION BY process_id, domain ORDER BY seq) AS live FROM change)
    SELECT process_id, domain, 0, seq, ts_ns, allocated, allocated, NULL, NULL, NULL, live FROM running;
INSERT INTO total_stat(process_id, domain, device, allocations, frees, bytes, live_allocations, live_bytes,
    peak_bytes, peak_allocations, peak_seq, peak_ns, temporary, failed)
    WITH both AS (SELECT 0 AS whose, * FROM allocation UNION ALL SELECT process_id AS whose, * FROM allocation),
    top AS (
        SELECT process_id, domain, seq, ts_ns, allocated, live,
            row_number() OVER (PARTITION BY process_id, domain ORDER BY allocated DESC, seq) AS place FROM sample)
    SELECT b.whose, b.domain, 0, count(*), count(b.free_ns), sum(b.size), count(*) - count(b.free_ns),
        sum(b.size) FILTER (WHERE b.free_ns IS NULL), t.allocated, t.live, t.seq, t.ts_ns, sum(b.temporary),
        CASE b.domain WHEN 1 THEN 2 ELSE 0 END
    FROM both b JOIN top t ON t.process_id = b.whose AND t.domain = b.domain AND t.place = 1
    GROUP BY b.whose, b.domain;
UPDATE total_stat SET live_bytes = 0 WHERE live_bytes IS NULL;
INSERT INTO size_stat
    WITH RECURSIVE class(size) AS (SELECT 1 UNION ALL SELECT size * 2 FROM class WHERE size < 1 << 40)
    SELECT p.id, a.domain, coalesce(a.device, 0), (SELECT min(c.size) FROM class c WHERE c.size >= a.size), count(*),
        count(a.free_ns), sum(a.size), sum(a.free_ns IS NULL), sum(iif(a.free_ns IS NULL, a.size, 0)), sum(a.temporary),
        sum(coalesce(a.free_ns - a.alloc_ns, 0))
    FROM allocation a JOIN (SELECT 0 AS id UNION SELECT process_id FROM allocation) p ON p.id IN (0, a.process_id)
    GROUP BY 1, 2, 3, 4;
INSERT INTO callsite_stat_row(id, allocations, frees, bytes, live_allocations, live_bytes,
    peak_allocations, peak_bytes, temporary, lifetime_ns)
    SELECT ((a.domain - 1) << 32) + coalesce(a.callsite_id, 0), count(*), count(a.free_ns), sum(a.size),
        count(*) - count(a.free_ns),
        coalesce(sum(a.size) FILTER (WHERE a.free_ns IS NULL), 0),
        count(*) FILTER (WHERE a.alloc_seq <= t.peak_seq AND (a.free_ns IS NULL OR a.free_completed_seq > t.peak_seq)),
        coalesce(sum(a.size) FILTER (WHERE a.alloc_seq <= t.peak_seq AND
            (a.free_ns IS NULL OR a.free_completed_seq > t.peak_seq)), 0),
        sum(a.temporary), coalesce(sum(a.free_ns - a.alloc_ns), 0)
    FROM allocation a JOIN total_stat t ON t.process_id = 0 AND t.domain = a.domain
    GROUP BY coalesce(a.callsite_id, 0), a.domain;
-- No call site of these is used by both processes.
UPDATE callsite_stat_row SET process_id = (SELECT a.process_id FROM allocation a
    WHERE ((a.domain - 1) << 32) + coalesce(a.callsite_id, 0) = callsite_stat_row.id LIMIT 1);
INSERT INTO stats(name, idx, severity, source, value) VALUES ('spilled', 1, 'info', 'ring', 0);
