/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The injector. A thread is stopped by PTRACE_INTERRUPT; if its stack says that it may call (place.c), its registers
 * and signal mask are kept, it is given those of a call that returns to address 0, and goes on: the other threads run
 * all the while, so that whoever holds a lock that the call needs lets go of it. The call is made on memory of its own,
 * which mmap, called first and in need of next to nothing, has given. The fault at address 0 ends it; it is seen by the
 * tracer alone. Signals are blocked in the thread meanwhile, but for those that a fault raises.
 */
#include "trace/collector/attach/inject.h"

#include "trace/collector/attach/registers.h"
#include "trace/base/proc_file.h"
#include "trace/error.h"
#include "trace/format/session.h"
#include "trace/symbols/running.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define STACK_BYTES (UINT64_C(512) << 10)
#define STOP_NS UINT64_C(100000000)    /* for a thread to stop: one in vfork, or waiting for a disk, does not */
#define SEARCH_NS UINT64_C(5000000000) /* for a thread at a place where it may call */
#define CALL_NS UINT64_C(30000000000)  /* for the whole of a call */
#define LOCK_NS UINT64_C(1000000000)   /* for a lock */
#define LOADER_BYTES_MAX (UINT64_C(64) << 10)
#define FAULTS_MAX 10000U /* of one call, handled by the program */
#define STEP_NS 50000L
#define SEARCH_STEP_NS 2000000L
#define THREADS_MAX 4096U            /* looked at in one round */
#define LIBC_DLOPEN_MODE 0x80000000U /* what __libc_dlopen_mode wants to be told */

/* What the child tells its parent. */
struct report {
    int error;
    struct inject_result result;
    char text[512];
};

struct injector {
    const struct target *target;
    const struct inject_call *call;
    struct symbols_running *running;
    struct place_rules rules;
    struct report *report;
    /* functions in the target */
    uint64_t map, unmap, open, open_error, function;
    uint64_t open_mode;
    uint64_t function_in_file;
    /* the thread */
    int32_t tid;
    uint64_t stopped_ns; /* since when */
    bool is_loading;     /* it calls dlopen */
    uint64_t mask;
    bool has_handled; /* a signal during a call */
    struct registers saved;
};

static int fail(struct injector *injector, int error, const char *format, ...) __attribute__((format(printf, 3, 4)));

static int fail(struct injector *injector, int error, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(injector->report->text, sizeof(injector->report->text), format, arguments);
    va_end(arguments);
    injector->report->error = error;
    return error;
}

static uint64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000U + (uint64_t)time.tv_nsec;
}

static void nap(long ns)
{
    const struct timespec time = {0, ns};
    nanosleep(&time, NULL);
}

/* ---- stops ---- */

enum stop {
    STOP_GONE,
    STOP_NONE,   /* in time */
    STOP_ASKED,  /* by PTRACE_INTERRUPT, or with its whole process */
    STOP_SIGNAL, /* it is about to get one */
};

static enum stop await_stop(int32_t tid, uint64_t limit_ns, int *signal_out)
{
    const uint64_t end_ns = now_ns() + limit_ns;
    int status;
    do {
        const pid_t got = waitpid(tid, &status, __WALL | WNOHANG);
        if (got == tid && WIFSTOPPED(status)) {
            *signal_out = WSTOPSIG(status);
            return status >> 16 == PTRACE_EVENT_STOP ? STOP_ASKED : STOP_SIGNAL;
        }
        if (got == tid || (got < 0 && errno != EINTR)) {
            return STOP_GONE;
        }
        nap(STEP_NS);
    } while (now_ns() < end_ns);
    return STOP_NONE;
}

static bool go_on(int32_t tid, int number)
{
    return ptrace(PTRACE_CONT, tid, NULL, (void *)(intptr_t)number) == 0;
}

/* Stopped, with no signal of the program's on its way; one that arrives first is delivered. */
static bool stop_thread(int32_t tid)
{
    if (ptrace(PTRACE_INTERRUPT, tid, NULL, NULL) != 0) {
        return false;
    }
    int number;
    for (;;) {
        const enum stop stop = await_stop(tid, STOP_NS, &number);
        if (stop != STOP_SIGNAL) {
            return stop == STOP_ASKED;
        }
        if (!go_on(tid, number)) {
            return false;
        }
    }
}

