/* SPDX-License-Identifier: Apache-2.0 */
/* C only: helpers of cmocka programs */
/*
 * Surroundings for the tests of LTTng's sessions: a folder with an LTTNG_HOME of its own, a program that emits, and
 * the processes that were started below that LTTNG_HOME. Root becomes an unprivileged user first: root's session
 * daemon is one for the whole machine, and not the tests'.
 */
#ifndef VARVE_TESTS_SUPPORT_LTTNG_SESSION_H
#define VARVE_TESTS_SUPPORT_LTTNG_SESSION_H

#include <cmocka.h>

#include "trace/collector/lttng_session.h"

#include <errno.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOBODY 65534
#define PATIENCE 2000 /* naps of 10 ms */

static char place_root[] = "/tmp/varve-lttng-XXXXXX";
static char *place_path; /* PATH as it was */
static char *place_texts[512];
static size_t place_count;

/* ---- the folder ---- */

/* A path in it; it lives as long as the folder. */
static char *__attribute__((format(printf, 1, 2))) place(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char rest[1024];
    vsnprintf(rest, sizeof(rest), format, arguments);
    va_end(arguments);
    assert_true(place_count < sizeof(place_texts) / sizeof(place_texts[0]));
    char *text;
    assert_true(asprintf(&text, rest[0] == '/' ? "%s%s" : "%s/%s", rest[0] == '/' ? "" : place_root, rest) > 0);
    place_texts[place_count++] = text;
    return text;
}

static inline bool exists(const char *path)
{
    struct stat status;
    return lstat(path, &status) == 0;
}

static inline bool holds(const char *path, const char *text)
{
    char buffer[256];
    FILE *file = fopen(path, "re");
    size_t got = file != NULL ? fread(buffer, 1, sizeof(buffer) - 1, file) : 0;
    if (file != NULL) {
        fclose(file);
    }
    buffer[got] = '\0';
    return strcmp(buffer, text) == 0;
}

static inline void __attribute__((format(printf, 1, 2))) shell(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char line[4096];
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    char quiet[4200];
    snprintf(quiet, sizeof(quiet), "{ %s; } >/dev/null 2>&1", line);
    if (system(quiet) != 0) {
        fail_msg("failed: %s", line);
    }
}

static int place_make(void **state)
{
    (void)state;
    place_path = strdup(getenv("PATH") != NULL ? getenv("PATH") : "/usr/bin:/bin");
    if (mkdtemp(place_root) == NULL) {
        return -1;
    }
    shell("cp %s/programs/second_sink_emit %s || true", VARVE_BUILD_DIR, place_root);
    shell("cp %s/libvarve_lttng.so %s || true", VARVE_BUILD_DIR, place_root);
    shell("mkdir %s/home && chmod -R a+rX %s", place_root, place_root);
    if (geteuid() == 0) {
        shell("chown -R %d %s", NOBODY, place_root);
        if (setgroups(0, NULL) != 0 || setresgid(NOBODY, NOBODY, NOBODY) != 0 ||
            setresuid(NOBODY, NOBODY, NOBODY) != 0) {
            return -1;
        }
        prctl(PR_SET_DUMPABLE, 1, 0, 0, 0); /* what a change of the user takes away, and LeakSanitizer needs */
    }
    return setenv("LTTNG_HOME", place("home"), 1) | setenv("HOME", place("home"), 1) |
           setenv("LTTNG_UST_REGISTER_TIMEOUT", "10000", 1);
}

/* ---- processes below our LTTNG_HOME ---- */

