-- SPDX-License-Identifier: Apache-2.0
-- Events with equal keys (diff_keys.sql) beside each other, what differs between them, and what only one side has. Row
-- numbers (id, callsite_id) need not be equal but must belong together one to one; of call sites the frames must be
-- equal. The table wanted, of one row, says how many differences are listed, and whether what differs of processes and
-- threads is a difference too.

-- What is compared, and how it is called; `number` is its bit in `fields`.
CREATE TABLE field(number INTEGER PRIMARY KEY, name TEXT);
INSERT INTO field VALUES (0, 'ts_ns'), (1, 'pid'), (2, 'tid'), (3, 'device'), (4, 'dev_seq'), (5, 'kind'),
    (6, 'stream'), (7, 'pool'), (8, 'id'), (9, 'addr'), (10, 'size'), (11, 'requested'), (12, 'arg'), (13, 'cause'),
    (14, 'callsite_id'), (15, 'flags'), (16, 'frames');

-- Row numbers are paired as number * 4 + family, of 3: call sites with equal frames, 0: call sites that met although
-- their frames differ. What is far above the count of rows is no row number. id_a, id_b: NULL if these must be equal;
-- same_stack: 1 if the call sites are to be paired, 0 if their frames differ, NULL if the numbers must be equal.
CREATE TABLE row_limit AS SELECT 4 * sum(events) + 1048576 AS numbers FROM trace;
CREATE TABLE met(seq INTEGER PRIMARY KEY, seq_b INTEGER, key INTEGER, kind INTEGER, fields INTEGER, id_a INTEGER,
    id_b INTEGER, callsite_a INTEGER, callsite_b INTEGER, same_stack INTEGER);
INSERT INTO met
    SELECT x.seq, y.seq, k.key, x.kind,
        ((x.id IS NOT y.id) << 8) | ((x.callsite_id IS NOT y.callsite_id) << 14) |
        CASE WHEN x.ts_ns IS y.ts_ns AND x.pid IS y.pid AND x.tid IS y.tid AND x.device IS y.device
            AND x.dev_seq IS y.dev_seq AND x.kind IS y.kind AND x.stream IS y.stream AND x.pool IS y.pool
            AND x.addr IS y.addr AND x.size IS y.size AND x.requested IS y.requested AND x.arg IS y.arg
            AND x.cause IS y.cause AND x.flags IS y.flags THEN 0
        ELSE (x.ts_ns IS NOT y.ts_ns) | ((x.pid IS NOT y.pid) << 1) | ((x.tid IS NOT y.tid) << 2)
            | ((x.device IS NOT y.device) << 3) | ((x.dev_seq IS NOT y.dev_seq) << 4) | ((x.kind IS NOT y.kind) << 5)
            | ((x.stream IS NOT y.stream) << 6) | ((x.pool IS NOT y.pool) << 7) | ((x.addr IS NOT y.addr) << 9)
            | ((x.size IS NOT y.size) << 10) | ((x.requested IS NOT y.requested) << 11) | ((x.arg IS NOT y.arg) << 12)
            | ((x.cause IS NOT y.cause) << 13) | ((x.flags IS NOT y.flags) << 15) END,
        CASE WHEN x.id BETWEEN 1 AND n.numbers - 1 AND y.id BETWEEN 1 AND n.numbers - 1 AND (x.kind IS y.kind
            OR f.family = (SELECT g.family FROM kind g WHERE g.code = y.kind)) THEN x.id * 4 + f.family END,
        y.id * 4 + f.family, x.callsite_id * 4 + 3, y.callsite_id * 4 + 3,
        CASE WHEN x.callsite_id = 0 OR y.callsite_id = 0 OR x.callsite_id IS NULL OR y.callsite_id IS NULL THEN NULL
            WHEN s.stack IS NOT t.stack THEN 0
            WHEN x.callsite_id BETWEEN 1 AND n.numbers - 1 AND y.callsite_id BETWEEN 1 AND n.numbers - 1 THEN 1 END
    FROM row_limit n CROSS JOIN event_a x CROSS JOIN key_a k ON k.key = (x.ring << 40) + x.number AND k.seq = x.seq
        CROSS JOIN key_b l ON l.key = k.key CROSS JOIN event_b y ON y.seq = l.seq
        LEFT JOIN kind f ON f.code = x.kind
        LEFT JOIN stack_a s ON s.callsite_id = x.callsite_id LEFT JOIN stack_b t ON t.callsite_id = y.callsite_id
    ORDER BY x.seq;

