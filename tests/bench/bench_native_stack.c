/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one native stack costs at the depth that the heap budgets name: the walk of
 * trace/recorder/stacks/native/stack.c beside libunwind's unw_backtrace (the C library's backtrace() where that is
 * missing), in one run. One JSON line per variant: frame pointers or none, the same stack each time (the memo holds)
 * or one that was called from another place each time (it does not), and a call-site capture end to end. CPU time
 * without the calls that make the stack; the least of several rounds, since others use the machine too.
 */
#include "trace/recorder/stacks/callsite.h"
#include "trace/recorder/stacks/native/stack.h"
#include "trace/format/session.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define DEPTH 18U
#define DEPTH_MAX 64
#define ROUNDS 9
#define NOINLINE __attribute__((noinline))
#if defined(__GNUC__) && !defined(__clang__)
#define NO_FRAME_POINTER __attribute__((noinline, optimize("omit-frame-pointer")))
#else
#define NO_FRAME_POINTER __attribute__((noinline))
#endif
#define KEEP_FRAME() __asm__ volatile("" ::: "memory")
#define HOOK_START(start)                                            \
    do {                                                             \
        const uintptr_t *frame_of_hook = __builtin_frame_address(0); \
        (start).fp = frame_of_hook[0];                               \
        (start).pc = frame_of_hook[1];                               \
        (start).sp = (uintptr_t)(frame_of_hook + 2);                 \
    } while (0)

typedef unsigned capture_function(const struct callsite_start *start, void **pcs);

static int (*unw_backtrace_found)(void **, int);
static void *pcs[DEPTH_MAX];

static unsigned capture_varve(const struct callsite_start *start, void **out)
{
    return native_stack_capture(start, (uint64_t *)(void *)out, DEPTH_MAX);
}

static unsigned capture_callsite(const struct callsite_start *start, void **out)
{
    (void)out;
    return callsite_capture(start);
}

static unsigned capture_libunwind(const struct callsite_start *start, void **out)
{
    (void)start;
    return (unsigned)unw_backtrace_found(out, DEPTH_MAX);
}

static unsigned capture_backtrace(const struct callsite_start *start, void **out)
{
    (void)start;
    return (unsigned)backtrace(out, DEPTH_MAX);
}

static capture_function *capture;
static unsigned long captures_per_leaf;

static NOINLINE unsigned hook(void)
{
    struct callsite_start start;

    HOOK_START(start);
    unsigned count = capture(&start, pcs);
    KEEP_FRAME();
    return count;
}

static NOINLINE unsigned leaf(void)
{
    unsigned count = 0;

    for (unsigned long i = 0; i < captures_per_leaf; i++) {
        count = hook();
        KEEP_FRAME();
    }
    return count;
}

static NOINLINE unsigned with_pointers(unsigned depth)
{
    unsigned count = depth == 0 ? leaf() : with_pointers(depth - 1);
    KEEP_FRAME();
    return count;
}

static NO_FRAME_POINTER unsigned without_pointers(unsigned depth)
{
    volatile unsigned local[6] = {depth};
    unsigned count = local[0] == 0 ? leaf() : without_pointers(local[0] - 1);
    KEEP_FRAME();
    return count;
}

static unsigned capture_nothing(const struct callsite_start *start, void **out)
{
    (void)start;
    (void)out;
    return 0;
}

static double now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

struct shape {
    const char *name;
    unsigned (*recursion)(unsigned);
    bool changing;
};

/* From here all stacks are as deep: two calls, so that the outer return address differs between captures. */
static NOINLINE unsigned run(const struct shape *shape, unsigned depth, unsigned long captures)
{
    unsigned count = 0;

    captures_per_leaf = shape->changing ? 1 : captures;
    for (unsigned long i = 0; i < captures; i += 2 * captures_per_leaf) {
        count = shape->recursion(depth);
        KEEP_FRAME();
        if (shape->changing) {
            count = shape->recursion(depth);
            KEEP_FRAME();
        }
    }
    return count;
}

/* How deep to recurse for stacks of DEPTH frames. */
static unsigned depth_find(const struct shape *shape)
{
    capture = capture_varve;
    unsigned least = run(shape, 0, 2);

    return least < DEPTH ? DEPTH - least : 0;
}

static NOINLINE double measure(const struct shape *shape, capture_function *function, unsigned long captures)
{
    unsigned depth = depth_find(shape);
    double best = 0;

    for (unsigned round = 0; round < ROUNDS; round++) {
        capture = function;
        (void)run(shape, depth, 2); /* fills the caches */
        double begin = now_ns();
        (void)run(shape, depth, captures);
        double end = now_ns();
        capture = capture_nothing;
        (void)run(shape, depth, captures);
        double ns = (2 * end - begin - now_ns()) / (double)captures;

        best = round == 0 || ns < best ? ns : best;
    }
    return best;
}

static void report(const char *what, const struct shape *shape, double ns, const char *peer, double peer_ns)
{
    printf("{\"bench\":\"native_stack\",\"what\":\"%s\",\"frames\":\"%s\",\"outer_call\":\"%s\",\"depth\":%u,"
           "\"ns_per_capture\":%.1f,\"ns_per_frame\":%.2f",
           what, shape->name, shape->changing ? "changing" : "same", DEPTH, ns, ns / DEPTH);
    if (peer != NULL) {
        printf(",\"times_faster_than_%s\":%.1f", peer, peer_ns / ns);
    }
    printf("}\n");
}

int main(void)
{
    static const struct shape shapes[] = {{"pointers", with_pointers, false},
                                          {"pointers", with_pointers, true},
                                          {"none", without_pointers, false},
                                          {"none", without_pointers, true}};
    char directory[] = "/tmp/varve-bench-XXXXXX";
    char path[64];
    void *library = dlopen("libunwind.so.8", RTLD_NOW);

    if (library != NULL) {
        *(void **)&unw_backtrace_found = dlsym(library, "unw_backtrace");
    }
    if (mkdtemp(directory) == NULL) {
        perror("bench_native_stack: mkdtemp");
        return 1;
    }
    snprintf(path, sizeof(path), "%s/sites", directory);
    bool callsites = callsite_attach(path, SESSION_STACKS_NATIVE, DEPTH_MAX) == 0;
    bool libunwind = unw_backtrace_found != NULL;
    const char *peer = libunwind ? "unw_backtrace" : "backtrace";

    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        const struct shape *shape = &shapes[i];
        double peer_ns = measure(shape, libunwind ? capture_libunwind : capture_backtrace, libunwind ? 40000 : 4000);

        report(peer, shape, peer_ns, NULL, 0);
        report("native_stack_capture", shape, measure(shape, capture_varve, 400000), peer, peer_ns);
        if (callsites) {
            report("callsite_capture", shape, measure(shape, capture_callsite, 400000), peer, peer_ns);
        }
    }
    unlink(path);
    rmdir(directory);
    return 0;
}
