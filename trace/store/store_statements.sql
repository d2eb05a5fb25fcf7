-- SPDX-License-Identifier: Apache-2.0
-- Statements of this folder, each after the name of its constant in C. %s and their like are sqlite3_mprintf's.

-- statement sql_row_insert
INSERT INTO %s VALUES (%.*s)
-- statement sql_row_replace
INSERT OR REPLACE INTO %s VALUES (%.*s)

-- statement sql_thread_gone
UPDATE thread SET emitted = ?2 + ?4, stored = ?2, spilled = ?3, lost = ?4, unreadable = ?4, uncommitted = 0,
    damage = ?6, end_ns = ?5 WHERE id = ?1
-- statement sql_thread_cut
UPDATE thread SET stored = stored - ?2, lost = lost + ?2, unreadable = unreadable + ?2,
    damage = coalesce(damage, 'cut') WHERE id = ?1
-- statement sql_unrecorded
INSERT INTO unrecorded_program VALUES (?, ?, ?) ON CONFLICT(path, reason) DO UPDATE SET count = count + excluded.count
-- statement sql_unrecorded_none
DELETE FROM unrecorded_program WHERE count <= ?
-- statement sql_main_end
UPDATE process SET main_end_seq = ?2, main_end_ns = ?3 WHERE id = ?1
-- statement sql_growth
INSERT INTO callsite_growth VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
    live_allocations = live_allocations + excluded.live_allocations, live_bytes = live_bytes + excluded.live_bytes
-- statement sql_work
INSERT INTO work SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, 1.0 * (?8 - ?4) / (?6 - ?2), 1.0 * (?9 - ?5) / (?6 - ?2)
-- statement sql_remat_values
-- SQL has no way to read the bits of a double: real_of_bits is of schema.c.
UPDATE remat_event SET score = real_of_bits((SELECT arg FROM event_row WHERE seq = remat_event.seq))
    WHERE kind = @KIND_EVICT@
-- statement sql_callsite_share
INSERT INTO callsite_share VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
    allocations = allocations + excluded.allocations, frees = frees + excluded.frees, bytes = bytes + excluded.bytes,
    live_allocations = live_allocations + excluded.live_allocations, live_bytes = live_bytes + excluded.live_bytes,
    peak_allocations = peak_allocations + excluded.peak_allocations, peak_bytes = peak_bytes + excluded.peak_bytes,
    temporary = temporary + excluded.temporary, lifetime_ns = lifetime_ns + excluded.lifetime_ns

-- statement sql_derived_clear
-- Empty but for what an earlier attempt left.
DELETE FROM work; DELETE FROM callsite_growth; DELETE FROM callsite_share;
DELETE FROM total_stat; DELETE FROM size_stat; DELETE FROM host_peak; DELETE FROM sample; DELETE FROM segment;
DELETE FROM ladder_peak_stat; DELETE FROM oom; DELETE FROM mark; DELETE FROM keyframe; DELETE FROM process_device;
DELETE FROM device_event; DELETE FROM device_call_stat; DELETE FROM device_memory; DELETE FROM stream_stat;
DELETE FROM remat_event; DELETE FROM operator_stat; DELETE FROM eviction_stat; DELETE FROM remat_storage_stat;
DELETE FROM remat_budget; DELETE FROM remat_failure_stat; DELETE FROM remat_blocked_stat;
DELETE FROM function_stat

-- statement sql_connection_settings
-- Safe against SIGKILL, not against a power loss. Events are appended and never read again: a larger cache only makes
-- more page faults.
PRAGMA page_size = 16384; PRAGMA synchronous = OFF; PRAGMA secure_delete = OFF; PRAGMA cache_size = -8192;
PRAGMA temp_store = FILE

-- statement sql_journal_private
PRAGMA main.locking_mode = EXCLUSIVE; PRAGMA main.journal_mode = OFF
-- statement sql_journal_log
PRAGMA main.locking_mode = NORMAL; PRAGMA main.journal_mode = WAL
-- statement sql_journal_leave
PRAGMA main.journal_mode = DELETE
-- statement sql_journal_unlock
-- The lock goes when the file is next looked at.
PRAGMA main.locking_mode = NORMAL; SELECT count(*) FROM main.sqlite_schema
-- statement sql_event_kind
INSERT INTO event_kind VALUES (?1, ?2, ?3, nullif(?4, ''), nullif(?5, ''), nullif(?6, ''), nullif(?7, ''), ?8)

-- statement sql_identity
PRAGMA application_id = %d; PRAGMA user_version = %d; INSERT INTO meta VALUES ('complete', 0)
-- statement sql_all_columns
SELECT count(*) FROM sqlite_schema s, pragma_table_info(s.name) WHERE s.type = 'table' AND s.name NOT LIKE 'sqlite%'

