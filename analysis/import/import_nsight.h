/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SQLite exports of Nsight Systems (nsys profile --cuda-memory-usage=true, nsys export --type sqlite). Every call of
 * the driver that allocated or freed is a row of CUDA_GPU_MEMORY_USAGE_EVENTS; tables and columns are those of nsys
 * 2021 to 2026, of which older ones lack some. Where a call was traced and sampled, its function, duration, thread and
 * stack come from CUPTI_ACTIVITY_KIND_RUNTIME and CUDA_CALLCHAINS.
 */
#ifndef VARVE_ANALYSIS_IMPORT_IMPORT_NSIGHT_H
#define VARVE_ANALYSIS_IMPORT_IMPORT_NSIGHT_H

#include "analysis/import/import_requests.h"

/// Numbers of entries are rowids. Errors: VARVE_ERROR_FORMAT (another database, or without that table),
/// those of SQLite.
int nsight_read(const char *path, struct import_requests *requests, struct progress *progress,
                struct varve_message *message);

#endif
