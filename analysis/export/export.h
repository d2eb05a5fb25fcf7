/* SPDX-License-Identifier: Apache-2.0 */
/* What cli/export.c writes, by format. */
#ifndef VARVE_ANALYSIS_EXPORT_EXPORT_H
#define VARVE_ANALYSIS_EXPORT_EXPORT_H

#include "analysis/history/history.h"

#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/// A snapshot as torch.cuda.memory._dump_snapshot writes it (protocol 4). Failures show in ferror(out).
void export_pytorch(const struct history *history, FILE *out);

#ifdef __cplusplus
}
#endif

#endif
