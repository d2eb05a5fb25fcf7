/* SPDX-License-Identifier: Apache-2.0 */
/* C only: helpers of cmocka programs */
/*
 * A collector over processes and rings made by hand: control pages and ring files are written as a recorder
 * would, event by event, with the clock values that a test wants. Ticks are ns of CLOCK_MONOTONIC.
 */
#ifndef VARVE_TESTS_SUPPORT_COLLECTOR_H
#define VARVE_TESTS_SUPPORT_COLLECTOR_H

#include <time.h>
#include <stdbool.h>
#include <stdint.h>
#include <cmocka.h>

#include "trace/collector/collector_clock.h"
#include "trace/collector/collector.h"
#include "support/query.h"
#include "support/random.h"
#include "trace/collector/session/recording_directory.h"
#include "trace/format/ring_format.h"
#include "trace/format/session_format.h"
#include "trace/record.h"
#include "trace/store/store.h"
#include "base/error.h"
#include "base/monotonic.h"
#include "trace/collect.h"
#include "trace/emit.h"

#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define LAB_CHILDREN 8U
#define LAB_RINGS 16U

struct hand_ring {
    struct ring_header *ring;
    size_t bytes;
};

struct lab {
    char folder[64];
    char database[96];
    struct collector *collector;
    struct varve_message message;
    struct process_control *controls[LAB_CHILDREN]; /* process 1, 2, … */
    struct hand_ring rings[LAB_RINGS];
    size_t ring_count;
    pid_t holders[LAB_CHILDREN];
    size_t holder_count;
    uint64_t begin; /* ticks: nothing is older */
};

#define LAB_OK(lab, call)                                                                 \
    do {                                                                                  \
        int lab_code = (call);                                                            \
        if (lab_code != VARVE_OK) {                                                       \
            fail_msg("%s: %s: %s", #call, varve_strerror(lab_code), (lab)->message.text); \
        }                                                                                 \
    } while (0)

static inline void lab_open_collector(struct lab *lab, enum store_mode mode)
{
    lab->collector->quiet = true;
    LAB_OK(lab, collector_open(lab->collector, mode, &lab->message));
    LAB_OK(lab, collect_clock_anchor(&lab->collector->clock));
}

static inline struct lab *lab_begin(void)
{
    struct lab *lab = calloc(1, sizeof(*lab));
    const char *base = getenv("TMPDIR");
    assert_non_null(lab);
    struct session_control settings;
    memset(&settings, 0, sizeof(settings));
    settings.ring_capacity = 1024;
    settings.clock_kind = VARVE_CLOCK_MONOTONIC;
    settings.trace_id = (monotonic_ns() ^ ((uint64_t)getpid() << 40)) & INT64_MAX;
    snprintf(lab->folder, sizeof(lab->folder), "%.40s/varve-unit-XXXXXX", base ? base : "/tmp");
    assert_non_null(mkdtemp(lab->folder));
    snprintf(lab->database, sizeof(lab->database), "%s/trace.db", lab->folder);
    lab->collector = calloc(1, sizeof(*lab->collector));
    assert_non_null(lab->collector);
    LAB_OK(lab, session_directory_create(&lab->collector->directory, lab->database, &settings, &lab->message));
    lab_open_collector(lab, STORE_CREATE);
    lab->begin = monotonic_ns();
    return lab;
}

/* The collector dies: what it has committed stays, and so do the rings. */
static inline void lab_drop_collector(struct lab *lab)
{
    collector_close(lab->collector);
    session_directory_close(&lab->collector->directory);
    free(lab->collector);
    lab->collector = NULL;
}

static inline void lab_end(struct lab *lab)
{
    for (size_t i = 0; i < lab->holder_count; i++) {
        kill(lab->holders[i], SIGKILL);
        waitpid(lab->holders[i], NULL, 0);
    }
    for (size_t i = 0; i < lab->ring_count; i++) {
        munmap(lab->rings[i].ring, lab->rings[i].bytes);
    }
    for (size_t i = 0; i < LAB_CHILDREN; i++) {
        if (lab->controls[i] != NULL) {
            munmap(lab->controls[i], PROCESS_CONTROL_BYTES);
        }
    }
    if (lab->collector != NULL) {
        collector_close(lab->collector);
        session_directory_remove(&lab->collector->directory);
        free(lab->collector);
    }
    char command[128];
    snprintf(command, sizeof(command), "rm -rf '%s'", lab->folder);
    free(lab);
    assert_int_equal(system(command), 0);
}

/* ---- processes ---- */

/* A pid that lives until lab_end, or lab_kill. */
static inline pid_t lab_living(struct lab *lab)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) {
            pause();
        }
    }
    assert_true(lab->holder_count < LAB_CHILDREN);
    lab->holders[lab->holder_count++] = child;
    return child;
}

