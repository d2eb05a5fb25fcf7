-- SPDX-License-Identifier: Apache-2.0
-- Run behind a trace made by hand: ranks of its symbols as plumbing.txt would give them, and the user's lines by
-- their definition.

UPDATE symbol SET user_rank = CASE
    WHEN is_python THEN 7
    WHEN function IS NULL THEN 2
    WHEN function LIKE 'operator new%' OR function LIKE 'std::%' OR function LIKE 'varve_%'
        OR function IN ('_start', '__libc_start_call_main') THEN 0
    WHEN file IS NULL THEN 3
    ELSE 4 END;
UPDATE callsite SET user_symbol_id = (
    SELECT s.id FROM frame f JOIN symbol s
        ON s.function IS f.function AND s.file IS f.file AND s.line IS f.line AND s.module IS f.module
    WHERE f.callsite_id = callsite.id AND s.user_rank > 0 ORDER BY s.user_rank DESC, f.depth LIMIT 1);
