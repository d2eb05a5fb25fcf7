/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers for streams and devices, which records have too little room to name: shared by everything that
 * emits in this process (the CUDA and CUPTI recorders, an allocator), so that one number means one thing.
 * What a number means is emitted once. All of it lies in wiped pages: a fork child, whose CUDA is dead
 * anyway, begins with none.
 */
#include "trace/guest/guest_lock.h"
#include "trace/guest/guest_memory.h"
#include "trace/guest/guest_signals.h"
#include "trace/recorder/emit_slow.h"
#include "trace/emit.h"
#include "trace/record.h"

#include <string.h>

#define STREAM_SLOTS 8192U /* a power of two; at most three quarters are used */
#define STREAM_MAX (STREAM_SLOTS / 4 * 3)
#define STREAM_NONE 65535U
#define DEVICES 256U

enum description { NOT_DESCRIBED, BEING_DESCRIBED, DESCRIBED };

struct stream_slot {
    uint64_t handle;
    uint32_t device;
    uint32_t number; /* written last, with release; 0: free */
};

struct device_names {
    uint32_t lock; /* for writing; readers look at numbers */
    uint32_t count;
    uint32_t description[DEVICES]; /* enum description, stages; atomic */
    struct stream_slot streams[STREAM_SLOTS];
};

static struct device_names *names_get(void)
{
    static void *names;
    return recorder_map_wiped_once(&names, sizeof(struct device_names));
}

void device_names_release(void)
{
    struct device_names *table = names_get();
    if (table != NULL) {
        memset(table, 0, sizeof(*table));
    }
}

static uint32_t device_names_slot_of(unsigned device, uint64_t handle)
{
    return (uint32_t)(((handle >> 4 ^ device) * UINT64_C(0x9e3779b97f4a7c15)) >> 40) & (STREAM_SLOTS - 1);
}

/* The slot of the stream, or the free one where it would be. */
static struct stream_slot *device_names_find(struct device_names *table, unsigned device, uint64_t handle,
                                             uint32_t *number_out)
{
    uint32_t at = device_names_slot_of(device, handle);
    for (;;) {
        struct stream_slot *slot = &table->streams[at];
        *number_out = __atomic_load_n(&slot->number, __ATOMIC_ACQUIRE);
        if (*number_out == 0 || (slot->handle == handle && slot->device == device)) {
            return slot;
        }
        at = (at + 1) & (STREAM_SLOTS - 1);
    }
}

static uint32_t device_names_add(struct device_names *table, unsigned device, uint64_t handle, bool *is_new_out)
{
    struct recorder_signals saved;
    if (!recorder_lock_soon_blocked(&table->lock, &saved)) {
        return STREAM_NONE;
    }
    uint32_t number;
    struct stream_slot *slot = device_names_find(table, device, handle, &number);
    if (number == 0 && table->count < STREAM_MAX) {
        number = ++table->count;
        slot->handle = handle;
        slot->device = device;
        __atomic_store_n(&slot->number, number, __ATOMIC_RELEASE);
        *is_new_out = true;
    }
    recorder_unlock_blocked(&table->lock, &saved);
    return number != 0 ? number : STREAM_NONE;
}

unsigned varve_stream_number(unsigned device, uint64_t handle)
{
    if (handle == 0) {
        return 0;
    }
    struct device_names *table = names_get();
    if (table == NULL) {
        return STREAM_NONE;
    }
    uint32_t number;
    device_names_find(table, device, handle, &number);
    bool is_new = false;
    if (number == 0) {
        number = device_names_add(table, device, handle, &is_new);
    }
    if (is_new) {
        struct varve_record record = {
            .addr = handle,
            .id_stream = (uint64_t)number << 48,
            .dev_seq_kind_flags = varve_record_tag(0, VARVE_KIND_STREAM, 0),
            .device = (uint8_t)device,
        };
        varve_emit(&record);
    }
    return number;
}

bool varve_device_is_described(unsigned device)
{
    struct device_names *table = names_get();
    return table == NULL || device >= DEVICES ||
           __atomic_load_n(&table->description[device], __ATOMIC_ACQUIRE) == DESCRIBED;
}

void varve_device_describe(unsigned device, const unsigned char uuid[16], uint64_t total_bytes, const char *name)
{
    struct device_names *table = names_get();
    struct varve_record record = {.device = (uint8_t)device};
    uint32_t before = NOT_DESCRIBED;
    if (table == NULL || device >= DEVICES ||
        !__atomic_compare_exchange_n(&table->description[device], &before, BEING_DESCRIBED, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE)) {
        if (table != NULL && device < DEVICES) {
            recorder_stage_wait(&table->description[device], DESCRIBED); /* that record comes first */
        }
        return;
    }
    uint64_t halves[2];
    memcpy(halves, uuid, sizeof(halves));
    record.dev_seq_kind_flags = varve_record_tag(0, VARVE_KIND_DEVICE, 0);
    record.addr = halves[0];
    record.arg = halves[1];
    record.size = total_bytes;
    varve_emit(&record);
    char text[32] = "";
    memcpy(text, name, strnlen(name, sizeof(text)));
    uint64_t words[4];
    memcpy(words, text, sizeof(words));
    record.dev_seq_kind_flags = varve_record_tag(0, VARVE_KIND_DEVICE_NAME, 0);
    record.addr = words[0];
    record.size = words[1];
    record.requested = words[2];
    record.arg = words[3];
    varve_emit(&record);
    recorder_stage_set(&table->description[device], DESCRIBED);
}
