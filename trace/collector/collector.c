/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The collector: rounds over all rings, commits, the end of a recording. record_run.c drives it while a
 * program runs, recover_run.c after its own death. Ring space is handed back only after a commit, so that
 * whatever dies, each record is either in a ring (or spill) or in the database. A full disk stops the
 * draining and nothing else: rings fill, producers follow their overflow policy, and the commit is tried
 * again.
 */
#include "trace/collector/collector.h"

#include "trace/collector/collector_clock.h"
#include "trace/collector/session/mapped_recordings.h"
#include "trace/collector/session/recording_directory.h"
#include "trace/format/session_format.h"
#include "trace/model/derive.h"
#include "base/downsample.h"
#include "trace/record.h"
#include "trace/store/store.h"
#include "trace/store/store_resume.h"
#include "trace/callsites/callsites.h"
#include "base/error.h"
#include "base/monotonic.h"
#include "base/publish.h"
#include "trace/collect.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define ROUND_MIN_NS UINT64_C(100000)
#define CHECK_EVERY_NS UINT64_C(1000000)
#define HEARTBEAT_EVERY_NS UINT64_C(100000000)
#define COMMIT_EVERY_NS UINT64_C(200000000)
#define COMMIT_EVENTS UINT64_C(65536)
#define DRAIN_IDLE_ROUNDS 3U

/* Of a rebuilt recording there is no file, and nobody who lives. */
static void open_life(struct collector *collector)
{
    collector->counts_fd = session_file_open(&collector->directory, "counts", O_RDWR);
    collector->locks_work = collector->counts_fd >= 0 && liveness_locks_work(&collector->directory, "counts");
    collector->pid_namespace = liveness_namespace();
}

int collector_open(struct collector *collector, enum store_mode mode, struct varve_message *message)
{
    collector->program_end_ns = -1;
    open_life(collector);
    int error = collect_execs_open(collector);
    if (error != VARVE_OK) {
        return error;
    }

    char path[DIRECTORY_PATH_BYTES + 16];
    snprintf(path, sizeof(path), "%s/trace.db", collector->directory.path);
    error = collector->is_unstored ? VARVE_OK : store_open(path, mode, &collector->store, message);
    if (error == VARVE_OK) {
        snprintf(path, sizeof(path), "%s/allocations", collector->directory.path);
        error = derive_open(path, &collector->derive, message);
    }
    VARVE_THEN(error, callsites_open(&collector->callsites));
    collect_clock_open(&collector->clock, (enum varve_clock_kind)collector->directory.control->clock_kind);
    return error;
}

/* Housekeeping that has its own rhythm. */
static void keep_house(struct collector *collector, uint64_t now_ns)
{
    if (now_ns >= collector->next_heartbeat_ns) {
        collector->next_heartbeat_ns = now_ns + HEARTBEAT_EVERY_NS;
        __atomic_store_n(&collector->directory.control->heartbeat_ns, now_ns, __ATOMIC_RELEASE);
        __atomic_store_n(&collector->directory.control->heartbeat_ticks, collect_clock_now(&collector->clock),
                         __ATOMIC_RELEASE);
        collect_bounds_round(collector);
    }
    if (!collector->is_recovering && now_ns >= collector->next_anchor_ns) {
        collect_clock_anchor(&collector->clock);
        collector->next_anchor_ns = now_ns + collect_clock_pause_ns(&collector->clock);
    }
    if (!collector->is_recovering && now_ns >= collector->next_check_ns) {
        collector->next_check_ns = now_ns + CHECK_EVERY_NS;
        collect_processes_check(collector);
    }
    if (!collector->is_recovering) {
        collect_grants(collector);
    }
    collect_rss_round(collector, now_ns);
    collect_live_round(collector, now_ns);
}

/* The clock of a round may serve as watermark once it is ROUND_MIN_NS old: see ring_merge.c. */
static void advance_round_ticks(struct collector *collector, uint64_t now_ns)
{
    if (collector->candidate_ns != 0 && now_ns - collector->candidate_ns < ROUND_MIN_NS) {
        return;
    }
    collector->round_ticks = collector->candidate_ticks;
    collector->candidate_ticks = collect_clock_now(&collector->clock);
    collector->candidate_ns = now_ns;
}

static bool has_unread(const struct ring_reader *reader)
{
    return reader->read < reader->head_seen || reader->spill_read < reader->spill_seen;
}

