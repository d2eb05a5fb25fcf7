/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a cached allocation and its free cost, on the sim device, so that nothing but the allocator is
 * measured. Run by bench_alloc.py, alone and recorded:
 *
 *   bench_alloc KIND none BATCHES      no recorder; batch after batch
 *   bench_alloc KIND ring BATCHES      into the ring of this thread (under `varve record`): 50 batches
 *                                      each 100 ms, which the collector can keep up with
 *   bench_alloc growth COUNT BATCHES   with COUNT live and COUNT free blocks
 *
 * KIND: `small` 4 KiB, a block of just that size; `split` 4 KiB, cut off and merged again; `large` 3 MiB, cut
 * off and merged again; `mix` sizes as programs have them, 1,000 live blocks, any of them replaced; `malloc`
 * and `malloc_mix` do the same with the C library. One JSON object: ns per pair, of the median batch, the
 * least, and of the batch that 99 % stay below.
 */
#include "alloc/alloc.h"
#include "bench/bench.h"
#include "support/random.h"

#define BATCHES_MAX 200000U
#define PAIRS 100U           /* of a batch: shorter than a time slice by far, so that few batches are interrupted */
#define BURST 50U            /* batches between two pauses: less than a ring holds */
#define STEPS 64000U         /* of a program made before, so that its making is not measured */
#define WARM_UP 100U         /* pairs after each pause, not measured */
#define WARM_UP_BATCHES 700U /* every page of a ring, every step of the program */
#define PERIOD_NS 100000000U
#define LIVE 1000U
#define KIB UINT64_C(1024)
#define MIB (KIB * KIB)

static uint64_t random_state = 42;

struct step {
    uint32_t slot, bytes;
};

struct bench {
    struct varve_device *device;
    struct varve_alloc *alloc;
    bool is_malloc, has_ring;
    struct step *steps;
    uint64_t *live; /* by slot */
    uint64_t position;
    double ns[BATCHES_MAX];
};

/* ---- one pair ---- */

static inline uint64_t take(struct varve_alloc *alloc, uint64_t bytes)
{
    uint64_t addr;
    CHECK(varve_alloc_raw_alloc(alloc, bytes, &addr, NULL) == VARVE_OK, "an allocation failed");
    return addr;
}

static inline void give(struct varve_alloc *alloc, uint64_t addr)
{
    CHECK(varve_alloc_raw_delete(alloc, addr, NULL) == VARVE_OK, "a free failed");
}

/* A compiler must not remove what is allocated and freed unread. */
static inline void *keep(void *memory)
{
    __asm__ volatile("" : "+r"(memory) : : "memory");
    return memory;
}

/* Replace the block of each step's slot: free the old one, allocate the new one. */
static void run_steps(struct bench *bench, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        const struct step *step = &bench->steps[bench->position++ % STEPS];
        uint64_t *slot = &bench->live[step->slot];
        if (bench->is_malloc) {
            free(keep((void *)(uintptr_t)*slot));
            *slot = (uint64_t)(uintptr_t)keep(malloc(step->bytes));
        } else {
            give(bench->alloc, *slot);
            *slot = take(bench->alloc, step->bytes);
        }
    }
}

/* ---- programs ---- */

static uint32_t size_mixed(void)
{
    uint64_t most =
        random_below(&random_state, 10) < 7 ? UINT64_C(1) << (9 + random_below(&random_state, 12)) : 9 * MIB;
    return (uint32_t)(1 + random_below(&random_state, most));
}

static void prepare(struct bench *bench, const char *kind)
{
    bool is_mix = strstr(kind, "mix") != NULL;
    uint32_t bytes = strcmp(kind, "large") == 0 ? 3 * MIB : 4 * KIB;
    for (uint64_t i = 0; i < STEPS; i++) {
        bench->steps[i].slot = is_mix ? (uint32_t)random_below(&random_state, LIVE) : 0;
        bench->steps[i].bytes = is_mix ? size_mixed() : bytes;
    }
    if (strcmp(kind, "small") == 0) {
        /* between two that stay, there is a hole of just this size */
        take(bench->alloc, bytes);
        bench->live[0] = take(bench->alloc, bytes);
        take(bench->alloc, bytes);
    }
}

