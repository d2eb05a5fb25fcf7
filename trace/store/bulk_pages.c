/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fastest way into a table, for a database that one process makes in private: pages go into a file of their own as
 * they become full, in order of rowid, and at the end to the end of the database, with pages above them that list them.
 * SQLite sees a file as another process might have left it. Pages are those of sqlite_format.h. store.c calls it, with
 * STORE_CREATE_PRIVATE.
 */
#include "trace/store/bulk_pages.h"

#include "base/grown_array.h"
#include "trace/store/sqlite_format.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUFFER_BYTES (1U << 20)
#define LOCK_OFFSET 0x40000000U

/* A page, and the largest rowid in it and below it. */
struct bulk_child {
    uint32_t page;
    uint64_t last_rowid;
};

struct store_bulk {
    int fd;
    uint32_t page_bytes;
    uint8_t *buffer; /* pages, the last of them being filled; the buffer's first is page `written` of the file */
    uint32_t filled; /* whole pages in it */
    uint32_t cells;  /* of the page being filled */
    uint32_t content;
    uint64_t last_rowid;
    uint64_t written;
    int failure;           /* errno of the first one, after which nothing is taken */
    uint64_t *last_rowids; /* by page */
    size_t page_count, page_capacity;
};

struct store_bulk *bulk_open(const char *database_path, uint32_t page_bytes)
{
    char folder[4096];
    struct store_bulk *bulk = calloc(1, sizeof(*bulk));
    uint8_t *buffer = malloc(BUFFER_BYTES);
    const char *slash = strrchr(database_path, '/');
    snprintf(folder, sizeof(folder), "%.*s", slash != NULL ? (int)(slash - database_path) : 1,
             slash != NULL ? database_path : ".");
    int fd = bulk != NULL && buffer != NULL ? open(folder, O_RDWR | O_TMPFILE | O_CLOEXEC, 0600) : -1;
    if (fd < 0) {
        free(bulk);
        free(buffer);
        return NULL;
    }
    *bulk = (struct store_bulk){.fd = fd, .page_bytes = page_bytes, .buffer = buffer, .content = page_bytes};
    return bulk;
}

void bulk_close(struct store_bulk *bulk)
{
    if (bulk != NULL) {
        close(bulk->fd);
        free(bulk->buffer);
        free(bulk->last_rowids);
        free(bulk);
    }
}

static bool bulk_pages_write_all(int fd, const uint8_t *bytes, size_t count, off_t at)
{
    while (count > 0) {
        ssize_t done = pwrite(fd, bytes, count, at);
        if (done < 0 && errno != EINTR) {
            return false;
        }
        if (done > 0) {
            bytes += done;
            count -= (size_t)done;
            at += done;
        }
    }
    return true;
}

static uint8_t *page_filling(const struct store_bulk *bulk)
{
    return bulk->buffer + (size_t)bulk->filled * bulk->page_bytes;
}

static bool buffer_write(struct store_bulk *bulk)
{
    if (!bulk_pages_write_all(bulk->fd, bulk->buffer, (size_t)bulk->filled * bulk->page_bytes,
                              (off_t)(bulk->written * bulk->page_bytes))) {
        return false;
    }
    bulk->written += bulk->filled;
    bulk->filled = 0;
    return true;
}

/* The page being filled is full, or the last; afterwards the buffer has space for one. */
static bool leaf_write(struct store_bulk *bulk)
{
    uint8_t *page = page_filling(bulk);
    if (!ARRAY_GROW(bulk->last_rowids, bulk->page_capacity, bulk->page_count + 1)) {
        errno = ENOMEM;
        return false;
    }
    memset(page, 0, LEAF_HEADER);
    page[0] = LEAF_TYPE;
    put_16(page + 3, bulk->cells);
    put_16(page + 5, bulk->content);
    /* What lies between pointers and cells was another page's. */
    memset(page + LEAF_HEADER + 2 * bulk->cells, 0, bulk->content - LEAF_HEADER - 2 * bulk->cells);
    bulk->last_rowids[bulk->page_count++] = bulk->last_rowid;
    bulk->filled++;
    bulk->cells = 0;
    bulk->content = bulk->page_bytes;
    return (size_t)(bulk->filled + 1) * bulk->page_bytes <= BUFFER_BYTES || buffer_write(bulk);
}

