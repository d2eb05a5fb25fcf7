/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs that the recorder could not be loaded into, by path and reason. recorder/exec_note.c writes the notes,
 * inside the processes of the session; the collector takes them in every round. A program that should load
 * the recorder is awaited: what has not said so by the end of the recording is listed too, but for what has recorded
 * something, or was killed before it can have loaded anything.
 *
 *   slot free ─► being written ─► written ─► counted (until the commit that stores the count) ─► free
 *
 * Everything read here was written by the programs: bounded, and believed no further than a count.
 */
#include "trace/collector/collector.h"

#include "base/grown_array.h"
#include "base/proc_file.h"
#include "base/error.h"
#include "base/monotonic.h"
#include "trace/format/session_format.h"
#include "trace/store/store.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#define PROGRAMS_MAX 4096U /* later ones are counted under one name */
#define AWAITED_MAX 4096U
#define RECENT 1024U /* notes that may still turn out to have failed */
#define OTHERS "(others)"
#define LOOK_EVERY_NS UINT64_C(5000000)
#define LOADER_FAILED 127 /* exit status of a program whose libraries are not to be had */

struct program {
    char path[SESSION_EXEC_PATH_BYTES];
    uint32_t reason; /* enum exec_reason */
    int64_t count;
    int64_t stored; /* of it, in the database */
};

struct awaited {
    struct process_identity process;
    uint32_t order;
    char path[SESSION_EXEC_PATH_BYTES];
};

struct collect_execs {
    struct program *programs;
    size_t program_count, program_capacity;
    struct awaited *awaited;
    size_t awaited_count, awaited_capacity;
    struct {
        uint32_t order;
        uint32_t program; /* index + 1 */
    } recent[RECENT];
    struct {
        int32_t pid; /* of the program that the collector has started; 0: of none */
        bool has_ended, ran_without;
        int wait_status;
        uint32_t noted; /* numbers of notes given out by then */
        uint64_t next_look_ns;
    } child;
    uint32_t written_seen;
    uint32_t held;                     /* slots counted, not yet stored */
    bool is_committing[SESSION_EXECS]; /* of these, those in the commit under way */
};

static const char *const reasons[] = {
#define EXEC_REASON_TEXT(name, text) text,
    EXEC_REASON_LIST(EXEC_REASON_TEXT)
#undef EXEC_REASON_TEXT
};

int collect_execs_open(struct collector *collector)
{
    collector->execs = calloc(1, sizeof(*collector->execs));
    return collector->execs != NULL ? VARVE_OK : VARVE_ERROR_NO_MEMORY;
}

void collect_execs_close(struct collector *collector)
{
    if (collector->execs != NULL) {
        free(collector->execs->programs);
        free(collector->execs->awaited);
        free(collector->execs);
        collector->execs = NULL;
    }
}

/* Index + 1 of the program's row, 0 without memory. */
static uint32_t unrecorded_program_find(struct collect_execs *execs, const char *path, uint32_t reason)
{
    for (size_t i = 0; i < execs->program_count; i++) {
        if (execs->programs[i].reason == reason && strcmp(execs->programs[i].path, path) == 0) {
            return (uint32_t)i + 1;
        }
    }
    if (execs->program_count >= PROGRAMS_MAX && strcmp(path, OTHERS) != 0) {
        return unrecorded_program_find(execs, OTHERS, reason);
    }
    if (!ARRAY_GROW(execs->programs, execs->program_capacity, execs->program_count + 1)) {
        return 0;
    }
    struct program *program = &execs->programs[execs->program_count++];
    *program = (struct program){.reason = reason};
    memcpy(program->path, path, strlen(path) + 1);
    return (uint32_t)execs->program_count;
}

static uint32_t program_count(struct collect_execs *execs, const char *path, uint32_t reason)
{
    uint32_t program = unrecorded_program_find(execs, path, reason);
    if (program != 0) {
        execs->programs[program - 1].count++;
    }
    return program;
}

