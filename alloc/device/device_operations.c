/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operations of all devices. What a caller can do wrong is refused before the device hears of it; the device's part
 * comes last where it can fail, and what it did is undone where the table has no room for it. Called through the ops
 * tables of sim, host and cuda.
 */
#include "alloc/device/device_operations.h"

#include <stdlib.h>

int device_run(struct varve_device *device, struct device_call call, device_body body)
{
    struct device_table *table = device_table_of(device);
    int result;
    return table->hooks->enter(table, &call, &result) ? table->hooks->leave(table, &call, body(table, &call)) : result;
}

/* An operation whose call has these fields. */
#define RUN(body, ...) device_run(device, (struct device_call){__VA_ARGS__}, body)

void device_reason(const struct varve_device *device, struct varve_message *message_out)
{
    struct device_table *table = device_table_of(device);
    message_out->text[0] = '\0';
    if (!table->hooks->is_inherited(table)) {
        pthread_mutex_lock(&table->mutex);
        *message_out = table->resources.reason;
        pthread_mutex_unlock(&table->mutex);
    }
}

/* ---- ranges of addresses, with or without memory ---- */

static int device_operations_take_range(struct device_table *table, struct device_call *call)
{
    struct device_range *range;
    int error = resources_range_new(&table->resources, call->range, call->bytes, &range);
    if (error != VARVE_OK) {
        return error;
    }
    error = table->hooks->obtain(table, call, range);
    if (error == VARVE_OK) {
        error = resources_range_enter(&table->resources, range);
        if (error != VARVE_OK && table->hooks->give_back) {
            table->hooks->give_back(table, call, range);
        }
    }
    if (error != VARVE_OK) {
        free(range);
        return error;
    }
    *(uint64_t *)call->out = range->addr;
    return VARVE_OK;
}

/* The range leaves the table before its addresses can come again, and its bytes leave it after the memory is back. */
static int take_back(struct device_table *table, struct device_call *call)
{
    struct device_ranges *space = &table->resources.space;
    struct device_range *range;
    int error = resources_range_to_free(&table->resources, call->range, call->addr, call->bytes, &range);
    if (error != VARVE_OK) {
        return error;
    }
    device_ranges_remove(space, range);
    error = table->hooks->give_back ? table->hooks->give_back(table, call, range) : VARVE_OK;
    if (error != VARVE_OK) {
        device_ranges_insert(space, range);
        return error;
    }
    resources_range_end(&table->resources, range);
    return VARVE_OK;
}

int device_segment_alloc(struct varve_device *device, uint64_t bytes, uint64_t stream, uint64_t *addr_out)
{
    return RUN(device_operations_take_range, .kind = VARVE_DEVICE_SEGMENT_ALLOC, .range = DEVICE_RANGE_SEGMENT,
               .bytes = bytes, .stream = stream, .out = addr_out);
}

static int device_operations_give_back(struct varve_device *device, enum varve_device_call kind,
                                       enum device_range_kind range, uint64_t addr, uint64_t bytes, uint64_t stream)
{
    return RUN(take_back, .kind = kind, .range = range, .addr = addr, .bytes = bytes, .stream = stream,
               .gives_back = true);
}

int device_segment_free(struct varve_device *device, uint64_t addr, uint64_t bytes)
{
    return device_operations_give_back(device, VARVE_DEVICE_SEGMENT_FREE, DEVICE_RANGE_SEGMENT, addr, bytes, 0);
}

int device_alloc_async(struct varve_device *device, uint64_t bytes, uint64_t stream, uint64_t *addr_out)
{
    return RUN(device_operations_take_range, .kind = VARVE_DEVICE_ALLOC_ASYNC, .range = DEVICE_RANGE_POOLED,
               .bytes = bytes, .stream = stream, .out = addr_out);
}

int device_free_async(struct varve_device *device, uint64_t addr, uint64_t bytes, uint64_t stream)
{
    return device_operations_give_back(device, VARVE_DEVICE_FREE_ASYNC, DEVICE_RANGE_POOLED, addr, bytes, stream);
}

int device_vmm_reserve(struct varve_device *device, uint64_t bytes, const struct varve_device_reservation *reservation,
                       uint64_t *addr_out)
{
    return RUN(device_operations_take_range, .kind = VARVE_DEVICE_VMM_RESERVE, .range = DEVICE_RANGE_RESERVATION,
               .bytes = bytes, .stream = reservation ? reservation->stream : 0, .reservation = reservation,
               .out = addr_out);
}