static bool bulk_pages_leaf_end(struct store_bulk *bulk)
{
    if (bulk->failure == 0 && !leaf_write(bulk)) {
        bulk->failure = errno != 0 ? errno : EIO;
    }
    errno = bulk->failure;
    return bulk->failure == 0;
}

bool bulk_add(struct store_bulk *bulk, uint64_t rowid, const int64_t *values, uint32_t nulls, unsigned count)
{
    uint8_t cell[CELL_BYTES_MAX];
    unsigned bytes = cell_encode(cell, rowid, values, nulls, 0, count);
    assert(bulk->last_rowid < rowid);
    if (bulk->failure != 0) {
        errno = bulk->failure;
        return false;
    }
    if (LEAF_HEADER + 2 * (bulk->cells + 1) + bytes > bulk->content && !bulk_pages_leaf_end(bulk)) {
        return false;
    }
    uint8_t *page = page_filling(bulk);
    bulk->content -= bytes;
    memcpy(page + bulk->content, cell, bytes);
    put_16(page + LEAF_HEADER + 2 * bulk->cells, bulk->content);
    bulk->cells++;
    bulk->last_rowid = rowid;
    return true;
}

int bulk_failure(const struct store_bulk *bulk)
{
    return bulk->failure;
}

/* ---- into the database ---- */

struct attach {
    const struct store_bulk *bulk;
    int fd;
    uint32_t pages;     /* of the database so far */
    uint32_t lock_page; /* where SQLite locks bytes: never used */
    struct bulk_child *children;
    size_t count;
};

static uint32_t page_next(struct attach *attach)
{
    attach->pages += attach->pages + 1 == attach->lock_page ? 2 : 1;
    return attach->pages;
}

/* A page that lists `count` children. */
static bool interior_write(const struct attach *attach, uint32_t number, const struct bulk_child *children,
                           uint32_t count)
{
    uint32_t page_bytes = attach->bulk->page_bytes;
    uint8_t *page = calloc(1, page_bytes);
    uint32_t content = page_bytes;
    if (page == NULL) {
        errno = ENOMEM;
        return false;
    }
    for (uint32_t i = 0; i + 1 < count; i++) {
        uint8_t cell[16];
        put_32(cell, children[i].page);
        unsigned bytes = 4 + put_varint(cell + 4, children[i].last_rowid);
        content -= bytes;
        memcpy(page + content, cell, bytes);
        put_16(page + INTERIOR_HEADER + 2 * i, content);
    }
    page[0] = INTERIOR_TYPE;
    put_16(page + 3, count - 1);
    put_16(page + 5, content);
    put_32(page + 8, children[count - 1].page);
    bool is_written = bulk_pages_write_all(attach->fd, page, page_bytes, (off_t)(number - 1) * page_bytes);
    free(page);
    return is_written;
}

/* Levels of pages above the children, until one page, the root, can list all of them. */
static bool levels_write(struct attach *attach, uint32_t root)
{
    uint32_t fan = (attach->bulk->page_bytes - INTERIOR_HEADER) / 16; /* two bytes more than a cell has at most */
    while (attach->count > fan) {
        /* As evenly as possible: a page must list two at least. */
        size_t parents = (attach->count + fan - 1) / fan;
        for (size_t i = 0; i < parents; i++) {
            size_t first = attach->count * i / parents;
            size_t end = attach->count * (i + 1) / parents;
            uint32_t number = page_next(attach);
            if (!interior_write(attach, number, &attach->children[first], (uint32_t)(end - first))) {
                return false;
            }
            /* Parents never overtake the children that are still to be listed. */
            attach->children[i] =
                (struct bulk_child){.page = number, .last_rowid = attach->children[end - 1].last_rowid};
        }
        attach->count = parents;
    }
    return interior_write(attach, root, attach->children, (uint32_t)attach->count);
}