/* The process runs the recorder, or its exec came back, or it does another one. Without a free descriptor, or /proc, it
 * did not know all of its identity at one of these moments: then what is known of both must do. */
static void awaited_remove(struct collect_execs *execs, const struct process_identity *process)
{
    size_t found = SIZE_MAX;
    for (size_t i = 0; i < execs->awaited_count; i++) {
        if (process_identity_agrees(&execs->awaited[i].process, process)) {
            found = i;
            if (execs->awaited[i].process.start_ticks_proc == process->start_ticks_proc) {
                break;
            }
        }
    }
    if (found != SIZE_MAX) {
        execs->awaited[found] = execs->awaited[--execs->awaited_count];
    }
}

static void awaited_add(struct collect_execs *execs, const struct process_identity *process, const char *path,
                        uint32_t order)
{
    if (execs->awaited_count >= AWAITED_MAX) { /* most of these never loaded it */
        program_count(execs, execs->awaited[0].path, EXEC_REASON_NOT_SEEN);
        memmove(execs->awaited, execs->awaited + 1, --execs->awaited_count * sizeof(*execs->awaited));
    }
    if (ARRAY_GROW(execs->awaited, execs->awaited_capacity, execs->awaited_count + 1)) {
        struct awaited *awaited = &execs->awaited[execs->awaited_count++];
        awaited->process = *process;
        awaited->order = order;
        memcpy(awaited->path, path, strlen(path) + 1);
    }
}

void collect_execs_await(struct collector *collector, const struct process_identity *process, const char *path)
{
    size_t length = strlen(path);
    collector->execs->child.pid = process->pid;
    awaited_add(collector->execs, process,
                length < SESSION_EXEC_PATH_BYTES ? path : path + length - SESSION_EXEC_PATH_BYTES + 1, 0);
}

static bool is_child(const struct collector *collector, const struct awaited *awaited)
{
    const struct process_identity *process = &awaited->process;
    return process->pid == collector->execs->child.pid &&
           (process->pid_namespace == collector->pid_namespace || process->pid_namespace == 0 ||
            collector->pid_namespace == 0) &&
           !(collector->execs->child.has_ended && (int32_t)(awaited->order - collector->execs->child.noted) > 0);
}

void collect_execs_ended(struct collector *collector, int32_t pid, int wait_status)
{
    struct collect_execs *execs = collector->execs;
    if (pid == execs->child.pid && !execs->child.has_ended) {
        execs->child.has_ended = true;
        execs->child.wait_status = wait_status;
        execs->child.noted = __atomic_load_n(&collector->directory.counts->execs_noted, __ATOMIC_ACQUIRE);
    }
}

/* The loader maps what is preloaded before what a program needs: with a C library, and without the recorder, it will
 * not load that any more. */
static bool has_passed_recorder(int32_t pid)
{
    struct proc_maps maps;
    struct proc_map map;
    bool has_library = false, has_recorder = false;
    (void)proc_maps_open(&maps, pid);
    while (!has_recorder && proc_maps_next(&maps, &map)) {
        has_library = has_library || strstr(map.path, "/libc.so") != NULL || strstr(map.path, "/libc-") != NULL;
        has_recorder = strstr(map.path, "/libvarve_preload") != NULL;
    }
    proc_maps_close(&maps);
    return has_library && !has_recorder;
}

/* Of one that is killed later nothing else can tell whether it had the time. */
static void look_at_child(struct collector *collector)
{
    struct collect_execs *execs = collector->execs;
    const uint64_t now_ns = monotonic_ns();
    if (execs->child.pid == 0 || execs->child.has_ended || execs->child.ran_without ||
        now_ns < execs->child.next_look_ns) {
        return;
    }
    for (size_t i = 0; i < execs->awaited_count; i++) {
        if (is_child(collector, &execs->awaited[i])) {
            execs->child.next_look_ns = now_ns + LOOK_EVERY_NS;
            execs->child.ran_without = has_passed_recorder(execs->child.pid);
            return;
        }
    }
}

