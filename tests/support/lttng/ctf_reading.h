/* SPDX-License-Identifier: Apache-2.0 */
/* C only: shared by C tests */
/* A CTF trace read into memory, item by item: a graph of babeltrace2 in this process, with our sink at its end. */
#ifndef VARVE_TESTS_SUPPORT_LTTNG_CTF_READING_H
#define VARVE_TESTS_SUPPORT_LTTNG_CTF_READING_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "analysis/import/ctf/plugin/sink.h"
#include "support/lttng/ctf_writing.h"

#include <babeltrace2/babeltrace.h>

#define ITEMS 256U

/* The items of a trace, with copies of their parts. */
struct got {
    struct ctf_item items[ITEMS];
    char parts[ITEMS][CTF_PARTS][256];
    size_t count;
    struct ctf_counts counts;
};

static struct got got;

/* Arrays and texts are copied; the structure of the copy points to the copies. */
static inline int keep(void *context, const struct ctf_item *item)
{
    struct ctf_item *copy = &got.items[got.count];
    char(*parts)[256] = got.parts[got.count];

    assert_null(context);
    assert_true(got.count < ITEMS);
    *copy = *item;
    for (unsigned i = 0; i < CTF_PARTS; i++) {
        assert_true(item->parts[i].bytes <= sizeof(parts[0]));
        if (item->parts[i].bytes > 0) {
            memcpy(parts[i], item->parts[i].data, item->parts[i].bytes);
        }
        copy->parts[i].data = parts[i];
    }
    switch (item->kind) {
    case CTF_ITEM_PROCESS:
        copy->of.process.executable = parts[0];
        copy->of.process.command_line = parts[1];
        break;
    case CTF_ITEM_PROCESS_END:
        copy->of.process_end.exec_path = parts[0];
        break;
    case CTF_ITEM_THREAD:
        copy->of.thread.name = parts[0];
        break;
    case CTF_ITEM_CODE:
        copy->of.code.function = parts[0];
        copy->of.code.file = parts[1];
        break;
    case CTF_ITEM_MODULE:
        copy->of.module.path = parts[0];
        copy->of.module.build_id = (const uint8_t *)parts[1];
        break;
    case CTF_ITEM_CALLSITE:
        copy->of.callsite.native = (const uint64_t *)(const void *)parts[0];
        copy->of.callsite.codes = (const uint32_t *)(const void *)parts[1];
        copy->of.callsite.lines = (const uint32_t *)(const void *)parts[2];
        break;
    default:
        break;
    }
    got.count++;
    return VARVE_OK;
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
    const bt_plugin *plugin;

    memset(&got, 0, sizeof(got));
    assert_int_equal(bt_plugin_find("ctf", BT_TRUE, BT_TRUE, BT_TRUE, BT_TRUE, BT_FALSE, &plugin),
                     BT_PLUGIN_FIND_STATUS_OK);
    bt_value_map_insert_empty_array_entry(parameters, "inputs", &inputs);
    bt_value_array_append_string_element(inputs, folder);
    assert_int_equal(bt_graph_add_source_component(
                         graph, bt_plugin_borrow_source_component_class_by_name_const(plugin, "fs"), "trace",
                         parameters, BT_LOGGING_LEVEL_NONE, &source),
                     BT_GRAPH_ADD_COMPONENT_STATUS_OK);
    assert_int_equal(bt_graph_add_sink_component_with_initialize_method_data(
                         graph, class, "sink", NULL, &target, BT_LOGGING_LEVEL_NONE, &sink),
                     BT_GRAPH_ADD_COMPONENT_STATUS_OK);
    assert_int_equal(bt_component_source_get_output_port_count(source), 1);
    assert_int_equal(
        bt_graph_connect_ports(graph, bt_component_source_borrow_output_port_by_index_const(source, 0),
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
    test_folder_leave(*state);
    return 0;
}

#endif
