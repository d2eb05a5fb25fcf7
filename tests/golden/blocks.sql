-- SPDX-License-Identifier: Apache-2.0
-- Caching allocators, made by hand: device 0 with an ordinary segment that is cut, merged and has a pending block, a
-- small one that goes, an expandable one with a gap, a request that fails after two stages, and one that fails
-- because of the blocks beside a free one; device 1 of another process begins late, so that its blocks lie in segments
-- that no event names. Only events, and what the two commands read: no keyframes, one segment, of a MemPool.

INSERT INTO meta VALUES ('command', 'python3 train.py'), ('complete', 1);
INSERT INTO process(id, pid, executable, start_ns, end_ns) VALUES (1, 500, 'python3', 0, 30000000), (2, 501,
    'python3', 0, 30000000);
INSERT INTO thread(id, process_id, ring, pid, tid) VALUES (1, 1, 0, 500, 500), (2, 2, 0, 501, 501), (3, 1, 0, 500, 510);
INSERT INTO stream VALUES (1, 0, 0, 0), (1, 0, 1, 94000000000000);
INSERT INTO pool VALUES (1, 0, 4, 0, 7, 0);

CREATE TEMP TABLE script(seq INTEGER PRIMARY KEY, thread_id, device, kind, stream, pool, id, addr, size, requested,
    arg, cause);
INSERT INTO script VALUES
    (1, 1, 0, 6, 0, 0, 1, 1073741824, 20971520, 20971520, 1, 0),
    (2, 1, 0, 4, 0, 0, 1, 1073741824, 8388608, 12582912, 1, 0),
    (3, 1, 0, 1, 0, 0, 1, 1073741824, 8388608, 8388000, 1, 2),
    (4, 1, 0, 4, 0, 0, 1, 1082130432, 4194304, 8388608, 1, 0),
    (5, 1, 0, 1, 0, 0, 2, 1082130432, 4194304, 4194304, 1, 1),
    (6, 1, 0, 6, 1, 1, 2, 1140850688, 2097152, 2097152, 2, 0),
    (7, 1, 0, 4, 1, 1, 2, 1140850688, 1024, 2096128, 2, 0),
    (8, 1, 0, 1, 1, 1, 3, 1140850688, 1024, 600, 2, 2),
    (9, 1, 0, 10, 0, 0, 2, 1082130432, 4194304, NULL, 1, 0),
    (10, 1, 0, 2, 0, 0, 2, 1082130432, 4194304, 4194304, 1, 0),
    (11, 1, 0, 2, 1, 1, 3, 1140850688, 1024, 600, 2, 0),
    (12, 1, 0, 3, 1, 1, 3, 1140850688, 1024, 600, 2, 0),
    (13, 1, 0, 5, 1, 1, 2, 1140850688, 2097152, 2096128, 1140851712, 15),
    (14, 1, 0, 7, 1, 1, 2, 1140850688, 2097152, NULL, 2, 7),
    (15, 3, 0, 8, 0, 4, 3, 2147483648, 62914560, NULL, 3, 0),
    (16, 3, 0, 4, 0, 4, 3, 2147483648, 20971520, 41943040, 3, 0),
    (17, 3, 0, 1, 0, 4, 4, 2147483648, 20971520, 20971520, 3, 2),
    (18, 3, 0, 4, 0, 4, 3, 2168455168, 20971520, 20971520, 3, 0),
    (19, 3, 0, 1, 0, 4, 5, 2168455168, 20971520, 20971520, 3, 1),
    (20, 3, 0, 1, 0, 4, 6, 2189426688, 20971520, 20971520, 3, 1),
    (21, 3, 0, 2, 0, 4, 5, 2168455168, 20971520, 20971520, 3, 0),
    (22, 3, 0, 3, 0, 4, 5, 2168455168, 20971520, 20971520, 3, 0),
    (23, 3, 0, 9, 0, 4, 3, 2168455168, 20971520, NULL, 3, 7),
    (24, 2, 1, 1, 0, 0, 7, 3221225472, 1048576, 1048576, 0, 29),
    (25, 2, 1, 1, 0, 0, 8, 3223322624, 512, 512, 0, 1),
    (26, 1, 0, 11, 0, 0, NULL, NULL, 107374182400, 0, 0, 12),
    (27, 2, 1, 2, 0, 0, 8, 3223322624, 512, 512, 0, 0),
    (28, 1, 0, 11, 0, 0, NULL, NULL, 107374182400, 0, 0, 13),
    (29, 1, 0, 12, 0, 0, NULL, 8388608, 107374182400, 50331648, 62914560, 0),
    (30, 1, 0, 12, 0, 0, NULL, 8388608, 20000000, 50331648, 62914560, 0);
