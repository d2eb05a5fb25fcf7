-- SPDX-License-Identifier: Apache-2.0
-- Statements of this folder, each after the name of its constant in C; codes as cmake/EmbedText.cmake has them.

-- statement sql_page_live_moments
SELECT seq, ts_ns FROM (SELECT seq, ts_ns, 0 AS rank FROM peak_time UNION ALL
    SELECT seq, ts_ns, 1 FROM (SELECT seq, ts_ns FROM peak_time_process ORDER BY bytes DESC, domain LIMIT 40)
    UNION ALL SELECT (SELECT max(t.seq) FROM timeline t WHERE t.seq <= o.seq), o.ts_ns, 2 FROM
    (SELECT seq, ts_ns FROM oom ORDER BY seq LIMIT 20) o UNION ALL
    SELECT (SELECT max(t.seq) FROM timeline t WHERE t.seq <= m.end_seq), m.end_ns, 3 FROM
    (SELECT end_seq, end_ns FROM mark WHERE end_seq IS NOT NULL ORDER BY end_ns - begin_ns DESC LIMIT 40) m)
    WHERE seq IS NOT NULL ORDER BY rank, seq LIMIT ?1

-- statement sql_page_allocations
SELECT domain, process_id, device, stream, addr, size, alloc_seq, alloc_ns,
    coalesce(free_requested_seq, free_completed_seq, ?1), coalesce(free_ns, ?1), callsite_id
    FROM allocation WHERE domain <> @DOMAIN_CUPTI@
