-- SPDX-License-Identifier: Apache-2.0
-- Every derived table by its definition: from `said`, the events as they were emitted, to tables that have the names
-- and columns of those of the database, which is attached as `trace`. test_derived_tables.c makes `said`, `joined` and
-- `without_shares` and compares.

-- Events by name, with the trace's numbers of devices. place: within which an address or a handle means one thing.
CREATE TABLE e AS SELECT s.*, k.name AS kind, k.grp, c.text AS cause,
    CASE k.grp WHEN 'device' THEN 'd' || s.side WHEN 'heap' THEN iif(k.name LIKE 'python%', 'p', 'h') ELSE '' END
        || s.process AS place,
    iif(EXISTS (SELECT 1 FROM said d WHERE d.kind_code = 58 AND d.process = s.process AND d.ordinal = s.ordinal
        AND d.seq <= s.seq), (s.ordinal + s.process - 1) % 3, s.ordinal) AS device,
    -- of memory that it opens; 0: none
    CASE WHEN k.grp = 'allocator' THEN 4 WHEN k.grp = 'heap' THEN iif(k.name LIKE 'python%', 9, 1)
        WHEN k.grp <> 'device' OR (c.text = 'cuIpcOpenMemHandle' AND NOT s.failed) THEN 0
        WHEN s.pool >> 12 IN (1, 2) THEN iif(s.side, 0, 5) WHEN s.pool >> 12 IN (5, 7) THEN iif(s.side, 0, 6)
        ELSE iif(s.side, 7, 3) END AS domain
    FROM said s JOIN trace.event_kind k ON k.code = s.kind_code LEFT JOIN trace.event_cause c ON c.code = s.cause_code;
CREATE UNIQUE INDEX e_seq ON e(seq);
CREATE INDEX e_place ON e(place, addr);

-- Contexts that end, each with what it ends.
CREATE TABLE reset AS SELECT r.seq, h.seq AS holder FROM e r JOIN e h ON h.place = r.place AND h.device = r.device
    AND h.seq < r.seq AND (r.pool & 4095 = 0 OR (h.kind <> 'dev_alloc_async' AND h.pool & 4095 = r.pool & 4095))
    WHERE r.kind = 'dev_reset' AND NOT r.failed AND h.kind IN ('dev_alloc', 'dev_alloc_async', 'vmm_create');
CREATE INDEX reset_holder ON reset(holder, seq);

---- memory that has an address: what comes to it and goes from it, one event after the other

-- Frees that failures take back: of realloc the thread's last one of the address, of CUDA the thread's last call.
CREATE TABLE taken_back AS SELECT f.seq, (SELECT max(b.seq) FROM e b WHERE b.thread = f.thread AND b.place = f.place
        AND b.addr = f.addr AND b.kind LIKE '%_free' AND b.cause = 'realloc' AND b.seq < f.seq) AS back
    FROM e f WHERE f.kind LIKE '%_realloc' AND f.failed
    UNION ALL SELECT seq, before FROM (SELECT *, lag(seq) OVER w AS before, lag(kind || cause || failed) OVER w AS call,
            lag(addr) OVER w AS before_addr FROM e
        WHERE kind IN ('dev_alloc', 'dev_alloc_async', 'vmm_create', 'dev_oom', 'dev_free', 'dev_free_async',
            'vmm_unmap', 'vmm_release') OR (kind = 'vmm_map' AND failed)
        WINDOW w AS (PARTITION BY thread, side ORDER BY seq))
    WHERE kind IN ('dev_free', 'dev_free_async') AND failed AND call = kind || cause || 0 AND addr IN (0, before_addr);
CREATE TABLE touch AS SELECT row_number() OVER (PARTITION BY place, addr ORDER BY seq) AS n, * FROM (
    SELECT seq, place, addr, iif(kind LIKE '%_free' OR kind = 'dev_free_async', 'go', 'come') AS what, NULL AS back
    FROM e WHERE NOT failed AND addr <> 0 AND kind IN ('heap_alloc', 'heap_realloc', 'heap_free', 'python_alloc',
        'python_realloc', 'python_free', 'dev_alloc', 'dev_alloc_async', 'dev_free', 'dev_free_async')
    UNION ALL SELECT t.seq, b.place, b.addr, 'return', b.seq FROM taken_back t JOIN e b ON b.seq = t.back
        WHERE b.addr <> 0
    UNION ALL SELECT DISTINCT r.seq, h.place, h.addr, 'reset', NULL FROM reset r JOIN e h ON h.seq = r.holder
        WHERE h.addr <> 0);
CREATE UNIQUE INDEX touch_n ON touch(place, addr, n);
-- before, after: the event that opened what is at the address; gone: what each free took away, for those that return
CREATE TABLE walk AS WITH RECURSIVE w(n, seq, place, addr, what, before, after, gone) AS (
    SELECT n, seq, place, addr, what, 0, iif(what = 'come', seq, 0), '{}' FROM touch WHERE n = 1
    UNION ALL SELECT t.n, t.seq, t.place, t.addr, t.what, w.after,
        CASE t.what WHEN 'come' THEN t.seq WHEN 'go' THEN 0
            WHEN 'return' THEN coalesce(json_extract(w.gone, '$.s' || t.back), w.after)
            ELSE iif(EXISTS (SELECT 1 FROM reset r WHERE r.holder = w.after AND r.seq = t.seq), 0, w.after) END,
        iif(t.what = 'go' AND w.after <> 0, json_set(w.gone, '$.s' || t.seq, w.after), w.gone)
    FROM w JOIN touch t ON t.place = w.place AND t.addr = w.addr AND t.n = w.n + 1)
    SELECT seq, what, before, after, what = 'return' AND json_extract(gone, '$.s' || (SELECT back FROM taken_back b
        WHERE b.seq = w.seq)) IS NOT NULL AS is_back FROM w;

---- mapped memory: pieces, each until the next event that touches it; what that leaves of it are pieces again

CREATE TABLE cut AS SELECT seq, process, kind, addr AS a, addr + size AS z FROM e
    WHERE kind IN ('mmap', 'munmap') AND NOT failed;
