/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/runtime/runtime_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- opening ---- */

static int runtime_open_planner(struct varve_runtime *runtime, const struct varve_runtime_options *options,
                                struct varve_message *message)
{
    const char *name = options->heuristic != NULL ? options->heuristic : "dtr-eq";
    struct varve_remat_options remat;
    varve_remat_options_init(&remat);
    remat.heuristic = varve_remat_heuristic_find(name);
    if (remat.heuristic == NULL) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "there is no heuristic \"%s\"", name);
    }
    if (remat.heuristic->is_window || remat.heuristic->has_free_neighbours) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "heuristic %s is for logs alone", name);
    }
    remat.search = options->search;
    remat.seed = options->seed;
    remat.is_live = true;
    remat.budget = options->budget != 0 ? options->budget : VARVE_REMAT_UNLIMITED;
    drive_init(runtime, &remat.driver);
    return varve_remat_open(&remat, &runtime->remat, message);
}

static int limit_allocator(struct varve_runtime *runtime, uint64_t budget, struct varve_message *message)
{
    uint64_t allocated = (uint64_t)varve_alloc_memory_allocated(runtime->alloc);
    if (budget != 0 && allocated > budget) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY,
                                 "a budget of %" PRIu64 " bytes is below the %" PRIu64
                                 " that are allocated and can't be evicted",
                                 budget, allocated);
    }
    return varve_alloc_set_allocated_limit(runtime->alloc, budget);
}

/* The allocator's limit is left as it is. */
static void destroy(struct varve_runtime *runtime)
{
    varve_alloc_remove_callbacks(runtime->alloc, runtime);
    log_close(runtime);
    varve_remat_close(runtime->remat);
    for (uint32_t i = 0; i < runtime->value_capacity; i++) { /* of a planner that ran out of memory */
        varve_storage_release(runtime->values[i], NULL);
    }
    while (runtime->recipes != NULL) {
        recipe_free(runtime, runtime->recipes);
    }
    free(runtime->values);
    free(runtime->costs);
    free(runtime);
}

int varve_runtime_open(const struct varve_runtime_options *options, struct varve_runtime **runtime_out,
                       struct varve_message *message)
{
    struct varve_alloc *alloc = options->memory != NULL ? varve_memory_alloc(options->memory) : NULL;
    *runtime_out = NULL;
    if (alloc == NULL) {
        return varve_message_set(message, VARVE_ERROR_INVALID,
                                 "a runtime needs memory of an allocator: varve_memory_open");
    }
    struct varve_runtime *runtime = calloc(1, sizeof(*runtime));
    if (runtime == NULL) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for a runtime");
    }
    runtime->memory = options->memory;
    runtime->alloc = alloc;
    runtime->stream = options->stream;
    runtime->budget = options->budget;
    runtime->checks_values = options->checks_values;
    int error = runtime_open_planner(runtime, options, message);
    if (error == VARVE_OK && (varve_alloc_add_miss_callback(alloc, drive_on_miss, runtime) != VARVE_OK ||
                              varve_alloc_add_last_resort(alloc, drive_on_last_resort, runtime) != VARVE_OK)) {
        error = varve_message_set(message, VARVE_ERROR_FULL, "the allocator has no room for another callback");
    }
    VARVE_THEN(error, limit_allocator(runtime, options->budget, message));
    if (error != VARVE_OK) {
        destroy(runtime);
        return error;
    }
    *runtime_out = runtime;
    return VARVE_OK;
}

int varve_runtime_close(struct varve_runtime *runtime, struct varve_message *message)
{
    if (runtime == NULL) {
        return VARVE_OK;
    }
    if (runtime->tensors > 0) {
        return varve_message_set(message, VARVE_ERROR_BUSY, "%" PRIu64 " tensors have not been released",
                                 runtime->tensors);
    }
    varve_alloc_set_allocated_limit(runtime->alloc, 0);
    destroy(runtime);
    return VARVE_OK;
}

int runtime_result(struct varve_runtime *runtime, int error, struct varve_message *message)
{
    if (error != VARVE_OK && runtime->failed[0] != '\0' && message != NULL) {
        const struct varve_message reason = *message;
        (void)varve_message_set(message, error, "operator %s: %.380s", runtime->failed, reason.text);
    }
    runtime->failed[0] = '\0';
    return error;
}

/* ---- settings ---- */

int varve_runtime_set_memory_budget(struct varve_runtime *runtime, uint64_t bytes, struct varve_message *message)
{
    while (bytes != 0 && (uint64_t)varve_alloc_memory_allocated(runtime->alloc) > bytes &&
           varve_remat_make_room(runtime->remat, (uint64_t)varve_alloc_memory_allocated(runtime->alloc) - bytes) > 0) {
    }
    int error = limit_allocator(runtime, bytes, message);
    if (error == VARVE_OK) {
        runtime->budget = bytes;
        varve_remat_set_budget(runtime->remat, bytes != 0 ? bytes : VARVE_REMAT_UNLIMITED);
    }
    return error;
}

void varve_runtime_toggle_sampling(struct varve_runtime *runtime, bool is_on)
{
    varve_remat_set_search(runtime->remat, is_on ? VARVE_REMAT_SEARCH_SAMPLE : VARVE_REMAT_SEARCH_SCAN);
}

void varve_runtime_ignore_small(struct varve_runtime *runtime, bool is_on)
{
    varve_remat_set_ignores_small(runtime->remat, is_on);
}

void varve_runtime_reset_profile(struct varve_runtime *runtime)
{
    varve_remat_reset_counters(runtime->remat);
}

void varve_runtime_get_counters(const struct varve_runtime *runtime, struct varve_remat_counters *counters_out)
{
    varve_remat_get_counters(runtime->remat, counters_out);
}

void varve_runtime_get_times(const struct varve_runtime *runtime, struct varve_runtime_times *times_out)
{
    struct varve_remat_counters counters;
    varve_remat_get_counters(runtime->remat, &counters);
    *times_out = (struct varve_runtime_times){.base_ns = counters.model_compute_ns,
                                              .remat_ns = counters.remat_compute_ns,
                                              .search_ns = counters.search_ns,
                                              .cost_ns = counters.score_ns};
}

static int runtime_check_values(const struct varve_runtime *runtime, struct varve_message *message)
{
    for (uint32_t i = 0; i < runtime->value_capacity; i++) {
        bool is_defined = varve_remat_is_tensor(runtime->remat, i) && varve_remat_is_defined(runtime->remat, i);
        if (is_defined != (runtime->values[i] != NULL)) {
            return varve_message_set(message, VARVE_ERROR_CORRUPT, "tensor %" PRIu32 " is %s, and its storage %s", i,
                                     is_defined ? "defined" : "not defined",
                                     runtime->values[i] != NULL ? "is there" : "is not");
        }
        if (runtime->values[i] != NULL && varve_storage_check(runtime->values[i], message) != VARVE_OK) {
            return VARVE_ERROR_CORRUPT;
        }
    }
    return VARVE_OK;
}

int varve_runtime_check(struct varve_runtime *runtime, struct varve_message *message)
{
    int error = varve_remat_check(runtime->remat, message);
    if (error == VARVE_OK && runtime->budget != 0 &&
        (uint64_t)varve_alloc_memory_allocated(runtime->alloc) > runtime->budget) {
        error = varve_message_set(message, VARVE_ERROR_CORRUPT, "more is allocated than the budget allows");
    }
    return error == VARVE_OK ? runtime_check_values(runtime, message) : error;
}
