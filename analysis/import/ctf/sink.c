/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sink component class `sink.varve.sqlite`: takes the messages of a babeltrace2 graph and makes a trace
 * database of the events of the provider `varve`. Within the command its items go to whoever runs the graph;
 * as a plug-in of babeltrace2 it has a rebuild of its own, which it ends when the graph ends and abandons
 * when the graph is interrupted or fails, so that a database is there whole or not at all. Errors go to
 * babeltrace2 as causes, with our one line.
 */
#include "analysis/import/ctf/ctf.h"

#include <babeltrace2/babeltrace.h>
#include <stdlib.h>
#include <string.h>

#define CAUSE(self, ...)                                       \
    (void)bt_current_thread_error_append_cause_from_component( \
        bt_self_component_sink_as_self_component(self), "sink.c", __LINE__, __VA_ARGS__)

struct sink {
    struct ctf_sink_target own; /* of the plug-in */
    struct ctf_sink_target *target;
    bt_message_iterator *messages;
    struct varve_rebuild *rebuild; /* the plug-in's; NULL once it has ended */
};

static int rebuild_take(void *context, const struct ctf_item *item)
{
    struct sink *sink = context;

    sink->own.error = ctf_item_rebuild(sink->rebuild, item);
    return sink->own.error;
}

/* ---- begin and end ---- */

static void sink_free(struct sink *sink)
{
    varve_rebuild_abandon(sink->rebuild);
    bt_message_iterator_put_ref(sink->messages);
    ctf_classes_free(sink->own.classes);
    free(sink);
}

/* Parameters of the plug-in: path, and whether a file there may be replaced. */
static int open_target(bt_self_component_sink *self, struct sink *sink, const bt_value *parameters)
{
    const bt_value *path = bt_value_map_borrow_entry_value_const(parameters, "path");
    const bt_value *force = bt_value_map_borrow_entry_value_const(parameters, "force");
    struct varve_message message = {""};

    if (path == NULL || !bt_value_is_string(path)) {
        CAUSE(self, "the parameter `path` is missing, the database to write: --params='path=\"trace.db\"'");
        return BT_COMPONENT_CLASS_INITIALIZE_METHOD_STATUS_ERROR;
    }
    if (force != NULL && !bt_value_is_bool(force)) {
        CAUSE(self, "the parameter `force` is neither true nor false: --params='path=\"%s\",force=true'",
              bt_value_string_get(path));
        return BT_COMPONENT_CLASS_INITIALIZE_METHOD_STATUS_ERROR;
    }
    if (varve_rebuild_open(bt_value_string_get(path), force != NULL && bt_value_bool_get(force),
                           &sink->rebuild, &message) != VARVE_OK) {
        sink->rebuild = NULL;
        CAUSE(self, "%s", message.text);
        return BT_COMPONENT_CLASS_INITIALIZE_METHOD_STATUS_ERROR;
    }
    sink->own = (struct ctf_sink_target){.take = rebuild_take, .context = sink, .classes = ctf_classes_new()};
    sink->target = &sink->own;
    if (sink->own.classes == NULL) {
        return BT_COMPONENT_CLASS_INITIALIZE_METHOD_STATUS_MEMORY_ERROR;
    }
    return BT_COMPONENT_CLASS_INITIALIZE_METHOD_STATUS_OK;
}

int ctf_sink_initialize(bt_self_component_sink *self, bt_self_component_sink_configuration *configuration,
                        const bt_value *parameters, void *target)
{
    int status = BT_COMPONENT_CLASS_INITIALIZE_METHOD_STATUS_OK;
    struct sink *sink = calloc(1, sizeof(*sink));

    (void)configuration;
    if (sink == NULL) {
        return BT_COMPONENT_CLASS_INITIALIZE_METHOD_STATUS_MEMORY_ERROR;
    }
    sink->target = target;
    if (bt_self_component_sink_add_input_port(self, "in", NULL, NULL) !=
        BT_SELF_COMPONENT_ADD_PORT_STATUS_OK) {
        status = BT_COMPONENT_CLASS_INITIALIZE_METHOD_STATUS_ERROR;
    } else if (target == NULL) {
        status = open_target(self, sink, parameters);
    }
    if (status != BT_COMPONENT_CLASS_INITIALIZE_METHOD_STATUS_OK) {
        sink_free(sink);
        return status;
    }
    bt_self_component_set_data(bt_self_component_sink_as_self_component(self), sink);
    return status;
}

void ctf_sink_finalize(bt_self_component_sink *self)
{
    sink_free(bt_self_component_get_data(bt_self_component_sink_as_self_component(self)));
}

int ctf_sink_configured(bt_self_component_sink *self)
{
    struct sink *sink = bt_self_component_get_data(bt_self_component_sink_as_self_component(self));

    switch (bt_message_iterator_create_from_sink_component(
        self, bt_self_component_sink_borrow_input_port_by_name(self, "in"), &sink->messages)) {
    case BT_MESSAGE_ITERATOR_CREATE_FROM_SINK_COMPONENT_STATUS_OK:
        return BT_COMPONENT_CLASS_SINK_GRAPH_IS_CONFIGURED_METHOD_STATUS_OK;
    case BT_MESSAGE_ITERATOR_CREATE_FROM_SINK_COMPONENT_STATUS_MEMORY_ERROR:
        return BT_COMPONENT_CLASS_SINK_GRAPH_IS_CONFIGURED_METHOD_STATUS_MEMORY_ERROR;
    default:
        return BT_COMPONENT_CLASS_SINK_GRAPH_IS_CONFIGURED_METHOD_STATUS_ERROR;
    }
}

/* ---- messages ---- */