CREATE TABLE piece AS WITH RECURSIVE p(open, part, origin, process, a, z, close) AS (
    SELECT seq, 2, seq, process, a, z, (SELECT min(k.seq) FROM cut k WHERE k.process = cut.process AND k.seq > cut.seq
        AND k.a < cut.z AND k.z > cut.a) FROM cut WHERE kind = 'mmap'
    UNION ALL SELECT p.close, s.side, p.origin, p.process, iif(s.side, c.z, p.a), iif(s.side, p.z, c.a),
        (SELECT min(k.seq) FROM cut k WHERE k.process = p.process AND k.seq > c.seq
            AND k.a < iif(s.side, p.z, c.a) AND k.z > iif(s.side, c.z, p.a))
    FROM p JOIN cut c ON c.seq = p.close JOIN (SELECT 0 AS side UNION SELECT 1) s
    WHERE iif(s.side, c.z, p.a) < iif(s.side, p.z, c.a))
    SELECT open * 4 + part AS r, * FROM p;
-- The lowest piece that an unmapping ended; of a mapping that continues one, what it continues.
CREATE TABLE unmapped AS SELECT c.seq, (SELECT r FROM piece p WHERE p.close = c.seq ORDER BY a LIMIT 1) AS r
    FROM cut c WHERE kind = 'munmap';
CREATE TABLE piece_domain AS WITH RECURSIVE
    mapping AS (SELECT *, (SELECT p.origin FROM unmapped u JOIN piece p USING (r) WHERE u.seq = before
            AND call = 'munmap' || cause) AS continued
        FROM (SELECT *, lag(seq) OVER w AS before, lag(kind || cause) OVER w AS call FROM e
            WHERE kind IN ('mmap', 'munmap') WINDOW w AS (PARTITION BY thread ORDER BY seq)) WHERE kind = 'mmap'),
    d(origin, domain) AS (SELECT seq, iif(cause = 'mmap' AND arg >> 32 <> 0
            AND (arg & 4294967295 = 0 OR arg >> 32 & 16384), 8, 2) FROM mapping
            WHERE cause = 'mmap' OR continued IS NULL
        UNION ALL SELECT m.seq, d.domain FROM d JOIN mapping m ON m.continued = d.origin AND m.cause <> 'mmap')
    SELECT * FROM d;

---- physical memory: there while somebody holds its handle or a mapping is of it

CREATE TABLE object AS SELECT seq, place, arg AS handle, lead(seq) OVER (PARTITION BY place, arg ORDER BY seq) AS next,
    (SELECT min(r.seq) FROM reset r WHERE r.holder = e.seq) AS reset
    FROM e WHERE kind = 'vmm_create' AND cause = 'cuMemCreate' AND NOT failed;
CREATE TABLE handled AS SELECT e.seq, e.kind, o.seq AS object FROM e JOIN object o ON o.place = e.place
        AND o.handle = e.arg AND e.seq >= o.seq AND e.seq < coalesce(o.next, e.seq + 1)
    WHERE e.kind IN ('vmm_create', 'vmm_release', 'vmm_map') AND NOT e.failed;
CREATE TABLE mapped AS SELECT m.seq, m.addr AS a, m.addr + m.size AS z, m.place, h.object,
        (SELECT min(k.seq) FROM e k WHERE k.place = m.place AND k.kind IN ('vmm_map', 'vmm_unmap') AND NOT k.failed
            AND k.seq > m.seq AND k.addr < m.addr + m.size AND k.addr + k.size > m.addr) AS close
    FROM handled h JOIN e m USING (seq) WHERE h.kind = 'vmm_map';
-- t: within an event, what ends comes before what begins
CREATE TABLE held AS SELECT object, t, refs - min(0, min(refs) OVER w) AS refs, maps FROM (
    SELECT object, t, sum(ref) OVER w AS refs, sum(map) OVER w AS maps FROM (
        SELECT object, t, sum(ref) AS ref, sum(map) AS map FROM (
            SELECT object, 2 * seq AS t, iif(kind = 'vmm_create', 1, -1) AS ref, 0 AS map FROM handled
                WHERE kind <> 'vmm_map'
            UNION ALL SELECT seq, 2 * next, -1000, 0 FROM object WHERE next > 0
            UNION ALL SELECT object, 2 * seq + 1, 0, 1 FROM mapped
            UNION ALL SELECT object, 2 * close, 0, -1 FROM mapped WHERE close > 0) GROUP BY object, t)
    WINDOW w AS (PARTITION BY object ORDER BY t)) WINDOW w AS (PARTITION BY object ORDER BY t);
CREATE INDEX held_object ON held(object, t);
CREATE TABLE physical AS SELECT *, nullif(min(coalesce(reset, 9e9), coalesce((SELECT min(t) / 2 FROM held
    WHERE held.object = o.seq AND refs = 0 AND maps = 0), 9e9)), 9e9) AS close FROM object o;
DELETE FROM mapped WHERE EXISTS (SELECT 1 FROM physical p WHERE p.seq = mapped.object AND p.close <= mapped.seq);

---- rows of allocation. r: four times the event that opened it, 2; 0 and 1: what was left of another

CREATE TABLE made AS SELECT seq * 4 + 2 AS r, seq AS open, seq AS origin, domain, addr, size,
        iif(grp = 'allocator', requested, size) AS requested FROM e
    WHERE domain > 0 AND NOT failed AND (kind = 'alloc' OR seq IN (SELECT after FROM walk WHERE what = 'come'))
    UNION ALL SELECT p.r, p.open, p.origin, d.domain, p.a, p.z - p.a, iif(p.part = 2, e.requested, p.z - p.a)
    FROM piece p JOIN piece_domain d USING (origin) JOIN e ON e.seq = p.origin
    UNION ALL SELECT seq * 4 + 2, seq, seq, domain, coalesce((SELECT m.a FROM mapped m WHERE m.object = e.seq
        ORDER BY m.seq LIMIT 1), 0), size, size FROM e WHERE domain > 0 AND seq IN (SELECT seq FROM object);
CREATE UNIQUE INDEX made_r ON made(r);
-- Each change of each row; late: its turn within the event.
CREATE TABLE change AS SELECT c.* FROM (
    SELECT before * 4 + 2 AS r, seq, -1 AS live, what = 'go' AS is_free, iif(what = 'come', 0, 2) AS late FROM walk
        WHERE before <> 0 AND before <> after
    UNION ALL SELECT after * 4 + 2, seq, 1, 0, 1 FROM walk WHERE after <> 0 AND before <> after
    UNION ALL SELECT r, open, 1, 0, 1 FROM piece
    UNION ALL SELECT p.r, p.close, -1, c.kind = 'munmap', 0 FROM piece p JOIN cut c ON c.seq = p.close
    UNION ALL SELECT seq * 4 + 2, seq, 1, 0, 1 FROM object
    UNION ALL SELECT p.seq * 4 + 2, p.close, -1, e.kind IN ('vmm_unmap', 'vmm_release'), 2
        FROM physical p JOIN e ON e.seq = p.close
    UNION ALL SELECT seq * 4 + 2, seq, 1, 0, 1 FROM e WHERE kind = 'alloc'
    UNION ALL SELECT r, requested, -1, 1, 0 FROM (SELECT seq * 4 + 2 AS r, (SELECT min(f.seq) FROM e f
        WHERE f.kind = 'free_requested' AND f.process = a.process AND f.ordinal = a.ordinal AND f.addr = a.addr
        AND f.seq > a.seq) AS requested FROM e a WHERE kind = 'alloc') WHERE requested > 0) c JOIN made USING (r);
