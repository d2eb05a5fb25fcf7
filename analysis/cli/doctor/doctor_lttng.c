/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve doctor`, the second sink: what it needs to be written and to be read, and, if the program lttng is there to
 * ask, whether a session daemon answers and has sessions whose recorder was killed, which go on tracing every program
 * that they find. A daemon that hangs answers nobody: lttng runs with a time limit.
 */

#include "analysis/cli/doctor/doctor.h"

#include "analysis/base/component_find.h"
#include "analysis/cli/doctor/doctor_program.h"
#include "analysis/import/ctf.h"
#include "base/program.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIMIT_MS 3000
#define ANSWER_BYTES 65536
#define SHOWN 10

static const char without_lttng[] = "varve record --lttng writes no LTTng trace";

/* A recorder is called varve-PID-NUMBER where LTTng knows it; true if that process is not one any more. */
static bool is_abandoned(const char *name)
{
    if (strncmp(name, "varve-", 6) != 0) {
        return false;
    }
    char *end;
    long pid = strtol(name + 6, &end, 10);
    if (end == name + 6 || *end != '-' || pid <= 0) {
        return false;
    }
    if (kill((pid_t)pid, 0) != 0 && errno == ESRCH) {
        return true;
    }
    char path[64];
    snprintf(path, sizeof(path), "/proc/%ld/exe", pid);
    char program[PATH_MAX];
    ssize_t length = readlink(path, program, sizeof(program) - 1);
    if (length <= 0) {
        return false; /* somebody else's process: no way to know */
    }
    program[length] = '\0';
    const char *slash = strrchr(program, '/');
    return slash != NULL && strncmp(slash, "/varve", 6) != 0;
}

/* Returns the number of sessions. */
static int check_sessions(struct doctor_lines *lines, const char *listing)
{
    static const char start[] = "<session><name>";
    const char *at = listing;
    int abandoned = 0;
    int count = 0;
    while ((at = strstr(at, start)) != NULL) {
        at += strlen(start);
        count++;
        char name[200];
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(at, "<"), at);
        char remedy[200];
        if (is_abandoned(name) && abandoned++ < SHOWN) {
            snprintf(remedy, sizeof(remedy), "varve recover DB.d of that recording, or lttng destroy %.60s", name);
            doctor_add(lines, "lttng_session", DOCTOR_WARNING, "a recording that was killed; LTTng still traces for it",
                       remedy, "%.60s", name);
        }
    }
    return count;
}

static void check_daemon(struct doctor_lines *lines)
{
    static const char *const list[] = {"lttng", "--no-sessiond", "--mi", "xml", "list", NULL};
    static char listing[ANSWER_BYTES];
    int count;
    switch (program_run(list, LIMIT_MS, listing, sizeof(listing))) {
    case PROGRAM_ANSWERED:
        count = check_sessions(lines, listing);
        doctor_add(lines, "lttng_daemon", DOCTOR_OK, "", "", "runs; it has %d session%s", count, count == 1 ? "" : "s");
        break;
    case PROGRAM_FAILED:
        doctor_add(lines, "lttng_daemon", DOCTOR_OK, "", "", "none runs; varve record --lttng starts one and ends it");
        break;
    case PROGRAM_LATE:
        doctor_add(lines, "lttng_daemon", DOCTOR_WARNING, without_lttng,
                   "end lttng-sessiond and lttng-consumerd of this user",
                   "the session daemon does not answer within %d s", LIMIT_MS / 1000);
        break;
    }
}

static void check_tools(struct doctor_lines *lines)
{
    static const char *const version[] = {"lttng-sessiond", "--version", NULL};
    char path[PATH_MAX];
    if (!program_find(version[0], path, sizeof(path))) {
        doctor_add(lines, "lttng_tools", DOCTOR_MISSING, without_lttng, "apt install lttng-tools", "no %s in PATH",
                   version[0]);
        return;
    }
    char text[256];
    if (program_run(version, LIMIT_MS, text, sizeof(text)) != PROGRAM_ANSWERED) {
        doctor_add(lines, "lttng_tools", DOCTOR_WARNING, "varve record --lttng may have to do without LTTng",
                   "apt install --reinstall lttng-tools", "%s --version does not work", version[0]);
    } else {
        const char *number = text + strcspn(text, "0123456789\n");
        doctor_add(lines, "lttng_tools", DOCTOR_OK, "", "", "LTTng %.*s, %.120s", (int)strspn(number, "0123456789."),
                   number, path);
    }
    if (program_find("lttng", path, sizeof(path))) {
        check_daemon(lines);
    } else {
        doctor_add(lines, "lttng_daemon", DOCTOR_OK, "", "",
                   "not asked for its sessions: no lttng in PATH; recording does not need it");
    }
}

void doctor_check_lttng(struct doctor_lines *lines)
{
    static const char no_import[] = "varve import does not read LTTng's traces";
    doctor_check_component(lines, "lttng_provider", COMPONENT_PROVIDER, without_lttng,
                           "apt install liblttng-ust-dev, then build varve again");
    doctor_check_library(lines, "lttng_ust", "liblttng-ust.so.1", without_lttng, "apt install liblttng-ust1");
    doctor_check_library(lines, "lttng_ctl", "liblttng-ctl.so.0", without_lttng, "apt install liblttng-ctl0");
    check_tools(lines);
    char path[PATH_MAX];
    if (!ctf_program_find(path, sizeof(path))) {
        doctor_add(lines, "ctf_import", DOCTOR_MISSING, no_import, "apt install babeltrace2", "no babeltrace2 in PATH");
    } else if (!component_find(COMPONENT_BABELTRACE_PLUGIN, path, sizeof(path))) {
        doctor_add(lines, "ctf_import", DOCTOR_MISSING, no_import,
                   "apt install libbabeltrace2-dev, then build varve again", "%.140s is not there", path);
    } else {
        ctf_program_find(path, sizeof(path));
        doctor_add(lines, "ctf_import", DOCTOR_OK, "", "", "%.150s", path);
    }
}