/* Blocks of 512 bytes to 64 KiB, of which every second is free: none can be merged. */
static void prepare_growth(struct bench *bench, uint64_t count)
{
    uint64_t *addr = calloc(2 * count, sizeof(*addr));
    CHECK(addr != NULL, "no memory");
    for (uint64_t i = 0; i < 2 * count; i++) {
        addr[i] = take(bench->alloc, 512 * (1 + random_below(&random_state, 128)));
    }
    for (uint64_t i = 0; i < count; i++) {
        give(bench->alloc, addr[2 * i]);
    }
    free(addr);
    for (uint64_t i = 0; i < STEPS; i++) {
        bench->steps[i].slot = 0;
        bench->steps[i].bytes = (uint32_t)(512 * (1 + random_below(&random_state, 128)));
    }
}

/* ---- measuring ---- */

static void measure(struct bench *bench, uint64_t batches)
{
    uint64_t next = bench_now_ns();
    for (uint64_t i = 0; i < batches + WARM_UP_BATCHES; i++) {
        /* When there is a ring, the collector must keep up with everything, also with what is not counted. */
        if (bench->has_ring && i % BURST == 0) {
            bench_pause_until(&next, PERIOD_NS);
            run_steps(bench, WARM_UP);
        }
        uint64_t begin = bench_now_ns();
        run_steps(bench, PAIRS);
        uint64_t ns = bench_now_ns() - begin;
        if (i >= WARM_UP_BATCHES) {
            bench->ns[i - WARM_UP_BATCHES] = (double)ns / PAIRS;
        }
    }
}

static void report(struct bench *bench, uint64_t batches)
{
    bench_sort(bench->ns, batches);
    printf("{\"pairs\": %" PRIu64 ", \"ns\": %.3f, \"ns_min\": %.3f, \"ns_p99\": %.3f}\n", bench->position,
           bench->ns[batches / 2], bench->ns[0], bench->ns[batches * 99 / 100]);
}

static void open_alloc(struct bench *bench)
{
    struct varve_sim_options sim = {.index = 0};
    struct varve_alloc_options options;
    struct varve_message message = {""};
    varve_alloc_options_init(&options);
    options.recorder = bench->has_ring ? &varve_alloc_recorder_ring : NULL;
    CHECK(varve_sim_open(&sim, &bench->device, &message) == VARVE_OK, message.text);
    options.device = bench->device;
    CHECK(varve_alloc_open(&options, &bench->alloc, &message) == VARVE_OK, message.text);
}

static void close_alloc(struct bench *bench)
{
    struct varve_message message = {""};
    CHECK(varve_alloc_check(bench->alloc, &message) == VARVE_OK, message.text);
    varve_alloc_close(bench->alloc);
    bench->device->ops->close(bench->device);
}

int main(int argc, char **argv)
{
    static struct bench bench;
    uint64_t batches = argc > 3 ? strtoull(argv[3], NULL, 10) : 0;
    const char *kind = argc > 1 ? argv[1] : "";
    if (bench_is_started_alone(argc, "bench_alloc.py")) {
        return EXIT_SUCCESS;
    }
    if (batches == 0 || batches > BATCHES_MAX) {
        fprintf(stderr, "usage: %s KIND none|ring BATCHES | growth COUNT BATCHES\n", argv[0]);
        return 2;
    }
    bench.steps = malloc(STEPS * sizeof(*bench.steps));
    bench.live = calloc(LIVE, sizeof(*bench.live));
    CHECK(bench.steps != NULL && bench.live != NULL, "no memory");
    bench.is_malloc = strncmp(kind, "malloc", 6) == 0;
    bench.has_ring = strcmp(argv[2], "ring") == 0;
    open_alloc(&bench);
    if (strcmp(kind, "growth") == 0) {
        prepare_growth(&bench, strtoull(argv[2], NULL, 10));
    } else {
        prepare(&bench, kind);
    }
    measure(&bench, batches);
    report(&bench, batches);
    close_alloc(&bench);
    return EXIT_SUCCESS;
}