/* True if a producer could soon be short of space because its records wait for a commit. */
static bool refresh_readers(struct collector *collector, uint64_t *bound)
{
    bool is_tight = false;
    for (size_t i = 0; i < collector->reader_count; i++) {
        struct ring_reader *reader = collector->readers[i];
        ring_reader_refresh(reader);
        if (!has_unread(reader) && reader->is_in_flight && !reader->saw_end && reader->last_ticks < *bound) {
            *bound = reader->last_ticks;
        }
        is_tight = is_tight || reader->read + reader->spill_read - reader->stored > reader->capacity / 8;
    }
    return is_tight;
}

bool collector_idle(struct collector *collector)
{
    bool has_more = false;
    if (!collector->is_unstored && !collector->is_store_full) {
        callsites_step(collector->callsites, collector->store, &has_more);
    }
    return has_more;
}

static int store_anchors(struct collector *collector)
{
    int error = VARVE_OK;
    while (error == VARVE_OK && collector->clock.stored < collector->clock.count) {
        const struct clock_anchor *anchor = &collector->clock.anchors[collector->clock.stored];
        error = store_clock_anchor(collector->store, anchor->ticks, anchor->mono_ns, anchor->real_ns);
        collector->clock.stored += error == VARVE_OK;
    }
    return error;
}

static size_t gather_positions(const struct collector *collector, struct store_ring_position *positions)
{
    size_t count = 0;
    for (size_t i = 0; i < collector->reader_count; i++) {
        const struct ring_reader *reader = collector->readers[i];
        if (reader->read + reader->spill_read + reader->orphans_read != reader->stored || reader->parts > 0) {
            positions[count++] = (struct store_ring_position){.thread_id = reader->thread_id,
                                                              .process_id = reader->process->id,
                                                              .ring = reader->index,
                                                              .tail = reader->read,
                                                              .spill_tail = reader->spill_read,
                                                              .sequence = reader->sequence,
                                                              .orphans = reader->orphans_read,
                                                              .unreadable = reader->unreadable,
                                                              .unfolded = reader->unfolded,
                                                              .parts = reader->parts,
                                                              .last_ticks = reader->last_ticks,
                                                              .last_ns = reader->last_ns};
        }
    }
    return count;
}

uint64_t collector_pending(const struct collector *collector)
{
    return collector->seq - collector->seq_committed;
}

static int commit_store(struct collector *collector, struct varve_message *message)
{
    if (collector->is_unstored) {
        return VARVE_OK;
    }
    struct store_ring_position *positions = calloc(collector->reader_count + 1, sizeof(*positions));
    if (positions == NULL) {
        return VARVE_ERROR_NO_MEMORY;
    }
    size_t count = gather_positions(collector, positions);
    int error = callsites_commit(collector->callsites, collector->store);
    VARVE_THEN(error, store_anchors(collector));
    VARVE_THEN(error, collect_execs_store(collector));
    VARVE_THEN(error, store_meta_integer(collector->store, STORE_META_COMMITS, (int64_t)collector->commits + 1));
    VARVE_THEN(error, store_commit(collector->store, positions, count, message));
    free(positions);
    return error;
}

static int commit_failed(struct collector *collector, int error)
{
    collector->is_store_full = error == VARVE_ERROR_FULL;
    collector->first_pending_ns = monotonic_ns();
    return error;
}

/* Wait for the commit under way, and hand back what it made free. */
static int commit_end(struct collector *collector, struct varve_message *message)
{
    if (!collector->is_committing) {
        return VARVE_OK;
    }
    int error = collector->is_unstored ? VARVE_OK : store_wait(collector->store, message);
    if (error != VARVE_OK) {
        return commit_failed(collector, error);
    }
    collector->is_committing = false;
    collector->is_store_full = false;
    collector->seq_committed = collector->seq_committing;
    if (!collector->is_unstored) {
        collector->directory.control->commits = ++collector->commits;
        error = collect_keep_check(collector);
    }
    collect_execs_committed(collector);
    collect_files_remove(collector);
    for (size_t i = 0; i < collector->reader_count; i++) {
        ring_reader_release(collector->readers[i]);
    }
    return error == VARVE_OK ? collect_processes_retire(collector) : error;
}

