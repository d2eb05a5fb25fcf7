/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A CUPTI with no driver behind it: it has one subscription, remembers which callbacks are wanted, and calls them
 * when a program (cupti_play.c) says so. Buffers for activity records are asked for and given back as CUPTI
 * does it. It also has the functions of the driver that say what a device is, and whether a stream is
 * captured.
 *
 * VARVE_FAKE_CUPTI is one word that makes it behave otherwise: "taken" (somebody has the subscription), "closed" (no
 * driver), "deaf" (callbacks cannot be enabled), "future" (of a version to come), "slow" (buffers are given
 * back by a flush alone).
 */
#include "programs/cuda/cupti_fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DOMAINS 8U
#define BUFFERS 16U
#define IDS 1024U
#define RESULT_INVALID 1U
#define RESULT_NOT_INITIALIZED 15U
#define RESULT_END 12U

/* The functions have CUPTI's names and parameters, and no header of ours declares them. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#pragma GCC diagnostic ignored "-Wunused-parameter"

static struct {
    cupti_callback *callback;
    void *context;
    bool is_enabled[DOMAINS][IDS];
    bool kinds[64];
    unsigned subscribers, out, refused;
    cupti_buffer_requested *requested;
    cupti_buffer_completed *completed;
    struct {
        uint8_t *memory;
        size_t bytes, used_bytes;
    } buffers[BUFFERS]; /* `out` of them; the last one is being filled */
    size_t dropped;
    bool captures;
    unsigned asked_in_capture;
} fake;

static __thread struct {
    cupti_context context;
    uint32_t context_id;
    uint32_t correlation_id;
} thread;

static bool behaves(const char *how)
{
    const char *word = getenv("VARVE_FAKE_CUPTI");
    return word != NULL && strcmp(word, how) == 0;
}

/* ---- CUPTI ---- */

cupti_result cuptiSubscribe_v2(cupti_subscriber *out, cupti_callback *callback, void *context,
                               struct cupti_subscriber_params *params)
{
    if (behaves("closed")) {
        return RESULT_NOT_INITIALIZED;
    }
    if (params->bytes != sizeof(*params) || params->name == NULL || strcmp(params->name, "varve") != 0) {
        return RESULT_INVALID;
    }
    if (fake.subscribers > 0 || behaves("taken")) {
        snprintf(params->old_name, params->old_name_bytes, "%s", FAKE_HOLDER);
        return CUPTI_RESULT_SUBSCRIPTION_TAKEN;
    }
    fake.subscribers++;
    fake.callback = callback;
    fake.context = context;
    *out = (cupti_subscriber)&fake;
    return CUPTI_RESULT_SUCCESS;
}

cupti_result cuptiSubscribe(cupti_subscriber *out, cupti_callback *callback, void *context)
{
    return RESULT_INVALID; /* there is a newer one */
}

cupti_result cuptiUnsubscribe(cupti_subscriber subscriber)
{
    if (subscriber != (cupti_subscriber)&fake || fake.subscribers == 0) {
        return RESULT_INVALID;
    }
    fake.subscribers--;
    fake.callback = NULL;
    return CUPTI_RESULT_SUCCESS;
}

cupti_result cuptiEnableCallback(uint32_t is_on, cupti_subscriber subscriber, uint32_t domain, uint32_t id)
{
    if (subscriber != (cupti_subscriber)&fake || domain >= DOMAINS || id >= IDS || behaves("deaf")) {
        return RESULT_INVALID;
    }
    fake.is_enabled[domain][id] = is_on != 0;
    return CUPTI_RESULT_SUCCESS;
}

/* Functions that say one thing. */
#define ANSWERS(name, parameters, out, value, result) \
    cupti_result name parameters                      \
    {                                                 \
        *(out) = (value);                             \
        return result;                                \
    }

ANSWERS(cuptiGetResultString, (cupti_result result, const char **text_out), text_out,
        result == RESULT_NOT_INITIALIZED ? "CUPTI_ERROR_NOT_INITIALIZED" : "CUPTI_ERROR_OTHER", CUPTI_RESULT_SUCCESS)
ANSWERS(cuptiGetVersion, (uint32_t * version_out), version_out,
        behaves("future") ? CUPTI_VERSION_UNKNOWN : FAKE_CUPTI_VERSION, CUPTI_RESULT_SUCCESS)
ANSWERS(cuptiGetTimestamp, (uint64_t * ns_out), ns_out, FAKE_CUPTI_TIME, CUPTI_RESULT_SUCCESS)
ANSWERS(cuptiGetDeviceId, (cupti_context context, uint32_t *device_out), device_out,
        (uint32_t)((uintptr_t)context - 0x1000U), context != NULL ? CUPTI_RESULT_SUCCESS : RESULT_INVALID)
ANSWERS(cuptiGetContextId, (cupti_context context, uint32_t *id_out), id_out,
        (uint32_t)((uintptr_t)context - 0x1000U) + 100, CUPTI_RESULT_SUCCESS)

/* ---- activity ---- */

cupti_result cuptiActivityRegisterCallbacks(cupti_buffer_requested *requested, cupti_buffer_completed *completed)
{
    fake.requested = requested;
    fake.completed = completed;
    return CUPTI_RESULT_SUCCESS;
}

ANSWERS(cuptiActivityEnable, (uint32_t kind), &fake.kinds[kind % 64], true, CUPTI_RESULT_SUCCESS)
ANSWERS(cuptiActivityDisable, (uint32_t kind), &fake.kinds[kind % 64], false, CUPTI_RESULT_SUCCESS)

cupti_result cuptiActivityFlushPeriod(uint32_t period_ms)
{
    return period_ms == 1000 ? CUPTI_RESULT_SUCCESS : RESULT_INVALID;
}

