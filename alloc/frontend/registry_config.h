/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the environment says about the allocators of a front end: which kind of device, how much of it, which
 * policy, and the configuration in PyTorch's syntax. Called by registry.c when the first device is opened.
 */
#ifndef VARVE_ALLOC_FRONTEND_REGISTRY_CONFIG_H
#define VARVE_ALLOC_FRONTEND_REGISTRY_CONFIG_H

#include "alloc/alloc.h"

enum frontend_device_kind {
    FRONTEND_DEVICE_CUDA,
    FRONTEND_DEVICE_HOST,
    FRONTEND_DEVICE_SIM,
};

/* What devices are opened with. */
struct frontend_config {
    enum frontend_device_kind kind;
    uint64_t limit_bytes; /* 0: none */
    char policy[32];
    struct varve_alloc_config alloc;
};

/// From PREFIX_DEVICE, PREFIX_LIMIT, PREFIX_POLICY, and the allocator's configuration from the variable
/// `alloc_variable` (NULL: PyTorch's own). Errors: VARVE_ERROR_INVALID, NOT_FOUND (an impossible policy).
int frontend_config_read(const char *prefix, const char *alloc_variable, struct frontend_config *config_out,
                         struct varve_message *message);
/// "cuda", "host" or "sim": the name in the variable, and of the device's operations.
const char *frontend_device_kind_name(enum frontend_device_kind kind);

#endif
