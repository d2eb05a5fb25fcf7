/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One of LTTng's programs, run to its end: what it prints is kept, and a program that hangs is killed. The
 * hard part is the process that it runs in. The collector has signals blocked, may have SIGCHLD ignored, may
 * be a subreaper and reaps every child in its loop; none of that may reach the program (a session daemon
 * inherits it for its life), and no child of it may be left for that loop. So: attributes of posix_spawn, a
 * session and thereby a group of its own that is killed as a whole, and an end that is waited for here.
 *
 * Output goes to a memory file and not through a pipe: a daemon that keeps the descriptor can't make us wait
 * for an end of file, and nobody has to read while the program runs.
 */
#include "trace/collector/clock.h"
#include "trace/collector/lttng/session_parts.h"
#include "trace/error.h"
#include "trace/format/session.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LIMIT_NS UINT64_C(20000000000)
#define NAP_FIRST_NS UINT64_C(200000)
#define NAP_LAST_NS UINT64_C(10000000)
#define OUTPUT_MAX ((off_t)4 << 20)
#define SLOW_DISK_BYTES_PER_S UINT64_C(8000000)
#define SECOND_NS UINT64_C(1000000000)

static uint64_t limit_now_ns = LIMIT_NS;

void lttng_tool_limit_set(uint64_t limit_ns)
{
    limit_now_ns = limit_ns;
}

uint64_t lttng_tool_limit(void)
{
    return limit_now_ns;
}

void lttng_nap(uint64_t *nap_ns)
{
    struct timespec time;

    *nap_ns = *nap_ns < NAP_FIRST_NS ? NAP_FIRST_NS : *nap_ns;
    time = (struct timespec){0, (long)*nap_ns};
    nanosleep(&time, NULL);
    *nap_ns = *nap_ns * 2 < NAP_LAST_NS ? *nap_ns * 2 : NAP_LAST_NS;
}

bool lttng_tool_is_there(const char *name)
{
    const char *paths = getenv("PATH");
    char path[PATH_MAX];

    for (; paths != NULL && *paths != '\0'; paths += strcspn(paths, ":"), paths += *paths == ':' ? 1 : 0) {
        int length = snprintf(path, sizeof(path), "%.*s/%s", (int)strcspn(paths, ":"), paths, name);

        if (length > 0 && (size_t)length < sizeof(path) && access(path, X_OK) == 0) {
            return true;
        }
    }
    return false;
}

static bool variable_is(const char *entry, const char *name)
{
    size_t length = strlen(name);

    return strncmp(entry, name, length) == 0 && entry[length] == '=';
}

/* The entries are borrowed; the caller frees the array. */
static char **environment_make(const char *variable)
{
    size_t count = 0;
    size_t kept = 0;
    char **entries;

    while (environ != NULL && environ[count] != NULL) {
        count++;
    }
    entries = calloc(count + 2, sizeof(*entries));
    if (entries == NULL) {
        return NULL;
    }
    if (variable != NULL) {
        entries[kept++] = (char *)(uintptr_t)variable; /* exec takes no const, and changes nothing */
    }
    for (size_t i = 0; i < count; i++) {
        if (!variable_is(environ[i], "LD_PRELOAD") && !variable_is(environ[i], SESSION_ENVIRONMENT)) {
            entries[kept++] = environ[i];
        }
    }
    return entries;
}

