/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/history/infer_device.h"

#include <stdio.h>
#include <string.h>

int replay_config(const struct history *history, const char *conf, struct varve_alloc_config *config,
                  struct varve_message *message)
{
    const struct history_settings *settings = &history->settings;
    varve_alloc_config_init(config);
    if (conf != NULL) {
        return varve_alloc_config_parse(conf, config, message);
    }
    if (!settings->is_known) {
        return VARVE_OK;
    }
    struct varve_message ignored;
    /* the figures count; the text has what they lack, but may be in the words of another version */
    int result = varve_alloc_config_parse(settings->text, config, &ignored);
    if (result != VARVE_OK) {
        varve_alloc_config_init(config);
    }
    config->max_split_size = settings->max_split_size < 0 ? VARVE_ALLOC_UNLIMITED : (uint64_t)settings->max_split_size;
    config->garbage_collection_threshold = settings->garbage_collection_threshold;
    config->expandable_segments = settings->expandable_segments;
    memcpy(config->roundup_power2_divisions, settings->divisions, sizeof(settings->divisions));
    return varve_alloc_config_check(config, message);
}

int replay_settings(const struct history *history, const char *conf, struct history_settings *settings,
                    struct varve_message *message)
{
    struct varve_alloc_config config;
    int result = replay_config(history, conf, &config, message);
    *settings = (struct history_settings){.is_known = true};
    if (result != VARVE_OK) {
        return result;
    }
    snprintf(settings->text, sizeof(settings->text), "%s", conf != NULL ? conf : history->settings.text);
    settings->max_split_size = config.max_split_size == VARVE_ALLOC_UNLIMITED ? -1 : (int64_t)config.max_split_size;
    settings->garbage_collection_threshold = config.garbage_collection_threshold;
    settings->expandable_segments = config.expandable_segments;
    memcpy(settings->divisions, config.roundup_power2_divisions, sizeof(settings->divisions));
    return VARVE_OK;
}
