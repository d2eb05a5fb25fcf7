/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the allocations and frees of a real program cost, one after the other as a PyTorch snapshot has them
 * them, without the program in between. Run by bench_alloc.py, alone and recorded:
 *
 *   bench_alloc_trace SNAPSHOT none|ring PASSES
 *
 * The trace is turned into operations on numbered blocks first: frees of blocks from before its beginning are
 * left out, and what is still allocated at its end is freed there, so that it can be run again and again. The
 * first pass obtains the memory, the others find it cached; they are measured in batches of 100 operations.
 * With a ring there is a pause after each ten thousand, so that the collector keeps up. One JSON object.
 */
#include "alloc/alloc.h"
#include "analysis/history/history.h"
#include "analysis/history/read.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BATCH 100U
#define BURST 100U /* batches between two pauses: less than a ring holds */
#define PERIOD_NS 100000000U
#define MAP_BITS 20U /* of the table of addresses */

struct operation {
    uint64_t bytes; /* 0: a free */
    uint64_t stream;
    uint32_t block;
};

struct program {
    struct operation *operations;
    size_t count, blocks;
    uint64_t *addrs; /* by block */
};

/* Blocks that are allocated in the trace, by address, with linear probing. */
struct live {
    uint64_t addr; /* 0: empty, 1: was removed */
    uint32_t block;
};

static void fail(const char *what)
{
    fprintf(stderr, "bench_alloc_trace: %s\n", what);
    exit(EXIT_FAILURE);
}

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

/* ---- from the trace to a program ---- */

static struct live *live_find(struct live *table, uint64_t addr)
{
    uint64_t at = addr * UINT64_C(0x9e3779b97f4a7c15) >> (64 - MAP_BITS);

    for (uint64_t i = 0; i < UINT64_C(1) << MAP_BITS; i++) {
        struct live *slot = &table[(at + i) & ((UINT64_C(1) << MAP_BITS) - 1)];
        if (slot->addr == addr || slot->addr == 0) {
            return slot;
        }
    }
    fail("too many blocks");
    return NULL;
}

static void add_event(struct program *program, struct live *table, const struct history *history,
                      const struct history_event *event)
{
    struct operation *operation = &program->operations[program->count];
    struct live *slot;

    if (event->action == HISTORY_ALLOC) {
        slot = live_find(table, event->addr);
        if (slot->addr == event->addr) {
            return; /* its free is missing */
        }
        *slot = (struct live){event->addr, (uint32_t)program->blocks};
        *operation = (struct operation){event->size, history->streams[event->stream], (uint32_t)program->blocks++};
        program->count++;
    } else if (event->action == HISTORY_FREE_REQUESTED) {
        slot = live_find(table, event->addr);
        if (slot->addr == event->addr) {
            *operation = (struct operation){.block = slot->block};
            slot->addr = 1;
            program->count++;
        }
    }
}

static void make_program(const struct history *history, struct program *program)
{
    const struct history_device *device = NULL;
    struct live *table = calloc(UINT64_C(1) << MAP_BITS, sizeof(*table));

    for (size_t i = 0; i < history->device_count; i++) {
        if (device == NULL || history->devices[i].event_count > device->event_count) {
            device = &history->devices[i];
        }
    }
    if (device == NULL || device->event_count == 0) {
        fail("the snapshot has no events");
    }
    program->operations = calloc(2 * device->event_count, sizeof(*program->operations));
    program->addrs = calloc(device->event_count, sizeof(*program->addrs));
    if (table == NULL || program->operations == NULL || program->addrs == NULL) {
        fail("no memory");
    }
    for (size_t i = 0; i < device->event_count; i++) {
        add_event(program, table, history, &device->events[i]);
    }
    for (size_t i = 0; i < UINT64_C(1) << MAP_BITS; i++) {
        if (table[i].addr > 1) {
            program->operations[program->count++] = (struct operation){.block = table[i].block};
        }
    }
    free(table);
}

/* ---- measuring ---- */

static void run_operations(struct varve_alloc *alloc, const struct program *program, size_t first, size_t count)
{
    for (size_t i = first; i < first + count; i++) {
        const struct operation *operation = &program->operations[i];
        uint64_t *addr = &program->addrs[operation->block];
        int error = operation->bytes == 0
                        ? varve_alloc_raw_delete(alloc, *addr, NULL)
                        : varve_alloc_raw_alloc_with_stream(alloc, operation->bytes, operation->stream, addr, NULL);
        if (error != VARVE_OK) {
            fail("an operation failed");
        }
    }
}