-- In the order of A: two numbers are a pair from the row `since` on if neither was in one before. Of two pairs that
-- contradict each other the later one is the wrong one, and gets no row.
CREATE TABLE pair(a INTEGER PRIMARY KEY, b INTEGER UNIQUE, since INTEGER);
INSERT OR IGNORE INTO pair SELECT id_a, id_b, seq FROM met WHERE id_a IS NOT NULL ORDER BY seq;
INSERT OR IGNORE INTO pair SELECT callsite_a, callsite_b, seq FROM met WHERE same_stack = 1 ORDER BY seq;
INSERT OR IGNORE INTO pair SELECT callsite_a - 3, callsite_b - 3, seq FROM met CROSS JOIN row_limit
    WHERE same_stack = 0 AND callsite_a BETWEEN 4 AND numbers * 4 - 1 AND callsite_b BETWEEN 4 AND numbers * 4 - 1
    ORDER BY seq;

CREATE TABLE differing AS
    SELECT * FROM (SELECT seq, seq_b, key, kind, fields & ~16640
            | CASE WHEN id_a IS NULL THEN fields & 256
                WHEN EXISTS (SELECT 1 FROM pair WHERE a = id_a AND b = id_b) THEN 0 ELSE 256 END
            | CASE WHEN same_stack IS NULL THEN fields & 16384
                WHEN same_stack THEN
                    CASE WHEN EXISTS (SELECT 1 FROM pair WHERE a = callsite_a AND b = callsite_b) THEN 0 ELSE 16384 END
                WHEN EXISTS (SELECT 1 FROM pair WHERE a = callsite_a AND since < seq)
                    OR EXISTS (SELECT 1 FROM pair WHERE b = callsite_b AND since < seq) THEN 65536 | 16384
                ELSE 65536 END AS fields
        FROM met) WHERE fields <> 0;

-- Events of one side; those whose numbers follow one another are one run.
CREATE TABLE alone(side INTEGER, run INTEGER, key INTEGER, seq INTEGER, kind INTEGER, PRIMARY KEY(side, run, key))
    WITHOUT ROWID;
INSERT INTO alone SELECT 0, key - row_number() OVER (ORDER BY key), key, seq, kind FROM key_a
    WHERE key NOT IN (SELECT key FROM key_b);
INSERT INTO alone SELECT 1, key - row_number() OVER (ORDER BY key), key, seq, kind FROM key_b
    WHERE key NOT IN (SELECT key FROM key_a);

-- Figures by kind, in the order of their codes, and by field.
CREATE TABLE kind_total AS
    SELECT coalesce(k.name, 'unknown') AS kind, sum(in_both) AS in_both, sum(only_in_a) AS only_in_a,
        sum(only_in_b) AS only_in_b, sum(differing) AS differing
    FROM (SELECT kind, count(*) AS in_both, 0 AS only_in_a, 0 AS only_in_b, 0 AS differing FROM met GROUP BY kind
        UNION ALL SELECT kind, 0, sum(side = 0), sum(side = 1), 0 FROM alone GROUP BY kind
        UNION ALL SELECT kind, 0, 0, 0, count(*) FROM differing GROUP BY kind) t LEFT JOIN kind k ON k.code = t.kind
    GROUP BY k.code ORDER BY k.code IS NULL, k.code;
CREATE TABLE field_total AS
    SELECT f.name, sum(d.events) AS events
    FROM field f JOIN (SELECT fields, count(*) AS events FROM differing GROUP BY fields) d ON d.fields >> f.number & 1
    GROUP BY f.number ORDER BY f.number;

-- ---- the list ----

CREATE TABLE listed AS
    SELECT CASE what WHEN 0 THEN 'only_in_a' WHEN 1 THEN 'only_in_b' ELSE 'differing' END AS what, r.process_id, r.ring,
        first, last, coalesce(k.name, d.kind) AS kind, seq AS seq_a, seq_b, seq, fields, side, run
    FROM (SELECT side AS what, min(key) AS key, min(key) & 1099511627775 AS first, max(key) & 1099511627775 AS last,
            min(seq) AS seq, NULL AS seq_b, NULL AS kind, 0 AS fields, side, run FROM alone GROUP BY side, run
        UNION ALL
        SELECT 2, key, key & 1099511627775, key & 1099511627775, seq, seq_b, kind, fields, NULL, NULL FROM differing
        ORDER BY 5, 1, 3 LIMIT (SELECT differences FROM wanted)) d
        JOIN ring r ON r.id = d.key >> 40 LEFT JOIN kind k ON k.code = d.kind
    ORDER BY d.seq, d.what, d.first;
