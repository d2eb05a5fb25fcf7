/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs babeltrace2 over the traces of a folder, with one of our sinks: ctf.h. The database grows in a folder beside its
 * place, and moves there when all is well. Where babeltrace2 fails, the cause that says most becomes our one line: the
 * innermost one, or the innermost that names a file of the trace. Called by the commands import, record and recover.
 */
#include "analysis/import/ctf.h"

#include "analysis/base/component_find.h"
#include "analysis/base/memory_or_exit.h"
#include "analysis/base/number_format.h"
#include "analysis/base/progress.h"
#include "analysis/query/database.h"
#include "base/error.h"
#include "base/monotonic.h"
#include "base/program.h"
#include "base/publish.h"

#include "statements_generated.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROGRAM "babeltrace2"
#define NAP_NS 3000000L
#define REASON_BYTES 600

/* ---- what is needed ---- */

bool ctf_program_find(char *path, size_t bytes)
{
    ssize_t length = readlink("/proc/self/exe", path, bytes - 1);
    path[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(path, '/');
    if (slash != NULL && (size_t)(slash - path) + sizeof("/" PROGRAM) <= bytes) {
        memcpy(slash, "/" PROGRAM, sizeof("/" PROGRAM));
        if (access(path, X_OK) == 0) {
            return true;
        }
    }
    return program_find(PROGRAM, path, bytes);
}

bool ctf_is_possible(struct varve_message *message)
{
    char path[PATH_MAX];
    if (!ctf_program_find(path, sizeof(path))) {
        varve_message_set(message, VARVE_ERROR_UNSUPPORTED,
                          "CTF traces are read by " PROGRAM ", which is not in PATH (apt install " PROGRAM ")");
        return false;
    }
    if (!component_find(COMPONENT_BABELTRACE_PLUGIN, path, sizeof(path))) {
        varve_message_set(message, VARVE_ERROR_UNSUPPORTED,
                          "CTF traces are read with %s, which is missing: this varve was built without "
                          "libbabeltrace2-dev",
                          path);
        return false;
    }
    return true;
}

/* ---- the command line ---- */

struct arguments {
    char **items;
    size_t count;
};

static void argument_add(struct arguments *arguments, const char *before, const char *text, const char *after)
{
    char *item = memory_resize(NULL, strlen(before) + 2 * strlen(text) + strlen(after) + 1);
    char *end = stpcpy(item, before);

    /* In front of a text in quotes `before` ends with one. */
    for (const char *c = text; *c != '\0'; c++) {
        if (*after != '\0' && (*c == '"' || *c == '\\')) {
            *end++ = '\\';
        }
        *end++ = *c;
    }
    memcpy(end, after, strlen(after) + 1);
    arguments->items = memory_resize(arguments->items, (arguments->count + 2) * sizeof(arguments->items[0]));
    arguments->items[arguments->count++] = item;
    arguments->items[arguments->count] = NULL;
}

static void arguments_free(struct arguments *arguments)
{
    for (size_t i = 0; i < arguments->count; i++) {
        free(arguments->items[i]);
    }
    free(arguments->items);
}

/* A source for each trace; babeltrace2 puts a muxer behind them. `database` NULL: just the numbers. */
static void arguments_make(struct arguments *arguments, const struct ctf_folder *folder, const char *database)
{
    char path[PATH_MAX];
    (void)ctf_program_find(path, sizeof(path));
    argument_add(arguments, "", path, "");
    if (getenv("LIBBABELTRACE2_INIT_LOG_LEVEL") == NULL) {
        argument_add(arguments, "--log-level=NONE", "", "");
    }
    (void)component_find(COMPONENT_BABELTRACE_PLUGIN, path, sizeof(path));
    char *slash = strrchr(path, '/');
    if (slash != NULL) {
        *slash = '\0';
    }
    argument_add(arguments, "--plugin-path=", slash != NULL ? path : ".", "");
    for (size_t i = 0; i < folder->count; i++) {
        char source[64];
        snprintf(source, sizeof(source), "--component=trace%zu:source.ctf.fs", i);
        argument_add(arguments, source, "", "");
        argument_add(arguments, "--params=inputs=[\"", folder->traces[i], "\"]");
    }
    argument_add(arguments, database != NULL ? "--component=sink.varve.sqlite" : "--component=sink.varve.numbers", "",
                 "");
    if (database != NULL) {
        argument_add(arguments, "--params=path=\"", database, "\"");
    }
}

/* ---- one run of babeltrace2 ---- */

struct run {
    struct progress *progress; /* may be NULL */
    char *output, *errors;     /* what it printed; freed by run_end */
    int status;                /* as of waitpid */
    int signal_number;         /* that ended the waiting; 0: none */
};

static volatile sig_atomic_t signal_caught;

static char *file_take(int descriptor)
{
    off_t bytes = lseek(descriptor, 0, SEEK_END);
    char *text = memory_resize(NULL, (bytes > 0 ? (size_t)bytes : 0) + 1);
    size_t count = 0;
    ssize_t got;
    while (count < (size_t)bytes && (got = pread(descriptor, text + count, (size_t)bytes - count, (off_t)count)) > 0) {
        count += (size_t)got;
    }
    text[count] = '\0';
    return text;
}

static void import_ctf_wait_for(struct run *run, pid_t pid)
{
    for (;;) {
        pid_t ended = waitpid(pid, &run->status, WNOHANG);
        if (ended == pid) {
            break;
        }
        if (ended < 0 && errno != EINTR) {
            run->status = -1;
            break;
        }
        if (signal_caught != 0) {
            kill(pid, SIGKILL);
        }
        if (run->progress != NULL) {
            progress_step(run->progress, "reading the trace", 0, 0);
        }
        monotonic_nap(NAP_NS);
    }
    run->signal_number = signal_caught;
}

static int memory_file(void)
{
    int low = memfd_create(PROGRAM, MFD_CLOEXEC);
    int descriptor = low >= 0 && low <= STDERR_FILENO ? fcntl(low, F_DUPFD_CLOEXEC, STDERR_FILENO + 1) : low;
    if (descriptor != low) {
        close(low);
    }
    return descriptor;
}

static int run_begin(struct run *run, char *const *argv, struct varve_message *message)
{
    struct sigaction before;
    struct sigaction plain = {.sa_handler = SIG_DFL};
    int output = memory_file();
    int errors = memory_file();
    int reason = output < 0 || errors < 0 ? errno : 0;
    sigaction(SIGCHLD, &plain, &before); /* ignored, a child's end would leave no status */
    pid_t pid = 0;
    reason = reason != 0 ? reason : program_spawn(argv, environ, (const int[]){-1, output, errors}, false, &pid);
    if (reason == 0) {
        import_ctf_wait_for(run, pid);
        run->output = file_take(output);
        run->errors = file_take(errors);
    }
    sigaction(SIGCHLD, &before, NULL);
    if (output >= 0) {
        close(output);
    }
    if (errors >= 0) {
        close(errors);
    }
    return reason == 0 ? VARVE_OK
                       : varve_message_set(message, VARVE_ERROR_IO, "cannot run %s: %s", argv[0], strerror(reason));
}

static void run_end(struct run *run)
{
    free(run->output);
    free(run->errors);
    *run = (struct run){0};
}

/* ---- its errors ---- */

/* The text of a cause, in one line: what stands between its head and the next one. Returns its end. */
static const char *cause_text(const char *at, char *text, size_t bytes)
{
    at += strcspn(at, "\n");
    size_t length = 0;
    while (*at != '\0' && strncmp(at, "\nCAUSED BY", 10) != 0 && strncmp(at, "\nERROR", 6) != 0) {
        bool is_space = *at == ' ' || *at == '\n';
        if (length + 1 < bytes && !(is_space && (length == 0 || text[length - 1] == ' '))) {
            text[length++] = is_space ? ' ' : *at;
        }
        at++;
    }
    while (length > 0 && text[length - 1] == ' ') {
        length--;
    }
    text[length] = '\0';
    return *at == '\n' ? at + 1 : at;
}

/* True: it is our sink that says it. */
static bool reason_find(const char *errors, const char *folder, char reason[REASON_BYTES])
{
    char *real = realpath(folder, NULL);
    reason[0] = '\0';
    char text[REASON_BYTES];
    bool is_ours = false;
    bool has_name = false;
    for (const char *at = errors; *at != '\0';) {
        bool is_cause = strncmp(at, "CAUSED BY", 9) == 0 || strncmp(at, "ERROR", 5) == 0;
        if (!is_cause) {
            at += strcspn(at, "\n");
            at += *at == '\n' ? 1 : 0;
            continue;
        }
        is_ours = strncmp(at, "CAUSED BY [sink.varve.", 22) == 0;
        at = cause_text(at, text, sizeof(text));
        if (is_ours || (real != NULL && strstr(text, real) != NULL) || !has_name) {
            has_name = has_name || (real != NULL && strstr(text, real) != NULL);
            memcpy(reason, text, strlen(text) + 1);
        }
    }
    free(real);
    return is_ours;
}

static int run_error(const struct run *run, const char *folder, struct varve_message *message)
{
    if (run->status == 0) {
        return VARVE_OK;
    }
    if (WIFSIGNALED(run->status)) {
        return varve_message_set(message, VARVE_ERROR_FORMAT,
                                 "%s: " PROGRAM " cannot read it: it was ended by signal %d (%s)", folder,
                                 WTERMSIG(run->status), strsignal(WTERMSIG(run->status)));
    }
    char reason[REASON_BYTES];
    bool is_ours = reason_find(run->errors, folder, reason);
    return varve_message_set(
        message, VARVE_ERROR_FORMAT, "%s: %s%s", folder,
        is_ours ? "" : PROGRAM " cannot read it: ", reason[0] != '\0' ? reason : "no reason given");
}

/* ---- signals: whoever interrupts an import wants nothing of it ---- */

static const int signals[] = {SIGINT, SIGTERM, SIGHUP};

#define SIGNALS (sizeof(signals) / sizeof(signals[0]))

static void import_ctf_on_signal(int number)
{
    signal_caught = number;
}

/* Those that are ignored (as by nohup) stay so. */
static void signals_catch(struct sigaction before[SIGNALS])
{
    struct sigaction action = {.sa_handler = import_ctf_on_signal};
    signal_caught = 0;
    for (size_t i = 0; i < SIGNALS; i++) {
        sigaction(signals[i], NULL, &before[i]);
        if (before[i].sa_handler != SIG_IGN) {
            sigaction(signals[i], &action, NULL);
        }
    }
}

static void signals_restore(const struct sigaction before[SIGNALS])
{
    for (size_t i = 0; i < SIGNALS; i++) {
        sigaction(signals[i], &before[i], NULL);
    }
}

/* ---- a database ---- */

/* The plug-in has a folder of its own in it, which stays when babeltrace2 is killed. */
static void folder_remove(const char *path)
{
    DIR *directory = opendir(path);
    const struct dirent *entry;
    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        char inner[PATH_MAX];
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            snprintf(inner, sizeof(inner), "%s/%s", path, entry->d_name) < (int)sizeof(inner)) {
            varve_publish_folder_remove(inner);
        }
    }
    if (directory != NULL) {
        closedir(directory);
    }
    varve_publish_folder_remove(path);
}

