/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `varve top` shows is what the collector has in memory anyway: the totals of trace/model. They go into a small
 * database beside the trace (store/live_store.h, session/watch.h), at most as often as a hundredth of a CPU allows. It
 * is asked ten times a second whether somebody watches, by one system call. What goes wrong here leaves a moment out,
 * and nothing else. collector.c calls it.
 */
#include "trace/collector/collector.h"

#include "trace/collector/collector_clock.h"
#include "trace/collector/session/watch.h"
#include "base/error.h"
#include "trace/model/derive.h"
#include "trace/model/domain.h"
#include "trace/model/model_state.h"
#include "trace/store/live_store.h"
#include "trace/store/store_resume.h"
#include "trace/store/store.h"
#include "trace/callsites/callsites.h"

#include <stdio.h>
#include <string.h>

#define ASK_EVERY_NS UINT64_C(100000000)
#define MOMENT_EVERY_NS UINT64_C(1000000000)
#define MOMENT_COST 100U   /* times the CPU time of a moment pass before the next one */
#define CALLSITES_MOST 100 /* of a domain, in each order */
#define PROCESSES_MOST 256U

static int totals_store(struct live *live, uint32_t process_id, const struct derive *derive,
                        const struct derive_process *process)
{
    int error = VARVE_OK;
    for (unsigned slot = 1; slot < SLOT_LIMIT && error == VARVE_OK; slot++) {
        struct total **found = process != NULL ? process_total(process, slot) : NULL;
        const struct total *total = process == NULL ? &derive->domains[slot].all : found != NULL ? *found : NULL;
        if (total != NULL && total->samples.limit != 0) {
            error = live_total(live, process_id, slot, total);
        }
    }
    return error;
}

static int allocators_store(struct live *live, uint32_t process_id, const struct derive_process *process)
{
    int error = VARVE_OK;
    for (unsigned i = 0; process->devices != NULL && i < DEVICE_LIMIT && error == VARVE_OK; i++) {
        struct total **found = process_total(process, slot_of(DOMAIN_BLOCK, i));
        if (process->devices[i] != NULL && found != NULL && *found != NULL) {
            const struct total *total = *found;
            struct live_allocator row = {.process_id = process_id,
                                         .device = i,
                                         .reserved = total->extra.reserved,
                                         .active = total->extra.active,
                                         .allocated = total->live_bytes,
                                         .requested = total->extra.requested};
            derive_device_now(process->devices[i], &row.segments, &row.cached);
            error = live_allocator(live, &row);
        }
    }
    return error;
}

/* Of a process that runs. */
static int process_store(struct collector *collector, const struct traced_process *process)
{
    char command[sizeof(process->control->command_line)];
    const struct live_process row = {.id = process->id,
                                     .pid = process->pid,
                                     .rank = process->control->rank,
                                     .command_line = command,
                                     .rss_bytes = process->rss.now_bytes,
                                     .threads = process->readers};
    collect_process_command(process->control, command, sizeof(command));
    int error = live_process(collector->live.store, &row);
    if (error == VARVE_OK && process->id < collector->derive->process_limit &&
        collector->derive->processes[process->id] != NULL) {
        error = totals_store(collector->live.store, process->id, collector->derive,
                             collector->derive->processes[process->id]);
        VARVE_THEN(error,
                   allocators_store(collector->live.store, process->id, collector->derive->processes[process->id]));
    }
    return error;
}

static int processes_store(struct collector *collector)
{
    uint32_t count = 0;
    int error = VARVE_OK;
    for (uint32_t i = collector->first_open; i < collector->process_count && error == VARVE_OK; i++) {
        const struct traced_process *process = collector->processes[i];
        if (process != NULL && !process->is_closed && count < PROCESSES_MOST) {
            error = process_store(collector, process);
            count++;
        }
    }
    return error;
}

static int callsites_store(struct collector *collector)
{
    struct collect_live *live = &collector->live;
    struct store_symbol user, symbol;
    int error = leaders_look(&live->leaders, collector->derive, CALLSITES_MOST);
    for (size_t i = 0; i < live->leaders.count && error == VARVE_OK; i++) {
        const struct leader *leader = &live->leaders.rows[i];
        error = live_callsite(live->store, leader);
        if (error == VARVE_OK && !live_has_name(live->store, leader->callsite) &&
            callsites_symbols(collector->callsites, leader->callsite, &user, &symbol)) {
            error = live_name(live->store, leader->callsite, &user, &symbol);
        }
    }
    return error;
}

static int moment_begin(struct collector *collector, bool is_over)
{
    char command[4096] = "";
    const int64_t ts_ns = collect_clock_ns(&collector->clock, collect_clock_now(&collector->clock));
    struct live_moment moment = {.ts_ns = is_over && collector->program_end_ns >= 0 ? collector->program_end_ns : ts_ns,
                                 .command = command,
                                 .pid = collector->directory.control->collector_pid,
                                 .is_over = is_over,
                                 .events = collector->seq,
                                 .waiting = collector_events_known(collector) - collector->seq,
                                 .lost = collect_lost(collector),
                                 .rss_bytes = collector->rss.now_bytes,
                                 .processes = collect_processes_announced(collector),
                                 .processes_running = collector->processes_alive,
                                 .threads = collector->thread_count};
    store_meta_get_text(collector->store, "command", command, sizeof(command));
    return live_begin(collector->live.store, &moment);
}

static void moment_store(struct collector *collector, bool is_over)
{
    struct live *live = collector->live.store;
    int error = moment_begin(collector, is_over);
    VARVE_THEN(error, totals_store(live, 0, collector->derive, NULL));
    VARVE_THEN(error, callsites_store(collector));
    VARVE_THEN(error, processes_store(collector));
    size_t count;
    void *bytes = error == VARVE_OK ? live_bytes(live, &count) : NULL;
    if (bytes != NULL) {
        watch_publish(&collector->directory, bytes, count);
        live_bytes_free(bytes);
    }
}

static void live_figures_forget(struct collect_live *live)
{
    live_close(live->store);
    live->store = NULL;
    leaders_free(&live->leaders);
}

void collect_live_round(struct collector *collector, uint64_t now_ns)
{
    struct collect_live *live = &collector->live;
    if (now_ns < live->next_ns || collector->directory.watch_fd < 0) {
        return;
    }
    live->next_ns = now_ns + ASK_EVERY_NS;
    if (!watch_is_wanted(&collector->directory)) {
        if (live->store != NULL) {
            live_figures_forget(live);
            watch_withdraw(&collector->directory);
        }
        return;
    }
    if (live->store == NULL && live_open(&live->store) != VARVE_OK) {
        return;
    }
    bool has_more;
    /* A program that keeps the collector busy would otherwise have no names before its end. */
    if (!collector->is_store_full) {
        callsites_step(collector->callsites, collector->store, &has_more);
    }
    if (now_ns >= live->next_moment_ns) {
        uint64_t cost_ns = collect_computed_ns();
        moment_store(collector, false);
        cost_ns = collect_computed_ns() - cost_ns;
        live->next_moment_ns =
            now_ns + (cost_ns * MOMENT_COST > MOMENT_EVERY_NS ? cost_ns * MOMENT_COST : MOMENT_EVERY_NS);
    }
}

void collect_live_end(struct collector *collector)
{
    if (collector->live.store != NULL) {
        moment_store(collector, true);
        live_figures_forget(&collector->live);
    }
}

void collect_live_close(struct collector *collector)
{
    live_figures_forget(&collector->live);
}