/* Above the three that the program gets, of which some may be closed here. */
static int output_open(void)
{
    int low = memfd_create("varve-lttng", MFD_CLOEXEC);
    int descriptor;

    if (low < 0 || low > STDERR_FILENO) {
        return low;
    }
    descriptor = fcntl(low, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    close(low);
    return descriptor;
}

static char *output_read(int descriptor)
{
    off_t end = lseek(descriptor, 0, SEEK_END);
    size_t bytes = end < 0 ? 0 : (size_t)(end < OUTPUT_MAX ? end : OUTPUT_MAX);
    char *text = malloc(bytes + 1);
    size_t used = 0;

    while (text != NULL && used < bytes) {
        ssize_t got = pread(descriptor, text + used, bytes - used, (off_t)used);

        if (got <= 0) {
            break;
        }
        used += (size_t)got;
    }
    if (text != NULL) {
        text[used] = '\0';
    }
    return text;
}

/* 0 or an errno. */
static int spawn(const char *const *argv, char *const *entries, int output, pid_t *pid_out)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t all;
    sigset_t none;
    int reason;

    sigfillset(&all);
    sigemptyset(&none);
    reason = posix_spawn_file_actions_init(&actions);
    if (reason != 0) {
        return reason;
    }
    reason = posix_spawnattr_init(&attributes);
    if (reason == 0) {
        posix_spawnattr_setsigmask(&attributes, &none);
        posix_spawnattr_setsigdefault(&attributes, &all);
        posix_spawnattr_setflags(&attributes,
                                 POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
        reason = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
        reason = reason != 0 ? reason : posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
        reason = reason != 0 ? reason : posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
        if (reason == 0) {
            reason = posix_spawnp(pid_out, argv[0], &actions, &attributes, (char *const *)(uintptr_t)argv,
                                  entries);
        }
        posix_spawnattr_destroy(&attributes);
    }
    posix_spawn_file_actions_destroy(&actions);
    return reason;
}

/* False if it had to be killed. */
static bool wait_or_kill(pid_t pid, uint64_t limit_ns, int *status)
{
    uint64_t end_ns = collect_monotonic_ns() + limit_ns;
    uint64_t nap_ns = 0;

    for (;;) {
        pid_t ended = waitpid(pid, status, WNOHANG);

        if (ended == pid) {
            return true;
        }
        if (ended < 0 && errno != EINTR) {
            *status = -1;
            return true;
        }
        if (collect_monotonic_ns() >= end_ns) {
            break;
        }
        lttng_nap(&nap_ns);
    }
    kill(-pid, SIGKILL);
    kill(pid, SIGKILL);
    while (waitpid(pid, status, 0) < 0 && errno == EINTR) {
    }
    return false;
}

/* The line of its output that says most, without its "Error: ". */
static void reason_find(const char *output, int status, char *reason, size_t bytes)
{
    const char *found = NULL;
    size_t length = 0;
    bool is_error = false;

    for (const char *line = output != NULL ? output : ""; *line != '\0' && !is_error;) {
        size_t size = strcspn(line, "\n");

        is_error = strncmp(line, "Error: ", 7) == 0;
        if (is_error) {
            found = line + 7;
            length = size - 7;
        } else if (size > 0 && line[0] != '<') {
            found = line;
            length = size;
        }
        line += size;
        line += *line == '\n' ? 1 : 0;
    }
    if (found != NULL) {
        snprintf(reason, bytes, "%.*s", (int)(length < 300 ? length : 300), found);
    } else if (WIFSIGNALED(status)) {
        snprintf(reason, bytes, "ended by signal %d", WTERMSIG(status));
    } else {
        snprintf(reason, bytes, "exit status %d, without a word", WEXITSTATUS(status));
    }
}

/* `lttng create`, not all that follows: the first word that is no option. */
static void call_name(const char *const *argv, char *name, size_t bytes)
{
    size_t i = 1;

    while (argv[i] != NULL && (argv[i][0] == '-' || strcmp(argv[i], "xml") == 0)) {
        i++;
    }
    if (strcmp(argv[0], "lttng") == 0 && argv[i] != NULL) {
        snprintf(name, bytes, "%s %s", argv[0], argv[i]);
    } else {
        snprintf(name, bytes, "%s", argv[0]);
    }
}

static int run_with(const struct lttng_tool_call *call, char *const *entries, int output, char **text_out,
                    struct varve_message *message)
{
    uint64_t limit_ns = limit_now_ns + call->patience_bytes / SLOW_DISK_BYTES_PER_S * SECOND_NS;
    char name[64];
    char reason[320];
    int status;
    pid_t pid;
    int error = spawn(call->argv, entries, output, &pid);
    bool has_ended;

    call_name(call->argv, name, sizeof(name));
    if (error != 0) {
        return varve_message_set(
            message, error == ENOENT || error == EACCES ? VARVE_ERROR_UNSUPPORTED : VARVE_ERROR_IO,
            "cannot start %s: %s", call->argv[0], strerror(error));
    }
    has_ended = wait_or_kill(pid, limit_ns, &status);
    *text_out = output_read(output);
    if (!has_ended) {
        return varve_message_set(message, VARVE_ERROR_BUSY,
                                 "%s did not end within %.3g s and was killed: does the session daemon hang?",
                                 name, (double)limit_ns / 1e9);
    }
    if (status == 0) {
        return VARVE_OK;
    }
    reason_find(*text_out, status, reason, sizeof(reason));
    return varve_message_set(message, VARVE_ERROR_IO, "%s: %s", name, reason);
}

/* Children of a process that ignores SIGCHLD vanish with their status; gives true if that had to change. */
static bool child_signal_take(struct sigaction *saved)
{
    struct sigaction action;

    if (sigaction(SIGCHLD, NULL, saved) != 0 ||
        (saved->sa_handler != SIG_IGN && (saved->sa_flags & SA_NOCLDWAIT) == 0)) {
        return false;
    }
    memset(&action, 0, sizeof(action));
    action.sa_handler = SIG_DFL;
    sigaction(SIGCHLD, &action, NULL);
    return true;
}

int lttng_tool_run(const struct lttng_tool_call *call, struct varve_message *message)
{
    char **entries = environment_make(call->variable);
    int output = output_open();
    struct sigaction saved;
    char *text = NULL;
    int error;

    if (entries == NULL || output < 0) {
        error = varve_message_set(message, entries == NULL ? VARVE_ERROR_NO_MEMORY : VARVE_ERROR_IO,
                                  "cannot run %s: %s", call->argv[0], strerror(errno));
    } else {
        bool is_taken = child_signal_take(&saved);

        error = run_with(call, entries, output, &text, message);
        if (is_taken) {
            sigaction(SIGCHLD, &saved, NULL);
        }
    }
    if (output >= 0) {
        close(output);
    }
    free(entries);
    if (call->output != NULL) {
        *call->output = text;
    } else {
        free(text);
    }
    return error;
}

int lttng_tool_simply(const char *const *argv, struct varve_message *message)
{
    return lttng_tool_run(&(struct lttng_tool_call){.argv = argv}, message);
}

bool lttng_xml_next(const char **cursor, const char *tag, const char **text, size_t *length)
{
    size_t tag_length = strlen(tag);
    const char *at = *cursor;

    while (at != NULL && (at = strchr(at, '<')) != NULL) {
        if (strncmp(at + 1, tag, tag_length) == 0 && at[1 + tag_length] == '>') {
            *text = at + tag_length + 2;
            *length = strcspn(*text, "<");
            *cursor = *text + *length;
            return true;
        }
        at++;
    }
    return false;
}
