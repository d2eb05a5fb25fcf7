-- SPDX-License-Identifier: Apache-2.0
-- A complete recording of a program that allocated nothing.
INSERT INTO meta VALUES ('command', 'true'), ('host', 'golden'), ('complete', 1);
INSERT INTO domain(code, name, meaning) VALUES (1, 'heap', 'the malloc family'), (2, 'mmap',
    'mmap by the program itself');
