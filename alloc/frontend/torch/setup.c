/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the environment says about the allocators of libvarve-torch.so and libvarve-replace.so: which device,
 * how much of it, which policy, and the configuration in PyTorch's syntax. Values that make no sense are an
 * error of the first request, not a silent default: a typo in a test must not put it on another device.
 */
#include "alloc/core/config.h"
#include "alloc/frontend/torch/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct torch_plan torch_plan_pytorch = {
    .prefix = "VARVE_TORCH",
    .records = VARVE_RECORDS_TORCH,
    .oom = torch_oom_tell,
};

static const char *const kind_names[] = {
    [TORCH_DEVICE_CUDA] = "cuda",
    [TORCH_DEVICE_HOST] = "host",
    [TORCH_DEVICE_SIM] = "sim",
};

const char *torch_device_kind_name(enum torch_device_kind kind)
{
    return kind_names[kind];
}

/* NULL if it is not set, or to nothing. */
static const char *variable(const struct torch_plan *plan, const char *end, char *name, size_t size)
{
    const char *value;

    snprintf(name, size, "%s_%s", plan->prefix, end);
    value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

static int read_kind(const struct torch_plan *plan, struct torch_setup *setup, struct varve_message *message)
{
    char name[64];
    const char *value = variable(plan, "DEVICE", name, sizeof(name));

    setup->kind = TORCH_DEVICE_CUDA;
    for (size_t i = 0; value != NULL; i++) {
        if (i == sizeof(kind_names) / sizeof(kind_names[0])) {
            return varve_message_set(message, VARVE_ERROR_INVALID,
                                     "%s: '%.64s' is no device; there are cuda, host and sim", name, value);
        }
        if (strcmp(value, kind_names[i]) == 0) {
            setup->kind = (enum torch_device_kind)i;
            break;
        }
    }
    return VARVE_OK;
}

static int read_limit(const struct torch_plan *plan, struct torch_setup *setup, struct varve_message *message)
{
    char name[64];
    const char *value = variable(plan, "LIMIT", name, sizeof(name));

    if (value != NULL && !config_text_number(value, &setup->limit_bytes)) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "%s: '%.64s' is no number of bytes", name,
                                 value);
    }
    return VARVE_OK;
}

static int read_policy(const struct torch_plan *plan, struct torch_setup *setup,
                       struct varve_message *message)
{
    char name[64];
    const char *value = variable(plan, "POLICY", name, sizeof(name));

    if (value != NULL && strlen(value) >= sizeof(setup->policy)) {
        return varve_message_set(message, VARVE_ERROR_NOT_FOUND, "%s: there is no policy '%.64s'", name,
                                 value);
    }
    snprintf(setup->policy, sizeof(setup->policy), "%s", value != NULL ? value : "pytorch");
    return VARVE_OK;
}

static int read_config(const struct torch_plan *plan, struct torch_setup *setup,
                       struct varve_message *message)
{
    struct varve_message reason = {""};
    const char *value;
    int error;

    if (plan->config == NULL) {
        return varve_alloc_config_environment(&setup->config, message);
    }
    value = getenv(plan->config);
    error = varve_alloc_config_parse(value != NULL ? value : "", &setup->config, &reason);
    return error == VARVE_OK ? error
                             : varve_message_set(message, error, "%s: %.400s", plan->config, reason.text);
}

int torch_setup_read(const struct torch_plan *plan, struct torch_setup *setup_out,
                     struct varve_message *message)
{
    int error;

    *setup_out = (struct torch_setup){0};
    error = read_kind(plan, setup_out, message);
    if (error == VARVE_OK) {
        error = read_limit(plan, setup_out, message);
    }
    if (error == VARVE_OK) {
        error = read_policy(plan, setup_out, message);
    }
    return error == VARVE_OK ? read_config(plan, setup_out, message) : error;
}

int torch_setup_check(const struct varve_alloc_config *config, const struct varve_device *device,
                      struct varve_message *message)
{
    if (config->graph_capture_record_stream_reuse) {
        return varve_message_set(message, VARVE_ERROR_UNSUPPORTED,
                                 "graph_capture_record_stream_reuse is not supported by varve");
    }
    if (config->expandable_segments && device->ops->vmm_reserve == NULL) {
        return varve_message_set(message, VARVE_ERROR_UNSUPPORTED,
                                 "expandable_segments: device %s has no virtual memory", device->ops->name);
    }
    return VARVE_OK;
}
