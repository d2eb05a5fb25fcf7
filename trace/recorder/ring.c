/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The producer's side of a ring off the fast path: making its file, giving it memory step by step, retiring
 * it. A store into a tmpfs page that cannot be had kills the program with SIGBUS, so slots are opened to
 * the producer only after fallocate has put pages behind them; a ring whose file can't grow any more counts
 * as full. Called by emit_slow.c and overflow.c.
 */
#include "trace/recorder/ring.h"
#include "trace/guest/guest_clock.h"
#include "trace/guest/confinement.h"
#include "trace/guest/guest_memory.h"
#include "trace/recorder/emit_slow.h"
#include "trace/recorder/session.h"
#include "base/syscall.h"
#include "trace/format/session_format.h"
#include "base/error.h"
#include "trace/emit.h"
#include "trace/record.h"

#include <assert.h>
#include <sys/mman.h>
#include <time.h>

#define LARGEST_STEP_RECORDS 16384U /* 1 MiB */
#define GRANT_TURNS 1000U           /* of waiting for the collector, which looks in each of its rounds */
#define GRANT_TURN_NS 1000000L
#define BOUNDED_TURNS 500U /* of waiting for it to look at this process for the first time */
#define GRANT_FACTOR 4U    /* how much larger a ring is that the collector lets grow */

/* A file of this ring. Memory has no room for some: those are in the recording directory itself. */
static const char *file_path(struct recorder_thread *thread, uint32_t process_id, uint32_t index, bool is_on_disk,
                             const char *suffix)
{
    recorder_format(thread->path, sizeof(thread->path), "%s%s/p%u.r%u%s", recorder_directory(),
                    is_on_disk ? "" : "/ring", process_id, index, suffix);
    return thread->path;
}

static uint64_t ring_offset_of(const struct ring_header *ring, const struct varve_record *record)
{
    return (uint64_t)((const char *)record - (const char *)ring);
}

/* One call instead of a fault per page; older kernels fault. */
static void populate(struct recorder_thread *thread, uint64_t offset, uint64_t bytes)
{
#ifdef MADV_POPULATE_WRITE
    uintptr_t first = ((uintptr_t)thread->ring + offset) & ~(uintptr_t)4095;
    recorder_sys_madvise((void *)first, (uintptr_t)thread->ring + offset + bytes - first, MADV_POPULATE_WRITE);
#else
    (void)thread, (void)offset, (void)bytes;
#endif
}

static void ring_header_fill(const struct recorder_thread *thread, const struct recorder_process *process,
                             uint32_t index)
{
    struct ring_header *ring = thread->ring;
    ring->version = VARVE_TRANSPORT_VERSION;
    ring->process_id = process->id;
    ring->ring_index = index;
    ring->tid = (uint32_t)recorder_sys_gettid();
    ring->capacity = thread->capacity;
    ring->staging_capacity = RING_STAGING_RECORDS;
    ring->created_ticks = varve_clock_ticks();
    recorder_sys_thread_name(ring->thread_name);
    ring->state = RING_STATE_OPEN;
    __atomic_store_n(&ring->magic, RING_MAGIC, __ATOMIC_RELEASE);
}

/* The program wants some of the memory file system too, and would be killed by SIGBUS where it has none left.
 */
static bool memory_reserve(uint64_t bytes)
{
    struct session_counts *counts = recorder_session_counts();
    uint64_t limit = __atomic_load_n(&recorder_session()->memory_bytes_max, __ATOMIC_RELAXED);
    if (bytes == 0 || __atomic_add_fetch(&counts->memory_bytes, bytes, __ATOMIC_ACQ_REL) <= limit || limit == 0) {
        return true;
    }
    __atomic_sub_fetch(&counts->memory_bytes, bytes, __ATOMIC_ACQ_REL);
    return false;
}

static uint64_t groups_number(struct recorder_thread *thread)
{
    const long length = recorder_read_file("/proc/self/cgroup", thread->path, sizeof(thread->path) - 1);
    thread->path[length > 0 ? length : 0] = '\0';
    return session_groups_number(thread->path);
}

/* Also where no groups are looked at. */
static bool is_bounded(const struct process_control *process, uint64_t number)
{
    const uint64_t *known = recorder_session()->groups_bounded;
    bool is_known = __atomic_load_n(&process->is_bounded, __ATOMIC_ACQUIRE) != 0 ||
                    __atomic_load_n(&known[0], __ATOMIC_ACQUIRE) == 0;
    for (unsigned i = 0; i < SESSION_GROUPS_MAX && !is_known; i++) {
        is_known = __atomic_load_n(&known[i], __ATOMIC_ACQUIRE) == number;
    }
    return is_known;
}

