-- SPDX-License-Identifier: Apache-2.0
-- After small.sql: two threads dropped events, and one was killed in the middle of a record.
UPDATE thread SET emitted = emitted + 70, lost = 70, lost_bytes = 1234567 WHERE id = 1;
UPDATE thread SET emitted = emitted + 6, lost = 5, lost_bytes = 640, uncommitted = 1 WHERE id = 2;
INSERT INTO stats(name, idx, severity, source, value) VALUES ('ring_lost', 1, 'data_loss', 'ring', 70), ('ring_lost',
    2, 'data_loss', 'ring', 5),
    ('uncommitted', 2, 'info', 'ring', 1);