static void take_failed(struct collect_execs *execs, const struct session_exec *note)
{
    uint32_t slot = note->of % RECENT;
    awaited_remove(execs, &note->process);
    if (execs->recent[slot].order == note->of && execs->recent[slot].program != 0) {
        execs->programs[execs->recent[slot].program - 1].count--;
        execs->recent[slot].program = 0;
    }
}

static void take_begun(struct collect_execs *execs, const struct session_exec *note)
{
    awaited_remove(execs, &note->process);
    if (note->reason == EXEC_REASON_NONE && note->is_awaited != 0) {
        awaited_add(execs, &note->process, note->path, note->order);
    } else if (note->reason != EXEC_REASON_NONE && note->reason < EXEC_REASON_LIMIT) {
        execs->recent[note->order % RECENT].order = note->order;
        execs->recent[note->order % RECENT].program = program_count(execs, note->path, note->reason);
    }
}

/* Takes one note out of its slot, which is free afterwards if nothing has to be stored. */
static void unrecorded_programs_take(struct collector *collector, struct session_exec *slot)
{
    struct collect_execs *execs = collector->execs;
    struct session_exec note = *slot; /* programs may write it all the time */
    note.path[sizeof(note.path) - 1] = '\0';
    bool must_store = false;
    switch (note.kind) {
    case EXEC_KIND_BEGUN:
        take_begun(execs, &note);
        must_store = note.reason != EXEC_REASON_NONE;
        break;
    case EXEC_KIND_FAILED:
        take_failed(execs, &note);
        must_store = true;
        break;
    case EXEC_KIND_LOADED:
        awaited_remove(execs, &note.process);
        break;
    default:
        break;
    }
    execs->held += must_store;
    slot->commit = EXEC_COMMIT_NONE;
    __atomic_store_n(&slot->state, must_store ? EXEC_STATE_COUNTED : EXEC_STATE_FREE, __ATOMIC_RELEASE);
}

static int by_order(const void *left, const void *right)
{
    const struct session_exec *const *a = left;
    const struct session_exec *const *b = right;
    int32_t difference = (int32_t)((*a)->order - (*b)->order);
    return (difference > 0) - (difference < 0);
}

/* Of one process, an earlier note is written before the number of a later one is taken: so all notes up to
 * the last number that was given out before the search are taken in their order. */
bool collect_execs_take(struct collector *collector)
{
    struct session_counts *counts = collector->directory.counts;
    struct collect_execs *execs = collector->execs;
    uint32_t written = __atomic_load_n(&counts->execs_written, __ATOMIC_ACQUIRE);
    uint32_t noted = __atomic_load_n(&counts->execs_noted, __ATOMIC_ACQUIRE);
    look_at_child(collector);
    if (written == execs->written_seen && !collector->is_draining) {
        return false;
    }
    struct session_exec *found[SESSION_EXECS];
    size_t count = 0;
    for (uint32_t i = 0; i < SESSION_EXECS; i++) {
        struct session_exec *slot = &counts->execs[i];
        uint32_t state = __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE);
        if (state == EXEC_STATE_WRITTEN && (int32_t)(slot->order - noted) <= 0) {
            found[count++] = slot;
        }
    }
    execs->written_seen = written;
    qsort(found, count, sizeof(found[0]), by_order);
    for (size_t i = 0; i < count; i++) {
        unrecorded_programs_take(collector, found[i]);
    }
    return count > 0 && execs->held > 0;
}

void collect_execs_resume(struct collector *collector, uint64_t commits)
{
    for (uint32_t i = 0; i < SESSION_EXECS; i++) {
        struct session_exec *slot = &collector->directory.counts->execs[i];
        if (slot->state == EXEC_STATE_COUNTED) {
            slot->state = slot->commit <= commits ? EXEC_STATE_FREE : EXEC_STATE_WRITTEN;
        }
    }
}

bool collect_execs_are_tight(const struct collector *collector)
{
    return collector->execs->held > SESSION_EXECS / 4;
}

