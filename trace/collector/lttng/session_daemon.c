/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The session daemon of this user. One that is there is used and left alone; otherwise one is started, and
 * ended by whichever recorder finishes last: recordings side by side share a daemon, and the one that started
 * it need not be the one that ends last, or may have been killed. So "ours" is not remembered but written on
 * the daemon: a variable at the front of its environment, inherited by its consumer daemon, that names the
 * place it serves. Nothing without that variable is ever sent a signal.
 *
 * Where a daemon listens. Of an ordinary user: $LTTNG_HOME/.lttng ($HOME without it). Of root, in LTTng 2.13:
 * /var/run/lttng whatever the environment says, so root has one daemon for all.
 *
 * The daemon must not become a child of the collector, which would wait for it as it waits for what the
 * program left behind. It detaches by a double fork, and orphans go to the nearest ancestor that is a
 * subreaper; launch_start makes the collector one. It ceases to be one while the daemon starts. (Orphans of
 * the program in those milliseconds go to init, and their end is noticed through /proc; before launch_start,
 * where lttng_session_start is meant to be called, there are none.) Process 1 of a container can't step
 * aside like that.
 */
#include "trace/collector/clock.h"
#include "trace/collector/lttng/session_parts.h"
#include "trace/error.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define MARK "VARVE_LTTNG_DAEMON="
#define MARK_BYTES (PATH_MAX + 64)
#define PLACE_OF_ROOT "/var/run/lttng"
#define PATIENCE_NS UINT64_C(5000000000) /* a daemon without sessions takes 1 to 3 s to end */
#define FAMILY_MAX 64                    /* a daemon, its consumer, a helper process of each */

static void mark_make(char *mark)
{
    const char *home = getenv("LTTNG_HOME");

    home = home != NULL ? home : getenv("HOME");
    if (geteuid() == 0) {
        snprintf(mark, MARK_BYTES, MARK PLACE_OF_ROOT);
    } else {
        snprintf(mark, MARK_BYTES, MARK "%s/.lttng", home != NULL ? home : "");
    }
}

/* ---- processes that carry the mark ---- */

struct family {
    pid_t pids[FAMILY_MAX];
    pid_t parents[FAMILY_MAX];
    size_t count;
};

static bool has_mark(pid_t pid, const char *mark)
{
    size_t length = strlen(mark) + 1;
    char path[64];
    char text[MARK_BYTES] = "";
    ssize_t got = -1;
    int descriptor;

    snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
    descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor >= 0) {
        got = read(descriptor, text, length);
        close(descriptor);
    }
    return got == (ssize_t)length && memcmp(text, mark, length) == 0;
}

static pid_t parent_of(pid_t pid)
{
    char path[64];
    char text[512];
    const char *end = NULL;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    file = fopen(path, "re");
    if (file != NULL) {
        end = fgets(text, sizeof(text), file) != NULL ? strrchr(text, ')') : NULL;
        fclose(file);
    }
    return end != NULL && strlen(end) > 4 ? (pid_t)strtol(end + 4, NULL, 10) : 0;
}

static void family_find(struct family *family, const char *mark)
{
    DIR *processes = opendir("/proc");
    uid_t user = geteuid();
    struct dirent *entry;

    family->count = 0;
    while (processes != NULL && family->count < FAMILY_MAX && (entry = readdir(processes)) != NULL) {
        struct stat status;
        pid_t pid = isdigit((unsigned char)entry->d_name[0]) ? (pid_t)strtol(entry->d_name, NULL, 10) : 0;

        if (pid > 0 && fstatat(dirfd(processes), entry->d_name, &status, 0) == 0 && status.st_uid == user &&
            has_mark(pid, mark)) {
            family->pids[family->count] = pid;
            family->parents[family->count++] = parent_of(pid);
        }
    }
    if (processes != NULL) {
        closedir(processes);
    }
}

static bool family_has(const struct family *family, pid_t pid)
{
    for (size_t i = 0; i < family->count; i++) {
        if (family->pids[i] == pid) {
            return true;
        }
    }
    return false;
}

/* SIGTERM, once each, to those that no other of the family looks after: the daemon, which then ends its
 * consumer itself, or a consumer whose daemon was killed. */
static void family_ask(const struct family *family, struct family *asked)
{
    for (size_t i = 0; i < family->count && asked->count < FAMILY_MAX; i++) {
        if (!family_has(family, family->parents[i]) && !family_has(asked, family->pids[i])) {
            asked->pids[asked->count++] = family->pids[i];
            kill(family->pids[i], SIGTERM);
        }
    }
}

/* Returns when none is left. A daemon with the sub-buffer of a killed program in its hands never ends by
 * itself (see session_destroy), and one without a session has nothing to lose. */
static int family_end(const char *mark, struct varve_message *message)
{
    uint64_t start_ns = collect_monotonic_ns();
    struct family asked = {.count = 0};
    struct family family;
    uint64_t nap_ns = 0;

    for (family_find(&family, mark); family.count > 0; family_find(&family, mark)) {
        uint64_t passed_ns = collect_monotonic_ns() - start_ns;

        if (passed_ns > PATIENCE_NS + lttng_tool_limit()) {
            return varve_message_set(message, VARVE_ERROR_IO, "the LTTng session daemon %d does not end",
                                     (int)family.pids[0]);
        }
        family_ask(&family, &asked);
        for (size_t i = 0; passed_ns > PATIENCE_NS && i < family.count; i++) {
            kill(family.pids[i], SIGKILL);
        }
        lttng_nap(&nap_ns);
    }
    return VARVE_OK;
}

