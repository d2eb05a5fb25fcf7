/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The producer's side of a ring off the fast path: making its file, giving it memory step by step, retiring
 * it. The hard part is memory: a store into a tmpfs page that cannot be had kills the program with SIGBUS, so
 * slots are opened to the producer only after fallocate has put pages behind them, and a ring whose file
 * cannot grow any more simply counts as full.
 */
#include "trace/recorder_confine_internal.h"
#include "trace/recorder_internal.h"
#include "trace/recorder_syscall_internal.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#define PATH_BYTES 4096U
#define FIRST_STEP_RECORDS 512U     /* 32 KiB: most processes and threads record little */
#define LARGEST_STEP_RECORDS 16384U /* 1 MiB */

static void ring_path(char *path, size_t bytes, const struct recorder_process *process, uint32_t index)
{
    recorder_format(path, bytes, "%s/ring/p%u.r%u", recorder_directory(), process->id, index);
}

static void header_fill(struct ring_header *ring, const struct recorder_process *process, uint32_t index)
{
    ring->version = VARVE_TRANSPORT_VERSION;
    ring->process_id = process->id;
    ring->ring_index = index;
    ring->tid = (uint32_t)recorder_sys_gettid();
    ring->capacity = recorder_session()->ring_capacity;
    ring->staging_capacity = RING_STAGING_RECORDS;
    ring->created_ticks = varve_clock_ticks();
    recorder_sys_thread_name(ring->thread_name);
    ring->state = RING_STATE_OPEN;
    __atomic_store_n(&ring->magic, RING_MAGIC, __ATOMIC_RELEASE);
}

static struct ring_header *ring_make(struct recorder_thread *thread, const struct recorder_process *process,
                                     uint32_t index)
{
    char path[PATH_BYTES];
    uint32_t capacity = recorder_session()->ring_capacity;
    uint64_t bytes = ring_file_bytes(capacity);
    struct ring_header *ring = NULL;
    int fd;

    ring_path(path, sizeof(path), process, index);
    fd = recorder_sys_open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd < 0) {
        return NULL;
    }
    if (recorder_sys_fallocate(fd, 0, RING_HEADER_BYTES) == 0 && recorder_sys_ftruncate(fd, bytes) == 0) {
        ring = recorder_map_file(fd, bytes, true);
    }
    recorder_sys_close(fd);
    if (ring == NULL) {
        recorder_sys_unlink(path);
        return NULL;
    }
    thread->ring = ring;
    thread->ring_bytes = bytes;
    thread->capacity = capacity;
    thread->populated = 0;
    thread->is_ring_short = false;
    recorder_produce_to_ring(thread);
    return ring;
}

int recorder_ring_create(struct recorder_thread *thread, const struct recorder_process *process,
                         uint32_t index)
{
    struct ring_header *ring = ring_make(thread, process, index);

    if (ring == NULL) {
        return VARVE_ERROR_NO_MEMORY;
    }
    header_fill(ring, process, index);
    __atomic_add_fetch(&process->control->rings_made, 1, __ATOMIC_ACQ_REL);
    return VARVE_OK;
}

void recorder_produce_to_ring(struct recorder_thread *thread)
{
    struct varve_producer *producer = &thread->producer;
    struct ring_header *ring = thread->ring;

    producer->records = ring_records(ring);
    producer->mask = thread->capacity - 1;
    producer->emitted = &ring->emitted;
    producer->published = &ring->head;
    producer->head = ring->head;
    producer->limit = 0;
    thread->is_spilling = false;
}

void recorder_ring_retire(struct recorder_thread *thread)
{
    struct ring_header *ring = thread->ring;
    uint64_t bytes = thread->ring_bytes;

    thread->producer.limit = 0;
    thread->producer.emitted = NULL;
    thread->ring = NULL;
    __atomic_store_n(&ring->state, RING_STATE_RETIRED, __ATOMIC_RELEASE);
    recorder_unmap(ring, bytes);
    if (thread->packed != NULL) {
        recorder_unmap(thread->packed, OVERFLOW_PACKED_BYTES);
    }
}

/* Memory for `bytes` of the ring file from `offset` on. */
static bool populate(struct recorder_thread *thread, const struct recorder_process *process, uint64_t offset,
                     uint64_t bytes)
{
    char path[PATH_BYTES];
    bool done;
    int fd;

    ring_path(path, sizeof(path), process, thread->ring->ring_index);
    fd = recorder_sys_open(path, O_RDWR, 0);
    if (fd < 0) {
        return false;
    }
    done = recorder_sys_fallocate(fd, offset, bytes) == 0;
    recorder_sys_close(fd);
#ifdef MADV_POPULATE_WRITE
    if (done) { /* one call instead of a fault per page; older kernels fault */
        uintptr_t first = ((uintptr_t)thread->ring + offset) & ~(uintptr_t)4095;
        recorder_sys_madvise((void *)first, (uintptr_t)thread->ring + offset + bytes - first,
                             MADV_POPULATE_WRITE);
    }
#endif
    return done;
}

static bool make_staging(struct recorder_thread *thread)
{
    const struct recorder_process *process = recorder_process_current();

    if (process == NULL) {
        return false;
    }
    thread->has_staging =
        populate(thread, process, RING_HEADER_BYTES, RING_STAGING_RECORDS * sizeof(struct varve_record));
    return thread->has_staging;
}

bool recorder_produce_to_spill(struct recorder_thread *thread)
{
    struct varve_producer *producer = &thread->producer;
    struct ring_header *ring = thread->ring;

    if (!thread->has_staging && !make_staging(thread)) {
        return false;
    }
    producer->records = ring_staging(ring);
    producer->mask = RING_STAGING_RECORDS - 1;
    producer->published = &ring->spill_head;
    producer->head = ring->spill_head;
    producer->limit = ring->spill_flushed + RING_STAGING_RECORDS;
    thread->is_spilling = true;
    return true;
}

bool recorder_ring_grow(struct recorder_thread *thread)
{
    struct recorder_process *process = recorder_process_current();
    uint64_t capacity = thread->capacity;
    uint64_t step = thread->populated < FIRST_STEP_RECORDS ? FIRST_STEP_RECORDS : thread->populated;
    uint64_t offset;

    if (thread->populated == capacity || thread->is_ring_short || process == NULL ||
        recorder_is_confined()) {
        return false;
    }
    step = step > LARGEST_STEP_RECORDS ? LARGEST_STEP_RECORDS : step;
    step = step > capacity - thread->populated ? capacity - thread->populated : step;
    offset = (uint64_t)((char *)(ring_records(thread->ring) + thread->populated) - (char *)thread->ring);
    if (populate(thread, process, offset, step * sizeof(struct varve_record))) {
        thread->populated += step;
    } else {
        thread->is_ring_short = true;
    }
    return !thread->is_ring_short;
}

uint64_t recorder_ring_space(struct recorder_thread *thread)
{
    struct varve_producer *producer = &thread->producer;
    uint64_t capacity = thread->capacity;
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

void recorder_commit(struct recorder_thread *thread, const struct varve_record *record)
{
    struct varve_producer *producer = &thread->producer;
    struct varve_record *slot = &producer->records[producer->head & producer->mask];

    assert(producer->head < producer->limit);
    *slot = *record;
    if (__atomic_load_n(&varve_emit_is_mirrored, __ATOMIC_RELAXED) != 0 && !recorder_is_confined()) {
        recorder_mirror_tell(thread, slot);
    }
    __atomic_store_n(producer->published, producer->head + 1, __ATOMIC_RELEASE);
    producer->head++;
}
