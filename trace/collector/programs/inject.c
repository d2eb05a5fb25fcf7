/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The injector. Of a thread that may call (thread_look.c) the registers and the signal mask are kept, it is given those
 * of a call that returns to address 0, and goes on: the other threads run all the while, so that whoever holds a lock
 * that the call needs lets go of it. The call is made on memory of its own, which mmap, called first and in need of
 * next to nothing, has given. The fault at address 0 ends it; it is seen by the tracer alone. Signals are blocked in
 * the thread meanwhile, but for those that a fault raises. Another thread may execute a program at any time: then this
 * one is gone, and what is written goes by the thread, never by the number of the process.
 */
#include "trace/collector/programs/inject.h"

#include "trace/collector/programs/thread_look.h"
#include "trace/collector/programs/attach_registers.h"
#include "base/monotonic.h"
#include "base/proc_file.h"
#include "base/error.h"
#include "trace/symbols/running_process.h"

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
#include <unistd.h>

#define STACK_BYTES (UINT64_C(512) << 10)
#define CALL_NS UINT64_C(30000000000) /* for the whole of a call */
#define LOCK_NS UINT64_C(1000000000)  /* for a lock */
#define LOADER_BYTES_MAX (UINT64_C(64) << 10)
#define FAULTS_MAX 10000U /* of one call, handled by the program */
#define IDLE_NS 2000000L
#define OWN_BYTES 4096U              /* of three parts with what the C library keeps of a thread */
#define LIBC_DLOPEN_MODE 0x80000000U /* what __libc_dlopen_mode wants to be told */

/* What the child tells its parent. */
struct report {
    int error;
    struct inject_result result;
    struct varve_message message;
};

struct injector {
    const struct target *target;
    const struct inject_call *call;
    struct look look;
    struct report *report;
    /* functions in the target */
    uint64_t map, unmap, open, open_error, function;
    uint64_t open_mode;
    uint64_t function_in_file;
    /* the thread */
    int32_t tid;
    uint64_t stopped_ns; /* since when */
    bool is_loading;     /* it calls dlopen */
    bool has_given_up;   /* it waited there for a lock */
    uint64_t mask;
    bool has_lost_rest; /* of the time of a call that it was in: there was another stop */
    struct registers saved;
    uint64_t own[3 * OWN_BYTES / sizeof(uint64_t)]; /* of the C library's */
    uint64_t own_at;
    size_t own_bytes;
};

