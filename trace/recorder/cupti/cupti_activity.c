/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Activity records of memory and of pools: what CUPTI itself reports of an operation, later, with its own
 * time. They enrich what the callbacks report (kind of memory, size and threshold of pools); nothing rests
 * on them. Called by cupti_recorder.c, and by CUPTI when a buffer is full.
 */
#include "trace/recorder/cupti/cupti_recorder.h"
#include "trace/recorder/cupti/cupti_driver.h"
#include "base/error.h"
#include "trace/emit.h"
#include "trace/record.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * CUPTI fills buffers that it asks for and returns them full, or when flushed, mostly from a thread of its
 * own. Ours are a few pages mapped once, so that nothing is taken from the heap that is being recorded;
 * when all are with CUPTI, it drops records and counts them. Layouts of records change between versions:
 * only the front part is read, of versions that are known, and each record must name this very process,
 * which a moved field would not.
 */

#define BUFFERS 8U
#define BUFFER_BYTES 65536U
#define FLUSH_PERIOD_MS 1000U
#define POOLS_SEEN 16U

/* One worker of CUPTI's at a time hands buffers over, but a flush may do so from any thread. */
static struct {
    uint8_t *memory;
    uint8_t is_out[BUFFERS]; /* with CUPTI; atomic */
    uint32_t process_id;
    bool is_unreadable;              /* a record made no sense: no more of them; atomic */
    uint64_t pool_sizes[POOLS_SEEN]; /* of the pool whose address leads here, as last reported; atomic */
} activity;

/* ---- buffers ---- */

static void requested(uint8_t **buffer_out, size_t *bytes_out, size_t *records_max_out)
{
    *buffer_out = NULL;
    *bytes_out = 0;
    *records_max_out = 0;
    for (unsigned i = 0; i < BUFFERS; i++) {
        if (__atomic_exchange_n(&activity.is_out[i], 1, __ATOMIC_ACQUIRE) == 0) {
            *buffer_out = activity.memory + (size_t)i * BUFFER_BYTES;
            *bytes_out = BUFFER_BYTES;
            return;
        }
    }
}

static void return_buffer(const uint8_t *buffer)
{
    if (buffer >= activity.memory && buffer < activity.memory + (size_t)BUFFERS * BUFFER_BYTES) {
        __atomic_store_n(&activity.is_out[(size_t)(buffer - activity.memory) / BUFFER_BYTES], 0, __ATOMIC_RELEASE);
    }
}

/* ---- records ---- */

static void pool_emit(const struct cupti_recorder *recorder, enum varve_cause cause, unsigned device, uint64_t addr,
                      uint64_t bytes, uint64_t threshold, uint64_t used_bytes)
{
    struct varve_record record = {
        .addr = addr,
        .size = bytes,
        .requested = threshold,
        .arg = recorder->version >= CUPTI_VERSION_UTILIZED ? used_bytes : 0,
        .dev_seq_kind_flags = varve_record_tag(0, VARVE_KIND_DEV_POOL, recorder->flags),
        .pool = (uint16_t)(VARVE_MEMORY_DEVICE << VARVE_MEMORY_KIND_SHIFT | cupti_pool_number(addr)),
        .device = (uint8_t)device,
        .cause = (uint8_t)cause,
    };
    varve_emit(&record);
}

/* Allocations from a pool report how large it is: worth a record when that has changed. */
static void emit_pool_size(const struct cupti_recorder *recorder, const struct cupti_activity_memory *memory)
{
    uint64_t *known = &activity.pool_sizes[(memory->pool_addr >> 4) % POOLS_SEEN];
    uint64_t state = memory->pool_addr ^ memory->pool_bytes << 1;
    if (memory->is_async == 0 || memory->pool_type != CUPTI_POOL_LOCAL || memory->pool_addr == 0 ||
        __atomic_exchange_n(known, state, __ATOMIC_RELAXED) == state) {
        return;
    }
    pool_emit(recorder, VARVE_CAUSE_NONE, memory->device, memory->pool_addr, memory->pool_bytes, memory->pool_threshold,
              recorder->version >= CUPTI_VERSION_UTILIZED ? memory->pool_used_bytes : 0);
}

static bool emit_memory(const struct cupti_recorder *recorder, const struct cupti_activity_memory *memory)
{
    struct varve_record record = {
        .addr = memory->addr,
        .size = memory->bytes,
        .requested = memory->timestamp_ns,
        .arg = (uint64_t)memory->operation << 32 | memory->correlation_id,
        .dev_seq_kind_flags = varve_record_tag(0, VARVE_KIND_CUPTI_MEMORY, recorder->flags),
        .pool = (uint16_t)(memory->memory_kind << VARVE_MEMORY_KIND_SHIFT | (memory->context_id & 0xfffU)),
        .device = (uint8_t)memory->device,
    };
    if (memory->process_id != activity.process_id || memory->memory_kind > CUPTI_MEMORY_KIND_LAST ||
        (memory->operation != CUPTI_MEMORY_ALLOCATED && memory->operation != CUPTI_MEMORY_RELEASED)) {
        return false;
    }
    varve_emit(&record);
    emit_pool_size(recorder, memory);
    return true;
}

