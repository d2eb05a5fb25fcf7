/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events of babeltrace2 as items: an item is a structure of trace/sink.h. A trace may come from another version of
 * varve: fields that are missing are 0, their order, width and sign do not matter, what is new is passed over, and
 * events of ours by a name that is not known are counted. One thread calls all of it.
 */
#ifndef VARVE_ANALYSIS_IMPORT_CTF_PLUGIN_EVENT_H
#define VARVE_ANALYSIS_IMPORT_CTF_PLUGIN_EVENT_H

#include "trace/trace.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum ctf_item_kind {
    CTF_ITEM_NONE = 0,
    CTF_ITEM_RECORD,
    CTF_ITEM_PROCESS,
    CTF_ITEM_PROCESS_END,
    CTF_ITEM_THREAD,
    CTF_ITEM_THREAD_END,
    CTF_ITEM_CLOCK,
    CTF_ITEM_MODULE,
    CTF_ITEM_MODULE_GONE,
    CTF_ITEM_CODE,
    CTF_ITEM_CALLSITE,
    CTF_ITEM_META_TEXT,
    CTF_ITEM_META_INTEGER,
};

#define CTF_PROVIDERS 8

struct ctf_counts {
    uint64_t records, definitions; /* records, and what trace/sink.h has besides */
    uint64_t statedump;            /* of a state dump */
    uint64_t unknown;              /* events of ours by names that are not known here */
    uint64_t other;                /* events of other providers */
    uint64_t clipped;              /* values too large for their field */
    uint64_t discarded_events, discarded_packets;
    uint64_t uncounted; /* losses of unknown size; 1 is in the sums for each */
    struct {
        char name[48];
        uint64_t events;
    } providers[CTF_PROVIDERS]; /* the other ones, as many as fit */
};

/* One event; its texts and arrays last until the next one. */
struct ctf_item {
    enum ctf_item_kind kind;
    uint32_t line_count; /* elements in of.callsite.lines */
    union {
        struct {
            struct varve_sink_origin origin;
            uint64_t ring_seq;
            struct varve_record record;
        } record;
        struct varve_sink_process process;
        struct varve_sink_process_end process_end;
        struct varve_sink_thread thread;
        struct varve_sink_thread_end thread_end;
        struct varve_sink_clock clock;
        struct varve_sink_module module;
        struct {
            uint32_t process;
            int32_t pid;
            uint32_t number;
        } module_gone;
        struct varve_sink_code code;
        struct varve_sink_callsite callsite;
        struct {
            uint64_t trace_id;
            const char *key, *text; /* the value of META_TEXT */
            int64_t value;
        } meta;
    } of;
};

/// Gets one item, borrowed for the call. An error ends the reading.
typedef int ctf_take(void *context, const struct ctf_item *item);

struct bt_event;
struct ctf_classes;

/// What is known of event classes. Owner: the caller, until ctf_classes_free. NULL: no memory.
struct ctf_classes *ctf_classes_new(void);
void ctf_classes_free(struct ctf_classes *classes);
/// Turn one event into an item, if it is one of ours, and hand it to `take`; count it otherwise.
int ctf_event_take(struct ctf_classes *classes, const struct bt_event *event, ctf_take *take, void *context);
/// Add the events seen so far to `counts`.
void ctf_classes_count(const struct ctf_classes *classes, struct ctf_counts *counts);

/// Pass an item on to a rebuild.
int ctf_item_rebuild(struct varve_rebuild *rebuild, const struct ctf_item *item);
/// What was counted as rows of `stats`.
int ctf_counts_rebuild(struct varve_rebuild *rebuild, const struct ctf_counts *counts);
/// Count events of another provider; `name` may be that of an event (PROVIDER:EVENT).
void ctf_counts_other(struct ctf_counts *counts, const char *name, uint64_t events);

#ifdef __cplusplus
}
#endif

#endif