/* ---- a thread that may call ---- */

static unsigned list_threads(int32_t pid, int32_t *tids, unsigned max)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/task", pid);
    DIR *folder = opendir(path);
    const struct dirent *entry;
    unsigned count = 0;
    while (folder != NULL && count < max && (entry = readdir(folder)) != NULL) {
        const int32_t tid = (int32_t)strtol(entry->d_name, NULL, 10);
        if (tid > 0) {
            tids[count++] = tid; /* the main thread comes first */
        }
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return count;
}

/* Who traces it; 0: nobody, or it has ended. */
static int32_t tracer_of(const struct injector *injector, int32_t tid)
{
    char process[16];
    snprintf(process, sizeof(process), "%d", injector->target->pid);
    char name[40];
    snprintf(name, sizeof(name), "task/%d/status", tid);
    char status[4096] = "";
    (void)proc_file_read(process, name, status, sizeof(status));
    return (int32_t)session_status_number(status, "TracerPid:");
}

/* False: it is not ours. One that did not stop in time the last time still is. */
static bool take(struct injector *injector, int32_t tid)
{
    int32_t tracer = 0;
    for (unsigned i = 0; i < 2 && tracer == 0; i++) { /* a tracer may have let go of it just now */
        if (ptrace(PTRACE_SEIZE, tid, NULL, NULL) == 0) {
            return true;
        }
        if (errno != EPERM) {
            return false;
        }
        tracer = tracer_of(injector, tid);
    }
    if (tracer != 0 && tracer != getpid()) {
        fail(injector, VARVE_ERROR_BUSY, "process %d is being traced by pid %d: detach that first",
             injector->target->pid, tracer);
    } else if (tracer == 0 && tid == injector->target->pid) {
        fail(injector, VARVE_ERROR_PERMISSION, "%s", "");
    }
    return tracer == getpid();
}

/* False: it can't be had. A thread that has not stopped in time stays seized until this process ends. */
static bool seize(struct injector *injector, int32_t tid, unsigned *place_out)
{
    if (!take(injector, tid) || !stop_thread(tid)) {
        return false;
    }
    injector->stopped_ns = now_ns();
    registers_repeat(tid);
    *place_out = place_of(&injector->rules, injector->running, tid);
    return true;
}

static void let_go(int32_t tid)
{
    ptrace(PTRACE_DETACH, tid, NULL, NULL);
}

static bool thread_is_there(const struct injector *injector, int32_t tid)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/task/%d", injector->target->pid, tid);
    return access(path, F_OK) == 0;
}

/* One look at every thread. True: `tid` is stopped where it may call; or, where `none_in` is a place, none is there. Of
 * a thread that can't be looked at anything is true but that it is outside the recorder. */
static bool look_once(struct injector *injector, unsigned none_in)
{
    int32_t tids[THREADS_MAX];
    const unsigned count = list_threads(injector->target->pid, tids, THREADS_MAX);
    bool is_none = count > 0;
    for (unsigned i = 0; i < count && injector->report->error == VARVE_OK; i++) {
        unsigned place = PLACE_UNKNOWN;
        if (!seize(injector, tids[i], &place)) {
            is_none = is_none && (none_in != PLACE_RECORDER || !thread_is_there(injector, tids[i]));
            continue;
        }
        if (none_in == 0 && (place & injector->call->avoids) == 0) {
            injector->tid = tids[i];
            return true;
        }
        is_none = is_none && (place & none_in) == 0;
        let_go(tids[i]);
    }
    return none_in != 0 && is_none;
}

static const char *trace_hint(void)
{
    FILE *file = fopen("/proc/sys/kernel/yama/ptrace_scope", "re");
    int scope = file != NULL ? fgetc(file) : '0';
    if (file != NULL) {
        fclose(file);
    }
    return scope >= '1' && scope <= '3'
               ? ": kernel.yama.ptrace_scope restricts tracing to parents; sudo sysctl kernel.yama.ptrace_scope=0, or "
                 "be root"
               : ": tracing it needs its user's rights and CAP_SYS_PTRACE where it has dropped or gained rights";
}

