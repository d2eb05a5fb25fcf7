/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events of the sim and the host device: each has the number of its last record, each stream the number up to
 * which everything on it is complete, so that a whole stream completes in one step. Streams of which there is
 * nothing to say have no entry. As with the driver, an event that was never recorded is complete, and one
 * that is recorded again stands for its last record only.
 */
#include "alloc/device/shared.h"

#include <stdlib.h>
#include <string.h>

#define STREAMS_FIRST 8U

static struct device_slot *event_find(struct device_ledger *ledger, uint64_t event)
{
    struct device_slot *slot = slots_find(&ledger->events, event);

    if (!slot) {
        varve_message_set(&ledger->reason, VARVE_ERROR_NOT_FOUND, "no event %#llx",
                          (unsigned long long)event);
    }
    return slot;
}

/* First entry whose stream is not below `stream`. */
static size_t stream_position(const struct device_ledger *ledger, uint64_t stream)
{
    size_t low = 0, high = ledger->stream_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (ledger->streams[middle].stream < stream) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static bool is_pending(const struct device_ledger *ledger, const struct device_slot *slot)
{
    const struct device_stream *stream;

    if (!slot->is_pending) {
        return false;
    }
    stream = ledger_stream_find(ledger, slot->stream);
    return !stream || slot->value > stream->completed;
}

int ledger_event_create(struct device_ledger *ledger, uint64_t *event_out)
{
    if (!slots_acquire(&ledger->events, event_out)) {
        return DEVICE_REFUSE(ledger, VARVE_ERROR_NO_MEMORY, "no memory for the books of an event");
    }
    return 0;
}

int ledger_event_destroy(struct device_ledger *ledger, uint64_t event)
{
    if (!event_find(ledger, event)) {
        return VARVE_ERROR_NOT_FOUND;
    }
    slots_release(&ledger->events, event);
    return 0;
}

int ledger_event_record(struct device_ledger *ledger, uint64_t event, uint64_t stream, bool is_incomplete)
{
    struct device_slot *slot = event_find(ledger, event);

    if (!slot) {
        return VARVE_ERROR_NOT_FOUND;
    }
    slot->stream = stream;
    slot->value = ++ledger->records;
    slot->is_pending = is_incomplete;
    return 0;
}

int ledger_event_query(struct device_ledger *ledger, uint64_t event)
{
    const struct device_slot *slot = event_find(ledger, event);

    if (!slot) {
        return VARVE_ERROR_NOT_FOUND;
    }
    return is_pending(ledger, slot) ? 0 : 1;
}

int ledger_event_complete(struct device_ledger *ledger, uint64_t event)
{
    struct device_slot *slot = event_find(ledger, event);

    if (!slot) {
        return VARVE_ERROR_NOT_FOUND;
    }
    if (!is_pending(ledger, slot)) {
        return DEVICE_REFUSE(ledger, VARVE_ERROR_NOT_FOUND, "the event %#llx is not pending",
                             (unsigned long long)event);
    }
    slot->is_pending = false;
    return 0;
}

struct device_stream *ledger_stream_find(const struct device_ledger *ledger, uint64_t stream)
{
    size_t position = stream_position(ledger, stream);

    if (position == ledger->stream_count || ledger->streams[position].stream != stream) {
        return NULL;
    }
    return &ledger->streams[position];
}

struct device_stream *ledger_stream_acquire(struct device_ledger *ledger, uint64_t stream)
{
    struct device_stream *found = ledger_stream_find(ledger, stream);
    size_t position;

    if (found) {
        return found;
    }
    if (ledger->stream_count == ledger->stream_capacity) {
        size_t capacity = ledger->stream_capacity ? ledger->stream_capacity * 2 : STREAMS_FIRST;
        struct device_stream *grown = realloc(ledger->streams, capacity * sizeof(*grown));

        if (!grown) {
            varve_message_set(&ledger->reason, VARVE_ERROR_NO_MEMORY, "no memory for the books of a stream");
            return NULL;
        }
        ledger->streams = grown;
        ledger->stream_capacity = capacity;
    }
    position = stream_position(ledger, stream);
    found = &ledger->streams[position];
    memmove(found + 1, found, (ledger->stream_count - position) * sizeof(*found));
    ledger->stream_count++;
    *found = (struct device_stream){.stream = stream};
    return found;
}