static double run_pass(struct varve_alloc *alloc, const struct program *program, bool has_ring, double *batches)
{
    uint64_t total = 0, next = now_ns();

    for (size_t first = 0; first < program->count; first += BATCH) {
        size_t rest = program->count - first, count = rest < BATCH ? rest : BATCH;
        uint64_t begin, ns;

        if (has_ring && first % (BATCH * BURST) == 0) {
            struct timespec wake = {(time_t)(next / 1000000000U), (long)(next % 1000000000U)};
            clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &wake, NULL);
            next += PERIOD_NS;
        }
        begin = now_ns();
        run_operations(alloc, program, first, count);
        ns = now_ns() - begin;
        total += ns;
        batches[first / BATCH] = (double)ns / (double)count;
    }
    return (double)total / (double)program->count;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void measure(struct varve_alloc *alloc, const struct program *program, bool has_ring, size_t passes)
{
    size_t batch_count = (program->count + BATCH - 1) / BATCH;
    double *batches = calloc(batch_count * passes, sizeof(*batches));
    double *ns = calloc(passes, sizeof(*ns));

    if (batches == NULL || ns == NULL) {
        fail("no memory");
    }
    run_pass(alloc, program, has_ring, batches);
    for (size_t i = 0; i < passes; i++) {
        ns[i] = run_pass(alloc, program, has_ring, &batches[i * batch_count]);
    }
    qsort(ns, passes, sizeof(*ns), compare);
    qsort(batches, batch_count * passes, sizeof(*batches), compare);
    printf("{\"operations\": %zu, \"passes\": %zu, \"ns\": %.3f, \"ns_min\": %.3f, \"ns_batch\": %.3f, "
           "\"ns_p99\": %.3f}\n",
           program->count, passes + 1, ns[passes / 2], ns[0], batches[batch_count * passes / 2],
           batches[batch_count * passes * 99 / 100]);
    free(batches);
    free(ns);
}

static struct varve_alloc *open_alloc(const struct history *history, bool has_ring, struct varve_device **device_out)
{
    struct varve_sim_options sim = {.index = 0};
    struct varve_alloc_options options;
    struct varve_message message = {""};
    struct varve_alloc *alloc;

    varve_alloc_options_init(&options);
    if (varve_alloc_config_parse(history->settings.text, &options.config, &message) != VARVE_OK ||
        varve_sim_open(&sim, device_out, &message) != VARVE_OK) {
        fail(message.text);
    }
    options.config.expandable_segments = history->settings.expandable_segments;
    options.config.memory_fraction = 1;
    options.device = *device_out;
    options.recorder = has_ring ? &varve_alloc_recorder_ring : NULL;
    if (varve_alloc_open(&options, &alloc, &message) != VARVE_OK) {
        fail(message.text);
    }
    return alloc;
}

int main(int argc, char **argv)
{
    size_t passes = argc == 4 ? strtoull(argv[3], NULL, 10) : 0;
    struct varve_message message = {""};
    struct program program = {.count = 0};
    struct varve_device *device;
    struct varve_alloc *alloc;
    struct history *history;
    bool has_ring;

    if (argc == 1) {
        fprintf(stderr, "%s: is run by bench_alloc.py\n", argv[0]);
        return EXIT_SUCCESS;
    }
    if (passes == 0 || passes > 10000) {
        fprintf(stderr, "usage: %s SNAPSHOT none|ring PASSES\n", argv[0]);
        return 2;
    }
    if (history_read_pytorch(argv[1], &history, NULL, &message) != VARVE_OK) {
        fail(message.text);
    }
    has_ring = strcmp(argv[2], "ring") == 0;
    make_program(history, &program);
    alloc = open_alloc(history, has_ring, &device);
    measure(alloc, &program, has_ring, passes);
    if (varve_alloc_check(alloc, &message) != VARVE_OK) {
        fail(message.text);
    }
    varve_alloc_close(alloc);
    device->ops->close(device);
    history_free(history);
    free(program.operations);
    free(program.addrs);
    return EXIT_SUCCESS;
}