/* Returns how it ended. */
static inline int lab_kill(struct lab *lab, pid_t child)
{
    int wait_status = 0;
    for (size_t i = 0; i < lab->holder_count; i++) {
        if (lab->holders[i] == child) {
            lab->holders[i] = lab->holders[--lab->holder_count];
        }
    }
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &wait_status, 0), child);
    return wait_status;
}

/* The pid of a process that has ended. */
static inline pid_t lab_dead(void)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        _exit(0);
    }
    assert_int_equal(waitpid(child, NULL, 0), child);
    return child;
}

static inline void *lab_map_file(const char *path, size_t bytes)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(memory != MAP_FAILED);
    close(fd);
    return memory;
}

/* Only the file, as if the number had been taken before. */
static inline struct process_control *hand_control(struct lab *lab, uint32_t id, pid_t pid)
{
    assert_true(id >= 1 && id <= LAB_CHILDREN);
    char path[DIRECTORY_PATH_BYTES + 32];
    snprintf(path, sizeof(path), "%s/p%u", lab->collector->directory.rings, id);
    struct process_control *control = lab_map_file(path, PROCESS_CONTROL_BYTES);
    control->version = VARVE_TRANSPORT_VERSION;
    control->process_id = id;
    control->pid = (int32_t)pid;
    control->parent_pid = 1;
    control->rank = -1;
    control->start_ticks_proc = id;
    control->start_ticks = lab->begin;
    control->state = PROCESS_STATE_RUNNING;
    control->ring_count = 1;
    strcpy(control->executable, "/bin/hand");
    memcpy(control->command_line, "hand\0made\0", 11);
    __atomic_store_n(&control->magic, PROCESS_MAGIC, __ATOMIC_RELEASE);
    lab->collector->directory.counts->process_pages++;
    lab->controls[id - 1] = control;
    return control;
}

static inline struct process_control *hand_process(struct lab *lab, pid_t pid)
{
    uint32_t id = ++lab->collector->directory.counts->process_count;
    return hand_control(lab, id, pid);
}

/* ---- rings ---- */

/* Only the file of ring `index`. */
static inline struct ring_header *hand_ring_file(struct lab *lab, uint32_t process_id, uint32_t index,
                                                 uint32_t capacity)
{
    struct hand_ring *made = &lab->rings[lab->ring_count++];
    assert_true(lab->ring_count <= LAB_RINGS);
    char path[DIRECTORY_PATH_BYTES + 32];
    snprintf(path, sizeof(path), "%s/p%u.r%u", lab->collector->directory.rings, process_id, index);
    made->bytes = ring_file_bytes(capacity);
    made->ring = lab_map_file(path, made->bytes);
    made->ring->version = VARVE_TRANSPORT_VERSION;
    made->ring->process_id = process_id;
    made->ring->ring_index = index;
    made->ring->tid = 100 * process_id + index;
    made->ring->capacity = capacity;
    made->ring->staging_capacity = RING_STAGING_RECORDS;
    made->ring->created_ticks = lab->begin;
    strcpy(made->ring->thread_name, "hand");
    made->ring->state = RING_STATE_OPEN;
    __atomic_store_n(&made->ring->magic, RING_MAGIC, __ATOMIC_RELEASE);
    lab->controls[process_id - 1]->rings_made++;
    return made->ring;
}

static inline struct ring_header *hand_ring(struct lab *lab, uint32_t process_id, uint32_t capacity)
{
    return hand_ring_file(lab, process_id, lab->controls[process_id - 1]->ring_count++, capacity);
}

/* An event begins: counted, not written yet. */
static inline void hand_begin(struct ring_header *ring)
{
    __atomic_store_n(&ring->emitted, ring->emitted + 1, __ATOMIC_RELEASE);
}

static inline void hand_commit(struct ring_header *ring, const struct varve_record *record)
{
    assert_true(ring->head - ring->tail < ring->capacity);
    ring_records(ring)[ring->head & (ring->capacity - 1)] = *record;
    __atomic_store_n(&ring->head, ring->head + 1, __ATOMIC_RELEASE);
}

