/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A producer that is cut off from the recording directory has its ring and its call-site file mapped still, and can map
 * more of them; only blocks behind them it can't get. It asks in shared memory, and the collector, which is the user
 * that it was, allocates. What producers write is not trusted: no file gets longer than its kind allows.
 */
#include "trace/collector/collector.h"

#include "trace/collector/session/recording_directory.h"
#include "trace/format/ring_format.h"
#include "trace/format/session_format.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#define SITES_MAX (UINT64_C(1) << 30) /* bytes of a call-site file, as many as numbers allow */

/* More is wanted than was granted; `*wanted` is up to where. */
static bool is_asked(const struct session_growth *growth, uint64_t limit, uint64_t *wanted)
{
    *wanted = __atomic_load_n(&growth->wanted, __ATOMIC_ACQUIRE);
    *wanted = *wanted < limit ? *wanted : limit;
    return *wanted > __atomic_load_n(&growth->granted, __ATOMIC_RELAXED);
}

/* Blocks behind [from, end) of a file; returns the bytes that it has more now, -1 on failure. */
static int64_t file_allocate(const struct session_directory *directory, const char *name, uint64_t from, uint64_t end)
{
    int fd = session_file_open(directory, name, O_RDWR);
    struct stat before, after;
    int64_t more = -1;
    if (fd >= 0 && fstat(fd, &before) == 0 && posix_fallocate(fd, (off_t)from, (off_t)(end - from)) == 0 &&
        fstat(fd, &after) == 0) {
        more = (int64_t)(after.st_blocks - before.st_blocks) * 512;
    }
    session_descriptor_close(&fd);
    return more;
}

static bool ring_grow(struct collector *collector, struct ring_reader *reader, uint64_t granted, uint64_t wanted)
{
    struct session_directory *directory = &collector->directory;
    const uint64_t begin = RING_HEADER_BYTES + RING_STAGING_BYTES;
    const uint64_t from =
        begin + (granted > RING_FIRST_RECORDS ? granted : RING_FIRST_RECORDS) * sizeof(struct varve_record);
    const uint64_t end = begin + wanted * sizeof(struct varve_record);
    const uint64_t limit = __atomic_load_n(&directory->control->memory_bytes_max, __ATOMIC_RELAXED);
    if (limit != 0 && __atomic_load_n(&directory->counts->memory_bytes, __ATOMIC_ACQUIRE) + (end - from) > limit) {
        return false;
    }
    uint64_t offset;
    if (session_reserve_find(&directory->reserve, RESERVE_STATE_RING, reader->process->id, reader->index, &offset)) {
        return session_reserve_grow(&directory->reserve, offset, from, end - from);
    }
    char name[64];
    snprintf(name, sizeof(name), "p%u.r%u", reader->process->id, reader->index);
    const int64_t more = file_allocate(directory, name, begin, end);
    if (more > 0 && reader->ring->memory_bytes > 0) { /* else it lies on the disk */
        reader->granted_bytes += (uint64_t)more;
        __atomic_add_fetch(&directory->counts->memory_bytes, (uint64_t)more, __ATOMIC_ACQ_REL);
    }
    return more >= 0;
}

static void grant_slots(struct collector *collector, struct ring_reader *reader)
{
    struct session_growth *slots = &reader->ring->slots;
    uint64_t wanted;
    if (is_asked(slots, reader->capacity, &wanted)) {
        const bool is_given = ring_grow(collector, reader, slots->granted, wanted);
        __atomic_store_n(&slots->granted, is_given ? wanted : GROWTH_REFUSED, __ATOMIC_RELEASE);
    }
}

static void grant_sites(struct collector *collector, const struct traced_process *process)
{
    struct session_directory *directory = &collector->directory;
    struct session_growth *sites = &process->control->sites;
    uint64_t wanted;
    if (!is_asked(sites, SITES_MAX, &wanted)) {
        return;
    }
    uint64_t offset;
    char name[64];
    snprintf(name, sizeof(name), "p%u.sites", process->id);
    const bool is_given = session_reserve_find(&directory->reserve, RESERVE_STATE_PROCESS, process->id, 0, &offset)
                              ? session_reserve_grow(&directory->reserve, offset, RESERVE_SITES_OFFSET + sites->granted,
                                                     wanted - sites->granted)
                              : file_allocate(directory, name, 0, wanted) >= 0;
    if (is_given) {
        __atomic_store_n(&sites->granted, wanted, __ATOMIC_RELEASE);
    }
}

void collect_grants(struct collector *collector)
{
    session_reserve_fill(&collector->directory.reserve);
    for (size_t i = 0; i < collector->reader_count; i++) {
        grant_slots(collector, collector->readers[i]);
    }
    for (uint32_t i = collector->first_open; i < collector->process_count; i++) {
        if (collector->processes[i] != NULL && !collector->processes[i]->is_closed) {
            grant_sites(collector, collector->processes[i]);
        }
    }
}
