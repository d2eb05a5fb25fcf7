/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The producer's side of a ring off the fast path: making its file, giving it memory step by step, retiring
 * it. The hard part is memory: a store into a tmpfs page that cannot be had kills the program with SIGBUS, so
 * slots are opened to the producer only after fallocate has put pages behind them, and a ring whose file
 * cannot grow any more simply counts as full.
 */
#include "trace/recorder_internal.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PATH_BYTES 4096U
#define FIRST_STEP_RECORDS 512U    /* 32 KiB: most processes and threads record little */
#define LARGEST_STEP_RECORDS 4096U /* 256 KiB */

static void ring_path(char *path, size_t bytes, const struct recorder_process *process, uint32_t index)
{
    recorder_format(path, bytes, "%s/ring/p%u.r%u", recorder_directory(), process->id, index);
}

static void header_fill(struct ring_header *ring, const struct recorder_process *process, uint32_t index)
{
    ring->version = VARVE_TRANSPORT_VERSION;
    ring->process_id = process->id;
    ring->ring_index = index;
    ring->tid = (uint32_t)syscall(SYS_gettid);
    ring->capacity = recorder_session()->ring_capacity;
    ring->staging_capacity = RING_STAGING_RECORDS;
    ring->created_ticks = varve_clock_ticks();
    syscall(SYS_prctl, 16 /* PR_GET_NAME */, ring->thread_name, 0L, 0L, 0L);
    ring->state = RING_STATE_OPEN;
    __atomic_store_n(&ring->magic, RING_MAGIC, __ATOMIC_RELEASE);
}

int recorder_ring_create(struct recorder_thread *thread, const struct recorder_process *process,
                         uint32_t index)
{
    char path[PATH_BYTES];
    uint32_t capacity = recorder_session()->ring_capacity;
    uint64_t bytes = ring_file_bytes(capacity);
    long front = (long)(RING_HEADER_BYTES + RING_STAGING_RECORDS * sizeof(struct varve_record));
    struct ring_header *ring = NULL;
    int fd;

    ring_path(path, sizeof(path), process, index);
    fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) {
        return VARVE_ERROR_IO;
    }
    if (syscall(SYS_fallocate, fd, 0, 0L, front) == 0 && ftruncate(fd, (off_t)bytes) == 0) {
        ring = recorder_map_file(fd, bytes, true);
    }
    close(fd);
    if (ring == NULL) {
        unlink(path);
        return VARVE_ERROR_NO_MEMORY;
    }
    thread->ring = ring;
    thread->ring_bytes = bytes;
    thread->populated = 0;
    thread->producer.records = ring_records(ring);
    thread->producer.mask = capacity - 1;
    thread->producer.line = (struct varve_ring_line *)&ring->emitted;
    header_fill(ring, process, index);
    return VARVE_OK;
}

static_assert(offsetof(struct ring_header, emitted) == 64, "the producer line starts a cache line");
static_assert(offsetof(struct ring_header, head) == 72, "struct varve_ring_line is its beginning");

void recorder_ring_retire(struct recorder_thread *thread)
{
    struct ring_header *ring = thread->ring;
    uint64_t bytes = thread->ring_bytes;

    thread->producer.limit = 0;
    thread->producer.line = NULL;
    thread->ring = NULL;
    __atomic_store_n(&ring->state, RING_STATE_RETIRED, __ATOMIC_RELEASE);
    recorder_unmap(ring, bytes);
}

/* Memory for `bytes` of the ring file from `offset` on. */
static bool populate(struct recorder_thread *thread, const struct recorder_process *process, uint64_t offset,
                     uint64_t bytes)
{
    char path[PATH_BYTES];
    bool done;
    int fd;

    ring_path(path, sizeof(path), process, thread->ring->ring_index);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    done = syscall(SYS_fallocate, fd, 0, (long)offset, (long)bytes) == 0;
    close(fd);
#ifdef MADV_POPULATE_WRITE
    if (done) { /* one call instead of a fault per page; older kernels fault */
        uintptr_t first = ((uintptr_t)thread->ring + offset) & ~(uintptr_t)4095;
        syscall(SYS_madvise, first, (uintptr_t)thread->ring + offset + bytes - first, MADV_POPULATE_WRITE);
    }
#endif
    return done;
}

bool recorder_ring_grow(struct recorder_thread *thread)
{
    struct recorder_process *process = recorder_process_current();
    uint64_t capacity = thread->producer.mask + 1;
    uint64_t step = thread->populated < FIRST_STEP_RECORDS ? FIRST_STEP_RECORDS : thread->populated;
    struct recorder_signals saved;
    uint64_t offset;

    if (thread->populated == capacity || thread->is_ring_short || process == NULL) {
        return false;
    }
    step = step > LARGEST_STEP_RECORDS ? LARGEST_STEP_RECORDS : step;
    step = step > capacity - thread->populated ? capacity - thread->populated : step;
    offset = (uint64_t)((char *)(thread->producer.records + thread->populated) - (char *)thread->ring);
    recorder_signals_block(&saved); /* what handlers emit meanwhile would have to be put aside */
    if (populate(thread, process, offset, step * sizeof(struct varve_record))) {
        thread->populated += step;
    } else {
        thread->is_ring_short = true;
    }
    recorder_signals_restore(&saved);
    return !thread->is_ring_short;
}

uint64_t recorder_ring_space(struct recorder_thread *thread)
{
    struct varve_producer *producer = &thread->producer;
    uint64_t capacity = producer->mask + 1;
    uint64_t limit = __atomic_load_n(&thread->ring->tail, __ATOMIC_ACQUIRE) + capacity;

    if (thread->populated < capacity) {
        if (producer->head >= thread->populated) {
            recorder_ring_grow(thread);
        }
        limit = limit < thread->populated || thread->populated == capacity ? limit : thread->populated;
    }
    producer->limit = limit;
    return limit - producer->head;
}

void recorder_ring_commit(struct recorder_thread *thread, const struct varve_record *record)
{
    struct varve_producer *producer = &thread->producer;
    struct varve_record *slot = &producer->records[producer->head & producer->mask];

    assert(producer->head < producer->limit);
    *slot = *record;
    __atomic_store_n(&producer->line->head, producer->head + 1, __ATOMIC_RELEASE);
    producer->head++;
}
