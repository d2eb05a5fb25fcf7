/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `varve top` shows is what the collector has in memory anyway: the totals of trace/model. They go into a small
 * JSON document beside the trace (session/watch.h), at most as often as a hundredth of a CPU allows: an object of
 * arrays of rows, with the names that keys of `varve top --json` have; analysis/top/top_figures.c reads it. It is asked
 * ten times a second whether somebody watches, by one system call. What goes wrong here leaves a moment out, and
 * nothing else. collector.c calls it.
 */
#include "trace/collector/collector.h"

#include "base/error.h"
#include "base/grown_array.h"
#include "base/monotonic.h"
#include "trace/callsites/callsites.h"
#include "trace/collector/collector_clock.h"
#include "trace/collector/session/watch.h"
#include "trace/model/derive.h"
#include "trace/model/domain.h"
#include "trace/model/model_state.h"
#include "trace/store/schema.h"
#include "trace/store/store.h"
#include "trace/store/store_resume.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ASK_EVERY_NS UINT64_C(100000000)
#define MOMENT_EVERY_NS UINT64_C(1000000000)
#define MOMENT_COST 100U   /* times the CPU time of a moment pass before the next one */
#define CALLSITES_MOST 100 /* of a domain, in each order */
#define PROCESSES_MOST 256U

/* ---- JSON ---- */

/* A moment that is being written. */
struct moment {
    FILE *out;
    const char *comma;   /* before the next value */
    int64_t interval_ns; /* since the moment before; 0: there was none */
};

static void put_key(struct moment *moment, const char *key)
{
    fprintf(moment->out, "%s\"%s\":", moment->comma, key);
    moment->comma = ",";
}

static void put_open(struct moment *moment, char bracket)
{
    fprintf(moment->out, "%s%c", bracket == '{' ? moment->comma : "", bracket);
    moment->comma = "";
}

static void put_close(struct moment *moment, const char *brackets)
{
    fputs(brackets, moment->out);
    moment->comma = ",";
}

static void put_null(struct moment *moment, const char *key)
{
    put_key(moment, key);
    fputs("null", moment->out);
}

/* Sums of damaged records may be larger than a column of SQLite. */
static uint64_t live_clamp(uint64_t value)
{
    return value > INT64_MAX ? INT64_MAX : value;
}

static void put_count(struct moment *moment, const char *key, uint64_t value)
{
    put_key(moment, key);
    fprintf(moment->out, "%" PRIu64, live_clamp(value));
}

struct count {
    const char *key;
    uint64_t value;
};

static void put_each(struct moment *moment, const struct count *counts, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        put_count(moment, counts[i].key, counts[i].value);
    }
}

#define PUT_COUNTS(moment, ...)                           \
    put_each(moment, (const struct count[]){__VA_ARGS__}, \
             sizeof((const struct count[]){__VA_ARGS__}) / sizeof(struct count))

static void put_count_if(struct moment *moment, const char *key, bool has_value, uint64_t value)
{
    if (has_value) {
        put_count(moment, key, value);
    } else {
        put_null(moment, key);
    }
}

/* With an exponent, so that it stays a real number where it is a whole one. */
static void put_real(struct moment *moment, const char *key, double value)
{
    put_key(moment, key);
    fprintf(moment->out, "%.17e", value);
}

static void put_rate(struct moment *moment, const char *key, uint64_t now, uint64_t before)
{
    if (moment->interval_ns > 0) {
        const int64_t more = (int64_t)(live_clamp(now) - live_clamp(before));
        put_real(moment, key, 1e9 * (double)more / (double)moment->interval_ns);
    } else {
        put_null(moment, key);
    }
}

/* NULL is null. Bytes that are not UTF-8 stay: readers take names as they are. */
static void put_text(struct moment *moment, const char *key, const char *text)
{
    if (text == NULL) {
        put_null(moment, key);
        return;
    }
    put_key(moment, key);
    putc('"', moment->out);
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text < ' ' || *text == '"' || *text == '\\') {
            fprintf(moment->out, "\\u%04x", (unsigned)*text);
        } else {
            putc(*text, moment->out);
        }
    }
    putc('"', moment->out);
}

/* ---- rows ---- */

