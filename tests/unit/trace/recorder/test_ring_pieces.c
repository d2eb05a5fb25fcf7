/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pieces that a ring grows by: some in memory, some on the disk, as the bounds say. Records come in order through
 * all of them, for a collector that takes over in the middle too; a piece goes when it was taken whole, and what the
 * session counts is what there is; a piece that somebody removed is missed, and nothing else. At random, beside the
 * ring's own model: test_ring.c.
 * Costs: 1 s
 */
#include "support/recorder.h"
#include "trace/collector/ring_reader.h"
#include "trace/collector/session/directory.h"
#include "trace/format/ring.h"
#include "trace/format/session.h"
#include "trace/record.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#define EVENTS UINT64_C(1500000)

static uint64_t random_state = 4711;

/* ---- files ---- */

struct piece_files {
    unsigned count, first, in_memory;
    uint64_t bytes, memory_bytes;
};

static void look_in(int folder, bool is_memory, struct piece_files *files)
{
    int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY);
    DIR *directory = fdopendir(fd);
    CHECK(directory != NULL, "no folder");
    struct dirent *entry;
    struct stat status;
    unsigned number;
    while ((entry = readdir(directory)) != NULL) {
        if (sscanf(entry->d_name, "p1.r1.spill%u", &number) == 1) {
            CHECK(fstatat(folder, entry->d_name, &status, 0) == 0, "%s", entry->d_name);
            files->first = files->count == 0 || number < files->first ? number : files->first;
            files->count++;
            files->in_memory += is_memory;
            files->bytes += (uint64_t)status.st_size;
            files->memory_bytes += is_memory ? (uint64_t)status.st_size : 0;
        }
    }
    closedir(directory);
}

/* What there is, which must be what the session has counted. */
static struct piece_files look(const struct session *session)
{
    const struct session_counts *counts = session->directory.counts;
    struct piece_files files = {0};
    look_in(session->directory.rings_fd, true, &files);
    look_in(session->directory.fd, false, &files);
    CHECK(counts->spill_bytes == files.bytes, "counted %llu bytes, there are %llu",
          (unsigned long long)counts->spill_bytes, (unsigned long long)files.bytes);
    CHECK(counts->growth_bytes == files.memory_bytes, "counted %llu bytes in memory, there are %llu",
          (unsigned long long)counts->growth_bytes, (unsigned long long)files.memory_bytes);
    return files;
}

/* ---- records ---- */

/* Numbered, as varied as a program's. */
static void emit_to(uint64_t *next, uint64_t end)
{
    for (; *next < end; ++*next) {
        emit(*next % 2 == 0 ? VARVE_KIND_HEAP_ALLOC : VARVE_KIND_HEAP_FREE, *next * 16,
             random_next(&random_state) % 4096);
    }
}

/* The next record that is one of ours: its number, or UINT64_MAX. */
static uint64_t take_one(struct session *session, struct consumer *consumer)
{
    struct varve_record record;
    do {
        if (!consumer_next(consumer, session, &record)) {
            return UINT64_MAX;
        }
    } while (varve_record_kind(&record) != VARVE_KIND_HEAP_ALLOC && varve_record_kind(&record) != VARVE_KIND_HEAP_FREE);
    return record.addr / 16;
}

static void take_to(struct session *session, struct consumer *consumer, uint64_t *next, uint64_t end)
{
    for (; *next < end; ++*next) {
        uint64_t number = take_one(session, consumer);
        CHECK(number == *next, "record %llu instead of %llu", (unsigned long long)number, (unsigned long long)*next);
    }
}

/* Another collector goes on where the one before has released. */
static void take_over(struct session *session, struct consumer *consumer)
{
    consumer_close(consumer);
    consumer_open(consumer, session, 1, 1);
    struct ring_reader *reader = consumer->reader;
    reader->read = reader->ring->tail;
    reader->spill_read = reader->ring->spill_tail;
    ring_reader_refresh(reader);
}

/* ---- scenarios ---- */