static int inject_fail(struct injector *injector, int error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static int inject_fail(struct injector *injector, int error, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(injector->report->message.text, sizeof(injector->report->message.text), format, arguments);
    va_end(arguments);
    injector->report->error = error;
    return error;
}

/* ---- the call ---- */

/* A fault of the call itself that the program handles, as it may those of its own memory: collectors of garbage close
 * pages to see who writes to them. */
static bool is_handled(const struct injector *injector, int number)
{
    if (number != SIGSEGV && number != SIGBUS && number != SIGFPE && number != SIGILL && number != SIGTRAP) {
        return false;
    }
    char status[4096];
    (void)proc_file_read(injector->tid, "status", status, sizeof(status));
    const char *at = strstr(status, "\nSigCgt:");
    return at != NULL && (strtoull(at + 8, NULL, 16) >> (number - 1) & 1) != 0;
}

/* In words of the thread's memory, which stay what they are beyond the end. */
static bool memory_write(const struct injector *injector, uint64_t at, const void *bytes, size_t count)
{
    for (size_t i = 0; i < count; i += sizeof(long)) {
        const size_t part = count - i < sizeof(long) ? count - i : sizeof(long);
        errno = 0;
        long word = part < sizeof(long) ? ptrace(PTRACE_PEEKDATA, injector->tid, (void *)(uintptr_t)(at + i), NULL) : 0;
        memcpy(&word, (const char *)bytes + i, part);
        if (errno != 0 || ptrace(PTRACE_POKEDATA, injector->tid, (void *)(uintptr_t)(at + i), (void *)word) != 0) {
            return false;
        }
    }
    return true;
}

static size_t memory_read(const struct injector *injector, uint64_t at, void *bytes, size_t count)
{
    const struct iovec to = {bytes, count}, from = {(void *)(uintptr_t)at, count};
    const ssize_t got = process_vm_readv(injector->tid, &to, 1, &from, 1, 0);
    return got > 0 ? (size_t)got : 0;
}

/* ---- waits for locks ---- */

/* Is there a recursive mutex of the C library that the thread owns? A word of the lock, how often, and by whom. */
static bool owns_mutex_in(const struct injector *injector, uint64_t at, size_t bytes)
{
    const int32_t innermost = proc_file_innermost(injector->tid), number = innermost != 0 ? innermost : injector->tid;
    int32_t *words = malloc(bytes);
    bool is_found = words == NULL;
    size_t count = words != NULL ? memory_read(injector, at, words, bytes) / sizeof(*words) : 0;
    for (size_t i = 0; i + 2 < count && !is_found; i++) {
        is_found = words[i] != 0 && words[i + 1] > 0 && words[i + 2] == number;
    }
    free(words);
    return is_found || count == 0;
}

/* May the call not be ended where it waits, because it has one of the loader's locks? Those lie in what the
 * loader may write. */
static bool owns_loader_lock(const struct injector *injector)
{
    struct proc_maps maps;
    struct proc_map map;
    bool is_known = false, is_owner = false;
    (void)proc_maps_open(&maps, injector->tid);
    while (!is_owner && proc_maps_next(&maps, &map)) {
        const char *slash = strrchr(map.path, '/');
        const uint64_t bytes = map.end - map.start;
        if (slash != NULL && strncmp(slash + 1, "ld-", 3) == 0 && strncmp(map.rights, "rw", 2) == 0) {
            is_known = true;
            is_owner = bytes > LOADER_BYTES_MAX || owns_mutex_in(injector, map.start, bytes);
        }
    }
    proc_maps_close(&maps);
    return is_owner || !is_known;
}

/* What the C library keeps of a thread points into stacks, as to who handles an error: a call that is given up must not
 * be found there. */
static void own_save(struct injector *injector)
{
    const uint64_t pointer = registers_thread_pointer(injector->tid);
    const uint64_t page = pointer & ~(uint64_t)(OWN_BYTES - 1);
    for (unsigned before = 0; before < 2 && pointer != 0 && injector->own_bytes == 0; before++) {
        injector->own_at = before == 0 ? page - OWN_BYTES : page;
        injector->own_bytes = memory_read(injector, injector->own_at, injector->own, sizeof(injector->own));
    }
}

static void own_restore(const struct injector *injector, uint64_t memory)
{
    uint64_t now[sizeof(injector->own) / sizeof(injector->own[0])];
    const size_t count = memory_read(injector, injector->own_at, now, injector->own_bytes) / sizeof(now[0]);
    for (size_t i = 0; i < count; i++) {
        if (now[i] - memory < STACK_BYTES && now[i] != injector->own[i]) {
            (void)memory_write(injector, injector->own_at + i * sizeof(now[0]), &injector->own[i], sizeof(now[0]));
        }
    }
}

/* ---- a call ---- */

/* It has stopped in a call that takes long. False: it has to be ended. A wait for a lock may be, while nothing is held
 * that others would miss then: they would find no more than a lock that says that somebody waits. */
static bool may_wait_on(struct injector *injector, uint64_t began_ns)
{
    const uint64_t now = monotonic_ns();
    if (now - began_ns >= CALL_NS) {
        inject_fail(
            injector, VARVE_ERROR_BUSY,
            "process %d: loading the recorder was not over within 30 s, and was left midway: locks that it held there "
            "stay locked",
            injector->target->pid);
        return false;
    }
    if (injector->is_loading && now - began_ns >= LOCK_NS && registers_wait_for_lock(injector->tid) &&
        !owns_loader_lock(injector)) {
        injector->has_given_up = true;
        inject_fail(injector, VARVE_ERROR_BUSY,
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
        injector->report->error = look_say_gone(&injector->look);
        return false;
    }
    if (stop == STOP_ASKED || stop == STOP_WHOLE) { /* who is stopped with its process ends the call before */
        registers_repeat(injector->tid);
        injector->has_lost_rest = true;
        *number = 0;
        return true;
    }
    if (*number == SIGSEGV && registers_returned(injector->tid, result)) {
        return false;
    }
    if (*number != SIGSTOP && (!is_handled(injector, *number) || ++*faults > FAULTS_MAX)) {
        inject_fail(injector, VARVE_ERROR_IO,
                    "process %d: the recorder got signal %d while it was being loaded or called, and was left midway: "
                    "locks that it held there stay locked",
                    injector->target->pid, *number);
        return false;
    }
    injector->has_lost_rest = injector->has_lost_rest || *number != SIGSTOP;
    return true;
}

/* The call of this thread is over: True with its result. */
static bool await_return(struct injector *injector, uint64_t *result)
{
    const uint64_t began_ns = monotonic_ns();
    unsigned faults = 0;
    int number = 0;
    for (;;) {
        enum stop stop = stop_await(injector->tid, LOCK_NS, &number);
        if (stop == STOP_NONE) {
            if (ptrace(PTRACE_INTERRUPT, injector->tid, NULL, NULL) != 0) {
                stop = STOP_GONE;
            } else {
                stop = stop_await(injector->tid, STOP_NS, &number);
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
        if (!stop_go_on(injector->tid, number)) {
            injector->report->error = look_say_gone(&injector->look);
            return false;
        }
    }
}

static bool inject_call_function(struct injector *injector, uint64_t function, const uint64_t arguments[6],
                                 uint64_t stack, uint64_t *result)
{
    if (!registers_call(injector->tid, &injector->saved, function, arguments, stack) || !stop_go_on(injector->tid, 0)) {
        if (errno != ESRCH) {
            inject_fail(injector, VARVE_ERROR_IO, "process %d: its registers could not be set: %s",
                        injector->target->pid, strerror(errno));
        } else {
            injector->report->error = look_say_gone(&injector->look);
        }
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
    if (injector->open_error != 0 &&
        inject_call_function(injector, injector->open_error, none, calls_stack(memory), &at) && at != 0) {
        text[memory_read(injector, at, text, sizeof(text) - 1)] = '\0';
    }
    inject_fail(injector, VARVE_ERROR_UNSUPPORTED, "process %d can't load the recorder: %s", injector->target->pid,
                text[0] != '\0' ? text : "its loader does not say why");
}

/* Where the library is, once it is loaded. */
static bool load_library(struct injector *injector, uint64_t memory)
{
    const uint64_t arguments[6] = {text_put(injector, memory, injector->call->library), injector->open_mode};
    injector->is_loading = true;
    uint64_t handle = 0;
    if (arguments[0] == 0 || !inject_call_function(injector, injector->open, arguments, calls_stack(memory), &handle)) {
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
        inject_call_function(injector, injector->function, arguments, calls_stack(memory), &answer)) {
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
    own_save(injector);
    return registers_read(injector->tid, &injector->saved) &&
           ptrace(PTRACE_GETSIGMASK, injector->tid, sizeof(injector->mask), &injector->mask) == 0 &&
           ptrace(PTRACE_SETSIGMASK, injector->tid, sizeof(mask), &mask) == 0;
}

static void thread_restore(struct injector *injector)
{
    if (injector->has_lost_rest) {
        registers_repeat_anew(injector->tid, &injector->saved);
    }
    registers_write(injector->tid, &injector->saved);
    ptrace(PTRACE_SETSIGMASK, injector->tid, sizeof(injector->mask), &injector->mask);
    stop_let_go(injector->tid);
    injector->report->result.stopped_ns = monotonic_ns() - injector->stopped_ns;
}

/* The calls are over, and their memory goes, unless something of what was left midway may lie there. */
static void inject_give_back(struct injector *injector, uint64_t memory, uint64_t stack)
{
    const uint64_t arguments[6] = {memory, STACK_BYTES};
    const int error = injector->report->error;
    uint64_t ignored;
    if (injector->has_given_up && injector->own_bytes > 0) {
        own_restore(injector, memory);
    } else if (error != VARVE_OK && error != VARVE_ERROR_UNSUPPORTED) {
        return;
    }
    inject_call_function(injector, injector->unmap, arguments, stack, &ignored);
}

/* The thread is stopped. */
static void call_there(struct injector *injector)
{
    const uint64_t wanted[6] = {0, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, UINT64_MAX, 0};
    if (!target_is_same(injector->target, injector->tid) || !thread_save(injector)) {
        injector->report->error = look_say_gone(&injector->look);
        stop_let_go(injector->tid);
        return;
    }
    sequence_abort(injector->tid, &injector->saved);
    const uint64_t stack = registers_free_stack(&injector->saved);
    uint64_t memory = 0;
    if (inject_call_function(injector, injector->map, wanted, stack, &memory)) {
        if (memory >= UINT64_MAX - 4095) {
            inject_fail(injector, VARVE_ERROR_NO_MEMORY, "process %d has no memory for the recorder",
                        injector->target->pid);
        } else {
            make_calls(injector, memory);
            inject_give_back(injector, memory, stack);
        }
    }
    thread_restore(injector);
}

/* ---- the child ---- */

static void work(struct injector *injector)
{
    struct look *look = &injector->look;
    int error = injector->call->needs_quiet ? look_for_none(look, PLACE_RECORDER) : VARVE_OK;
    /* a thread that waited for the loader's lock would be held as long as another one has it */
    if (injector->call->library != NULL) {
        VARVE_THEN(error, look_for_none(look, PLACE_LOADER));
    }
    VARVE_THEN(error, look_for_caller(look, injector->call->avoids, &injector->tid, &injector->stopped_ns));
    injector->report->error = error;
    if (error == VARVE_OK) {
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
        return inject_fail(injector, VARVE_ERROR_UNSUPPORTED, "process %d: %s has not the functions that are needed",
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
        return inject_fail(injector, VARVE_ERROR_NO_MEMORY, "no process could be made: %s", strerror(errno));
    }
    for (;;) {
        const pid_t got = waitpid(child, &status, injector->call->idle != NULL ? WNOHANG : 0);
        if (got == child || (got < 0 && errno != EINTR)) {
            break;
        }
        if (injector->call->idle != NULL) {
            injector->call->idle(injector->call->idle_context);
            monotonic_nap(IDLE_NS);
        }
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        return inject_fail(injector, VARVE_ERROR_IO, "the injector ended early (status %d)", status);
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
    place_rules_init(&injector->look.rules, target);
    injector->look.target = target;
    injector->look.message = &report->message;
    injector->look.parent = call->library != NULL ? getpid() : 0;
    error = registers_are_known()
                ? find_functions(injector)
                : inject_fail(injector, VARVE_ERROR_UNSUPPORTED, "varve can't attach to programs on this machine");
    if (error == VARVE_OK) {
        injector->look.running = symbols_running_open(proc_file_thread(target->pid));
        error = injector->look.running != NULL ? run_child(injector) : look_say_gone(&injector->look);
    }
    *result = report->result;
    if (error != VARVE_OK) {
        varve_message_set(message, error, "%s", report->message.text);
    }
    symbols_running_close(injector->look.running);
    munmap(report, sizeof(*report));
    free(injector);
    return error;
}