int device_vmm_address_free(struct varve_device *device, uint64_t addr, uint64_t bytes)
{
    return device_operations_give_back(device, DEVICE_CALL_UNCOUNTED, DEVICE_RANGE_RESERVATION, addr, bytes, 0);
}

int device_ipc_close(struct varve_device *device, uint64_t addr)
{
    return device_operations_give_back(device, DEVICE_CALL_UNCOUNTED, DEVICE_RANGE_IMPORT, addr, 0, 0);
}

/* ---- physical memory and mappings ---- */

/* The handle counts while the device looks for the memory, which may last. */
static int device_operations_create(struct device_table *table, struct device_call *call)
{
    struct device_resources *resources = &table->resources;
    uint64_t handle, value = 0;
    int error = resources_handle_create(resources, call->bytes, &handle);
    if (error == VARVE_OK && table->hooks->memory_create) {
        error = table->hooks->memory_create(table, call->bytes, &value);
        if (error != VARVE_OK) {
            resources_handle_cancel(resources, handle);
        }
    }
    if (error == VARVE_OK) {
        slots_find(&resources->handles, handle)->value = value;
        *(uint64_t *)call->out = handle;
    }
    return error;
}

int device_vmm_create(struct varve_device *device, uint64_t bytes, uint64_t *handle_out)
{
    return RUN(device_operations_create, .kind = VARVE_DEVICE_VMM_CREATE, .bytes = bytes, .out = handle_out);
}

static int device_operations_release(struct device_table *table, struct device_call *call)
{
    struct device_slot *handle;
    int error = resources_handle_find(&table->resources, call->id, call->bytes, &handle);
    if (error == VARVE_OK && table->hooks->memory_release) {
        error = table->hooks->memory_release(table, call->bytes, handle->value);
    }
    if (error == VARVE_OK) {
        resources_handle_release(&table->resources, call->id);
    }
    return error;
}

int device_vmm_release(struct varve_device *device, uint64_t handle, uint64_t bytes)
{
    return RUN(device_operations_release, .kind = VARVE_DEVICE_VMM_RELEASE, .id = handle, .bytes = bytes,
               .gives_back = true);
}

static int device_operations_map(struct device_table *table, struct device_call *call)
{
    struct device_range *mapping;
    int error = resources_map_check(&table->resources, call->addr, call->bytes, call->id, &mapping);
    if (error != VARVE_OK) {
        return error;
    }
    if (table->hooks->map) {
        error =
            table->hooks->map(table, call->addr, call->bytes, slots_find(&table->resources.handles, call->id)->value);
    }
    if (error == VARVE_OK) {
        resources_map_enter(&table->resources, mapping);
    } else {
        free(mapping);
    }
    return error;
}

int device_vmm_map(struct varve_device *device, uint64_t addr, uint64_t bytes, uint64_t handle)
{
    return RUN(device_operations_map, .kind = VARVE_DEVICE_VMM_MAP, .addr = addr, .bytes = bytes, .id = handle);
}

int device_index_check(struct device_table *table, int index)
{
    return index < 0 || index > DEVICE_INDEX_MAX
               ? DEVICE_REFUSE(&table->resources, VARVE_ERROR_INVALID, "%d is no device's index", index)
               : VARVE_OK;
}

static int set_access(struct device_table *table, struct device_call *call)
{
    int error = device_index_check(table, call->peer);
    VARVE_THEN(error, resources_mapped_check(&table->resources, call->addr, call->bytes));
    if (error == VARVE_OK && table->hooks->set_access) {
        error = table->hooks->set_access(table, call->addr, call->bytes, call->peer);
    }
    if (error == VARVE_OK && call->peer == table->device.index) {
        resources_access_enter(&table->resources, call->addr, call->bytes);
    }
    return error;
}

int device_vmm_set_access(struct varve_device *device, uint64_t addr, uint64_t bytes, int peer)
{
    return RUN(set_access, .kind = VARVE_DEVICE_VMM_SET_ACCESS, .addr = addr, .bytes = bytes, .peer = peer);
}

/* Mapping by mapping, as the driver wants it. What an error leaves mapped stays in the table. */
static int unmap(struct device_table *table, struct device_call *call)
{
    uint64_t addr = call->addr, end = addr + call->bytes;
    int error = resources_mapped_check(&table->resources, addr, call->bytes);
    while (error == VARVE_OK && addr < end) {
        struct device_range *mapping = device_ranges_at_or_before(&table->resources.mappings, addr);
        error = table->hooks->unmap ? table->hooks->unmap(table, addr, mapping->bytes) : VARVE_OK;
        addr += mapping->bytes;
        if (error == VARVE_OK) {
            resources_unmap_enter(&table->resources, mapping);
        }
    }
    return error;
}