INSERT INTO event(seq, ts_ns, pid, tid, device, dev_seq, kind, stream, pool, id, addr, size, requested, arg, cause,
    callsite_id,
    thread_id, flags)
    SELECT seq, seq * 1000000, t.pid, t.tid, device, 0, kind, stream, pool, script.id, addr, size, requested, arg,
        cause,
        CASE seq WHEN 3 THEN 1 WHEN 5 THEN 2 WHEN 15 THEN 1 WHEN 30 THEN 1 ELSE 0 END, thread_id, 0
    FROM script JOIN thread t ON t.id
            = thread_id;
INSERT INTO segment(id, device, pool, stream, addr, size, alloc_seq, alloc_ns, process_id, number, is_expandable)
    VALUES (3, 0, 4, 0, 2147483648, 62914560, 15, 15000000, 1, 3, 1);
INSERT INTO allocation(id, domain, pid, tid, device, pool, stream, segment_id, addr, size, requested, alloc_seq,
    free_requested_seq,
    free_completed_seq, alloc_ns, free_ns, callsite_id, source, process_id, temporary)
    SELECT s.id, 4, t.pid, t.tid, s.device, s.pool, s.stream, NULL, s.addr, s.size, s.requested, s.seq, r.seq, c.seq,
        s.seq * 1000000,
        r.seq * 1000000, CASE s.seq WHEN 3 THEN 1 WHEN 5 THEN 2 ELSE 0 END, s.cause, t.process_id, 0
    FROM script s JOIN thread t ON t.id = s.thread_id LEFT JOIN script r ON r.kind = 2 AND r.id = s.id LEFT JOIN
        script c ON c.kind = 3
        AND c.id = s.id WHERE s.kind = 1;
INSERT INTO symbol(id, function, file, line, module, is_python, is_inlined, user_rank) VALUES
    (1, 'forward', '/srv/app/model.py', 12, NULL, 1, 0, 7), (2, 'load_batch', '/srv/app/data.py', 40, NULL, 1, 0, 7);
INSERT INTO callsite(id, node_id, depth, symbol_id, user_symbol_id) VALUES (1, NULL, 1, 1, 1), (2, NULL, 1, 2, NULL);
DROP TABLE script;
INSERT INTO oom(seq, ts_ns, device, requested, allocated, reserved, largest_free, stage, process_id)
    SELECT seq, ts_ns, device, size, requested, arg, addr, 13, 1 FROM event WHERE kind = 12;
-- the ladder of process 1
UPDATE event_row SET live_change = l.live, rounding_change = l.rounding, pending_change = l.pending, quantum_change =
    l.quantum,
        cached_change = l.cached, reserved_change = l.reserved
    FROM (WITH l(seq, live, rounding, pending, quantum, cached, reserved) AS (VALUES
        (1, 0, 0, 0, 0, 20971520, 20971520), (3, 8388000, 608, 0, 12582912, -20971520, 0), (5, 4194304, 0, 0,
            -4194304, 0, 0),
        (6, 0, 0, 0, 0, 2097152, 2097152), (8, 600, 424, 0, 2096128, -2097152, 0), (10, -4194304, 0, 4194304, 0, 0, 0),
        (11, -600, -424, 1024, 0, 0, 0), (12, 0, 0, -1024, -2096128, 2097152, 0), (14, 0, 0, 0, 0, -2097152, -2097152),
        (15, 0, 0, 0, 0, 62914560, 62914560), (17, 20971520, 0, 0, 41943040, -62914560, 0), (19, 20971520, 0, 0,
            -20971520, 0, 0),
        (20, 20971520, 0, 0, -20971520, 0, 0), (21, -20971520, 0, 20971520, 0, 0, 0), (22, 0, 0, -20971520, 0, 0, 0),
        (23, 0, 0, 0, 0, 0, -20971520)) SELECT * FROM l) l WHERE event_row.seq = l.seq;
INSERT INTO ladder_peak_stat(process_id, device, seq, ts_ns, live, rounding, pending, pools, quantum, cached, unsplit,
    reserved)
    VALUES (1, 0, 20, 20000000, 71302560, 608, 4194304, 0, 8388608, 0, 0, 83886080);