-- Of a run, in the order in which they come; `place` is that in the list.
CREATE TABLE run_kind(place INTEGER, first INTEGER, kind TEXT, events INTEGER, PRIMARY KEY(place, first)) WITHOUT ROWID;
INSERT INTO run_kind
    SELECT l.rowid, min(a.key), coalesce(k.name, 'unknown'), count(*)
    FROM listed l CROSS JOIN alone a ON a.side = l.side AND a.run = l.run LEFT JOIN kind k ON k.code = a.kind
    GROUP BY l.rowid, k.code;

-- Of events that differ: what differs as it is (kinds and causes by name), and as people read it.
CREATE TABLE shown AS
    SELECT 0 AS side, l.rowid AS place, l.seq AS since, l.fields, e.*
        FROM listed l CROSS JOIN event_a e ON e.seq = l.seq WHERE what = 'differing'
    UNION ALL SELECT 1, l.rowid, l.seq, l.fields, e.* FROM listed l CROSS JOIN event_b e ON e.seq = l.seq_b
        WHERE what = 'differing';
CREATE TABLE shown_value(side INTEGER, place INTEGER, number INTEGER, field TEXT, value, text TEXT, family INTEGER,
    row_number INTEGER, since INTEGER, PRIMARY KEY(place, number, side)) WITHOUT ROWID;
INSERT INTO shown_value
    SELECT side, place, number, field, value,
        CASE WHEN value IS NULL THEN 'NULL'
            WHEN is_address THEN printf('0x%llx', value)
            WHEN field = 'flags' THEN value || CASE WHEN value & 1 THEN ' failed' ELSE '' END
                || CASE WHEN value & 2 THEN ' nested' ELSE '' END || CASE WHEN value & 4 THEN ' late' ELSE '' END
            ELSE value END, family, row_number, since
    FROM (SELECT s.side, s.place, s.since, f.number, f.name AS field,
            CASE f.name WHEN 'ts_ns' THEN s.ts_ns WHEN 'pid' THEN s.pid
                WHEN 'tid' THEN s.tid WHEN 'device' THEN s.device WHEN 'dev_seq' THEN s.dev_seq
                WHEN 'kind' THEN coalesce(k.name, s.kind) WHEN 'stream' THEN s.stream WHEN 'pool' THEN s.pool
                WHEN 'id' THEN s.id WHEN 'addr' THEN s.addr WHEN 'size' THEN s.size
                WHEN 'requested' THEN CAST(s.requested AS INTEGER)
                WHEN 'arg' THEN s.arg WHEN 'cause' THEN coalesce(c.text, s.cause) WHEN 'flags' THEN s.flags
                ELSE s.callsite_id END AS value,
            CASE f.name WHEN 'addr' THEN coalesce(k.addr_is_address, 1) WHEN 'arg' THEN k.arg_is_address END
                AS is_address,
            CASE f.name WHEN 'id' THEN k.family WHEN 'callsite_id' THEN 3 END AS family,
            CASE f.name WHEN 'id' THEN s.id * 4 + k.family WHEN 'callsite_id' THEN s.callsite_id * 4 + 3 END
                AS row_number
        FROM shown s JOIN field f ON s.fields >> f.number & 1 LEFT JOIN kind k ON k.code = s.kind
            LEFT JOIN cause c ON c.code = s.cause);
-- a_belongs_to: what the row number of A was in B before. note: which pair contradicts this one.
CREATE TEMP VIEW detail AS
    SELECT place, number, field, a, b, a_belongs_to, b_belongs_to, text_a, text_b,
        CASE WHEN a_belongs_to IS NOT NULL THEN printf('  (%d in A was %d in B before)', a, a_belongs_to)
            WHEN b_belongs_to IS NOT NULL THEN printf('  (%d in B was %d in A before)', b, b_belongs_to)
            ELSE '' END AS note
    FROM (SELECT x.place, x.number, x.field, x.value AS a, y.value AS b, p.b >> 2 AS a_belongs_to,
            q.a >> 2 AS b_belongs_to, x.text AS text_a, y.text AS text_b
        FROM shown_value x JOIN shown_value y ON y.place = x.place AND y.number = x.number AND y.side = 1
            LEFT JOIN pair p ON p.a = x.row_number AND x.family = y.family AND p.since <= x.since
            LEFT JOIN pair q ON q.b = y.row_number AND x.family = y.family AND q.since <= x.since
        WHERE x.side = 0);

