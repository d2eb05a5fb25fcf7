/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ends of rings and processes: their rows in the database, the sums of what was emitted, stored and lost,
 * and the files that go with them. A ring is retired only when it was looked at after its end, taken whole
 * and committed; a process when all its rings are. Called by the collector after each commit.
 */
#include "trace/collector/collector.h"

#include "base/grown_array.h"
#include "trace/collector/collector_clock.h"
#include "trace/collector/session/recording_directory.h"
#include "base/error.h"
#include "trace/format/ring_format.h"
#include "trace/format/session_format.h"
#include "trace/model/derive.h"
#include "trace/store/store.h"
#include "trace/callsites/callsites.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define COUNT_MAX (UINT64_C(1) << 48) /* of events or bytes: nobody counts further */

uint64_t collect_plausible(uint64_t count)
{
    return count < COUNT_MAX ? count : 0;
}

static const char *end_cause(const struct traced_process *process, int *exit_status)
{
    uint32_t state = __atomic_load_n(&process->control->state, __ATOMIC_ACQUIRE);
    *exit_status = -1;
    if (!process->has_ended || state == PROCESS_STATE_DETACHED) {
        return "running";
    }
    if (process->is_replaced) {
        return "exec";
    }
    if (process->wait_status != -1 && WIFSIGNALED(process->wait_status)) {
        *exit_status = WTERMSIG(process->wait_status);
        return "signal";
    }
    if (process->wait_status != -1 && WIFEXITED(process->wait_status)) {
        *exit_status = WEXITSTATUS(process->wait_status);
        return state == PROCESS_STATE_EXECUTING ? "exec" : "exit";
    }
    return state == PROCESS_STATE_EXITED ? "exit" : state == PROCESS_STATE_EXECUTING ? "exec" : "unknown";
}

/* Arguments are separated by NUL in the control page; a row shows them separated by blanks. */
void collect_process_command(const struct process_control *control, char *text, size_t bytes)
{
    size_t length = 0;
    for (size_t i = 0; i + 1 < sizeof(control->command_line) && length + 1 < bytes; i++) {
        char c = control->command_line[i];
        if (c == '\0' && control->command_line[i + 1] == '\0') {
            break;
        }
        text[length++] = c == '\0' ? ' ' : c;
    }
    text[length] = '\0';
}

int collect_process_row(struct collector *collector, struct traced_process *process)
{
    char command_line[sizeof(process->control->command_line)];
    struct store_process row = {.id = process->id,
                                .parent_id = process->control->parent_id,
                                .pid = process->control->pid,
                                .parent_pid = process->control->parent_pid,
                                .rank = process->control->rank,
                                .start_ns = process->start_ns,
                                .end_ns = process->has_ended ? process->end_ns : -1,
                                .unattached = collect_plausible(process->control->unattached),
                                .unattached_bytes = collect_plausible(process->control->unattached_bytes),
                                .peak_rss_bytes = collect_rss_peak(collector, process)};
    collect_process_command(process->control, command_line, sizeof(command_line));
    char executable[sizeof(process->control->executable)];
    snprintf(executable, sizeof(executable), "%.*s", (int)sizeof(executable) - 1, process->control->executable);
    char exec_path[sizeof(process->control->exec_path)];
    snprintf(exec_path, sizeof(exec_path), "%.*s", (int)sizeof(exec_path) - 1, process->control->exec_path);
    row.command_line = command_line;
    row.executable = executable;
    row.exec_path = exec_path[0] != '\0' ? exec_path : NULL;
    row.end_cause = end_cause(process, &row.exit_status);
    collector->was_killed =
        collector->was_killed || strcmp(row.end_cause, "signal") == 0 || strcmp(row.end_cause, "unknown") == 0;
    if (!collector->is_unstored) {
        int error = store_process(collector->store, &row);
        VARVE_THEN(error, collect_rss_rows(collector, process));
        if (error != VARVE_OK) {
            return error;
        }
    }
    return collect_allocator_row(collector, process);
}

#define HANDLERS_MAX 16U

struct ring_sums {
    uint64_t emitted, stored, lost, uncommitted;
    const char *damage;
};

/* How many events a thread can have begun and not committed when its process was killed: handlers interrupt
 * each other, but not without end; and one who has ended by itself has none. */
static uint64_t interrupted_max(const struct ring_header *ring)
{
    return __atomic_load_n(&ring->state, __ATOMIC_ACQUIRE) == RING_STATE_RETIRED ? 0 : HANDLERS_MAX;
}

/* Events: emitted = stored + lost + uncommitted; what was begun and not committed counts as one event a record. A
 * marker for missing records is a row that nobody emitted. Where the header contradicts itself, what is known for sure
 * are the records that are stored: all that it has counted besides, if that makes sense, is lost. */
