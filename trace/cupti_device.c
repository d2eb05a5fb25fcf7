/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What contexts, devices and pools of the driver are called in records. In a callback the driver may not be
 * asked freely: so CUPTI tells the device of a context (it may be asked anywhere), once per context, and a
 * device is described from the end of a call that allocated on it, when the driver holds no lock of its own.
 * The tables have no lock: an entry is one word.
 */
#include "trace/cupti_internal.h"

#include <dlfcn.h>
#include <string.h>

#define CONTEXT_SLOTS 256U /* by CUPTI's number; who does not fit asks CUPTI again */
#define POOLS_MAX 64U
#define DEVICES_MAX 256U

static uint64_t contexts[CONTEXT_SLOTS]; /* number << 9 | known << 8 | device */
static uint64_t pools[POOLS_MAX];        /* handles; the index + 1 is the number */
static uint8_t pool_memory[POOLS_MAX];   /* enum varve_memory_kind ^ VARVE_MEMORY_DEVICE: 0 unless told */
static bool was_asked[DEVICES_MAX];      /* the driver, what it is; atomic */

unsigned cupti_device_of(const struct cupti_recorder *recorder, cupti_context context, uint32_t context_id)
{
    uint64_t *slot = &contexts[context_id % CONTEXT_SLOTS];
    uint64_t known = __atomic_load_n(slot, __ATOMIC_RELAXED);
    uint32_t device = 0;

    if (context == NULL) {
        return 0;
    }
    if (known >> 8 == ((uint64_t)context_id << 1 | 1)) {
        return (unsigned)known & 0xffU;
    }
    if (recorder->functions.device_id(context, &device) != CUPTI_RESULT_SUCCESS) {
        return 0;
    }
    __atomic_store_n(slot, ((uint64_t)context_id << 1 | 1) << 8 | (device & 0xffU), __ATOMIC_RELAXED);
    return device & 0xffU;
}

/* ---- pools ---- */

/* Where `handle` stands (0: a free place), or POOLS_MAX. */
static unsigned pool_find(uint64_t handle)
{
    unsigned at = 0;

    while (at < POOLS_MAX && __atomic_load_n(&pools[at], __ATOMIC_ACQUIRE) != handle) {
        at++;
    }
    return at;
}

unsigned cupti_pool_number(uint64_t handle)
{
    unsigned at = handle != 0 ? pool_find(handle) : POOLS_MAX;

    if (handle == 0 || at < POOLS_MAX) {
        return handle == 0 ? 0 : at + 1;
    }
    for (;;) {
        uint64_t expected = 0;

        at = pool_find(0);
        if (at == POOLS_MAX) {
            return 0;
        }
        /* Two threads may give one pool two numbers if they meet it first at the same moment: the driver's
         * handle is in DEV_POOL, so nothing is lost. */
        if (__atomic_compare_exchange_n(&pools[at], &expected, handle, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_ACQUIRE)) {
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
    return number == 0
               ? VARVE_MEMORY_DEVICE
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

/* ---- what a device is ---- */

static void *driver_symbol(const char *name, const char *older)
{
    void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    void *symbol = dlsym(library != NULL ? library : RTLD_DEFAULT, name);

    if (symbol == NULL && older != NULL) {
        symbol = dlsym(library != NULL ? library : RTLD_DEFAULT, older);
    }
    return symbol;
}

void cupti_device_tell(unsigned device)
{
    uint32_t (*get_device)(int *out, int ordinal) = NULL;
    uint32_t (*get_uuid)(unsigned char *out, int handle) = NULL;
    uint32_t (*get_total)(size_t * out, int handle) = NULL;
    uint32_t (*get_name)(char *out, int bytes, int handle) = NULL;
    void *symbols[4];
    unsigned char uuid[16] = {0};
    char name[64] = "";
    size_t total = 0;
    int handle;

    if (device >= DEVICES_MAX || varve_device_is_described(device) ||
        __atomic_exchange_n(&was_asked[device], true, __ATOMIC_RELAXED)) {
        return;
    }
    symbols[0] = driver_symbol("cuDeviceGet", NULL);
    symbols[1] = driver_symbol("cuDeviceGetUuid_v2", "cuDeviceGetUuid");
    symbols[2] = driver_symbol("cuDeviceTotalMem_v2", NULL);
    symbols[3] = driver_symbol("cuDeviceGetName", NULL);
    memcpy(&get_device, &symbols[0], sizeof(get_device)); /* no cast in ISO C */
    memcpy(&get_uuid, &symbols[1], sizeof(get_uuid));
    memcpy(&get_total, &symbols[2], sizeof(get_total));
    memcpy(&get_name, &symbols[3], sizeof(get_name));
    if (get_device == NULL || get_uuid == NULL || get_total == NULL || get_name == NULL ||
        get_device(&handle, (int)device) != 0 || get_uuid(uuid, handle) != 0) {
        return;
    }
    get_total(&total, handle);
    get_name(name, (int)sizeof(name) - 1, handle);
    varve_device_describe(device, uuid, total, name);
}