static void recording_put(struct moment *moment, struct collector *collector, bool is_over, int64_t ts_ns)
{
    char command[4096] = "";
    store_meta_get_text(collector->store, "command", command, sizeof(command));
    put_key(moment, "recording");
    put_open(moment, '[');
    put_open(moment, '{');
    PUT_COUNTS(moment, {"number", collector->live.number}, {"pid", collector->directory.control->collector_pid},
               {"is_over", is_over}, {"duration_ns", ts_ns}, {"events", collector->seq},
               {"waiting", collector_events_known(collector) - collector->seq}, {"lost", collect_lost(collector)},
               {"processes", collect_processes_announced(collector)}, {"processes_running", collector->processes_alive},
               {"threads", collector->thread_count});
    put_text(moment, "command", command);
    put_count_if(moment, "attached_pid", collector->directory.control->attached_pid > 0,
                 (uint64_t)collector->directory.control->attached_pid);
    put_rate(moment, "events_per_s", collector->seq, collector->live.events);
    put_count_if(moment, "rss_bytes", collector->rss.now_bytes != 0, collector->rss.now_bytes);
    put_close(moment, "}]");
}

static void totals_put(struct moment *moment, struct collector *collector)
{
    put_key(moment, "total");
    put_open(moment, '[');
    for (unsigned slot = 1; slot < SLOT_LIMIT; slot++) {
        const struct total *total = &collector->derive->domains[slot].all;
        struct live_before *before = &collector->live.totals[slot];
        if (total->samples.limit == 0 || slot_domain(slot) == DOMAIN_CUPTI) {
            continue;
        }
        put_open(moment, '{');
        PUT_COUNTS(moment, {"device", slot_device(slot)}, {"allocations", total->sum.allocations},
                   {"frees", total->sum.frees}, {"bytes", total->sum.bytes},
                   {"live_allocations", total->sum.live_allocations}, {"live_bytes", total->sum.live_bytes},
                   {"temporary", total->sum.temporary}, {"peak_bytes", total->peak_bytes},
                   {"peak_allocations", total->peak_allocations}, {"failed", total->failed});
        put_text(moment, "domain", schema_domain_name(slot_domain(slot)));
        put_count_if(moment, "peak_ns", total->peak_seq != 0, (uint64_t)total->peak_ns);
        put_rate(moment, "allocations_per_s", total->sum.allocations, before->allocations);
        put_rate(moment, "bytes_per_s", total->sum.bytes, before->bytes);
        put_close(moment, "}");
        *before = (struct live_before){.allocations = total->sum.allocations, .bytes = total->sum.bytes};
    }
    put_close(moment, "]");
}

static void allocators_put(struct moment *moment, const struct traced_process *process,
                           const struct derive_process *derived)
{
    for (unsigned i = 0; derived->devices != NULL && i < DEVICE_LIMIT; i++) {
        const struct total *total = process_total(derived, slot_of(DOMAIN_BLOCK, i));
        if (derived->devices[i] == NULL || total == NULL) {
            continue;
        }
        const uint64_t reserved = live_clamp(total->extra.reserved), allocated = live_clamp(total->sum.live_bytes);
        uint32_t segments;
        uint64_t cached;
        derive_device_now(derived->devices[i], &segments, &cached);
        put_open(moment, '{');
        PUT_COUNTS(moment, {"pid", process->pid}, {"device", i}, {"segments", segments}, {"reserved", reserved},
                   {"active", total->extra.active}, {"allocated", allocated}, {"requested", total->extra.requested},
                   {"cached", cached});
        put_count_if(moment, "rank", process->control->rank >= 0, (uint64_t)process->control->rank);
        if (reserved != 0) {
            put_real(moment, "unused_share", 1.0 - (double)allocated / (double)reserved);
        } else {
            put_null(moment, "unused_share");
        }
        put_close(moment, "}");
    }
}