/* Rings that grow before the collector has seen that this process is in a small control group would end it. */
static void await_bounds(struct recorder_thread *thread)
{
    const struct timespec turn = {0, GRANT_TURN_NS};
    struct process_control *process = recorder_process_current()->control;
    if (__atomic_load_n(&process->is_bounded, __ATOMIC_ACQUIRE) != 0) {
        return;
    }
    const uint64_t number = groups_number(thread);
    for (unsigned i = 0; i < BOUNDED_TURNS && !is_bounded(process, number); i++) {
        if (recorder_collector_is_gone() || recorder_sys_nanosleep(&turn) != 0) {
            break;
        }
    }
    __atomic_store_n(&process->is_bounded, 1, __ATOMIC_RELEASE); /* there is no second wait */
}

static void memory_give_back(uint64_t bytes)
{
    __atomic_sub_fetch(&recorder_session_counts()->memory_bytes, bytes, __ATOMIC_ACQ_REL);
}

/* First pages, length and mapping for a ring of `capacity` in an empty file, the header's pages first: the collector
 * reads the header of each file that is long enough, and where no page can be had even that is a
 * SIGBUS. 0 or -errno. */
static long ring_fit(struct recorder_thread *thread, int fd, uint32_t capacity)
{
    uint64_t bytes = ring_file_bytes(capacity);
    uint64_t records = bytes - capacity * sizeof(struct varve_record);
    uint64_t first = capacity < RING_FIRST_RECORDS ? capacity : RING_FIRST_RECORDS;
    long result = recorder_file_allocate(fd, 0, RING_HEADER_BYTES);
    VARVE_THEN(result, recorder_file_resize(fd, bytes));
    VARVE_THEN(result, recorder_file_allocate(fd, records, first * sizeof(struct varve_record)));
    if (result == 0) {
        thread->ring = recorder_map_file(fd, bytes, true);
        result = thread->ring != NULL ? 0 : -ENOMEM;
    }
    if (result == 0) {
        thread->ring_bytes = bytes;
        thread->capacity = capacity;
        thread->populated = first;
        populate(thread, records, first * sizeof(struct varve_record));
    }
    return result;
}

/* A program may allow itself only short files, or little address space: the ring is a smaller one then. */
static long ring_ring_make(struct recorder_thread *thread, const struct recorder_process *process, uint32_t index,
                           bool is_on_disk)
{
    const char *path = file_path(thread, process->id, index, is_on_disk, "");
    uint32_t capacity = recorder_session()->ring_capacity;
    const uint64_t memory = is_on_disk ? 0 : RING_HEADER_BYTES + RING_FIRST_RECORDS * sizeof(struct varve_record);
    if (!memory_reserve(memory)) {
        return -ENOSPC;
    }
    int fd = recorder_sys_open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
    if (fd < 0) {
        memory_give_back(memory);
        return fd;
    }
    long result;
    do {
        result = ring_fit(thread, fd, capacity);
        capacity /= 2;
    } while ((result == -EFBIG || result == -ENOMEM) && capacity >= RING_CAPACITY_MIN);
    recorder_sys_close(fd);
    if (result != 0) {
        recorder_sys_unlink(path);
        memory_give_back(memory);
        return result;
    }
    thread->ring->memory_bytes = memory;
    thread->is_on_disk = is_on_disk;
    return 0;
}

static bool is_out_of_room(long result)
{
    return result == -ENOSPC || result == -EDQUOT ||
           result == -ENOMEM; /* of a control group, which a file system passes on */
}

/* In the reserve, where no file can be made. */
static long ring_reserve(struct recorder_thread *thread, const struct recorder_process *process, uint32_t index)
{
    uint32_t capacity = recorder_session()->ring_capacity;
    capacity = capacity < RING_CAPACITY_DEFAULT ? capacity : RING_CAPACITY_DEFAULT;
    const uint64_t bytes = ring_file_bytes(capacity);
    thread->ring = recorder_reserve_take(RESERVE_STATE_RING, process->id, index, bytes);
    if (thread->ring == NULL) {
        return -ENOMEM;
    }
    thread->ring_bytes = bytes;
    thread->capacity = capacity;
    thread->populated = capacity < RING_FIRST_RECORDS ? capacity : RING_FIRST_RECORDS;
    thread->is_on_disk = false;
    thread->is_cut_off = true;
    return 0;
}

