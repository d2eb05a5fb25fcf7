/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a full ring can't be helped: the disk of the spill is full or its folder gone, the collector is dead,
 * the ring's file can't grow, no ring can be made at all. The program waits for a bounded time and once only,
 * what is dropped is counted and noted in the stream, and when there is room again everything goes on. errno
 * and the signal mask of the program stay as they are.
 * Costs: 5 s
 */
#include "support/recorder.h"
#include "trace/collector/ring_reader.h"
#include "trace/collector/session/directory.h"
#include "trace/format/ring.h"
#include "trace/format/session.h"
#include "trace/record.h"

#include <errno.h>
#include <pthread.h>
#include <sys/resource.h>

#define MS UINT64_C(1000000)

/* ---- emitting, with a look at what must not change ---- */

static uint64_t next_addr = 1;

static void emit_checked(uint64_t count)
{
    sigset_t before, after;
    sigprocmask(SIG_SETMASK, NULL, &before);
    for (uint64_t i = 0; i < count; i++) {
        errno = 4711;
        emit(VARVE_KIND_HEAP_ALLOC, next_addr, next_addr);
        next_addr++;
        CHECK(errno == 4711, "errno became %d", errno);
    }
    sigprocmask(SIG_SETMASK, NULL, &after);
    for (int number = 1; number < 32; number++) {
        CHECK(sigismember(&before, number) == sigismember(&after, number), "signal %d is masked differently", number);
    }
}

/* Time that it took, ns. */
static uint64_t emit_timed(uint64_t count)
{
    uint64_t begin = support_monotonic_ns();
    emit_checked(count);
    return support_monotonic_ns() - begin;
}

/* A wait that is too long ends with the scenario's alarm. */
static void check_waited(uint64_t took_ns, uint64_t least_ns, const char *what)
{
    CHECK(took_ns >= least_ns, "%s took %llu ms, not %llu", what, (unsigned long long)(took_ns / MS),
          (unsigned long long)(least_ns / MS));
}

/* A thread that waits takes thousands of naps; one that does not is hardly ever off its CPU by itself. */
static void emit_without_waiting(uint64_t count, const char *what)
{
    uint64_t before = support_naps();
    emit_checked(count);
    CHECK(support_naps() - before <= SUPPORT_NAPS_MAX, "%s: %llu naps", what,
          (unsigned long long)(support_naps() - before));
}

/* ---- what comes out ---- */

struct stream {
    struct consumer consumer;
    uint64_t next;     /* address of the next record */
    uint64_t reported; /* lost, by the `lost` records */
};

static void stream_open(struct session *session, struct stream *stream)
{
    memset(stream, 0, sizeof(*stream));
    stream->next = 1;
    consumer_open(&stream->consumer, session, 1, 1);
}

/* All that is there. A gap in the addresses must be reported in front of it, with its bytes. */
static void stream_take(struct session *session, struct stream *stream)
{
    ring_reader_refresh(stream->consumer.reader);
    struct varve_record record;
    while (consumer_next(&stream->consumer, session, &record)) {
        uint64_t end = stream->next + record.arg;
        if (varve_record_kind(&record) == VARVE_KIND_LOST) {
            CHECK(record.size == (stream->next + end - 1) * record.arg / 2, "%llu bytes lost from %llu to %llu",
                  (unsigned long long)record.size, (unsigned long long)stream->next, (unsigned long long)end);
            stream->reported += record.arg;
            stream->next = end;
        } else if (varve_record_kind(&record) == VARVE_KIND_HEAP_ALLOC) {
            CHECK(record.addr == stream->next, "event %llu instead of %llu", (unsigned long long)record.addr,
                  (unsigned long long)stream->next);
            stream->next++;
        }
    }
    ring_reader_release(stream->consumer.reader);
}

