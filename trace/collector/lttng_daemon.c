/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The session daemon of this user: lttng_session.h. "Ours" is written down beside the daemon's own pid file, as the
 * recorder that started it need not be the one that ends last, or may have been killed. The folder is LTTng's: of an
 * ordinary user $LTTNG_HOME/.lttng ($HOME without it), of root /var/run/lttng whatever the environment says.
 *
 * The daemon must not become a child of the collector, which would wait for it as it waits for what the program left
 * behind. It detaches by a double fork, and orphans go to the nearest ancestor that is a subreaper; the collector
 * ceases to be one while the daemon starts. Process 1 of a container can't step aside like that.
 */
#include "trace/collector/lttng_session.h"

#include "base/monotonic.h"
#include "base/program.h"
#include "trace/format/session_format.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROGRAM "lttng-sessiond"
#define FOLDER_OF_ROOT "/var/run/lttng"
#define END_MS 5000 /* a daemon without sessions takes 1 to 3 s to end */
#define NAP_NS 2000000L
#define FOLDER_BYTES (PATH_MAX + 16)
#define FILE_BYTES (FOLDER_BYTES + 64)

static void folder_name(char folder[FOLDER_BYTES])
{
    const char *home = getenv("LTTNG_HOME");
    home = home != NULL ? home : getenv("HOME");
    if (geteuid() == 0) {
        snprintf(folder, FOLDER_BYTES, FOLDER_OF_ROOT);
    } else {
        snprintf(folder, FOLDER_BYTES, "%s/.lttng", home != NULL ? home : "");
    }
}

/* ---- the daemon that runs, and whose it is ---- */

static void file_name(const char *name, char path[FILE_BYTES])
{
    char folder[FOLDER_BYTES];
    folder_name(folder);
    snprintf(path, FILE_BYTES, "%s/%s", folder, name);
}

/* 0: none. */
static pid_t read_pid(const char *name)
{
    char path[FILE_BYTES];
    file_name(name, path);
    FILE *file = fopen(path, "re");
    int pid = 0;
    if (file != NULL) {
        pid = fscanf(file, "%d", &pid) == 1 && pid > 1 ? pid : 0;
        fclose(file);
    }
    return pid;
}

static void mark_write(pid_t pid)
{
    char path[FILE_BYTES];
    file_name("varve-sessiond.pid", path);
    FILE *file = fopen(path, "we");
    if (file != NULL) { /* else it stays when all is over */
        fprintf(file, "%d\n", (int)pid);
        fclose(file);
    }
}

bool lttng_daemon_is_ours(void)
{
    pid_t pid = read_pid("varve-sessiond.pid");
    return pid != 0 && pid == read_pid(PROGRAM ".pid") && kill(pid, 0) == 0;
}

/* The daemon ends its consumers, which are in its process group. With the sub-buffer of a killed program in its hands
 * it never ends by itself, and without a session it has nothing to lose. */
void lttng_daemon_end(void)
{
    pid_t pid = read_pid("varve-sessiond.pid");
    int descriptor = lttng_daemon_is_ours() ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
    struct pollfd ended = {.fd = descriptor, .events = POLLIN};
    if (descriptor < 0) {
        return;
    }
    kill(pid, SIGTERM);
    if (poll(&ended, 1, END_MS) != 1) {
        if (getpgid(pid) == pid) {
            kill(-pid, SIGKILL);
        }
        kill(pid, SIGKILL);
        poll(&ended, 1, END_MS);
    }
    close(descriptor);
    char path[FILE_BYTES];
    file_name("varve-sessiond.pid", path);
    unlink(path);
}

/* ---- start ---- */

bool lttng_daemon_is_there(void)
{
    char path[PATH_MAX];
    return program_find(PROGRAM, path, sizeof(path));
}