int recorder_ring_create(struct recorder_thread *thread, const struct recorder_process *process, uint32_t index)
{
    thread->is_cut_off = false;
    long result = ring_ring_make(thread, process, index, false);
    if (is_out_of_room(result)) {
        result = ring_ring_make(thread, process, index, true);
    }
    if (result != 0 && ring_reserve(thread, process, index) != 0) {
        return VARVE_ERROR_NO_MEMORY;
    }
    recorder_produce_to_ring(thread);
    ring_header_fill(thread, process, index);
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

bool recorder_ring_staging_is_apart(const struct recorder_thread *thread)
{
    return thread->staging != NULL && thread->staging != ring_staging(thread->ring);
}

void recorder_ring_retire(struct recorder_thread *thread)
{
    struct ring_header *ring = thread->ring;
    uint64_t bytes = thread->ring_bytes;
    thread->producer.limit = 0;
    thread->producer.emitted = NULL;
    if (recorder_ring_staging_is_apart(thread)) {
        recorder_unmap(thread->staging, RING_STAGING_BYTES);
    }
    thread->ring = NULL;
    __atomic_store_n(&ring->state, RING_STATE_RETIRED, __ATOMIC_RELEASE);
    recorder_unmap(ring, bytes);
    if (thread->packed != NULL) {
        recorder_unmap(thread->packed, OVERFLOW_PACKED_BYTES);
    }
}

/* Memory for `bytes` of the ring file from `offset` on. The file is opened anew: a descriptor that is kept
 * could be closed by the program and its number reused for a file of its own. */
static bool ring_extend(struct recorder_thread *thread, uint64_t offset, uint64_t bytes)
{
    if (thread->is_cut_off) {
        return false;
    }
    await_bounds(thread);
    struct ring_header *ring = thread->ring;
    const char *path = file_path(thread, ring->process_id, ring->ring_index, thread->is_on_disk, "");
    uint64_t memory = thread->is_on_disk && !recorder_memory_is_scarce() ? 0 : bytes;
    if (!memory_reserve(memory)) {
        return false;
    }
    int fd = recorder_sys_open(path, O_RDWR | O_NOFOLLOW, 0);
    long result = fd;
    if (fd >= 0) {
        result = recorder_file_allocate(fd, offset, bytes);
        recorder_sys_close(fd);
    }
    if (result == 0) {
        ring->memory_bytes += memory;
        populate(thread, offset, bytes);
    } else {
        memory_give_back(memory);
        thread->is_cut_off = !is_out_of_room(result);
    }
    return result == 0;
}

/* Memory has no room for the staging slots of a ring in it: they get a file in the recording directory. */
static struct varve_record *staging_apart(struct recorder_thread *thread)
{
    const struct ring_header *ring = thread->ring;
    const char *path = file_path(thread, ring->process_id, ring->ring_index, true, ".staging");
    int fd = recorder_sys_open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return NULL;
    }
    void *staging = NULL;
    if (recorder_file_allocate(fd, 0, RING_STAGING_BYTES) == 0) {
        staging = recorder_map_file(fd, RING_STAGING_BYTES, true);
    }
    recorder_sys_close(fd);
    if (staging == NULL) {
        recorder_sys_unlink(path);
    }
    return staging;
}

static bool may_try(const struct recorder_retry *retry)
{
    return !recorder_is_confined() && recorder_process_current() != NULL && recorder_retry_is_due(retry);
}

static bool make_staging(struct recorder_thread *thread)
{
    struct ring_header *ring = thread->ring;
    if (!may_try(&thread->staging_retry)) {
        return false;
    }
    if (ring_extend(thread, RING_HEADER_BYTES, RING_STAGING_BYTES)) {
        thread->staging = ring_staging(ring);
    } else if (!thread->is_on_disk) {
        thread->staging = staging_apart(thread);
        __atomic_store_n(&ring->staging_is_apart, thread->staging != NULL, __ATOMIC_RELEASE);
    }
    if (thread->staging == NULL) {
        recorder_retry_later(&thread->staging_retry);
    }
    return thread->staging != NULL;
}

