/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread that sleeps is left alone where its stack tells enough without a stop. Those that are stopped are unwound,
 * one at a time, and go on. Who makes the call is chosen among those first that do not notice a stop; whose call would
 * be cut short is stopped only if there is nobody else for a while. Called by inject.c.
 */
#include "trace/collector/programs/thread_look.h"

#include "base/monotonic.h"
#include "base/proc_file.h"
#include "trace/collector/programs/attach_registers.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define SEARCH_NS UINT64_C(5000000000)   /* for a thread at a place where it may call */
#define PATIENCE_NS UINT64_C(1000000000) /* for one whose call would not be cut short */
#define ROUND_NS 2000000L

struct search {
    struct look *look;
    unsigned none_in; /* 0: a caller is looked for */
    unsigned avoids;
    bool is_patient;
    int32_t caller;
    uint64_t stopped_ns;
};

static const char *trace_hint(void)
{
    FILE *file = fopen("/proc/sys/kernel/yama/ptrace_scope", "re");
    int scope = file != NULL ? fgetc(file) : '0';
    if (file != NULL) {
        fclose(file);
    }
    return scope == '3' ? ": kernel.yama.ptrace_scope forbids all tracing until the next boot"
           : scope == '1' || scope == '2'
               ? ": kernel.yama.ptrace_scope restricts tracing to parents; sudo sysctl kernel.yama.ptrace_scope=0, or "
                 "give varve CAP_SYS_PTRACE"
               : ": tracing it needs its user's rights and CAP_SYS_PTRACE where it has dropped or gained rights";
}

/* False: it is not ours. */
static bool thread_look_take(struct look *look, int32_t tid)
{
    const int32_t pid = look->target->pid;
    int32_t tracer = 0;
    switch (stop_take(tid, &tracer)) {
    case STOP_TAKEN:
        return true;
    case STOP_TAKEN_BY_ANOTHER:
        look->error = varve_message_set(look->message, VARVE_ERROR_BUSY,
                                        "process %d is being traced by pid %d: detach that first", pid, tracer);
        return false;
    case STOP_TAKEN_FORBIDDEN:
        look->error = varve_message_set(look->message, VARVE_ERROR_PERMISSION, "process %d may not be traced%s", pid,
                                        trace_hint());
        return false;
    default:
        return false;
    }
}

/* False: it can't be had now. */
static bool seize(struct search *search, int32_t tid, unsigned *place_out)
{
    struct look *look = search->look;
    if (!thread_look_take(look, tid)) {
        return false;
    }
    const enum stop stop = stop_thread(tid);
    if (stop == STOP_WHOLE) {
        stop_let_go(tid);
        look->error = varve_message_set(look->message, VARVE_ERROR_BUSY,
                                        "process %d is stopped: let it go on first (kill -CONT %d)", look->target->pid,
                                        look->target->pid);
    }
    if (stop != STOP_ASKED) {
        return false;
    }
    search->stopped_ns = monotonic_ns();
    registers_repeat(tid);
    *place_out = place_of(&look->rules, look->running, tid);
    return true;
}

enum glance {
    GLANCE_OUTSIDE, /* it need not be stopped */
    GLANCE_SPARED,  /* it should not be, now */
    GLANCE_TOO_LITTLE,
};

/* At a thread that sleeps. What its stack says may be of another stack than that which is to go on, where a handler of
 * a signal has one of its own: for what must be quiet it is believed only of those that a stop would harm. */
static enum glance glance(const struct search *search, int32_t tid, enum asleep_harm harm_max)
{
    struct asleep asleep;
    if (!asleep_look(tid, &asleep)) {
        return GLANCE_TOO_LITTLE;
    }
    const bool is_spared = asleep.harm > harm_max;
    if (search->none_in != 0 && (search->none_in == PLACE_LOADER || asleep.harm != ASLEEP_UNHARMED) &&
        (place_asleep(&search->look->rules, search->look->running, tid, asleep.pc, asleep.sp) & search->none_in) == 0 &&
        asleep_still(tid, &asleep)) {
        return GLANCE_OUTSIDE;
    }
    return is_spared ? GLANCE_SPARED : GLANCE_TOO_LITTLE;
}