CREATE INDEX change_r ON change(r, seq);
-- A free is of what its thread allocated last: the event before it in the same recorder.
CREATE TABLE previous AS SELECT seq,
        lag(seq) OVER (PARTITION BY thread, side, kind LIKE 'python%' ORDER BY seq) AS previous
    FROM e WHERE grp = 'heap' OR kind IN ('alloc', 'free_requested', 'dev_alloc', 'dev_alloc_async', 'vmm_create',
        'dev_oom', 'dev_free', 'dev_free_async', 'vmm_unmap', 'vmm_release')
        OR (kind = 'vmm_map' AND failed) OR (kind = 'dev_reset' AND NOT failed);
CREATE INDEX previous_seq ON previous(seq);
CREATE TABLE allocation AS SELECT row_number() OVER (ORDER BY r) AS id, domain, pid, tid,
        CASE WHEN domain IN (1, 2, 8, 9) THEN NULL ELSE device END AS device,
        CASE WHEN domain IN (1, 2, 8, 9) THEN NULL WHEN domain = 4 THEN pool ELSE pool & 4095 END AS pool,
        CASE WHEN domain IN (1, 2, 8, 9) THEN NULL ELSE stream END AS stream, addr, size, requested, alloc_seq,
        free_requested_seq, iif(domain = 4, completed, free_requested_seq) AS free_completed_seq, alloc_ns,
        (SELECT ts_ns FROM e WHERE seq = free_requested_seq) AS free_ns, callsite_id, source, process_id,
        coalesce(is_free AND (SELECT previous * 4 + 2 FROM previous p WHERE p.seq = free_requested_seq) = r, 0)
            AS temporary,
        CASE WHEN domain IN (3, 5, 6, 7) THEN pool >> 12 END AS memory_kind, r
    FROM (SELECT m.r, m.domain, o.pid, o.tid, o.device, o.pool, o.stream, m.addr, m.size, m.requested,
            m.open AS alloc_seq, iif(c.live < 0, c.seq, NULL) AS free_requested_seq, c.is_free,
            (SELECT min(f.seq) FROM e f WHERE m.domain = 4 AND f.kind = 'free_completed' AND f.process = o.process
                AND f.ordinal = o.ordinal AND f.addr = o.addr AND f.seq > o.seq) AS completed,
            b.ts_ns AS alloc_ns, o.callsite AS callsite_id, iif(m.r & 3 = 2, o.cause_code, 31) AS source,
            o.process AS process_id
        FROM made m JOIN e o ON o.seq = m.origin JOIN e b ON b.seq = m.open JOIN change c ON c.r = m.r
            AND NOT EXISTS (SELECT 1 FROM change l WHERE l.r = m.r AND l.seq > c.seq));
CREATE INDEX allocation_r ON allocation(r);

---- the events, completed: frees say what they were of

CREATE TABLE says AS SELECT seq, before AS holder, 1 AS is_all FROM walk WHERE what = 'go' AND before <> 0
    UNION ALL SELECT w.seq, w.after, m.domain NOT IN (1, 9) FROM walk w JOIN made m ON m.r = w.after * 4 + 2
        WHERE is_back
    UNION ALL SELECT h.seq, h.object, h.kind = 'vmm_release' FROM handled h JOIN physical p ON p.seq = h.object
    WHERE coalesce(p.close, 9e9) > h.seq - (h.kind = 'vmm_release')
        AND (h.kind <> 'vmm_release' OR (SELECT refs FROM held WHERE held.object = h.object AND t < 2 * h.seq
            ORDER BY t DESC LIMIT 1) > 0)
    UNION ALL SELECT * FROM (SELECT u.seq, (SELECT object FROM mapped m LEFT JOIN made r ON r.r = m.object * 4 + 2
            WHERE m.close = u.seq AND coalesce((SELECT close FROM physical p WHERE p.seq = m.object), 9e9) >= u.seq
            ORDER BY r.r IS NULL, iif(r.r IS NULL, -m.a, m.a) LIMIT 1) AS holder, 2
        FROM e u WHERE u.kind = 'vmm_unmap' AND NOT failed) WHERE holder > 0;
CREATE INDEX says_seq ON says(seq);
CREATE TABLE done AS SELECT e.seq, e.kind, e.grp, e.side, e.failed, e.process, e.thread,
        CASE WHEN e.kind IN ('device', 'stream') THEN e.ordinal
            WHEN e.grp IN ('heap', 'device') OR e.kind IN ('alloc', 'free_requested', 'free_completed') THEN coalesce(
                (SELECT id FROM allocation WHERE r = s.holder * 4 + 2),
                (SELECT id FROM allocation WHERE r = (SELECT r FROM unmapped u WHERE u.seq = e.seq)),
                (SELECT id FROM allocation WHERE r = e.seq * 4 + 2),
                (SELECT id FROM allocation WHERE e.kind LIKE 'free_%' AND process_id = e.process AND domain = 4
                    AND device = e.device AND addr = e.addr AND alloc_seq < e.seq ORDER BY alloc_seq DESC LIMIT 1))
            ELSE e.id END AS id,
        CASE WHEN e.kind LIKE '%free' AND e.grp = 'heap' AND s.holder IS NULL
                OR e.kind = 'munmap' AND (SELECT r FROM unmapped u WHERE u.seq = e.seq) IS NULL
            THEN iif(e.process = 3, 29, 30) ELSE e.cause_code END AS cause_code,
        iif(s.is_all = 1 AND h.domain <> 0, h.size, e.size) AS size,
        CASE WHEN e.grp = 'heap' AND s.is_all THEN h.size WHEN e.grp = 'heap' AND e.kind <> 'mmap' THEN e.size
            ELSE e.requested END AS requested,
        iif(s.is_all, h.device, e.device) AS device, iif(s.is_all AND e.kind <> 'dev_free_async', h.stream, e.stream)
            AS stream, iif(s.is_all, h.pool, e.pool) AS pool, e.cause, e.callsite, e.ts_ns
    FROM e LEFT JOIN says s ON s.seq = e.seq LEFT JOIN e h ON h.seq = s.holder;