-- Of call sites whose frames differ, each word of each frame; and the first frame that differs, or how many there are.
CREATE TABLE shown_word(side INTEGER, callsite_id INTEGER, depth INTEGER, number INTEGER, name TEXT, word TEXT);
INSERT INTO shown_word
    SELECT side, callsite_id, depth, w.number, w.name, CASE w.name WHEN 'function' THEN function WHEN 'file' THEN file
        WHEN 'line' THEN coalesce(line, 0) WHEN 'module' THEN module
        WHEN 'pc' THEN CASE WHEN pc >= 0 THEN printf('0x%llx', pc) END
        WHEN 'is_python' THEN coalesce(is_python, 0) <> 0 ELSE coalesce(is_inlined, 0) <> 0 END
    FROM (SELECT 0 AS side, * FROM a.frame
            WHERE callsite_id IN (SELECT callsite_id FROM shown WHERE side = 0 AND fields >> 16 & 1)
        UNION ALL SELECT 1, * FROM b.frame
            WHERE callsite_id IN (SELECT callsite_id FROM shown WHERE side = 1 AND fields >> 16 & 1))
        CROSS JOIN (SELECT 0 AS number, 'function' AS name
            UNION ALL VALUES (1, 'file'), (2, 'line'), (3, 'module'), (4, 'pc'), (5, 'is_python'), (6, 'is_inlined')) w;
CREATE INDEX shown_word_of ON shown_word(callsite_id, side, depth, number);
CREATE TABLE met_stack(a INTEGER, b INTEGER, PRIMARY KEY(a, b)) WITHOUT ROWID;
INSERT OR IGNORE INTO met_stack SELECT x.value, y.value FROM shown_value x
    JOIN shown_value y ON y.place = x.place AND y.number = 16 AND y.side = 1 WHERE x.number = 16 AND x.side = 0;
CREATE TABLE differing_word(a INTEGER, b INTEGER, depth INTEGER, number INTEGER, name TEXT, word_a TEXT, word_b TEXT,
    PRIMARY KEY(a, b, depth, number)) WITHOUT ROWID;
INSERT INTO differing_word
    SELECT m.a, m.b, x.depth, x.number, x.name, x.word, y.word
    FROM met_stack m CROSS JOIN shown_word x ON x.side = 0 AND x.callsite_id = m.a
        CROSS JOIN shown_word y ON y.side = 1 AND y.callsite_id = m.b AND y.depth = x.depth AND y.number = x.number
    WHERE x.word IS NOT y.word;
CREATE TABLE stack_difference(a INTEGER, b INTEGER, number INTEGER, field TEXT, text_a TEXT, text_b TEXT,
    PRIMARY KEY(a, b, number)) WITHOUT ROWID;
INSERT INTO stack_difference
    SELECT w.a, w.b, w.number, printf('frame %d %s', w.depth, w.name), w.word_a, w.word_b
    FROM met_stack m CROSS JOIN differing_word w ON w.a = m.a AND w.b = m.b
        AND w.depth = (SELECT min(v.depth) FROM differing_word v WHERE v.a = m.a AND v.b = m.b);
INSERT INTO stack_difference
    SELECT a, b, 7, 'frames', count_a, count_b
    FROM (SELECT m.a, m.b,
            (SELECT count(*) FROM shown_word WHERE side = 0 AND callsite_id = m.a AND number = 0) AS count_a,
            (SELECT count(*) FROM shown_word WHERE side = 1 AND callsite_id = m.b AND number = 0) AS count_b
        FROM met_stack m) c
    WHERE count_a <> count_b OR NOT EXISTS (SELECT 1 FROM differing_word w WHERE w.a = c.a AND w.b = c.b);

-- ---- processes and threads ----

-- A trace may know less of its processes than another and yet hold every event. Values are compared as text; number 0
-- is of the row as a whole.
CREATE TABLE cell_name(position INTEGER, number INTEGER, name TEXT);
INSERT INTO cell_name VALUES (0, 0, NULL), (0, 1, 'pid'), (0, 2, 'parent_pid'), (0, 3, 'parent_id'), (0, 4, 'rank'),
    (0, 5, 'executable'), (0, 6, 'command_line'), (1, 0, NULL), (1, 1, 'pid'), (1, 2, 'tid'), (1, 3, 'name'),
    (1, 4, 'emitted'), (1, 5, 'lost');
