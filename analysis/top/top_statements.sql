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
