-- SPDX-License-Identifier: Apache-2.0
-- Two traces, attached as a and b: what their events are found by. A key is the number of the ring (of both traces) in
-- bits 40 up, and the event's number in its ring below. diff_events.c runs this, then diff_stacks.c makes stack_a and
-- stack_b, then comes diff_events.sql.

CREATE TABLE ring(id INTEGER PRIMARY KEY, process_id INTEGER, ring INTEGER, UNIQUE(process_id, ring));
INSERT INTO ring(process_id, ring) SELECT process_id, ring FROM a.thread UNION SELECT process_id, ring FROM b.thread;
CREATE TABLE thread_a(id INTEGER PRIMARY KEY, ring INTEGER, pid INTEGER, tid INTEGER);
CREATE TABLE thread_b(id INTEGER PRIMARY KEY, ring INTEGER, pid INTEGER, tid INTEGER);
INSERT INTO thread_a SELECT t.id, r.id, pid, tid FROM a.thread t JOIN ring r
    ON r.process_id IS t.process_id AND r.ring IS t.ring;
INSERT INTO thread_b SELECT t.id, r.id, pid, tid FROM b.thread t JOIN ring r
    ON r.process_id IS t.process_id AND r.ring IS t.ring;

-- family: whose rows the ids of a kind are: 1 of allocation, 2 of segment; NULL: the program's own, which must be
-- equal. addr of `oom` is the one that holds bytes; arg is a number unless it is an address or a handle.
CREATE TABLE kind(code INTEGER PRIMARY KEY, name TEXT, family INTEGER, addr_is_address INTEGER, arg_is_address INTEGER);
INSERT OR IGNORE INTO kind SELECT code, name, CASE
        WHEN name IN ('alloc', 'free_requested', 'free_completed', 'record_stream', 'heap_alloc', 'heap_free',
            'heap_realloc', 'mmap', 'munmap') THEN 1
        WHEN name IN ('split', 'merge', 'segment_alloc', 'segment_free', 'segment_map', 'segment_unmap') THEN 2 END,
    coalesce(addr, '') NOT GLOB 'bytes*', coalesce(arg, '') GLOB '*address*' OR coalesce(arg, '') GLOB '*handle*'
FROM (SELECT * FROM a.event_kind UNION ALL SELECT * FROM b.event_kind);
CREATE TABLE cause(code INTEGER PRIMARY KEY, text TEXT);
INSERT INTO cause VALUES (0, 'none');
INSERT OR IGNORE INTO cause SELECT code, text FROM (SELECT * FROM a.event_cause UNION ALL SELECT * FROM b.event_cause);

-- All that is compared, of events with a ring, in order of their numbers; `number` makes the key.
CREATE TABLE event_a(seq INTEGER PRIMARY KEY, ts_ns, pid, tid, device, dev_seq, kind, stream, pool, id, addr, size,
    requested, arg, cause, callsite_id, flags, ring, number);
CREATE TABLE event_b(seq INTEGER PRIMARY KEY, ts_ns, pid, tid, device, dev_seq, kind, stream, pool, id, addr, size,
    requested, arg, cause, callsite_id, flags, ring, number);
INSERT INTO event_a SELECT e.seq, ts_ns, e.pid, e.tid, device, dev_seq, kind, stream, pool, e.id, addr, size, requested,
    arg, cause, callsite_id, flags, t.ring, ring_seq FROM a.event e LEFT JOIN thread_a t ON t.id = e.thread_id
    ORDER BY e.seq;
INSERT INTO event_b SELECT e.seq, ts_ns, e.pid, e.tid, device, dev_seq, kind, stream, pool, e.id, addr, size, requested,
    arg, cause, callsite_id, flags, t.ring, ring_seq FROM b.event e LEFT JOIN thread_b t ON t.id = e.thread_id
    ORDER BY e.seq;

-- The numbers of a ring grow with the rows: an event has no key if its ring has one as large already.
CREATE TABLE key_a(key INTEGER PRIMARY KEY, seq INTEGER, kind INTEGER);
CREATE TABLE key_b(key INTEGER PRIMARY KEY, seq INTEGER, kind INTEGER);
CREATE TRIGGER order_a BEFORE INSERT ON key_a
    WHEN EXISTS (SELECT 1 FROM key_a WHERE key BETWEEN NEW.key AND NEW.key | 1099511627775)
    BEGIN SELECT raise(IGNORE); END;
CREATE TRIGGER order_b BEFORE INSERT ON key_b
    WHEN EXISTS (SELECT 1 FROM key_b WHERE key BETWEEN NEW.key AND NEW.key | 1099511627775)
    BEGIN SELECT raise(IGNORE); END;
INSERT INTO key_a SELECT ring << 40 | number, seq, kind FROM event_a
    WHERE number BETWEEN 1 AND 1099511627775 AND ring IS NOT NULL ORDER BY seq;
INSERT INTO key_b SELECT ring << 40 | number, seq, kind FROM event_b
    WHERE number BETWEEN 1 AND 1099511627775 AND ring IS NOT NULL ORDER BY seq;

-- Rows that stand for lost events, and rows without a key as far as it is of themselves. total() has no overflow, which
-- a damaged file could make.
CREATE TABLE odd AS
    SELECT side, count(*) FILTER (WHERE is_lost AND number IS NOT NULL) AS lost_rows,
        CAST(total(arg) FILTER (WHERE is_lost AND number IS NOT NULL) AS INTEGER) AS lost_events,
        count(*) FILTER (WHERE is_lost AND number IS NULL) AS gap_rows,
        CAST(total(arg) FILTER (WHERE is_lost AND number IS NULL) AS INTEGER) AS gap_events,
        count(*) FILTER (WHERE NOT is_lost AND number IS NULL) AS without_number,
        count(*) FILTER (WHERE number IS NOT NULL AND ring IS NULL) AS without_thread
    FROM (SELECT side, kind IS (SELECT code FROM kind WHERE name = 'lost') AS is_lost, number, ring, arg
        FROM (SELECT 0 AS side, kind, number, ring, arg FROM event_a
            UNION ALL SELECT 1, kind, number, ring, arg FROM event_b)
        WHERE kind IS (SELECT code FROM kind WHERE name = 'lost') OR number IS NULL OR ring IS NULL)
    GROUP BY side;
-- events = compared + alone + without_number + without_thread + out_of_order
CREATE TABLE trace AS
    SELECT n.side, n.events - coalesce(gap_rows, 0) AS events, coalesce(lost_rows, 0) AS lost_rows,
        coalesce(lost_events, 0) AS lost_events, coalesce(gap_rows, 0) AS gap_rows,
        coalesce(gap_events, 0) AS gap_events, coalesce(without_number, 0) AS without_number,
        coalesce(without_thread, 0) AS without_thread,
        n.events - n.keys - coalesce(gap_rows + without_number + without_thread, 0) AS out_of_order
    FROM (SELECT 0 AS side, (SELECT count(*) FROM event_a) AS events, (SELECT count(*) FROM key_a) AS keys
        UNION ALL SELECT 1, (SELECT count(*) FROM event_b), (SELECT count(*) FROM key_b)) n
        LEFT JOIN odd o ON o.side = n.side;