/* The program that was started ends when the daemon behind it answers. -1: it had to be killed. */
static int wait_or_kill(pid_t pid, uint64_t limit_ns)
{
    uint64_t end_ns = monotonic_ns() + limit_ns;
    int status = 0;
    pid_t ended;
    while ((ended = waitpid(pid, &status, WNOHANG)) != pid && monotonic_ns() < end_ns) {
        if (ended < 0 && errno != EINTR) {
            return 0;
        }
        monotonic_nap(NAP_NS);
    }
    if (ended == pid) {
        return status;
    }
    kill(-pid, SIGKILL);
    kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return -1;
}

static int lttng_daemon_spawn_and_wait(uint64_t limit_ns, struct varve_message *message)
{
    /* without what a recorded program inherits */
    char **entries = program_environment((const char *const[]){"LD_PRELOAD", SESSION_ENVIRONMENT, NULL});
    struct sigaction plain = {.sa_handler = SIG_DFL};
    if (entries == NULL) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory to start " PROGRAM);
    }
    struct sigaction before;
    sigaction(SIGCHLD, &plain, &before); /* ignored, a child's end would leave no status */
    static char name[] = PROGRAM, daemonize[] = "--daemonize", no_kernel[] = "--no-kernel";
    char *const argv[] = {name, daemonize, no_kernel, NULL};
    pid_t pid = 0;
    int reason = program_spawn(argv, entries, (const int[]){-1, -1, -1}, true, &pid);
    int status = reason == 0 ? wait_or_kill(pid, limit_ns) : 0;
    sigaction(SIGCHLD, &before, NULL);
    free(entries);
    if (reason != 0) {
        return varve_message_set(message,
                                 reason == ENOENT || reason == EACCES ? VARVE_ERROR_UNSUPPORTED : VARVE_ERROR_IO,
                                 "cannot start " PROGRAM ": %s", strerror(reason));
    }
    if (status == -1) {
        return varve_message_set(message, VARVE_ERROR_IO, PROGRAM " did not answer within %.3g s and was killed",
                                 (double)limit_ns / 1e9);
    }
    if (status != 0) {
        return varve_message_set(message, VARVE_ERROR_IO, "the session daemon " PROGRAM " cannot be started (%s %d)",
                                 WIFSIGNALED(status) ? "signal" : "exit status",
                                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    }
    mark_write(read_pid(PROGRAM ".pid"));
    return VARVE_OK;
}

int lttng_daemon_start(uint64_t limit_ns, struct varve_message *message)
{
    if (getpid() == 1) {
        return varve_message_set(
            message, VARVE_ERROR_UNSUPPORTED,
            "no LTTng session daemon answers, and process 1 cannot start one that is not its child: run the container "
            "with an init process (docker run --init)");
    }
    int is_reaper = 0;
    prctl(PR_GET_CHILD_SUBREAPER, &is_reaper, 0, 0, 0);
    if (is_reaper != 0) {
        prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0);
    }
    int error = lttng_daemon_spawn_and_wait(limit_ns, message);
    if (is_reaper != 0) {
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    }
    return error;
}

/* ---- the lock ---- */

/* A name in the abstract socket space: nothing to clean up, and free again however its owner ends. */
int lttng_daemon_lock(uint64_t limit_ns)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    uint64_t end_ns = monotonic_ns() + limit_ns;
    uint64_t hash = UINT64_C(14695981039346656037);
    char folder[FOLDER_BYTES];
    int descriptor = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    folder_name(folder);
    for (const char *c = folder; *c != '\0'; c++) {
        hash = (hash ^ (unsigned char)*c) * UINT64_C(1099511628211);
    }
    int length = snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "varve-lttng-%u-%016llx",
                          (unsigned)geteuid(), (unsigned long long)hash);
    length += (int)offsetof(struct sockaddr_un, sun_path) + 1;
    while (descriptor >= 0 && bind(descriptor, (struct sockaddr *)&address, (socklen_t)length) != 0) {
        if (errno != EADDRINUSE || monotonic_ns() > end_ns) {
            close(descriptor);
            return -1;
        }
        monotonic_nap(NAP_NS);
    }
    return descriptor;
}
