/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What python_frames.py cannot do by itself: an allocation's record from a thread that Python does not know, with the
 * stack that such a thread inherits; how many loops of the interpreter are on the C stack; and whether the hash that
 * python_stack_hash makes of what it remembers is that of the frames (the recorder would only be slower for another
 * one), by the sources of trace/stacks once more, without the recorder. Preloaded with
 * PYTHON_FRAMES_TIMER in the environment it maps and unmaps a page from a signal handler again and again.
 */
#include "support/recorder_absent.h"
#include "trace/stacks/python_stack.h"
#include "trace/emit.h"
#include "trace/record.h"

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define NATIVE_MAX 4096
#define DEPTH 256U

int count_loops(void);
int memo_agrees(void);
void *allocate(void *bytes);
int allocate_elsewhere(size_t bytes);
int call_elsewhere(void (*function)(void));

static int is_cut(const struct python_frame *frames, unsigned count)
{
    while (count > 0 && frames[count - 1].code != NULL) {
        count--;
    }
    return count > 0;
}

/* So must be the frames that lie inside of a part of them, if none are left out. */
static int inner_agrees(struct stack_hash hash, const struct python_frame *frames, unsigned count)
{
    static struct python_frame inner[STACK_ENDS];
    static uint64_t hashes[STACK_ENDS], outer[STACK_ENDS];
    for (unsigned i = 0; i < count; i++) {
        outer[count - 1 - i] = python_hash_frames(&frames[i], count - i).low;
    }
    for (unsigned known = 0; known <= count; known += 1 + count / 3) {
        const unsigned found = python_stack_inner(hash, count, outer, known, inner, hashes);
        if (found == PYTHON_STACK_UNKNOWN) {
            return is_cut(frames, count);
        }
        if (found != count - known) {
            return 0;
        }
        for (unsigned i = 0; i < found; i++) {
            if (hashes[i] != outer[count - 1 - i] || inner[i].code != frames[i].code ||
                inner[i].name != frames[i].name || inner[i].filename != frames[i].filename ||
                inner[i].first_line != frames[i].first_line || inner[i].instruction != frames[i].instruction ||
                inner[i].is_entry != frames[i].is_entry) {
                return 0;
            }
        }
    }
    return 1;
}

/* Of what is kept with this depth: 0 no, 1 yes, 2 there is no hash yet. */
static int hash_agrees(unsigned depth)
{
    static struct python_frame frames[STACK_ENDS], unused[STACK_ENDS]; /* the caller holds the GIL */
    const unsigned count = python_frames_cut(frames, python_stack_ends(frames), depth);
    struct stack_hash hash = {0};
    const unsigned hashed = python_stack_hash(&hash, depth, unused);
    const struct stack_hash wanted = python_hash_frames(frames, count);
    if (hashed == PYTHON_STACK_UNKNOWN) {
        return 2;
    }
    return hashed == count && hash.low == wanted.low && hash.high == wanted.high && inner_agrees(hash, frames, count);
}

/* Of what a recording keeps, now and then also of fewer. */
int memo_agrees(void)
{
    static _Atomic unsigned turn;
    const unsigned few = 1 + turn++ % 200;
    const int agrees = hash_agrees(DEPTH);
    return few % 4 == 0 && hash_agrees(few) == 0 ? 0 : agrees;
}

int count_loops(void)
{
    static void *pcs[NATIVE_MAX];
    int depth = backtrace(pcs, NATIVE_MAX), loops = 0;
    for (int i = 0; i < depth; i++) {
        Dl_info info;
        loops += dladdr((char *)pcs[i] - 1, &info) != 0 && info.dli_sname != NULL &&
                 strcmp(info.dli_sname, "_PyEval_EvalFrameDefault") == 0;
    }
    return loops;
}

/* Its record, with the stack that is inherited. */
void *allocate(void *bytes)
{
    uint32_t (*callsite_here)(void);
    void (*emit)(const struct varve_record *);
    struct varve_record record = {.addr = (uintptr_t)bytes << 20, .size = (uintptr_t)bytes};
    *(void **)&callsite_here = dlsym(RTLD_DEFAULT, "varve_callsite_here");
    *(void **)&emit = dlsym(RTLD_DEFAULT, "varve_emit_record");
    record.callsite = callsite_here();
    record.cause = VARVE_CAUSE_MALLOC;
    record.dev_seq_kind_flags = varve_record_tag(0, VARVE_KIND_HEAP_ALLOC, 0);
    emit(&record);
    return NULL;
}

int allocate_elsewhere(size_t bytes)
{
    pthread_t thread;
    return pthread_create(&thread, NULL, allocate, (void *)bytes) == 0 ? pthread_join(thread, NULL) : -1;
}

static void *call(void *function)
{
    void (*called)(void);
    *(void **)&called = function;
    called();
    return NULL;
}

int call_elsewhere(void (*function)(void))
{
    pthread_t thread;
    return pthread_create(&thread, NULL, call, *(void **)&function) == 0 ? pthread_join(thread, NULL) : -1;
}

static void on_signal(int number)
{
    int before = errno;
    (void)number;
    munmap(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096);
    errno = before;
}

__attribute__((constructor)) static void start_timer(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN};
    struct itimerspec period = {.it_interval = {.tv_nsec = 200000}, .it_value = {.tv_nsec = 200000}};
    timer_t timer;
    if (getenv("PYTHON_FRAMES_TIMER") != NULL &&
        (sigaction(SIGRTMIN, &action, NULL) != 0 || timer_create(CLOCK_MONOTONIC, &event, &timer) != 0 ||
         timer_settime(timer, 0, &period, NULL) != 0)) {
        abort();
    }
}