static struct ring_sums sums_of(const struct ring_reader *reader)
{
    const struct ring_header *ring = reader->ring;
    uint64_t emitted = collect_plausible(__atomic_load_n(&ring->emitted, __ATOMIC_ACQUIRE));
    uint64_t lost_folded = collect_plausible(__atomic_load_n(&ring->lost_folded, __ATOMIC_ACQUIRE));
    struct ring_sums sums = {
        .emitted = emitted + lost_folded + reader->unfolded + reader->orphans_read + reader->gap_rows,
        .stored = ring_reader_stored(reader),
        .lost = collect_plausible(__atomic_load_n(&ring->lost, __ATOMIC_ACQUIRE)) + lost_folded + reader->unreadable +
                reader->gaps,
        .damage = reader->damage,
    };
    if (reader->damage == NULL && reader->process->has_ended &&
        (sums.emitted < sums.stored + sums.lost || sums.emitted - sums.stored - sums.lost > interrupted_max(ring))) {
        sums.damage = "damaged";
    }
    if (sums.damage != NULL) {
        sums.emitted = sums.emitted > sums.stored + sums.lost ? sums.emitted : sums.stored + sums.lost;
        sums.lost = sums.emitted - sums.stored;
    }
    sums.uncommitted = sums.emitted > sums.stored + sums.lost ? sums.emitted - sums.stored - sums.lost : 0;
    return sums;
}

int collect_thread_row(struct collector *collector, const struct ring_reader *reader, int64_t end_ns)
{
    const struct ring_header *ring = reader->ring;
    char name[sizeof(ring->thread_name) + 1];
    struct store_thread row = {.id = reader->thread_id,
                               .process_id = reader->process->id,
                               .ring = reader->index,
                               .pid = reader->process->control->pid,
                               .tid = reader->tid,
                               .end_ns = end_ns};
    struct ring_sums sums = sums_of(reader);
    snprintf(name, sizeof(name), "%.*s", (int)sizeof(ring->thread_name), ring->thread_name);
    row.name = name;
    row.start_ns = collect_clock_ns(&collector->clock, ring->created_ticks);
    row.emitted = sums.emitted;
    row.stored = sums.stored;
    row.spilled = reader->spill_read;
    row.lost = sums.lost;
    row.lost_bytes = collect_plausible(ring->lost_bytes);
    row.uncommitted = end_ns >= 0 ? sums.uncommitted : 0;
    row.unreadable = reader->unreadable;
    row.damage = sums.damage;
    return collector->is_unstored ? VARVE_OK : store_thread(collector->store, &row);
}

/* Rows of what ends go with the next commit: the files they are made from must outlive it. */
static void unlink_later(struct collector *collector, const char *name)
{
    if (!ARRAY_GROW(collector->unlinks, collector->unlink_capacity, collector->unlink_count + 1)) {
        return; /* the file goes with the directory */
    }
    collector->unlinks[collector->unlink_count] = strdup(name);
    collector->unlink_count += collector->unlinks[collector->unlink_count] != NULL;
}

void collect_files_remove(struct collector *collector)
{
    const size_t gone = collector->unlink_committing;
    for (size_t i = 0; i < gone; i++) {
        session_file_remove(&collector->directory, collector->unlinks[i]);
        free(collector->unlinks[i]);
    }
    collector->unlink_count -= gone;
    collector->unlink_committing = 0;
    if (collector->unlink_count > 0) {
        memmove(collector->unlinks, collector->unlinks + gone, collector->unlink_count * sizeof(*collector->unlinks));
    }
}

/* Its pieces went when the last of it was committed. */
static void unlink_ring_files_later(struct collector *collector, const struct ring_reader *reader)
{
    char name[64];
    snprintf(name, sizeof(name), "p%u.r%u", reader->process->id, reader->index);
    unlink_later(collector, name);
    __atomic_sub_fetch(&collector->directory.counts->memory_bytes, reader->ring->memory_bytes + reader->granted_bytes,
                       __ATOMIC_ACQ_REL);
    if (reader->ring->spill_head > 0) {
        snprintf(name, sizeof(name), "p%u.r%u.staging", reader->process->id, reader->index);
        unlink_later(collector, name);
    }
}

static void add_to_sums(struct collector *collector, const struct ring_reader *reader)
{
    struct ring_sums sums = sums_of(reader);
    collector->sum.emitted += sums.emitted;
    collector->sum.stored += sums.stored;
    collector->sum.spilled += reader->spill_read;
    collector->sum.unreadable += reader->unreadable;
    collector->sum.damaged += sums.damage != NULL;
    collector->sum.threads++;
    collector->sum.lost += sums.lost;
    collector->sum.lost_bytes += collect_plausible(reader->ring->lost_bytes);
    collector->sum.uncommitted += sums.uncommitted;
}

