/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the Python shim asks in place of PyTorch's own allocator: figures, limits and settings. A device that
 * nobody has used has figures as well, all zero, and asking for them opens nothing.
 */
#include "alloc/frontend/torch/state.h"

#include <stdio.h>
#include <string.h>

uint32_t varve_torch_interface_version(void)
{
    return VARVE_TORCH_INTERFACE_VERSION;
}

const char *varve_torch_message(void)
{
    return torch_message()->text;
}

int varve_torch_is_open(int device)
{
    return torch_device_find(device) != NULL;
}

int varve_torch_open(int device)
{
    struct torch_device *opened;

    return torch_device_get(device, &opened, torch_message());
}

int varve_torch_is_recording(void)
{
    return varve_records_wanted(VARVE_RECORDS_TORCH);
}

static int check_ordinal(int device)
{
    return device >= 0 && device < VARVE_TORCH_DEVICES
               ? VARVE_OK
               : varve_message_set(torch_message(), VARVE_ERROR_INVALID, "device %d; varve serves 0 to %d",
                                   device, VARVE_TORCH_DEVICES - 1);
}

/* ---- figures ---- */

int varve_torch_stats(int ordinal, void (*take)(void *context, const char *key, int64_t value), void *context)
{
    struct torch_device *device = torch_device_find(ordinal);
    struct varve_alloc_stats stats = {0};
    struct torch_setup setup;
    int error = check_ordinal(ordinal);

    if (device != NULL) {
        error = varve_alloc_get_device_stats(device->alloc, &stats);
    } else if (error == VARVE_OK) {
        error = torch_setup_get(&setup, torch_message());
        stats.max_split_size = error != VARVE_OK || setup.config.max_split_size == VARVE_ALLOC_UNLIMITED
                                   ? -1
                                   : (int64_t)setup.config.max_split_size;
    }
    if (error == VARVE_OK) {
        varve_alloc_stats_each(&stats, take, context);
    }
    return error;
}

int varve_torch_memory(int ordinal, int64_t figures_out[4])
{
    struct torch_device *device = torch_device_find(ordinal);

    memset(figures_out, 0, 4 * sizeof(figures_out[0]));
    if (device != NULL) {
        figures_out[0] = varve_alloc_memory_allocated(device->alloc);
        figures_out[1] = varve_alloc_max_memory_allocated(device->alloc);
        figures_out[2] = varve_alloc_memory_reserved(device->alloc);
        figures_out[3] = varve_alloc_max_memory_reserved(device->alloc);
    }
    return check_ordinal(ordinal);
}

int varve_torch_reset_peak_stats(int ordinal)
{
    struct torch_device *device = torch_device_find(ordinal);

    if (device != NULL) {
        varve_alloc_reset_peak_stats(device->alloc);
    }
    return check_ordinal(ordinal);
}

int varve_torch_reset_accumulated_stats(int ordinal)
{
    struct torch_device *device = torch_device_find(ordinal);

    if (device != NULL) {
        varve_alloc_reset_accumulated_stats(device->alloc);
    }
    return check_ordinal(ordinal);
}

/* ---- limits and the cache ---- */

int varve_torch_set_memory_fraction(int ordinal, double fraction)
{
    struct torch_device *device;
    int error = torch_device_get(ordinal, &device, torch_message());

    if (error == VARVE_OK) {
        error = varve_alloc_set_memory_fraction(device->alloc, fraction);
    }
    if (error == VARVE_ERROR_INVALID && device != NULL) {
        varve_message_set(torch_message(), error, "a fraction of %g; it must be above 0, and 1 at most",
                          fraction);
    }
    return error;
}

double varve_torch_get_memory_fraction(int ordinal)
{
    struct torch_device *device = torch_device_find(ordinal);
    struct torch_setup setup;

    if (device != NULL) {
        return varve_alloc_get_memory_fraction(device->alloc);
    }
    return torch_setup_get(&setup, torch_message()) == VARVE_OK && setup.config.memory_fraction < 1
               ? setup.config.memory_fraction
               : 1;
}

