/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the Python shim calls in place of PyTorch's own allocator: statistics, limits and settings (torch.h). A
 * device that was not used yet has statistics as well, all zero, and reading them opens nothing.
 */
#include "alloc/frontend/registry.h"
#include "alloc/frontend/torch.h"
#include "alloc/frontend/torch_requests.h"
#include "base/error.h"
#include "trace/emit.h"

#include <stdio.h>
#include <string.h>

uint32_t varve_torch_interface_version(void)
{
    return VARVE_TORCH_INTERFACE_VERSION;
}

const char *varve_torch_message(void)
{
    return registry_message()->text;
}

int varve_torch_is_open(int device)
{
    return registry_find(device) != NULL;
}

int varve_torch_open(int device)
{
    struct frontend_device *opened;
    return registry_get(device, &opened, registry_message());
}

int varve_torch_is_recording(void)
{
    return varve_records_wanted(VARVE_RECORDS_TORCH);
}

static int check_ordinal(int device)
{
    return device >= 0 && device < VARVE_TORCH_DEVICES
               ? VARVE_OK
               : varve_message_set(registry_message(), VARVE_ERROR_INVALID, "device %d; varve serves 0 to %d", device,
                                   VARVE_TORCH_DEVICES - 1);
}

/* ---- statistics ---- */

int torch_stats_of(int ordinal, struct varve_alloc_stats *stats_out)
{
    struct frontend_device *device = registry_find(ordinal);
    struct frontend_config config;
    int error = check_ordinal(ordinal);
    *stats_out = (struct varve_alloc_stats){0};
    if (device != NULL) {
        error = varve_alloc_get_device_stats(device->alloc, stats_out);
    } else if (error == VARVE_OK) {
        error = registry_get_config(&config, registry_message());
        stats_out->max_split_size = error != VARVE_OK || config.alloc.max_split_size == VARVE_ALLOC_UNLIMITED
                                        ? -1
                                        : (int64_t)config.alloc.max_split_size;
    }
    return error;
}

int torch_enable_peer(int ordinal, int peer, struct varve_message *message)
{
    struct frontend_device *device;
    int error = registry_get(ordinal, &device, message);
    VARVE_THEN(error, varve_alloc_enable_peer(device->alloc, peer));
    return error == VARVE_ERROR_UNSUPPORTED ? VARVE_OK : error; /* as it is with a single GPU */
}

int varve_torch_stats(int ordinal, void (*take)(void *context, const char *key, int64_t value), void *context)
{
    struct varve_alloc_stats stats;
    int error = torch_stats_of(ordinal, &stats);
    if (error == VARVE_OK) {
        varve_alloc_stats_each(&stats, take, context);
    }
    return error;
}

int varve_torch_memory(int ordinal, int64_t figures_out[4])
{
    struct frontend_device *device = registry_find(ordinal);
    memset(figures_out, 0, 4 * sizeof(figures_out[0]));
    if (device != NULL) {
        figures_out[0] = varve_alloc_memory_allocated(device->alloc);
        figures_out[1] = varve_alloc_max_memory_allocated(device->alloc);
        figures_out[2] = varve_alloc_memory_reserved(device->alloc);
        figures_out[3] = varve_alloc_max_memory_reserved(device->alloc);
    }
    return check_ordinal(ordinal);
}

static int torch_api_reset(int ordinal, void (*act)(struct varve_alloc *alloc))
{
    struct frontend_device *device = registry_find(ordinal);
    if (device != NULL) {
        act(device->alloc);
    }
    return check_ordinal(ordinal);
}

int varve_torch_reset_peak_stats(int ordinal)
{
    return torch_api_reset(ordinal, varve_alloc_reset_peak_stats);
}

int varve_torch_reset_accumulated_stats(int ordinal)
{
    return torch_api_reset(ordinal, varve_alloc_reset_accumulated_stats);
}

/* ---- limits and the cache ---- */

int varve_torch_set_memory_fraction(int ordinal, double fraction)
{
    struct frontend_device *device;
    int error = registry_get(ordinal, &device, registry_message());
    VARVE_THEN(error, varve_alloc_set_memory_fraction(device->alloc, fraction));
    if (error == VARVE_ERROR_INVALID && device != NULL) {
        varve_message_set(registry_message(), error, "a fraction of %g; it must be above 0, and 1 at most", fraction);
    }
    return error;
}

