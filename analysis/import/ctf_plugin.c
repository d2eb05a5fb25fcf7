/* SPDX-License-Identifier: Apache-2.0 */
/*
 * babeltrace-plugin-varve.so: the sink component classes for babeltrace2's command, which `varve import` runs, and for
 * graphs of others.
 *
 *   babeltrace2 --plugin-path=DIR TRACE --component=sink.varve.sqlite --params='path="trace.db"'
 */
#include "analysis/import/ctf_sink.h"

#include <babeltrace2/babeltrace.h>

BT_PLUGIN_MODULE();

BT_PLUGIN(varve);
BT_PLUGIN_DESCRIPTION("Trace databases of varve, a recorder of memory allocators");
BT_PLUGIN_LICENSE("Apache-2.0");
BT_PLUGIN_VERSION(VARVE_VERSION_MAJOR, VARVE_VERSION_MINOR, VARVE_VERSION_PATCH, NULL);

BT_PLUGIN_SINK_COMPONENT_CLASS(sqlite, ctf_sink_consume);
BT_PLUGIN_SINK_COMPONENT_CLASS_DESCRIPTION(sqlite, "Write events of the provider varve to a trace database.");
BT_PLUGIN_SINK_COMPONENT_CLASS_HELP(
    sqlite, "Parameters: `path` (string, required), the database to write; `force` (bool), it may be replaced. "
            "Events of other providers are passed over.");
BT_PLUGIN_SINK_COMPONENT_CLASS_INITIALIZE_METHOD(sqlite, ctf_sink_initialize_sqlite);
BT_PLUGIN_SINK_COMPONENT_CLASS_GRAPH_IS_CONFIGURED_METHOD(sqlite, ctf_sink_configured);
BT_PLUGIN_SINK_COMPONENT_CLASS_FINALIZE_METHOD(sqlite, ctf_sink_finalize);

BT_PLUGIN_SINK_COMPONENT_CLASS(numbers, ctf_sink_consume);
BT_PLUGIN_SINK_COMPONENT_CLASS_DESCRIPTION(numbers, "Print which records of the provider varve a trace has.");
BT_PLUGIN_SINK_COMPONENT_CLASS_INITIALIZE_METHOD(numbers, ctf_sink_initialize_numbers);
BT_PLUGIN_SINK_COMPONENT_CLASS_GRAPH_IS_CONFIGURED_METHOD(numbers, ctf_sink_configured);
BT_PLUGIN_SINK_COMPONENT_CLASS_FINALIZE_METHOD(numbers, ctf_sink_finalize);