/* Sends them a signal (0: none); only those with that name if one is given. Returns their number. */
static size_t family_each(const char *name, int signal_number, pid_t *last)
{
    char line[512];
    size_t count = 0;
    snprintf(line, sizeof(line), "grep -lzsx 'LTTNG_HOME=%s/home' /proc/[0-9]*/environ | cut -d/ -f3", place_root);
    FILE *list = popen(line, "re");
    assert_non_null(list);
    while (fgets(line, sizeof(line), list) != NULL) {
        char path[64], command[64] = "";
        const pid_t pid = (pid_t)strtol(line, NULL, 10);
        snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
        FILE *file = fopen(path, "re");
        if (file != NULL) {
            (void)!fscanf(file, "%63s", command);
            fclose(file);
        }
        if (strncmp(command, "lttng-", 6) == 0 && (name == NULL || strcmp(command, name) == 0)) {
            count++;
            *last = pid;
            kill(pid, signal_number);
        }
    }
    pclose(list);
    return count;
}

static inline size_t family_size(void)
{
    pid_t last;
    return family_each(NULL, 0, &last);
}

/* The daemon has ended; its helpers follow at once. */
static inline void assert_family_ends(void)
{
    for (int i = 0; i < 200 && family_size() > 0; i++) {
        usleep(10000);
    }
    assert_int_equal(family_size(), 0);
}

static inline pid_t daemon_pid(void)
{
    pid_t pid = 0;
    family_each("lttng-sessiond", 0, &pid);
    return pid;
}

static inline void consumer_signal(int signal_number)
{
    pid_t pid;
    assert_int_not_equal(family_each("lttng-consumerd", signal_number, &pid), 0);
}

static void family_wait(void)
{
    for (int i = 0; i < PATIENCE && family_size() > 0; i++) {
        usleep(10000);
    }
}

static void family_kill(int signal_number)
{
    pid_t last;
    family_each(signal_number == SIGKILL ? NULL : "lttng-sessiond", signal_number, &last);
    family_wait();
}

static inline pid_t parent_pid(pid_t pid)
{
    char path[64];
    int parent = 0;
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%*d (%*[^)]) %*c %d", &parent), 1);
    fclose(file);
    return parent;
}

static int place_remove(void **state)
{
    (void)state;
    family_kill(SIGKILL);
    setenv("PATH", place_path, 1);
    shell("rm -rf %s", place_root);
    for (size_t i = 0; i < place_count; i++) {
        free(place_texts[i]);
    }
    free(place_path);
    return 0;
}

/* ---- LTTng itself ---- */

static inline void lttng_or_skip(void)
{
    struct varve_message message;
    if (!lttng_recording_is_possible(&message)) {
        skip("%s", message.text);
    }
    if (access(place("libvarve_lttng.so"), R_OK) != 0) {
        skip("built without LTTng-UST (liblttng-ust-dev)");
    }
}

/* Runs the emitting program to its end; `how` "kill", "storm": which is SIGKILL. */
static inline void emit(unsigned count, const char *how)
{
    char number[32];
    snprintf(number, sizeof(number), "%u", count);
    pid_t pid = fork();
    if (pid == 0) {
        if (freopen("/dev/null", "w", stdout) == NULL) {
            _exit(126);
        }
        execl(place("second_sink_emit"), "second_sink_emit", place("libvarve_lttng.so"), number, how, (char *)NULL);
        _exit(127);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (how[0] != '\0') {
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    } else {
        assert_int_equal(status, 0);
    }
}

/* Different events in a trace, each known by the process and its number there. */
static inline void assert_events(uint64_t expected, const char *trace)
{
    unsigned long long count = 0;
    if (system("command -v babeltrace2 > /dev/null") != 0) {
        return;
    }
    char line[4096];
    snprintf(line, sizeof(line),
             "babeltrace2 %s 2>/dev/null | sed -n 's/.*ring_seq = \\([0-9]*\\).* pid = \\([0-9]*\\).*/\\1 "
             "\\2/p' "
             "| sort -u | wc -l",
             trace);
    FILE *pipe = popen(line, "re");
    assert_non_null(pipe);
    assert_int_equal(fscanf(pipe, "%llu", &count), 1);
    pclose(pipe);
    assert_int_equal(count, expected);
}

#endif
