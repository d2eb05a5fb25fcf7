/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Takes Python stacks inside a real interpreter, for unit/trace/recorder/stacks/test_python_stack.c and
 * python_stack_probe.py: on request (loaded by ctypes), at an allocation of a chosen size, or, preloaded with
 * PYTHON_STACK_PROBE=every, at every call of the malloc family, describing each frame. Each time the hash that
 * python_stack_hash makes of what it remembers must be that of the frames. PYTHON_STACK_PROBE_REPORT names a file for
 * the counts at exit; PYTHON_STACK_PROBE_SANDBOX=1 forbids process_vm_readv. It is the python_*.c files of trace/ and
 * this file, without the recorder: recorder_reentrant_begin and _end are its own.
 */
#include "trace/recorder/guest/clock.h"
#include "trace/recorder/guest/memory.h"
#include "trace/recorder/guest/reentrant.h"
#include "trace/recorder/guest/signals.h"
#include "trace/recorder/stacks/python/layout.h"
#include "trace/recorder/stacks/python/memo.h"
#include "trace/recorder/stacks/python/pages.h"
#include "trace/recorder/stacks/python/parent_stack.h"
#include "trace/recorder/stacks/python/stack.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PROBE_EXPORT __attribute__((visibility("default")))
#define FRAMES_MAX 256U
#define NATIVE_MAX 2048

PROBE_EXPORT unsigned probe_capture(char *out, size_t bytes, unsigned max);
PROBE_EXPORT unsigned probe_capture_elsewhere(char *out, size_t bytes, int inherits);
PROBE_EXPORT unsigned probe_entries(void);
PROBE_EXPORT void probe_watch(size_t bytes);
PROBE_EXPORT unsigned probe_watched(char *out, size_t bytes);
PROBE_EXPORT unsigned long probe_hashes(void);
PROBE_EXPORT int probe_thread_end(void);

__thread uint32_t recorder_reentrant_depth;
uint32_t varve_clock_is_tsc;

void recorder_clock_leave(void)
{
}

static __thread __attribute__((tls_model("initial-exec"))) bool observing;
static bool every_call;
static size_t watched_bytes;
static unsigned watched_count;
static char watched_text[1 << 16];
static _Atomic unsigned long calls, stacks, frames_seen, frames_bad, depth_max;
static _Atomic unsigned long hashes_right, hashes_wrong, hashes_unknown;

void recorder_reentrant_begin(struct recorder_signals *saved)
{
    (void)saved;
    recorder_reentrant_depth++;
}

void recorder_reentrant_end(const struct recorder_signals *saved)
{
    (void)saved;
    recorder_reentrant_depth--;
}

/* ---- stacks as text: one frame a line, entry TAB function TAB file TAB line ---- */

static unsigned describe(const struct python_frame *frames, unsigned count, char *out, size_t bytes)
{
    size_t used = 0;
    out[0] = '\0';
    for (unsigned i = 0; i < count; i++) {
        char name[512];
        char file[512];
        uint32_t line;
        if (!python_stack_describe(&frames[i], name, sizeof(name), file, sizeof(file), &line)) {
            return 0;
        }
        int length = snprintf(out + used, bytes - used, "%d\t%s\t%s\t%u\n", frames[i].is_entry, name, file, line);
        if (length < 0 || (size_t)length >= bytes - used) {
            return 0;
        }
        used += (size_t)length;
    }
    return count;
}

static bool hash_agrees(const struct python_frame *frames, unsigned count, unsigned max)
{
    struct stack_hash hash = {0};
    unsigned hashed = python_stack_hash(&hash, max);
    if (hashed == PYTHON_STACK_UNKNOWN) {
        hashes_unknown++;
        return true;
    }
    struct stack_hash wanted = python_hash_frames(frames, count < max ? count : max);
    bool agrees = hashed == (count < max ? count : max) && hash.low == wanted.low && hash.high == wanted.high;
    *(agrees ? &hashes_right : &hashes_wrong) += 1;
    return agrees;
}

/* The frames, at most FRAMES_MAX, and the hash of what a recording keeps of them; now and then also that of
 * fewer. */
