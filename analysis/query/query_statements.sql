-- SPDX-License-Identifier: Apache-2.0
-- Statements of this folder, each after the name of its constant in C; codes as cmake/EmbedText.cmake has them.

-- statement sql_groups_at_peak
SELECT coalesce(a.callsite_id, 0) AS site, CASE ?3 WHEN 4 THEN a.process_id WHEN 5 THEN
    (SELECT r.thread_id FROM allocation_row r WHERE r.id = a.id) WHEN 6 THEN a.size END AS key, count(*),
    sum(a.size) FROM total_process t CROSS JOIN allocations a ON a.process_id = t.process_id AND
    a.domain = t.domain AND coalesce(a.device, 0) = t.device WHERE t.domain = ?1 AND t.process_id = ?2 AND
    a.alloc_seq <= t.peak_seq AND (a.free_requested_seq IS NULL OR a.free_requested_seq > t.peak_seq)
    GROUP BY site, key ORDER BY site, key

-- statement sql_ladder_at
WITH moment AS MATERIALIZED (SELECT coalesce(max(seq), 0) AS seq FROM keyframe WHERE seq <= ?1),
    part AS (
    SELECT * FROM (SELECT reserved, live AS live_requested, rounding, unsplit AS unsplit_remainder,
    quantum AS segment_quantum, pools AS pool_segregation, pending AS stream_pending,
    cached AS cached_segments,
    reserved - live - rounding - unsplit - quantum - pools - pending - cached AS external_holes
    FROM keyframe WHERE seq <= ?1 AND process_id = ?2 AND device = ?3 ORDER BY seq DESC LIMIT 1)
    UNION ALL SELECT reserved, live_requested, rounding, unsplit_remainder, segment_quantum,
    pool_segregation, stream_pending, cached_segments, external_holes
    FROM moment m CROSS JOIN ladder_change c ON c.seq > m.seq AND c.seq <= ?1
    WHERE c.process_id = ?2 AND c.device = ?3)
    SELECT sum(reserved), sum(live_requested), sum(rounding), sum(unsplit_remainder), sum(segment_quantum),
    sum(pool_segregation), sum(stream_pending), sum(cached_segments), sum(external_holes) FROM part

-- statement sql_process_ends
SELECT count(*) FILTER (WHERE end_cause = 'running'), count(*) FILTER (WHERE end_cause =
    'signal'), count(*) FILTER (WHERE end_cause = 'unknown'), CASE WHEN min(exit_status) FILTER
    (WHERE end_cause = 'signal') = max(exit_status) FILTER (WHERE end_cause = 'signal') THEN
    max(exit_status) FILTER (WHERE end_cause = 'signal') ELSE 0 END FROM process

-- statement sql_keyframes_before
SELECT k.process_id, k.device, k.data FROM keyframe k JOIN (SELECT process_id, device, max(seq) AS
    seq FROM keyframe WHERE seq <= ?1 GROUP BY process_id, device) USING (process_id, device, seq)
    LEFT JOIN process p ON p.id = k.process_id
    WHERE k.data IS NOT NULL AND (?2 < 0 OR k.device = ?2) AND (?3 = 0 OR p.pid = ?3)

-- statement sql_segment_events
SELECT thread_id, device, kind, stream, pool, id, addr, size, requested, arg, cause, flags
    FROM event WHERE seq > ?1 AND seq <= ?2 AND kind BETWEEN @KIND_ALLOC@ AND @KIND_SEGMENT_UNMAP@ ORDER BY seq

-- statement sql_block_owners
SELECT addr, process_id, device, alloc_seq, free_completed_seq, callsite_id, alloc_ns FROM allocation
    WHERE domain = @DOMAIN_BLOCK@ AND addr IN (SELECT value FROM json_each(?1))
    AND alloc_seq <= ?2 AND (free_completed_seq IS NULL OR free_completed_seq > ?3)
