/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings of a replay that cannot take effect, and why: by the allocator's rules, on this history. Called by the
 * command, which says so instead of letting equal figures look like a result.
 */
#ifndef VARVE_ANALYSIS_REPLAY_INEFFECTIVE_SETTINGS_H
#define VARVE_ANALYSIS_REPLAY_INEFFECTIVE_SETTINGS_H

#include "analysis/replay/replay.h"

#define REPLAY_INEFFECTIVE_MAX 16
#define REPLAY_REASON_BYTES 224

struct replay_ineffective {
    const char *setting; /* static: name of PyTorch's, or an option of the command */
    char reason[REPLAY_REASON_BYTES];
};

/// Those of `options` that had no effect on the replay that gave `result`; their number.
size_t replay_ineffective(const struct history *history, const struct replay_options *options,
                          const struct replay_result *result, struct replay_ineffective items[REPLAY_INEFFECTIVE_MAX]);

#endif