int varve_torch_cache_info(int ordinal, uint64_t *largest_out)
{
    struct torch_device *device;
    int error = torch_device_get(ordinal, &device, torch_message());

    *largest_out = 0;
    if (error == VARVE_OK) {
        error = varve_alloc_cache_info(device->alloc, largest_out);
        if (error != VARVE_OK) {
            torch_device_reason(device->device, torch_message());
        }
    }
    return error;
}

static uint64_t largest_cached(struct varve_alloc *alloc)
{
    uint64_t largest = 0;

    alloc_lock(alloc);
    for (struct pool *pool = pool_each(alloc, NULL); pool != NULL; pool = pool_each(alloc, pool)) {
        for (uint32_t i = 0; i < pool->index.stream_count; i++) {
            const struct block *block = free_index_last(pool->index.streams[i]);

            largest = block != NULL && block->size > largest ? block->size : largest;
        }
    }
    alloc_unlock(alloc);
    return largest;
}

void varve_torch_cache_info_method(void *self, int8_t ordinal, size_t *largest)
{
    struct torch_device *device;
    uint64_t found = 0;

    (void)self;
    if (*largest == 0) {
        if (varve_torch_cache_info(ordinal, &found) != VARVE_OK) {
            return;
        }
    } else {
        device = torch_device_find(ordinal);
        found = device != NULL ? largest_cached(device->alloc) : 0;
    }
    *largest = found > *largest ? (size_t)found : *largest;
}

int varve_torch_empty_cache(int ordinal, uint64_t pool_capture, uint64_t pool_user)
{
    const struct varve_pool_id pool = {pool_capture, pool_user};
    int error = ordinal < 0 ? VARVE_OK : check_ordinal(ordinal);

    for (struct torch_device *device = torch_device_after(-1); device != NULL;
         device = torch_device_after(device->ordinal)) {
        int failed;

        if (ordinal >= 0 && device->ordinal != ordinal) {
            continue;
        }
        if (device->is_recorded) {
            torch_callsite_set(device, varve_callsite_here());
        }
        failed = varve_alloc_empty_pool(device->alloc, pool);
        if (failed != VARVE_OK && failed != VARVE_ERROR_NOT_FOUND && error == VARVE_OK) {
            error = varve_message_set(torch_message(), failed, "empty_cache of device %d: %s",
                                      device->ordinal, varve_strerror(failed));
        }
    }
    return error;
}

/* ---- history and settings ---- */

int varve_torch_history(uint64_t max_entries, int clear)
{
    torch_history_change(max_entries, clear != 0);
    return VARVE_OK;
}

int varve_torch_history_is_on(void)
{
    return torch_history_limit() > 0;
}

int varve_torch_get_settings(struct varve_torch_settings *settings_out)
{
    struct torch_setup setup;
    int error;

    memset(settings_out, 0, sizeof(*settings_out));
    error = torch_setup_get(&setup, torch_message());
    if (error != VARVE_OK) {
        return error;
    }
    memcpy(settings_out->text, setup.config.text, sizeof(settings_out->text));
    memcpy(settings_out->policy, setup.policy, sizeof(settings_out->policy));
    snprintf(settings_out->device, sizeof(settings_out->device), "%s", torch_device_kind_name(setup.kind));
    settings_out->max_split_size = setup.config.max_split_size;
    settings_out->max_non_split_rounding_size = setup.config.max_non_split_rounding_size;
    settings_out->large_segment_size = setup.config.large_segment_size;
    memcpy(settings_out->roundup_power2_divisions, setup.config.roundup_power2_divisions,
           sizeof(settings_out->roundup_power2_divisions));
    settings_out->garbage_collection_threshold = setup.config.garbage_collection_threshold;
    settings_out->memory_fraction = setup.config.memory_fraction;
    settings_out->expandable_segments = setup.config.expandable_segments;
    settings_out->release_lock_on_cudamalloc = setup.config.release_lock_on_cudamalloc;
    settings_out->graph_capture_record_stream_reuse = setup.config.graph_capture_record_stream_reuse;
    return VARVE_OK;
}

int varve_torch_set_settings(const char *text)
{
    struct varve_alloc_config config;
    int error = varve_alloc_config_parse(text, &config, torch_message());

    return error == VARVE_OK ? torch_setup_change(&config, torch_message()) : error;
}