static int commit_begin(struct collector *collector, struct varve_message *message)
{
    VARVE_TRY(commit_end(collector, message));
    int error = commit_store(collector, message);
    if (error != VARVE_OK) {
        return commit_failed(collector, error);
    }
    collector->is_committing = true;
    collector->first_pending_ns = 0;
    collector->seq_committing = collector->seq;
    collector->unlink_committing = collector->unlink_count;
    for (size_t i = 0; i < collector->reader_count; i++) {
        ring_reader_commit(collector->readers[i]);
    }
    return VARVE_OK;
}

int collector_commit(struct collector *collector, struct varve_message *message)
{
    int error = commit_begin(collector, message);
    return error == VARVE_OK ? commit_end(collector, message) : error;
}

/* While one is under way the next one waits, unless too much waits for it. */
static int commit_step(struct collector *collector, bool is_due, struct varve_message *message)
{
    const bool is_busy = collector->is_committing && !collector->is_unstored && store_is_committing(collector->store);
    if (is_due && (!is_busy || collector->seq - collector->seq_committing >= 2 * COMMIT_EVENTS)) {
        return commit_begin(collector, message);
    }
    return !is_busy && !collector->is_store_full ? commit_end(collector, message) : VARVE_OK;
}

static bool commit_is_due(const struct collector *collector, bool is_tight, uint64_t now_ns)
{
    if (collector->is_store_full) {
        return now_ns - collector->first_pending_ns > COMMIT_EVERY_NS;
    }
    return collector->first_pending_ns != 0 && (is_tight || collector_pending(collector) >= COMMIT_EVENTS ||
                                                now_ns - collector->first_pending_ns > COMMIT_EVERY_NS);
}

int collector_round(struct collector *collector, bool drain, uint64_t *moved_out, struct varve_message *message)
{
    uint64_t now_ns = monotonic_ns();
    *moved_out = 0;
    collector->is_draining = drain;
    keep_house(collector, now_ns);
    advance_round_ticks(collector, now_ns);
    uint64_t bound = UINT64_MAX;
    int error = collect_processes_discover(collector, &bound);
    if (error != VARVE_OK) {
        return varve_message_set(message, error, "cannot follow a process or ring: %s", varve_strerror(error));
    }
    const bool has_notes = collect_execs_take(collector);
    collect_sink_round(collector);
    bool is_tight = refresh_readers(collector, &bound) || collect_execs_are_tight(collector);
    collector->watermark = bound < collector->round_ticks ? bound : collector->round_ticks;
    if (drain) {
        collector->watermark = collect_files_bound(collector);
    }
    if (!collector->is_store_full) {
        error = merge_run(collector, moved_out, message);
        if (error == VARVE_ERROR_FULL) {
            collector->is_store_full = true;
        } else if (error != VARVE_OK) {
            return error;
        }
    }
    if ((*moved_out > 0 || has_notes) && collector->first_pending_ns == 0) {
        collector->first_pending_ns = now_ns;
    }
    if (drain && *moved_out == 0) {
        return collector_commit(collector, message);
    }
    error = commit_step(collector, commit_is_due(collector, is_tight, now_ns), message);
    if (error != VARVE_OK) {
        return error == VARVE_ERROR_FULL && !drain ? VARVE_OK : error;
    }
    return collect_processes_retire(collector);
}

/* Processes that still live, or that nobody waited for, get their rows as they are. */
static int store_open_rows(struct collector *collector)
{
    if (collector->processes_alive > 0 && collector->stopped_ns > collector->processes_end_ns) {
        collector->processes_end_ns = collector->stopped_ns;
    }
    int error = VARVE_OK;
    for (size_t i = 0; error == VARVE_OK && i < collector->reader_count; i++) {
        error = collect_thread_row(collector, collector->readers[i], (int64_t)collector->newest_ts_ns);
        collect_sink_thread_end(collector, collector->readers[i]);
    }
    for (uint32_t i = collector->first_open; error == VARVE_OK && i < collector->process_count; i++) {
        if (collector->processes[i] != NULL && !collector->processes[i]->is_closed) {
            collector->sum.unattached += collect_plausible(collector->processes[i]->control->unattached);
            error = collect_process_row(collector, collector->processes[i]);
        }
    }
    return error == VARVE_OK ? collect_rss_finish(collector) : error;
}

/* The rows are the accounts: what this collector has added up lacks what one before it, which was killed, had
 * retired already. */
int collector_load_sums(struct collector *collector, struct varve_message *message)
{
    return store_sum(collector->store, &collector->sum, message);
}

