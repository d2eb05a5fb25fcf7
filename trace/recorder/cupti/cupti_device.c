/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What contexts, devices and pools of the driver are called in records. In a callback the driver may not be
 * asked freely: CUPTI names the device of a context, once per context, and the driver only what a device
 * is, before the first record of it, and whether a stream records a graph. Its functions are found in
 * cuInit, since looking them up takes the loader's lock. The tables have no lock: an entry is one word.
 */
#include "trace/recorder/cupti/cupti_recorder.h"
#include "trace/recorder/cupti/cupti_driver.h"
#include "trace/emit.h"
#include "trace/record.h"

#include <dlfcn.h>
#include <string.h>

#define CONTEXT_SLOTS 256U /* by CUPTI's number; who does not fit asks CUPTI again */
#define POOLS_MAX 64U
#define STREAM_LEGACY 1U

static uint64_t contexts[CONTEXT_SLOTS]; /* number << 9 | known << 8 | device */
static uint64_t pools[POOLS_MAX];        /* handles; the index + 1 is the number */
static uint8_t pool_memory[POOLS_MAX];   /* enum varve_memory_kind ^ VARVE_MEMORY_DEVICE: 0 unless reported */

/* The driver's; NULL: not found. */
static struct {
    uint32_t (*device_get)(int *out, int ordinal);
    uint32_t (*device_uuid)(unsigned char *out, int handle);
    uint32_t (*device_total)(size_t *out, int handle);
    uint32_t (*device_name)(char *out, int bytes, int handle);
    uint32_t (*stream_captures)(uint64_t stream, uint32_t *status_out);
} driver;

unsigned cupti_device_of(const struct cupti_recorder *recorder, cupti_context context, uint32_t context_id)
{
    uint64_t *slot = &contexts[context_id % CONTEXT_SLOTS];
    uint64_t known = __atomic_load_n(slot, __ATOMIC_RELAXED);
    if (context == NULL) {
        return 0;
    }
    if (known >> 8 == ((uint64_t)context_id << 1 | 1)) {
        return (unsigned)known & 0xffU;
    }
    uint32_t device = 0;
    if (recorder->functions.device_id(context, &device) != CUPTI_RESULT_SUCCESS) {
        return 0;
    }
    __atomic_store_n(slot, ((uint64_t)context_id << 1 | 1) << 8 | (device & 0xffU), __ATOMIC_RELAXED);
    return device & 0xffU;
}

/* ---- pools ---- */

/* Where `handle` stands (0: a free slot), or POOLS_MAX. */
static unsigned cupti_device_pool_find(uint64_t handle)
{
    unsigned at = 0;
    while (at < POOLS_MAX && __atomic_load_n(&pools[at], __ATOMIC_ACQUIRE) != handle) {
        at++;
    }
    return at;
}

unsigned cupti_pool_number(uint64_t handle)
{
    unsigned at = handle != 0 ? cupti_device_pool_find(handle) : POOLS_MAX;
    if (handle == 0 || at < POOLS_MAX) {
        return handle == 0 ? 0 : at + 1;
    }
    for (;;) {
        at = cupti_device_pool_find(0);
        if (at == POOLS_MAX) {
            return 0;
        }
        uint64_t expected = 0;
        /* Two threads may give one pool two numbers if they meet it first at the same moment: the driver's
         * handle is in DEV_POOL, so nothing is lost. */
        if (__atomic_compare_exchange_n(&pools[at], &expected, handle, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
            return at + 1;
        }
    }
}

void cupti_pool_made(uint64_t handle, enum varve_memory_kind memory)
{
    unsigned number = cupti_pool_number(handle);
    if (number > 0) {
        __atomic_store_n(&pool_memory[number - 1], (uint8_t)(memory ^ VARVE_MEMORY_DEVICE), __ATOMIC_RELAXED);
    }
}

enum varve_memory_kind cupti_pool_memory(unsigned number)
{
    return number == 0 ? VARVE_MEMORY_DEVICE
                       : (enum varve_memory_kind)(__atomic_load_n(&pool_memory[number - 1], __ATOMIC_RELAXED) ^
                                                  VARVE_MEMORY_DEVICE);
}

void cupti_pool_forget(uint64_t handle)
{
    for (unsigned i = 0; i < POOLS_MAX; i++) {
        uint64_t expected = handle;
        if (__atomic_load_n(&pools[i], __ATOMIC_ACQUIRE) == handle) {
            __atomic_store_n(&pool_memory[i], 0, __ATOMIC_RELAXED);
            __atomic_compare_exchange_n(&pools[i], &expected, 0, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
        }
    }
}

/* ---- the driver ---- */

static void cupti_device_find(void *library, const char *name, const char *older, void *function_out)
{
    void *symbol = dlsym(library, name);
    if (symbol == NULL && older != NULL) {
        symbol = dlsym(library, older);
    }
    memcpy(function_out, &symbol, sizeof(symbol)); /* no cast in ISO C */
}

void cupti_driver_find(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    library = library != NULL ? library : RTLD_DEFAULT;
    cupti_device_find(library, "cuDeviceGet", NULL, &driver.device_get);
    cupti_device_find(library, "cuDeviceGetUuid_v2", "cuDeviceGetUuid", &driver.device_uuid);
    cupti_device_find(library, "cuDeviceTotalMem_v2", NULL, &driver.device_total);
    cupti_device_find(library, "cuDeviceGetName", NULL, &driver.device_name);
    cupti_device_find(library, "cuStreamIsCapturing", NULL, &driver.stream_captures);
}

/* Two threads may ask at the same time, so that neither goes on without the answer; one is heard. */
void cupti_device_describe(unsigned device)
{
    unsigned char uuid[16] = {0};
    int handle;
    if (varve_device_is_described(device) || driver.device_get == NULL || driver.device_uuid == NULL ||
        driver.device_total == NULL || driver.device_name == NULL || driver.device_get(&handle, (int)device) != 0 ||
        driver.device_uuid(uuid, handle) != 0) {
        return;
    }
    size_t total = 0;
    driver.device_total(&total, handle);
    char name[64] = "";
    driver.device_name(name, (int)sizeof(name) - 1, handle);
    varve_device_describe(device, uuid, total, name);
}

/* The stream that is 0 cannot be captured, and asking for it is an error while another one is. */
bool cupti_stream_is_captured(uint64_t stream)
{
    uint32_t status = 0;
    return stream > STREAM_LEGACY && driver.stream_captures != NULL && driver.stream_captures(stream, &status) == 0 &&
           status == CUPTI_CAPTURE_ACTIVE;
}