bool recorder_produce_to_spill(struct recorder_thread *thread)
{
    struct varve_producer *producer = &thread->producer;
    struct ring_header *ring = thread->ring;
    if (thread->staging == NULL && !make_staging(thread)) {
        return false;
    }
    producer->records = thread->staging;
    producer->mask = RING_STAGING_RECORDS - 1;
    producer->published = &ring->spill_head;
    producer->head = ring->spill_head;
    producer->limit = ring->spill_flushed + RING_STAGING_RECORDS;
    thread->is_spilling = true;
    return true;
}

/* No more is to be had: the ring is one of the slots that have memory, if their number is a power of two. Positions
 * have passed none beyond them, so each keeps its slot. */
static void make_do(struct recorder_thread *thread)
{
    if ((thread->populated & (thread->populated - 1)) == 0) {
        thread->capacity = (uint32_t)thread->populated;
        __atomic_store_n(&thread->ring->capacity, thread->capacity, __ATOMIC_RELEASE);
        if (!thread->is_spilling) {
            thread->producer.mask = thread->capacity - 1;
        }
    }
}

/* By the collector. */
static bool grow_by_grant(struct recorder_thread *thread)
{
    struct session_growth *slots = &thread->ring->slots;
    const uint64_t granted = __atomic_load_n(&slots->granted, __ATOMIC_ACQUIRE);
    const uint64_t wanted = thread->populated * GRANT_FACTOR;
    if (granted == GROWTH_REFUSED) {
        make_do(thread);
        return false;
    }
    if (granted > thread->populated) {
        const uint64_t from = ring_offset_of(thread->ring, ring_records(thread->ring) + thread->populated);
        const uint64_t more = granted < thread->capacity ? granted : thread->capacity;
        populate(thread, from, (more - thread->populated) * sizeof(struct varve_record));
        thread->populated = more;
        return true;
    }
    if (wanted > __atomic_load_n(&slots->wanted, __ATOMIC_RELAXED)) {
        __atomic_store_n(&slots->wanted, wanted < thread->capacity ? wanted : thread->capacity, __ATOMIC_RELEASE);
    }
    return false;
}

bool recorder_ring_grow(struct recorder_thread *thread)
{
    uint64_t capacity = thread->capacity;
    uint64_t step = thread->populated;
    const struct varve_record *first = ring_records(thread->ring) + thread->populated;
    if (thread->populated == capacity) {
        return false;
    }
    if (thread->is_cut_off) {
        return grow_by_grant(thread);
    }
    if (!may_try(&thread->ring_retry)) {
        return false;
    }
    step = step > LARGEST_STEP_RECORDS ? LARGEST_STEP_RECORDS : step;
    step = step > capacity - thread->populated ? capacity - thread->populated : step;
    if (ring_extend(thread, ring_offset_of(thread->ring, first), step * sizeof(struct varve_record))) {
        thread->populated += step;
        return true;
    }
    recorder_retry_later(&thread->ring_retry);
    if (recorder_memory_is_scarce()) {
        make_do(thread);
    }
    return false;
}

void recorder_ring_grow_whole(struct recorder_thread *thread)
{
    const struct timespec turn = {0, GRANT_TURN_NS};
    while (recorder_ring_grow(thread)) {
    }
    for (unsigned i = 0; thread->is_cut_off && thread->populated < thread->capacity && i < GRANT_TURNS; i++) {
        __atomic_store_n(&thread->ring->slots.wanted, thread->capacity, __ATOMIC_RELEASE);
        if (recorder_collector_is_gone() || recorder_sys_nanosleep(&turn) != 0) {
            break;
        }
        (void)grow_by_grant(thread);
    }
}

bool recorder_ring_is_short(const struct recorder_thread *thread)
{
    return !thread->is_cut_off && thread->populated < thread->capacity && thread->ring->head >= thread->populated;
}

uint64_t recorder_ring_space(struct recorder_thread *thread)
{
    struct varve_producer *producer = &thread->producer;
    if (thread->populated < thread->capacity && producer->head >= thread->populated) {
        recorder_ring_grow(thread);
    }
    uint64_t limit = __atomic_load_n(&thread->ring->tail, __ATOMIC_ACQUIRE) + thread->capacity;
    if (thread->populated < thread->capacity) {
        limit = limit < thread->populated ? limit : thread->populated;
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
    if (__atomic_load_n(&varve_emit_has_sink, __ATOMIC_RELAXED) != 0 && !recorder_is_confined()) {
        second_sink_emit(thread, slot);
    }
    __atomic_store_n(producer->published, producer->head + 1, __ATOMIC_RELEASE);
    producer->head++;
}
