/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SQLite takes half a microsecond to insert a row, even where it copies it from another table of the same shape. So
 * rows are encoded here, once, into leaves of their table, in the documented file format
 * (https://www.sqlite.org/fileformat2.html). These wait in a file of their own until SQLite has written all other
 * tables; then they are appended to the database, with pages above them that list them, below the root that SQLite
 * gave their table. A leaf names no other page, so it is copied as it is. store.c calls it.
 */
#include "trace/store/row_pages.h"

#include "base/error.h"
#include "base/file_error.h"
#include "base/file_whole.h"
#include "base/grown_array.h"
#include "trace/store/sqlite_format.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#define LOCK_PAGE ((1U << 30) / ROW_PAGE_BYTES + 1) /* SQLite locks bytes there, and never uses it */
#define CHILDREN_MAX 1024U                          /* of a page; so many always fit */
#define WAITING_MAX ((size_t)1 << 20)               /* bytes of pages that are written together */

const char *const row_table_names[ROW_TABLE_LIMIT] = {
    [ROWS_EVENT] = "event_row",
    [ROWS_ALLOCATION] = "allocation_row",
    [ROWS_STORAGE] = "storage",
    [ROWS_STACK_FRAME] = "stack_frame",
    [ROWS_FRAME_ADDRESS] = "frame_address",
    [ROWS_STACK_NODE] = "stack_node_row",
    [ROWS_CALLSITE] = "callsite",
    [ROWS_CALLSITE_STAT] = "callsite_stat_row",
};

/* A page, and the largest rowid below it. */
struct row_page {
    uint64_t rowid;
    uint32_t number; /* of a leaf: its place in the file of rows, from 0 */
};

/* The rows of one table. */
struct row_part {
    uint8_t *leaf; /* being filled: pointers grow from its header upwards, cells from its end downwards; NULL: none */
    uint32_t cells;
    uint32_t content;
    uint64_t rowid; /* of the last row */
    struct row_page *full;
    size_t full_count, full_capacity;
};

struct row_pages {
    int fd;
    uint32_t count;   /* leaves that are full */
    uint32_t written; /* of these, in the file; the others wait */
    uint32_t dropped; /* of these, of rows that were forgotten */
    uint8_t *waiting;
    size_t waiting_capacity;
    size_t write_at; /* bytes that wait */
    struct row_part parts[ROW_TABLE_LIMIT];
};

/* ---- open and close ---- */

int row_pages_open(const char *path, struct row_pages **pages_out, struct varve_message *message)
{
    struct row_pages *pages = calloc(1, sizeof(*pages));
    if (pages == NULL) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for rows");
    }
    pages->fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (pages->fd < 0) {
        int reason = errno;
        free(pages);
        return varve_message_set(message, file_error(reason), "%s: %s", path, strerror(reason));
    }
    unlink(path);
    pages->write_at = WAITING_MAX;
    *pages_out = pages;
    return VARVE_OK;
}

void row_pages_close(struct row_pages *pages)
{
    if (pages == NULL) {
        return;
    }
    for (unsigned i = 0; i < ROW_TABLE_LIMIT; i++) {
        free(pages->parts[i].leaf);
        free(pages->parts[i].full);
    }
    close(pages->fd);
    free(pages->waiting);
    free(pages);
}

/* ---- rows ---- */

static void leaf_begin(struct row_part *part)
{
    part->cells = 0;
    part->content = ROW_PAGE_BYTES;
}

/* Write the header of the leaf; the cells and their pointers are there. */
static void row_pages_leaf_end(const struct row_part *part)
{
    uint8_t *page = part->leaf;
    const uint32_t pointers_end = LEAF_HEADER + 2 * part->cells;
    memset(page, 0, LEAF_HEADER);
    page[0] = LEAF_TYPE;
    put_16(page + 3, part->cells);
    put_16(page + 5, part->content);
    memset(page + pointers_end, 0, part->content - pointers_end);
}

static size_t waiting_bytes(const struct row_pages *pages)
{
    return (size_t)(pages->count - pages->written) * ROW_PAGE_BYTES;
}

/* Where the disk has no room the pages wait for the next attempt. */
static bool waiting_write(struct row_pages *pages)
{
    if (!file_write_whole(pages->fd, pages->waiting, waiting_bytes(pages), (uint64_t)pages->written * ROW_PAGE_BYTES)) {
        return false;
    }
    pages->written = pages->count;
    return true;
}