/* Domains nest: of host memory the heap, of devices what the CUDA API gave. */
static void process_put(struct moment *moment, struct traced_process *process, const struct derive_process *derived)
{
    char command[sizeof(process->control->command_line)];
    const struct total *heap = NULL;
    uint64_t device_bytes = 0;
    bool has_device = false;
    for (unsigned slot = 1; derived != NULL && slot < SLOT_LIMIT; slot++) {
        const struct total *total = process_total(derived, slot);
        if (total == NULL || total->samples.limit == 0) {
            continue;
        }
        heap = slot_domain(slot) == DOMAIN_HEAP ? total : heap;
        if (slot_domain(slot) == DOMAIN_DEVICE) {
            has_device = true;
            device_bytes += live_clamp(total->sum.live_bytes);
        }
    }
    collect_process_command(process->control, command, sizeof(command));
    put_open(moment, '{');
    PUT_COUNTS(moment, {"id", process->id}, {"pid", process->pid}, {"threads", process->readers});
    put_count_if(moment, "rank", process->control->rank >= 0, (uint64_t)process->control->rank);
    put_text(moment, "command_line", command);
    put_count_if(moment, "rss_bytes", process->rss.now_bytes != 0, process->rss.now_bytes);
    put_count_if(moment, "heap_bytes", heap != NULL, heap != NULL ? heap->sum.live_bytes : 0);
    put_count_if(moment, "device_bytes", has_device, device_bytes);
    if (heap != NULL) {
        put_rate(moment, "allocations_per_s", heap->sum.allocations, process->live_allocations);
        process->live_allocations = heap->sum.allocations;
    } else {
        put_null(moment, "allocations_per_s");
    }
    put_close(moment, "}");
}

/* Those that run, as themselves or with their caching allocators. */
static void processes_put(struct moment *moment, struct collector *collector, bool allocators)
{
    const struct derive *derive = collector->derive;
    uint32_t count = 0;
    put_key(moment, allocators ? "allocator" : "process_total");
    put_open(moment, '[');
    for (uint32_t i = collector->first_open; i < collector->process_count && count < PROCESSES_MOST; i++) {
        struct traced_process *process = collector->processes[i];
        if (process == NULL || process->is_closed) {
            continue;
        }
        const struct derive_process *derived =
            process->id < derive->process_limit ? derive->processes[process->id] : NULL;
        count++;
        if (!allocators) {
            process_put(moment, process, derived);
        } else if (derived != NULL) {
            allocators_put(moment, process, derived);
        }
    }
    put_close(moment, "]");
}

/* ---- names of call sites ---- */

static void symbol_put(struct moment *moment, const struct store_symbol *symbol, const char *const keys[4])
{
    put_text(moment, keys[0], symbol->function);
    put_text(moment, keys[1], symbol->file);
    put_count_if(moment, keys[2], symbol->line != 0, symbol->line);
    put_text(moment, keys[3], symbol->module);
}