uint64_t collect_lost(const struct collector *collector)
{
    uint64_t lost = collector->sum.lost + collector->sum.unattached +
                    collect_plausible(__atomic_load_n(&collector->directory.counts->unattached, __ATOMIC_RELAXED));
    for (size_t i = 0; i < collector->reader_count; i++) {
        lost += sums_of(collector->readers[i]).lost;
    }
    for (uint32_t i = collector->first_open; i < collector->process_count; i++) {
        const struct traced_process *process = collector->processes[i];
        if (process != NULL && !process->is_closed) {
            lost += collect_plausible(__atomic_load_n(&process->control->unattached, __ATOMIC_RELAXED));
        }
    }
    return lost;
}

/* When its thread ended, or wrote its last record at least. */
static int64_t reader_end_ns(struct collector *collector, const struct ring_reader *reader)
{
    struct traced_process *process = reader->process;
    int64_t end_ns = collect_clock_ns(&collector->clock, reader->last_ticks);
    if (process->has_ended && !collector->is_recovering) {
        return process->end_ns;
    }
    if (collector->is_recovering && end_ns > process->end_ns) { /* also of one that turns out to have ended */
        process->end_ns = end_ns;
    }
    return end_ns;
}

static int retire_reader(struct collector *collector, struct ring_reader *reader)
{
    int64_t end_ns = reader_end_ns(collector, reader);
    int error = collect_thread_row(collector, reader, end_ns >= 0 ? end_ns : 0);
    if (error == VARVE_OK) {
        collect_sink_thread_end(collector, reader);
        add_to_sums(collector, reader);
        unlink_ring_files_later(collector, reader);
        reader->process->readers--;
        ring_reader_close(reader);
    }
    return error;
}

static int close_process(struct collector *collector, struct traced_process *process)
{
    int error = collect_process_row(collector, process);
    VARVE_THEN(error, collect_rings_missing(collector, process));
    if (error != VARVE_OK) {
        return error;
    }
    collect_sink_process_end(collector, process);
    if (process->end_ns > collector->processes_end_ns) {
        collector->processes_end_ns = process->end_ns;
    }
    collector->sum.processes += !process->is_replaced;
    collector->sum.images++;
    collector->sum.unattached += collect_plausible(process->control->unattached);
    derive_process_end(collector->derive, process->id);
    callsites_process_end(collector->callsites, process->id);
    error = collect_process_callsites_keep(collector, process);
    if (error != VARVE_OK) {
        return error;
    }
    char name[32];
    snprintf(name, sizeof(name), "p%u", process->id);
    unlink_later(collector, name);
    process->was_executing = __atomic_load_n(&process->control->state, __ATOMIC_ACQUIRE) == PROCESS_STATE_EXECUTING;
    collect_process_release(process);
    process->is_closed = true;
    return VARVE_OK;
}

/* How a child of the collector ended arrives by waitpid, a moment after its end shows in the pidfd. */
static bool can_close(const struct collector *collector, const struct traced_process *process)
{
    bool knows_status = !process->is_child || process->is_replaced || process->wait_status != -1;
    return process->has_ended && process->saw_end && process->readers == 0 &&
           (knows_status || collector->is_recovering);
}

/* Only what was refreshed after the end was known, taken whole and committed, may go. */
static bool can_retire(const struct ring_reader *reader)
{
    bool is_over = reader->is_retired || (reader->process->has_ended && reader->saw_end);
    return is_over && reader->read == reader->head_seen && reader->spill_read == reader->spill_seen &&
           reader->orphans_read == reader->orphans_seen &&
           reader->stored == reader->read + reader->spill_read + reader->orphans_read;
}

int collect_processes_retire(struct collector *collector)
{
    size_t kept = 0;
    int error = VARVE_OK;
    for (size_t i = 0; i < collector->reader_count; i++) {
        struct ring_reader *reader = collector->readers[i];
        if (error == VARVE_OK && can_retire(reader)) {
            error = retire_reader(collector, reader);
            if (error == VARVE_OK) {
                continue;
            }
        }
        collector->readers[kept++] = reader;
    }
    collector->reader_count = kept;
    for (uint32_t i = collector->first_open; error == VARVE_OK && i < collector->process_count; i++) {
        struct traced_process *process = collector->processes[i];
        if (process != NULL && !process->is_closed && can_close(collector, process)) {
            error = close_process(collector, process);
        }
    }
    while (collector->first_open < collector->process_count &&
           (collector->processes[collector->first_open] == NULL ||
            collector->processes[collector->first_open]->is_closed)) {
        collector->first_open++;
    }
    return error;
}