CREATE UNIQUE INDEX done_seq ON done(seq);
-- The time of a free is of the device and stream that the free was of.
UPDATE done SET (device, stream) = (SELECT l.device, l.stream FROM done l WHERE l.seq = last) FROM (
    SELECT s.seq AS at, (SELECT max(l.seq) FROM done l WHERE l.thread = s.thread AND l.side = s.side AND NOT l.failed
        AND l.seq < s.seq AND l.kind IN ('dev_alloc', 'dev_alloc_async', 'vmm_create', 'dev_free', 'dev_free_async',
            'vmm_unmap', 'vmm_release')) AS last FROM done s WHERE s.kind = 'dev_sync' AND s.cause = 'cudaFree')
    WHERE seq = at AND (SELECT l.cause FROM done l WHERE l.seq = last) = 'cudaFree';
CREATE TABLE event AS SELECT e.seq, e.ts_ns, e.pid, e.tid, e.kind_code AS kind,
        CASE WHEN e.grp = 'allocator' AND e.kind NOT IN ('alloc', 'free_requested', 'free_completed')
            THEN (SELECT id FROM trace.event t WHERE t.seq = e.seq) ELSE nullif(d.id, 0) END AS id,
        d.cause_code AS cause, e.thread AS thread_id, e.flags,
        CASE WHEN k.addr <> '' THEN e.addr END AS addr, CASE WHEN k.arg <> '' THEN e.arg END AS arg,
        CASE WHEN k.size <> '' THEN iif(d.size < 0, 9223372036854775807, d.size) END AS size,
        CASE WHEN k.requested <> '' THEN d.requested END AS requested,
        CASE WHEN e.grp = 'process' OR (e.callsite = 0 AND (e.kind LIKE '%free' OR e.kind LIKE 'free_%'
            OR e.kind IN ('segment_free', 'segment_unmap', 'storage_destroy', 'munmap', 'dev_free_async', 'vmm_unmap',
                'vmm_release'))) THEN NULL ELSE e.callsite END AS callsite_id,
        CASE WHEN e.grp NOT IN ('process', 'heap') THEN d.device END AS device,
        CASE WHEN e.grp NOT IN ('process', 'heap') THEN d.stream END AS stream,
        CASE WHEN e.grp NOT IN ('process', 'heap') THEN d.pool END AS pool
    FROM e JOIN done d USING (seq) JOIN trace.event_kind k ON k.code = e.kind_code;

---- sums: who 0 are all processes; domains without devices have device 0

-- What is left: live when main of its process ended for the first time, or else at the end.
CREATE TABLE left_row AS SELECT r, alloc_seq, addr FROM allocation LEFT JOIN
    (SELECT process, min(ts_ns) AS ns FROM e WHERE kind = 'main_end' GROUP BY 1) ON process = process_id
    WHERE ns IS NULL AND free_requested_seq IS NULL OR alloc_ns <= ns AND coalesce(free_ns > ns, 1);
CREATE TABLE part AS SELECT w.who, iif(a.domain IN (3, 4, 6, 7), a.device, 0) AS of, a.*,
        a.r IN (SELECT r FROM left_row) AS is_left FROM allocation a
    JOIN (SELECT 0 AS who UNION SELECT process FROM said) w ON w.who IN (0, a.process_id);
CREATE TABLE course AS SELECT who, domain, of, seq, sum(allocated) OVER w AS allocated, sum(active) OVER w AS active,
        sum(requested) OVER w AS requested, sum(reserved) OVER w AS reserved, sum(live) OVER w AS live
    FROM (SELECT who, domain, of, seq, sum(allocated) AS allocated, sum(active) AS active, sum(requested) AS requested,
            sum(reserved) AS reserved, sum(live) AS live
        FROM (SELECT who, domain, of, seq, live * size AS allocated, iif(live > 0, size, 0) AS active,
                iif(live > 0, requested, 0) AS requested, 0 AS reserved, live FROM change JOIN part USING (r)
            UNION ALL SELECT who, domain, of, free_completed_seq, 0, -size, -requested, 0, 0 FROM part
                WHERE domain = 4 AND free_completed_seq > 0
            UNION ALL SELECT w.who, 4, e.device, e.seq, 0, 0, 0, iif(e.kind IN ('segment_alloc', 'segment_map'), e.size,
                -e.size), 0 FROM e JOIN (SELECT 0 AS who UNION SELECT process FROM said) w ON w.who IN (0, e.process)
                WHERE e.kind IN ('segment_alloc', 'segment_free', 'segment_map', 'segment_unmap'))
        GROUP BY 1, 2, 3, 4)
    WINDOW w AS (PARTITION BY who, domain, of ORDER BY seq);
CREATE INDEX course_key ON course(who, domain, of, seq);
CREATE TABLE sample AS SELECT c.who AS process_id, c.domain, c.of AS device, c.seq, e.ts_ns, c.allocated,
        c.allocated AS allocated_max, CASE c.domain WHEN 4 THEN c.active END AS active,
        CASE c.domain WHEN 4 THEN c.reserved END AS reserved, CASE c.domain WHEN 4 THEN c.requested END AS requested,
        c.live FROM course c JOIN e USING (seq) WHERE c.domain <> 7;
CREATE TABLE high AS SELECT who, domain, of, allocated AS bytes, live, seq FROM (SELECT *, row_number() OVER
    (PARTITION BY who, domain, of ORDER BY allocated DESC, seq) AS n FROM course) WHERE n = 1 AND allocated > 0;
CREATE TABLE failure AS SELECT w.who, domain, of, count(*) AS failed FROM (
    SELECT e.process, CASE WHEN e.kind IN ('heap_alloc', 'heap_realloc') THEN 1 WHEN e.grp = 'heap' AND e.kind <> 'mmap'
            THEN 9 WHEN e.kind = 'mmap' THEN (SELECT domain FROM piece_domain WHERE origin = e.seq)
            WHEN d.id > 0 THEN (SELECT a.domain FROM allocation a WHERE a.id = d.id) ELSE e.domain END AS domain,
        iif(e.grp = 'heap', 0, d.device) AS device FROM e JOIN done d USING (seq)
    WHERE e.failed AND (e.grp = 'heap' OR e.kind IN ('dev_alloc', 'dev_alloc_async', 'vmm_create', 'dev_oom',
        'dev_free', 'dev_free_async', 'vmm_unmap', 'vmm_release', 'vmm_map')))
    JOIN (SELECT 0 AS who UNION SELECT process FROM said) w ON w.who IN (0, process)
    JOIN (SELECT column1 AS d, column2 AS has FROM (VALUES (1, 0), (2, 0), (3, 1), (5, 0), (6, 1), (7, 1), (8, 0),
        (9, 0))) ON d = domain
    JOIN (SELECT 0 AS of UNION SELECT 1 UNION SELECT 2) ON of = device * has GROUP BY 1, 2, 3;