/* The leaf is full, and the next one begins; false without memory. */
static bool leaf_next(struct row_pages *pages, struct row_part *part)
{
    const size_t bytes = waiting_bytes(pages);
    if (part->leaf == NULL) {
        part->leaf = malloc(ROW_PAGE_BYTES);
        leaf_begin(part);
        return part->leaf != NULL;
    }
    if (!ARRAY_GROW(part->full, part->full_capacity, part->full_count + 1) ||
        !ARRAY_GROW(pages->waiting, pages->waiting_capacity, bytes + ROW_PAGE_BYTES)) {
        return false;
    }
    row_pages_leaf_end(part);
    memcpy(pages->waiting + bytes, part->leaf, ROW_PAGE_BYTES);
    part->full[part->full_count++] = (struct row_page){part->rowid, pages->count++};
    leaf_begin(part);
    /* Where the disk had no room it is asked again only when as many more wait. */
    if (waiting_bytes(pages) >= pages->write_at) {
        pages->write_at = waiting_write(pages) ? WAITING_MAX : waiting_bytes(pages) + WAITING_MAX;
    }
    return true;
}

bool row_pages_add(struct row_pages *pages, enum row_table table, uint64_t rowid, const int64_t *values, uint32_t nulls,
                   unsigned count)
{
    struct row_part *part = &pages->parts[table];
    assert((part->leaf == NULL && part->full_count == 0) || part->cells == 0 || rowid > part->rowid);
    uint8_t cell[CELL_BYTES_MAX];
    const uint8_t *begin;
    unsigned bytes = cell_encode(cell, rowid, values, nulls, count, &begin);
    if ((part->leaf == NULL || LEAF_HEADER + 2 * (part->cells + 1) + bytes > part->content) &&
        !leaf_next(pages, part)) {
        return false;
    }
    part->content -= bytes;
    memcpy(part->leaf + part->content, begin, bytes);
    put_16(part->leaf + LEAF_HEADER + 2 * part->cells, part->content);
    part->cells++;
    part->rowid = rowid;
    return true;
}

int row_pages_flush(struct row_pages *pages)
{
    return waiting_write(pages) ? VARVE_OK : file_error(errno);
}

/* Behind the last leaf that is needed the next one goes. */
static void tail_drop(struct row_pages *pages)
{
    uint32_t count = 0;
    for (unsigned i = 0; i < ROW_TABLE_LIMIT; i++) {
        const struct row_part *part = &pages->parts[i];
        const uint32_t end = part->full_count > 0 ? part->full[part->full_count - 1].number + 1 : 0;
        count = end > count ? end : count;
    }
    pages->dropped -= pages->count - count;
    pages->count = count;
    pages->written = pages->written < count ? pages->written : count;
}

void row_pages_drop(struct row_pages *pages, enum row_table table)
{
    struct row_part *part = &pages->parts[table];
    pages->dropped += (uint32_t)part->full_count;
    free(part->leaf);
    free(part->full);
    *part = (struct row_part){0};
    tail_drop(pages);
}

uint64_t row_pages_bytes(const struct row_pages *pages)
{
    return (uint64_t)(pages->count - pages->dropped) * ROW_PAGE_BYTES;
}

/* ---- the database ---- */

/* A database to which pages are appended. */
struct target {
    int fd;
    uint32_t last; /* page */
};

static bool row_page_write(const struct target *target, uint32_t number, const uint8_t *page)
{
    return file_write_whole(target->fd, page, ROW_PAGE_BYTES, (uint64_t)(number - 1) * ROW_PAGE_BYTES);
}

uint32_t row_pages_next(uint32_t number)
{
    return number + 1 == LOCK_PAGE ? number + 2 : number + 1;
}

/* Where each full leaf goes, by its place in the file of rows; 0: its rows were forgotten. */
static uint32_t *leaves_number(const struct row_pages *pages, struct target *target)
{
    uint32_t *numbers = calloc((size_t)pages->count + 1, sizeof(*numbers));
    for (unsigned i = 0; numbers != NULL && i < ROW_TABLE_LIMIT; i++) {
        const struct row_part *part = &pages->parts[i];
        for (size_t k = 0; k < part->full_count; k++) {
            numbers[part->full[k].number] = 1;
        }
    }
    for (uint32_t i = 0; numbers != NULL && i < pages->count; i++) {
        if (numbers[i] != 0) {
            numbers[i] = target->last = row_pages_next(target->last);
        }
    }
    return numbers;
}

/* Leaves that follow each other here and there are copied together. */
static bool leaves_copy(const struct row_pages *pages, const struct target *target, const uint32_t *numbers)
{
    uint8_t *buffer = malloc(WAITING_MAX);
    bool is_done = buffer != NULL;
    for (uint32_t from = 0; is_done && from < pages->count;) {
        uint32_t count = 1;
        while (numbers[from] != 0 && from + count < pages->count && count < WAITING_MAX / ROW_PAGE_BYTES &&
               numbers[from + count] == numbers[from] + count) {
            count++;
        }
        const size_t bytes = (size_t)count * ROW_PAGE_BYTES;
        is_done = numbers[from] == 0 ||
                  (file_read_whole(pages->fd, buffer, bytes, (uint64_t)from * ROW_PAGE_BYTES) &&
                   file_write_whole(target->fd, buffer, bytes, (uint64_t)(numbers[from] - 1) * ROW_PAGE_BYTES));
        from += count;
    }
    free(buffer);
    return is_done;
}

