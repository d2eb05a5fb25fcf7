/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a full ring can't be helped: the disk of the spill is full or its folder gone, the collector is dead,
 * the ring's file can't grow, no ring can be made at all. The program waits for a bounded time and once only,
 * what is dropped is counted and noted in the stream, and when there is room again everything goes on. errno
 * and the signal mask of the program stay as they are.
 * Costs: 5 s
 */
#include "base/monotonic.h"
#include "support/recorder.h"

#include <errno.h>
#include <pthread.h>

#define MS UINT64_C(1000000)

/* ---- emitting, with a look at what must not change; and what comes out ---- */

static struct session *session;
static struct stream stream;
static uint64_t emitted;

static void emit_checked(uint64_t count)
{
    sigset_t before, after;
    sigprocmask(SIG_SETMASK, NULL, &before);
    for (uint64_t i = 0; i < count; i++) {
        errno = 4711;
        emitted++;
        emit_numbered(emitted, emitted);
        CHECK(errno == 4711, "errno became %d", errno);
    }
    sigprocmask(SIG_SETMASK, NULL, &after);
    for (int number = 1; number < 32; number++) {
        CHECK(sigismember(&before, number) == sigismember(&after, number), "signal %d is masked differently", number);
    }
}

/* One event, which waits for the collector: a wait that is too long ends with the runner's limit. */
static void emit_waiting(uint64_t least_ns)
{
    uint64_t begin = monotonic_ns();
    emit_checked(1);
    uint64_t took_ns = monotonic_ns() - begin;
    CHECK(took_ns >= least_ns, "the wait took %llu ms, not %llu", (unsigned long long)(took_ns / MS),
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

static void expect_lost(uint64_t lost)
{
    CHECK_EQUAL(own_ring()->lost, lost);
}

/* The gap is reported, and everything after it came. */
static void finish(uint64_t lost)
{
    expect_lost(lost);
    emit_checked(3);
    stream_take_all(&stream);
    expect_lost(lost);
    stream_close(&stream, emitted);
}

static void limit_file_size(rlim_t bytes)
{
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_FSIZE, &limit) == 0, "getrlimit");
    limit.rlim_cur = bytes == RLIM_INFINITY ? limit.rlim_max : bytes;
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0, "setrlimit");
}

static void fill_disk(void)
{
    limit_file_size(4096);
}

/* ---- the cases: the first event is emitted, the stream is open ---- */

struct overflow_case {
    const char *name;
    void (*run)(const struct overflow_case *of);
    uint32_t overflow, capacity;
    uint64_t timeout_ns; /* of block; 0: the usual */
    bool is_disk_full, is_folder_away, is_collector_dead;
};

static void rename_in(const char *folder, bool is_away)
{
    char away[DIRECTORY_PATH_BYTES + 8];
    snprintf(away, sizeof(away), "%s.away", folder);
    CHECK(rename(is_away ? folder : away, is_away ? away : folder) == 0, "rename");
}

static void run_spill_fails(const struct overflow_case *of)
{
    emit_checked(63); /* the last two go to the staging slots already */
    if (of->is_folder_away) {
        rename_in(session->directory.path, true);
    } else {
        fill_disk();
    }
    emit_checked(RING_STAGING_RECORDS - 2);
    expect_lost(0);
    emit_waiting(800 * MS);
    emit_without_waiting(600, "dropping"); /* once is enough */
    expect_lost(601);
    stream_take_all(&stream); /* now there is room */
    emit_checked(50);
    finish(601);
    if (of->is_folder_away) {
        rename_in(session->directory.path, false);
    }
}

/* Patience is the recording's: the next failure is not waited for, or a program that fills the disk again and
 * again would spend its life waiting. */
static void run_patience_is_spent(const struct overflow_case *of)
{
    const struct session_counts *counts = session->directory.counts;
    (void)of;
    fill_disk();
    emit_checked(64 - 3 + RING_STAGING_RECORDS + 1); /* waits, drops one */
    uint64_t used_ns = counts->patience_used_ns;
    CHECK(used_ns >= 1000 * MS, "waited %llu ns", (unsigned long long)used_ns);
    stream_take_all(&stream);
    limit_file_size(RLIM_INFINITY);
    emit_checked(64 + 3 * RING_STAGING_RECORDS); /* through the file */
    CHECK(own_ring()->spill_flushed > 0, "nothing went to the file");
    stream_take_all(&stream);
    fill_disk();
    while (own_ring()->spill_head - own_ring()->spill_flushed < RING_STAGING_RECORDS) {
        emit_checked(1);
    }
    emit_checked(64); /* the ring is empty, and takes these */
    expect_lost(1);
    emit_checked(1);
    CHECK(counts->patience_used_ns == used_ns, "waited again");
    stream_take_all(&stream);
    finish(2);
}

