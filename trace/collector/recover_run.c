/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve recover`: finish a recording directory whose collector died. The database in it holds whole
 * transactions; what was published after the last of them is still in the rings and spills, and the positions
 * stored with that transaction say where to go on. The derived state (which addresses are live, totals) is
 * rebuilt by reading the stored events once.
 */
#include "base/grown_array.h"
#include "trace/collector/collector_clock.h"
#include "trace/collector/collector.h"
#include "trace/collector/session/recording_directory.h"
#include "trace/model/derive.h"
#include "trace/model/model_event.h"
#include "base/monotonic.h"
#include "base/publish.h"
#include "trace/collector/programs/attach_torch.h"
#include "trace/collector/programs/launch.h"
#include "trace/store/store_resume.h"
#include "trace/store/store.h"
#include "trace/callsites/callsites.h"
#include "base/error.h"
#include "trace/collect.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ENDING_NAP_NS 10000000L
#define ENDING_NAPS 200U

struct replay {
    struct collector *collector;
    struct varve_message *message;
    varve_collect_progress progress;
    void *progress_context;
    uint64_t *events; /* read back, by thread */
    size_t event_limit;
};

static int take_position(void *context, const struct store_ring_position *position)
{
    struct collector *collector = context;
    if (!ARRAY_GROW(collector->known, collector->known_capacity, collector->known_count + 1)) {
        return VARVE_ERROR_NO_MEMORY;
    }
    collector->known[collector->known_count++] = *position;
    if (position->thread_id > collector->thread_count) {
        collector->thread_count = position->thread_id;
    }
    return VARVE_OK;
}

static int compare_positions(const void *a_untyped, const void *b_untyped)
{
    const struct store_ring_position *a = a_untyped, *b = b_untyped;
    if (a->process_id != b->process_id) {
        return a->process_id < b->process_id ? -1 : 1;
    }
    return a->ring < b->ring ? -1 : a->ring > b->ring;
}

static int take_ended(void *context, uint32_t process_id, uint32_t parent_id)
{
    struct collector *collector = context;
    if (!ARRAY_GROW(collector->ended, collector->ended_capacity, collector->ended_count + 1)) {
        return VARVE_ERROR_NO_MEMORY;
    }
    collector->ended[collector->ended_count++] = (struct ended_process){process_id, parent_id};
    return VARVE_OK;
}

/* Processes that were over before their collector died: their events and call sites are read once more. */
static int begin_ended(struct collector *collector)
{
    int error = VARVE_OK;
    for (size_t i = 0; error == VARVE_OK && i < collector->ended_count; i++) {
        const struct ended_process *ended = &collector->ended[i];
        if (collect_process_is_over(collector, ended)) {
            derive_process_start(collector->derive, ended->id, ended->parent_id);
            error = collect_process_callsites(collector, ended->id);
        }
    }
    return error;
}

static void end_ended(struct collector *collector)
{
    for (size_t i = 0; i < collector->ended_count; i++) {
        const struct ended_process *ended = &collector->ended[i];
        if (collect_process_is_over(collector, ended)) {
            derive_process_end(collector->derive, ended->id);
            callsites_process_end(collector->callsites, ended->id);
        }
    }
}

static int take_anchor(void *context, uint64_t ticks, int64_t mono_ns, int64_t real_ns)
{
    struct collector *collector = context;
    const struct clock_anchor anchor = {.ticks = ticks, .mono_ns = mono_ns, .real_ns = real_ns};
    int error = collect_clock_add(&collector->clock, &anchor);
    collector->clock.stored = collector->clock.count;
    return error;
}

static int begin_clock(struct collector *collector)
{
    int64_t start_ns;
    int error = store_meta_get_integer(collector->store, COLLECT_META_START, &start_ns);
    if (error == VARVE_OK) {
        collect_clock_begin(&collector->clock, start_ns);
    }
    return error == VARVE_ERROR_NOT_FOUND ? VARVE_OK : error;
}

static int recover_run_take_event(void *context, struct event *event, bool is_held)
{
    struct replay *replay = context;
    replay->collector->seq = event->seq;
    if (event->ts_ns > 0 && (uint64_t)event->ts_ns > replay->collector->newest_ts_ns) {
        replay->collector->newest_ts_ns = (uint64_t)event->ts_ns;
    }
    if (replay->progress != NULL && event->seq % 65536 == 0) {
        replay->progress(replay->progress_context, "reading", event->seq, 0);
    }
    VARVE_TRY(
        derive_event(replay->collector->derive, event, replay->message)); /* a number that is too large ends here */
    if (!ARRAY_COVER(replay->events, replay->event_limit, event->thread_id)) {
        return VARVE_ERROR_NO_MEMORY;
    }
    replay->events[event->thread_id]++;
    store_hold_again(replay->collector->store, replay->collector->derive, event, is_held);
    return VARVE_OK;
}

/* Events of a thread that were stored, and that the log has no more: it was cut, or is gone. */
static uint64_t missing_of(const struct replay *replay, uint32_t thread_id, uint64_t stored)
{
    const uint64_t there = thread_id < replay->event_limit ? replay->events[thread_id] : 0;
    return stored > there ? stored - there : 0;
}

static int count_missing(struct collector *collector, const struct replay *replay)
{
    for (size_t i = 0; i < collector->reader_count; i++) {
        struct ring_reader *reader = collector->readers[i];
        reader->unreadable += missing_of(replay, reader->thread_id, ring_reader_stored(reader));
    }
    int error = VARVE_OK;
    for (size_t i = 0; i < collector->known_count && error == VARVE_OK; i++) {
        struct store_ring_position *known = &collector->known[i];
        const uint64_t missing =
            known->is_found ? 0 : missing_of(replay, known->thread_id, ring_position_stored(known));
        known->unreadable += missing;
        if (missing > 0 && known->is_final) {
            error = store_thread_cut(collector->store, known->thread_id, missing);
        }
    }
    return error;
}

/* The database was stored before the program began, with what is to be said of the recording as a whole: it
 * was deleted or cut since. */
static int emit_lost_beginning(struct collector *collector)
{
    int error = store_meta_integer(collector->store, "trace_id", (int64_t)collector->directory.control->trace_id);
    return error == VARVE_OK ? store_stat(collector->store, "database_lost", -1, "data_loss", "recover", 1) : error;
}

static int check_same_trace(struct collector *collector, struct varve_message *message)
{
    int64_t trace_id = 0;
    int error = store_meta_get_integer(collector->store, "trace_id", &trace_id);
    if (error == VARVE_OK && (uint64_t)trace_id != collector->directory.control->trace_id) {
        return varve_message_set(message, VARVE_ERROR_FORMAT, "the database in %s belongs to another recording",
                                 collector->directory.path);
    }
    return error == VARVE_ERROR_NOT_FOUND ? emit_lost_beginning(collector) : error;
}

/* Commits that the database no longer has were cut off: what they held besides events is in no ring. */
static int emit_lost_commits(struct collector *collector)
{
    uint64_t counted = collector->directory.control->commits & INT64_MAX;
    int64_t stored = 0;
    int error = store_meta_get_integer(collector->store, STORE_META_COMMITS, &stored);
    if (error != VARVE_OK && error != VARVE_ERROR_NOT_FOUND) {
        return error;
    }
    collector->commits = (uint64_t)stored;
    collect_execs_resume(collector, collector->commits);
    if (counted <= collector->commits) {
        return VARVE_OK;
    }
    counted -= collector->commits;
    collector->commits += counted;
    return store_stat(collector->store, "commits_lost", -1, "data_loss", "recover", (int64_t)counted);
}

/* The stored part of the recording back into memory. */
static int reload(struct collector *collector, struct replay *replay, struct varve_message *message)
{
    int error = check_same_trace(collector, message);
    VARVE_THEN(error, emit_lost_commits(collector));
    VARVE_THEN(error, store_each_clock_anchor(collector->store, take_anchor, collector, message));
    VARVE_THEN(error, begin_clock(collector));
    VARVE_THEN(error, store_each_ring_position(collector->store, take_position, collector, message));
    VARVE_THEN(error, store_each_ended_process(collector->store, take_ended, collector, message));
    if (error == VARVE_OK && collector->known_count > 1) {
        qsort(collector->known, collector->known_count, sizeof(*collector->known), compare_positions);
    }
    uint64_t bound = UINT64_MAX;
    VARVE_THEN(error, collect_processes_discover(collector, &bound));
    VARVE_THEN(error, begin_ended(collector));
    VARVE_THEN(error, callsites_resume(collector->callsites, collector->store, message));
    VARVE_THEN(error, collect_keep_read(collector));
    VARVE_THEN(error, store_each_event(collector->store, recover_run_take_event, replay, message));
    VARVE_THEN(error, collect_keep_resume(collector));
    if (error == VARVE_OK && collector->keep != VARVE_KEEP_TOTALS) {
        error = count_missing(collector, replay);
    }
    free(replay->events);
    if (error == VARVE_OK) {
        end_ended(collector);
    }
    collector->seq_committed = collector->seq;
    return error;
}

/* A process that still runs goes on writing: what it holds cannot be called complete. */
static unsigned count_alive(const struct collector *collector, int32_t *one_out)
{
    unsigned alive = 0;
    for (size_t i = 0; i < collector->file_count; i++) {
        int32_t pid = collector->files[i].kind == SESSION_FILE_PROCESS
                          ? collect_process_alive(&collector->directory, collector->files[i].process)
                          : 0;
        if (pid > 0) {
            alive++;
            *one_out = pid;
        }
    }
    return alive;
}

static int check_ended(const struct collector *collector, struct varve_message *message)
{
    int32_t one = 0;
    unsigned alive = count_alive(collector, &one);

    /* one that was killed just now lets go of its memory a little later, and of its lock with that */
    for (unsigned i = 0; alive > 0 && i < ENDING_NAPS; i++) {
        monotonic_nap(ENDING_NAP_NS);
        alive = count_alive(collector, &one);
    }
    if (alive > 0) {
        return varve_message_set(message, VARVE_ERROR_BUSY,
                                 "%u recorded processes still run (pid %d): recover when they have ended%s", alive, one,
                                 collector->directory.control->attached_pid != 0 ? ", or after varve detach PID" : "");
    }
    return VARVE_OK;
}

/* A database with something in it; an empty one goes, with what SQLite keeps beside it. */
static bool has_database(const struct session_directory *directory)
{
    static const char *const names[] = {"trace.db", "trace.db-wal", "trace.db-shm", "trace.db-journal"};
    struct stat status;
    if (fstatat(directory->fd, names[0], &status, AT_SYMLINK_NOFOLLOW) == 0 && status.st_size > 0) {
        return true;
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        unlinkat(directory->fd, names[i], 0);
    }
    return false;
}

/* The database last: when it is in its place, nothing of the recording is left to be moved. */
/* What an attached one has left in the directory. */
static void recover_history(const struct collector *collector, struct varve_collect_result *result)
{
    const struct session_control *control = collector->directory.control;
    if (result->torch_history[0] != '\0' && control != NULL && control->attached_pid > 0) {
        (void)attach_torch_take(&collector->directory, result->torch_history, control->attached_pid,
                                &result->torch_remark);
    }
}

static int publish(struct collector *collector, struct varve_collect_result *result, struct varve_message *message)
{
    int error = collect_lttng_publish(collector, result->database_path, result, message);
    recover_history(collector, result);
    return error == VARVE_OK ? collector_publish(collector, result->database_path, message) : error;
}

static int take_unattached(void *context, int64_t idx, int64_t value)
{
    struct collector *collector = context;
    (void)idx;
    collector->sum.unattached = (uint64_t)value;
    return VARVE_OK;
}

/* What another collector stored is this one's result. */
static int load_result(struct collector *collector, struct varve_message *message)
{
    int error = collector_load_sums(collector, message);
    collector->seq = collector->sum.stored;
    if (error == VARVE_OK) { /* those of processes without a page too */
        error = store_each_stat(collector->store, "events_unattached", take_unattached, collector, message);
    }
    VARVE_THEN(error, store_count_losses(collector->store, &collector->loss_rows, message));
    return error;
}

/* Everything was stored, or the rings are gone: what the database lacks is in no file any more. */
static int finish_leftovers(struct collector *collector, struct varve_collect_result *result,
                            struct varve_message *message)
{
    char path[DIRECTORY_PATH_BYTES + 16];
    int error;
    if (collector->store == NULL) {
        if (!has_database(&collector->directory)) {
            return varve_message_set(message, VARVE_ERROR_FORMAT, "%s: neither rings nor a database are left",
                                     collector->directory.path);
        }
        snprintf(path, sizeof(path), "%s/trace.db", collector->directory.path);
        error = store_open(path, STORE_RESUME, &collector->store, message);
        if (error != VARVE_OK) {
            return error;
        }
    }
    if (!store_is_complete(collector->store)) {
        return varve_message_set(message, VARVE_ERROR_FORMAT,
                                 "%s: the rings of this recording are gone (were they in shared memory before a "
                                 "reboot?); its database ends with the last commit",
                                 collector->directory.path);
    }
    error = load_result(collector, message);
    VARVE_THEN(error, store_finish(collector->store, NULL, NULL, message));
    return error == VARVE_OK ? publish(collector, result, message) : error;
}

static int recover_into(struct collector *collector, struct varve_collect_result *result, struct replay *replay,
                        struct varve_message *message)
{
    if (collector->directory.control == NULL) {
        return finish_leftovers(collector, result, message);
    }
    int error = session_directory_scan(&collector->directory, &collector->files, &collector->file_count);
    if (error != VARVE_OK) {
        return varve_message_set(message, error, "cannot read %s: %s", collector->directory.rings,
                                 varve_strerror(error));
    }
    error = check_ended(collector, message);
    if (error != VARVE_OK) {
        return error;
    }
    bool is_begun = has_database(&collector->directory);
    error = collector_open(collector, is_begun ? STORE_RESUME : STORE_CREATE, message);
    if (error == VARVE_OK && store_is_complete(collector->store)) {
        return finish_leftovers(collector, result, message);
    }
    VARVE_THEN(error, is_begun ? reload(collector, replay, message) : emit_lost_beginning(collector));
    if (error == VARVE_OK && collector->clock.count == 0) {
        error = collect_clock_anchor(&collector->clock); /* died before it had stored one */
    }
    VARVE_THEN(error, collector_drain(collector, replay->progress, replay->progress_context, message));
    VARVE_THEN(error, collect_rings_gone(collector));
    VARVE_THEN(error, store_meta_integer(collector->store, "recovered", 1));
    VARVE_THEN(error, collector_finish(collector, replay->progress, replay->progress_context, message));
    return error == VARVE_OK ? publish(collector, result, message) : error;
}

static int recover_run_name_database(const struct session_directory *directory, const char *wanted, char *path,
                                     size_t bytes, struct varve_message *message)
{
    size_t length = strlen(directory->path);
    if (wanted != NULL && strlen(wanted) >= bytes) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "the path %.200s… is too long", wanted);
    }
    if (wanted != NULL) {
        snprintf(path, bytes, "%s", wanted);
    } else if (length > 2 && strcmp(directory->path + length - 2, ".d") == 0) {
        snprintf(path, bytes, "%.*s", (int)(length - 2), directory->path);
    } else {
        return varve_message_set(message, VARVE_ERROR_INVALID, "%s does not end in .d: name the database with -o",
                                 directory->path);
    }
    struct stat status;
    if (!directory->is_empty && lstat(path, &status) == 0) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "%s exists: name another database with -o", path);
    }
    return VARVE_OK;
}

/* Before the work: can the database be moved to where it is wanted, and the LTTng trace beside it? */
static int check_output(const struct collector *collector, const char *path, struct varve_message *message)
{
    char folder[DIRECTORY_PATH_BYTES] = ".";
    const char *slash = strrchr(path, '/');
    struct stat target = {0};
    if (slash != NULL) {
        snprintf(folder, sizeof(folder), "%.*s", slash == path ? 1 : (int)(slash - path), path);
    }
    if (stat(folder, &target) == 0 && !S_ISDIR(target.st_mode)) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "%.300s: cannot be written: %.300s is no folder", path,
                                 folder);
    }
    if (access(folder, W_OK | X_OK) != 0) {
        return varve_message_set(message, errno == ENOENT ? VARVE_ERROR_NOT_FOUND : VARVE_ERROR_PERMISSION,
                                 "%.300s: cannot be written: %s", path, strerror(errno));
    }
    struct stat source;
    if (collector->lttng.output[0] == '\0' || stat(collector->lttng.output, &source) != 0) {
        return VARVE_OK;
    }
    char ctf[DIRECTORY_PATH_BYTES + 8];
    collect_lttng_path(path, ctf, sizeof(ctf));
    if (access(ctf, F_OK) == 0) {
        return varve_message_set(message, VARVE_ERROR_INVALID,
                                 "%.300s exists, and the LTTng trace belongs there: name another database "
                                 "with -o",
                                 ctf);
    }
    return source.st_dev == target.st_dev
               ? VARVE_OK
               : varve_message_set(message, VARVE_ERROR_INVALID,
                                   "%.300s is on another file system than the LTTng trace of the recording, "
                                   "which cannot be moved there: name another database with -o",
                                   path);
}

static bool has_trace(const char *path, uint64_t wanted)
{
    int64_t trace_id = 0;
    return store_peek_trace(path, &trace_id) == VARVE_OK && (uint64_t)trace_id == wanted;
}

/* Nothing lies in the directory: its collector died after it had moved the database to its place, or before
 * anything was recorded. Who wants the database elsewhere gets a copy. */
static int finish_empty(struct collector *collector, const char *wanted, struct varve_collect_result *result,
                        struct varve_message *message)
{
    char *path = result->database_path;
    char own[sizeof(result->database_path)];
    int error = VARVE_OK;
    if (wanted != NULL && !has_trace(path, collector->directory.trace_id) &&
        recover_run_name_database(&collector->directory, NULL, own, sizeof(own), NULL) == VARVE_OK &&
        has_trace(own, collector->directory.trace_id)) {
        error = publish_copy(own, path, false, message);
    }
    if (error != VARVE_OK) {
        session_directory_close(&collector->directory);
        return error;
    }
    if (has_trace(path, collector->directory.trace_id)) {
        (void)store_peek_result(path, result);
    } else {
        path[0] = '\0';
    }
    session_directory_remove(&collector->directory);
    return VARVE_OK;
}

/* Died between removing the lock and the folder: rmdir takes an empty one only. */
static bool is_left_over(const char *path, const char *database_path, struct varve_collect_result *result)
{
    struct session_directory directory = {.is_empty = true};
    snprintf(directory.path, sizeof(directory.path), "%s", path);
    for (size_t length = strlen(directory.path); length > 1 && directory.path[length - 1] == '/'; length--) {
        directory.path[length - 1] = '\0';
    }
    int64_t trace_id;
    return recover_run_name_database(&directory, database_path, result->database_path, sizeof(result->database_path),
                                     NULL) == VARVE_OK &&
           store_peek_trace(result->database_path, &trace_id) == VARVE_OK && rmdir(directory.path) == 0;
}

/* PyTorch's, which have the name of the database that it was to be; before that is there. */
static void name_histories(const struct collector *collector, struct varve_collect_result *result)
{
    char own[sizeof(result->database_path)];
    if (recover_run_name_database(&collector->directory, NULL, own, sizeof(own), NULL) != VARVE_OK ||
        record_history_name(own, result->torch_history, NULL) != VARVE_OK) {
        result->torch_history[0] = '\0';
    }
}

int varve_collect_recover(const char *directory, const char *database_path, varve_collect_numbers *numbers,
                          varve_collect_progress progress, void *progress_context, struct varve_collect_result *result,
                          struct varve_message *message)
{
    struct collector *collector = calloc(1, sizeof(*collector));
    struct replay replay = {
        .collector = collector, .message = message, .progress = progress, .progress_context = progress_context};
    memset(result, 0, sizeof(*result));
    if (collector == NULL) {
        return VARVE_ERROR_NO_MEMORY;
    }
    collector->is_recovering = true;
    collector->lttng.numbers = numbers;
    int error = session_directory_adopt(&collector->directory, directory, message);
    if (error != VARVE_OK) {
        free(collector);
        return error == VARVE_ERROR_FORMAT && is_left_over(directory, database_path, result)
                   ? store_peek_result(result->database_path, result)
                   : error;
    }
    error = recover_run_name_database(&collector->directory, database_path, result->database_path,
                                      sizeof(result->database_path), message);
    if (error == VARVE_OK && collector->directory.is_empty) {
        error = finish_empty(collector, database_path, result, message);
        free(collector);
        return error;
    }
    name_histories(collector, result);
    if (error == VARVE_OK && collect_lttng_adopt(collector, NULL)) {
        collect_lttng_finish(collector, result);
    }
    VARVE_THEN(error, check_output(collector, result->database_path, message));
    VARVE_THEN(error, recover_into(collector, result, &replay, message));
    if (error == VARVE_OK) {
        collect_lttng_count(collector, result);
    }
    collector_result(collector, result);
    if (error == VARVE_OK && result->allocations == 0) {
        /* Another recovery had stored it all: its database knows what was lost. Without one there is a CTF
         * trace. */
        (void)store_peek_result(result->database_path, result);
    }
    collector_close(collector);
    if (error == VARVE_OK) {
        session_directory_remove(&collector->directory);
    } else {
        session_directory_close(&collector->directory);
    }
    free(collector);
    return error;
}