double varve_torch_get_memory_fraction(int ordinal)
{
    struct frontend_device *device = registry_find(ordinal);
    if (device != NULL) {
        return varve_alloc_get_memory_fraction(device->alloc);
    }
    struct frontend_config config;
    return registry_get_config(&config, registry_message()) == VARVE_OK && config.alloc.memory_fraction < 1
               ? config.alloc.memory_fraction
               : 1;
}

int varve_torch_cache_info(int ordinal, uint64_t *largest_out)
{
    struct frontend_device *device;
    int error = registry_get(ordinal, &device, registry_message());
    *largest_out = 0;
    if (error == VARVE_OK) {
        error = varve_alloc_cache_info(device->alloc, largest_out);
        if (error != VARVE_OK) {
            device->device->ops->reason(device->device, registry_message());
        }
    }
    return error;
}

void varve_torch_cache_info_method(void *self, int8_t ordinal, size_t *largest)
{
    (void)self;
    uint64_t found = 0;
    if (*largest == 0) {
        if (varve_torch_cache_info(ordinal, &found) != VARVE_OK) {
            return;
        }
    } else {
        struct frontend_device *device = registry_find(ordinal);
        found = device != NULL ? varve_alloc_largest_free_block(device->alloc) : 0;
    }
    *largest = found > *largest ? (size_t)found : *largest;
}

int varve_torch_empty_cache(int ordinal, uint64_t pool_capture, uint64_t pool_user)
{
    const struct varve_pool_id pool = {pool_capture, pool_user};
    int error = ordinal < 0 ? VARVE_OK : check_ordinal(ordinal);
    for (struct frontend_device *device = registry_next(-1); device != NULL; device = registry_next(device->ordinal)) {
        if (ordinal >= 0 && device->ordinal != ordinal) {
            continue;
        }
        if (device->is_recorded) {
            frontend_callsite_set(device, varve_callsite_here());
        }
        int failed = varve_alloc_empty_pool(device->alloc, pool);
        if (failed != VARVE_OK && failed != VARVE_ERROR_NOT_FOUND && error == VARVE_OK) {
            error = varve_message_set(registry_message(), failed, "empty_cache of device %d: %s", device->ordinal,
                                      varve_strerror(failed));
        }
    }
    return error;
}

/* ---- history and settings ---- */

int varve_torch_history(uint64_t max_entries, int clear)
{
    registry_set_history(max_entries, clear != 0);
    return VARVE_OK;
}

int varve_torch_history_is_on(void)
{
    return registry_history_limit() > 0;
}

int varve_torch_get_settings(struct varve_torch_settings *settings_out)
{
    memset(settings_out, 0, sizeof(*settings_out));
    struct frontend_config config;
    int error = registry_get_config(&config, registry_message());
    if (error != VARVE_OK) {
        return error;
    }
    memcpy(settings_out->text, config.alloc.text, sizeof(settings_out->text));
    memcpy(settings_out->policy, config.policy, sizeof(settings_out->policy));
    snprintf(settings_out->device, sizeof(settings_out->device), "%s", frontend_device_kind_name(config.kind));
    settings_out->max_split_size = config.alloc.max_split_size;
    settings_out->max_non_split_rounding_size = config.alloc.max_non_split_rounding_size;
    settings_out->large_segment_size = config.alloc.large_segment_size;
    memcpy(settings_out->roundup_power2_divisions, config.alloc.roundup_power2_divisions,
           sizeof(settings_out->roundup_power2_divisions));
    settings_out->garbage_collection_threshold = config.alloc.garbage_collection_threshold;
    settings_out->memory_fraction = config.alloc.memory_fraction;
    settings_out->expandable_segments = config.alloc.expandable_segments;
    settings_out->release_lock_on_cudamalloc = config.alloc.release_lock_on_cudamalloc;
    settings_out->graph_capture_record_stream_reuse = config.alloc.graph_capture_record_stream_reuse;
    return VARVE_OK;
}

int varve_torch_set_settings(const char *text)
{
    struct varve_alloc_config config;
    int error = varve_alloc_config_parse(text, &config, registry_message());
    return error == VARVE_OK ? registry_set_config(&config, registry_message()) : error;
}
