/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `varve record` and `varve attach` have in common: options that say what is kept of a recording and how, and its
 * beginning.
 */
#ifndef VARVE_ANALYSIS_CLI_RECORDING_OPTIONS_H
#define VARVE_ANALYSIS_CLI_RECORDING_OPTIONS_H

#include "analysis/base/progress.h"
#include "analysis/cli/command.h"
#include "trace/collect.h"

#include <stdbool.h>
#include <stdint.h>

struct recording_options {
    int stacks;
    int64_t stack_depth;
    int64_t stacks_max;
    int overflow;
    int64_t ring_bytes;
    int64_t spill_bytes;
    int keep;
    int64_t bytes_max;
    bool force;
    bool quiet;
};

#define RECORDING_DEFAULTS                                                                                     \
    {                                                                                                          \
        .stacks = VARVE_STACKS_ALL, .stack_depth = 256, .stacks_max = VARVE_STACKS_MAX, .ring_bytes = 4 << 20, \
        .keep = -1,                                                                                            \
    }

/* In the order of their codes. */
extern const char *const recording_stacks_names[], *const recording_overflow_names[], *const recording_keep_names[];

/* Rows of a command whose `struct values` has them in a field `recording`. */
#define RECORDING_OPTION(name, kind, argument, help, field, min, max, names)                     \
    {                                                                                            \
        name, 0, kind, argument, help, offsetof(struct values, recording.field), min, max, names \
    }
#define RECORDING_OPTIONS                                                                                              \
    RECORDING_OPTION("stacks", OPTION_CHOICE, "WHICH", "none, native, python or all (default all): call stacks taken", \
                     stacks, 0, 0, recording_stacks_names),                                                            \
        RECORDING_OPTION("stack-depth", OPTION_INTEGER, "N",                                                           \
                         "frames kept of each stack (default 256); of deeper stacks the middle is left out: a frame "  \
                         "says how many",                                                                              \
                         stack_depth, 1, 256, NULL),                                                                   \
        RECORDING_OPTION(                                                                                              \
            "max-stacks", OPTION_INTEGER, "N",                                                                         \
            "different stacks kept of each process (default, and most: 3145728); all others are one call "             \
            "site, (not kept: limit)",                                                                                 \
            stacks_max, 1, VARVE_STACKS_MAX, NULL),                                                                    \
        RECORDING_OPTION(                                                                                              \
            "overflow", OPTION_CHOICE, "HOW",                                                                          \
            "what a thread does when its ring is full: spill (default: the ring grows, packed, in memory "             \
            "and then on the disk), block, or drop and count",                                                         \
            overflow, 0, 0, recording_overflow_names),                                                                 \
        RECORDING_OPTION(                                                                                              \
            "keep", OPTION_CHOICE, "WHAT",                                                                             \
            "events (default), lasting (the default with --python-allocators: no rows of what of heap and Python was " \
            "freed within 4,096 events), allocations (no rows of events), or totals (call sites, peaks, timeline, "    \
            "and what is live: database and memory do not grow with events; call sites below 1/10,000 of "             \
            "everything are put together)",                                                                            \
            keep, 0, 0, recording_keep_names),                                                                         \
        RECORDING_OPTION("max-size", OPTION_BYTES, "BYTES",                                                            \
                         "from this size of the database on (100M, 2G) keep totals only", bytes_max, 1, INT64_MAX,     \
                         NULL),                                                                                        \
        RECORDING_OPTION("ring-size", OPTION_BYTES, "BYTES",                                                           \
                         "size of each thread's ring, a power of two (default 4M)", ring_bytes, 4096,                  \
                         INT64_C(1) << 30, NULL),                                                                      \
        RECORDING_OPTION(                                                                                              \
            "max-spill", OPTION_BYTES, "BYTES",                                                                        \
            "limit of the records that do not fit the rings and wait in memory or on the disk; more are dropped and "  \
            "counted (default: a quarter of the free memory, then half of the free disk space)",                       \
            spill_bytes, 1, INT64_MAX, NULL)

/* What the collector uses while it records. */
struct recording {
    struct progress progress;
    /* What the program loads, if it is asked for: libraries, and the folder of the Python part. */
    char preload[4096], provider[4096], cupti[4096], replace[4096], torch[4096], python[4096];
};

/// Fill `collect`, made by varve_collect_options_init and told what is recorded, with what the options say; it uses
/// `recording` as long as it is used itself. The caller owes progress_end. False, with the reason said: there is none
/// to come.
bool recording_begin(struct command_context *context, const struct recording_options *options,
                     struct recording *recording, struct varve_collect_options *collect);
/// The varve_collect_progress of recording_begin; `context` is the struct progress.
void recording_step(void *context, const char *stage, uint64_t done, uint64_t total);
/// What `varve attach --torch` adds: PyTorch's own history, and what its allocator asks the driver for.
void recording_observe_torch(struct varve_collect_options *collect);
/// If processes could not be let go of: a line that says so. Of every command that attaches, whatever it is asked for.
void recording_say_hooked(FILE *err, const struct varve_collect_result *result);

#endif
