/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pieces that a ring grows by: some in memory, some on the disk, as the bounds say. Records come in order through
 * all of them, for a collector that takes over in the middle too; a piece goes when it was taken whole, and what the
 * session counts is what there is; a piece that somebody removed is missed, and nothing else. At random: test_ring.c.
 * Costs: 1 s
 */
#include "support/recorder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#define EVENTS UINT64_C(1500000)

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
    CHECK_EQUAL(counts->spill_bytes, files.bytes);
    CHECK_EQUAL(counts->growth_bytes, files.memory_bytes);
    return files;
}

/* ---- records ---- */

static uint64_t emitted;

static void emit_more(uint64_t count)
{
    emit_numbered(emitted + 1, emitted + count);
    emitted += count;
}

/* ---- scenarios ---- */

static void scenario_order(struct session *session, void *context)
{
    struct session_control *control = session->directory.control;
    (void)context;
    emit_more(EVENTS);
    struct piece_files files = look(session);
    CHECK(files.count >= 3 && files.in_memory == files.count, "%u pieces, %u in memory", files.count, files.in_memory);
    control->growth_bytes_max = files.memory_bytes + 100000; /* a block or three more, then the disk */
    emit_more(EVENTS);
    files = look(session);
    CHECK(files.in_memory < files.count && files.memory_bytes <= control->growth_bytes_max, "%u pieces, %u in memory",
          files.count, files.in_memory);
    control->growth_bytes_max = 0;
    emit_more(EVENTS);
    CHECK(look(session).in_memory > files.in_memory, "not back in memory");
    CHECK_EQUAL(own_ring()->lost, 0);
    struct stream stream;
    stream_open(&stream, session, 1, 1, 1);
    ring_reader_refresh(stream.consumer.reader);
    struct piece_files fewer;
    for (unsigned i = 1; i < 40; i++) {
        files = look(session);
        stream_take(&stream, 3 * EVENTS / 40);
        ring_reader_commit(stream.consumer.reader);
        ring_reader_release(stream.consumer.reader);
        fewer = look(session);
        CHECK(fewer.first >= files.first && fewer.count == files.count - (fewer.first - files.first),
              "pieces %u to %u, %u of %u left", files.first, fewer.first, fewer.count, files.count);
        if (i % 3 == 0) {
            const struct stream released = stream;
            stream_take_over(&stream, &released);
        }
    }
    CHECK(fewer.count <= 2, "%u pieces are left", fewer.count);
    stream_take_all(&stream);
    emit_more(2 * RING_STAGING_RECORDS); /* it finds its spill drained, and is back in the ring */
    stream_take_all(&stream);
    CHECK(own_ring()->pieces_ended == own_ring()->piece, "the spill did not end");
    CHECK(look(session).count == 0, "pieces are left");
    stream_close(&stream, emitted);
}

TEST(test_records_come_in_order)
{
    run_in_session(SESSION_OVERFLOW_SPILL, 16384, scenario_order, NULL, "order");
}

/* A thread that ends, and one that goes on: what was taken whole goes in either case. */
static void scenario_again(struct session *session, void *context)
{
    uint64_t random = 4711;
    (void)context;
    emit_more(1);
    struct stream stream;
    stream_open(&stream, session, 1, 1, 1);
    for (unsigned i = 0; i < 20; i++) {
        emit_more(1000 + random_next(&random) % 20000);
        stream_take_all(&stream);
        CHECK(stream.next == emitted + 1, "not all came");
        CHECK(look(session).count <= 1, "more than one piece");
    }
    CHECK(own_ring()->piece > 5, "%u pieces", own_ring()->piece);
    stream.consumer.process.has_ended = true;
    stream_take_all(&stream);
    CHECK(look(session).count == 0, "a piece is left");
    stream_close(&stream, emitted);
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
        CHECK_EQUAL(block.position, *first + count);
        count += block.records;
    }
    close(fd);
    return count;
}

static void scenario_missing(struct session *session, void *context)
{
    unsigned missing = *(const unsigned *)context;
    uint64_t first = 0;
    emit_more(EVENTS);
    uint64_t gone = records_of(session, missing, &first);
    uint64_t before = own_ring()->head - 2 + first; /* but for what began the process and the thread */
    char name[32];
    snprintf(name, sizeof(name), "p1.r1.spill%u", missing);
    session_file_remove(&session->directory, name);
    struct stream stream;
    stream_open(&stream, session, 1, 1, 1);
    ring_reader_refresh(stream.consumer.reader);
    stream_take(&stream, 2 + before);
    CHECK_EQUAL(stream.next, before + 1);
    stream.next += gone;
    stream_take(&stream, UINT64_MAX);
    CHECK_EQUAL(stream.next, emitted + 1);
    CHECK_EQUAL(stream.consumer.reader->unreadable, gone);
    consumer_close(&stream.consumer);
}

TEST(test_missing_piece)
{
    for (unsigned missing = 1; missing <= 3; missing++) {
        run_in_session(SESSION_OVERFLOW_SPILL, 64, scenario_missing, &missing, "missing");
    }
}
