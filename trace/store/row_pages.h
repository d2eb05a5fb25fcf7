/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of tables that have millions of them, as finished pages of the database that they will be. */
#ifndef VARVE_TRACE_STORE_ROW_PAGES_H
#define VARVE_TRACE_STORE_ROW_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#define ROW_PAGE_BYTES 16384U /* of a page: PRAGMA page_size */

enum row_table {
    ROWS_EVENT,
    ROWS_ALLOCATION,
    ROWS_STORAGE,
    ROWS_STACK_FRAME,
    ROWS_FRAME_ADDRESS,
    ROWS_STACK_NODE,
    ROWS_CALLSITE,
    ROWS_CALLSITE_STAT,
    ROW_TABLE_LIMIT,
};

/* Their names in the schema. */
extern const char *const row_table_names[ROW_TABLE_LIMIT];

struct row_pages;
struct varve_message;

/// No rows yet. `path` names a file that holds them meanwhile, which has no name from here on. Owner of the result: the
/// caller, until row_pages_close. Errors: VARVE_ERROR_NO_MEMORY, those of file_error.
int row_pages_open(const char *path, struct row_pages **pages_out, struct varve_message *message);
void row_pages_close(struct row_pages *pages);
/// Add a row: an integer for each column of the table, in order; bit i of `nulls` makes column i NULL (the column of
/// the rowid always is). Rowids of a table grow. False without memory: what the disk has no room for waits in memory.
bool row_pages_add(struct row_pages *pages, enum row_table table, uint64_t rowid, const int64_t *values, uint32_t nulls,
                   unsigned count);
/// Write what waits for room on the disk. Errors: those of file_error.
int row_pages_flush(struct row_pages *pages);
/// Forget the rows of a table.
void row_pages_drop(struct row_pages *pages, enum row_table table);
/// Of all rows.
uint64_t row_pages_bytes(const struct row_pages *pages);
/// Append all rows to a database that nobody has open: of `*page_count` pages of ROW_PAGE_BYTES, whose tables are empty
/// and have their roots at `roots`; then it has `*page_count`. After an error, VARVE_ERROR_FULL, that file is useless,
/// and the rows are as before.
int row_pages_append(struct row_pages *pages, int fd, uint32_t *page_count, const uint32_t roots[ROW_TABLE_LIMIT]);
/// The page after `number`: one is for locks.
uint32_t row_pages_next(uint32_t number);

#endif