/* A block that was cut short by a full disk is written anew over its beginning. */
static void run_cut_block(const struct overflow_case *of)
{
    (void)of;
    fill_disk();
    emit_checked(63 - 2 + RING_STAGING_RECORDS); /* full to the brim, with the two records of the start */
    CHECK(own_ring()->spill_head == RING_STAGING_RECORDS && own_ring()->spill_flushed == 0, "not full: %llu spilled",
          (unsigned long long)own_ring()->spill_head);
    session->directory.control->heartbeat_ns = 1; /* nobody to wait for: the next event is dropped at once */
    emit_checked(1);
    expect_lost(1);
    limit_file_size(RLIM_INFINITY);
    emit_checked(2 * RING_STAGING_RECORDS);
    CHECK(own_ring()->spill_flushed >= RING_STAGING_RECORDS, "the spill did not go on");
    expect_lost(1);
    stream_take_all(&stream);
    finish(1);
}

/* ---- a consumer that comes in time ---- */

static bool has_come; /* atomic */

/* When the other thread naps, which it does only for want of room. */
static void *take_later(void *waiting)
{
    char path[64], state = 0;
    snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)(intptr_t)waiting);
    while (state != 'S') {
        FILE *file = fopen(path, "r");
        CHECK(file != NULL && fscanf(file, "%*d (%*[^)]) %c", &state) == 1, "%s", path);
        fclose(file);
    }
    __atomic_store_n(&has_come, true, __ATOMIC_RELEASE);
    stream_take_all(&stream);
    return NULL;
}

static void run_rescued(const struct overflow_case *of)
{
    (void)of;
    consumer_share(&stream.consumer, own_ring());
    fill_disk();
    emit_checked(64 - 3 + RING_STAGING_RECORDS);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, take_later, (void *)(intptr_t)gettid()) == 0, "no thread");
    emit_checked(1);
    CHECK(__atomic_load_n(&has_come, __ATOMIC_ACQUIRE), "it did not wait");
    pthread_join(thread, NULL);
    stream_take_all(&stream);
    finish(0);
}

/* ---- block; a dead collector ---- */

static void run_block(const struct overflow_case *of)
{
    emit_checked(64 - 3);
    if (of->is_disk_full) {
        fill_disk();
    }
    emit_waiting(150 * MS); /* then it spills */
    emit_without_waiting(RING_STAGING_RECORDS - 1, "spilling");
    if (of->is_disk_full) {
        emit_without_waiting(601, "dropping"); /* once is enough */
    }
    stream_take_all(&stream);
    finish(of->is_disk_full ? 601 : 0);
}

static void run_dead(const struct overflow_case *of)
{
    (void)of;
    fill_disk();
    emit_without_waiting(64 + RING_STAGING_RECORDS + 300, "emitting for nobody");
    stream_take_all(&stream);
    CHECK(own_ring()->lost >= 300, "a full ring dropped nothing");
    finish(own_ring()->lost);
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

static void finish_grown(void)
{
    stream_take_all(&stream);
    emit_checked(8000);
    stream_take_all(&stream);
    finish(0);
}

/* No descriptor to get memory for the second part of the ring with: tried again, nothing is lost. */
static void run_descriptors_return(const struct overflow_case *of)
{
    (void)of;
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, allow_descriptors, NULL) == 0, "no thread");
    limit_descriptors(0);
    emit_checked(3000);
    pthread_join(thread, NULL);
    finish_grown();
}

