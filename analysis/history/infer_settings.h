/* SPDX-License-Identifier: Apache-2.0 */
/* A history's settings as the allocator has them, and the other way round. */
#ifndef VARVE_ANALYSIS_HISTORY_INFER_SETTINGS_H
#define VARVE_ANALYSIS_HISTORY_INFER_SETTINGS_H

#include "alloc/alloc.h"
#include "analysis/history/history.h"

/// The settings that `conf` says, or (NULL) those that the history was recorded with. VARVE_ERROR_INVALID.
int replay_config(const struct history *history, const char *conf, struct varve_alloc_config *config,
                  struct varve_message *message);
/// The same as a snapshot has it.
int replay_settings(const struct history *history, const char *conf, struct history_settings *settings,
                    struct varve_message *message);

#endif