/* ---- the daemon that answers ---- */

int lttng_daemon_ask(bool *answers_out, char **sessions_out, struct varve_message *message)
{
    static const char *const list[] = {"lttng", "--no-sessiond", "--mi", "xml", "list", NULL};
    int error = lttng_tool_run(&(struct lttng_tool_call){.argv = list, .output = sessions_out}, message);

    *answers_out = error == VARVE_OK;
    /* Its one reason to fail at once is that nobody answers. */
    return error == VARVE_ERROR_IO ? VARVE_OK : error;
}

bool lttng_daemon_has(const char *sessions, const char *name)
{
    static const char start[] = "<session><name>";
    const char *at = sessions;

    while (at != NULL && (at = strstr(at, start)) != NULL) {
        at += strlen(start);
        if (name == NULL || (strncmp(at, name, strlen(name)) == 0 && at[strlen(name)] == '<')) {
            return true;
        }
    }
    return false;
}

/* Summed over the channels; LTTng's consumer takes a count that a stream reports late for a wrapped counter
 * and adds 2^63: the low bits stay right. */
static uint64_t sum_of(const char *listing, const char *tag)
{
    const char *cursor = listing;
    const char *text;
    size_t length;
    uint64_t sum = 0;

    while (lttng_xml_next(&cursor, tag, &text, &length)) {
        sum += strtoull(text, NULL, 10) & INT64_MAX;
    }
    return sum;
}

int lttng_daemon_loss(const char *name, struct lttng_session_loss *loss, struct varve_message *message)
{
    const char *const list[] = {"lttng", "--no-sessiond", "--mi", "xml", "list", name, NULL};
    char *listing = NULL;
    int error = lttng_tool_run(&(struct lttng_tool_call){.argv = list, .output = &listing}, message);

    if (error == VARVE_OK) {
        loss->discarded_events = sum_of(listing, "discarded_events");
        loss->discarded_packets = sum_of(listing, "lost_packets");
    }
    free(listing);
    return error;
}

static int daemon_start(const char *mark, struct varve_message *message)
{
    static const char *const argv[] = {"lttng-sessiond", "--daemonize", "--no-kernel", NULL};
    int is_reaper = 0;
    int error;

    prctl(PR_GET_CHILD_SUBREAPER, &is_reaper, 0, 0, 0);
    if (is_reaper != 0) {
        prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0);
    }
    error = lttng_tool_run(&(struct lttng_tool_call){.argv = argv, .variable = mark}, message);
    if (is_reaper != 0) {
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    }
    return error;
}

int lttng_daemon_need(struct varve_message *message)
{
    struct varve_message unheard;
    char mark[MARK_BYTES];
    char *sessions;
    bool answers;
    int error = lttng_daemon_ask(&answers, &sessions, message);

    free(sessions);
    if (error != VARVE_OK || answers) {
        return error;
    }
    if (getpid() == 1) {
        return varve_message_set(
            message, VARVE_ERROR_UNSUPPORTED,
            "no LTTng session daemon answers, and process 1 cannot start one that is not "
            "its child: run the container with an init process (docker run --init)");
    }
    mark_make(mark);
    error = daemon_start(mark, message);
    if (error == VARVE_ERROR_BUSY) {
        family_end(mark, &unheard);
    }
    if (error == VARVE_ERROR_IO) {
        lttng_daemon_ask(&answers, &sessions, &unheard);
        free(sessions);
        error = answers ? VARVE_OK : error; /* somebody else's was faster */
    }
    return error;
}

int lttng_daemon_release(struct varve_message *message)
{
    struct family family;
    char mark[MARK_BYTES];
    char *sessions;
    bool answers;
    int error;

    mark_make(mark);
    family_find(&family, mark);
    if (family.count == 0) {
        return VARVE_OK;
    }
    error = lttng_daemon_ask(&answers, &sessions, message);
    if (error == VARVE_OK && !lttng_daemon_has(sessions, NULL)) {
        error = family_end(mark, message);
    }
    free(sessions);
    return error;
}

/* A name in the abstract socket space: nothing to clean up, and free again however its owner ends. */
int lttng_daemon_lock(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    uint64_t end_ns = collect_monotonic_ns() + 2 * lttng_tool_limit();
    uint64_t hash = UINT64_C(14695981039346656037);
    uint64_t nap_ns = 0;
    char mark[MARK_BYTES];
    int descriptor = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int length;

    mark_make(mark);
    for (const char *c = mark; *c != '\0'; c++) {
        hash = (hash ^ (unsigned char)*c) * UINT64_C(1099511628211);
    }
    length = snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "varve-lttng-%u-%016llx",
                      (unsigned)geteuid(), (unsigned long long)hash);
    length += (int)offsetof(struct sockaddr_un, sun_path) + 1;
    while (descriptor >= 0 && bind(descriptor, (struct sockaddr *)&address, (socklen_t)length) != 0) {
        if (errno != EADDRINUSE || collect_monotonic_ns() > end_ns) {
            close(descriptor);
            return -1;
        }
        lttng_nap(&nap_ns);
    }
    return descriptor;
}