/* The gap is reported, and everything after it came. */
static void stream_finish(struct session *session, struct stream *stream, uint64_t lost)
{
    const struct ring_header *ring = stream->consumer.reader->ring;
    emit_checked(3);
    stream_take(session, stream);
    check_conserved(ring, "at the end");
    CHECK(ring->lost == lost && stream->reported == lost, "lost %llu, reported %llu, expected %llu",
          (unsigned long long)ring->lost, (unsigned long long)stream->reported, (unsigned long long)lost);
    CHECK(ring->lost_by_kind[VARVE_KIND_HEAP_ALLOC] == lost, "by kind: %llu",
          (unsigned long long)ring->lost_by_kind[VARVE_KIND_HEAP_ALLOC]);
    CHECK(stream->next == next_addr, "%llu events came of %llu", (unsigned long long)stream->next - 1,
          (unsigned long long)next_addr - 1);
    CHECK(stream->consumer.reader->unreadable == 0, "unreadable records");
    consumer_close(&stream->consumer);
}

static void limit_file_size(rlim_t bytes)
{
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_FSIZE, &limit) == 0, "getrlimit");
    limit.rlim_cur = bytes == RLIM_INFINITY ? limit.rlim_max : bytes;
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0, "setrlimit");
}

/* Ring and staging slots full to the brim, nothing of it taken. Both start records are in the ring. */
static void fill_ring_and_staging(uint64_t room)
{
    emit_checked(room - 2 + RING_STAGING_RECORDS);
    CHECK(own_ring()->spill_head == RING_STAGING_RECORDS && own_ring()->spill_flushed == 0, "not full: %llu spilled",
          (unsigned long long)own_ring()->spill_head);
}

/* ---- spill ---- */

static void fill_disk(void)
{
    limit_file_size(4096);
}

static void move_folder(const struct session *session, bool is_away)
{
    char away[DIRECTORY_PATH_BYTES + 8];
    snprintf(away, sizeof(away), "%s.away", session->directory.path);
    CHECK(rename(is_away ? session->directory.path : away, is_away ? away : session->directory.path) == 0, "rename");
}

static void scenario_spill_fails(struct session *session, void *context)
{
    bool is_folder_away = *(const bool *)context;
    emit_checked(64); /* the last two go to the staging slots already */
    struct stream stream;
    stream_open(session, &stream);
    if (is_folder_away) {
        move_folder(session, true);
    } else {
        fill_disk();
    }
    emit_checked(RING_STAGING_RECORDS - 2);
    CHECK(own_ring()->lost == 0, "%llu lost before all is full", (unsigned long long)own_ring()->lost);
    check_waited(emit_timed(1), 800 * MS, "the wait for the collector");
    emit_without_waiting(600, "dropping"); /* once is enough */
    CHECK(own_ring()->lost == 601, "%llu lost", (unsigned long long)own_ring()->lost);
    stream_take(session, &stream); /* now there is room */
    emit_checked(50);
    CHECK(own_ring()->lost == 601, "lost with an empty ring");
    stream_finish(session, &stream, 601);
    if (is_folder_away) {
        move_folder(session, false);
    }
}

TEST(test_spill_fails)
{
    bool is_folder_away = false;
    run_in_session(SESSION_OVERFLOW_SPILL, 64, scenario_spill_fails, &is_folder_away, "full disk");
    is_folder_away = true;
    run_in_session(SESSION_OVERFLOW_SPILL, 64, scenario_spill_fails, &is_folder_away, "no folder");
}

/* Patience is the recording's: the next failure is not waited for, or a program that fills the disk again and
 * again would spend its life waiting. */
static void scenario_patience_is_spent(struct session *session, void *context)
{
    const struct session_counts *counts = session->directory.counts;
    (void)context;
    emit_checked(1);
    struct stream stream;
    stream_open(session, &stream);
    fill_disk();
    emit_checked(64 - 3 + RING_STAGING_RECORDS + 1); /* waits, drops one */
    uint64_t used_ns = counts->patience_used_ns;
    CHECK(used_ns >= 1000 * MS, "waited %llu ns", (unsigned long long)used_ns);
    stream_take(session, &stream);
    limit_file_size(RLIM_INFINITY);
    emit_checked(64 + 3 * RING_STAGING_RECORDS); /* through the file */
    CHECK(own_ring()->spill_flushed > 0, "nothing went to the file");
    stream_take(session, &stream);
    fill_disk();
    while (own_ring()->spill_head - own_ring()->spill_flushed < RING_STAGING_RECORDS) {
        emit_checked(1);
    }
    emit_checked(64); /* the ring is empty, and takes these */
    CHECK(own_ring()->lost == 1, "%llu lost", (unsigned long long)own_ring()->lost);
    emit_checked(1);
    CHECK(counts->patience_used_ns == used_ns, "waited again");
    stream_take(session, &stream);
    stream_finish(session, &stream, 2);
}

