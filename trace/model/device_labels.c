/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the numbers of devices, streams and pools mean. A process counts the devices that it may see from 0,
 * so two ranks that CUDA_VISIBLE_DEVICES keeps apart both call theirs 0. Their UUIDs say which is which: a
 * device of the trace is a UUID, and its number the one that the first process has for it, or else the next
 * that is free. Without a DEVICE event, the process' number stays. derive.c calls it before anything
 * else, so that every table keeps devices apart.
 *
 * Events that were stored once have the number of the trace; DEVICE and STREAM events have the process'
 * number as their id then, so that all can be derived again. A stream may be reported before its device is:
 * what its device is called is asked at the end.
 */
#include "trace/model/device_labels.h"

#include "base/grown_array.h"
#include "trace/model/domain.h"
#include "trace/model/model_event.h"
#include "trace/model/model_state.h"
#include "trace/record.h"

#include <stdlib.h>
#include <string.h>

uint8_t names_device(const struct derive *derive, const struct event *event)
{
    if (event->is_stored || event->process_id >= derive->process_limit) {
        return event->device;
    }
    const struct derive_process *process = derive->processes[event->process_id];
    return process != NULL && process->device_numbers != NULL ? process->device_numbers[event->device] : event->device;
}

bool names_reserve(struct derive *derive, const struct event *event)
{
    struct derive_names *names = derive->names;
    struct derive_process *process = derive->processes[event->process_id];
    if (event->kind == VARVE_KIND_STREAM || event->kind == VARVE_KIND_POOL) {
        return ARRAY_GROW(names->meanings, names->meaning_capacity, names->meaning_count + 1);
    }
    if (event->kind != VARVE_KIND_DEVICE) {
        return true;
    }
    if (process->device_numbers == NULL) {
        process->device_numbers = malloc(DEVICE_LIMIT);
        for (unsigned i = 0; i < DEVICE_LIMIT && process->device_numbers != NULL; i++) {
            process->device_numbers[i] = (uint8_t)i;
        }
    }
    return process->device_numbers != NULL &&
           ARRAY_GROW(names->ordinals, names->ordinal_capacity, names->ordinal_count + 1);
}

/* The number of the device with this UUID: the one it has, else `wanted`, else the next free one. */
static uint8_t device_labels_number_of(struct derive_names *names, const uint64_t uuid[2], uint8_t wanted)
{
    if ((uuid[0] | uuid[1]) == 0) {
        return wanted; /* the driver does not know */
    }
    for (unsigned i = 0; i < DEVICE_LIMIT; i++) {
        const struct derive_name *name = &names->devices[i];
        if (name->is_used && name->uuid[0] == uuid[0] && name->uuid[1] == uuid[1]) {
            return (uint8_t)i;
        }
    }
    for (unsigned i = 0; i < DEVICE_LIMIT; i++) {
        struct derive_name *name = &names->devices[(wanted + i) % DEVICE_LIMIT];
        if (!name->is_used) {
            *name = (struct derive_name){.uuid = {uuid[0], uuid[1]}, .is_used = true};
            return (uint8_t)(name - names->devices);
        }
    }
    return wanted;
}

static void device_take(struct derive *derive, struct event *event)
{
    struct derive_names *names = derive->names;
    struct derive_process *process = derive->processes[event->process_id];
    const uint64_t uuid[2] = {event->addr, event->arg};
    uint8_t ordinal = (uint8_t)(event->is_stored ? event->id : event->device);
    uint8_t number = device_labels_number_of(names, uuid, ordinal);
    process->device_numbers[ordinal] = number;
    names->devices[number].total_bytes = event->size;
    names->ordinals[names->ordinal_count++] =
        (struct derive_ordinal){.process_id = event->process_id, .ordinal = ordinal, .device = number};
    event->id = ordinal;
    event->device = number;
}

static void device_labels_name_take(struct derive *derive, const struct event *event)
{
    const uint64_t words[4] = {event->addr, event->size, event->requested, event->arg};
    char *name = derive->names->devices[event->device].name;
    memcpy(name, words, sizeof(words));
    for (size_t i = 0; name[i] != '\0'; i++) {
        name[i] = name[i] >= ' ' && name[i] <= '~' ? name[i] : '?'; /* a damaged one is text all the same */
    }
}

static void pool_take(struct derive *derive, const struct event *event)
{
    struct derive_names *names = derive->names;
    names->meanings[names->meaning_count++] = (struct derive_meaning){.process_id = event->process_id,
                                                                      .device = event->device,
                                                                      .number = event->pool,
                                                                      .is_pool = true,
                                                                      .is_small = event->arg != 0,
                                                                      .ids = {event->addr, event->size}};
}

static void stream_take(struct derive *derive, struct event *event, uint8_t ordinal)
{
    struct derive_names *names = derive->names;
    names->meanings[names->meaning_count++] = (struct derive_meaning){
        .process_id = event->process_id, .device = ordinal, .number = event->stream, .ids = {event->addr}};
    event->id = ordinal;
}

unsigned names_device_of(const struct derive *derive, const struct derive_meaning *meaning)
{
    const uint8_t *numbers = derive->processes[meaning->process_id]->device_numbers;
    return meaning->is_pool || numbers == NULL ? meaning->device : numbers[meaning->device];
}

void names_apply(struct derive *derive, struct event *event)
{
    if (event->kind == VARVE_KIND_DEVICE) {
        device_take(derive, event);
        return;
    }
    uint8_t ordinal = (uint8_t)(event->is_stored ? event->id : event->device);
    event->device = names_device(derive, event);
    if (event->kind == VARVE_KIND_DEVICE_NAME) {
        device_labels_name_take(derive, event);
    } else if (event->kind == VARVE_KIND_STREAM) {
        stream_take(derive, event, ordinal);
    } else if (event->kind == VARVE_KIND_POOL) {
        pool_take(derive, event);
    }
}

void names_close(struct derive_names *names)
{
    if (names != NULL) {
        free(names->ordinals);
        free(names->meanings);
        free(names);
    }
}