/* Both frames of a call site as members of an object; NULL: not yet, or no memory. */
static char *name_make(struct collector *collector, uint32_t callsite)
{
    static const char *const user_keys[] = {"user_function", "user_file", "user_line", "user_module"};
    static const char *const keys[] = {"function", "file", "line", "module"};
    struct store_symbol user, symbol;
    char *text = NULL;
    size_t bytes;
    struct moment names = {.comma = ","};
    if (!callsites_symbols(collector->callsites, callsite, &user, &symbol) ||
        (names.out = open_memstream(&text, &bytes)) == NULL) {
        return NULL;
    }
    symbol_put(&names, &user, user_keys);
    symbol_put(&names, &symbol, keys);
    if (fclose(names.out) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

/* A name stays from moment to moment: while the thread that looks names up is at it there is none to be had. Few lead,
 * so they are searched one by one. */
static const char *name_find(struct collector *collector, uint32_t callsite)
{
    struct collect_live *live = &collector->live;
    struct live_name *name = live->names;
    while (name < live->names + live->name_count && name->callsite != callsite) {
        name++;
    }
    if (name == live->names + live->name_count) {
        char *text = name_make(collector, callsite);
        if (text == NULL || !ARRAY_GROW(live->names, live->name_capacity, live->name_count + 1)) {
            free(text);
            return NULL;
        }
        name = &live->names[live->name_count++];
        *name = (struct live_name){.text = text, .callsite = callsite};
    }
    name->number = live->number;
    return name->text;
}

/* Of call sites that lead no more. */
static void names_clear(struct collect_live *live)
{
    size_t count = 0;
    for (size_t i = 0; i < live->name_count; i++) {
        if (live->names[i].number == live->number) {
            live->names[count++] = live->names[i];
        } else {
            free(live->names[i].text);
        }
    }
    live->name_count = count;
}

static int callsites_put(struct moment *moment, struct collector *collector)
{
    struct collect_live *live = &collector->live;
    int error = leaders_look(&live->leaders, collector->derive, CALLSITES_MOST);
    put_key(moment, "callsite_total");
    put_open(moment, '[');
    for (size_t i = 0; i < live->leaders.count && error == VARVE_OK; i++) {
        const struct leader *leader = &live->leaders.rows[i];
        const struct callsite_total *total = &leader->total;
        const char *name = name_find(collector, leader->callsite);
        put_open(moment, '{');
        PUT_COUNTS(moment, {"callsite_id", leader->callsite}, {"is_named", name != NULL},
                   {"allocations", total->sum.allocations}, {"frees", total->sum.frees}, {"bytes", total->sum.bytes},
                   {"live_allocations", total->sum.live_allocations}, {"live_bytes", total->sum.live_bytes},
                   {"temporary", total->sum.temporary}, {"peak_allocations", total->peak_allocations},
                   {"peak_bytes", total->peak_bytes});
        put_text(moment, "domain", schema_domain_name(leader->domain));
        fputs(name != NULL ? name : "", moment->out);
        put_rate(moment, "allocations_per_s", total->sum.allocations, leader->allocations_before);
        put_rate(moment, "bytes_per_s", total->sum.bytes, leader->bytes_before);
        put_close(moment, "}");
    }
    put_close(moment, "]");
    names_clear(live);
    return error;
}

/* ---- moments ---- */

static void moment_write(struct collector *collector, bool is_over)
{
    struct collect_live *live = &collector->live;
    const int64_t now_ns = collect_clock_ns(&collector->clock, collect_clock_now(&collector->clock));
    const int64_t ts_ns = is_over && collector->program_end_ns >= 0 ? collector->program_end_ns : now_ns;
    char *text = NULL;
    size_t bytes;
    struct moment moment = {.out = open_memstream(&text, &bytes), .comma = ""};
    if (moment.out == NULL) {
        return;
    }
    moment.interval_ns = live->number > 0 && ts_ns > live->ts_ns ? ts_ns - live->ts_ns : 0;
    live->number++;
    put_open(&moment, '{');
    put_count(&moment, "varve_live", VARVE_LIVE_VERSION);
    recording_put(&moment, collector, is_over, ts_ns);
    totals_put(&moment, collector);
    processes_put(&moment, collector, true);
    processes_put(&moment, collector, false);
    const int error = callsites_put(&moment, collector);
    put_close(&moment, "}\n");
    live->ts_ns = ts_ns;
    live->events = collector->seq;
    if (fclose(moment.out) == 0 && error == VARVE_OK) {
        watch_publish(&collector->directory, text, bytes);
    }
    free(text);
}

static void live_figures_forget(struct collect_live *live)
{
    for (size_t i = 0; i < live->name_count; i++) {
        free(live->names[i].text);
    }
    free(live->names);
    leaders_free(&live->leaders);
    *live = (struct collect_live){.next_ns = live->next_ns, .next_moment_ns = live->next_moment_ns};
}

void collect_live_round(struct collector *collector, uint64_t now_ns)
{
    struct collect_live *live = &collector->live;
    if (now_ns < live->next_ns || collector->directory.watch_fd < 0) {
        return;
    }
    live->next_ns = now_ns + ASK_EVERY_NS;
    if (!watch_is_wanted(&collector->directory)) {
        if (live->number > 0) {
            live_figures_forget(live);
            watch_withdraw(&collector->directory);
        }
        return;
    }
    bool has_more;
    /* A program that keeps the collector busy would otherwise have no names before its end. */
    if (!collector->is_store_full) {
        callsites_step(collector->callsites, collector->store, &has_more);
    }
    if (now_ns >= live->next_moment_ns) {
        uint64_t cost_ns = monotonic_computed_ns();
        moment_write(collector, false);
        cost_ns = monotonic_computed_ns() - cost_ns;
        live->next_moment_ns =
            now_ns + (cost_ns * MOMENT_COST > MOMENT_EVERY_NS ? cost_ns * MOMENT_COST : MOMENT_EVERY_NS);
    }
}

void collect_live_end(struct collector *collector)
{
    if (collector->live.number > 0) {
        moment_write(collector, true);
        live_figures_forget(&collector->live);
    }
}

void collect_live_close(struct collector *collector)
{
    live_figures_forget(&collector->live);
}