static int result_read(const char *path, struct ctf_import_result *result, struct varve_message *message)
{
    int64_t *const figures[] = {
        &result->events,    &result->lost,           &result->uncommitted,      &result->processes,
        &result->threads,   &result->allocations,    &result->discarded_events, &result->discarded_packets,
        &result->uncounted, &result->unknown_events, &result->other_events,
    };
    struct database *database;
    int error = database_open(path, DATABASE_DERIVED, &database, message);
    if (error != VARVE_OK) {
        return error;
    }
    struct cursor cursor;
    cursor_open(&cursor, database, sql_ctf_result);
    if (cursor_next(&cursor)) {
        for (int i = 0; i < (int)(sizeof(figures) / sizeof(figures[0])); i++) {
            *figures[i] = cursor_integer(&cursor, i);
        }
    }
    cursor_close(&cursor);
    error = database_error(database, message);
    database_close(database);
    return error;
}

static int import_into(const char *folder, const struct ctf_folder *traces, const char *database_path, struct run *run,
                       struct ctf_import_result *result, struct varve_message *message)
{
    struct arguments arguments = {0};
    arguments_make(&arguments, traces, database_path);
    int error = run_begin(run, arguments.items, message);
    arguments_free(&arguments);
    if (error != VARVE_OK || run->signal_number != 0) {
        return error;
    }
    error = run_error(run, folder, message);
    if (error == VARVE_OK) {
        fputs(run->errors, stderr); /* the log, where one is wanted */
        error = result_read(database_path, result, message);
    }
    return error;
}

