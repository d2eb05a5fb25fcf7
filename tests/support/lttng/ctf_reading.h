/* SPDX-License-Identifier: Apache-2.0 */
/* C only: shared by C tests */
/* A CTF trace read into memory, item by item: a graph of babeltrace2 in this process, with our sink at its end. */
#ifndef VARVE_TESTS_SUPPORT_LTTNG_CTF_READING_H
#define VARVE_TESTS_SUPPORT_LTTNG_CTF_READING_H

#include <cmocka.h>

#include "analysis/import/ctf_sink.h"
#include "support/lttng/ctf_writing.h"
#include "support/sink_item.h"

#include <babeltrace2/babeltrace.h>

#define ITEMS 256U

struct got {
    struct varve_sink_item items[ITEMS];
    size_t count;
    struct ctf_counts counts;
};

static struct got got;

static inline int keep(void *context, const struct varve_sink_item *item)
{
    assert_null(context);
    assert_true(got.count < ITEMS);
    got.items[got.count++] = sink_item_copy(item);
    return VARVE_OK;
}

static inline void forget(void)
{
    for (size_t i = 0; i < got.count; i++) {
        sink_item_drop(&got.items[i]);
    }
    memset(&got, 0, sizeof(got));
}

static inline bt_component_class_sink *sink_class(void)
{
    bt_component_class_sink *class =
        bt_component_class_sink_create("test", (bt_component_class_sink_consume_method)ctf_sink_consume);
    assert_non_null(class);
    bt_component_class_sink_set_initialize_method(
        class, (bt_component_class_sink_initialize_method)ctf_sink_initialize_sqlite);
    bt_component_class_sink_set_graph_is_configured_method(
        class, (bt_component_class_sink_graph_is_configured_method)ctf_sink_configured);
    bt_component_class_sink_set_finalize_method(class, ctf_sink_finalize);
    return class;
}

/* Of one stream: no muxer is needed. */
static inline void read_trace(const char *folder)
{
    struct ctf_sink_target target = {.take = keep, .classes = ctf_classes_new()};
    bt_component_class_sink *class = sink_class();
    const bt_component_source *source = NULL;
    const bt_component_sink *sink = NULL;
    bt_graph *graph = bt_graph_create(0);
    bt_value *parameters = bt_value_map_create();
    bt_value *inputs = NULL;
    forget();
    const bt_plugin *plugin;
    assert_int_equal(bt_plugin_find("ctf", BT_TRUE, BT_TRUE, BT_TRUE, BT_TRUE, BT_FALSE, &plugin),
                     BT_PLUGIN_FIND_STATUS_OK);
    bt_value_map_insert_empty_array_entry(parameters, "inputs", &inputs);
    bt_value_array_append_string_element(inputs, folder);
    assert_int_equal(bt_graph_add_source_component(graph,
                                                   bt_plugin_borrow_source_component_class_by_name_const(plugin, "fs"),
                                                   "trace", parameters, BT_LOGGING_LEVEL_NONE, &source),
                     BT_GRAPH_ADD_COMPONENT_STATUS_OK);
    assert_int_equal(bt_graph_add_sink_component_with_initialize_method_data(graph, class, "sink", NULL, &target,
                                                                             BT_LOGGING_LEVEL_NONE, &sink),
                     BT_GRAPH_ADD_COMPONENT_STATUS_OK);
    assert_int_equal(bt_component_source_get_output_port_count(source), 1);
    assert_int_equal(bt_graph_connect_ports(graph, bt_component_source_borrow_output_port_by_index_const(source, 0),
                                            bt_component_sink_borrow_input_port_by_index_const(sink, 0), NULL),
                     BT_GRAPH_CONNECT_PORTS_STATUS_OK);
    assert_int_equal(bt_graph_run(graph), BT_GRAPH_RUN_STATUS_OK);
    got.counts = target.counts;
    ctf_classes_count(target.classes, &got.counts);
    bt_graph_put_ref(graph);
    bt_component_class_sink_put_ref(class);
    bt_value_put_ref(parameters);
    bt_plugin_put_ref(plugin);
    ctf_classes_free(target.classes);
}

static inline int enter(void **state)
{
    *state = test_folder_enter();
    return 0;
}

static inline int leave(void **state)
{
    forget();
    test_folder_leave(*state);
    return 0;
}

#endif
