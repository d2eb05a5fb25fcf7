/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sink component classes of babeltrace-plugin-varve.so:
 *   sqlite   a trace database of the events of the provider `varve`; parameters: path, force
 *   numbers  which records a trace has, as lines "PROCESS RING FIRST LAST" on the standard output
 * Methods return babeltrace2's own numbers, whose enumerations are as wide as int. Called by babeltrace2.
 */
#ifndef VARVE_ANALYSIS_IMPORT_CTF_SINK_H
#define VARVE_ANALYSIS_IMPORT_CTF_SINK_H

#include "analysis/import/ctf_event.h"

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