static int say_busy(struct injector *injector, unsigned none_in)
{
    if (none_in == PLACE_LOADER) {
        return fail(
            injector, VARVE_ERROR_BUSY,
            "process %d: one of its threads was loading a library, or held the loader's lock elsewhere, for 5 s: try "
            "again",
            injector->target->pid);
    }
    return fail(injector, VARVE_ERROR_BUSY,
                "process %d: no thread was at a place where it may load the recorder (outside of the "
                "allocator, the loader and the kernel's waits for disks) within 5 s: try again",
                injector->target->pid);
}

static int look(struct injector *injector, unsigned none_in)
{
    const uint64_t end_ns = now_ns() + SEARCH_NS;
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/task", injector->target->pid);
    while (!look_once(injector, none_in)) {
        if (injector->report->error == VARVE_ERROR_BUSY) {
            return VARVE_ERROR_BUSY;
        }
        if (injector->report->error == VARVE_ERROR_PERMISSION) {
            return fail(injector, VARVE_ERROR_PERMISSION, "process %d may not be traced%s", injector->target->pid,
                        trace_hint());
        }
        if (access(path, F_OK) != 0) {
            return fail(injector, VARVE_ERROR_NOT_FOUND, "process %d has ended", injector->target->pid);
        }
        if (now_ns() > end_ns) {
            return say_busy(injector, none_in);
        }
        nap(SEARCH_STEP_NS);
    }
    return VARVE_OK;
}

/* ---- the call ---- */

/* A fault of the call itself that the program handles, as it may those of its own memory: collectors of garbage close
 * pages to see who writes to them. */
static bool is_handled(const struct injector *injector, int number)
{
    if (number != SIGSEGV && number != SIGBUS && number != SIGFPE && number != SIGILL && number != SIGTRAP) {
        return false;
    }
    char process[16];
    snprintf(process, sizeof(process), "%d", injector->target->pid);
    char status[4096] = "";
    (void)proc_file_read(process, "status", status, sizeof(status));
    const char *at = strstr(status, "\nSigCgt:");
    return at != NULL && (strtoull(at + 8, NULL, 16) >> (number - 1) & 1) != 0;
}

static bool memory_write(const struct injector *injector, uint64_t at, const void *bytes, size_t count)
{
    const struct iovec from = {(void *)(uintptr_t)bytes, count}, to = {(void *)(uintptr_t)at, count};
    return process_vm_writev(injector->target->pid, &from, 1, &to, 1, 0) == (ssize_t)count;
}

static size_t memory_read(const struct injector *injector, uint64_t at, void *bytes, size_t count)
{
    const struct iovec to = {bytes, count}, from = {(void *)(uintptr_t)at, count};
    const ssize_t got = process_vm_readv(injector->target->pid, &to, 1, &from, 1, 0);
    return got > 0 ? (size_t)got : 0;
}

/* Is there a recursive mutex of the C library that the thread owns? A word of the lock, how often, and by whom. */
static bool owns_mutex_in(const struct injector *injector, uint64_t at, size_t bytes)
{
    int32_t *words = malloc(bytes);
    bool is_found = words == NULL;

    size_t count = words != NULL ? memory_read(injector, at, words, bytes) / sizeof(*words) : 0;
    for (size_t i = 0; i + 2 < count && !is_found; i++) {
        is_found = words[i] != 0 && words[i + 1] > 0 && words[i + 2] == injector->tid;
    }
    free(words);
    return is_found || count == 0;
}

/* May the call not be ended where it waits, because it has one of the loader's locks? Those lie in what the
 * loader may write. */
static bool owns_loader_lock(const struct injector *injector)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/maps", injector->target->pid);
    FILE *file = fopen(path, "re");
    size_t room = 0;
    bool is_known = false, is_owner = false;
    char *line = NULL;
    while (file != NULL && !is_owner && getline(&line, &room, file) > 0) {
        const char *slash = strrchr(line, '/');
        char *end;
        const uint64_t from = strtoull(line, &end, 16), to = *end == '-' ? strtoull(end + 1, &end, 16) : 0;
        if (slash != NULL && strncmp(slash + 1, "ld-", 3) == 0 && strncmp(end, " rw", 3) == 0 && from < to) {
            is_known = true;
            is_owner = to - from > LOADER_BYTES_MAX || owns_mutex_in(injector, from, to - from);
        }
    }
    free(line);
    if (file != NULL) {
        fclose(file);
    }
    return is_owner || !is_known;
}