static unsigned capture(struct python_frame *frames, unsigned max, bool *agrees)
{
    static _Atomic unsigned turn;
    unsigned count = python_stack_capture(frames, max);
    unsigned few = 1 + turn++ % 200;
    *agrees = hash_agrees(frames, count, max < PYTHON_MEMO_FRAMES_MAX ? max : PYTHON_MEMO_FRAMES_MAX) &&
              (few > max || few > PYTHON_MEMO_FRAMES_MAX || few % 4 != 0 || hash_agrees(frames, count, few));
    return count;
}

PROBE_EXPORT unsigned probe_capture(char *out, size_t bytes, unsigned max)
{
    struct python_frame frames[FRAMES_MAX];
    bool agrees;
    unsigned count = capture(frames, max < FRAMES_MAX ? max : FRAMES_MAX, &agrees);
    return agrees ? describe(frames, count, out, bytes) : 0;
}

/* How many hashes were made from what was remembered; 0 if one was wrong. */
PROBE_EXPORT unsigned long probe_hashes(void)
{
    return hashes_wrong == 0 ? hashes_right : 0;
}

/* As the recorder does in the last destructor of a thread, which may go on to free memory. */
PROBE_EXPORT int probe_thread_end(void)
{
    struct stack_hash hash;
    bool remembers = python_stack_hash(&hash, PYTHON_MEMO_FRAMES_MAX) != PYTHON_STACK_UNKNOWN;
    python_memo_thread_end();
    python_memo_thread_end();
    return remembers && python_stack_hash(&hash, PYTHON_MEMO_FRAMES_MAX) == PYTHON_STACK_UNKNOWN;
}

struct elsewhere {
    char *out;
    size_t bytes;
    unsigned count;
    bool inherits;
};

static void *capture_in_thread(void *argument)
{
    struct elsewhere *elsewhere = argument;
    struct python_frame frames[FRAMES_MAX];
    unsigned count =
        elsewhere->inherits ? parent_stack_inherit(frames, FRAMES_MAX) : python_stack_capture(frames, FRAMES_MAX);
    elsewhere->count = describe(frames, count, elsewhere->out, elsewhere->bytes);
    return NULL;
}

/* From a thread that Python does not know, while the caller holds the GIL. */
PROBE_EXPORT unsigned probe_capture_elsewhere(char *out, size_t bytes, int inherits)
{
    struct elsewhere elsewhere = {.out = out, .bytes = bytes, .count = ~0U, .inherits = inherits != 0};
    pthread_t thread;
    if (pthread_create(&thread, NULL, capture_in_thread, &elsewhere) == 0) {
        pthread_join(thread, NULL);
    }
    return elsewhere.count;
}

/* Interpreter loops on the C stack: what the entry frames must be as many as. */
PROBE_EXPORT unsigned probe_entries(void)
{
    static void *pcs[NATIVE_MAX];
    int depth = backtrace(pcs, NATIVE_MAX);
    unsigned loops = 0;
    for (int i = 0; i < depth; i++) {
        Dl_info info;
        if (dladdr((char *)pcs[i] - 1, &info) != 0 && info.dli_sname != NULL &&
            strcmp(info.dli_sname, "_PyEval_EvalFrameDefault") == 0) {
            loops++;
        }
    }
    return loops;
}

PROBE_EXPORT void probe_watch(size_t bytes)
{
    watched_count = 0;
    watched_bytes = bytes;
}

PROBE_EXPORT unsigned probe_watched(char *out, size_t bytes)
{
    watched_bytes = 0;
    snprintf(out, bytes, "%s", watched_text);
    return watched_count;
}

/* ---- the malloc family ---- */

static void observe_all(void)
{
    struct python_frame frames[FRAMES_MAX];
    bool agrees;
    unsigned count = capture(frames, FRAMES_MAX, &agrees);
    calls++;
    frames_bad += !agrees;
    if (count == 0) {
        return;
    }
    stacks++;
    frames_seen += count;
    if (count > depth_max) {
        depth_max = count;
    }
    for (unsigned i = 0; i < count; i++) {
        char name[256];
        char file[256];
        uint32_t line;
        if (!python_stack_describe(&frames[i], name, sizeof(name), file, sizeof(file), &line) || name[0] == '\0' ||
            file[0] == '\0' || line > 1000000) {
            frames_bad++;
        }
    }
}

