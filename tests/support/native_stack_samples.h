/* SPDX-License-Identifier: Apache-2.0 */
/* C only: the definitions of a test program, included by one file of each */
/*
 * A stand-in for a malloc hook that walks its stack twice, with native_stack_capture and with the C library's
 * backtrace(), and counts where they differ; and functions of many shapes to call it from. The few functions
 * of the recorder that the walk calls are replaced here, so test programs that include this can't use the
 * real ones.
 */
#ifndef VARVE_TESTS_SUPPORT_NATIVE_STACK_SAMPLES_H
#define VARVE_TESTS_SUPPORT_NATIVE_STACK_SAMPLES_H

#include "trace/recorder/guest/clock.h"
#include "trace/recorder/guest/loaded_object.h"
#include "trace/recorder/guest/reentrant.h"
#include "trace/recorder/stacks/native/stack.h"
#include "trace/recorder/stacks/native/unwind_rules.h"
#include "trace/recorder/stacks/native/window.h"

#include <alloca.h>
#include <execinfo.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define FRAMES_MAX 200
#define NOINLINE __attribute__((noinline, unused))
#if defined(__GNUC__) && !defined(__clang__)
#define NO_FRAME_POINTER __attribute__((noinline, unused, optimize("omit-frame-pointer")))
#else
#define NO_FRAME_POINTER __attribute__((noinline, unused))
#endif

__thread uint32_t recorder_reentrant_depth;
uint32_t varve_clock_is_tsc;

void recorder_clock_leave(void)
{
}

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

/* Keeps the compiler from turning the calls before it into jumps. */
#define KEEP_FRAME() __asm__ volatile("" ::: "memory")

#define HOOK_START(start)                                            \
    do {                                                             \
        const uintptr_t *frame_of_hook = __builtin_frame_address(0); \
        (start).fp = frame_of_hook[0];                               \
        (start).pc = frame_of_hook[1];                               \
        (start).sp = (uintptr_t)(frame_of_hook + 2);                 \
    } while (0)

struct sample {
    uint64_t ours[FRAMES_MAX];
    unsigned count;
    void *theirs[FRAMES_MAX];
    int their_count;
    int their_first; /* where theirs has the caller of the hook */
};

static struct sample sample;
static volatile unsigned mismatches;
static volatile unsigned samples;
static volatile unsigned interrupted; /* frames that were interrupted by a signal */

static NOINLINE void sample_take(struct sample *to, const struct callsite_start *start)
{
    to->count = native_stack_capture(start, to->ours, FRAMES_MAX);
    to->their_count = backtrace(to->theirs, FRAMES_MAX);
    while (to->their_count > 0 && to->theirs[to->their_count - 1] == NULL) {
        to->their_count--;
    }
    to->their_first = 0;
    while (to->their_first < to->their_count && (uintptr_t)to->theirs[to->their_first] != start->pc) {
        to->their_first++;
    }
}

/* Equal, but that an interrupted instruction is reported one above. */
static inline bool sample_equal(const struct sample *of)
{
    int rest = of->their_count - of->their_first;
    bool equal = rest == (int)of->count;
    for (int i = 0; i < rest && i < (int)of->count; i++) {
        uint64_t theirs = (uintptr_t)of->theirs[of->their_first + i];
        if (of->ours[i] == theirs + 1) {
            interrupted++;
        } else if (of->ours[i] != theirs) {
            equal = false;
        }
    }
    return equal;
}

static inline void sample_print(const struct sample *of)
{
    for (int i = 0; i < (int)of->count || of->their_first + i < of->their_count; i++) {
        int at = of->their_first + i;
        print_message("%3d %16llx %16p\n", i, (unsigned long long)(i < (int)of->count ? of->ours[i] : 0),
                      at < of->their_count ? of->theirs[at] : NULL);
    }
}

/* What a malloc hook does. */
static NOINLINE void hook(void)
{
    struct callsite_start start;
    HOOK_START(start);
    sample_take(&sample, &start);
    samples++;
    if (!sample_equal(&sample)) {
        if (mismatches++ == 0) {
            sample_print(&sample);
        }
    }
    KEEP_FRAME();
}

static inline void samples_begin(void)
{
    mismatches = 0;
    samples = 0;
    interrupted = 0;
}

static inline void samples_expect(unsigned least)
{
    assert_int_equal(mismatches, 0);
    assert_true(samples >= least);
}

/* ---- calls of many shapes ---- */

static NOINLINE int recurse(int depth)
{
    if (depth == 0) {
        hook();
        return 1;
    }
    int result = recurse(depth - 1) + depth;
    KEEP_FRAME();
    return result;
}

static NO_FRAME_POINTER int recurse_without(int depth, int a, int b)
{
    volatile int local[16] = {a, b};
    if (depth == 0) {
        hook();
        return 1;
    }
    int result = recurse_without(depth - 1, b, a + depth) + local[depth & 1];
    KEEP_FRAME();
    return result;
}

static NOINLINE int recurse_realigned(int depth, unsigned bytes)
{
    _Alignas(64) volatile char aligned[64];
    volatile char *variable = alloca(bytes);

    aligned[0] = 0;
    variable[0] = 0;
    if (depth == 0) {
        hook();
        return aligned[0];
    }
    int result = recurse_realigned(depth - 1, bytes + 24) + variable[0];
    KEEP_FRAME();
    return result;
}

static NOINLINE int recurse_big(int depth)
{
    volatile char big[20000];
    big[depth] = 0;
    if (depth == 0) {
        hook();
        return 0;
    }
    int result = recurse_big(depth - 1) + big[depth];
    KEEP_FRAME();
    return result;
}

static int compare_and_capture(const void *a, const void *b)
{
    hook();
    return *(const int *)a - *(const int *)b;
}

static inline void through_libc(unsigned count)
{
    int values[64];
    for (unsigned i = 0; i < count; i++) {
        values[i] = (int)((i * 7919U) % 101U);
    }
    qsort(values, count, sizeof(values[0]), compare_and_capture);
}

#endif