int collect_execs_store(struct collector *collector)
{
    struct collect_execs *execs = collector->execs;
    for (uint32_t i = 0; execs->held > 0 && i < SESSION_EXECS; i++) {
        struct session_exec *slot = &collector->directory.counts->execs[i];
        execs->is_committing[i] = __atomic_load_n(&slot->state, __ATOMIC_RELAXED) == EXEC_STATE_COUNTED;
        if (execs->is_committing[i]) {
            slot->commit = (uint32_t)collector->commits + 1;
        }
    }
    int error = VARVE_OK;
    for (size_t i = 0; error == VARVE_OK && execs->held > 0 && i < execs->program_count; i++) {
        struct program *program = &execs->programs[i];
        if (program->count != program->stored) {
            error = store_unrecorded(collector->store, program->path, reasons[program->reason],
                                     program->count - program->stored);
            program->stored = error == VARVE_OK ? program->count : program->stored;
        }
    }
    return error;
}

void collect_execs_committed(struct collector *collector)
{
    struct session_counts *counts = collector->directory.counts;
    struct collect_execs *execs = collector->execs;
    for (uint32_t i = 0; execs->held > 0 && i < SESSION_EXECS; i++) {
        uint32_t expected = EXEC_STATE_COUNTED;
        if (execs->is_committing[i]) {
            __atomic_compare_exchange_n(&counts->execs[i].state, &expected, EXEC_STATE_FREE, false, __ATOMIC_RELEASE,
                                        __ATOMIC_RELAXED);
            execs->is_committing[i] = false;
            execs->held--;
        }
    }
}

bool collect_execs_any(const struct collector *collector)
{
    return __atomic_load_n(&collector->directory.counts->execs_noted, __ATOMIC_RELAXED) > 1;
}

/* Why it never said that it had loaded the recorder. One that a signal ended before it was seen to do without has not
 * come to its own code, as far as is known: it lost nothing. How others ended than the collector's own child nobody
 * knows. */
static enum exec_reason reason_of(const struct collector *collector, const struct awaited *awaited)
{
    const struct collect_execs *execs = collector->execs;
    const bool knows_end = execs->child.has_ended && is_child(collector, awaited);
    const int status = execs->child.wait_status;
    if (collect_process_has_page(collector, &awaited->process)) {
        return EXEC_REASON_NONE;
    }
    if (is_child(collector, awaited) && execs->child.ran_without) {
        return EXEC_REASON_NOT_LOADED;
    }
    if (knows_end && WIFSIGNALED(status)) {
        return EXEC_REASON_NONE;
    }
    return knows_end && WIFEXITED(status) && WEXITSTATUS(status) != LOADER_FAILED ? EXEC_REASON_NOT_LOADED
                                                                                  : EXEC_REASON_NOT_SEEN;
}

/* Programs that may have noted in vain, or had no time to, are not called unrecorded. */
static void count_awaited(struct collector *collector)
{
    struct collect_execs *execs = collector->execs;
    if (collector->is_cut_short || collector->directory.counts->execs_dropped > 0) {
        return;
    }
    for (size_t i = 0; i < execs->awaited_count; i++) {
        enum exec_reason reason = reason_of(collector, &execs->awaited[i]);
        if (reason != EXEC_REASON_NONE) {
            program_count(execs, execs->awaited[i].path, reason);
        }
    }
    execs->awaited_count = 0;
}

int collect_execs_finish(struct collector *collector)
{
    struct collect_execs *execs = collector->execs;
    (void)collect_execs_take(collector);
    count_awaited(collector);
    execs->held++; /* whatever was taken, awaited ones too */
    int64_t total = 0;
    if (collector->is_unstored) {
        for (size_t i = 0; i < execs->program_count; i++) {
            total += execs->programs[i].count;
        }
        collector->unrecorded = (uint64_t)total;
        return VARVE_OK;
    }
    int error = collect_execs_store(collector);
    VARVE_THEN(error, store_unrecorded_finish(collector->store, &total));
    collector->unrecorded = (uint64_t)total;
    return error;
}