/* It has stopped in a call that takes long. False: it has to be ended. A wait for a lock may be, while nothing is held
 * that others would miss then: they would find no more than a lock that says that somebody waits. */
static bool may_wait_on(struct injector *injector, uint64_t began_ns)
{
    const uint64_t now = now_ns();
    if (now - began_ns >= CALL_NS) {
        fail(injector, VARVE_ERROR_BUSY,
             "process %d: loading the recorder was not over within 30 s, and was left midway: locks that it held there "
             "stay locked",
             injector->target->pid);
        return false;
    }
    if (injector->is_loading && now - began_ns >= LOCK_NS && registers_wait_for_lock(injector->tid) &&
        !owns_loader_lock(injector)) {
        fail(injector, VARVE_ERROR_BUSY,
             "process %d: a lock that loading the recorder needs was not let go of within 1 s: try again",
             injector->target->pid);
        return false;
    }
    return true;
}

/* A stop of the thread during the call. False: the call is over, with a result or an error. */
static bool handle_stop(struct injector *injector, enum stop stop, int *number, unsigned *faults, uint64_t *result)
{
    if (stop == STOP_GONE) {
        fail(injector, VARVE_ERROR_NOT_FOUND, "process %d has ended", injector->target->pid);
        return false;
    }
    if (stop == STOP_ASKED) {
        *number = 0;
        return true;
    }
    if (*number == SIGSEGV && registers_returned(injector->tid, result)) {
        return false;
    }
    if (*number != SIGSTOP && (!is_handled(injector, *number) || ++*faults > FAULTS_MAX)) {
        fail(injector, VARVE_ERROR_IO,
             "process %d: the recorder got signal %d while it was being loaded or called, and was left midway: "
             "locks that it held there stay locked",
             injector->target->pid, *number);
        return false;
    }
    injector->has_handled = injector->has_handled || *number != SIGSTOP;
    return true;
}

/* The call of this thread is over: True with its result. */
static bool await_return(struct injector *injector, uint64_t *result)
{
    const uint64_t began_ns = now_ns();
    unsigned faults = 0;
    int number = 0;
    for (;;) {
        enum stop stop = await_stop(injector->tid, LOCK_NS, &number);
        if (stop == STOP_NONE) {
            if (ptrace(PTRACE_INTERRUPT, injector->tid, NULL, NULL) != 0) {
                stop = STOP_GONE;
            } else {
                stop = await_stop(injector->tid, STOP_NS, &number);
            }
            if (stop == STOP_NONE) {
                continue; /* in the kernel, busy: it can't be let go of either */
            }
        }
        if (!handle_stop(injector, stop, &number, &faults, result)) {
            return injector->report->error == VARVE_OK;
        }
        if (number == 0 && !may_wait_on(injector, began_ns)) {
            return false;
        }
        if (!go_on(injector->tid, number)) {
            fail(injector, VARVE_ERROR_NOT_FOUND, "process %d has ended", injector->target->pid);
            return false;
        }
    }
}

static bool call_function(struct injector *injector, uint64_t function, const uint64_t arguments[6], uint64_t stack,
                          uint64_t *result)
{
    if (!registers_call(injector->tid, &injector->saved, function, arguments, stack) || !go_on(injector->tid, 0)) {
        fail(injector, VARVE_ERROR_IO, "process %d: its registers could not be set: %s", injector->target->pid,
             strerror(errno));
        return false;
    }
    return await_return(injector, result);
}

/* A text above the stack of the calls. */
static uint64_t text_put(const struct injector *injector, uint64_t memory, const char *text)
{
    const uint64_t at = memory + STACK_BYTES - TARGET_PATH_BYTES;
    return text != NULL && strlen(text) < TARGET_PATH_BYTES && memory_write(injector, at, text, strlen(text) + 1) ? at
                                                                                                                  : 0;
}

static uint64_t calls_stack(uint64_t memory)
{
    return memory + STACK_BYTES - TARGET_PATH_BYTES;
}

