-- SPDX-License-Identifier: Apache-2.0
-- Statements of this folder, each after the name of its constant in C; codes as cmake/EmbedText.cmake has them.

-- statement sql_ctf_result
-- The figures of struct ctf_import_result.
SELECT (SELECT count(*) FROM event), s.lost, t.uncommitted, (SELECT processes FROM recording), t.threads,
    (SELECT count(*) FROM allocation), s.events, s.packets, s.uncounted, s.unknown, s.other
    FROM (SELECT count(*) AS threads, sum(uncommitted) AS uncommitted FROM thread) t,
    (SELECT sum(value) FILTER (WHERE name IN ('events_lost', 'events_unattached')) AS lost,
    max(value) FILTER (WHERE name = 'lttng_events_discarded') AS events,
    max(value) FILTER (WHERE name = 'lttng_packets_discarded') AS packets,
    max(value) FILTER (WHERE name = 'lttng_discards_of_unknown_size') AS uncounted,
    max(value) FILTER (WHERE name = 'ctf_unknown_events') AS unknown,
    max(value) FILTER (WHERE name = 'ctf_other_events') AS other FROM stats) s

-- statement sql_nsight_no_tables
SELECT name FROM sqlite_schema WHERE (type = 'view' OR (type = 'table' AND coalesce(rootpage, 0) = 0)) AND name COLLATE
    NOCASE IN ('CUDA_GPU_MEMORY_USAGE_EVENTS', 'CUPTI_ACTIVITY_KIND_RUNTIME', 'CUDA_CALLCHAINS', 'StringIds',
    'PROCESSES', 'TARGET_INFO_CUDA_DEVICE', 'TARGET_INFO_GPU', 'ENUM_CUDA_MEM_KIND', 'ENUM_CUDA_DEV_MEM_EVENT_OPER')

-- statement sql_nsight_chain_with_modules
SELECT s.value, m.value FROM CUDA_CALLCHAINS c LEFT JOIN StringIds s ON s.id = c.symbol LEFT JOIN StringIds m ON m.id =
    c.module WHERE c.id = ?1 ORDER BY c.stackDepth

-- statement sql_nsight_chain
SELECT s.value, NULL FROM CUDA_CALLCHAINS c LEFT JOIN StringIds s ON s.id = c.symbol WHERE c.id = ?1 ORDER BY
    c.stackDepth