/* `count` leaves, from number `first` on, to the pages behind the first `pages`, by the kernel if it can. */
static bool leaves_copy(const struct attach *attach, uint64_t first, uint64_t count, uint32_t pages)
{
    uint64_t left = count * attach->bulk->page_bytes;
    off_t from = (off_t)(first * attach->bulk->page_bytes);
    off_t to = (off_t)pages * attach->bulk->page_bytes;
    while (left > 0) {
        ssize_t done = copy_file_range(attach->bulk->fd, &from, attach->fd, &to, left, 0);
        if (done <= 0 && errno != EINTR) {
            break;
        }
        left -= done > 0 ? (uint64_t)done : 0;
    }
    while (left > 0) {
        size_t part = left < BUFFER_BYTES ? left : BUFFER_BYTES;
        ssize_t done = pread(attach->bulk->fd, attach->bulk->buffer, part, from);
        if (done <= 0 || !bulk_pages_write_all(attach->fd, attach->bulk->buffer, (size_t)done, to)) {
            return false;
        }
        from += done;
        to += done;
        left -= (uint64_t)done;
    }
    return true;
}

static bool bulk_pages_header_write(const struct attach *attach)
{
    uint8_t header[100];
    if (pread(attach->fd, header, sizeof(header), 0) != (ssize_t)sizeof(header)) {
        return false;
    }
    uint32_t changes = (uint32_t)header[OFFSET_CHANGES] << 24 | (uint32_t)header[OFFSET_CHANGES + 1] << 16 |
                       (uint32_t)header[OFFSET_CHANGES + 2] << 8 | header[OFFSET_CHANGES + 3];
    put_32(header + OFFSET_CHANGES, changes + 1);
    put_32(header + OFFSET_PAGES, attach->pages);
    put_32(header + OFFSET_VALID_FOR, changes + 1);
    return bulk_pages_write_all(attach->fd, header, sizeof(header), 0);
}

static bool pages_attach(struct attach *attach, uint32_t root)
{
    const struct store_bulk *bulk = attach->bulk;
    uint64_t before = attach->lock_page > attach->pages ? attach->lock_page - 1 - attach->pages : bulk->page_count;
    before = before < bulk->page_count ? before : bulk->page_count;
    if (!leaves_copy(attach, 0, before, attach->pages) ||
        !leaves_copy(attach, before, bulk->page_count - before, attach->lock_page)) {
        return false;
    }
    for (size_t i = 0; i < bulk->page_count; i++) {
        attach->children[i] = (struct bulk_child){.page = page_next(attach), .last_rowid = bulk->last_rowids[i]};
    }
    attach->count = bulk->page_count;
    return levels_write(attach, root) && bulk_pages_header_write(attach);
}

bool bulk_attach(struct store_bulk *bulk, int fd, uint32_t root)
{
    struct attach attach = {.bulk = bulk, .fd = fd, .lock_page = LOCK_OFFSET / bulk->page_bytes + 1};
    if (bulk->failure != 0 || (bulk->cells > 0 && !bulk_pages_leaf_end(bulk))) {
        errno = bulk->failure;
        return false;
    }
    if (bulk->page_count == 0) {
        return true;
    }
    if (bulk->page_count == 1 && bulk->filled == 1) {
        return bulk_pages_write_all(fd, bulk->buffer, bulk->page_bytes, (off_t)(root - 1) * bulk->page_bytes);
    }
    struct stat status;
    if (!buffer_write(bulk) || fstat(fd, &status) != 0) {
        return false;
    }
    attach.pages = (uint32_t)((uint64_t)status.st_size / bulk->page_bytes);
    attach.children = calloc(bulk->page_count, sizeof(*attach.children));
    if (attach.children == NULL) {
        errno = ENOMEM;
        return false;
    }
    bool is_attached = pages_attach(&attach, root);
    free(attach.children);
    return is_attached;
}
