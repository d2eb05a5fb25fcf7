/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a history cost as it was recorded, to set beside what it costs under other rules; and whether other rules change
 * a decision at all. Called by the command, before it replays under other rules.
 */
#ifndef VARVE_ANALYSIS_REPLAY_REPLAY_BEFORE_H
#define VARVE_ANALYSIS_REPLAY_REPLAY_BEFORE_H

#include "analysis/replay/replay.h"

#define REPLAY_UNKNOWN INT64_C(-1)

/* Sums over all devices; REPLAY_UNKNOWN where the history does not say. */
struct replay_figures {
    int64_t peak_reserved, peak_allocated; /* bytes */
    int64_t segments;                      /* at the end */
    int64_t device_calls;                  /* that allocate and give back */
    int64_t retries, ooms;
};

struct replay_before {
    struct replay_figures figures;
    bool is_reproduced; /* every decision came out again: the figures are the allocator's; else the events' */
    uint64_t limit;     /* of reserved bytes, which no history holds: with it the recorded retries and failures
                           follow from the rules; 0: there was nothing to explain by one */
};

/// What the history cost under its own settings. Errors: VARVE_ERROR_NO_MEMORY; a history that is not
/// reproduced is none.
int replay_before_load(const struct history *history, struct progress *progress, struct replay_before *out);
/// Whether the allocator decides as recorded in every case under `options` (follow is ignored). An error while
/// trying is a "no".
bool replay_changes_nothing(const struct history *history, const struct replay_options *options,
                            const struct replay_before *before);
/// The most that was reserved on one device, by its events; REPLAY_UNKNOWN if they do not say. VARVE_ERROR_NO_MEMORY.
int replay_recorded_peak(const struct history_device *device, int64_t *peak_out);
struct replay_figures replay_figures_of(const struct replay_result *result);

/*
 * Settings of a replay that cannot take effect, and why: by the allocator's rules, on this history. Called by the
 * command, which says so instead of letting equal figures look like a result.
 */

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
