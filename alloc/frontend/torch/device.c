/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device for an allocator of libvarve-torch.so or libvarve-replace.so, and its name in the trace. Its index
 * is CUDA's ordinal in this process; the UUID tells the collector which one that is of all processes. The two
 * functions of the driver that say so are found here, since nothing else in alloc/ needs them.
 */
#include "alloc/device/cuda/driver.h"
#include "alloc/frontend/torch/state.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define SIM_SPACE_SHIFT 40 /* each sim device has 2^40 addresses, so that no two share one */
#define SIM_SPACE_FIRST (UINT64_C(1) << 46)

int torch_device_make(const struct torch_setup *setup, int ordinal, struct varve_device **device_out,
                      struct varve_message *message)
{
    switch (setup->kind) {
    case TORCH_DEVICE_HOST:
        return varve_host_open(
            &(struct varve_host_options){.index = ordinal, .limit_bytes = setup->limit_bytes}, device_out,
            message);
    case TORCH_DEVICE_SIM:
        return varve_sim_open(
            &(struct varve_sim_options){
                .index = ordinal,
                .capacity_bytes = setup->limit_bytes,
                .first_addr = SIM_SPACE_FIRST + ((uint64_t)ordinal << SIM_SPACE_SHIFT),
            },
            device_out, message);
    case TORCH_DEVICE_CUDA:
        break;
    }
    return varve_cuda_open(
        &(struct varve_cuda_options){.index = ordinal, .ordinal = ordinal, .limit_bytes = setup->limit_bytes},
        device_out, message);
}

/* As in device/cuda/driver.c. */
static void function_set(void *field, void *function)
{
    memcpy(field, &function, sizeof(function));
}

static void name_cuda(int ordinal, unsigned char uuid[16], char *name, size_t size)
{
    cuda_result (*get_uuid)(unsigned char *uuid_out, cuda_ordinal device);
    cuda_result (*get_name)(char *name_out, int size, cuda_ordinal device);
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    const struct cuda_driver *driver;
    cuda_ordinal device = 0;
    void *found;

    if (library == NULL || cuda_driver_load(&driver, NULL) != VARVE_OK ||
        driver->device_get(&device, ordinal) != CUDA_RESULT_SUCCESS) {
        return;
    }
    found = dlsym(library, "cuDeviceGetUuid_v2");
    function_set(&get_uuid, found != NULL ? found : dlsym(library, "cuDeviceGetUuid"));
    function_set(&get_name, dlsym(library, "cuDeviceGetName"));
    if (get_uuid == NULL || get_uuid(uuid, device) != CUDA_RESULT_SUCCESS) {
        memset(uuid, 0, 16);
    }
    if (get_name == NULL || get_name(name, (int)size, device) != CUDA_RESULT_SUCCESS) {
        name[0] = '\0';
    }
    dlclose(library);
}

void torch_device_describe(enum torch_device_kind kind, struct varve_device *device)
{
    unsigned char uuid[16] = {0};
    uint64_t free_bytes = 0, total = 0;
    char name[64] = "";

    if (varve_device_is_described((unsigned)device->index)) {
        return;
    }
    if (kind == TORCH_DEVICE_CUDA) {
        name_cuda(device->index, uuid, name, sizeof(name));
    } else {
        snprintf(name, sizeof(name), "%s %d", torch_device_kind_name(kind), device->index);
        memcpy(uuid, name, strnlen(name, sizeof(uuid)));
    }
    device->ops->memory_info(device, &free_bytes, &total);
    varve_device_describe((unsigned)device->index, uuid, total, name);
}

void torch_device_reason(const struct varve_device *device, struct varve_message *message_out)
{
    message_out->text[0] = '\0';
    if (strcmp(device->ops->name, torch_device_kind_name(TORCH_DEVICE_CUDA)) == 0) {
        varve_cuda_reason(device, message_out);
    } else if (strcmp(device->ops->name, torch_device_kind_name(TORCH_DEVICE_HOST)) == 0) {
        varve_host_reason(device, message_out);
    } else {
        varve_sim_reason(device, message_out);
    }
}