TEST(test_patience_is_spent)
{
    run_in_session(SESSION_OVERFLOW_SPILL, 64, scenario_patience_is_spent, NULL, "patience");
}

/* A block that was cut short by a full disk is written anew over its beginning. */
static void scenario_cut_block(struct session *session, void *context)
{
    (void)context;
    emit_checked(1);
    struct stream stream;
    stream_open(session, &stream);
    fill_disk();
    fill_ring_and_staging(63);
    session->directory.control->heartbeat_ns = 1; /* nobody to wait for: the next event is dropped at once */
    emit_checked(1);
    CHECK(own_ring()->lost == 1, "%llu lost", (unsigned long long)own_ring()->lost);
    limit_file_size(RLIM_INFINITY);
    emit_checked(2 * RING_STAGING_RECORDS);
    CHECK(own_ring()->lost == 1 && own_ring()->spill_flushed >= RING_STAGING_RECORDS, "the spill did not go on");
    stream_take(session, &stream);
    stream_finish(session, &stream, 1);
}

TEST(test_cut_block_is_repeated)
{
    run_in_session(SESSION_OVERFLOW_SPILL, 64, scenario_cut_block, NULL, "cut block");
}

/* ---- a consumer that comes in time ---- */

struct helper {
    struct session *session;
    struct stream stream;
    pid_t waits; /* the thread */
    bool has_come;
};

/* When the other thread naps, which it does only for want of room. */
static void *take_later(void *context)
{
    struct helper *helper = context;
    char path[64], state = 0;
    snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)helper->waits);
    while (state != 'S') {
        FILE *file = fopen(path, "r");
        CHECK(file != NULL && fscanf(file, "%*d (%*[^)]) %c", &state) == 1, "%s", path);
        fclose(file);
    }
    __atomic_store_n(&helper->has_come, true, __ATOMIC_RELEASE);
    stream_take(helper->session, &helper->stream);
    return NULL;
}

static void scenario_rescued(struct session *session, void *context)
{
    struct helper helper = {.session = session, .waits = gettid()};
    (void)context;
    emit_checked(1);
    stream_open(session, &helper.stream);
    consumer_share(&helper.stream.consumer, own_ring());
    fill_disk();
    emit_checked(64 - 3 + RING_STAGING_RECORDS);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, take_later, &helper) == 0, "no thread");
    emit_checked(1);
    CHECK(__atomic_load_n(&helper.has_come, __ATOMIC_ACQUIRE), "it did not wait");
    pthread_join(thread, NULL);
    stream_take(session, &helper.stream);
    stream_finish(session, &helper.stream, 0);
}

TEST(test_wait_ends_when_there_is_room)
{
    run_in_session(SESSION_OVERFLOW_SPILL, 64, scenario_rescued, NULL, "rescued");
}

/* ---- block ---- */

static void scenario_block(struct session *session, void *context)
{
    bool is_disk_full = *(const bool *)context;
    emit_checked(1);
    struct stream stream;
    stream_open(session, &stream);
    emit_checked(64 - 3);
    if (is_disk_full) {
        fill_disk();
    }
    check_waited(emit_timed(1), 150 * MS, "the wait for the collector"); /* then it spills */
    emit_without_waiting(RING_STAGING_RECORDS - 1, "spilling");
    if (is_disk_full) {
        emit_without_waiting(601, "dropping"); /* once is enough */
    }
    stream_take(session, &stream);
    stream_finish(session, &stream, is_disk_full ? 601 : 0);
}