CREATE TABLE total_stat AS SELECT s.who AS process_id, s.domain, s.of AS device, count(p.r) AS allocations,
        count(p.free_requested_seq) AS frees, coalesce(sum(p.size), 0) AS bytes,
        coalesce(sum(p.is_left), 0) AS live_allocations, coalesce(sum(p.is_left * p.size), 0) AS live_bytes,
        coalesce(h.bytes, 0) AS peak_bytes,
        coalesce(h.live, 0) AS peak_allocations, h.seq AS peak_seq, (SELECT ts_ns FROM e WHERE seq = h.seq) AS peak_ns,
        coalesce(sum(p.temporary), 0) AS temporary, coalesce(f.failed, 0) AS failed
    FROM (SELECT who, domain, of FROM course UNION SELECT who, domain, of FROM failure) s
        LEFT JOIN part p USING (who, domain, of) LEFT JOIN high h USING (who, domain, of)
        LEFT JOIN failure f USING (who, domain, of) GROUP BY 1, 2, 3;
-- Heap and mappings together.
CREATE TABLE host_peak AS SELECT bytes, heap_bytes, bytes - heap_bytes AS mmap_bytes, h.seq, e.ts_ns
    FROM (SELECT seq, sum(sum(live * size)) OVER (ORDER BY seq) AS bytes,
            sum(sum(iif(domain = 1, live * size, 0))) OVER (ORDER BY seq) AS heap_bytes
        FROM change JOIN part USING (r) WHERE who = 0 AND domain IN (1, 2) GROUP BY seq) h
        JOIN e ON e.seq = h.seq ORDER BY bytes DESC, h.seq LIMIT 1;
-- A process's own work: from one allocation to the next it is active, 200 us at most. Marks are the first, the
-- last, and those that pass a multiple of the smallest power of two that no more than 128 pass.
CREATE TABLE work AS WITH RECURSIVE power(p) AS (SELECT 1 UNION ALL SELECT p * 2 FROM power WHERE p < 1 << 40),
    made_in_turn AS (SELECT process_id, alloc_seq AS seq, alloc_ns AS ns, row_number() OVER w AS n,
            min(200000, max(0, alloc_ns - coalesce(lag(alloc_ns) OVER w, alloc_ns))) AS since
        FROM allocation WINDOW w AS (PARTITION BY process_id ORDER BY alloc_seq)),
    active AS MATERIALIZED (SELECT *, sum(since) OVER (PARTITION BY process_id ORDER BY n) AS active,
            count(*) OVER (PARTITION BY process_id) AS last
        FROM made_in_turn),
    passed AS MATERIALIZED (SELECT process_id, min(p) AS p FROM (SELECT process_id, p FROM active CROSS JOIN power
            GROUP BY 1, 2 HAVING count(DISTINCT active / p) <= 129) GROUP BY 1),
    marked AS (SELECT process_id, seq, ns, active, n, lead(seq) OVER w AS end_seq, lead(ns) OVER w AS end_ns,
            lead(active) OVER w AS end_active, lead(n) OVER w AS end_n FROM active JOIN passed USING (process_id)
        WHERE n IN (1, last) OR active / p > (active - since) / p WINDOW w AS (PARTITION BY process_id ORDER BY n))
    SELECT process_id, seq, ns AS ts_ns, active AS active_ns, n AS allocations, end_seq, end_ns,
        1.0 * (end_active - active) / (end_seq - seq) AS rate, 1.0 * (end_n - n) / (end_seq - seq) AS allocation_rate
    FROM marked WHERE end_seq > seq;
-- At the peak of the domain, of each device: what was opened more often than closed until then.
CREATE TABLE at_peak AS SELECT p.r, 1 AS is_in FROM part p
        JOIN high h ON h.who = 0 AND h.domain = p.domain AND h.of = p.of
        JOIN change c ON c.r = p.r AND c.seq <= h.seq WHERE p.who = 0 GROUP BY p.r HAVING sum(c.live) > 0;
-- Of processes that ended when many had: what they had of call sites that others used first has no process any more.
CREATE TABLE callsite_part AS SELECT coalesce(target, callsite_id) AS callsite_id, domain,
        iif(process_id IN (SELECT process FROM without_shares) AND process_id <> first_value(process_id) OVER
            (PARTITION BY callsite_id, domain, of ORDER BY r), 0, process_id) AS process_id, size, is_left,
        free_requested_seq, free_ns, alloc_ns, is_in, temporary FROM part LEFT JOIN at_peak USING (r) LEFT JOIN joined
        ON joined.callsite = callsite_id WHERE who = 0 AND domain <> 7;
CREATE TABLE callsite_sum AS SELECT callsite_id, domain, process_id, count(*) AS allocations,
        count(free_requested_seq) AS frees, sum(size) AS bytes, sum(is_left) AS live_allocations,
        sum(is_left * size) AS live_bytes, count(is_in) AS peak_allocations,
        sum(iif(is_in, size, 0)) AS peak_bytes, sum(temporary) AS temporary,
        sum(coalesce(free_ns - alloc_ns, 0)) AS lifetime_ns, sum(shared) AS shared_bytes,
        sum(is_left * shared) AS live_shared_bytes, sum(iif(is_in, shared, 0)) AS peak_shared_bytes
    FROM (SELECT *, iif(domain = 9 AND size > 512, size, 0) AS shared FROM callsite_part) GROUP BY 1, 2, 3;
CREATE TABLE callsite_stat AS SELECT callsite_id, domain, sum(allocations) AS allocations, sum(frees) AS frees,
        sum(bytes) AS bytes, sum(live_allocations) AS live_allocations, sum(live_bytes) AS live_bytes,
        sum(peak_allocations) AS peak_allocations, sum(peak_bytes) AS peak_bytes, sum(temporary) AS temporary,
        sum(lifetime_ns) AS lifetime_ns,
        iif(count(*) = 1, nullif(max(process_id), 0), NULL) AS process_id,
        sum(shared_bytes) AS shared_bytes, sum(live_shared_bytes) AS live_shared_bytes,
        sum(peak_shared_bytes) AS peak_shared_bytes
    FROM callsite_sum GROUP BY 1, 2;