/* A loss whose size is not told is one at least. */
static void count_loss(struct ctf_counts *counts, uint64_t *sum, bt_property_availability is_told,
                       uint64_t count)
{
    if (is_told != BT_PROPERTY_AVAILABILITY_AVAILABLE) {
        counts->uncounted++;
        count = 1;
    }
    *sum += count;
}

static int message_take(struct sink *sink, const bt_message *message)
{
    static const struct ctf_item packet = {.kind = CTF_ITEM_PACKET};
    struct ctf_counts *counts = &sink->target->counts;
    bt_property_availability is_told;
    uint64_t count = 0;

    switch (bt_message_get_type(message)) {
    case BT_MESSAGE_TYPE_EVENT:
        return ctf_event_take(sink->target->classes, bt_message_event_borrow_event_const(message),
                              sink->target->take, sink->target->context);
    case BT_MESSAGE_TYPE_PACKET_BEGINNING:
        return sink->target->take(sink->target->context, &packet);
    case BT_MESSAGE_TYPE_DISCARDED_EVENTS:
        is_told = bt_message_discarded_events_get_count(message, &count);
        count_loss(counts, &counts->discarded_events, is_told, count);
        return VARVE_OK;
    case BT_MESSAGE_TYPE_DISCARDED_PACKETS:
        is_told = bt_message_discarded_packets_get_count(message, &count);
        count_loss(counts, &counts->discarded_packets, is_told, count);
        return VARVE_OK;
    default:
        return VARVE_OK;
    }
}

static int sink_end(bt_self_component_sink *self, struct sink *sink)
{
    struct varve_collect_result result;
    struct varve_message message = {""};
    struct varve_rebuild *rebuild = sink->rebuild;
    int error;

    if (rebuild == NULL) {
        return VARVE_OK;
    }
    sink->rebuild = NULL;
    ctf_classes_count(sink->own.classes, &sink->own.counts);
    (void)ctf_counts_rebuild(rebuild, &sink->own.counts); /* an error sticks */
    error = varve_rebuild_finish(rebuild, NULL, NULL, &result, &message);
    if (error == VARVE_ERROR_FORMAT && sink->own.counts.records == 0) {
        CAUSE(self, "no varve events in the trace (%llu others): nothing to make a database of",
              (unsigned long long)sink->own.counts.foreign);
    } else if (error != VARVE_OK) {
        CAUSE(self, "%s", message.text[0] != '\0' ? message.text : varve_strerror(error));
    }
    return error;
}

/* Where the rebuild has an error, only its end tells the reason. */
static void tell_error(bt_self_component_sink *self, struct sink *sink, int error)
{
    struct varve_collect_result result;
    struct varve_message message = {""};

    if (sink->rebuild != NULL && sink->own.error != VARVE_OK) {
        (void)varve_rebuild_finish(sink->rebuild, NULL, NULL, &result, &message);
        sink->rebuild = NULL;
    }
    sink->target->error = error;
    CAUSE(self, "%s", message.text[0] != '\0' ? message.text : varve_strerror(error));
}

int ctf_sink_consume(bt_self_component_sink *self)
{
    struct sink *sink = bt_self_component_get_data(bt_self_component_sink_as_self_component(self));
    bt_message_array_const messages;
    uint64_t count = 0;
    int error = VARVE_OK;

    switch (bt_message_iterator_next(sink->messages, &messages, &count)) {
    case BT_MESSAGE_ITERATOR_NEXT_STATUS_OK:
        break;
    case BT_MESSAGE_ITERATOR_NEXT_STATUS_END:
        return sink_end(self, sink) == VARVE_OK ? BT_COMPONENT_CLASS_SINK_CONSUME_METHOD_STATUS_END
                                                : BT_COMPONENT_CLASS_SINK_CONSUME_METHOD_STATUS_ERROR;
    case BT_MESSAGE_ITERATOR_NEXT_STATUS_AGAIN:
        return BT_COMPONENT_CLASS_SINK_CONSUME_METHOD_STATUS_AGAIN;
    case BT_MESSAGE_ITERATOR_NEXT_STATUS_MEMORY_ERROR:
        return BT_COMPONENT_CLASS_SINK_CONSUME_METHOD_STATUS_MEMORY_ERROR;
    default:
        return BT_COMPONENT_CLASS_SINK_CONSUME_METHOD_STATUS_ERROR;
    }
    for (uint64_t i = 0; i < count; i++) {
        if (error == VARVE_OK) {
            error = message_take(sink, messages[i]);
        }
        bt_message_put_ref(messages[i]);
    }
    if (error != VARVE_OK) {
        tell_error(self, sink, error);
        return BT_COMPONENT_CLASS_SINK_CONSUME_METHOD_STATUS_ERROR;
    }
    return BT_COMPONENT_CLASS_SINK_CONSUME_METHOD_STATUS_OK;
}

/* ---- the class ---- */

bt_component_class_sink *ctf_sink_class_new(void)
{
    bt_component_class_sink *class = bt_component_class_sink_create("sqlite", ctf_sink_consume);

    if (class == NULL) {
        return NULL;
    }
    if (bt_component_class_sink_set_initialize_method(class, ctf_sink_initialize) !=
            BT_COMPONENT_CLASS_SET_METHOD_STATUS_OK ||
        bt_component_class_sink_set_graph_is_configured_method(class, ctf_sink_configured) !=
            BT_COMPONENT_CLASS_SET_METHOD_STATUS_OK ||
        bt_component_class_sink_set_finalize_method(class, ctf_sink_finalize) !=
            BT_COMPONENT_CLASS_SET_METHOD_STATUS_OK) {
        bt_component_class_sink_put_ref(class);
        return NULL;
    }
    return class;
}
