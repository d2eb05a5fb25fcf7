/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve record`, without its command line: make the recording directory, start the program, collect until
 * the last recorded process has ended, finish the database and put it in its place. The database grows inside
 * the recording directory and is renamed at the end, so that whatever carries the final name is complete.
 */
#include "trace/collector/collector.h"
#include "base/monotonic.h"
#include "base/proc_file.h"
#include "trace/collector/programs/attach_run.h"
#include "trace/collector/programs/attach_torch.h"
#include "trace/collector/collector_clock.h"
#include "trace/collector/programs/launch.h"
#include "trace/collector/session/recording_directory.h"
#include "trace/collector/session/watch.h"
#include "trace/format/ring_format.h"
#include "trace/format/session_format.h"
#include "trace/record.h"
#include "trace/store/store.h"
#include "base/error.h"
#include "base/grown_array.h"
#include "base/publish.h"
#include "trace/collect.h"
#include "trace/emit.h"
#include "trace/callsites/callsites.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NAP_MIN_NS 200000L
#define NAP_MAX_NS 5000000L
#define ROUND_SMALL 2048U /* events of a round that leaves time for other work */
#define PROGRESS_EVERY_NS UINT64_C(250000000)
#define STACK_DEPTH_DEFAULT 256U
#define DETACH_ROUNDS 8U   /* for what is forked meanwhile: children of a process that was let go of need it no more */
#define OOM_SCORE_MORE 500 /* of the kernel's 1000, which is all memory */
#define OOM_SCORE_MOST 1000
#define BLOCK_TIMEOUT_NS UINT64_C(10000000000)

struct recording {
    const struct varve_collect_options *options;
    struct collector collector;
    struct launch launch;
    struct attach *attach; /* NULL: the program was started */
    struct attach_torch torch;
    struct varve_message torch_remark;
    unsigned ended_interrupts; /* when the end of PyTorch's history was begun */
    int32_t *detached;         /* that process, and those that had inherited its hooks */
    unsigned detached_count;
    size_t detached_room;
    unsigned hooked_count; /* of them could not be let go of: */
    int32_t hooked_pid;    /* the first, */
    struct varve_message hooked_why;
    uint64_t began_ns; /* when the process that ran already was attached to */
    uint64_t ended_ns; /* when the program had ended, 0 before */
    uint64_t next_progress_ns;
    bool has_reported_waiting;
    char program[4096]; /* the file that was started, of a script its interpreter */
};

void varve_collect_options_init(struct varve_collect_options *options)
{
    memset(options, 0, sizeof(*options));
    options->stacks = VARVE_STACKS_ALL;
    options->stack_depth = STACK_DEPTH_DEFAULT;
    options->stacks_max = VARVE_STACKS_MAX;
    options->ring_records = RING_CAPACITY_DEFAULT;
    options->heap = true;
    options->linger_ns = -1;
    options->attach_ns = -1;
}

static int record_run_check_options(const struct varve_collect_options *options, struct varve_message *message)
{
    if (options->ring_records < RING_CAPACITY_MIN || options->ring_records > RING_CAPACITY_MAX ||
        (options->ring_records & (options->ring_records - 1)) != 0) {
        return varve_message_set(message, VARVE_ERROR_INVALID,
                                 "a ring holds a power of two of records from %u to %u (64 bytes each), not %u",
                                 RING_CAPACITY_MIN, RING_CAPACITY_MAX, options->ring_records);
    }
    if (options->stack_depth == 0 || options->stack_depth > SESSION_STACK_DEPTH_MAX) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "the stack depth is from 1 to %u, not %u",
                                 SESSION_STACK_DEPTH_MAX, options->stack_depth);
    }
    if (options->stacks_max == 0 || options->stacks_max > VARVE_STACKS_MAX) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "from 1 to %u stacks are kept, not %u", VARVE_STACKS_MAX,
                                 options->stacks_max);
    }
    if (access(options->preload_path, R_OK) != 0) {
        return varve_message_set(message, VARVE_ERROR_NOT_FOUND, "the recorder library %s is missing: %s",
                                 options->preload_path, strerror(errno));
    }
    if (!options->no_sqlite && varve_publish_check(options->database_path, options->replace, message) != VARVE_OK) {
        return VARVE_ERROR_INVALID;
    }
    char ctf[DIRECTORY_PATH_BYTES + 16];
    collect_lttng_path(options->database_path, ctf, sizeof(ctf));
    struct stat status;
    if (options->lttng && lstat(ctf, &status) == 0 && (!options->replace || !S_ISDIR(status.st_mode))) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "%s exists: choose another name%s", ctf,
                                 S_ISDIR(status.st_mode) ? " or give --force" : "");
    }
    return VARVE_OK;
}

/* The program is started with the filters that this process has. */
static void settings_fill_confinement(struct session_control *settings)
{
    char text[8192];
    proc_file_read(0, "status", text, sizeof(text));
    settings->seccomp_mode = session_status_number(text, "Seccomp:");
    settings->seccomp_filters = session_status_number(text, "Seccomp_filters:");
}

static void settings_fill(const struct varve_collect_options *options, struct session_control *settings)
{
    memset(settings, 0, sizeof(*settings));
    settings->overflow = options->overflow;
    settings->stacks = options->stacks;
    settings->stack_depth = options->stack_depth;
    settings->stacks_max = options->stacks_max;
    settings->ring_capacity = options->ring_records;
    settings->clock_kind = collect_clock_choose();
    settings->records = (options->heap ? VARVE_RECORDS_HEAP : 0U) |
                        (options->python_allocators ? VARVE_RECORDS_PYTHON : 0U) |
                        (options->cuda ? VARVE_RECORDS_CUDA : 0U) | (options->cupti ? VARVE_RECORDS_CUPTI : 0U) |
                        (options->torch == VARVE_TORCH_ALLOCATE ? VARVE_RECORDS_TORCH : 0U);
    if (options->cuda && options->replace_path != NULL) {
        snprintf(settings->replace_path, sizeof(settings->replace_path), "%s", options->replace_path);
    }
    settings_fill_confinement(settings);
    settings->block_timeout_ns = BLOCK_TIMEOUT_NS;
    settings->heartbeat_ns = monotonic_ns();
    if (getrandom(&settings->trace_id, sizeof(settings->trace_id), 0) != (ssize_t)sizeof(settings->trace_id)) {
        settings->trace_id = settings->heartbeat_ns ^ ((uint64_t)getpid() << 40);
    }
    settings->attached_pid = options->attach_pid;
    settings->trace_id &= INT64_MAX; /* a column of the database takes it */
}

/* The program, and the database, need some of it too. */
static uint64_t half_of_free(const char *folder)
{
    struct statvfs status;
    return statvfs(folder, &status) == 0 ? (uint64_t)status.f_bavail * status.f_frsize / 2 + 1 : 0;
}

static void join_command(char *const *argv, char *text, size_t bytes)
{
    text[0] = '\0';
    size_t length = 0;
    for (size_t i = 0; argv[i] != NULL && length + 1 < bytes; i++) {
        length += (size_t)snprintf(text + length, bytes - length, "%s%s", i > 0 ? " " : "", argv[i]);
    }
}

static int emit_beginning(struct recording *recording)
{
    static const char *const overflows[] = {"spill", "block", "drop"};
    static const char *const stacks[] = {"none", "native", "python", "all"};
    const struct varve_collect_options *options = recording->options;
    struct collector *collector = &recording->collector;
    char command[4096];
    if (recording->attach != NULL) {
        snprintf(command, sizeof(command), "%s", recording->attach->target.command);
    } else {
        join_command(options->argv, command, sizeof(command));
    }
    int error = collect_meta_integer(collector, "trace_id", (int64_t)collector->directory.control->trace_id);
    VARVE_THEN(error, collect_meta_text(collector, "command", command));
    VARVE_THEN(error, collect_meta_text(collector, "overflow", overflows[options->overflow % 3]));
    VARVE_THEN(error, collect_meta_text(collector, "stacks", stacks[options->stacks & 3]));
    VARVE_THEN(error, collect_meta_integer(collector, "stack_depth", options->stack_depth));
    VARVE_THEN(error, collect_meta_integer(collector, "stacks_max", options->stacks_max));
    VARVE_THEN(error, collect_meta_integer(collector, "ring_records", options->ring_records));
    VARVE_THEN(error,
               collect_meta_text(collector, "clock", collector->clock.kind == VARVE_CLOCK_TSC ? "tsc" : "monotonic"));
    struct utsname host;
    if (uname(&host) == 0) {
        VARVE_THEN(error, collect_meta_text(collector, "host", host.nodename));
        VARVE_THEN(error, collect_meta_text(collector, "kernel", host.release));
        VARVE_THEN(error, collect_meta_text(collector, "machine", host.machine));
    }
    return error;
}

/* Before the program has run: nothing of the recording stays. */
static void give_up(struct recording *recording)
{
    collect_lttng_abandon(&recording->collector);
    collector_close(&recording->collector);
    session_directory_remove(&recording->collector.directory);
}

/* 0 is when the program is started. That comes right after: what takes long, the first commit, is over before. */
static int begin_time(struct recording *recording, struct varve_message *message)
{
    struct collector *collector = &recording->collector;
    struct collect_clock *clock = &collector->clock;
    int error = collect_clock_anchor(clock);
    VARVE_THEN(error, collector_commit(collector, message));
    monotonic_nap(2000000); /* a first stretch to take the clock's rate from */
    VARVE_THEN(error, collect_clock_anchor(clock));
    if (error == VARVE_OK) {
        const struct clock_anchor *start = &clock->anchors[clock->count - 1];
        collect_clock_begin(clock, start->mono_ns);
        VARVE_THEN(error, collect_meta_integer(collector, "start_real_ns", start->real_ns));
        VARVE_THEN(error, collect_meta_integer(collector, COLLECT_META_START, start->mono_ns));
    }
    return error;
}

static int record_run_prepare(struct recording *recording, struct varve_message *message)
{
    struct session_control settings;
    struct collector *collector = &recording->collector;
    settings_fill(recording->options, &settings);
    int error = session_directory_create(&collector->directory, recording->options->database_path, &settings, message);
    if (error != VARVE_OK) {
        return error;
    }
    collect_bounds_begin(collector, recording->options->spill_bytes_max, half_of_free(collector->directory.path),
                         half_of_free(collector->directory.rings));
    collector->is_unstored = recording->options->no_sqlite;
    collector->keep = recording->options->keep;
    collector->bytes_max = recording->options->bytes_max;
    if (!collector->is_unstored) {
        watch_allow(&collector->directory);
    }
    error = collector_open(collector, STORE_CREATE, message);
    if (recording->options->lttng) {
        VARVE_THEN(error, collect_lttng_start(collector, recording->options, message));
    }
    VARVE_THEN(error, emit_beginning(recording));
    VARVE_THEN(error, collect_keep_begin(collector));
    VARVE_THEN(error, begin_time(recording, message));
    VARVE_THEN(error, collector_commit(collector, message));
    struct rusage usage;
    collector->rss.own_bytes = getrusage(RUSAGE_SELF, &usage) == 0 ? (uint64_t)usage.ru_maxrss * 1024 : 0;
    if (error != VARVE_OK) {
        give_up(recording);
    }
    return error;
}

static void process_ended(void *context, int32_t pid, int wait_status, uint64_t peak_rss_bytes)
{
    struct recording *recording = context;
    collect_process_reaped(&recording->collector, pid, wait_status, peak_rss_bytes);
}

static void sleep_until_something(const struct recording *recording, long nap_ns)
{
    struct pollfd wait = {.fd = recording->launch.signal_fd, .events = POLLIN};
    struct timespec time = {0, nap_ns};
    ppoll(&wait, 1, &time, NULL);
}

static void emit_progress(struct recording *recording, uint64_t now_ns)
{
    const struct varve_collect_options *options = recording->options;
    if (options->progress != NULL && now_ns >= recording->next_progress_ns) {
        recording->next_progress_ns = now_ns + PROGRESS_EVERY_NS;
        options->progress(options->progress_context, recording->launch.has_ended ? "writing events" : "recording",
                          recording->collector.seq, collector_events_known(&recording->collector));
    }
}

/* Threads that find their rings full may be waiting: an error here is met again by the next round. */
static void drain_a_little(void *collector)
{
    struct varve_message ignored;
    uint64_t moved;
    (void)collector_round(collector, false, &moved, &ignored);
}

/* PyTorch may take long to write it. */
static bool history_is_awaited(void *context)
{
    struct recording *recording = context;
    const struct varve_collect_options *options = recording->options;
    drain_a_little(&recording->collector);
    launch_poll(&recording->launch, process_ended, recording);
    if (options->progress != NULL) {
        options->progress(options->progress_context, "PyTorch's history", 0, 0);
    }
    return recording->launch.interrupts == recording->ended_interrupts;
}

/* False: it is there already, or there is no memory for it. */
static bool list_detached(struct recording *recording, int32_t pid)
{
    for (unsigned i = 0; i < recording->detached_count; i++) {
        if (recording->detached[i] == pid) {
            return false;
        }
    }
    const bool has_room = ARRAY_GROW(recording->detached, recording->detached_room, recording->detached_count + 1U);
    if (has_room) {
        recording->detached[recording->detached_count++] = pid;
    }
    return has_room;
}

static void note_hooked(struct recording *recording, int32_t pid, int error, const struct varve_message *why)
{
    if (error != VARVE_OK && error != VARVE_ERROR_NOT_FOUND && recording->hooked_count++ == 0) {
        recording->hooked_pid = pid;
        recording->hooked_why = *why;
    }
}

static void let_go(void *context, int32_t pid)
{
    struct recording *recording = context;
    struct varve_message why = {""};
    if (list_detached(recording, pid)) {
        note_hooked(recording, pid, attach_stop(recording->attach, pid, drain_a_little, &recording->collector, &why),
                    &why);
    }
}

/* The process that ran already goes on unrecorded, and with it those that have inherited its hooks, which may have
 * forked some more while others were let go. Only what was started after this one can have. */
static void record_run_detach(struct recording *recording)
{
    const uint64_t trace_id = recording->collector.directory.control->trace_id, since = proc_file_started(getpid());
    if (!recording->launch.is_gone) {
        let_go(recording, recording->launch.pid);
    }
    unsigned known = UINT_MAX;
    for (unsigned i = 0; i < DETACH_ROUNDS && known != recording->detached_count; i++) {
        known = recording->detached_count;
        hooked_each(trace_id, since, let_go, recording);
    }
    recording->ended_interrupts = recording->launch.interrupts;
    attach_torch_end(&recording->torch, &recording->attach->target, history_is_awaited, recording,
                     &recording->torch_remark);
    recording->collector.is_cut_short = true;
}

/* Once nothing is read any more of what it has mapped. */
static void record_run_release(struct recording *recording)
{
    struct varve_message why = {""};
    for (unsigned i = 0; i < recording->detached_count; i++) {
        const int32_t pid = recording->detached[i];
        const int error = attach_release(recording->attach, pid, &why);
        if (recording->hooked_count == 0) {
            note_hooked(recording, pid, error, &why);
        }
    }
}

/* The time is over that its recording was to last. */
static bool record_run_is_due(const struct recording *recording, uint64_t now_ns)
{
    int64_t limit_ns = recording->options->attach_ns;
    return recording->attach != NULL && limit_ns >= 0 && now_ns - recording->began_ns >= (uint64_t)limit_ns;
}

/* The program has ended; do other recorded processes still matter? */
static bool record_run_is_over(struct recording *recording, uint64_t now_ns)
{
    struct collector *collector = &recording->collector;
    int64_t linger_ns = recording->options->linger_ns;
    recording->launch.has_ended = recording->launch.has_ended || record_run_is_due(recording, now_ns);
    if (!recording->launch.has_ended) {
        return false;
    }
    if (recording->ended_ns == 0) {
        recording->ended_ns = now_ns;
        collector->program_end_ns = collect_clock_ns(&collector->clock, collect_clock_now(&collector->clock));
    }
    if (recording->attach != NULL && !recording->launch.is_gone) {
        record_run_detach(recording);
        return true;
    }
    if (!collect_session_lives(collector)) {
        return true;
    }
    if (recording->launch.interrupts > 0 || (linger_ns >= 0 && now_ns - recording->ended_ns > (uint64_t)linger_ns)) {
        collector->is_cut_short = true;
        if (recording->attach != NULL) {
            record_run_detach(recording);
        }
        return true;
    }
    if (!recording->has_reported_waiting && !recording->options->quiet && now_ns - recording->ended_ns > 1000000000U) {
        recording->has_reported_waiting = true;
        fprintf(stderr,
                "varve: the program has ended; waiting for processes it left behind (%u recorded; Ctrl-C or "
                "--linger stops)\n",
                collector->processes_alive);
    }
    return false;
}

static int record_run_collect(struct recording *recording, struct varve_message *message)
{
    long nap_ns = NAP_MIN_NS;
    uint64_t moved;
    for (;;) {
        uint64_t now_ns = monotonic_ns();
        launch_poll(&recording->launch, process_ended, recording);
        bool was_over = record_run_is_over(recording, now_ns);
        int error = collector_round(&recording->collector, false, &moved, message);
        if (error != VARVE_OK || was_over) {
            return error;
        }
        emit_progress(recording, now_ns);
        attach_torch_show(&recording->torch, recording->collector.live.number > 0, now_ns);
        bool has_more = moved < ROUND_SMALL && collector_idle(&recording->collector);
        if (moved > 0 || has_more) {
            nap_ns = NAP_MIN_NS;
        } else {
            sleep_until_something(recording, nap_ns);
            /* Rings get their space back when a commit is over. */
            const long longer_ns = nap_ns * 2 < NAP_MAX_NS ? nap_ns * 2 : NAP_MAX_NS;
            nap_ns = recording->collector.is_committing ? NAP_MIN_NS : longer_ns;
        }
    }
}

/* The program is over, what follows may take minutes, and everything of it can be done later as well. */
static void begin_finishing(struct recording *recording)
{
    const char *path = recording->collector.directory.path;
    char first[4352];
    snprintf(
        first, sizeof(first),
        "\r\033[Kvarve: the database is being written; Ctrl-C again stops, `varve recover %.4096s` finishes it later",
        path);
    char second[4352];
    snprintf(second, sizeof(second), "\r\033[Kvarve: stopped; `varve recover %.4096s` finishes the database", path);
    if (!isatty(STDERR_FILENO)) {
        memmove(first, first + 4, strlen(first + 4) + 1);
        memmove(second, second + 4, strlen(second + 4) + 1);
    }
    launch_finishing(&recording->launch, first, second, recording->options->interrupted);
}

/* How the program ended, as far as that is known. */
static int emit_end(struct recording *recording)
{
    struct collector *collector = &recording->collector;
    int status = recording->launch.wait_status;
    if (recording->attach != NULL) {
        return collect_meta_text(collector, "end_cause", recording->launch.is_gone ? "unknown" : "detached");
    }
    int error = collect_meta_text(collector, "end_cause", WIFSIGNALED(status) ? "signal" : "exit");
    VARVE_THEN(error, collect_meta_integer(collector, "exit_status",
                                           WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status)));
    return error;
}

static int record_run_finish(struct recording *recording, struct varve_collect_result *result,
                             struct varve_message *message)
{
    const struct varve_collect_options *options = recording->options;
    struct collector *collector = &recording->collector;
    __atomic_store_n(&collector->directory.control->state, SESSION_STATE_CLOSED, __ATOMIC_RELEASE);
    collector->stopped_ns = collect_clock_ns(&collector->clock, collect_clock_now(&collector->clock));
    begin_finishing(recording);
    int error = collector_drain(collector, options->progress, options->progress_context, message);
    if (error == VARVE_OK && collector->process_count == 0 && recording->attach == NULL) {
        error = collect_allocator_launched(collector, recording->program);
    }
    VARVE_THEN(error, emit_end(recording));
    VARVE_THEN(error, collect_meta_integer(collector, "program_end_ns", collector->program_end_ns));
    VARVE_THEN(error, collector_finish(collector, options->progress, options->progress_context, message));
    collect_lttng_finish(collector, result);
    return error;
}

/* The program will run, and little of it will be recorded. */
static void warn_of_allocator(const struct recording *recording)
{
    const struct varve_collect_options *options = recording->options;
    const char *allocator = options->heap && !options->quiet ? collect_allocator_of(recording->program) : NULL;
    if (allocator != NULL) {
        fprintf(stderr,
                "varve: %s has %s linked in, which cannot be recorded: only memory from elsewhere (mmap, other "
                "libraries) will be recorded; link the allocator as a shared library to record its heap\n",
                recording->program, allocator);
    }
}

/* The program that was just started should say that it has the recorder. */
static void await_program(struct recording *recording, const struct launch_check *check)
{
    struct process_identity identity = {.pid_namespace = recording->collector.pid_namespace,
                                        .start_ticks_proc = proc_file_started(recording->launch.pid),
                                        .pid = recording->launch.pid};
    collect_execs_await(&recording->collector, &identity, check->path);
}

static int record_run_start(struct recording *recording, struct varve_collect_result *result,
                            struct varve_message *message)
{
    struct launch_check check;
    int error = record_run_check_options(recording->options, message);
    VARVE_THEN(error, launch_check(recording->options->argv[0], &check, message));
    if (error == VARVE_OK) {
        snprintf(recording->program, sizeof(recording->program), "%s",
                 check.interpreter[0] != '\0' ? check.interpreter : check.path);
        warn_of_allocator(recording);
    }
    struct record_variables variables;
    VARVE_THEN(error, record_variables_make(&variables, recording->options, result->torch_history, message));
    if (error != VARVE_OK) {
        return error;
    }
    error = record_run_prepare(recording, message);
    if (error != VARVE_OK) {
        record_variables_free(&variables);
        return error;
    }
    char preload[4096];
    snprintf(preload, sizeof(preload), "%s", recording->options->preload_path);
    callsites_program(recording->collector.callsites, recording->program);
    error = launch_start(&recording->launch, recording->options->argv, preload, recording->collector.directory.path,
                         variables.items, message);
    record_variables_free(&variables);
    if (error != VARVE_OK) {
        give_up(recording);
    } else {
        await_program(recording, &check);
    }
    return error;
}

/* Where memory is short the kernel ends this process, whose recording can be recovered, before a program of about its
 * size. After the program was started, which would inherit it. */
static void yield_to_program(void)
{
    int present = 0;
    FILE *file = fopen("/proc/self/oom_score_adj", "r+e");
    if (file != NULL && fscanf(file, "%d", &present) == 1) {
        rewind(file);
        fprintf(file, "%d", present < OOM_SCORE_MOST - OOM_SCORE_MORE ? present + OOM_SCORE_MORE : OOM_SCORE_MOST);
    }
    if (file != NULL) {
        fclose(file);
    }
}

/* What is left when a recording could not be finished, and what to do about it. */
static void keep_for_recovery(struct recording *recording, int error, struct varve_message *message)
{
    struct session_directory *directory = &recording->collector.directory;
    struct varve_message reason = {""};
    if (message != NULL) {
        reason = *message;
    }
    if (access(directory->path, F_OK) != 0) {
        session_directory_remove(directory); /* its part in shared memory could never be found again */
        varve_message_set(message, error, "%s was deleted during the recording, nothing of it is left",
                          directory->path);
        return;
    }
    varve_message_set(message, error, "%.200s; what was recorded is kept: %s run `varve recover %.180s`",
                      reason.text[0] != '\0' ? reason.text : varve_strerror(error),
                      error == VARVE_ERROR_FULL ? "make room, then" : "to finish it", directory->path);
    session_directory_close(directory);
}

static int check_torch(const struct recording *recording, char *history, struct varve_message *message)
{
    if (!recording->attach->target.has_torch) {
        return varve_message_set(message, VARVE_ERROR_UNSUPPORTED, "process %d has no PyTorch loaded",
                                 recording->options->attach_pid);
    }
    int error = record_history_check(recording->options, message);
    VARVE_THEN(error, record_history_name(recording->options->database_path, history, message));
    for (unsigned i = 0; i < 2 && error == VARVE_OK; i++) { /* what an earlier one has left stays */
        char path[DIRECTORY_PATH_BYTES + 32];
        snprintf(path, sizeof(path), "%s.%d.%s", history, recording->options->attach_pid, i == 0 ? "db" : "pickle");
        error = varve_publish_check(path, recording->options->replace, message);
    }
    return error;
}

/* The process is recorded when this returns. */
static int start_attached(struct recording *recording, struct varve_collect_result *result,
                          struct varve_message *message)
{
    struct collector *collector = &recording->collector;
    const bool is_torch = recording->options->torch != VARVE_TORCH_OFF;
    int error = record_run_check_options(recording->options, message);
    VARVE_THEN(error, attach_check(recording->attach, recording->options->attach_pid, recording->options->preload_path,
                                   message));
    if (is_torch) {
        VARVE_THEN(error, check_torch(recording, result->torch_history, message));
    }
    VARVE_THEN(error, record_run_prepare(recording, message));
    if (error != VARVE_OK) {
        return error;
    }
    error = launch_attach(&recording->launch, recording->options->attach_pid, message);
    collect_bounds_process(collector, recording->options->attach_pid);
    if (is_torch) {
        VARVE_THEN(error, attach_torch_prepare(&recording->torch, &collector->directory, recording->options, message));
    }
    VARVE_THEN(error, attach_start(recording->attach, collector->directory.path, message));
    if (error != VARVE_OK) {
        give_up(recording);
        return error;
    }
    recording->began_ns = monotonic_ns();
    int64_t attached_ns = collect_clock_ns(&collector->clock, collect_clock_now(&collector->clock));
    VARVE_THEN(error, collect_meta_integer(collector, "attached_pid", recording->options->attach_pid));
    VARVE_THEN(error, collect_meta_integer(collector, "attached_ns", attached_ns));
    VARVE_THEN(error, collect_meta_integer(collector, "attach_stopped_ns", (int64_t)recording->attach->stopped_ns));
    return error;
}

/* It can't be recorded on: its events go on into rings and spills, for `varve recover`, but for an attached one. */
static int await_end(struct recording *recording, int error)
{
    if (recording->attach == NULL) {
        return launch_wait(&recording->launch, error);
    }
    record_run_detach(recording);
    return error;
}

/* PyTorch's, of an attached process. */
static void take_history(struct recording *recording, struct varve_collect_result *result)
{
    struct varve_message *remark = &recording->torch_remark;
    if (recording->attach == NULL || result->torch_history[0] == '\0') {
        return;
    }
    if (!attach_torch_take(&recording->collector.directory, result->torch_history, recording->options->attach_pid,
                           remark)) {
        result->torch_history[0] = '\0';
        if (remark->text[0] == '\0') {
            varve_message_set(remark, VARVE_ERROR_NOT_FOUND, "it left no history: it used no CUDA, or was killed");
        }
    }
}

/* What `start` or `start_attached` has begun, to its end. */
static int record_run_run(struct recording *recording, struct varve_collect_result *result,
                          struct varve_message *message)
{
    const struct varve_collect_options *options = recording->options;
    yield_to_program();
    int error = record_run_collect(recording, message);
    result->started = true;
    error = error == VARVE_OK ? record_run_finish(recording, result, message) : await_end(recording, error);
    result->wait_status = recording->launch.wait_status;
    result->attach_stopped_ns = recording->attach != NULL ? recording->attach->stopped_ns : 0;
    collector_result(&recording->collector, result);
    collector_close(&recording->collector);
    VARVE_THEN(error, collect_lttng_publish(&recording->collector, options->database_path, result, message));
    take_history(recording, result); /* while what is left of an end in between can still be recovered */
    VARVE_THEN(error, collector_publish(&recording->collector, options->database_path, message));
    record_run_release(recording);
    result->was_detached = recording->attach != NULL && !recording->launch.is_gone;
    result->hooked_count = recording->hooked_count;
    result->hooked_pid = recording->hooked_pid;
    result->hooked_why = recording->hooked_why;
    result->torch_remark = recording->torch_remark;
    launch_finished();
    if (error == VARVE_OK) {
        session_directory_remove(&recording->collector.directory);
    } else {
        keep_for_recovery(recording, error, message);
    }
    return error;
}

static struct recording *recording_make(const struct varve_collect_options *options,
                                        struct varve_collect_result *result)
{
    struct recording *recording = calloc(1, sizeof(*recording));
    memset(result, 0, sizeof(*result));
    if (recording != NULL) {
        recording->options = options;
        recording->torch.ask = -1;
        recording->collector.quiet = options->quiet;
        recording->collector.may_replace = options->replace;
        if (!options->no_sqlite) {
            snprintf(result->database_path, sizeof(result->database_path), "%s", options->database_path);
        }
    }
    return recording;
}

static void recording_free(struct recording *recording)
{
    if (recording != NULL) {
        attach_torch_close(&recording->torch);
        free(recording->detached);
        free(recording);
    }
}

int varve_collect_record(const struct varve_collect_options *options, struct varve_collect_result *result,
                         struct varve_message *message)
{
    struct recording *recording = recording_make(options, result);
    int error = VARVE_ERROR_NO_MEMORY;
    if (recording != NULL) {
        error = record_run_start(recording, result, message);
        VARVE_THEN(error, record_run_run(recording, result, message));
        recording_free(recording);
    }
    return error;
}

int varve_collect_attach(const struct varve_collect_options *options, struct varve_collect_result *result,
                         struct varve_message *message)
{
    struct recording *recording = recording_make(options, result);
    struct attach *attach = malloc(sizeof(*attach));
    int error = VARVE_ERROR_NO_MEMORY;
    if (recording != NULL && attach != NULL) {
        recording->attach = attach;
        error = start_attached(recording, result, message);
        VARVE_THEN(error, record_run_run(recording, result, message));
    }
    free(attach);
    recording_free(recording);
    return error;
}