/* The records as they are in CUDA 13.0: ours are their front part. */
static size_t record_bytes(const struct cupti_activity_record *record)
{
    return record->kind == CUPTI_ACTIVITY_MEMORY ? 128 : record->kind == CUPTI_ACTIVITY_POOL ? 80 : 64;
}

cupti_result cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid_bytes, struct cupti_activity_record **record)
{
    uint8_t *next = *record == NULL ? buffer : (uint8_t *)*record + record_bytes(*record);
    if (next >= buffer + valid_bytes) {
        return RESULT_END;
    }
    *record = (struct cupti_activity_record *)(void *)next;
    return CUPTI_RESULT_SUCCESS;
}

cupti_result cuptiActivityGetNumDroppedRecords(cupti_context context, uint32_t stream_id, size_t *dropped_out)
{
    *dropped_out = fake.dropped;
    fake.dropped = 0;
    return CUPTI_RESULT_SUCCESS;
}

static void hand_over(void)
{
    unsigned out = fake.out;
    fake.out = 0;
    for (unsigned i = 0; i < out; i++) {
        fake.completed(NULL, 0, fake.buffers[i].memory, fake.buffers[i].bytes, fake.buffers[i].used_bytes);
    }
}

cupti_result cuptiActivityFlushAll(uint32_t flag)
{
    hand_over();
    return CUPTI_RESULT_SUCCESS;
}

/* ---- the driver ---- */

uint32_t cuDeviceGet(int *out, int ordinal)
{
    fake.asked_in_capture += fake.captures;
    *out = ordinal;
    return ordinal >= 0 && ordinal < 8 ? 0 : 101;
}

uint32_t cuDeviceGetUuid_v2(unsigned char *out, int handle)
{
    memset(out, 0x10 + handle, 16);
    return 0;
}

ANSWERS(cuDeviceTotalMem_v2, (size_t * out, int handle), out, (size_t)(handle + 1) << 30, CUPTI_RESULT_SUCCESS)

uint32_t cuDeviceGetName(char *out, int bytes, int handle)
{
    snprintf(out, (size_t)bytes, "Fake GPU %d", handle);
    return 0;
}

uint32_t cuStreamIsCapturing(uint64_t stream, uint32_t *status_out)
{
    if (stream < 2) { /* as the driver does it while a stream that waits for this one is captured */
        fake.asked_in_capture += fake.captures;
        return 906;
    }
    *status_out = stream == FAKE_CAPTURED && fake.captures;
    return 0;
}

/* ---- for the player ---- */

static void capture(bool is_on)
{
    fake.captures = is_on;
}

static void set_context(uintptr_t context, uint32_t id)
{
    thread.context = (cupti_context)context;
    thread.context_id = id;
}

static void callback(uint32_t domain, uint32_t id, const void *data)
{
    if (fake.callback != NULL && fake.is_enabled[domain][id]) {
        fake.callback(fake.context, domain, id, data);
    }
}

static uint32_t call(uint32_t id, const void *parameters, uint32_t result, void (*inside)(void *), void *context)
{
    uint64_t for_the_client = 0;
    struct cupti_callback_data data = {
        .callsite = CUPTI_SITE_ENTER,
        .name = "a function",
        .parameters = parameters,
        .context = thread.context,
        .context_id = thread.context_id,
        .correlation_data = &for_the_client,
        .correlation_id = ++thread.correlation_id,
    };
    callback(CUPTI_DOMAIN_DRIVER, id, &data);
    if (inside != NULL) {
        inside(context);
    }
    data.callsite = CUPTI_SITE_EXIT;
    data.result = &result;
    data.context = thread.context;
    data.context_id = thread.context_id;
    callback(CUPTI_DOMAIN_DRIVER, id, &data);
    return result;
}

static bool record(const void *record_, size_t bytes)
{
    const struct cupti_activity_record *front = record_;
    size_t bytes_now = record_bytes(front);
    size_t records_max = 0;
    unsigned last = fake.out - 1;
    if (!fake.kinds[front->kind % 64]) {
        return false;
    }
    if (fake.out > 0 && fake.buffers[last].used_bytes + bytes_now > fake.buffers[last].bytes) {
        last = fake.out;
        if (!behaves("slow")) {
            hand_over();
        }
    }
    if (last >= fake.out) {
        last = fake.out;
        memset(&fake.buffers[last], 0, sizeof(fake.buffers[last]));
        fake.requested(&fake.buffers[last].memory, &fake.buffers[last].bytes, &records_max);
        if (fake.buffers[last].memory == NULL) {
            fake.refused++;
            fake.dropped++;
            return false;
        }
        fake.out++;
    }
    memset(fake.buffers[last].memory + fake.buffers[last].used_bytes, 0, bytes_now);
    memcpy(fake.buffers[last].memory + fake.buffers[last].used_bytes, record_, bytes);
    fake.buffers[last].used_bytes += bytes_now;
    return true;
}

static unsigned count(enum fake_count what)
{
    switch (what) {
    case FAKE_COUNT_BUFFERS_REFUSED:
        return fake.refused;
    case FAKE_COUNT_SUBSCRIBERS:
        return fake.subscribers;
    case FAKE_COUNT_KINDS:
        return (unsigned)fake.kinds[CUPTI_ACTIVITY_MEMORY] + fake.kinds[CUPTI_ACTIVITY_POOL];
    case FAKE_COUNT_ASKED_IN_CAPTURE:
        return fake.asked_in_capture;
    }
    return 0;
}

extern const struct fake_cupti fake_cupti;
const struct fake_cupti fake_cupti = {set_context, call, callback, record, capture, count};
