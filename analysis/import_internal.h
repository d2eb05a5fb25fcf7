/* SPDX-License-Identifier: Apache-2.0 */
/* What command_import.c hands on, by kind of source. */
#ifndef VARVE_ANALYSIS_IMPORT_INTERNAL_H
#define VARVE_ANALYSIS_IMPORT_INTERNAL_H

#include "analysis/history_internal.h"

#ifdef __cplusplus
extern "C" {
#endif

struct varve_writer;

struct import_result {
    uint64_t events, callsites, segments;
    bool starts_late;
};

/// A snapshot of PyTorch into a database: its state at the beginning if it was recorded late, its events,
/// call sites, settings and final segments. The writer's own errors stick to it. Errors: VARVE_ERROR_FORMAT.
int import_pytorch(const struct history *history, struct varve_writer *writer, struct progress *progress,
                   struct import_result *result, struct varve_message *message);

#ifdef __cplusplus
}
#endif

#endif
