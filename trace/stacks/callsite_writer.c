/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Appends entries to the call-site file, which is mapped in windows: an entry is in the file from the
 * moment that its head is written, whatever ends the process, and no descriptor stays open in the program.
 * A store into a page that the disk has no room for is a SIGBUS, so each window is allocated before it is
 * mapped, by whichever thread needs it, without the lock; of several that try, the first one's is used. Where the
 * program may open or enlarge no file any more the collector allocates, and what is mapped already leads to the rest of
 * the file. Called by callsite_here.c and modules.c.
 */
#include "trace/stacks/callsite_writer.h"
#include "trace/guest/guest_memory.h"
#include "base/error.h"
#include "base/syscall.h"
#include "trace/format/callsite_format.h"
#include "trace/format/session_format.h"

#include <assert.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#define PATH_BYTES 4096U
#define STEP_FIRST (64U << 10)
#define STEP_LARGEST (1U << 20)
#define STEP_LEAST (2U * CALLSITE_ROOM_BYTES) /* where the disk or a limit allows no more */
#define RETRY_EVERY 1024U                     /* appends, after a window could not be had */
#define GRANT_TURNS 100U                      /* of waiting for the collector, which looks in each of its rounds */
#define GRANT_TURN_NS 1000000L

/* Of this process image; a fork child forgets it, and what was mapped is not there in it. Guarded by the
 * lock. */
static struct {
    unsigned char *bytes; /* the window */
    size_t size;
    size_t used;
    uint64_t end;                      /* of the file: where the next window begins */
    struct callsite_file_loss *counts; /* in the first page, which stays mapped */
    unsigned retry_in;
    char path[PATH_BYTES];
    struct session_growth *growth; /* NULL: nobody helps */
    const char *reserve;           /* a mapping that the file lies in, from `reserve_offset` on; NULL: it is a file */
    uint64_t reserve_offset;
} file;

/* Disk space, so that a store into it cannot fail. One thread at a time, without the lock of callsite_here.c: what
 * another one has mapped and begun to use must not be written with zeros. */
static bool space_allocate(int fd, uint64_t offset, size_t bytes)
{
    const uint64_t end = offset + bytes;
    recorder_sys_flock(fd, LOCK_EX);
    uint64_t size = (uint64_t)recorder_sys_lseek(fd, 0, SEEK_END);
    size = size > offset ? size : offset;
    bool done = size >= end || recorder_file_allocate(fd, size, end - size) == 0;
    recorder_sys_flock(fd, LOCK_UN); /* not by close: a fork may have a copy of the descriptor */
    return done;
}

static bool window_map_at(int fd, struct callsite_window *window, size_t bytes)
{
    window->size = bytes;
    window->bytes = space_allocate(fd, window->offset, bytes) ? recorder_map_window(fd, window->offset, bytes) : NULL;
    return window->bytes != NULL;
}

static bool window_map(int fd, struct callsite_window *window)
{
    size_t step = window->offset < STEP_FIRST ? STEP_FIRST : (size_t)window->offset;
    step = step < STEP_LARGEST ? step : STEP_LARGEST;
    return window_map_at(fd, window, step) || window_map_at(fd, window, STEP_LEAST);
}

void callsite_window_unmap(const struct callsite_window *window)
{
    if (window->bytes != NULL) {
        recorder_unmap(window->bytes, window->size);
    }
}

/* Has the collector allocated up to `end`? It is asked, and waited for a moment. */
static bool is_granted(struct session_growth *growth, uint64_t end)
{
    const struct timespec turn = {0, GRANT_TURN_NS};
    __atomic_store_n(&growth->wanted, end, __ATOMIC_RELEASE);
    for (unsigned i = 0; i < GRANT_TURNS && __atomic_load_n(&growth->granted, __ATOMIC_ACQUIRE) < end; i++) {
        recorder_sys_nanosleep(&turn);
    }
    return __atomic_load_n(&growth->granted, __ATOMIC_ACQUIRE) >= end;
}

/* The next window without a descriptor. */
static void window_map_granted(struct callsite_window *window, size_t bytes)
{
    const char *base = file.reserve;
    if (base == NULL && file.counts != NULL) {
        base = (const char *)file.counts - sizeof(struct callsite_file_entry);
    }
    if (base != NULL && file.growth != NULL && is_granted(file.growth, window->offset + bytes)) {
        window->size = bytes;
        window->bytes = recorder_map_more(base, file.reserve_offset + window->offset, bytes);
    }
}

void callsite_window_open(struct callsite_window *window)
{
    int fd = file.reserve == NULL ? recorder_sys_open(file.path, O_RDWR | O_NOFOLLOW, 0) : -1;
    if (fd >= 0) {
        (void)window_map(fd, window);
        recorder_sys_close(fd);
    }
    if (window->bytes == NULL) {
        window_map_granted(window, STEP_FIRST);
    }
}

