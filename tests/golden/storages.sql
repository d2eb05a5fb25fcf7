-- SPDX-License-Identifier: Apache-2.0
-- Storages, made by hand: process 600 exited, and left a cycle, a large base with a small view, and one that nobody
-- used; process
-- 601 was killed amid a loop that leaks, with a cache in use.

INSERT INTO meta VALUES ('command', 'python3 experiment.py'), ('host', 'golden'), ('complete', 1);
INSERT INTO domain(code, name, meaning) VALUES (1, 'heap', 'the malloc family'), (4, 'block',
    'blocks of a caching allocator');
INSERT INTO element_type VALUES (1, 'f32', 4), (8, 'u8', 1);
INSERT INTO process(id, pid, executable, start_ns, end_ns, end_cause, exit_status) VALUES
    (1, 600, 'python3', 0, 90000000, 'exit', 0), (2, 601, 'python3', 1000000, 80000000, 'signal', 9);
INSERT INTO thread(id, process_id, ring, pid, tid, emitted, stored) VALUES (1, 1, 0, 600, 600, 30, 30), (2, 2, 0, 601,
    602, 40, 40);
INSERT INTO symbol(id, function, file, line, module, is_python, is_inlined) VALUES (1, 'main', 'experiment.py', 3,
    NULL, 1, 0),
    (2, 'make_pair', 'experiment.py', 7, NULL, 1, 0), (3, 'load', 'data.py', 12, NULL, 1, 0),
    (4, 'step', 'train.py', 40, NULL, 1, 0), (5, 'varve_storage_empty', 'create.c', 60, '/lib/libvarve.so', 0, 0);
INSERT INTO stack_node(id, parent_id, symbol_id, pc) VALUES (1, NULL, 1, NULL), (2, 1, 2, NULL), (3, 1, 3, NULL), (4,
    1, 4, NULL),
    (5, 2, 5, 64), (6, 3, 5, 72), (7, 4, 5, 80);
INSERT INTO callsite(id, node_id, depth, symbol_id) VALUES (1, 5, 3, 2), (2, 6, 3, 3), (3, 7, 3, 4), (4, 1, 1, 1);
INSERT INTO segment(id, device, pool, stream, addr, size, alloc_seq, alloc_ns, process_id, number) VALUES
    (1, 0, 0, 0, 1048576, 2097152, 1, 1000, 1, 1);
INSERT INTO allocation(id, domain, pid, tid, device, pool, stream, segment_id, addr, size, requested, alloc_seq,
    alloc_ns,
    callsite_id, process_id, temporary) VALUES (1, 4, 600, 600, 0, 0, 0, 1, 1048576, 1048576, 1048576, 2, 2000, 0, 1,
        0);

INSERT INTO storage(id, number, kind, dtype, addr, size, elements, callsite_id, thread_id, process_id, pid, tid,
    create_seq,
    create_ns, destroy_seq, destroy_ns, device, allocation_id, base_id, last_use_ns, writes, reads, leak_seq,
        leak_cause,
    leak_references) VALUES
    (1, 1, 1, 1, 1048576, 1048576, 262144, 2, 1, 1, 600, 600, 3, 3000, NULL, NULL, 0, 1, NULL, 5000, 1, 0, NULL, NULL,
        NULL),
    (2, 2, 2, 1, 1048576, 4096, 1024, 4, 1, 1, 600, 600, 4, 4000, NULL, NULL, 0, 1, 1, NULL, 0, 0, NULL, NULL, NULL),
    (3, 3, 1, 8, 65536, 300, 300, 1, 1, 1, 600, 600, 5, 6000, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 9, 106, 1),
    (4, 4, 1, 8, 66560, 300, 300, 1, 1, 1, 600, 600, 6, 7000, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 10, 106, 1),
    (5, 5, 1, 8, 67584, 64, 64, 4, 1, 1, 600, 600, 7, 8000, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, NULL, NULL, NULL),
    (6, 6, 3, 8, 68608, 128, 128, 4, 1, 1, 600, 600, 8, 9000, 11, 12000, NULL, NULL, NULL, NULL, 0, 0, NULL, NULL,
        NULL);
INSERT INTO mark(id, name, pid, tid, begin_seq, end_seq, begin_ns, end_ns, process_id)
    SELECT value, 'step', 601, 602, 100 + 10 * value, 109 + 10 * value, 1000000 * value, 1000000 * value + 900000, 2
    FROM (WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < 10) SELECT value FROM n);
INSERT INTO storage(id, number, kind, dtype, addr, size, elements, callsite_id, thread_id, process_id, pid, tid,
    create_seq, create_ns)
    SELECT 10 + value, value, 1, 1, 131072 + 8192 * value, 4096, 1024, 3, 2, 2, 601, 602, 105 + 10 * value, 1000000 *
        value + 1000
    FROM (WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < 9) SELECT value FROM n);
INSERT INTO storage(id, number, kind, dtype, addr, size, elements, callsite_id, thread_id, process_id, pid, tid,
    create_seq, create_ns)
    VALUES (30, 30, 1, 1, 8388608, 65536, 16384, 2, 2, 2, 601, 602, 50, 500000);
