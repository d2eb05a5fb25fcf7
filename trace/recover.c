/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve recover`: finish a recording directory whose collector died. The database in it holds whole
 * transactions; what was published after the last of them is still in the rings and spills, and the positions
 * stored with that transaction say where to go on. The derived state (which addresses are live, totals) is
 * rebuilt by reading the stored events once.
 */
#include "trace/collector_internal.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct replay {
    struct collector *collector;
    struct varve_message *message;
    varve_collect_progress progress;
    void *progress_context;
};

static int take_position(void *context, const struct store_ring_position *position)
{
    struct collector *collector = context;
    struct store_ring_position *grown =
        realloc(collector->known, (collector->known_count + 1) * sizeof(*collector->known));

    if (grown == NULL) {
        return VARVE_ERROR_NO_MEMORY;
    }
    collector->known = grown;
    collector->known[collector->known_count++] = *position;
    if (position->thread_id > collector->thread_count) {
        collector->thread_count = position->thread_id;
    }
    return VARVE_OK;
}

static int take_anchor(void *context, uint64_t ticks, int64_t mono_ns, int64_t real_ns)
{
    struct collector *collector = context;
    const struct clock_anchor anchor = {.ticks = ticks, .mono_ns = mono_ns, .real_ns = real_ns};
    int error = collect_clock_add(&collector->clock, &anchor);

    collector->clock.stored = collector->clock.count;
    return error;
}

static int take_event(void *context, struct event *event)
{
    struct replay *replay = context;

    replay->collector->seq = event->seq;
    if (event->ts_ns > 0 && (uint64_t)event->ts_ns > replay->collector->newest_ts_ns) {
        replay->collector->newest_ts_ns = (uint64_t)event->ts_ns;
    }
    if (replay->progress != NULL && event->seq % 65536 == 0) {
        replay->progress(replay->progress_context, "reading", event->seq, 0);
    }
    return derive_event(replay->collector->derive, event, replay->message);
}

static int check_same_trace(struct collector *collector, struct varve_message *message)
{
    int64_t trace_id = 0;
    int error = store_meta_get_integer(collector->store, "trace_id", &trace_id);

    if (error == VARVE_OK && (uint64_t)trace_id != collector->directory.control->trace_id) {
        return varve_message_set(message, VARVE_ERROR_FORMAT,
                                 "the database in %s belongs to another recording",
                                 collector->directory.path);
    }
    return error == VARVE_ERROR_NOT_FOUND ? VARVE_OK : error;
}

/* The stored part of the recording back into memory. */
static int reload(struct collector *collector, struct replay *replay, struct varve_message *message)
{
    uint64_t bound = UINT64_MAX;
    int error = check_same_trace(collector, message);

    if (error == VARVE_OK) {
        error = store_each_clock_anchor(collector->store, take_anchor, collector, message);
    }
    if (error == VARVE_OK) {
        error = store_each_ring_position(collector->store, take_position, collector, message);
    }
    if (error == VARVE_OK) {
        error = store_forget_unstored_threads(collector->store, message);
    }
    if (error == VARVE_OK) {
        error = collect_processes_discover(collector, &bound);
    }
    if (error == VARVE_OK) {
        error = sites_resume(collector->sites, collector->store, message);
    }
    if (error == VARVE_OK) {
        error = store_each_event(collector->store, take_event, replay, message);
    }
    collector->seq_committed = collector->seq;
    return error;
}

/* A process that still runs goes on writing: what it holds cannot be called complete. */
static int check_ended(const struct collector *collector, struct varve_message *message)
{
    uint32_t count = __atomic_load_n(&collector->directory.counts->process_count, __ATOMIC_ACQUIRE);
    unsigned alive = 0;
    int32_t one = 0;

    for (uint32_t id = 1; id <= count; id++) {
        int32_t pid = collect_process_alive(&collector->directory, id);
        if (pid > 0) {
            alive++;
            one = pid;
        }
    }
    if (alive > 0) {
        return varve_message_set(message, VARVE_ERROR_BUSY,
                                 "%u recorded processes still run (pid %d): recover when they have ended",
                                 alive, one);
    }
    return VARVE_OK;
}

/* The collector died between moving the database to its place and removing the folder. */
static bool is_published(const struct session_directory *directory)
{
    char path[DIRECTORY_PATH_BYTES + 16];

    snprintf(path, sizeof(path), "%s/trace.db", directory->path);
    return directory->control == NULL && access(path, F_OK) != 0;
}

/* A database with something in it; an empty one goes, with what SQLite keeps beside it. */
static bool has_database(const struct session_directory *directory)
{
    static const char *const suffixes[] = {"", "-wal", "-shm", "-journal"};
    char path[DIRECTORY_PATH_BYTES + 32];
    struct stat status;

    snprintf(path, sizeof(path), "%s/trace.db", directory->path);
    if (stat(path, &status) == 0 && status.st_size > 0) {
        return true;
    }
    for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
        snprintf(path, sizeof(path), "%s/trace.db%s", directory->path, suffixes[i]);
        unlink(path);
    }
    return false;
}

/* Everything was stored, or the rings are gone: what the database lacks is in no file any more. */
static int settle(struct collector *collector, const char *database_path, struct varve_message *message)
{
    char path[DIRECTORY_PATH_BYTES + 16];
    int error;

    if (collector->store == NULL) {
        snprintf(path, sizeof(path), "%s/trace.db", collector->directory.path);
        error = store_open(path, STORE_RESUME, &collector->store, message);
        if (error != VARVE_OK) {
            return error;
        }
    }
    if (!store_is_complete(collector->store)) {
        return varve_message_set(
            message, VARVE_ERROR_FORMAT,
            "%s: the rings of this recording are gone (were they in shared memory before a "
            "reboot?); its database ends with the last commit",
            collector->directory.path);
    }
    error = store_finish(collector->store, NULL, NULL, message);
    return error == VARVE_OK ? collector_publish(collector, database_path, message) : error;
}

static int recover_into(struct collector *collector, const char *database_path, struct replay *replay,
                        struct varve_message *message)
{
    bool is_begun;
    int error;

    if (is_published(&collector->directory)) {
        return VARVE_OK;
    }
    if (collector->directory.control == NULL) {
        return settle(collector, database_path, message);
    }
    error = check_ended(collector, message);
    if (error != VARVE_OK) {
        return error;
    }
    is_begun = has_database(&collector->directory);
    error = collector_open(collector, is_begun ? STORE_RESUME : STORE_CREATE, message);
    if (error == VARVE_OK && store_is_complete(collector->store)) {
        return settle(collector, database_path, message);
    }
    if (error == VARVE_OK && is_begun) {
        error = reload(collector, replay, message);
    }
    if (error == VARVE_OK && collector->clock.count == 0) {
        error = collect_clock_anchor(&collector->clock); /* died before it had stored one */
    }
    if (error == VARVE_OK) {
        error = collector_drain(collector, replay->progress, replay->progress_context, message);
    }
    if (error == VARVE_OK) {
        error = store_meta_integer(collector->store, "recovered", 1);
    }
    if (error == VARVE_OK) {
        error = collector_finish(collector, replay->progress, replay->progress_context, message);
    }
    return error == VARVE_OK ? collector_publish(collector, database_path, message) : error;
}

static int name_database(const struct session_directory *directory, bool must_be_new, const char *wanted,
                         char *path, size_t bytes, struct varve_message *message)
{
    size_t length = strlen(directory->path);
    struct stat status;

    if (wanted != NULL) {
        snprintf(path, bytes, "%s", wanted);
    } else if (length > 2 && strcmp(directory->path + length - 2, ".d") == 0) {
        snprintf(path, bytes, "%.*s", (int)(length - 2), directory->path);
    } else {
        return varve_message_set(message, VARVE_ERROR_INVALID,
                                 "%s does not end in .d: name the database with -o", directory->path);
    }
    if (must_be_new && stat(path, &status) == 0) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "%s exists: name another database with -o",
                                 path);
    }
    return VARVE_OK;
}

int varve_collect_recover(const char *directory, const char *database_path, varve_collect_progress progress,
                          void *progress_context, struct varve_collect_result *result,
                          struct varve_message *message)
{
    struct collector *collector = calloc(1, sizeof(*collector));
    struct replay replay = {collector, message, progress, progress_context};
    int error;

    memset(result, 0, sizeof(*result));
    if (collector == NULL) {
        return VARVE_ERROR_NO_MEMORY;
    }
    collector->is_recovering = true;
    error = session_directory_adopt(&collector->directory, directory, message);
    if (error != VARVE_OK) {
        free(collector);
        return error;
    }
    error = name_database(&collector->directory, !is_published(&collector->directory), database_path,
                          result->database_path, sizeof(result->database_path), message);
    if (error == VARVE_OK && collect_lttng_adopt(collector, NULL)) {
        collector->was_killed = true;
        collect_lttng_finish(collector, result);
    }
    if (error == VARVE_OK) {
        error = recover_into(collector, result->database_path, &replay, message);
    }
    if (error == VARVE_OK) {
        error = collect_lttng_publish(collector, result->database_path, result, message);
    }
    collector_result(collector, result);
    collector_close(collector);
    if (error == VARVE_OK) {
        session_directory_remove(&collector->directory);
    } else {
        session_directory_close(&collector->directory);
    }
    free(collector);
    return error;
}
