/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sink component classes of babeltrace-plugin-varve.so:
 *   sqlite   a trace database of the events of the provider `varve`; parameters: path, force
 *   numbers  which records a trace has, as lines "PROCESS RING FIRST LAST" on the standard output
 * Methods return babeltrace2's own numbers, whose enumerations are as wide as int. Called by babeltrace2.
 */
#ifndef VARVE_ANALYSIS_IMPORT_CTF_SINK_H
#define VARVE_ANALYSIS_IMPORT_CTF_SINK_H

#include "trace/sink.h"
#include "trace/writer.h"

#include <stdint.h>

/*
 * Events of babeltrace2 as items of trace/sink.h. A trace may come from another version of
 * varve: fields that are missing are 0, their order, width and sign do not matter, what is new is passed over, and
 * events of ours by a name that is not known are counted. One thread calls all of it.
 */

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

/// Gets one item, borrowed for the call. An error ends the reading.
typedef int ctf_take(void *context, const struct varve_sink_item *item);

struct bt_event;
struct ctf_classes;

/// What is known of event classes. Owner: the caller, until ctf_classes_free. NULL: no memory.
struct ctf_classes *ctf_classes_new(void);
void ctf_classes_free(struct ctf_classes *classes);
/// Turn one event into an item, if it is one of ours, and hand it to `take`; count it otherwise.
int ctf_event_take(struct ctf_classes *classes, const struct bt_event *event, ctf_take *take, void *context);
/// Add the events seen so far to `counts`.
void ctf_classes_count(const struct ctf_classes *classes, struct ctf_counts *counts);

/// What was counted as rows of `stats`.
int ctf_counts_rebuild(struct varve_rebuild *rebuild, const struct ctf_counts *counts);
/// Count events of another provider; `name` may be that of an event (PROVIDER:EVENT).
void ctf_counts_other(struct ctf_counts *counts, const char *name, uint64_t events);

struct bt_self_component_sink;
struct bt_self_component_sink_configuration;
struct bt_value;

/* Initialize-method data of a component that is to hand its items to somebody else: what tests use. */
struct ctf_sink_target {
    ctf_take *take;
    void *context;
    struct ctf_classes *classes;
    struct ctf_counts counts; /* without those of `classes` */
    int error;                /* the first one of `take` */
};

int ctf_sink_initialize_sqlite(struct bt_self_component_sink *self,
                               struct bt_self_component_sink_configuration *configuration,
                               const struct bt_value *parameters, void *target);
int ctf_sink_initialize_numbers(struct bt_self_component_sink *self,
                                struct bt_self_component_sink_configuration *configuration,
                                const struct bt_value *parameters, void *target);
int ctf_sink_configured(struct bt_self_component_sink *self);
int ctf_sink_consume(struct bt_self_component_sink *self);
void ctf_sink_finalize(struct bt_self_component_sink *self);

#endif