static bool cupti_activity_emit_pool(const struct cupti_recorder *recorder, const struct cupti_activity_pool *pool)
{
    static const uint8_t causes[] = {
        [CUPTI_POOL_CREATED] = VARVE_CAUSE_POOL_CREATED,
        [CUPTI_POOL_DESTROYED] = VARVE_CAUSE_POOL_DESTROYED_BY_DRIVER,
        [CUPTI_POOL_TRIMMED] = VARVE_CAUSE_POOL_TRIMMED,
    };
    if (pool->process_id != activity.process_id || pool->operation < CUPTI_POOL_CREATED ||
        pool->operation > CUPTI_POOL_TRIMMED) {
        return false;
    }
    pool_emit(recorder, (enum varve_cause)causes[pool->operation], pool->device, pool->addr, pool->bytes,
              pool->threshold, recorder->version >= CUPTI_VERSION_UTILIZED ? pool->used_bytes : 0);
    return true;
}

static bool emit_activity(const struct cupti_recorder *recorder, const struct cupti_activity_record *record)
{
    const void *whole = record;
    switch (record->kind) {
    case CUPTI_ACTIVITY_MEMORY:
        return emit_memory(recorder, whole);
    case CUPTI_ACTIVITY_POOL:
        return cupti_activity_emit_pool(recorder, whole);
    default:
        return true; /* somebody else has asked for it */
    }
}

static void count_dropped(const struct cupti_recorder *recorder)
{
    size_t dropped = 0;
    if (recorder->functions.activity_dropped(NULL, 0, &dropped) == CUPTI_RESULT_SUCCESS && dropped > 0) {
        cupti_state_emit(VARVE_CAUSE_CUPTI_DROPPED, 0, dropped, 0);
    }
}

static void completed(cupti_context context, uint32_t stream_id, uint8_t *buffer, size_t bytes, size_t valid_bytes)
{
    struct cupti_recorder *recorder = cupti_recorder_get();
    (void)context;
    (void)stream_id;
    struct cupti_activity_record *record = NULL;
    if (recorder != NULL && valid_bytes > 0 && valid_bytes <= bytes) {
        while (!__atomic_load_n(&activity.is_unreadable, __ATOMIC_RELAXED) &&
               recorder->functions.activity_next(buffer, valid_bytes, &record) == CUPTI_RESULT_SUCCESS) {
            if (!emit_activity(recorder, record)) {
                __atomic_store_n(&activity.is_unreadable, true, __ATOMIC_RELAXED);
                cupti_state_emit(VARVE_CAUSE_CUPTI_REFUSED, CUPTI_ACTIVITY_MEMORY, recorder->version, 0);
            }
        }
        count_dropped(recorder);
    }
    return_buffer(buffer);
}

/* ---- beginning and end ---- */

static bool cupti_activity_is_wanted(void)
{
    const char *setting = getenv("VARVE_CUPTI_ACTIVITY");
    return setting == NULL || strcmp(setting, "0") != 0;
}

cupti_result cupti_activity_begin(struct cupti_recorder *recorder)
{
    const struct cupti_functions *functions = &recorder->functions;
    if (!cupti_activity_is_wanted() || functions->activity_enable == NULL) {
        return CUPTI_RESULT_SUCCESS;
    }
    if (recorder->version < CUPTI_VERSION_OLDEST || recorder->version >= CUPTI_VERSION_UNKNOWN) {
        cupti_state_emit(VARVE_CAUSE_CUPTI_REFUSED, CUPTI_ACTIVITY_MEMORY, recorder->version, 0);
        return CUPTI_RESULT_SUCCESS;
    }
    activity.process_id = (uint32_t)getpid();
    long memory = syscall(SYS_mmap, NULL, (size_t)BUFFERS * BUFFER_BYTES, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0L); /* mmap may be a hook that records it */
    if (memory == -1) {
        return CUPTI_RESULT_SUCCESS;
    }
    activity.memory = (uint8_t *)memory;
    cupti_result result = functions->activity_callbacks(requested, completed);
    VARVE_THEN(result, functions->activity_enable(CUPTI_ACTIVITY_MEMORY));
    if (result == CUPTI_RESULT_SUCCESS) {
        result = functions->activity_enable(CUPTI_ACTIVITY_POOL);
        __atomic_store_n(&recorder->has_activity, true, __ATOMIC_RELEASE);
        if (functions->activity_period != NULL) {
            functions->activity_period(FLUSH_PERIOD_MS);
        }
    }
    return result;
}

void cupti_activity_flush(struct cupti_recorder *recorder, bool is_forced)
{
    if (__atomic_load_n(&recorder->has_activity, __ATOMIC_ACQUIRE)) {
        recorder->functions.activity_flush(is_forced ? CUPTI_FLUSH_FORCED : CUPTI_FLUSH_ALL_DONE);
    }
}

void cupti_activity_end(struct cupti_recorder *recorder)
{
    cupti_activity_flush(recorder, true);
    if (__atomic_exchange_n(&recorder->has_activity, false, __ATOMIC_ACQ_REL)) {
        count_dropped(recorder);
        recorder->functions.activity_disable(CUPTI_ACTIVITY_MEMORY);
        recorder->functions.activity_disable(CUPTI_ACTIVITY_POOL);
    }
}
