/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a CTF trace tells, as items: their shapes, and where they go when a database is made of them. An item
 * is a structure of trace/sink.h whose texts and arrays are beside it, so that it can be sent through a pipe as
 * it is; ctf_item_bind puts the pointers in. Called by the sink component and by the reader.
 */
#include "analysis/import/ctf/ctf.h"

#include <string.h>

const struct ctf_item_shape *ctf_item_shape(enum ctf_item_kind kind)
{
    static const struct ctf_item item;
    static const struct ctf_item_shape shapes[CTF_ITEM_KINDS] = {
        [CTF_ITEM_RECORD] = {0, 0, sizeof(item.of.record)},
        [CTF_ITEM_PROCESS] = {2, 2, sizeof(item.of.process)},
        [CTF_ITEM_PROCESS_END] = {1, 1, sizeof(item.of.process_end)},
        [CTF_ITEM_THREAD] = {1, 1, sizeof(item.of.thread)},
        [CTF_ITEM_THREAD_END] = {0, 0, sizeof(item.of.thread_end)},
        [CTF_ITEM_CLOCK] = {0, 0, sizeof(item.of.clock)},
        [CTF_ITEM_MODULE] = {1, 2, sizeof(item.of.module)},
        [CTF_ITEM_MODULE_GONE] = {0, 0, sizeof(item.of.module_gone)},
        [CTF_ITEM_CODE] = {2, 2, sizeof(item.of.code)},
        [CTF_ITEM_CALLSITE] = {0, 3, sizeof(item.of.callsite)},
        [CTF_ITEM_META_TEXT] = {2, 2, sizeof(item.of.meta)},
        [CTF_ITEM_META_INTEGER] = {1, 1, sizeof(item.of.meta)},
        [CTF_ITEM_PACKET] = {0, 0, 0},
        [CTF_ITEM_COUNTS] = {0, 0, sizeof(item.of.counts)},
        [CTF_ITEM_FAILED] = {1, 1, 0},
    };

    return &shapes[kind];
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* What arrays are long is told by the arrays: a count that is larger would be read past their ends. */
static void bind_arrays(struct ctf_item *item)
{
    struct varve_mirror_callsite *callsite = &item->of.callsite;
    struct varve_mirror_module *module = &item->of.module;

    if (item->kind == CTF_ITEM_MODULE) {
        module->path = item->parts[0].data;
        module->build_id = item->parts[1].data;
        module->build_id_bytes = item->parts[1].bytes;
        return;
    }
    callsite->native = item->parts[0].data;
    callsite->codes = item->parts[1].data;
    callsite->lines = item->parts[2].data;
    callsite->native_count = item->parts[0].bytes / (uint32_t)sizeof(callsite->native[0]);
    callsite->python_count =
        least(item->parts[1].bytes, item->parts[2].bytes) / (uint32_t)sizeof(callsite->codes[0]);
}

void ctf_item_bind(struct ctf_item *item)
{
    switch (item->kind) {
    case CTF_ITEM_PROCESS:
        item->of.process.executable = item->parts[0].data;
        item->of.process.command_line = item->parts[1].data;
        break;
    case CTF_ITEM_PROCESS_END:
        item->of.process_end.exec_path = item->parts[0].data;
        break;
    case CTF_ITEM_THREAD:
        item->of.thread.name = item->parts[0].data;
        break;
    case CTF_ITEM_CODE:
        item->of.code.function = item->parts[0].data;
        item->of.code.file = item->parts[1].data;
        break;
    case CTF_ITEM_MODULE:
    case CTF_ITEM_CALLSITE:
        bind_arrays(item);
        break;
    case CTF_ITEM_COUNTS:
        for (size_t i = 0; i < CTF_PROVIDERS; i++) {
            item->of.counts.providers[i].name[sizeof(item->of.counts.providers[i].name) - 1] = '\0';
        }
        break;
    default:
        break;
    }
}

int ctf_item_rebuild(struct varve_rebuild *rebuild, const struct ctf_item *item)
{
    switch (item->kind) {
    case CTF_ITEM_RECORD:
        return varve_rebuild_record(rebuild, &item->of.record.origin, item->of.record.ring_seq,
                                    &item->of.record.record);
    case CTF_ITEM_PROCESS:
        return varve_rebuild_process(rebuild, &item->of.process);
    case CTF_ITEM_PROCESS_END:
        return varve_rebuild_process_end(rebuild, &item->of.process_end);
    case CTF_ITEM_THREAD:
        return varve_rebuild_thread(rebuild, &item->of.thread);
    case CTF_ITEM_THREAD_END:
        return varve_rebuild_thread_end(rebuild, &item->of.thread_end);
    case CTF_ITEM_CLOCK:
        return varve_rebuild_clock(rebuild, &item->of.clock);
    case CTF_ITEM_MODULE:
        return varve_rebuild_module(rebuild, &item->of.module);
    case CTF_ITEM_MODULE_GONE:
        return varve_rebuild_module_gone(rebuild, item->of.module_gone.process, item->of.module_gone.pid,
                                         item->of.module_gone.number);
    case CTF_ITEM_CODE:
        return varve_rebuild_code(rebuild, &item->of.code);
    case CTF_ITEM_CALLSITE:
        return varve_rebuild_callsite(rebuild, &item->of.callsite);
    case CTF_ITEM_META_TEXT:
        return varve_rebuild_meta_text(rebuild, item->of.meta.trace_id, item->parts[0].data,
                                       item->parts[1].data);
    case CTF_ITEM_META_INTEGER:
        return varve_rebuild_meta_integer(rebuild, item->of.meta.trace_id, item->parts[0].data,
                                          item->of.meta.value);
    default:
        return VARVE_OK;
    }
}

/* ---- counts ---- */

/* The sums that are added up and, but for the first two, stored. */
#define COUNT_LIST(X)                                     \
    X(records, NULL, false)                               \
    X(definitions, NULL, false)                           \
    X(statedump, "ctf_statedump_events", false)           \
    X(unknown, "ctf_unknown_events", false)               \
    X(foreign, "ctf_foreign_events", false)               \
    X(clipped, "ctf_clipped_values", true)                \
    X(discarded_events, "lttng_events_discarded", true)   \
    X(discarded_packets, "lttng_packets_discarded", true) \
    X(uncounted, "lttng_discards_of_unknown_size", false)

int ctf_counts_rebuild(struct varve_rebuild *rebuild, const struct ctf_counts *counts)
{
    const struct {
        const char *name;
        bool is_loss;
        uint64_t value;
    } rows[] = {
#define COUNT_ROW(member, name, is_loss) {name, is_loss, counts->member},
        COUNT_LIST(COUNT_ROW)
#undef COUNT_ROW
    };
    int error = VARVE_OK;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]) && error == VARVE_OK; i++) {
        if (rows[i].name != NULL && rows[i].value > 0) {
            error = varve_rebuild_stat(rebuild, rows[i].name, rows[i].is_loss, rows[i].value);
        }
    }
    return error;
}

/* Providers for which there is no place left have no name in the end. */
static void provider_add(struct ctf_counts *counts, const char *name, uint64_t events)
{
    size_t length = strcspn(name, ":");

    if (length >= sizeof(counts->providers[0].name)) {
        length = sizeof(counts->providers[0].name) - 1;
    }
    for (size_t i = 0; i < CTF_PROVIDERS; i++) {
        char *known = counts->providers[i].name;

        if (known[0] == '\0') {
            memcpy(known, name, length);
            known[length] = '\0';
        }
        if (strlen(known) == length && memcmp(known, name, length) == 0) {
            counts->providers[i].events += events;
            return;
        }
    }
}

void ctf_counts_foreign(struct ctf_counts *counts, const char *name, uint64_t events)
{
    counts->foreign += events;
    provider_add(counts, name, events);
}

void ctf_counts_add(struct ctf_counts *sum, const struct ctf_counts *counts)
{
#define COUNT_ADD(member, name, is_loss) sum->member += counts->member;
    COUNT_LIST(COUNT_ADD)
#undef COUNT_ADD
    for (size_t i = 0; i < CTF_PROVIDERS && counts->providers[i].events > 0; i++) {
        provider_add(sum, counts->providers[i].name, counts->providers[i].events);
    }
}