/* No more memory for the file of the ring: what does not fit spills, through staging slots on the disk. */
static void run_short_ring(const struct overflow_case *of)
{
    (void)of;
    char path[DIRECTORY_PATH_BYTES + 32];
    snprintf(path, sizeof(path), "%s/p1.r1", session->directory.rings);
    CHECK(unlink(path) == 0, "unlink");
    emit_checked(3000);
    CHECK(own_ring()->head < 3000 && own_ring()->spill_head > 0 && own_ring()->staging_is_apart == 1,
          "ring %llu, spill %llu", (unsigned long long)own_ring()->head, (unsigned long long)own_ring()->spill_head);
    finish_grown();
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

static void run_unattached(const struct overflow_case *of)
{
    (void)of;
    const struct process_control *control = recorder_process_current()->control;
    for (uint32_t i = 0; i < RESERVE_SLOTS; i++) {
        session->directory.counts->reserve[i].state = RESERVE_STATE_TAKEN;
    }
    rename_in(session->directory.rings, true);
    run_threads(1, emit_unattached, 0, 0);
    rename_in(session->directory.rings, false);
    CHECK(control->unattached == 5 && control->unattached_bytes == 60, "%llu events, %llu bytes",
          (unsigned long long)control->unattached, (unsigned long long)control->unattached_bytes);
    CHECK(control->unattached_by_kind[VARVE_KIND_MMAP] == 2 && control->unattached_by_kind[VARVE_KIND_HEAP_FREE] == 3,
          "by kind");
    emit_checked(10);
    finish(0);
}

static void scenario_case(struct session *of_case, void *context)
{
    const struct overflow_case *of = context;
    session = of_case;
    emit_checked(1);
    stream_open(&stream, session, 1, 1, 1);
    of->run(of);
}

TEST(test_nothing_helps)
{
    static struct overflow_case cases[] = {
        {"full disk", run_spill_fails, .capacity = 64},
        {"no folder", run_spill_fails, .capacity = 64, .is_folder_away = true},
        {"patience is spent", run_patience_is_spent, .capacity = 64},
        {"cut block", run_cut_block, .capacity = 64},
        {"rescued", run_rescued, .capacity = 64},
        {"block", run_block, SESSION_OVERFLOW_BLOCK, 64, .timeout_ns = 200 * MS},
        {"block, full disk", run_block, SESSION_OVERFLOW_BLOCK, 64, .timeout_ns = 200 * MS, .is_disk_full = true},
        {"dead collector", run_dead, .capacity = 64, .timeout_ns = 5000 * MS, .is_collector_dead = true},
        {"dead, block", run_dead, SESSION_OVERFLOW_BLOCK, 64, .timeout_ns = 5000 * MS, .is_collector_dead = true},
        {"short ring", run_short_ring, .capacity = 16384},
        {"no descriptors", run_descriptors_return, .capacity = 16384},
        {"no ring", run_unattached, .capacity = 64, .is_collector_dead = true},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct session_control settings = session_settings(cases[i].overflow, cases[i].capacity);
        settings.block_timeout_ns = cases[i].timeout_ns != 0 ? cases[i].timeout_ns : settings.block_timeout_ns;
        settings.heartbeat_ns -= cases[i].is_collector_dead ? UINT64_C(3610000000000) : 0;
        run_in_session_of(&settings, scenario_case, &cases[i], cases[i].name);
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
static void scenario_folded_dropped(struct session *of_case, void *context)
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
    CHECK_EQUAL(ring->lost_folded, 3 * dropped);
    CHECK(ring->lost_by_kind[VARVE_KIND_FREE_REQUESTED] == dropped &&
              ring->lost_by_kind[VARVE_KIND_FREE_COMPLETED] == dropped &&
              ring->lost_by_kind[VARVE_KIND_MERGE] == 2 * dropped,
          "losses by kind");
    struct consumer consumer;
    consumer_open(&consumer, of_case, 1, 1);
    ring_reader_refresh(consumer.reader);
    struct varve_record record;
    while (consumer_next(&consumer, of_case, &record)) {
    }
    ring_reader_commit(consumer.reader);
    ring_reader_release(consumer.reader);
    emit_folded();
    ring_reader_refresh(consumer.reader);
    while (consumer_next(&consumer, of_case, &record)) {
        if (varve_record_kind(&record) == VARVE_KIND_LOST) {
            reported += record.arg;
            bytes += record.size;
        }
    }
    CHECK_EQUAL(reported, 4 * dropped);
    CHECK_EQUAL(bytes, dropped * (2 * FOLDED_BYTES + (FOLDED_BYTES + 1024) + (FOLDED_BYTES + 1024 + 512)));
    consumer_close(&consumer);
}

TEST(test_folded_records_are_dropped)
{
    run_in_session(SESSION_OVERFLOW_DROP, 64, scenario_folded_dropped, NULL, "folded");
}
