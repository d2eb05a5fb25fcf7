/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A loop that does nothing but allocate and free, and says what a pair cost: what heap recorders are compared
 * by.
 *
 *   heap_loop KIND PAIRS [DEPTH [WINDOW]]
 *
 *   window   sizes of 16 to 1024 bytes at random; each step frees one of WINDOW live blocks, chosen at random, and
 *            allocates another in its place: what programs do
 *   bursts   as window, 5,000 pairs each 20 ms, which a recorder can keep up with
 *   same     malloc(64) and free of it, again and again: what allocators do best
 *   varied   as window, and each pair is reached through DEPTH calls of its own, of 256 different stacks
 *
 * The loop runs DEPTH calls (1 if it is not said) below main; WINDOW is 4096. Only the loop itself is timed:
 * what a recorder does before and afterwards does not count. Prints one JSON object.
 */
#include "workload.h"

#include "tests/support/random.h"

#include <stdbool.h>
#include <sys/resource.h>

#define WINDOW_DEFAULT 4096U
#define PAIRS_WARM_UP 2000U
#define PAUSE_US 100000U /* for a recorder to deal with the start */
#define STACKS 256U      /* that `varied` goes through */
#define BURST_PAIRS 5000U
#define BURST_PAUSE_US 20000U
#define BURSTS_WARM_UP 40000U

static char **window;
static size_t window_size = WINDOW_DEFAULT;
static uint64_t random_state = 88172645463325252U;

typedef void (*step)(uint64_t pairs);

static void step_window(uint64_t pairs)
{
    for (uint64_t i = 0; i < pairs; i++) {
        uint64_t random = random_next(&random_state);
        size_t slot = random % window_size;
        free(window[slot]);
        window[slot] = malloc(16 + (random >> 40) % 1009);
        if (window[slot] == NULL) {
            give_up("out of memory");
        }
        window[slot][0] = 1;
    }
}

static void step_same(uint64_t pairs)
{
    for (uint64_t i = 0; i < pairs; i++) {
        char *block = malloc(64);
        __asm__ volatile("" : "+r"(block)); /* used, as far as the compiler knows */
        free(block);
    }
}

/* After a call: keeps the compiler from making a jump or a loop of it, which would leave no frame. */
#define KEEP_FRAME() __asm__ volatile("nop")

/* Two functions that differ in their address: the bits of `path` choose between them at each level. */
static void path_left(uint64_t path, unsigned depth);
static void path_right(uint64_t path, unsigned depth);

static void __attribute__((noinline)) path_next(uint64_t path, unsigned depth)
{
    if (depth <= 1) {
        step_window(1);
    } else if ((path & 1) != 0) {
        path_left(path >> 1, depth - 1);
    } else {
        path_right(path >> 1, depth - 1);
    }
    KEEP_FRAME();
}

static void __attribute__((noinline)) path_left(uint64_t path, unsigned depth)
{
    path_next(path, depth);
    KEEP_FRAME();
}

static void __attribute__((noinline)) path_right(uint64_t path, unsigned depth)
{
    path_next(path, depth);
    KEEP_FRAME();
    KEEP_FRAME(); /* or the compiler would fold the two */
}

static unsigned varied_depth;

static void step_varied(uint64_t pairs)
{
    for (uint64_t i = 0; i < pairs; i++) {
        /* Two calls a level; some stacks are much more frequent than others, as in programs. */
        uint64_t random = random_next(&random_state);
        path_next((random & (random >> 32)) % STACKS, varied_depth / 2 > 0 ? varied_depth / 2 : 1);
    }
}

static void __attribute__((noinline)) go_down(unsigned depth, step take, uint64_t pairs)
{
    if (depth <= 1) {
        take(pairs);
    } else {
        go_down(depth - 1, take, pairs);
    }
    KEEP_FRAME();
}

/* CPU time of this thread, in the kernel too: what is left of a pair's time on a machine that is busy with
 * other things. */
static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Of that, what the kernel took, as it samples it. */
static double system_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return (double)usage.ru_stime.tv_sec + (double)usage.ru_stime.tv_usec * 1e-6;
}

struct sums {
    double wall, cpu, system;
};

static void take_burst(step take, uint64_t pairs, unsigned calls, struct sums *sums)
{
    struct sums begin = {seconds_now(), cpu_seconds(), system_seconds()};
    go_down(calls, take, pairs);
    sums->cpu += cpu_seconds() - begin.cpu;
    sums->system += system_seconds() - begin.system;
    sums->wall += seconds_now() - begin.wall;
}

static void measure(const char *kind, step take, uint64_t pairs, unsigned depth)
{
    unsigned calls = take == step_varied ? 1 : depth;
    bool is_paused = strcmp(kind, "bursts") == 0;
    double nanos = 1e9 / (double)pairs;
    struct sums sums = {0};
    go_down(calls, take, PAIRS_WARM_UP);
    usleep(PAUSE_US);
    for (uint64_t done = 0; is_paused && done < BURSTS_WARM_UP; done += BURST_PAIRS) { /* a ring's first lap */
        go_down(calls, take, BURST_PAIRS);
        usleep(BURST_PAUSE_US);
    }
    for (uint64_t done = 0; done < pairs; done += is_paused ? BURST_PAIRS : pairs) {
        take_burst(take, is_paused && pairs - done > BURST_PAIRS ? BURST_PAIRS : pairs - done, calls, &sums);
        if (is_paused) {
            usleep(BURST_PAUSE_US);
        }
    }
    say("{\"kind\": \"%s\", \"pairs\": %llu, \"depth\": %u, \"ns_per_pair\": %.3f, \"cpu_ns\": %.3f, "
        "\"system_ns\": %.3f}\n",
        kind, (unsigned long long)pairs, depth, sums.wall * nanos, sums.cpu * nanos, sums.system * nanos);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        step take;
    } kinds[] = {{"window", step_window}, {"bursts", step_window}, {"same", step_same}, {"varied", step_varied}};
    uint64_t pairs = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    unsigned depth = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 10) : 1;
    if (argc > 4) {
        window_size = strtoull(argv[4], NULL, 10);
    }
    if (pairs == 0 || depth == 0 || window_size == 0) {
        give_up("usage: heap_loop window|bursts|same|varied PAIRS [DEPTH [WINDOW]]");
    }
    window = map_unseen(NULL, window_size * sizeof(*window));
    for (size_t i = 0; i < window_size; i++) { /* so that every step frees */
        window[i] = malloc(16 + i % 1009);
    }
    varied_depth = depth;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strcmp(argv[1], kinds[i].name) == 0) {
            measure(argv[1], kinds[i].take, pairs, depth);
            return 0;
        }
    }
    give_up("no such kind of loop");
}