/* True: it is not in that place; where a caller is looked for, it may have become that. */
static bool thread_look_at(struct search *search, int32_t tid, enum asleep_harm harm_max)
{
    const enum glance seen = glance(search, tid, harm_max);
    unsigned place = PLACE_UNKNOWN;
    if (seen != GLANCE_TOO_LITTLE) {
        return seen == GLANCE_OUTSIDE;
    }
    if (!seize(search, tid, &place)) {
        return search->none_in != PLACE_RECORDER || proc_file_has_ended(tid);
    }
    if (search->none_in == 0 && (place & search->avoids) == 0) {
        search->caller = tid;
        return true;
    }
    stop_let_go(tid);
    return (place & search->none_in) == 0;
}

/* At every thread, but those that a stop would harm more than this. True: there is a caller, which is stopped; or none
 * is in that place. */
static bool look_once(struct search *search, enum asleep_harm harm_max)
{
    struct look *look = search->look;
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/task", look->target->pid);
    DIR *folder = opendir(path);
    const struct dirent *entry;
    bool is_none = folder != NULL;
    while (folder != NULL && search->caller == 0 && look->error == VARVE_OK && (entry = readdir(folder)) != NULL) {
        const int32_t tid = (int32_t)strtol(entry->d_name, NULL, 10); /* the main thread comes first */
        is_none = (tid <= 0 || thread_look_at(search, tid, harm_max)) && is_none;
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return look->error == VARVE_OK && (search->none_in != 0 ? is_none : search->caller != 0);
}

static bool look_round(struct search *search)
{
    const enum asleep_harm last = search->is_patient ? ASLEEP_ANEW : ASLEEP_CUT;
    if (search->none_in == 0 && look_once(search, ASLEEP_UNHARMED)) {
        return true;
    }
    return search->look->error == VARVE_OK && look_once(search, last);
}

int look_say_gone(struct look *look)
{
    const int32_t pid = look->target->pid;
    look->error = proc_file_thread(pid) == 0
                      ? varve_message_set(look->message, VARVE_ERROR_NOT_FOUND, "process %d has ended", pid)
                      : varve_message_set(look->message, VARVE_ERROR_BUSY,
                                          "process %d has executed a program just now: try again", pid);
    return look->error;
}

static int say_busy(struct look *look, unsigned none_in)
{
    const int32_t pid = look->target->pid;
    if (none_in == PLACE_RECORDER) {
        look->error =
            varve_message_set(look->message, VARVE_ERROR_BUSY,
                              "process %d: one of its threads was inside the recorder for 5 s: try again", pid);
    } else if (none_in == PLACE_LOADER) {
        look->error = varve_message_set(look->message, VARVE_ERROR_BUSY,
                                        "process %d: one of its threads was loading a library, or held the loader's "
                                        "lock elsewhere, for 5 s: try again",
                                        pid);
    } else {
        look->error = varve_message_set(look->message, VARVE_ERROR_BUSY,
                                        "process %d: no thread was at a place where it may load the recorder (outside "
                                        "of the allocator, the loader and the kernel's waits for disks) within 5 s: "
                                        "try again",
                                        pid);
    }
    return look->error;
}

static int search_run(struct search *search)
{
    const uint64_t began_ns = monotonic_ns();
    struct look *look = search->look;
    search->is_patient = true;
    while (!look_round(search)) {
        const uint64_t now_ns = monotonic_ns();
        if (look->error != VARVE_OK) {
            return look->error;
        }
        const int32_t living = proc_file_thread(look->target->pid);
        if (living == 0 || !target_is_same(look->target, living)) {
            return look_say_gone(look);
        }
        if (look->parent != 0 && getppid() != look->parent) {
            return look->error = varve_message_set(look->message, VARVE_ERROR_IO, "varve itself was killed");
        }
        if (now_ns - began_ns > SEARCH_NS) {
            return say_busy(look, search->none_in);
        }
        search->is_patient = now_ns - began_ns < PATIENCE_NS;
        monotonic_nap(ROUND_NS);
        stop_late();
    }
    return VARVE_OK;
}

int look_for_none(struct look *look, unsigned place)
{
    struct search search = {.look = look, .none_in = place};
    return search_run(&search);
}

int look_for_caller(struct look *look, unsigned avoids, int32_t *tid_out, uint64_t *stopped_ns_out)
{
    struct search search = {.look = look, .avoids = avoids};
    const int error = search_run(&search);
    *tid_out = search.caller;
    *stopped_ns_out = search.stopped_ns;
    return error;
}
