/* SPDX-License-Identifier: Apache-2.0 */
/*
 * derive against a naive model: random streams of events (threads, processes, forks, realloc in place, moved,
 * failed and cut off, mmap splits, unknown and double frees) go through derive and the store; the model keeps
 * plain lists, searches them from end to end and adds everything up anew after each event. Every column of
 * allocation, callsite_stat, total_stat, sample and of the completed events must agree.
 * Costs: 1 s
 */
#include "support/derive/model.h"
#include "support/random.h"
#include "support/derive/rows_expected.h"
#include "trace/error.h"
#include "trace/event_names.h"
#include "trace/model/derive/derive.h"
#include "trace/model/domain.h"
#include "trace/model/event.h"
#include "trace/record.h"
#include "trace/store/derived.h"
#include "trace/store/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- random streams ---- */

static uint64_t random_state; /* seeded by each test */

/* Protection and flags of an mmap; 0: unknown. */
static uint64_t map_arguments(void)
{
    uint64_t flags = MAP_PRIVATE | (random_below(&random_state, 4) == 0 ? MAP_NORESERVE : 0);
    uint64_t protection = random_below(&random_state, 3) == 0 ? PROT_NONE : PROT_READ;
    return random_below(&random_state, 8) == 0 ? 0 : flags << 32 | protection;
}

/* Few addresses, so that events meet; the reallocs under way in each thread are continued at random. */
static void stream_event(struct event *event, uint64_t pending[10 * PROCESSES + 10], uint32_t process_count)
{
    uint32_t process = 1 + (uint32_t)random_below(&random_state, process_count);
    uint32_t thread = 10 * process + (uint32_t)random_below(&random_state, THREADS);
    uint64_t addr = 0x1000 + 16 * (1 + random_below(&random_state, 20));
    uint64_t choice = random_below(&random_state, 100);
    *event = (struct event){.process_id = process,
                            .thread_id = thread,
                            .pid = 1000 + (int32_t)process,
                            .tid = 2000 + (int32_t)thread,
                            .callsite = (uint32_t)random_below(&random_state, CALLSITES + 1)};
    if (pending[thread] != 0 && choice < 60) {
        uint64_t outcome = random_below(&random_state, 8);
        event->kind = VARVE_KIND_HEAP_REALLOC;
        event->cause = VARVE_CAUSE_REALLOC;
        event->arg = pending[thread];
        event->addr = outcome < 4 ? addr : outcome == 4 ? 0 : pending[thread];
        event->size = outcome == 4 ? 0 : random_below(&random_state, 300);
        event->flags = outcome >= 6 ? VARVE_FLAG_FAILED : 0;
        pending[thread] = 0;
    } else if (choice < 40) {
        bool has_failed = random_below(&random_state, 20) == 0;
        event->kind = VARVE_KIND_HEAP_ALLOC;
        event->cause = random_below(&random_state, 2) ? VARVE_CAUSE_MALLOC : VARVE_CAUSE_CALLOC;
        event->addr = has_failed ? 0 : addr;
        event->size = random_below(&random_state, 200);
        event->flags = has_failed ? VARVE_FLAG_FAILED : 0;
    } else if (choice < 72) {
        bool is_realloc = random_below(&random_state, 3) == 0;
        event->kind = VARVE_KIND_HEAP_FREE;
        event->cause = is_realloc ? VARVE_CAUSE_REALLOC : VARVE_CAUSE_FREE;
        event->callsite = random_below(&random_state, 2) ? 0 : event->callsite;
        event->addr = addr;
        pending[thread] = is_realloc ? addr : pending[thread];
    } else if (choice < 96) {
        event->kind = choice < 84 ? VARVE_KIND_MMAP : VARVE_KIND_MUNMAP;
        event->cause = random_below(&random_state, 4) == 0 ? VARVE_CAUSE_MREMAP
                       : choice < 84                       ? VARVE_CAUSE_MMAP
                                                           : VARVE_CAUSE_MUNMAP;
        event->flags = choice < 84 && random_below(&random_state, 16) == 0 ? VARVE_FLAG_FAILED : 0;
        event->addr = event->flags ? 0 : 0x100000 + PAGE * random_below(&random_state, 24);
        event->size = PAGE * (1 + random_below(&random_state, 7));
        event->requested = event->kind == VARVE_KIND_MMAP ? event->size - random_below(&random_state, PAGE) : 0;
        event->arg = map_arguments();
    } else {
        event->kind = choice < 98 ? VARVE_KIND_MODULE : VARVE_KIND_STORAGE_CREATE;
        event->addr = addr;
    }
}

/* ---- the test ---- */

static void run_stream(struct run *run, struct model *model)
{
    uint64_t pending[10 * PROCESSES + 10] = {0};
    uint32_t process_count = 1;
    run->event_count = EVENTS;
    for (size_t i = 0; i < EVENTS; i++) {
        if (process_count < PROCESSES && random_below(&random_state, 90) == 0) {
            process_count++;
            model->is_forked[process_count] = random_below(&random_state, 2);
            derive_process_start(run->derive, process_count, model->is_forked[process_count] ? 1 : 0);
        }
        struct event event;
        do {
            stream_event(&event, pending, process_count);
        } while (model->has_ended[event.process_id]);
        event.seq = i + 1;
        event.ts_ns = 50 * (int64_t)i + (int64_t)random_below(&random_state, 50);
        run->events[i] = event;
        model_event(model, &run->events[i]);
        run_take(run, event);
        if (process_count > 2 && random_below(&random_state, 150) == 0) {
            uint32_t process = 2 + (uint32_t)random_below(&random_state, process_count - 1);
            derive_process_end(run->derive, process);
            model->has_ended[process] = true;
            for (size_t k = 0; k < model->base.row_count; k++) {
                model->base.rows[k].is_known &= model->base.rows[k].process != process;
            }
        }
    }
}

TEST(test_random_streams)
{
    for (uint64_t first = test_first_seed(1), seed = first; seed < first + (uint64_t)test_rounds(10, 40); seed++) {
        struct run run = {0};
        struct model *model = calloc(1, sizeof(*model));
        assert_non_null(model);
        memset(model->last_alloc, 0xff, sizeof(model->last_alloc));
        random_state = seed * 7919;
        run_begin(&run, EVENTS);
        run_stream(&run, model);
        run_end(&run, run_finish(&run, &model->base));
        free(model);
    }
}