int device_vmm_unmap(struct varve_device *device, uint64_t addr, uint64_t bytes)
{
    return RUN(unmap, .kind = VARVE_DEVICE_VMM_UNMAP, .addr = addr, .bytes = bytes, .gives_back = true);
}

int device_peer_check(struct varve_device *device, int peer)
{
    return peer < 0 || peer > DEVICE_INDEX_MAX || peer == device->index ? VARVE_ERROR_INVALID : VARVE_OK;
}

/* ---- streams and events ---- */

static int stream_synchronize(struct device_table *table, struct device_call *call)
{
    int error = resources_stream_check(&table->resources, call->stream);
    return error == VARVE_OK ? table->hooks->stream_wait(table, call->stream) : error;
}

int device_stream_synchronize(struct varve_device *device, uint64_t stream)
{
    return RUN(stream_synchronize, .kind = DEVICE_CALL_UNCOUNTED, .stream = stream);
}

static int event_create(struct device_table *table, struct device_call *call)
{
    uint64_t event;
    int error = resources_event_create(&table->resources, &event);
    if (error == VARVE_OK && table->hooks->event_make) {
        error = table->hooks->event_make(table, slots_index(event));
        if (error != VARVE_OK) {
            slots_release(&table->resources.events, event);
        }
    }
    if (error == VARVE_OK) {
        *(uint64_t *)call->out = event;
    }
    return error;
}

int device_event_create(struct varve_device *device, uint64_t *event_out)
{
    return RUN(event_create, .kind = DEVICE_CALL_UNCOUNTED, .out = event_out);
}

static int event_destroy(struct device_table *table, struct device_call *call)
{
    return resources_event_destroy(&table->resources, call->id);
}

int device_event_destroy(struct varve_device *device, uint64_t event)
{
    return RUN(event_destroy, .kind = DEVICE_CALL_UNCOUNTED, .id = event, .gives_back = true);
}

/* The event's state, as event_query returns it; or an error, also of the stream. */
static int event_on_stream(struct device_table *table, const struct device_call *call)
{
    int state = resources_event_query(&table->resources, call->id);
    int error = state < 0 ? state : resources_stream_check(&table->resources, call->stream);
    return error < 0 ? error : state;
}

static int device_operations_event_record(struct device_table *table, struct device_call *call)
{
    int result = event_on_stream(table, call);
    if (result >= 0) {
        result = table->hooks->event_record(table, call->id, call->stream);
    }
    return result < 0 ? result : resources_event_record(&table->resources, call->id, call->stream, result == 1);
}

int device_event_record(struct varve_device *device, uint64_t event, uint64_t stream)
{
    return RUN(device_operations_event_record, .kind = VARVE_DEVICE_EVENT_RECORD, .id = event, .stream = stream);
}

static int event_query(struct device_table *table, struct device_call *call)
{
    int result = resources_event_query(&table->resources, call->id);
    return result == 0 && table->hooks->event_query ? table->hooks->event_query(table, call->id) : result;
}

int device_event_query(struct varve_device *device, uint64_t event)
{
    return RUN(event_query, .kind = VARVE_DEVICE_EVENT_QUERY, .id = event);
}

static int event_synchronize(struct device_table *table, struct device_call *call)
{
    int result = resources_event_query(&table->resources, call->id);
    VARVE_THEN(result, table->hooks->event_wait(table, call->id));
    return result < 0 ? result : VARVE_OK;
}

int device_event_synchronize(struct varve_device *device, uint64_t event)
{
    return RUN(event_synchronize, .kind = DEVICE_CALL_UNCOUNTED, .id = event);
}

static int stream_wait_event(struct device_table *table, struct device_call *call)
{
    int result = event_on_stream(table, call);
    if (result >= 0 && table->hooks->stream_wait_event) {
        result = table->hooks->stream_wait_event(table, call->stream, call->id, result == 1);
    }
    return result < 0 ? result : VARVE_OK;
}

int device_stream_wait_event(struct varve_device *device, uint64_t stream, uint64_t event)
{
    return RUN(stream_wait_event, .kind = VARVE_DEVICE_STREAM_WAIT_EVENT, .id = event, .stream = stream);
}
