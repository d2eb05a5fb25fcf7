-- SPDX-License-Identifier: Apache-2.0
-- Ten questions to a trace, each with the statement that answers it: `varve query DB --examples` prints them. Put
-- 'block' or 'device' in place of 'heap' for memory of a GPU (SELECT name, meaning FROM domain), and limits and
-- moments as you like.

-- 1. Which lines of source allocate most, and how much of it is freed before their thread allocates again?
SELECT user_function, user_file, user_line, user_module, sum(allocations) AS allocations, sum(bytes) AS bytes,
    round(100.0 * sum(temporary) / sum(allocations), 1) AS temporary_percent
FROM callsite_total WHERE domain = 'heap'
GROUP BY user_function, user_file, user_line, user_module ORDER BY bytes DESC LIMIT 20;

-- 2. Which lines made the peak?
SELECT user_function, user_file, user_line, user_module, sum(bytes) AS bytes, sum(allocations) AS allocations,
    round(100.0 * sum(bytes) / sum(sum(bytes)) OVER (), 1) AS percent
FROM peak WHERE domain = 'heap'
GROUP BY user_function, user_file, user_line, user_module ORDER BY bytes DESC LIMIT 20;

-- 3. What was never freed?
SELECT user_function, user_file, user_line, user_module, sum(live_bytes) AS live_bytes,
    sum(live_allocations) AS live_allocations
FROM callsite_total WHERE domain = 'heap' AND live_allocations > 0
GROUP BY user_function, user_file, user_line, user_module ORDER BY live_bytes DESC LIMIT 20;

-- 4. How much memory was live over time, in twenty steps?
SELECT 20 * ts_ns / (SELECT max(ts_ns) + 1 FROM timeline) AS step, min(ts_ns) AS from_ns,
    max(allocated_max) AS most_bytes, min(allocated) AS least_bytes, max(live_allocations) AS most_allocations
FROM timeline WHERE domain = 'heap' GROUP BY step ORDER BY step;

-- 5. Which sizes are asked for, and how long do they live?
SELECT up_to_bytes, allocations, bytes, mean_lifetime_ns, live_allocations, live_bytes
FROM size_total WHERE domain = 'heap' ORDER BY device, up_to_bytes;

-- 6. Which processes need most, each at its own peak, and how many threads do they have?
SELECT t.pid, p.executable, t.allocations, t.bytes, t.peak_bytes, t.peak_ns, t.live_bytes,
    (SELECT count(*) FROM thread h WHERE h.process_id = t.process_id) AS threads
FROM total_process t JOIN process p ON p.id = t.process_id
WHERE t.domain = 'heap' ORDER BY t.peak_bytes DESC, t.process_id LIMIT 20;

-- 7. What was live at a moment (here: after three quarters of the time), by line?
SELECT u.function AS user_function, u.file AS user_file, u.line AS user_line, u.module AS user_module,
    sum(a.size) AS bytes, count(*) AS allocations
FROM (SELECT max(ts_ns) * 3 / 4 AS ns FROM timeline) moment CROSS JOIN allocation a
    LEFT JOIN callsite c ON c.id = a.callsite_id LEFT JOIN symbol u ON u.id = coalesce(c.user_symbol_id, c.symbol_id)
WHERE a.domain = (SELECT code FROM domain WHERE name = 'heap') AND a.alloc_ns <= moment.ns
    AND (a.free_ns IS NULL OR a.free_ns > moment.ns)
GROUP BY u.id ORDER BY bytes DESC LIMIT 20;

-- 8. Which allocations are the largest, how long did they live, and who made them?
SELECT a.size, a.alloc_ns, a.free_ns - a.alloc_ns AS lifetime_ns, a.pid, a.tid, u.function AS user_function,
    u.file AS user_file, u.line AS user_line
FROM (SELECT id FROM allocation WHERE domain = (SELECT code FROM domain WHERE name = 'heap') ORDER BY size DESC, id
    LIMIT 20) largest JOIN allocation a ON a.id = largest.id
    LEFT JOIN callsite c ON c.id = a.callsite_id LEFT JOIN symbol u ON u.id = coalesce(c.user_symbol_id, c.symbol_id)
ORDER BY a.size DESC, a.id;

-- 9. Which threads and lines free what the line that allocates most has allocated? (A line is NULL where frees
--    have no stacks.)
WITH line AS (
        SELECT coalesce(c.user_symbol_id, c.symbol_id) AS symbol_id FROM callsite_stat t JOIN callsite c
            ON c.id = t.callsite_id
        WHERE t.domain = (SELECT code FROM domain WHERE name = 'heap') GROUP BY 1 ORDER BY sum(t.bytes) DESC LIMIT 1),
    freed AS (
        SELECT f.callsite_id, f.thread_id, count(*) AS frees, sum(a.size) AS bytes,
            sum(f.tid <> a.tid) AS of_other_threads
        FROM event f CROSS JOIN allocation a ON a.id = f.id AND a.free_requested_seq = f.seq
        WHERE a.domain = (SELECT code FROM domain WHERE name = 'heap') AND a.callsite_id IN (SELECT id FROM callsite
            WHERE coalesce(user_symbol_id, symbol_id) = (SELECT symbol_id FROM line))
        GROUP BY f.callsite_id, f.thread_id)
SELECT h.pid, h.tid, h.name AS thread, u.function AS freed_by, u.file AS freed_in, u.line AS freed_at_line,
    sum(f.frees) AS frees, sum(f.bytes) AS bytes, sum(f.of_other_threads) AS of_other_threads
FROM freed f LEFT JOIN thread h ON h.id = f.thread_id LEFT JOIN callsite c ON c.id = f.callsite_id
    LEFT JOIN symbol u ON u.id = coalesce(c.user_symbol_id, c.symbol_id)
GROUP BY h.id, u.id ORDER BY bytes DESC LIMIT 20;

-- 10. Which segments of a caching allocator are held by few blocks at the end, and which line made the
--     largest of these?
SELECT s.device, s.addr, s.size AS segment_bytes, sum(a.size) AS block_bytes, count(*) AS blocks,
    max(a.size) AS largest, u.function AS user_function, u.file AS user_file, u.line AS user_line
FROM leak a JOIN segment s ON s.id = a.segment_id
    LEFT JOIN callsite c ON c.id = a.callsite_id LEFT JOIN symbol u ON u.id = coalesce(c.user_symbol_id, c.symbol_id)
WHERE s.free_seq IS NULL GROUP BY s.id ORDER BY segment_bytes - block_bytes DESC LIMIT 20;