int ctf_import(const char *folder, const char *database_path, bool replace, struct progress *progress,
               struct ctf_import_result *result, struct varve_message *message)
{
    struct run run = {.progress = progress};
    *result = (struct ctf_import_result){0};
    if (!ctf_is_possible(message)) {
        return VARVE_ERROR_UNSUPPORTED;
    }
    struct ctf_folder traces = {0};
    int error = ctf_folder_open(folder, &traces, message);
    char scratch[PATH_MAX - 16];
    VARVE_THEN(error, varve_publish_folder_make(database_path, replace, scratch, sizeof(scratch), message));
    if (error != VARVE_OK) {
        ctf_folder_close(&traces);
        return error;
    }
    char made[PATH_MAX];
    snprintf(made, sizeof(made), "%s/made.db", scratch);
    struct sigaction before[SIGNALS];
    signals_catch(before);
    error = import_into(folder, &traces, made, &run, result, message);
    if (error == VARVE_OK && run.signal_number == 0) {
        error = varve_publish_move(made, database_path, replace, message);
    }
    folder_remove(scratch);
    signals_restore(before);
    int signal_number = run.signal_number;
    run_end(&run);
    ctf_folder_close(&traces);
    if (signal_number != 0) {
        raise(signal_number);
        return varve_message_set(message, VARVE_ERROR_BUSY, "%s: interrupted", folder);
    }
    return error;
}

