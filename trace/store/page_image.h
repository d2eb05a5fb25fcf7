/* SPDX-License-Identifier: Apache-2.0 */
/* Many rows of some tables at once, through an attached image of finished pages. */
#ifndef VARVE_TRACE_STORE_PAGE_IMAGE_H
#define VARVE_TRACE_STORE_PAGE_IMAGE_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

/* In the order in which they are inserted. */
enum image_table {
    IMAGE_EVENT,
    IMAGE_ALLOCATION,
    IMAGE_ALLOCATION_AGAIN, /* rows of `allocation_row` that replace those of the same id */
    IMAGE_STORAGE,
    IMAGE_STORAGE_AGAIN, /* the same of `storage` */
    IMAGE_STACK_FRAME,
    IMAGE_FRAME_ADDRESS,
    IMAGE_STACK_NODE,
    IMAGE_CALLSITE,
    IMAGE_CALLSITE_STAT,
    IMAGE_TABLE_LIMIT,
};

struct store_image;

/// Attach an empty image to the connection, whose main database has its tables, as `name` (borrowed until
/// image_close). Returns SQLite's code; the image is the caller's to close even then, after the connection.
int image_open(sqlite3 *db, const char *name, struct store_image **image_out);
void image_close(struct store_image *image);
/// Add a row: an integer for each column of the table, in order; bit i of `nulls` makes column i NULL (the
/// column of the rowid always is), of `wide` that it takes 8 bytes whatever its value. Rowids of a table grow.
/// False if there is no space.
bool image_add(struct store_image *image, enum image_table table, uint64_t rowid, const int64_t *values, uint32_t nulls,
               uint32_t wide, unsigned count);
/// No space for another row of any size.
bool image_is_full(const struct store_image *image, enum image_table table);
bool image_is_half_full(const struct store_image *image);
bool image_is_empty(const struct store_image *image);
uint64_t image_rows(const struct store_image *image, enum image_table table);
/// All rows into the main database, in a transaction that has not read the image yet; until its end the image must stay
/// as it is. Returns SQLite's code.
int image_insert(sqlite3 *db, struct store_image *image);
void image_clear(struct store_image *image);

#endif