static void say_why_not_loaded(struct injector *injector, uint64_t memory)
{
    const uint64_t none[6] = {0};
    char text[300] = "";
    uint64_t at = 0;
    if (injector->open_error != 0 && call_function(injector, injector->open_error, none, calls_stack(memory), &at) &&
        at != 0) {
        text[memory_read(injector, at, text, sizeof(text) - 1)] = '\0';
    }
    fail(injector, VARVE_ERROR_UNSUPPORTED, "process %d can't load the recorder: %s", injector->target->pid,
         text[0] != '\0' ? text : "its loader does not say why");
}

/* Where the library is, once it is loaded. */
static bool load_library(struct injector *injector, uint64_t memory)
{
    const uint64_t arguments[6] = {text_put(injector, memory, injector->call->library), injector->open_mode};
    injector->is_loading = true;
    uint64_t handle = 0;
    if (arguments[0] == 0 || !call_function(injector, injector->open, arguments, calls_stack(memory), &handle)) {
        return false;
    }
    injector->is_loading = false;
    if (handle == 0) {
        say_why_not_loaded(injector, memory);
        return false;
    }
    uint64_t base = 0;
    /* struct link_map begins with the difference between addresses in memory and in the file */
    if (memory_read(injector, handle, &base, sizeof(base)) != sizeof(base)) {
        return false;
    }
    injector->function = base + injector->function_in_file;
    return true;
}

static void make_calls(struct injector *injector, uint64_t memory)
{
    if (injector->function == 0 && !load_library(injector, memory)) {
        return;
    }
    uint64_t arguments[6] = {0};
    if (injector->call->argument != NULL) {
        arguments[0] = text_put(injector, memory, injector->call->argument);
    }
    uint64_t answer = 0;
    if ((arguments[0] != 0 || injector->call->argument == NULL) &&
        call_function(injector, injector->function, arguments, calls_stack(memory), &answer)) {
        injector->report->result.answer = (int)answer;
    }
}

/* All but those that a fault of the call itself raises: blocked ones of these would end the process. */
static uint64_t blocked_signals(void)
{
    static const int open[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS, SIGKILL, SIGSTOP};
    uint64_t mask = UINT64_MAX;
    for (size_t i = 0; i < sizeof(open) / sizeof(open[0]); i++) {
        mask &= ~(UINT64_C(1) << (open[i] - 1));
    }
    return mask;
}

static bool thread_save(struct injector *injector)
{
    uint64_t mask = blocked_signals();
    return registers_read(injector->tid, &injector->saved) &&
           ptrace(PTRACE_GETSIGMASK, injector->tid, sizeof(injector->mask), &injector->mask) == 0 &&
           ptrace(PTRACE_SETSIGMASK, injector->tid, sizeof(mask), &mask) == 0;
}

static void thread_restore(struct injector *injector)
{
    if (injector->has_handled) {
        registers_repeat_anew(injector->tid, &injector->saved);
    }
    registers_write(injector->tid, &injector->saved);
    ptrace(PTRACE_SETSIGMASK, injector->tid, sizeof(injector->mask), &injector->mask);
    let_go(injector->tid);
    injector->report->result.stopped_ns = now_ns() - injector->stopped_ns;
}

/* The thread is stopped. */
static void call_there(struct injector *injector)
{
    const uint64_t wanted[6] = {0, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, UINT64_MAX, 0};
    uint64_t given_back[6] = {0, STACK_BYTES};
    if (!thread_save(injector)) {
        fail(injector, VARVE_ERROR_IO, "process %d: its registers can't be read: %s", injector->target->pid,
             strerror(errno));
        let_go(injector->tid);
        return;
    }
    uint64_t stack = registers_free_stack(&injector->saved);
    uint64_t memory = 0, ignored;
    if (call_function(injector, injector->map, wanted, stack, &memory)) {
        if (memory >= UINT64_MAX - 4095) {
            fail(injector, VARVE_ERROR_NO_MEMORY, "process %d has no memory for the recorder", injector->target->pid);
        } else {
            make_calls(injector, memory);
            given_back[0] = memory;
            if (injector->report->error == VARVE_OK || injector->report->error == VARVE_ERROR_UNSUPPORTED) {
                call_function(injector, injector->unmap, given_back, stack, &ignored);
            }
        }
    }
    thread_restore(injector);
}

/* ---- the child ---- */