/* ---- numbers ---- */

int ctf_each_number(const char *folder,
                    void (*take)(void *context, uint32_t process, uint32_t ring, uint64_t first, uint64_t last),
                    void *context, struct varve_message *message)
{
    struct arguments arguments = {0};
    struct ctf_folder traces = {0};
    struct run run = {0};
    int error = ctf_is_possible(message) ? VARVE_OK : VARVE_ERROR_UNSUPPORTED;
    error = error == VARVE_OK ? ctf_folder_open(folder, &traces, message) : error;
    if (error == VARVE_OK) {
        arguments_make(&arguments, &traces, NULL);
        signal_caught = 0;
        error = run_begin(&run, arguments.items, message);
        arguments_free(&arguments);
    }
    VARVE_THEN(error, run_error(&run, folder, message));
    for (const char *at = error == VARVE_OK && run.output != NULL ? run.output : ""; *at != '\0';
         at += *at == '\n' ? 1 : 0) {
        unsigned process;
        unsigned ring;
        unsigned long long first;
        unsigned long long last;
        if (sscanf(at, "%u %u %llu %llu", &process, &ring, &first, &last) == 4) {
            take(context, process, ring, first, last);
        }
        at += strcspn(at, "\n");
    }
    run_end(&run);
    ctf_folder_close(&traces);
    return error;
}
