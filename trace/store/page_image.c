/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fast way into a table. `INSERT INTO t SELECT * FROM batch.t` between two tables of equal shape is one
 * of SQLite's own shortcuts: it copies finished records from one b-tree to the other and decodes none of
 * them, which takes a fifth of the time of a prepared statement per row and a third of that of a virtual
 * table. So rows are encoded here, once, into a database image in memory that the connection has attached.
 *
 * What is written is the documented file format (https://www.sqlite.org/fileformat2.html): page 1, with the
 * header and the schema, is made by SQLite itself and only its change counter and size are changed; then one
 * root page per table; then leaves, each of which the root of its table lists. Should a version of SQLite
 * not take the shortcut, the same statement gives the same rows, slower.
 *
 * The rule that makes it safe: SQLite reads the image from its first use in a transaction to the end of that
 * transaction, and looks at the change counter when it begins. So between the two the image must not change:
 * commit_behind.c inserts and commits in one go, and image_clear comes after that.
 */
#include "trace/store/page_image.h"

#include "trace/store/sqlite_format.h"

#include "statements_generated.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE_BYTES 65536U
#define PAGE_LIMIT 1024U /* 64 MiB, over a million events; only pages in use take memory */
#define PAGES_KEPT 128U  /* memory kept for the next batch */
#define IMAGE_BYTES ((size_t)PAGE_BYTES * PAGE_LIMIT)

enum image_page {
    PAGE_SCHEMA = 1,
    PAGE_ROOT = 2,                             /* of the first table */
    PAGE_LEAF = PAGE_ROOT + IMAGE_TABLE_LIMIT, /* the first one */
};

/* `target` is the table of the main database that has its columns, and gets its rows by `insert`. */
static const struct {
    const char *name, *target, *insert;
} tables[IMAGE_TABLE_LIMIT] = {
    [IMAGE_EVENT] = {"event", "event_row", sql_batch_insert},
    [IMAGE_ALLOCATION] = {"allocation", "allocation_row", sql_batch_insert},
    [IMAGE_ALLOCATION_AGAIN] = {"allocation_again", "allocation_row", sql_batch_replace},
    [IMAGE_STORAGE] = {"storage", "storage", sql_batch_insert},
    [IMAGE_STORAGE_AGAIN] = {"storage_again", "storage", sql_batch_replace},
    [IMAGE_STACK_FRAME] = {"stack_frame", "stack_frame", sql_batch_insert},
    [IMAGE_FRAME_ADDRESS] = {"frame_address", "frame_address", sql_batch_insert},
    [IMAGE_STACK_NODE] = {"stack_node", "stack_node_row", sql_batch_insert},
    [IMAGE_CALLSITE] = {"callsite", "callsite", sql_batch_insert},
    [IMAGE_CALLSITE_STAT] = {"callsite_stat", "callsite_stat_row", sql_batch_insert},
};

/* The rows of one table. */
struct image_part {
    uint64_t rows;
    uint64_t last_rowid;
    /* the leaf being filled: pointers grow from its header upwards, cells from its end downwards */
    uint32_t leaf; /* page number; 0 before the first row */
    uint32_t cells;
    uint32_t content;
    /* what the root lists: all leaves before that one, with their last rowids */
    uint32_t closed;
    uint32_t closed_pages[PAGE_LIMIT];
    uint64_t closed_rowids[PAGE_LIMIT];
};

struct store_image {
    const char *name; /* of the attached database */
    uint8_t *bytes;
    uint32_t pages; /* in use: the number of the last one */
    uint32_t changes;
    struct image_part parts[IMAGE_TABLE_LIMIT];
};

static uint8_t *page_of(const struct store_image *image, uint32_t number)
{
    return image->bytes + (size_t)(number - 1) * PAGE_BYTES;
}

/* ---- pages ---- */

static void leaf_begin(struct image_part *part, uint32_t number)
{
    part->leaf = number;
    part->cells = 0;
    part->content = PAGE_BYTES;
}

/* Write the header of a leaf; the cells and their pointers are there. */
static void page_image_leaf_end(const struct store_image *image, const struct image_part *part)
{
    uint8_t *page = page_of(image, part->leaf);
    memset(page, 0, LEAF_HEADER);
    page[0] = LEAF_TYPE;
    put_16(page + 3, part->cells);
    put_16(page + 5, part->content); /* 65536 is written as 0 */
}

static void root_write(const struct store_image *image, enum image_table table)
{
    const struct image_part *part = &image->parts[table];
    uint8_t *root = page_of(image, PAGE_ROOT + table);
    memset(root, 0, INTERIOR_HEADER);
    uint32_t content = PAGE_BYTES;
    for (uint32_t i = 0; i < part->closed; i++) {
        uint8_t cell[16];
        put_32(cell, part->closed_pages[i]);
        unsigned bytes = 4 + put_varint(cell + 4, part->closed_rowids[i]);
        content -= bytes;
        memcpy(root + content, cell, bytes);
        put_16(root + INTERIOR_HEADER + 2 * i, content);
    }
    root[0] = INTERIOR_TYPE;
    put_16(root + 3, part->closed);
    put_16(root + 5, content);
    put_32(root + 8, part->leaf);
}

/* The root is an empty leaf, no leaf belongs to it. */
static void page_image_table_clear(struct store_image *image, enum image_table table)
{
    struct image_part *part = &image->parts[table];
    leaf_begin(part, PAGE_ROOT + table);
    page_image_leaf_end(image, part);
    part->leaf = 0;
    part->closed = 0;
    part->rows = 0;
}

static void roots_clear(struct store_image *image)
{
    for (unsigned i = 0; i < IMAGE_TABLE_LIMIT; i++) {
        page_image_table_clear(image, i);
    }
    image->pages = PAGE_LEAF - 1;
}

static void page_image_header_write(struct store_image *image)
{
    image->changes++;
    put_32(image->bytes + OFFSET_CHANGES, image->changes);
    put_32(image->bytes + OFFSET_PAGES, image->pages);
    put_32(image->bytes + OFFSET_VALID_FOR, image->changes);
}

/* ---- the interface ---- */

/* The next leaf of the table; false if there is no page for it. */
static bool leaf_next(struct store_image *image, struct image_part *part)
{
    if (image->pages == PAGE_LIMIT) {
        return false;
    }
    if (part->leaf != 0) {
        page_image_leaf_end(image, part);
        part->closed_pages[part->closed] = part->leaf;
        part->closed_rowids[part->closed++] = part->last_rowid;
    }
    leaf_begin(part, ++image->pages);
    return true;
}

bool image_add(struct store_image *image, enum image_table table, uint64_t rowid, const int64_t *values, uint32_t nulls,
               uint32_t wide, unsigned count)
{
    struct image_part *part = &image->parts[table];
    assert(part->rows == 0 || rowid > part->last_rowid);
    uint8_t cell[CELL_BYTES_MAX];
    const uint8_t *begin;
    unsigned bytes = cell_encode(cell, rowid, values, nulls, wide, count, &begin);
    if ((part->leaf == 0 || LEAF_HEADER + 2 * (part->cells + 1) + bytes > part->content) && !leaf_next(image, part)) {
        return false;
    }
    uint8_t *page = page_of(image, part->leaf);
    part->content -= bytes;
    memcpy(page + part->content, begin, bytes);
    put_16(page + LEAF_HEADER + 2 * part->cells, part->content);
    part->cells++;
    part->rows++;
    part->last_rowid = rowid;
    return true;
}

bool image_is_full(const struct store_image *image, enum image_table table)
{
    const struct image_part *part = &image->parts[table];
    uint32_t pointers_end = LEAF_HEADER + 2 * (part->cells + 1);
    return image->pages == PAGE_LIMIT && (part->leaf == 0 || part->content < pointers_end + CELL_BYTES_MAX);
}

bool image_is_half_full(const struct store_image *image)
{
    return image->pages >= PAGE_LIMIT / 2;
}

bool image_is_empty(const struct store_image *image)
{
    return image->pages == PAGE_LEAF - 1;
}

uint64_t image_rows(const struct store_image *image, enum image_table table)
{
    return image->parts[table].rows;
}

/* Finish the pages for a reader. */
static void image_seal(struct store_image *image)
{
    for (unsigned i = 0; i < IMAGE_TABLE_LIMIT; i++) {
        struct image_part *part = &image->parts[i];
        if (part->rows == 0) {
            continue;
        }
        page_image_leaf_end(image, part);
        if (part->closed > 0) {
            root_write(image, i);
        } else {
            /* A root that lists one child only is not allowed: the leaf itself is the root. */
            memcpy(page_of(image, PAGE_ROOT + i), page_of(image, part->leaf), PAGE_BYTES);
        }
    }
    page_image_header_write(image);
}

void image_clear(struct store_image *image)
{
    if (image->pages > PAGES_KEPT) {
        madvise(image->bytes + (size_t)PAGES_KEPT * PAGE_BYTES, IMAGE_BYTES - (size_t)PAGES_KEPT * PAGE_BYTES,
                MADV_DONTNEED);
    }
    roots_clear(image);
    page_image_header_write(image);
}

int image_insert(sqlite3 *db, struct store_image *image)
{
    char sql[128];
    int result = SQLITE_OK;
    image_seal(image);
    for (unsigned i = 0; i < IMAGE_TABLE_LIMIT && result == SQLITE_OK; i++) {
        if (image->parts[i].rows > 0) {
            sqlite3_snprintf(sizeof(sql), sql, tables[i].insert, tables[i].target, image->name, tables[i].name);
            result = sqlite3_exec(db, sql, NULL, NULL, NULL);
        }
    }
    return result;
}

/* The statement that made a table of the main database, for a table of the image. */
static char *create_sql(const char *sql, const struct store_image *image, enum image_table table)
{
    const char *columns = sql != NULL ? strchr(sql, '(') : NULL;
    return columns != NULL ? sqlite3_mprintf("CREATE TABLE %s.%s%s", image->name, tables[table].name, columns) : NULL;
}

/* Create the tables of the image as the database has them, and take page 1 of what SQLite makes of that. */
static int template_take(sqlite3 *db, struct store_image *image)
{
    char setting[96];
    sqlite3_snprintf(sizeof(setting), setting, sql_batch_attach, image->name, image->name, PAGE_BYTES);
    int result = sqlite3_exec(db, setting, NULL, NULL, NULL);
    sqlite3_stmt *query = NULL;
    if (result == SQLITE_OK) {
        result = sqlite3_prepare_v2(db, sql_table_declaration, -1, &query, NULL);
    }
    for (unsigned i = 0; i < IMAGE_TABLE_LIMIT && result == SQLITE_OK; i++) {
        sqlite3_bind_text(query, 1, tables[i].target, -1, SQLITE_STATIC);
        char *statement = sqlite3_step(query) == SQLITE_ROW
                              ? create_sql((const char *)sqlite3_column_text(query, 0), image, i)
                              : NULL;
        result = statement != NULL ? sqlite3_exec(db, statement, NULL, NULL, NULL) : SQLITE_CORRUPT;
        sqlite3_free(statement);
        sqlite3_reset(query);
    }
    sqlite3_finalize(query);
    if (result != SQLITE_OK) {
        return result;
    }
    sqlite3_int64 size = 0;
    unsigned char *copy = sqlite3_serialize(db, image->name, &size, 0);
    if (copy == NULL || size != (sqlite3_int64)(PAGE_LEAF - 1) * PAGE_BYTES) {
        sqlite3_free(copy);
        return copy == NULL ? SQLITE_NOMEM : SQLITE_CORRUPT;
    }
    memcpy(image->bytes, copy, PAGE_BYTES);
    sqlite3_free(copy);
    return SQLITE_OK;
}

int image_open(sqlite3 *db, const char *name, struct store_image **image_out)
{
    struct store_image *image = calloc(1, sizeof(*image));
    if (image == NULL) {
        return SQLITE_NOMEM;
    }
    void *memory = mmap(NULL, IMAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        free(image);
        return SQLITE_NOMEM;
    }
    image->name = name;
    image->bytes = memory;
    *image_out = image;
    int result = template_take(db, image);
    if (result != SQLITE_OK) {
        return result;
    }
    roots_clear(image);
    page_image_header_write(image);
    return sqlite3_deserialize(db, name, image->bytes, (sqlite3_int64)IMAGE_BYTES, (sqlite3_int64)IMAGE_BYTES,
                               SQLITE_DESERIALIZE_READONLY);
}

void image_close(struct store_image *image)
{
    if (image != NULL) {
        munmap(image->bytes, IMAGE_BYTES);
        free(image);
    }
}