static inline struct varve_record hand_record(enum varve_kind kind, uint64_t ticks, uint64_t addr, uint64_t tag)
{
    struct varve_record record;
    memset(&record, 0, sizeof(record));
    record.ticks = ticks;
    record.addr = addr;
    record.size = kind == VARVE_KIND_HEAP_ALLOC ? 16 : 0;
    record.arg = tag;
    record.dev_seq_kind_flags = varve_record_tag(0, kind, 0);
    return record;
}

static inline void hand_emit(struct ring_header *ring, enum varve_kind kind, uint64_t ticks, uint64_t addr,
                             uint64_t tag)
{
    const struct varve_record record = hand_record(kind, ticks, addr, tag);
    hand_begin(ring);
    hand_commit(ring, &record);
}

/* Handlers' events, marks from `first` on, whose thread was killed before it could file them. */
static inline void hand_put_aside(const struct lab *lab, struct ring_header *ring, uint64_t first, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        ring->nested[i] = hand_record(VARVE_KIND_MARK_BEGIN, lab->begin + first + i, 0, first + i);
        ring->nested[i].dev_seq_kind_flags |= VARVE_FLAG_NESTED;
    }
    ring->nested_count = count;
}

/* ---- the database ---- */

static inline sqlite3 *lab_database(const struct lab *lab)
{
    char path[DIRECTORY_PATH_BYTES + 16];
    snprintf(path, sizeof(path), "%s.d/trace.db", lab->database);
    sqlite3 *db;
    assert_int_equal(sqlite3_open_v2(access(path, F_OK) == 0 ? path : lab->database, &db, SQLITE_OPEN_READONLY, NULL),
                     SQLITE_OK);
    sqlite3_busy_timeout(db, 5000);
    return db;
}

static inline int64_t lab_integer(const struct lab *lab, const char *sql)
{
    sqlite3 *db = lab_database(lab);
    int64_t value = query_integer(db, sql);
    sqlite3_close(db);
    return value;
}

/* The rows that it gives: query_expect. */
static inline void lab_rows(const struct lab *lab, const char *sql, const char *rows)
{
    sqlite3 *db = lab_database(lab);
    query_expect(db, sql, rows);
    sqlite3_close(db);
}

static inline void lab_expect(const struct lab *lab, const char *sql, int64_t expected)
{
    char rows[32];
    snprintf(rows, sizeof(rows), "%lld\n", (long long)expected);
    lab_rows(lab, sql, rows);
}

static inline uint64_t lab_round(struct lab *lab)
{
    uint64_t moved;
    LAB_OK(lab, collector_round(lab->collector, false, &moved, &lab->message));
    return moved;
}

/* Rounds for so long, and enough of them on a slow machine; returns the events moved. */
static inline uint64_t lab_rounds(struct lab *lab, uint64_t ns)
{
    const struct timespec nap = {0, 200000};
    uint64_t end = monotonic_ns() + ns;
    uint64_t moved = 0;
    unsigned rounds = 0;
    do {
        nanosleep(&nap, NULL);
        moved += lab_round(lab);
    } while (monotonic_ns() < end || ++rounds < 8);
    return moved;
}

static inline void lab_drain(struct lab *lab)
{
    LAB_OK(lab, collector_drain(lab->collector, NULL, NULL, &lab->message));
    LAB_OK(lab, collector_commit(lab->collector, &lab->message));
}

#define LAB_CONSERVED "SELECT * FROM thread WHERE emitted <> stored + lost + uncommitted"

/* All that is there is stored, and the rows of threads and processes. */
static inline void lab_finish(struct lab *lab)
{
    lab_drain(lab);
    LAB_OK(lab, collector_finish(lab->collector, NULL, NULL, &lab->message));
    lab_rows(lab, LAB_CONSERVED, "");
}

/* After lab_drop_collector: another collector goes on to the end, and the directory is gone. */
static inline struct varve_collect_result lab_recover(struct lab *lab)
{
    char directory[128];
    struct varve_collect_result result;
    snprintf(directory, sizeof(directory), "%s.d", lab->database);
    LAB_OK(lab, varve_collect_recover(directory, NULL, NULL, NULL, NULL, &result, &lab->message));
    assert_true(access(directory, F_OK) != 0);
    lab_rows(lab, LAB_CONSERVED, "");
    return result;
}

#endif
