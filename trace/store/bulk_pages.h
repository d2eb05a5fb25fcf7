/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of one table of a database that nobody else sees, written past SQLite. */
#ifndef VARVE_TRACE_STORE_BULK_PAGES_H
#define VARVE_TRACE_STORE_BULK_PAGES_H

#include <stdbool.h>
#include <stdint.h>

struct store_bulk;

/// Rows collect in a file without a name in the folder of `database_path`; NULL without memory or file (errno).
struct store_bulk *bulk_open(const char *database_path, uint32_t page_bytes);
void bulk_close(struct store_bulk *bulk); /* NULL is allowed */
/// As image_add; false: the disk is full, or another error of the file (errno).
bool bulk_add(struct store_bulk *bulk, uint64_t rowid, const int64_t *values, uint32_t nulls, unsigned count);
/// errno of the first bulk_add that failed, which stays; 0: none has.
int bulk_failure(const struct store_bulk *bulk);
/// The table whose root is page `root`, and empty, gets the rows: its pages are added to the database file `fd`, which
/// SQLite must not have open. False: errno; the database is useless then.
bool bulk_attach(struct store_bulk *bulk, int fd, uint32_t root);

#endif
