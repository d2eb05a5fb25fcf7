/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What derive gathered about the CUDA API becomes rows: what numbers mean (device, process_device, stream,
 * pool), what calls cost (device_call_stat), what streams had (stream_stat), what the driver said of its
 * memory (device_memory) and where the events are (device_event). derive_finish calls it in its last
 * transaction.
 */
#include "trace/model/device/device.h"
#include "trace/store/derived.h"

#include <stdio.h>

#define WRITE_ROW(store, statement, values, message) \
    derive_write_row(store, statement, values, sizeof(values) / sizeof((values)[0]), message)

/* As nvidia-smi writes it. */
static void uuid_text(const uint64_t uuid[2], char text[64])
{
    const unsigned char *byte = (const unsigned char *)uuid;
    int at = snprintf(text, 64, "GPU-");
    for (int i = 0; i < 16; i++) {
        const char *dash = i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "";
        at += snprintf(text + at, 64 - (size_t)at, "%s%02x", dash, byte[i]);
    }
}

static int write_devices(const struct derive_names *names, struct store *store, struct varve_message *message)
{
    int code = VARVE_OK;
    for (unsigned i = 0; i < DEVICE_LIMIT && code == VARVE_OK; i++) {
        const struct derive_name *device = &names->devices[i];
        char text[64];
        if (!device->is_used && device->total_bytes == 0) {
            continue;
        }
        uuid_text(device->uuid, text);
        const struct store_value values[] = {
            VALUE_INTEGER(i),
            value_text(device->name[0] != '\0' ? device->name : NULL),
            value_not_negative(device->total_bytes > 0 ? (int64_t)device->total_bytes : -1),
            value_text(device->is_used ? text : NULL),
        };
        code = WRITE_ROW(store, STATEMENT_DEVICE, values, message);
    }
    for (size_t i = 0; i < names->ordinal_count && code == VARVE_OK; i++) {
        const struct derive_ordinal *ordinal = &names->ordinals[i];
        const struct store_value values[] = {VALUE_INTEGER(ordinal->process_id),
                                             VALUE_INTEGER(ordinal->ordinal), VALUE_INTEGER(ordinal->device)};
        code = WRITE_ROW(store, STATEMENT_PROCESS_DEVICE, values, message);
    }
    return code;
}

static int write_meanings(const struct derive *derive, struct store *store, struct varve_message *message)
{
    const struct derive_names *names = derive->names;
    int code = VARVE_OK;
    for (size_t i = 0; i < names->meaning_count && code == VARVE_OK; i++) {
        const struct derive_meaning *row = &names->meanings[i];
        unsigned device = names_device_of(derive, row);
        code = row->is_pool ? store_pool(store, row->process_id, device, row->number, row->ids[0],
                                         row->ids[1], row->is_small)
                            : store_stream(store, row->process_id, device, row->number, row->ids[0]);
        if (code != VARVE_OK) {
            varve_message_set(message, code, "%s", store->failure.text);
        }
    }
    return code;
}

static int write_calls(const struct derive_calls *calls, struct store *store, struct varve_message *message)
{
    int code = VARVE_OK;
    for (size_t i = 0; i < calls->call_count && code == VARVE_OK; i++) {
        const struct derive_call *call = &calls->calls[i];
        const struct store_value values[] = {
            VALUE_INTEGER(call->process_id), VALUE_INTEGER(call->device), VALUE_INTEGER(call->stream),
            VALUE_INTEGER(call->cause),      VALUE_INTEGER(call->class),  VALUE_INTEGER(call->calls),
            VALUE_INTEGER(call->failed),     VALUE_INTEGER(call->ns),     VALUE_INTEGER(call->max_ns),
            VALUE_INTEGER(call->bytes),
        };
        code = WRITE_ROW(store, STATEMENT_DEVICE_CALL, values, message);
    }
    for (size_t i = 0; i < calls->memory_count && code == VARVE_OK; i++) {
        const struct derive_memory *memory = &calls->memories[i];
        const struct store_value values[] = {
            VALUE_INTEGER(memory->seq),         VALUE_INTEGER(memory->ts_ns),
            VALUE_INTEGER(memory->process_id),  VALUE_INTEGER(memory->device),
            VALUE_INTEGER(memory->total_bytes), VALUE_INTEGER(memory->free_bytes),
            VALUE_INTEGER(memory->live_bytes),
        };
        code = WRITE_ROW(store, STATEMENT_DEVICE_MEMORY, values, message);
    }
    return code;
}

static int write_streams(const struct derive_streams *streams, struct store *store,
                         struct varve_message *message)
{
    int code = VARVE_OK;
    for (size_t i = 0; i < streams->count && code == VARVE_OK; i++) {
        const struct derive_stream *stream = &streams->streams[i];
        const struct store_value values[] = {
            VALUE_INTEGER(stream->process_id),  VALUE_INTEGER(stream->domain),
            VALUE_INTEGER(stream->device),      VALUE_INTEGER(stream->stream),
            VALUE_INTEGER(stream->allocations), VALUE_INTEGER(stream->frees),
            VALUE_INTEGER(stream->bytes),       VALUE_INTEGER(stream->live_bytes),
            VALUE_INTEGER(stream->peak_bytes),
        };
        code = WRITE_ROW(store, STATEMENT_STREAM_STAT, values, message);
    }
    return code;
}

struct event_writer {
    struct store *store;
    struct varve_message *message;
};

static int write_event(void *context, uint64_t seq, unsigned kind)
{
    const struct event_writer *writer = context;
    const struct store_value values[] = {VALUE_INTEGER(seq), VALUE_INTEGER(kind)};
    return WRITE_ROW(writer->store, STATEMENT_DEVICE_EVENT, values, writer->message);
}

int derive_write_api(const struct derive *derive, struct store *store, struct varve_message *message)
{
    struct event_writer writer = {.store = store, .message = message};
    int code = write_devices(derive->names, store, message);
    if (code == VARVE_OK) {
        code = write_meanings(derive, store, message);
    }
    if (code == VARVE_OK) {
        code = write_calls(derive->calls, store, message);
    }
    if (code == VARVE_OK) {
        code = write_streams(derive->streams, store, message);
    }
    return code == VARVE_OK ? calls_each_event(derive, write_event, &writer, message) : code;
}
