/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pieces of a ring (format/ring_format.h). A spilled record goes to the staging slots, which are shared memory (it
 * survives SIGKILL from then on), and from there, packed, to the newest piece, all slots at once. Pieces are written,
 * not mapped: a page costs half of what it costs to map it, and none is in the program's own memory. The file is opened
 * anew for each write: a descriptor that is kept could be closed by the program and its number reused for a
 * file of its own.
 */
#include "trace/recorder/ring.h"
#include "trace/guest/guest_memory.h"
#include "trace/recorder/session.h"
#include "base/syscall.h"
#include "trace/format/ring_format.h"
#include "trace/format/session_format.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

static bool spill_write_all(int fd, const char *bytes, size_t count, uint64_t offset)
{
    while (count > 0) {
        bool was_pending = recorder_size_signal_begin();
        long written = recorder_sys_pwrite(fd, bytes, count, offset);
        recorder_size_signal_end(was_pending, written);
        if (written == -EINTR) {
            continue;
        }
        if (written <= 0) {
            return false;
        }
        bytes += written;
        count -= (size_t)written;
        offset += (uint64_t)written;
    }
    return true;
}

static bool spill_count_up(uint64_t *count, const uint64_t *limit_at, uint64_t bytes)
{
    uint64_t limit = __atomic_load_n(limit_at, __ATOMIC_RELAXED);
    if (__atomic_add_fetch(count, bytes, __ATOMIC_ACQ_REL) <= limit || limit == 0) {
        return true;
    }
    __atomic_sub_fetch(count, bytes, __ATOMIC_ACQ_REL);
    return false;
}

/* The pieces of a recording together have a limit: a program that runs for ever must not fill memory and disk. */
static bool spill_reserve(uint64_t bytes, bool is_on_disk)
{
    struct session_counts *counts = recorder_session_counts();
    const struct session_control *session = recorder_session();
    if (!spill_count_up(&counts->spill_bytes, &session->spill_bytes_max, bytes)) {
        return false;
    }
    if (is_on_disk) {
        return true;
    }
    if (spill_count_up(&counts->growth_bytes, &session->growth_bytes_max, bytes)) {
        if (spill_count_up(&counts->memory_bytes, &session->memory_bytes_max, bytes)) {
            return true;
        }
        __atomic_sub_fetch(&counts->growth_bytes, bytes, __ATOMIC_ACQ_REL);
    }
    __atomic_sub_fetch(&counts->spill_bytes, bytes, __ATOMIC_ACQ_REL);
    return false;
}

static void spill_give_back(uint64_t bytes, bool is_on_disk)
{
    struct session_counts *counts = recorder_session_counts();
    __atomic_sub_fetch(&counts->spill_bytes, bytes, __ATOMIC_ACQ_REL);
    if (!is_on_disk) {
        __atomic_sub_fetch(&counts->growth_bytes, bytes, __ATOMIC_ACQ_REL);
        __atomic_sub_fetch(&counts->memory_bytes, bytes, __ATOMIC_ACQ_REL);
    }
}

/* `bytes` of what is packed into piece `piece` behind `offset`. What a write that failed has left there goes again. */
static bool write_at(struct recorder_thread *thread, uint32_t piece, uint64_t offset, uint64_t bytes, bool is_on_disk)
{
    const struct ring_header *ring = thread->ring;
    if (!spill_reserve(bytes, is_on_disk)) {
        return false;
    }
    recorder_format(thread->path, sizeof(thread->path), "%s%s/p%u.r%u.spill%u", recorder_directory(),
                    is_on_disk ? "" : "/ring", ring->process_id, ring->ring_index, piece);
    int fd = recorder_sys_open(thread->path, O_WRONLY | O_CREAT | O_NOFOLLOW, 0600);
    bool done = false;
    if (fd >= 0) {
        done = spill_write_all(fd, (const char *)thread->packed, bytes, offset);
        if (!done) {
            recorder_sys_ftruncate(fd, offset);
        }
        recorder_sys_close(fd);
        if (!done && offset == 0) {
            recorder_sys_unlink(thread->path);
        }
    }
    if (!done) {
        spill_give_back(bytes, is_on_disk);
    }
    return done;
}

/* Into the newest piece; where that is complete, or memory has no room for more of it, into the next one, which is in
 * memory if there is room, else on the disk. */
static bool spill_write_bytes(struct recorder_thread *thread, uint64_t bytes)
{
    struct ring_header *ring = thread->ring;
    bool is_begun = ring->piece > ring->pieces_ended && ring->piece_bytes < SPILL_PIECE_BYTES;
    bool is_on_disk = is_begun;
    if (is_begun && write_at(thread, ring->piece, ring->piece_bytes, bytes, thread->piece_is_on_disk)) {
        ring->piece_bytes += bytes;
        return true;
    }
    if (is_begun && thread->piece_is_on_disk) {
        return false;
    }
    if (!is_on_disk && !write_at(thread, ring->piece + 1, 0, bytes, false)) {
        is_on_disk = true;
    }
    if (is_on_disk && !write_at(thread, ring->piece + 1, 0, bytes, true)) {
        return false;
    }
    thread->piece_is_on_disk = is_on_disk;
    ring->piece_bytes = bytes;
    __atomic_store_n(&ring->piece, ring->piece + 1, __ATOMIC_RELEASE);
    return true;
}

/* All staging slots to the end of the pieces, as one block. A write that was cut short is simply repeated. */
static bool spill_write_block(struct recorder_thread *thread)
{
    const struct ring_header *ring = thread->ring;
    struct record_block block = {.records = RING_STAGING_RECORDS, .position = ring->spill_flushed};
    if (thread->packed_position != ring->spill_flushed + 1) { /* else it is packed, and its write had failed */
        block.bytes = (uint32_t)record_pack(thread->staging, RING_STAGING_RECORDS, thread->packed + sizeof(block));
        memcpy(thread->packed, &block, sizeof(block));
        thread->packed_position = ring->spill_flushed + 1;
    }
    memcpy(&block, thread->packed, sizeof(block));
    return spill_write_bytes(thread, record_block_stride(&block));
}

bool spill_flush(struct recorder_thread *thread)
{
    struct ring_header *ring = thread->ring;
    uint64_t from = ring->spill_flushed;
    assert(ring->spill_head - from == RING_STAGING_RECORDS && from % RING_STAGING_RECORDS == 0);
    if (thread->packed == NULL) {
        thread->packed = recorder_map(OVERFLOW_PACKED_BYTES);
    }
    bool done = thread->packed != NULL && spill_write_block(thread);
    if (done) {
        __atomic_store_n(&ring->spill_flushed, from + RING_STAGING_RECORDS, __ATOMIC_RELEASE);
    }
    return done;
}

void spill_end(struct recorder_thread *thread)
{
    struct ring_header *ring = thread->ring;
    __atomic_store_n(&ring->spill_resume, ring->spill_head, __ATOMIC_RELEASE);
    __atomic_store_n(&ring->pieces_ended, ring->piece, __ATOMIC_RELEASE);
}