CREATE TABLE callsite_share AS SELECT callsite_id, domain, process_id, allocations, frees, bytes, live_allocations,
        live_bytes, peak_allocations, peak_bytes, temporary, lifetime_ns FROM callsite_sum
    WHERE (callsite_id, domain) IN (SELECT callsite_id, domain FROM callsite_stat WHERE process_id IS NULL);
CREATE TABLE size_stat AS WITH RECURSIVE class(size) AS (SELECT 1 UNION ALL SELECT size * 2 FROM class
        WHERE size < 1 << 40)
    SELECT who AS process_id, domain, of AS device, (SELECT min(c.size) FROM class c WHERE c.size >= p.size)
        AS up_to_bytes, count(*) AS allocations, count(free_requested_seq) AS frees, sum(size) AS bytes,
        sum(is_left) AS live_allocations, sum(is_left * size) AS live_bytes, sum(temporary) AS temporary,
        sum(coalesce(free_ns - alloc_ns, 0)) AS lifetime_ns FROM part p WHERE domain <> 7 GROUP BY 1, 2, 3, 4;
CREATE TABLE stream_stat AS SELECT a.process_id, a.domain, a.device, a.stream, count(*) AS allocations,
        count(a.free_requested_seq) AS frees, sum(a.size) AS bytes,
        sum(a.is_left * a.size) AS live_bytes, (SELECT max(bytes) FROM (
            SELECT sum(c.live * b.size) OVER (ORDER BY c.seq, c.late, b.id ROWS UNBOUNDED PRECEDING) AS bytes
            FROM allocation b JOIN change c USING (r) WHERE (b.process_id, b.domain, b.device,
                b.stream) = (a.process_id, a.domain, a.device, a.stream))) AS peak_bytes
    FROM part a WHERE a.who = 0 AND a.domain IN (3, 4, 5, 6) GROUP BY 1, 2, 3, 4;

---- the CUDA API

CREATE TABLE device_event AS SELECT seq, kind_code AS kind FROM e WHERE grp = 'device';
CREATE TABLE device_call_stat AS SELECT process AS process_id, device, stream, cause_code AS cause, class,
        sum(NOT is_time AND NOT (failed AND class = 2)) AS calls, sum(failed AND NOT is_time) AS failed,
        sum(iif(failed AND class = 2 AND NOT is_time, 0, requested)) AS ns,
        max(iif(failed AND class = 2 AND NOT is_time, 0, requested)) AS max_ns,
        sum(iif(failed OR is_time, 0, size)) AS bytes
    FROM (SELECT *, kind = 'dev_sync' AND class <> 3 AS is_time FROM (SELECT *,
        CASE WHEN kind IN ('dev_alloc', 'dev_alloc_async', 'vmm_reserve', 'vmm_create', 'vmm_map', 'vmm_set_access',
                'dev_oom') THEN 1
            WHEN kind IN ('dev_free', 'dev_free_async', 'vmm_unmap', 'vmm_release', 'vmm_address_free') THEN 2
            WHEN kind = 'dev_reset' THEN 4 WHEN kind = 'dev_sync' THEN iif(cause = 'cudaFree', 2, 3) END AS class
        FROM done WHERE NOT side) WHERE class > 0) GROUP BY 1, 2, 3, 4;
CREATE TABLE device_memory AS SELECT d.seq, d.ts_ns, d.process AS process_id, d.device, d.size AS total_bytes,
        d.requested AS free_bytes, coalesce((SELECT allocated FROM course c WHERE c.who = 0 AND c.domain = 3
            AND c.of = d.device AND c.seq < d.seq ORDER BY c.seq DESC LIMIT 1), 0) AS live_bytes
    FROM done d WHERE kind = 'dev_memory' AND NOT side;

---- storages: open from the event that makes the number to the one that destroys it

CREATE TABLE storage_life AS SELECT seq, process, id AS number, kind, lead(seq) OVER w AS other FROM (
        SELECT *, lag(kind = 'storage_destroy') OVER (PARTITION BY process, id ORDER BY seq) AS was_gone FROM e
        WHERE id <> 0 AND kind IN ('storage_create', 'view', 'storage_destroy'))
    WHERE (kind = 'storage_destroy') IS NOT coalesce(was_gone, 1)
    WINDOW w AS (PARTITION BY process, id ORDER BY seq);
DELETE FROM storage_life WHERE kind = 'storage_destroy';
CREATE TABLE storage_base AS WITH RECURSIVE b(seq, process, target, at) AS (
        SELECT l.seq, l.process, e.arg, l.seq FROM storage_life l JOIN e USING (seq) WHERE l.kind = 'view'
        UNION ALL SELECT b.seq, b.process, e.arg, t.seq FROM b JOIN storage_life t ON t.process = b.process
            AND t.number = b.target AND t.seq < b.at AND coalesce(t.other, 9e9) > b.at AND t.kind = 'view'
            JOIN e ON e.seq = t.seq)
    SELECT b.seq, t.seq AS base FROM b JOIN storage_life t ON t.process = b.process AND t.number = b.target
        AND t.seq < b.at AND coalesce(t.other, 9e9) > b.at AND t.kind <> 'view';
CREATE TABLE storage_use AS WITH direct AS (SELECT e.seq, e.ts_ns, l.seq AS storage, s.is_write FROM e
        JOIN (SELECT 0 AS is_write UNION SELECT 1) s JOIN storage_life l ON l.process = e.process
            AND l.number = iif(s.is_write, e.id, e.requested) AND l.seq < e.seq AND coalesce(l.other, 9e9) > e.seq
        WHERE e.kind IN ('copy', 'cast', 'transfer'))
    SELECT * FROM direct UNION ALL SELECT d.seq, d.ts_ns, b.base, d.is_write FROM direct d
        JOIN storage_base b ON b.seq = d.storage JOIN storage_life l ON l.seq = b.base
        WHERE coalesce(l.other, 9e9) > d.seq;