/* A page that lists others, in order of their rowids. */
static void interior_make(uint8_t *page, const struct row_page *children, size_t count)
{
    uint32_t content = ROW_PAGE_BYTES;
    memset(page, 0, ROW_PAGE_BYTES);
    for (size_t i = 0; i + 1 < count; i++) {
        uint8_t cell[16];
        put_32(cell, children[i].number);
        unsigned bytes = 4 + put_varint(cell + 4, children[i].rowid);
        content -= bytes;
        memcpy(page + content, cell, bytes);
        put_16(page + INTERIOR_HEADER + 2 * i, content);
    }
    page[0] = INTERIOR_TYPE;
    put_16(page + 3, (uint32_t)count - 1);
    put_16(page + 5, content);
    put_32(page + 8, children[count - 1].number);
}

/* Pages above pages, until the root has room for all: `count` of them in `pages`, which is overwritten. */
static bool tree_write(struct target *target, uint32_t root, struct row_page *pages, size_t count)
{
    uint8_t page[ROW_PAGE_BYTES];
    while (count > CHILDREN_MAX) {
        const size_t parents = (count + CHILDREN_MAX - 1) / CHILDREN_MAX;
        for (size_t i = 0, from = 0; i < parents; i++) {
            const size_t end = count * (i + 1) / parents;
            interior_make(page, &pages[from], end - from);
            target->last = row_pages_next(target->last);
            if (!row_page_write(target, target->last, page)) {
                return false;
            }
            pages[i] = (struct row_page){pages[end - 1].rowid, target->last};
            from = end;
        }
        count = parents;
    }
    interior_make(page, pages, count);
    return row_page_write(target, root, page);
}

/* A root that lists one child only is not allowed: that leaf is the root. */
static int part_append(struct row_part *part, struct target *target, uint32_t root, const uint32_t *numbers)
{
    if (part->leaf == NULL) {
        return VARVE_OK;
    }
    row_pages_leaf_end(part);
    if (part->full_count == 0) {
        return row_page_write(target, root, part->leaf) ? VARVE_OK : file_error(errno);
    }
    struct row_page *pages = calloc(part->full_count + 1, sizeof(*pages));
    if (pages == NULL) {
        return VARVE_ERROR_NO_MEMORY;
    }
    for (size_t i = 0; i < part->full_count; i++) {
        pages[i] = (struct row_page){part->full[i].rowid, numbers[part->full[i].number]};
    }
    target->last = row_pages_next(target->last);
    pages[part->full_count] = (struct row_page){part->rowid, target->last};
    bool is_done =
        row_page_write(target, target->last, part->leaf) && tree_write(target, root, pages, part->full_count + 1);
    int error = is_done ? VARVE_OK : file_error(errno);
    free(pages);
    return error;
}

/* How many pages there are now; the number of changes says that those who knew the database know it no longer. */
static bool row_pages_header_write(const struct target *target)
{
    uint8_t header[HEADER_BYTES];
    if (!file_read_whole(target->fd, header, sizeof(header), 0)) {
        return false;
    }
    const uint32_t changes = get_32(header + OFFSET_CHANGES) + 1;
    put_32(header + OFFSET_CHANGES, changes);
    put_32(header + OFFSET_PAGES, target->last);
    put_32(header + OFFSET_VALID_FOR, changes);
    return file_write_whole(target->fd, header, sizeof(header), 0);
}

int row_pages_append(struct row_pages *pages, int fd, uint32_t *page_count, const uint32_t roots[ROW_TABLE_LIMIT])
{
    struct target target = {.fd = fd, .last = *page_count};
    VARVE_TRY(row_pages_flush(pages));
    uint32_t *numbers = leaves_number(pages, &target);
    if (numbers == NULL) {
        return VARVE_ERROR_NO_MEMORY;
    }
    int error = leaves_copy(pages, &target, numbers) ? VARVE_OK : file_error(errno);
    for (unsigned i = 0; i < ROW_TABLE_LIMIT && error == VARVE_OK; i++) {
        error = part_append(&pages->parts[i], &target, roots[i], numbers);
    }
    if (error == VARVE_OK && !row_pages_header_write(&target)) {
        error = file_error(errno);
    }
    *page_count = target.last;
    free(numbers);
    return error;
}