TEST(test_block_waits_once)
{
    bool is_disk_full = false;
    for (int i = 0; i < 2; i++) {
        struct session_control settings = session_settings(SESSION_OVERFLOW_BLOCK, 64);
        settings.block_timeout_ns = 200 * MS;
        struct session session;
        session_begin(&session, &settings);
        run_scenario(&session, scenario_block, &is_disk_full, is_disk_full ? "block, full disk" : "block");
        session_end(&session);
        is_disk_full = true;
    }
}

/* ---- records that are several events ---- */

#define FOLDED_BYTES UINT64_C(4096)

/* A free that completes at once and merges with both neighbours: four events. */
static void emit_folded(void)
{
    const struct varve_record record = {
        .addr = 65536,
        .size = FOLDED_BYTES,
        .arg = UINT64_C(2) << 32,
        .callsite = 1,
        .dev_seq_kind_flags = varve_record_tag(1, VARVE_KIND_FREE_REQUESTED, VARVE_FLAG_FOLDED),
    };
    varve_emit(&record);
}

/* Dropped: the ring counts records, losses by kind and the `lost` event count events, with the bytes of each. */
static void scenario_folded_dropped(struct session *session, void *context)
{
    const uint64_t dropped = 10;
    uint64_t reported = 0, bytes = 0;
    (void)context;
    for (uint64_t i = 0; i < 64 - 2 + dropped; i++) { /* the ring has two records of the start */
        emit_folded();
    }
    const struct ring_header *ring = own_ring();
    check_conserved(ring, "with folded records");
    CHECK(ring->emitted == 64 + dropped && ring->lost == dropped, "%llu lost", (unsigned long long)ring->lost);
    CHECK(ring->lost_folded == 3 * dropped, "%llu folded", (unsigned long long)ring->lost_folded);
    CHECK(ring->lost_by_kind[VARVE_KIND_FREE_REQUESTED] == dropped &&
              ring->lost_by_kind[VARVE_KIND_FREE_COMPLETED] == dropped &&
              ring->lost_by_kind[VARVE_KIND_MERGE] == 2 * dropped,
          "losses by kind");
    struct consumer consumer;
    consumer_open(&consumer, session, 1, 1);
    ring_reader_refresh(consumer.reader);
    struct varve_record record;
    while (consumer_next(&consumer, session, &record)) {
    }
    ring_reader_release(consumer.reader);
    emit_folded();
    ring_reader_refresh(consumer.reader);
    while (consumer_next(&consumer, session, &record)) {
        if (varve_record_kind(&record) == VARVE_KIND_LOST) {
            reported += record.arg;
            bytes += record.size;
        }
    }
    CHECK(reported == 4 * dropped, "%llu events reported", (unsigned long long)reported);
    CHECK(bytes == dropped * (2 * FOLDED_BYTES + (FOLDED_BYTES + 1024) + (FOLDED_BYTES + 1024 + 512)),
          "%llu bytes reported", (unsigned long long)bytes);
    consumer_close(&consumer);
}

TEST(test_folded_records_are_dropped)
{
    run_in_session(SESSION_OVERFLOW_DROP, 64, scenario_folded_dropped, NULL, "folded");
}

/* ---- a dead collector ---- */

static void scenario_dead(struct session *session, void *context)
{
    (void)context;
    emit_checked(1);
    struct stream stream;
    stream_open(session, &stream);
    fill_disk();
    emit_without_waiting(64 + RING_STAGING_RECORDS + 300, "emitting for nobody");
    stream_take(session, &stream);
    stream_finish(session, &stream, own_ring()->lost);
}

TEST(test_nobody_waits_for_a_dead_collector)
{
    for (uint32_t overflow = SESSION_OVERFLOW_SPILL; overflow <= SESSION_OVERFLOW_BLOCK; overflow++) {
        struct session_control settings = session_settings(overflow, 64);
        settings.block_timeout_ns = 5000 * MS;
        settings.heartbeat_ns = support_monotonic_ns() - 10000 * MS;
        struct session session;
        session_begin(&session, &settings);
        run_scenario(&session, scenario_dead, NULL, "dead collector");
        session_end(&session);
    }
}