CREATE INDEX storage_use_storage ON storage_use(storage);
CREATE TABLE storage AS SELECT l.number, CASE WHEN l.kind = 'view' THEN 2 ELSE coalesce((SELECT iif(s.kind = 'share', 3,
            4) FROM e s WHERE s.process = l.process AND s.id = l.number AND s.kind IN ('share', 'map') AND s.seq > l.seq
            AND s.seq < coalesce(l.other, 9e9) ORDER BY s.seq DESC LIMIT 1), 1) END AS kind,
        o.arg & 255 AS dtype, e.addr, e.size, CASE WHEN l.kind <> 'view' THEN e.requested WHEN b.base > 0 THEN
            coalesce(e.size / t.bytes, 0) END AS elements, e.callsite AS callsite_id, e.thread AS thread_id,
        e.process AS process_id, e.pid, e.tid, e.seq AS create_seq, e.ts_ns AS create_ns, l.other AS destroy_seq,
        d.ts_ns AS destroy_ns, iif(o.arg >> 8 <> 0, o.device, NULL) AS device,
        (SELECT a.id FROM allocation a WHERE a.domain = 4 AND a.process_id = o.process AND o.arg >> 8 <> 0
            AND a.device = o.device AND a.addr <= o.addr AND a.addr + a.size > o.addr AND a.alloc_seq < o.seq
            AND coalesce(a.free_completed_seq, 9e9) > o.seq) AS allocation_id,
        b.base AS base_seq, (SELECT max(ts_ns) FROM storage_use u WHERE u.storage = l.seq) AS last_use_ns,
        (SELECT count(*) FROM storage_use u WHERE u.storage = l.seq AND is_write) AS writes,
        (SELECT count(*) FROM storage_use u WHERE u.storage = l.seq AND NOT is_write) AS reads,
        k.seq AS leak_seq, k.cause_code AS leak_cause, k.requested AS leak_references
    FROM storage_life l JOIN e ON e.seq = l.seq LEFT JOIN e d ON d.seq = l.other
        LEFT JOIN storage_base b ON b.seq = l.seq
        LEFT JOIN e o ON o.seq = iif(l.kind = 'view', b.base, l.seq) LEFT JOIN trace.element_type t
            ON t.code = o.arg & 255
        LEFT JOIN e k ON k.seq = (SELECT max(s.seq) FROM e s WHERE s.process = l.process AND s.id = l.number
            AND s.kind = 'leak' AND s.seq > l.seq AND s.seq < coalesce(l.other, 9e9))
            AND NOT EXISTS (SELECT 1 FROM storage_use u WHERE u.storage = l.seq AND u.seq > k.seq);
ALTER TABLE storage ADD COLUMN id INTEGER;
UPDATE storage SET id = (SELECT count(*) FROM storage s WHERE s.create_seq <= storage.create_seq);
ALTER TABLE storage ADD COLUMN base_id INTEGER;
UPDATE storage SET base_id = (SELECT s.id FROM storage s WHERE s.create_seq = storage.base_seq);

---- phases: like brackets; an end that nothing began is no end

CREATE TABLE mark_depth AS SELECT *, depth - min(0, min(depth) OVER w) AS level FROM (SELECT *,
        sum(iif(kind = 'mark_begin', 1, -1)) OVER w AS depth FROM e WHERE kind IN ('mark_begin', 'mark_end')
        WINDOW w AS (PARTITION BY process, text ORDER BY seq))
    WINDOW w AS (PARTITION BY process, text ORDER BY seq);
CREATE TABLE mark AS SELECT row_number() OVER (ORDER BY begin_seq) AS id, m.*, e.ts_ns AS end_ns FROM (
    SELECT b.process AS process_id, b.pid, b.tid, b.seq AS begin_seq, b.ts_ns AS begin_ns, b.text AS name,
        (SELECT min(n.seq) FROM mark_depth n WHERE n.process = b.process AND n.text = b.text AND n.seq > b.seq
            AND n.level < b.level) AS end_seq
    FROM mark_depth b WHERE b.kind = 'mark_begin') m LEFT JOIN e ON e.seq = m.end_seq;

---- rematerialization

CREATE TABLE step AS SELECT *, sum(kind = 'op' OR (kind = 'remat' AND cause <> 'collateral'))
    OVER (PARTITION BY process ORDER BY seq) AS runs FROM e WHERE grp = 'remat';
-- A number that is of another operator or size is another storage.
CREATE TABLE deed AS SELECT *, sum(is_new) OVER (PARTITION BY process, id ORDER BY seq) AS turn FROM (SELECT *,
        lag(pool || ' ' || size) OVER (PARTITION BY process, id ORDER BY seq) IS NOT pool || ' ' || size AS is_new
        FROM step WHERE kind IN ('evict', 'remat', 'pin', 'unpin') AND NOT failed);
CREATE TABLE again AS SELECT seq, kind,
        coalesce(kind = 'remat' AND before = 'evict' AND runs - then_runs <= 16, 0) AS is_wasted
    FROM (
    SELECT seq, kind, runs, lag(kind) OVER w AS before, lag(runs) OVER w AS then_runs FROM deed
        WHERE kind IN ('evict', 'remat') WINDOW w AS (PARTITION BY process, id, turn ORDER BY seq));
CREATE UNIQUE INDEX again_seq ON again(seq);
CREATE TABLE remat_event AS SELECT s.seq, s.kind_code AS kind, coalesce(a.is_wasted, 0) AS is_wasted
    FROM step s LEFT JOIN again a USING (seq);
CREATE TABLE remat_storage_stat AS SELECT row_number() OVER (ORDER BY min(d.seq)) AS id, process AS process_id,
        d.id AS number, pool AS operator, size, sum(d.kind = 'evict') AS evictions,
        sum(d.kind = 'remat' AND cause = 'direct') AS remats,
        sum(d.kind = 'remat' AND cause = 'collateral') AS collateral,
        sum(iif(d.kind = 'remat', arg, 0)) AS remat_ns, sum(coalesce(a.is_wasted, 0)) AS wasted,
        max(iif(d.kind IN ('evict', 'remat'), 2 * d.seq + (d.kind = 'evict'), 0)) & 1 AS is_evicted,
        max(iif(d.kind IN ('pin', 'unpin'), 2 * d.seq + (d.kind = 'pin'), 0)) & 1 AS is_pinned
    FROM deed d LEFT JOIN again a USING (seq) GROUP BY process, d.id, turn;
-- What was in the way is said after the failure.
CREATE TABLE blocked AS SELECT * FROM (SELECT *, max(iif(kind = 'budget' AND failed, seq, 0)) OVER (PARTITION BY process
    ORDER BY seq) AS failure FROM step) WHERE kind = 'pin' AND failed AND failure > 0;