/* Tag and length at once: before that there is no such entry. */
static void head_write(struct callsite_file_entry entry)
{
    uint64_t head;
    memcpy(&head, &entry, sizeof(head));
    __atomic_store_n((uint64_t *)(void *)(file.bytes + file.used), head, __ATOMIC_RELEASE);
}

void callsite_window_install(struct callsite_window *window)
{
    struct callsite_window old = {file.bytes, file.size, 0};
    if (window->offset != file.end) {
        return; /* another thread was first: its own goes */
    }
    if (window->bytes == NULL) {
        file.retry_in = RETRY_EVERY;
        return;
    }
    if (file.used < file.size) {
        head_write((struct callsite_file_entry){
            CALLSITE_FILE_TAG_PADDING, (uint32_t)(file.size - file.used - sizeof(struct callsite_file_entry))});
    }
    file.bytes = window->bytes;
    file.size = window->size;
    file.used = 0;
    file.end += window->size;
    *window = old;
}

bool callsite_window_is_wanted(struct callsite_window *window)
{
    *window = (struct callsite_window){.offset = file.end};
    if (file.bytes == NULL || file.size - file.used >= CALLSITE_ROOM_BYTES) {
        return false;
    }
    if (file.retry_in > 0) {
        file.retry_in--;
        return false;
    }
    return true;
}

void callsite_file_grow_by(struct session_growth *growth, const void *reserve, uint64_t offset)
{
    file.growth = growth;
    file.reserve = reserve;
    file.reserve_offset = reserve != NULL ? offset : 0;
}

static void callsite_writer_forget(bool is_mapped)
{
    if (is_mapped) {
        callsite_window_unmap(&(struct callsite_window){file.bytes, file.size, 0});
        if (file.counts != NULL) {
            recorder_unmap((char *)file.counts - sizeof(struct callsite_file_entry), CALLSITE_FILE_FIRST_PAGE_BYTES);
        }
    }
    file.bytes = NULL;
    file.counts = NULL;
    file.size = file.used = 0;
    file.end = 0;
    file.retry_in = 0;
}

/* The first window of the file, and its first page for itself. */
static int first_map(struct callsite_window *window, unsigned char **first)
{
    if (file.reserve != NULL) {
        window_map_granted(window, STEP_FIRST);
        if (window->bytes != NULL) {
            *first = recorder_map_more(file.reserve, file.reserve_offset, CALLSITE_FILE_FIRST_PAGE_BYTES);
        }
        return VARVE_OK;
    }
    int fd = recorder_sys_open(file.path, O_RDWR | O_CREAT | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return fd == -EACCES || fd == -EPERM ? VARVE_ERROR_PERMISSION : VARVE_ERROR_IO;
    }
    if (window_map(fd, window)) {
        *first = recorder_map_window(fd, 0, CALLSITE_FILE_FIRST_PAGE_BYTES);
    }
    recorder_sys_close(fd);
    return VARVE_OK;
}

int callsite_file_open(const char *path, bool is_again)
{
    static const struct callsite_file_loss none;
    const struct callsite_part part = {&none, sizeof(none)};
    struct callsite_window window = {.offset = 0};
    callsite_writer_forget(is_again);
    if (strlen(path) >= sizeof(file.path)) {
        return VARVE_ERROR_INVALID;
    }
    memcpy(file.path, path, strlen(path) + 1);
    unsigned char *first = NULL;
    int error = first_map(&window, &first);
    if (error == VARVE_OK && first == NULL) {
        callsite_window_unmap(&window);
        error = VARVE_ERROR_FULL;
    }
    if (error != VARVE_OK) {
        return error;
    }
    file.bytes = window.bytes;
    file.size = window.size;
    file.end = window.size;
    file.counts = (struct callsite_file_loss *)(void *)(first + sizeof(struct callsite_file_entry));
    return callsite_file_append(CALLSITE_FILE_TAG_LOST, &part, 1);
}

void callsite_file_close(void)
{
    callsite_writer_forget(file.bytes != NULL);
}

void callsite_file_lost(void)
{
    if (file.counts != NULL) {
        __atomic_fetch_add(&file.counts->stacks, 1, __ATOMIC_RELAXED);
    }
}

int callsite_file_append(uint32_t tag, const struct callsite_part *parts, unsigned count)
{
    struct callsite_file_entry entry = {.tag = tag};
    unsigned char *to = file.bytes + file.used + sizeof(entry);
    assert(count <= CALLSITE_PARTS_MAX);
    size_t bytes = 0;
    for (unsigned i = 0; i < count; i++) {
        bytes += parts[i].bytes;
    }
    bytes = (bytes + 7) & ~(size_t)7; /* padded with the zeros that are there */
    if (file.size - file.used < sizeof(entry) + bytes) {
        return VARVE_ERROR_FULL;
    }
    for (unsigned i = 0; i < count; i++) {
        memcpy(to, parts[i].data, parts[i].bytes);
        to += parts[i].bytes;
    }
    entry.bytes = (uint32_t)bytes;
    head_write(entry);
    file.used += sizeof(entry) + bytes;
    return VARVE_OK;
}
