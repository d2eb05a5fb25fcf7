/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device's index is CUDA's ordinal in this process; by the UUID the collector knows which GPU of the
 * machine that is in every process.
 */
#include "alloc/frontend/registry.h"
#include "base/error.h"
#include "trace/emit.h"

#include <stdio.h>
#include <string.h>

#define SIM_SPACE_SHIFT 40 /* each sim device has 2^40 addresses, so that no two share one */
#define SIM_SPACE_FIRST (UINT64_C(1) << 46)

int frontend_device_open(const struct frontend_config *config, int ordinal, struct varve_device **device_out,
                         struct varve_message *message)
{
    switch (config->kind) {
    case FRONTEND_DEVICE_HOST:
        return varve_host_open(&(struct varve_host_options){.index = ordinal, .limit_bytes = config->limit_bytes},
                               device_out, message);
    case FRONTEND_DEVICE_SIM:
        return varve_sim_open(
            &(struct varve_sim_options){
                .index = ordinal,
                .capacity_bytes = config->limit_bytes,
                .first_addr = SIM_SPACE_FIRST + ((uint64_t)ordinal << SIM_SPACE_SHIFT),
            },
            device_out, message);
    case FRONTEND_DEVICE_CUDA:
        break;
    }
    return varve_cuda_open(
        &(struct varve_cuda_options){
            .index = ordinal, .ordinal = ordinal, .limit_bytes = config->limit_bytes, .shares = true},
        device_out, message);
}

void frontend_device_describe(enum frontend_device_kind kind, struct varve_device *device)
{
    if (varve_device_is_described((unsigned)device->index)) {
        return;
    }
    char name[64] = "";
    unsigned char uuid[16] = {0};
    if (kind == FRONTEND_DEVICE_CUDA) {
        varve_cuda_identify(device->index, uuid, name, sizeof(name));
    } else {
        snprintf(name, sizeof(name), "%s %d", frontend_device_kind_name(kind), device->index);
        memcpy(uuid, name, strnlen(name, sizeof(uuid)));
    }
    uint64_t free_bytes = 0, total = 0;
    device->ops->memory_info(device, &free_bytes, &total);
    varve_device_describe((unsigned)device->index, uuid, total, name);
}

bool frontend_device_is_cuda(const struct varve_device *device)
{
    return strcmp(device->ops->name, frontend_device_kind_name(FRONTEND_DEVICE_CUDA)) == 0;
}
