-- SPDX-License-Identifier: Apache-2.0
-- What was found (diff_events.sql), in the words and lines that people read.

CREATE TEMP VIEW verdict_line AS
    SELECT 0 AS place, CASE WHEN is_equal THEN printf('equal: %,d event%s in %,d ring%s', in_both,
            CASE in_both WHEN 1 THEN '' ELSE 's' END, rings, CASE rings WHEN 1 THEN '' ELSE 's' END)
        ELSE printf('differ: %,d event%s only in A, %,d only in B; of %,d in both %,d %s', only_in_a,
            CASE only_in_a WHEN 1 THEN '' ELSE 's' END, only_in_b, in_both, differing,
            CASE differing WHEN 1 THEN 'differs' ELSE 'differ' END) END AS line FROM verdict
    UNION ALL SELECT 1, printf('        %,d could not be compared', unkeyed) FROM verdict WHERE unkeyed > 0
    UNION ALL SELECT 2, '        processes and threads differ' FROM verdict WHERE with_tables AND tables_all > 0;

CREATE TEMP VIEW trace_line AS
    SELECT side, 0 AS place, printf('%,d event%s stand%s for %,d that the program dropped', lost_rows,
        CASE lost_rows WHEN 1 THEN '' ELSE 's' END, CASE lost_rows WHEN 1 THEN 's' ELSE '' END, lost_events) AS line
    FROM trace WHERE lost_rows > 0
    UNION ALL SELECT side, 1, printf('%,d row%s without a number stand%s for %,d missing events', gap_rows,
        CASE gap_rows WHEN 1 THEN '' ELSE 's' END, CASE gap_rows WHEN 1 THEN 's' ELSE '' END, gap_events)
    FROM trace WHERE gap_rows > 0
    UNION ALL SELECT side, 2, printf('%,d not compared: they have no number (ring_seq is NULL)', without_number)
    FROM trace WHERE without_number > 0
    UNION ALL SELECT side, 3, printf('%,d not compared: the table thread has no row for them', without_thread)
    FROM trace WHERE without_thread > 0
    UNION ALL SELECT side, 4, printf('%,d not compared: their numbers do not grow with seq', out_of_order)
    FROM trace WHERE out_of_order > 0;

CREATE TEMP VIEW callsite_line AS
    SELECT printf('  (%,d call site%s with other frames, %,d with the same)', callsites_differing,
        CASE callsites_differing WHEN 1 THEN '' ELSE 's' END, callsites) AS line
    FROM verdict WHERE callsites_differing > 0;

-- The lines above the two lists, with the empty one before them.
CREATE TEMP VIEW list_line AS
    SELECT name, char(10) || printf('%,d difference%s%s', count, CASE count WHEN 1 THEN '' ELSE 's' END, subject)
        || CASE WHEN differences < count THEN printf(', the first %,d', differences) ELSE '' END || remark AS line
    FROM (SELECT 'listed' AS name, differences_all AS count, '' AS subject, differences, '' AS remark FROM verdict
        UNION ALL SELECT 'remark', tables_all, ' of processes and threads', differences,
            CASE WHEN with_tables THEN '' ELSE ' (no part of the verdict without --tables)' END FROM verdict)
    WHERE count > 0;

CREATE TEMP VIEW listed_head AS
    SELECT rowid AS place, printf('  process %d ring %d: %,d', process_id, ring, first)
        || CASE what WHEN 'differing' THEN printf(' %s differs (row %,d in A, %,d in B)', coalesce(kind, 'NULL'), seq_a,
            seq_b) ELSE '' END AS head
    FROM listed;
-- What is said of a run of events behind that, in pieces between which a line may end.
CREATE TEMP VIEW listed_piece AS
    SELECT rowid AS place, -3 AS number, printf('to %,d', last) AS piece FROM listed WHERE last > first
    UNION ALL SELECT rowid, -2, CASE side WHEN 0 THEN 'only in A' ELSE 'only in B' END FROM listed
        WHERE side IS NOT NULL
    UNION ALL SELECT rowid, -1, printf('(%,d events:', last - first + 1) FROM listed WHERE last > first
    UNION ALL SELECT l.rowid, k.first, CASE WHEN l.last = l.first THEN printf('(%s)', k.kind)
            ELSE printf('%s %,d%s', k.kind, k.events,
                CASE k.first WHEN (SELECT max(first) FROM run_kind WHERE place = l.rowid) THEN ')' ELSE ',' END) END
        FROM listed l JOIN run_kind k ON k.place = l.rowid;

CREATE TEMP VIEW remark_line AS
    SELECT rowid AS place, '  process ' || process_id || coalesce(' ring ' || ring, '')
        || coalesce(': ' || "column", printf(' (pid %s): only in %s', a, upper(only_in))) AS head,
        "column" IS NULL AS is_alone, coalesce(a, 'NULL') AS a, coalesce(b, 'NULL') AS b
    FROM remark;
