/* SPDX-License-Identifier: Apache-2.0 */
/* What command_export.c writes, by format. */
#ifndef VARVE_ANALYSIS_EXPORT_INTERNAL_H
#define VARVE_ANALYSIS_EXPORT_INTERNAL_H

#include "analysis/history_internal.h"

#ifdef __cplusplus
extern "C" {
#endif

/// A snapshot as torch.cuda.memory._dump_snapshot writes it (protocol 4). Failures show in ferror(out).
void export_pytorch(const struct history *history, FILE *out);

#ifdef __cplusplus
}
#endif

#endif
