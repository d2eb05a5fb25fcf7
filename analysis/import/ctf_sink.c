/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sink component classes: they take the messages of a babeltrace2 graph, and make a trace database or a list of
 * numbers of the events of the provider `varve`. A rebuild ends when the graph ends and is abandoned when the graph is
 * interrupted or fails, so a database is there whole or not at all. Errors go to babeltrace2 as causes, in one line.
 */
#include "analysis/import/ctf_sink.h"

#include <assert.h>
#include <babeltrace2/babeltrace.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CAUSE(self, ...)                                                                                      \
    (void)bt_current_thread_error_append_cause_from_component(bt_self_component_sink_as_self_component(self), \
                                                              "ctf_sink.c", __LINE__, __VA_ARGS__)

struct sink {
    struct ctf_sink_target own; /* of the plug-in */
    struct ctf_sink_target *target;
    bt_message_iterator *messages;
    struct varve_rebuild *rebuild; /* of class sqlite; NULL once it has ended */
    struct range *ranges;          /* of class numbers: one for each ring */
    size_t range_count, range_capacity;
    size_t range_last; /* the one of the last record */
};

/* Numbers without a gap that came one after the other. */
struct range {
    uint32_t process, ring;
    uint64_t first, last;
};

static int rebuild_take(void *context, const struct varve_sink_item *item)
{
    struct sink *sink = context;
    sink->own.error = varve_rebuild_item(sink->rebuild, item);
    return sink->own.error;
}

/* ---- class numbers ---- */

static bool range_print(const struct range *range)
{
    return printf("%u %u %llu %llu\n", range->process, range->ring, (unsigned long long)range->first,
                  (unsigned long long)range->last) > 0;
}

/* The one of a ring, or a new one; few rings are written to at a time, and those were added last. */
static struct range *ctf_sink_range_of(struct sink *sink, const struct varve_sink_origin *origin)
{
    struct range *range = sink->range_count > 0 ? &sink->ranges[sink->range_last] : NULL;
    size_t i = sink->range_count;
    if (range != NULL && range->process == origin->process && range->ring == origin->ring) {
        return range;
    }
    assert(i == 0 || sink->ranges != NULL);
    while (i > 0 && (sink->ranges[i - 1].process != origin->process || sink->ranges[i - 1].ring != origin->ring)) {
        i--;
    }
    if (i == 0) {
        if (sink->range_count == sink->range_capacity) {
            size_t capacity = sink->range_capacity * 2 + 16;
            struct range *grown = realloc(sink->ranges, capacity * sizeof(*grown));
            if (grown == NULL) {
                return NULL;
            }
            sink->ranges = grown;
            sink->range_capacity = capacity;
        }
        i = ++sink->range_count;
        sink->ranges[i - 1] = (struct range){.process = origin->process, .ring = origin->ring};
    }
    sink->range_last = i - 1;
    return &sink->ranges[i - 1];
}

static int number_take(void *context, const struct varve_sink_item *item)
{
    struct sink *sink = context;
    uint64_t number = item->of.record.ring_seq;
    struct range *range;
    if (item->kind != VARVE_SINK_ITEM_RECORD || number == 0) {
        return VARVE_OK;
    }
    range = ctf_sink_range_of(sink, &item->of.record.origin);
    if (range == NULL) {
        return VARVE_ERROR_NO_MEMORY;
    }
    if (number != range->last + 1) {
        if (range->last > 0 && !range_print(range)) {
            return VARVE_ERROR_IO;
        }
        range->first = number;
    } else if (range->last == 0) {
        range->first = number;
    }
    range->last = number;
    return VARVE_OK;
}

static int numbers_end(const struct sink *sink)
{
    for (size_t i = 0; i < sink->range_count; i++) {
        if (!range_print(&sink->ranges[i])) {
            return VARVE_ERROR_IO;
        }
    }
    return fflush(stdout) == 0 ? VARVE_OK : VARVE_ERROR_IO;
}

/* ---- begin and end ---- */

static void sink_free(struct sink *sink)
{
    varve_rebuild_abandon(sink->rebuild);
    bt_message_iterator_put_ref(sink->messages);
    ctf_classes_free(sink->own.classes);
    free(sink->ranges);
    free(sink);
}