/* ---- rings that can't be had ---- */

static void limit_descriptors(rlim_t count)
{
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0, "getrlimit");
    limit.rlim_cur = count == RLIM_INFINITY ? limit.rlim_max : count;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
}

static void *allow_descriptors(void *context)
{
    struct timespec time = {0, 100000000};
    (void)context;
    nanosleep(&time, NULL);
    limit_descriptors(RLIM_INFINITY);
    return NULL;
}

/* No descriptor to get memory for the second part of the ring with: tried again, nothing is lost. */
static void scenario_descriptors_return(struct session *session, void *context)
{
    (void)context;
    emit_checked(1);
    struct stream stream;
    stream_open(session, &stream);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, allow_descriptors, NULL) == 0, "no thread");
    limit_descriptors(0);
    emit_checked(3000);
    pthread_join(thread, NULL);
    stream_take(session, &stream);
    emit_checked(8000);
    stream_take(session, &stream);
    stream_finish(session, &stream, 0);
}

/* No more memory for the file of the ring: what does not fit spills, through staging slots on the disk. */
static void scenario_short_ring(struct session *session, void *context)
{
    (void)context;
    emit_checked(1);
    struct stream stream;
    stream_open(session, &stream);
    char path[DIRECTORY_PATH_BYTES + 32];
    snprintf(path, sizeof(path), "%s/p1.r1", session->directory.rings);
    CHECK(unlink(path) == 0, "unlink");
    emit_checked(3000);
    CHECK(own_ring()->head < 3000 && own_ring()->spill_head > 0 && own_ring()->staging_is_apart == 1,
          "ring %llu, spill %llu", (unsigned long long)own_ring()->head, (unsigned long long)own_ring()->spill_head);
    stream_take(session, &stream);
    emit_checked(8000);
    stream_take(session, &stream);
    stream_finish(session, &stream, 0);
}

TEST(test_ring_that_cannot_grow)
{
    run_in_session(SESSION_OVERFLOW_SPILL, 16384, scenario_short_ring, NULL, "short ring");
    run_in_session(SESSION_OVERFLOW_SPILL, 16384, scenario_descriptors_return, NULL, "no descriptors");
}

static void *emit_unattached(void *context)
{
    (void)context;
    for (uint64_t i = 0; i < 5; i++) {
        emit(i < 2 ? VARVE_KIND_MMAP : VARVE_KIND_HEAP_FREE, i, 10 + i);
    }
    CHECK(own_ring() == NULL || varve_producer_current->limit == 0, "a ring out of nothing");
    return NULL;
}

static void scenario_unattached(struct session *session, void *context)
{
    (void)context;
    emit_checked(1);
    struct stream stream;
    stream_open(session, &stream);
    const struct process_control *control = recorder_process_current()->control;
    char away[DIRECTORY_PATH_BYTES + 8];
    snprintf(away, sizeof(away), "%s.away", session->directory.rings);
    CHECK(rename(session->directory.rings, away) == 0, "rename");
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, emit_unattached, NULL) == 0, "no thread");
    pthread_join(thread, NULL);
    CHECK(rename(away, session->directory.rings) == 0, "rename");
    CHECK(control->unattached == 5 && control->unattached_bytes == 60, "%llu events, %llu bytes",
          (unsigned long long)control->unattached, (unsigned long long)control->unattached_bytes);
    CHECK(control->unattached_by_kind[VARVE_KIND_MMAP] == 2 && control->unattached_by_kind[VARVE_KIND_HEAP_FREE] == 3,
          "by kind");
    emit_checked(10);
    stream_finish(session, &stream, 0);
}

TEST(test_events_without_a_ring_are_counted)
{
    run_in_session(SESSION_OVERFLOW_SPILL, 64, scenario_unattached, NULL, "unattached");
}