/* Names now and then only: the handler must be faster than its timer. */
static void on_signal(int number)
{
    (void)number;
    if (calls % 16 == 0 && recorder_reentrant_depth == 0) {
        observe_all();
        return;
    }
    calls++;
    bool agrees;
    struct python_frame frames[FRAMES_MAX];
    unsigned count = capture(frames, FRAMES_MAX, &agrees);
    stacks += count > 0;
    frames_seen += count;
}

static void observe(size_t bytes)
{
    bool watched = watched_bytes != 0 && bytes >= watched_bytes && bytes < watched_bytes + 256;
    if (observing || recorder_reentrant_depth > 0 || (!every_call && !watched)) {
        return;
    }
    observing = true;
    if (watched) {
        watched_count = probe_capture(watched_text, sizeof(watched_text), FRAMES_MAX);
    } else {
        observe_all();
    }
    observing = false;
}

static struct {
    void *(*malloc)(size_t);
    void *(*calloc)(size_t, size_t);
    void *(*realloc)(void *, size_t);
    void (*free)(void *);
} real;

/* What dlsym itself allocates while the real functions are looked up; never given back. */
static _Alignas(16) char early[4096];
static size_t early_used;

static void *early_block(size_t bytes)
{
    size_t at = early_used;
    early_used += (bytes + 15) & ~(size_t)15;
    if (early_used > sizeof(early)) {
        abort();
    }
    return early + at;
}

static bool ready(void)
{
    static bool looking;
    if (real.free != NULL) {
        return true;
    }
    if (looking) {
        return false;
    }
    looking = true;
    *(void **)&real.malloc = dlsym(RTLD_NEXT, "malloc");
    *(void **)&real.calloc = dlsym(RTLD_NEXT, "calloc");
    *(void **)&real.realloc = dlsym(RTLD_NEXT, "realloc");
    *(void **)&real.free = dlsym(RTLD_NEXT, "free");
    return true;
}

PROBE_EXPORT void *malloc(size_t bytes)
{
    if (!ready()) {
        return early_block(bytes);
    }
    observe(bytes);
    return real.malloc(bytes);
}

PROBE_EXPORT void *calloc(size_t count, size_t bytes)
{
    if (!ready()) {
        return early_block(count * bytes);
    }
    observe(count * bytes);
    return real.calloc(count, bytes);
}

PROBE_EXPORT void *realloc(void *block, size_t bytes)
{
    if (!ready()) {
        abort();
    }
    observe(bytes);
    return real.realloc(block, bytes);
}

PROBE_EXPORT void free(void *block)
{
    if (!ready() || ((char *)block >= early && (char *)block < early + sizeof(early))) {
        return;
    }
    observe(0);
    real.free(block);
}

/* ---- start and end ---- */

static void forbid_readv(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof(filter) / sizeof(filter[0]), .filter = filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        abort();
    }
}

static void start_timer(void)
{
    struct python_frame frames[1];
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN};
    struct itimerspec period = {.it_interval = {.tv_nsec = 50000}, .it_value = {.tv_nsec = 50000}};
    /* The interpreter is looked for here, where malloc is not interrupted. */
    (void)python_stack_capture(frames, 1);
    timer_t timer;
    if (sigaction(SIGRTMIN, &action, NULL) != 0 || timer_create(CLOCK_MONOTONIC, &event, &timer) != 0 ||
        timer_settime(timer, 0, &period, NULL) != 0) {
        abort();
    }
}

__attribute__((constructor)) static void probe_start(void)
{
    const char *mode = getenv("PYTHON_STACK_PROBE");
    if (getenv("PYTHON_STACK_PROBE_SANDBOX") != NULL) {
        forbid_readv();
    }
    every_call = mode != NULL && strcmp(mode, "every") == 0;
    if (mode != NULL && strcmp(mode, "signals") == 0) {
        start_timer();
    }
}

__attribute__((destructor)) static void probe_end(void)
{
    const char *path = getenv("PYTHON_STACK_PROBE_REPORT");
    if (path == NULL) {
        return;
    }
    every_call = false;
    signal(SIGRTMIN, SIG_IGN);
    FILE *stream = fopen(path, "w");
    if (stream == NULL) {
        return;
    }
    fprintf(stream, "%lu %lu %lu %lu %lu %lu %lu %lu\n", calls, stacks, frames_seen, frames_bad, depth_max,
            hashes_right, hashes_wrong, hashes_unknown);
    fclose(stream);
}
