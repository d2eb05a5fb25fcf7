-- SPDX-License-Identifier: Apache-2.0
-- Statements of this folder, each after the name of its constant in C; codes as cmake/EmbedText.cmake has them.

-- statement sql_top_line_total
-- Lines of the user's code: those of its call sites that lead, added up; callsite_id: one of them.
CREATE TEMP VIEW line_total AS SELECT domain, user_function, user_file, user_line, user_module, is_named,
    min(callsite_id) AS callsite_id, count(*) AS callsites, sum(allocations) AS allocations, sum(frees) AS frees,
    sum(bytes) AS bytes, sum(live_allocations) AS live_allocations, sum(live_bytes) AS live_bytes, sum(peak_allocations)
    AS peak_allocations, sum(peak_bytes) AS peak_bytes, sum(temporary) AS temporary, sum(allocations_per_s) AS
    allocations_per_s, sum(bytes_per_s) AS bytes_per_s FROM callsite_total GROUP BY domain, user_function, user_file,
    user_line, user_module, is_named, iif(is_named, 0, callsite_id)

-- statement sql_top_version
SELECT json_extract(?1, '$.varve_live'), json_extract(?1, '$.recording[0].number') WHERE json_valid(?1)

-- statement sql_top_recording
SELECT command, pid, duration_ns, events, events_per_s, waiting, lost, rss_bytes, processes, processes_running, threads
    FROM recording

-- statement sql_top_torch
INSERT INTO torch(age_ns, is_seen) VALUES (?1, ?2)

-- statement sql_top_torch_allocator
-- Of the database of an imported snapshot, as the next two. The process is the one that is attached to.
SELECT device, live_segments AS segments, live_reserved AS reserved, live_allocated AS allocated, (SELECT
    coalesce(sum(e.size), 0) FROM empty_segment e WHERE e.device = d.device) AS cached, 1.0 - CAST(live_allocated AS
    REAL) / live_reserved AS unused_share FROM device_segment d

-- statement sql_top_torch_callsite_total
SELECT callsite_id, domain, user_function, user_file, user_line, user_module, function, file, line, module, 1 AS
    is_named, live_allocations, live_bytes FROM callsite_total WHERE domain = 'block' AND live_allocations > 0

-- statement sql_top_torch_process
UPDATE allocator SET pid = (SELECT attached_pid FROM recording), rank = (SELECT p.rank FROM process_total p WHERE p.pid
    = (SELECT attached_pid FROM recording)) WHERE pid IS NULL

-- statement sql_top_torch_total
SELECT domain, device, live_allocations, live_bytes FROM total WHERE domain = 'block'
