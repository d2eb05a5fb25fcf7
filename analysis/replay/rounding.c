/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An allocator on a simulated device is asked, so that the rules are written down once, in alloc/.
 */
#include "analysis/replay/rounding.h"

int replay_rounding_open(struct replay_rounding *rounding, const struct varve_alloc_config *config,
                         struct varve_message *message)
{
    struct varve_sim_options sim = {0};
    struct varve_alloc_options options;
    int result;

    *rounding = (struct replay_rounding){
        .max_split = config->max_split_size == VARVE_ALLOC_UNLIMITED ? UINT64_MAX : config->max_split_size,
        .large_unit = config->large_segment_size,
    };
    result = varve_sim_open(&sim, &rounding->device, message);
    if (result != VARVE_OK) {
        rounding->device = NULL;
        return result;
    }
    varve_alloc_options_init(&options);
    options.device = rounding->device;
    options.config = *config;
    return varve_alloc_open(&options, &rounding->alloc, message);
}

void replay_rounding_close(struct replay_rounding *rounding)
{
    if (rounding->alloc != NULL) {
        varve_alloc_close(rounding->alloc);
    }
    if (rounding->device != NULL) {
        rounding->device->ops->close(rounding->device);
    }
}

uint64_t replay_block_size(const struct replay_rounding *rounding, uint64_t requested)
{
    struct varve_alloc_forecast forecast;

    return varve_alloc_forecast(rounding->alloc, requested, 0, &forecast) == VARVE_OK ? forecast.rounded : 0;
}
