/* SPDX-License-Identifier: Apache-2.0 */
/*
 * storage_remats STEPS [kill]: emits what a planner of rematerialization would say while it evicts storages and has
 * them back, without one; an operator runs in each step. At last one does not get its memory. Prints the sums as
 * JSON; then it ends, or kills itself.
 */
#include "storage/storage.h"
#include "tests/support/random.h"
#include "trace/emit.h"
#include "trace/record.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STORAGES 200U
#define OPERATORS 4U
#define NEAR 16U

static struct {
    uint64_t runs, run_ns, remats, collateral, remat_ns, evictions, evicted_bytes, wasted, score_sum;
} sums;

static uint64_t evicted_at[STORAGES]; /* runs then; 0: it is resident */
static uint64_t state = 1;

static uint64_t bytes_of(uint32_t storage)
{
    return 4096 * (1 + storage % 17);
}

static uint16_t maker_of(uint32_t storage)
{
    return (uint16_t)(1 + storage % OPERATORS);
}

static void emit(uint16_t name, struct varve_remat_event event)
{
    struct varve_record record;
    varve_remat_event_record(&event, name, &record);
    record.callsite = varve_callsite_here();
    varve_emit(&record);
}

static void names_emit(void)
{
    static const char *const names[OPERATORS] = {"matmul", "relu", "layer_norm", "a name that is as long as may be"};
    for (unsigned i = 0; i < OPERATORS; i++) {
        struct varve_record record;
        varve_remat_name_record((uint16_t)(i + 1), names[i], &record);
        varve_emit(&record);
    }
}

static void run(uint32_t op)
{
    struct varve_remat_event event = {.kind = VARVE_REMAT_EVENT_OP, .op = op, .storage = VARVE_REMAT_NONE};
    event.bytes = bytes_of(op);
    event.input_bytes = 2 * bytes_of(op);
    event.cost_ns = 1000 + random_below(&state, 100000);
    emit(maker_of(op), event);
    sums.runs++;
    sums.run_ns += event.cost_ns;
}

static void evict(uint32_t storage)
{
    uint64_t score = random_below(&state, 1000);
    struct varve_remat_event event = {.kind = VARVE_REMAT_EVENT_EVICT, .op = storage, .storage = storage};
    event.cause = VARVE_REMAT_CAUSE_RELEASED + (enum varve_remat_cause)(storage % 5);
    event.bytes = bytes_of(storage);
    event.score = (double)score / 1024;
    event.time = sums.run_ns + sums.remat_ns;
    emit(maker_of(storage), event);
    evicted_at[storage] = sums.runs + sums.remats;
    sums.evictions++;
    sums.evicted_bytes += bytes_of(storage);
    sums.score_sum += score;
}

static void recompute(uint32_t storage, bool is_direct)
{
    struct varve_remat_event event = {.kind = VARVE_REMAT_EVENT_REMAT, .op = storage, .storage = storage, .depth = 1};
    event.cause = is_direct ? VARVE_REMAT_CAUSE_DIRECT : VARVE_REMAT_CAUSE_COLLATERAL;
    event.bytes = bytes_of(storage);
    event.cost_ns = is_direct ? 1000 + random_below(&state, 100000) : 0;
    sums.remats += is_direct;
    sums.collateral += !is_direct;
    sums.remat_ns += event.cost_ns;
    sums.wasted += sums.runs + sums.remats - evicted_at[storage] <= NEAR;
    evicted_at[storage] = 0;
    emit(maker_of(storage), event);
}

static void fail(void)
{
    struct varve_remat_event event = {.kind = VARVE_REMAT_EVENT_FAILED, .op = 7, .storage = VARVE_REMAT_NONE};
    event.bytes = 1 << 20;
    event.cost_ns = STORAGES * 4096;
    emit(1, event);
    for (uint32_t i = 0; i < STORAGES; i++) {
        event = (struct varve_remat_event){.kind = VARVE_REMAT_EVENT_BLOCKED, .op = i, .storage = i, .bytes = 4096};
        event.cause = i % 10 == 0 ? VARVE_REMAT_CAUSE_INPUT : VARVE_REMAT_CAUSE_PINNED;
        emit(maker_of(i), event);
    }
}

int main(int argc, char **argv)
{
    unsigned long steps = argc > 1 ? strtoul(argv[1], NULL, 10) : 1000;
    names_emit();
    struct varve_remat_event budget = {.kind = VARVE_REMAT_EVENT_BUDGET, .op = VARVE_REMAT_NONE, .bytes = 1 << 20};
    budget.storage = VARVE_REMAT_NONE;
    emit(0, budget);
    for (unsigned long i = 0; i < steps; i++) {
        uint32_t storage = (uint32_t)random_below(&state, STORAGES);
        run((uint32_t)i % 1000);
        if (evicted_at[storage] == 0) {
            evict(storage);
        } else {
            recompute(storage, i % 4 != 0);
        }
    }
    fail();
    printf("{\"runs\": %llu, \"run_ns\": %llu, \"remats\": %llu, \"collateral\": %llu, \"remat_ns\": %llu, "
           "\"evictions\": %llu, \"evicted_bytes\": %llu, \"wasted\": %llu, \"score_sum\": %llu}\n",
           (unsigned long long)sums.runs, (unsigned long long)sums.run_ns, (unsigned long long)sums.remats,
           (unsigned long long)sums.collateral, (unsigned long long)sums.remat_ns, (unsigned long long)sums.evictions,
           (unsigned long long)sums.evicted_bytes, (unsigned long long)sums.wasted, (unsigned long long)sums.score_sum);
    fflush(stdout);
    if (argc > 2 && strcmp(argv[2], "kill") == 0) {
        raise(SIGKILL);
    }
    return 0;
}