static void scenario_order(struct session *session, void *context)
{
    struct session_control *control = session->directory.control;
    uint64_t emitted = 0, taken = 0;
    (void)context;
    emit_to(&emitted, EVENTS);
    struct piece_files files = look(session);
    CHECK(files.count >= 3 && files.in_memory == files.count, "%u pieces, %u in memory", files.count, files.in_memory);
    control->growth_bytes_max = files.memory_bytes + 100000; /* a block or three more, then the disk */
    emit_to(&emitted, 2 * EVENTS);
    files = look(session);
    CHECK(files.in_memory < files.count && files.memory_bytes <= control->growth_bytes_max, "%u pieces, %u in memory",
          files.count, files.in_memory);
    control->growth_bytes_max = 0;
    emit_to(&emitted, 3 * EVENTS);
    CHECK(look(session).in_memory > files.in_memory, "not back in memory");
    CHECK(own_ring()->lost == 0, "%llu lost", (unsigned long long)own_ring()->lost);
    struct consumer consumer;
    consumer_open(&consumer, session, 1, 1);
    ring_reader_refresh(consumer.reader);
    struct piece_files fewer;
    for (unsigned i = 1; i < 40; i++) {
        files = look(session);
        take_to(session, &consumer, &taken, 3 * EVENTS * i / 40);
        ring_reader_release(consumer.reader);
        fewer = look(session);
        CHECK(fewer.first >= files.first && fewer.count == files.count - (fewer.first - files.first),
              "pieces %u to %u, %u of %u left", files.first, fewer.first, fewer.count, files.count);
        if (i % 3 == 0) {
            take_over(session, &consumer);
        }
    }
    CHECK(fewer.count <= 2, "%u pieces are left", fewer.count);
    take_to(session, &consumer, &taken, emitted);
    ring_reader_release(consumer.reader);
    emit_to(&emitted,
            emitted + (uint64_t)2 * RING_STAGING_RECORDS); /* it finds its spill drained, and is back in the ring */
    ring_reader_refresh(consumer.reader);
    take_to(session, &consumer, &taken, emitted);
    CHECK(own_ring()->pieces_ended == own_ring()->piece, "the spill did not end");
    ring_reader_release(consumer.reader);
    CHECK(look(session).count == 0, "pieces are left");
    check_conserved(consumer.reader->ring, "at the end");
    CHECK(consumer.reader->unreadable == 0, "unreadable");
    consumer_close(&consumer);
}

TEST(test_records_come_in_order)
{
    run_in_session(SESSION_OVERFLOW_SPILL, 16384, scenario_order, NULL, "order");
}

/* A thread that ends, and one that goes on: what was taken whole goes in either case. */
static void scenario_again(struct session *session, void *context)
{
    uint64_t emitted = 0, taken = 0;
    (void)context;
    emit_to(&emitted, 1);
    struct consumer consumer;
    consumer_open(&consumer, session, 1, 1);
    for (unsigned i = 0; i < 20; i++) {
        emit_to(&emitted, emitted + 1000 + random_next(&random_state) % 20000);
        ring_reader_refresh(consumer.reader);
        take_to(session, &consumer, &taken, emitted);
        ring_reader_release(consumer.reader);
        CHECK(look(session).count <= 1, "more than one piece");
    }
    CHECK(own_ring()->piece > 5, "%u pieces", own_ring()->piece);
    consumer.reader->process->has_ended = true;
    ring_reader_refresh(consumer.reader);
    ring_reader_release(consumer.reader);
    CHECK(look(session).count == 0, "a piece is left");
    consumer_close(&consumer);
}

TEST(test_pieces_go_again)
{
    run_in_session(SESSION_OVERFLOW_SPILL, 64, scenario_again, NULL, "again");
}

/* How many records stand in a piece, and with which it begins. */
static uint64_t records_of(const struct session *session, unsigned number, uint64_t *first)
{
    uint64_t count = 0;
    char name[32];
    snprintf(name, sizeof(name), "p1.r1.spill%u", number);
    int fd = session_file_open(&session->directory, name, O_RDONLY);
    CHECK(fd >= 0, "%s", name);
    struct record_block block;
    for (off_t at = 0; pread(fd, &block, sizeof(block), at) == (ssize_t)sizeof(block);
         at += (off_t)record_block_stride(&block)) {
        *first = count == 0 ? block.position : *first;
        CHECK(block.position == *first + count, "block at %llu", (unsigned long long)block.position);
        count += block.records;
    }
    close(fd);
    return count;
}

static void scenario_missing(struct session *session, void *context)
{
    unsigned missing = *(const unsigned *)context;
    uint64_t emitted = 0, taken = 0, first = 0;
    emit_to(&emitted, EVENTS);
    uint64_t gone = records_of(session, missing, &first);
    uint64_t in_ring = own_ring()->head - 2; /* what began the process and the thread */
    char name[32];
    snprintf(name, sizeof(name), "p1.r1.spill%u", missing);
    session_file_remove(&session->directory, name);
    struct consumer consumer;
    consumer_open(&consumer, session, 1, 1);
    ring_reader_refresh(consumer.reader);
    take_to(session, &consumer, &taken, in_ring + first);
    taken += gone;
    take_to(session, &consumer, &taken, emitted);
    CHECK(take_one(session, &consumer) == UINT64_MAX, "too many");
    CHECK(consumer.reader->unreadable == gone, "%llu unreadable, not %llu",
          (unsigned long long)consumer.reader->unreadable, (unsigned long long)gone);
    consumer_close(&consumer);
}

TEST(test_missing_piece)
{
    for (unsigned missing = 1; missing <= 3; missing++) {
        run_in_session(SESSION_OVERFLOW_SPILL, 64, scenario_missing, &missing, "missing");
    }
}