/* Events that no ring could take: of threads without one, and of processes without a page. */
static uint64_t events_unattached(const struct collector *collector)
{
    const struct session_counts *counts = collector->directory.counts;
    return collector->sum.unattached +
           (counts != NULL ? collect_plausible(__atomic_load_n(&counts->unattached, __ATOMIC_ACQUIRE)) : 0);
}

/* Frees of blocks whose allocation is not known: from before an attach, or lost, and then these are in no total either
 * and belong to what was lost. */
static int store_frees_unknown(struct collector *collector)
{
    const struct session_control *control = collector->directory.control;
    const bool is_attached = control != NULL && control->attached_pid != 0;
    const bool has_lost = collector->has_forgotten || collector->sum.damaged > 0 ||
                          collector->sum.lost + events_unattached(collector) > 0;
    if (!is_attached && !has_lost) {
        return VARVE_OK;
    }
    return store_stat(collector->store, "frees_unknown", -1, is_attached ? "info" : "data_loss", "ring",
                      (int64_t)derive_frees_unknown(collector->derive));
}

static int store_sums(struct collector *collector)
{
    const struct {
        const char *name, *severity;
        uint64_t value;
    } rows[] = {
        {"events_emitted", "info", collector->sum.emitted + events_unattached(collector)},
        {"events_stored", "info", collector->seq},
        {"events_spilled", "info", collector->sum.spilled},
        {"events_uncommitted", "info", collector->sum.uncommitted},
        {"events_lost", "data_loss", collector->sum.lost},
        {"bytes_lost", "data_loss", collector->sum.lost_bytes},
        {"events_unattached", "data_loss", events_unattached(collector)},
        {"processes_unattached", "data_loss", collect_processes_unattached(collector)},
        {"sizes_refused", "data_loss", derive_sizes_refused(collector->derive)},
        {"spill_unreadable", "data_loss", collector->sum.unreadable},
        {"rings_damaged", "data_loss", collector->sum.damaged},
        {"processes_missing", "data_loss", collect_processes_missing(collector)},
        {"processes_unrecorded", "data_loss", collector->unrecorded},
        {"processes_running", "info", collector->processes_alive},
        {"execs_unexamined", "data_loss", collector->directory.counts->execs_dropped},
    };
    int error = VARVE_OK;
    for (size_t i = 0; error == VARVE_OK && i < sizeof(rows) / sizeof(rows[0]); i++) {
        error = store_stat(collector->store, rows[i].name, -1, rows[i].severity, "ring", (int64_t)rows[i].value);
    }
    return error == VARVE_OK ? store_frees_unknown(collector) : error;
}

/* Of the program, from its start to its end, and on to the end of the last process that it left behind, or to the end
 * of the recording. */
static int64_t duration_ns(const struct collector *collector)
{
    int64_t end_ns = collector->program_end_ns;
    int64_t newest_ns = (int64_t)collector->newest_ts_ns;
    newest_ns = newest_ns > collector->processes_end_ns ? newest_ns : collector->processes_end_ns;
    if (end_ns < 0 &&
        (collector->is_unstored || store_meta_get_integer(collector->store, "program_end_ns", &end_ns) != VARVE_OK)) {
        end_ns = newest_ns;
    }
    end_ns = end_ns > newest_ns ? end_ns : newest_ns;
    int64_t known_ns = 0;
    /* an end that was interrupted, and a trace that is imported, know more */
    if (collector->is_recovering && !collector->is_unstored) {
        store_meta_get_integer(collector->store, "duration_ns", &known_ns);
    }
    return end_ns > known_ns ? end_ns : known_ns;
}

/* It is all in tables: the call sites need the memory. */
static void derived_forget(struct collector *collector)
{
    collector->allocations = derive_allocations(collector->derive);
    derive_close(collector->derive);
    collector->derive = NULL;
}

int collector_finish(struct collector *collector, varve_collect_progress progress, void *context,
                     struct varve_message *message)
{
    int error = collector_commit(collector, message);
    collect_live_end(collector);
    VARVE_THEN(error, collect_execs_finish(collector));
    VARVE_THEN(error, store_open_rows(collector));
    VARVE_THEN(error, collect_meta_integer(collector, "duration_ns", duration_ns(collector)));
    if (error == VARVE_OK && !collector->is_unstored) {
        error = collector_load_sums(collector, message);
    }
    if (error != VARVE_OK || collector->is_unstored) {
        return error;
    }
    error = callsites_hurry(collector->callsites, message);
    VARVE_THEN(error, callsites_merge_all(collector->callsites, collector->store, progress, context, message));
    VARVE_THEN(error, collect_keep_join(collector, message));
    VARVE_THEN(error, store_sums(collector));
    VARVE_THEN(error, derive_finish(collector->derive, collector->store, progress, context, message));
    if (error == VARVE_OK) {
        derived_forget(collector);
    }
    VARVE_THEN(error, callsites_finish(collector->callsites, collector->store, progress, context, message));
    VARVE_THEN(error, store_finish(collector->store, progress, context, message));
    return error == VARVE_OK ? store_count_losses(collector->store, &collector->loss_rows, message) : error;
}