CREATE TABLE operator_stat AS SELECT process AS process_id, number, max(substr(name, 9)) AS name,
        sum(kind = 'op') AS runs, sum(iif(kind = 'op', arg, 0)) AS run_ns,
        sum(iif(kind = 'op', requested, 0)) AS input_bytes, sum(iif(kind = 'op', size, 0)) AS output_bytes,
        sum(kind = 'remat' AND cause = 'direct') AS remats, sum(kind = 'remat' AND cause = 'collateral') AS collateral,
        sum(iif(kind = 'remat', arg, 0)) AS remat_ns, max(iif(kind = 'remat', requested, 0)) AS depth_max,
        sum(coalesce(is_wasted, 0)) AS wasted
    FROM (SELECT s.*, a.is_wasted, iif(s.kind = 'op_name', s.id, s.pool) AS number,
            CASE WHEN s.kind = 'op_name' THEN printf('%08d', s.seq) || s.text END AS name
        FROM step s LEFT JOIN again a USING (seq) WHERE CASE WHEN s.kind = 'budget' THEN s.failed
            WHEN s.kind = 'pin' AND s.failed THEN s.seq IN (SELECT seq FROM blocked) ELSE 1 END)
    GROUP BY 1, 2;
CREATE TABLE eviction_stat AS SELECT process AS process_id, pool AS operator, cause_code AS cause,
    count(*) AS evictions, sum(size) AS bytes FROM step WHERE kind = 'evict' GROUP BY 1, 2, 3;
CREATE TABLE remat_budget AS SELECT seq, ts_ns, process AS process_id, nullif(size, -1) AS budget FROM step
    WHERE kind = 'budget' AND NOT failed;
CREATE TABLE remat_failure_stat AS SELECT seq, ts_ns, process AS process_id, id AS op_id, pool AS operator,
        size AS needed, (SELECT b.budget FROM remat_budget b WHERE b.process_id = step.process AND b.seq < step.seq
            ORDER BY b.seq DESC LIMIT 1) AS budget, arg AS blocked FROM step WHERE kind = 'budget' AND failed;
CREATE TABLE remat_blocked_stat AS SELECT failure AS failure_seq, pool AS operator, cause_code AS cause,
    count(*) AS storages, sum(size) AS bytes FROM blocked GROUP BY 1, 2, 3;
CREATE TABLE op AS SELECT seq, ts_ns, id, arg AS cost_ns, requested AS input_bytes, size AS output_bytes,
    callsite AS callsite_id, process AS process_id, pid FROM step WHERE kind = 'op';
CREATE TABLE eviction AS SELECT seq, process AS process_id, id AS number, nullif(addr, 0) AS addr, size,
    requested AS clock_ns, score, cause FROM step WHERE kind = 'evict';
CREATE TABLE rematerialization AS SELECT seq, process AS process_id, id AS number, nullif(addr, 0) AS addr, size,
    requested AS depth, arg AS cost_ns, is_wasted, cause FROM step JOIN again USING (seq) WHERE step.kind = 'remat';

---- segments by the events that name them; allocators that say nothing of splits name none

CREATE TABLE segment AS WITH flow AS (SELECT t.id, e.seq, e.kind, e.cause_code, sum(iif(e.kind IN ('segment_alloc',
        'segment_map'), e.size, -e.size)) OVER (PARTITION BY t.id ORDER BY e.seq) AS mapped
    FROM e JOIN trace.event t USING (seq)
    WHERE e.kind IN ('segment_alloc', 'segment_free', 'segment_map', 'segment_unmap'))
    SELECT id, max(mapped) AS size, min(seq) AS alloc_seq, max(iif(mapped = 0, seq, NULL)) AS free_seq,
        max(iif(mapped = 0, cause_code, NULL)) AS cause, max(kind IN ('segment_map', 'segment_unmap')) AS is_expandable
    FROM flow GROUP BY id;

---- what must hold of the database by itself: no rows

CREATE TABLE wrong AS SELECT 'block without its segment' AS what, a.id FROM trace.allocation a
        LEFT JOIN trace.segment s ON s.id = a.segment_id WHERE a.domain = 4
            AND EXISTS (SELECT 1 FROM trace.event)
            AND (s.id IS NULL OR s.alloc_seq > a.alloc_seq OR s.addr > a.addr OR s.free_seq < a.alloc_seq)
    UNION ALL SELECT 'split or merge outside of its segment', b.seq FROM trace.block_op b
        LEFT JOIN trace.segment s ON s.id = b.segment_id WHERE (s.id IS NULL OR b.addr < s.addr OR b.seq < s.alloc_seq
            OR b.seq > s.free_seq OR b.other_size IS NULL)
            -- what is mapped in front of a free block merges with it first
            AND NOT EXISTS (SELECT 1 FROM e m WHERE m.seq = b.seq + 1 AND m.kind = 'segment_map' AND m.addr = b.addr)
    UNION ALL SELECT 'sums of operators', process_id FROM (
        SELECT process_id, runs, run_ns, remats, collateral, remat_ns, evictions, evicted_bytes, wasted
        FROM trace.remat_total EXCEPT SELECT process_id, sum(runs), sum(run_ns), sum(remats), sum(collateral),
            sum(remat_ns), sum(evictions), sum(evicted_bytes), sum(wasted)
            FROM trace.operator_total GROUP BY process_id)
    UNION ALL SELECT 'sums of evictions', process_id FROM (
        SELECT process_id, sum(evictions), sum(bytes) FROM trace.eviction_total GROUP BY process_id
        EXCEPT SELECT process_id, evictions, evicted_bytes FROM trace.remat_total)
    UNION ALL SELECT 'sums of storages', process_id FROM (
        SELECT process_id, sum(evictions), sum(remats), sum(collateral), sum(remat_ns), sum(wasted)
        FROM trace.remat_storage GROUP BY process_id
        EXCEPT SELECT process_id, evictions, remats, collateral, remat_ns, wasted FROM trace.remat_total)
    UNION ALL SELECT 'evictions by cause', process_id FROM (
        SELECT process_id, cause, count(*), sum(size) FROM trace.eviction GROUP BY process_id, cause
        EXCEPT SELECT process_id, cause, evictions, bytes FROM trace.eviction_total)
    UNION ALL SELECT 'greatest depth', process_id FROM (
        SELECT process_id, max(depth) FROM trace.rematerialization GROUP BY process_id
        EXCEPT SELECT process_id, depth_max FROM trace.remat_total);

---- rows name call sites as they are put together

UPDATE allocation SET callsite_id = coalesce((SELECT target FROM joined WHERE callsite = callsite_id), callsite_id);
UPDATE storage SET callsite_id = coalesce((SELECT target FROM joined WHERE callsite = callsite_id), callsite_id);