-- statement sql_storage_indexes
-- What is alive, and from an allocation to what lies in it.
CREATE INDEX IF NOT EXISTS storage_alive ON storage(base_id, size) WHERE destroy_seq IS NULL;
CREATE INDEX IF NOT EXISTS storage_allocation ON storage(allocation_id) WHERE allocation_id IS NOT NULL
-- statement sql_phase_index
-- What phases are asked for.
CREATE INDEX IF NOT EXISTS storage_create ON storage(process_id, create_seq)
-- statement sql_has_storages
SELECT EXISTS (SELECT 1 FROM storage)
-- statement sql_has_marks
SELECT EXISTS (SELECT 1 FROM mark)

-- statement sql_analyze
-- Statistics for the query planner. ANALYZE of everything would read the tables of millions of rows, all numbered from
-- 1 with few gaps, only to count them: their last number is near enough; of these only the indexes, by a sample.
SELECT group_concat('ANALYZE main.' || name, ';') FROM main.sqlite_schema
    WHERE type IN ('table', 'index') AND name NOT LIKE 'sqlite%'
    AND (type = 'index') = (tbl_name IN ('event_row', 'stack_node_row', 'allocation_row', 'storage', 'callsite'))
-- statement sql_analyze_numbered
DELETE FROM main.sqlite_stat1 WHERE tbl IN ('event_row', 'stack_node_row', 'allocation_row', 'storage', 'callsite')
    AND idx IS NULL;
INSERT INTO main.sqlite_stat1(tbl, stat) SELECT tbl, CAST(last AS TEXT) FROM (
    SELECT 'event_row' AS tbl, (SELECT max(seq) FROM event_row) AS last
    UNION ALL SELECT 'allocation_row', (SELECT max(id) FROM allocation_row)
    UNION ALL SELECT 'storage', (SELECT max(id) FROM storage)
    UNION ALL SELECT 'callsite', (SELECT max(id) FROM callsite)
    UNION ALL SELECT 'stack_node_row', (SELECT max(id) FROM stack_node_row)) WHERE last > 0

-- statement sql_complete
-- With it goes what only a continued recording reads: of `meta` STORE_META_COMMITS, STORE_META_TAKEN, STORE_META_LOG.
DELETE FROM ring_position; DELETE FROM callsite_origin;
DELETE FROM meta WHERE key IN ('commits', 'events_taken', 'events_bytes');
INSERT OR REPLACE INTO meta VALUES ('complete', 1)
-- statement sql_is_complete
SELECT value FROM meta WHERE key = 'complete'
-- statement sql_log_bytes
SELECT value FROM meta WHERE key = 'events_bytes' AND value > 0
-- statement sql_symbol_last
SELECT max(id) FROM symbol
-- statement sql_root
SELECT rootpage FROM main.sqlite_schema WHERE type = 'table' AND name = ?
-- statement sql_pages
PRAGMA main.page_count
-- statement sql_bytes
SELECT page_count * page_size FROM pragma_page_count('main'), pragma_page_size('main')

-- statement sql_positions
-- A ring of which nothing is stored has a row in `thread` and no position.
SELECT p.*, t.end_ns IS NOT NULL, t.id AS number, t.process_id, t.ring
    FROM thread t LEFT JOIN ring_position p ON p.thread_id = t.id
    UNION ALL SELECT *, 0, thread_id, process_id, ring FROM ring_position
    WHERE thread_id NOT IN (SELECT id FROM thread) ORDER BY number
-- statement sql_clock_anchors
SELECT ticks, mono_ns, real_ns FROM clock_anchor ORDER BY ticks
-- statement sql_callsite_origins
SELECT callsite_id, process_id, site, count FROM callsite_origin ORDER BY 1
-- statement sql_meta_integer
SELECT value FROM meta WHERE key = ? AND typeof(value) = 'integer'
-- statement sql_meta_text
SELECT value FROM meta WHERE key = ? AND typeof(value) = 'text'
-- statement sql_ended_processes
SELECT id, parent_id FROM process WHERE end_ns IS NOT NULL ORDER BY id
-- statement sql_stats
SELECT idx, value FROM stats WHERE name = ? ORDER BY idx

-- statement sql_sums
SELECT total(emitted), total(stored), total(spilled), total(lost), total(lost_bytes), total(uncommitted),
    total(unreadable), count(damage), (SELECT total(unattached) FROM process),
    (SELECT total(unattached_bytes) FROM process), count(*), (SELECT processes FROM recording),
    (SELECT images FROM recording) FROM thread
-- statement sql_loss_count
SELECT count(*) FROM data_loss
-- statement sql_complete_trace
SELECT t.value FROM meta t JOIN meta c WHERE t.key = 'trace_id' AND c.key = 'complete' AND c.value = 1
-- statement sql_result
SELECT (SELECT coalesce(max(value), 0) FROM stats WHERE name = 'events_stored'),
    (SELECT coalesce(sum(value), 0) FROM stats WHERE name IN ('events_lost', 'events_unattached')),
    (SELECT coalesce(sum(uncommitted), 0) FROM thread), (SELECT count(*) FROM process), (SELECT count(*) FROM thread),
    (SELECT count(*) FROM allocation)