static void work(struct injector *injector)
{
    if (injector->call->needs_quiet && look(injector, PLACE_RECORDER) != VARVE_OK) {
        return;
    }
    /* a thread that waited for the loader's lock would be held as long as another one has it */
    if (injector->call->library != NULL && look(injector, PLACE_LOADER) != VARVE_OK) {
        return;
    }
    if (look(injector, 0) == VARVE_OK) {
        call_there(injector);
    }
}

static int find_functions(struct injector *injector)
{
    const struct target *target = injector->target;
    const char *file = target->recorder.path[0] != '\0' ? target->recorder.path : injector->call->library;
    injector->map = target_function(&target->libc, "mmap");
    injector->unmap = target_function(&target->libc, "munmap");
    injector->open_mode = RTLD_NOW;
    injector->open = target_function(&target->libc, "dlopen");
    injector->open_error = target_function(&target->libc, "dlerror");
    if (injector->open == 0) {
        injector->open = target_function(&target->libdl, "dlopen");
        injector->open_error = target_function(&target->libdl, "dlerror");
    }
    if (injector->open == 0) {
        injector->open = target_function(&target->libc, "__libc_dlopen_mode");
        injector->open_mode |= LIBC_DLOPEN_MODE;
    }
    injector->function_in_file = injector->call->function_at;
    if (injector->function_in_file == 0 && file != NULL) {
        injector->function_in_file = symbols_file_function(file, injector->call->function);
    }
    if (target->recorder.path[0] != '\0') {
        injector->function = target->recorder.base + injector->function_in_file;
    }
    if (injector->map == 0 || injector->unmap == 0 || injector->open == 0 || injector->function_in_file == 0) {
        return fail(injector, VARVE_ERROR_UNSUPPORTED, "process %d: %s has not the functions that are needed",
                    target->pid, injector->function_in_file == 0 && file != NULL ? file : target->libc.path);
    }
    return VARVE_OK;
}

/* Nothing that is meant for the command, from a terminal or by a signal to its group, ends or stops the child midway.
 * All signals are blocked in it, and `pkill -9 varve` does not mean it. */
static void be_on_its_own(void)
{
    setsid();
    prctl(PR_SET_NAME, "attach-injector");
}

static pid_t fork_blocked(void)
{
    sigset_t all;
    sigfillset(&all);
    sigset_t before;
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t child = fork();
    if (child != 0) {
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    return child;
}

static int run_child(struct injector *injector)
{
    const pid_t child = fork_blocked();
    int status = 0;
    if (child == 0) {
        be_on_its_own();
        work(injector);
        _exit(0);
    }
    if (child < 0) {
        return fail(injector, VARVE_ERROR_NO_MEMORY, "no process could be made: %s", strerror(errno));
    }
    for (;;) {
        const pid_t got = waitpid(child, &status, injector->call->idle != NULL ? WNOHANG : 0);
        if (got == child || (got < 0 && errno != EINTR)) {
            break;
        }
        if (injector->call->idle != NULL) {
            injector->call->idle(injector->call->idle_context);
            nap(SEARCH_STEP_NS);
        }
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        return fail(injector, VARVE_ERROR_IO, "the injector ended early (status %d)", status);
    }
    return injector->report->error;
}

int inject_call(const struct target *target, const struct inject_call *call, struct inject_result *result,
                struct varve_message *message)
{
    struct injector *injector = calloc(1, sizeof(*injector));
    struct report *report = mmap(NULL, sizeof(*report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    *result = (struct inject_result){0};
    int error = VARVE_ERROR_NO_MEMORY;
    if (injector == NULL || report == MAP_FAILED) {
        free(injector);
        return varve_message_set(message, error, "no memory for the injector");
    }
    injector->target = target;
    injector->call = call;
    injector->report = report;
    place_rules_init(&injector->rules, target);
    error = registers_are_known()
                ? find_functions(injector)
                : fail(injector, VARVE_ERROR_UNSUPPORTED, "varve can't attach to programs on this machine");
    if (error == VARVE_OK) {
        injector->running = symbols_running_open(target->pid);
        error = injector->running != NULL ? run_child(injector)
                                          : fail(injector, VARVE_ERROR_NOT_FOUND, "process %d has ended", target->pid);
    }
    *result = report->result;
    if (error != VARVE_OK) {
        varve_message_set(message, error, "%s", report->text);
    }
    symbols_running_close(injector->running);
    munmap(report, sizeof(*report));
    free(injector);
    return error;
}