CREATE TABLE cell(side INTEGER, position INTEGER, process_id INTEGER, ring INTEGER, number INTEGER, name TEXT,
    value TEXT);
INSERT INTO cell
    SELECT side, position, id, -1, number, name, CAST(CASE name WHEN 'parent_pid' THEN parent_pid
        WHEN 'parent_id' THEN parent_id WHEN 'rank' THEN rank WHEN 'executable' THEN executable
        WHEN 'command_line' THEN command_line ELSE pid END AS TEXT)
    FROM (SELECT 0 AS side, id, pid, parent_pid, parent_id, rank, executable, command_line FROM a.process UNION ALL
        SELECT 1, id, pid, parent_pid, parent_id, rank, executable, command_line FROM b.process)
        JOIN cell_name ON position = 0;
INSERT INTO cell
    SELECT side, position, process_id, ring, number, n.name, CAST(CASE n.name WHEN 'tid' THEN tid
        WHEN 'name' THEN t.name WHEN 'emitted' THEN emitted WHEN 'lost' THEN lost ELSE pid END AS TEXT)
    FROM (SELECT 0 AS side, process_id, ring, pid, tid, name, emitted, lost FROM a.thread UNION ALL
        SELECT 1, process_id, ring, pid, tid, name, emitted, lost FROM b.thread) t JOIN cell_name n ON position = 1;
CREATE INDEX cell_of ON cell(process_id, ring, position, number, side);
CREATE TABLE remark AS
    SELECT CASE position WHEN 0 THEN 'process' ELSE 'thread' END AS "table", process_id,
        CASE WHEN w.ring >= 0 THEN w.ring END AS ring,
        CASE side WHEN 0 THEN 'a' WHEN 1 THEN 'b' END AS only_in, name AS "column", a, b
    FROM (SELECT x.position, x.process_id, x.ring, x.number, x.name, NULL AS side, x.value AS a, y.value AS b
            FROM cell x JOIN cell y ON y.side = 1 AND y.process_id = x.process_id AND y.ring = x.ring
                AND y.position = x.position AND y.number = x.number
            WHERE x.side = 0 AND x.number > 0 AND x.value IS NOT y.value
        UNION ALL SELECT position, process_id, ring, 0, NULL, side, value, value FROM cell x
            WHERE number = 0 AND NOT EXISTS (SELECT 1 FROM cell y WHERE y.side = 1 - x.side
                AND y.process_id = x.process_id AND y.ring = x.ring AND y.position = x.position AND y.number = 0)) w
    ORDER BY position, process_id, w.ring, number;

-- ---- the verdict ----

-- run: are these traces of one run? unkeyed: events that could not be compared.
CREATE TABLE verdict AS
    SELECT differences_all = 0 AND unkeyed = 0 AND (NOT with_tables OR tables_all = 0) AS is_equal, *
    FROM (SELECT CASE WHEN m.a IS NULL OR m.b IS NULL THEN 'unknown' WHEN m.a = m.b THEN 'same' ELSE 'other' END AS run,
            (SELECT count(*) FROM ring r WHERE
                EXISTS (SELECT 1 FROM key_a WHERE key BETWEEN r.id << 40 AND (r.id << 40) + 1099511627775) OR
                EXISTS (SELECT 1 FROM key_b WHERE key BETWEEN r.id << 40 AND (r.id << 40) + 1099511627775)) AS rings,
            coalesce(sum(in_both), 0) AS in_both, coalesce(sum(only_in_a), 0) AS only_in_a,
            coalesce(sum(only_in_b), 0) AS only_in_b, coalesce(sum(differing), 0) AS differing,
            (SELECT sum(without_number + without_thread + out_of_order) FROM trace) AS unkeyed,
            (SELECT count(*) FROM pair WHERE a & 3 = 3) AS callsites,
            (SELECT count(*) FROM pair WHERE a & 3 = 0) AS callsites_differing,
            (SELECT count(*) FROM differing)
                + (SELECT count(*) FROM (SELECT DISTINCT side, run FROM alone)) AS differences_all,
            (SELECT count(*) FROM remark) AS tables_all
        FROM (SELECT (SELECT CAST(value AS TEXT) FROM a.meta WHERE key = 'trace_id') AS a,
                (SELECT CAST(value AS TEXT) FROM b.meta WHERE key = 'trace_id') AS b) m LEFT JOIN kind_total)
        CROSS JOIN wanted;
