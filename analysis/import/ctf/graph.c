/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A babeltrace2 graph over CTF traces: one source.ctf.fs for each trace, all their streams into one muxer,
 * which puts the messages in the order of time, and our sink component behind it. What goes wrong becomes one
 * item with the innermost cause: that is the one which names the file and the byte. Called in the process
 * that reader.c makes for it.
 */
#include "analysis/import/ctf/ctf.h"

#include <babeltrace2/babeltrace.h>
#include <stdio.h>
#include <string.h>

struct graph {
    bt_graph *graph;
    const bt_plugin *ctf, *utils;
    const bt_component_filter *muxer;
    const bt_component_sink *sink;
    uint64_t muxer_ports; /* of its input, taken */
    struct ctf_sink_target target;
};

const char *ctf_version(void)
{
    static char text[32];

    snprintf(text, sizeof(text), "%u.%u.%u", bt_version_get_major(), bt_version_get_minor(),
             bt_version_get_patch());
    return text;
}

static int fail(struct graph *graph, const char *what)
{
    const bt_error *error = bt_current_thread_take_error();
    const char *text = what;
    struct ctf_item item = {.kind = CTF_ITEM_FAILED};

    if (error != NULL && bt_error_get_cause_count(error) > 0) {
        text = bt_error_cause_get_message(bt_error_borrow_cause_by_index(error, 0));
    }
    item.parts[0] = (struct ctf_part){text, (uint32_t)strlen(text) + 1};
    if (graph->target.error == VARVE_OK) {
        graph->target.error = graph->target.take(graph->target.context, &item);
    }
    if (error != NULL) {
        bt_error_release(error);
    }
    return VARVE_ERROR_FORMAT;
}

static int plugins_find(struct graph *graph)
{
    if (bt_plugin_find("ctf", BT_TRUE, BT_TRUE, BT_TRUE, BT_TRUE, BT_FALSE, &graph->ctf) !=
            BT_PLUGIN_FIND_STATUS_OK ||
        bt_plugin_find("utils", BT_TRUE, BT_TRUE, BT_TRUE, BT_TRUE, BT_FALSE, &graph->utils) !=
            BT_PLUGIN_FIND_STATUS_OK) {
        return fail(graph, "babeltrace2's plug-ins ctf and utils are missing");
    }
    return VARVE_OK;
}

/* The muxer and the sink. */
static int graph_begin(struct graph *graph)
{
    bt_logging_level level = bt_logging_get_global_level();
    const bt_component_class_filter *muxer;
    bt_component_class_sink *class;
    int error = VARVE_OK;

    muxer = bt_plugin_borrow_filter_component_class_by_name_const(graph->utils, "muxer");
    class = ctf_sink_class_new();
    graph->graph = bt_graph_create(0);
    if (muxer == NULL || class == NULL || graph->graph == NULL ||
        bt_graph_add_filter_component(graph->graph, muxer, "muxer", NULL, level, &graph->muxer) !=
            BT_GRAPH_ADD_COMPONENT_STATUS_OK ||
        bt_graph_add_sink_component_with_initialize_method_data(graph->graph, class, "sink", NULL,
                                                                &graph->target, level, &graph->sink) !=
            BT_GRAPH_ADD_COMPONENT_STATUS_OK ||
        bt_graph_connect_ports(graph->graph,
                               bt_component_filter_borrow_output_port_by_index_const(graph->muxer, 0),
                               bt_component_sink_borrow_input_port_by_index_const(graph->sink, 0),
                               NULL) != BT_GRAPH_CONNECT_PORTS_STATUS_OK) {
        error = fail(graph, "babeltrace2 cannot make a graph");
    }
    bt_component_class_sink_put_ref(class);
    return error;
}

static bt_value *source_parameters(const char *folder)
{
    bt_value *parameters = bt_value_map_create();
    bt_value *inputs = NULL;

    if (parameters != NULL &&
        (bt_value_map_insert_empty_array_entry(parameters, "inputs", &inputs) !=
             BT_VALUE_MAP_INSERT_ENTRY_STATUS_OK ||
         bt_value_array_append_string_element(inputs, folder) != BT_VALUE_ARRAY_APPEND_ELEMENT_STATUS_OK)) {
        bt_value_put_ref(parameters);
        return NULL;
    }
    return parameters;
}

/* A source for one trace; each of its streams is a port, for which the muxer always has one more. */
static int source_add(struct graph *graph, const char *folder, size_t number)
{
    const bt_component_class_source *class =
        bt_plugin_borrow_source_component_class_by_name_const(graph->ctf, "fs");
    bt_value *parameters = source_parameters(folder);
    const bt_component_source *source = NULL;
    char name[32];
    bool is_added;

    snprintf(name, sizeof(name), "trace%zu", number);
    is_added =
        class != NULL && parameters != NULL &&
        bt_graph_add_source_component(graph->graph, class, name, parameters, bt_logging_get_global_level(),
                                      &source) == BT_GRAPH_ADD_COMPONENT_STATUS_OK;
    bt_value_put_ref(parameters);
    if (!is_added) {
        return fail(graph, "babeltrace2 cannot open the trace");
    }
    for (uint64_t i = 0; i < bt_component_source_get_output_port_count(source); i++) {
        const bt_port_input *input =
            bt_component_filter_borrow_input_port_by_index_const(graph->muxer, graph->muxer_ports);

        if (bt_graph_connect_ports(graph->graph,
                                   bt_component_source_borrow_output_port_by_index_const(source, i), input,
                                   NULL) != BT_GRAPH_CONNECT_PORTS_STATUS_OK) {
            return fail(graph, "babeltrace2 cannot connect a stream of the trace");
        }
        graph->muxer_ports++;
    }
    return VARVE_OK;
}

static int graph_run(struct graph *graph, char *const *folders, size_t count)
{
    struct ctf_item item = {.kind = CTF_ITEM_COUNTS};
    int error = graph->target.classes != NULL ? VARVE_OK : fail(graph, varve_strerror(VARVE_ERROR_NO_MEMORY));

    if (error == VARVE_OK) {
        error = plugins_find(graph);
    }
    if (error == VARVE_OK) {
        error = graph_begin(graph);
    }
    for (size_t i = 0; i < count && error == VARVE_OK; i++) {
        error = source_add(graph, folders[i], i);
    }
    if (error == VARVE_OK && graph->muxer_ports > 0 && bt_graph_run(graph->graph) != BT_GRAPH_RUN_STATUS_OK) {
        (void)fail(graph, "babeltrace2 cannot read the trace");
    }
    if (graph->target.error == VARVE_OK) {
        item.of.counts = graph->target.counts;
        if (graph->target.classes != NULL) {
            ctf_classes_count(graph->target.classes, &item.of.counts);
        }
        graph->target.error = graph->target.take(graph->target.context, &item);
    }
    return graph->target.error;
}

int ctf_graph_run(char *const *folders, size_t count, ctf_take *take, void *context)
{
    struct graph graph = {.target = {.take = take, .context = context, .classes = ctf_classes_new()}};
    int error = graph_run(&graph, folders, count);

    bt_graph_put_ref(graph.graph);
    bt_plugin_put_ref(graph.ctf);
    bt_plugin_put_ref(graph.utils);
    ctf_classes_free(graph.target.classes);
    return error;
}