static bool any_unread(const struct collector *collector)
{
    for (size_t i = 0; i < collector->reader_count; i++) {
        if (has_unread(collector->readers[i])) {
            return true;
        }
    }
    return false;
}

uint64_t collector_events_known(const struct collector *collector)
{
    uint64_t events = collector->seq;
    for (size_t i = 0; i < collector->reader_count; i++) {
        const struct ring_reader *reader = collector->readers[i];
        if (has_unread(reader)) {
            events += reader->head_seen - reader->read + reader->spill_seen - reader->spill_read;
        }
    }
    return events;
}

int collector_drain(struct collector *collector, varve_collect_progress progress, void *context,
                    struct varve_message *message)
{
    collector->next_check_ns = 0; /* processes that ended since the last look are not left as running */
    unsigned idle_rounds = 0;
    uint64_t moved;
    int error;
    do {
        error = collector_round(collector, true, &moved, message);
        if (progress != NULL) {
            progress(context, "writing events", collector->seq, collector_events_known(collector));
        }
        idle_rounds = moved > 0 ? 0 : idle_rounds + 1;
    } while (error == VARVE_OK && (moved > 0 || collector->files_opened < collector->file_count ||
                                   (any_unread(collector) && idle_rounds < DRAIN_IDLE_ROUNDS)));
    if (error == VARVE_OK && any_unread(collector)) {
        return varve_message_set(message, collector->is_store_full ? VARVE_ERROR_FULL : VARVE_ERROR_IO,
                                 "%s: rings hold records that could not be stored", collector->directory.path);
    }
    return error;
}

int collector_publish(struct collector *collector, const char *database_path, struct varve_message *message)
{
    session_directory_clear(&collector->directory);
    if (collector->is_unstored) {
        return VARVE_OK;
    }
    char path[DIRECTORY_PATH_BYTES + 16];
    snprintf(path, sizeof(path), "%s/trace.db", collector->directory.path);
    return varve_publish_move(path, database_path, collector->may_replace, message);
}

void collector_result(const struct collector *collector, struct varve_collect_result *result)
{
    result->events = collector->seq;
    result->lost = collector->sum.lost + events_unattached(collector);
    result->unattached = collect_processes_unattached(collector) + collect_processes_missing(collector);
    result->uncommitted = collector->sum.uncommitted;
    result->loss_rows = collector->loss_rows;
    result->running = collector->processes_alive;
    result->unrecorded = collector->unrecorded;
    result->processes = collector->sum.processes;
    result->images = collector->sum.images;
    result->own_allocators = collector->own_allocators;
    result->threads = collector->sum.threads;
    result->kept_events = collector->kept_events;
    result->allocations = collector->derive != NULL ? derive_allocations(collector->derive) : collector->allocations;
}

void collector_close(struct collector *collector)
{
    for (size_t i = 0; i < collector->reader_count; i++) {
        ring_reader_close(collector->readers[i]);
    }
    collect_processes_close(collector);
    collect_execs_close(collector);
    collect_bounds_end(collector);
    if (collector->counts_fd > 0) { /* 0: never opened */
        close(collector->counts_fd);
    }
    for (size_t i = 0; i < collector->unlink_count; i++) {
        free(collector->unlinks[i]);
    }
    free(collector->unlinks);
    free(collector->lttng.rings);
    free(collector->known);
    free(collector->ended);
    free(collector->files);
    free(collector->readers);
    free(collector->heap);
    if (collector->store != NULL) {
        store_close(collector->store); /* whose threads may read what follows */
    }
    if (collector->derive != NULL) {
        derive_close(collector->derive);
    }
    if (collector->callsites != NULL) {
        callsites_close(collector->callsites);
    }
    downsample_free(&collector->rss.samples);
    collect_live_close(collector);
    collect_clock_close(&collector->clock);
    collect_sink_close(collector);
}