/* Parameters: path, and whether a file there may be replaced. */
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
    if (varve_rebuild_open(bt_value_string_get(path), force != NULL && bt_value_bool_get(force), &sink->rebuild,
                           &message) != VARVE_OK) {
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

static int numbers_begin(bt_self_component_sink *self, struct sink *sink, const bt_value *parameters)
{
    (void)self;
    (void)parameters;
    sink->own = (struct ctf_sink_target){.take = number_take, .context = sink, .classes = ctf_classes_new()};
    sink->target = &sink->own;
    return sink->own.classes != NULL ? BT_COMPONENT_CLASS_INITIALIZE_METHOD_STATUS_OK
                                     : BT_COMPONENT_CLASS_INITIALIZE_METHOD_STATUS_MEMORY_ERROR;
}

static int initialize(bt_self_component_sink *self, const bt_value *parameters, void *target,
                      int (*begin)(bt_self_component_sink *self, struct sink *sink, const bt_value *parameters))
{
    int status = BT_COMPONENT_CLASS_INITIALIZE_METHOD_STATUS_OK;
    struct sink *sink = calloc(1, sizeof(*sink));
    if (sink == NULL) {
        return BT_COMPONENT_CLASS_INITIALIZE_METHOD_STATUS_MEMORY_ERROR;
    }
    sink->target = target;
    if (bt_self_component_sink_add_input_port(self, "in", NULL, NULL) != BT_SELF_COMPONENT_ADD_PORT_STATUS_OK) {
        status = BT_COMPONENT_CLASS_INITIALIZE_METHOD_STATUS_ERROR;
    } else if (target == NULL) {
        status = begin(self, sink, parameters);
    }
    if (status != BT_COMPONENT_CLASS_INITIALIZE_METHOD_STATUS_OK) {
        sink_free(sink);
        return status;
    }
    bt_self_component_set_data(bt_self_component_sink_as_self_component(self), sink);
    return status;
}

int ctf_sink_initialize_sqlite(bt_self_component_sink *self, bt_self_component_sink_configuration *configuration,
                               const bt_value *parameters, void *target)
{
    (void)configuration;
    return initialize(self, parameters, target, open_target);
}

int ctf_sink_initialize_numbers(bt_self_component_sink *self, bt_self_component_sink_configuration *configuration,
                                const bt_value *parameters, void *target)
{
    (void)configuration;
    return initialize(self, parameters, target, numbers_begin);
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

/* A loss of unknown size is one at least. */
static void count_loss(struct ctf_counts *counts, uint64_t *sum, bt_property_availability is_counted, uint64_t count)
{
    if (is_counted != BT_PROPERTY_AVAILABILITY_AVAILABLE) {
        counts->uncounted++;
        count = 1;
    }
    *sum += count;
}

static int message_take(struct sink *sink, const bt_message *message)
{
    struct ctf_counts *counts = &sink->target->counts;
    bt_property_availability is_counted;
    uint64_t count = 0;
    switch (bt_message_get_type(message)) {
    case BT_MESSAGE_TYPE_EVENT:
        return ctf_event_take(sink->target->classes, bt_message_event_borrow_event_const(message), sink->target->take,
                              sink->target->context);
    case BT_MESSAGE_TYPE_DISCARDED_EVENTS:
        is_counted = bt_message_discarded_events_get_count(message, &count);
        count_loss(counts, &counts->discarded_events, is_counted, count);
        return VARVE_OK;
    case BT_MESSAGE_TYPE_DISCARDED_PACKETS:
        is_counted = bt_message_discarded_packets_get_count(message, &count);
        count_loss(counts, &counts->discarded_packets, is_counted, count);
        return VARVE_OK;
    default:
        return VARVE_OK;
    }
}

/* With a comma before each three digits. */
static void append_count(char *text, size_t bytes, uint64_t count)
{
    size_t length = strlen(text);
    char digits[32];
    int digit_count = snprintf(digits, sizeof(digits), "%llu", (unsigned long long)count);
    for (int i = 0; i < digit_count && length + 2 < bytes; i++) {
        if (i > 0 && (digit_count - i) % 3 == 0) {
            text[length++] = ',';
        }
        text[length++] = digits[i];
    }
    text[length] = '\0';
}

/* "no varve events in it; it has 1,204 of lttng_ust_statedump, 7 of other": those of the tracer are in most traces. */
static void nothing_describe(const struct ctf_counts *counts, char *text, size_t bytes)
{
    snprintf(text, bytes, "no varve events in it%s",
             counts->other > 0       ? "; it has "
             : counts->statedump > 0 ? " but a state dump"
                                     : ", nor any others");
    for (size_t i = 0; i < CTF_PROVIDERS && counts->providers[i].events > 0; i++) {
        append_count(text, bytes, counts->providers[i].events);
        snprintf(text + strlen(text), bytes - strlen(text), " of %.47s%s", counts->providers[i].name,
                 i + 1 < CTF_PROVIDERS && counts->providers[i + 1].events > 0 ? ", " : "");
    }
}

static int sink_end(bt_self_component_sink *self, struct sink *sink)
{
    struct varve_collect_result result;
    struct varve_message message = {""};
    struct varve_rebuild *rebuild = sink->rebuild;
    int error;
    if (rebuild == NULL) {
        return sink->target == &sink->own ? numbers_end(sink) : VARVE_OK;
    }
    sink->rebuild = NULL;
    ctf_classes_count(sink->own.classes, &sink->own.counts);
    if (sink->own.counts.records + sink->own.counts.definitions == 0) {
        varve_rebuild_abandon(rebuild);
        nothing_describe(&sink->own.counts, message.text, sizeof(message.text));
        CAUSE(self, "%s", message.text);
        return VARVE_ERROR_FORMAT;
    }
    (void)ctf_counts_rebuild(rebuild, &sink->own.counts); /* an error sticks */
    error = varve_rebuild_finish(rebuild, NULL, NULL, &result, &message);
    if (error != VARVE_OK) {
        CAUSE(self, "%s", message.text[0] != '\0' ? message.text : varve_strerror(error));
    }
    return error;
}

/* Where the rebuild has an error, only its end gives the reason. */
static void append_error(bt_self_component_sink *self, struct sink *sink, int error)
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
        VARVE_THEN(error, message_take(sink, messages[i]));
        bt_message_put_ref(messages[i]);
    }
    if (error != VARVE_OK) {
        append_error(self, sink, error);
        return BT_COMPONENT_CLASS_SINK_CONSUME_METHOD_STATUS_ERROR;
    }
    return BT_COMPONENT_CLASS_SINK_CONSUME_METHOD_STATUS_OK;
}
