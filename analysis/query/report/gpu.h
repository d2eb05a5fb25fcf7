/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sections of `varve report` on GPU runs.
 */
#ifndef VARVE_ANALYSIS_QUERY_REPORT_GPU_H
#define VARVE_ANALYSIS_QUERY_REPORT_GPU_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

struct cJSON;
struct database;

/// Is there anything about GPUs in this database?
bool report_has_gpu(struct database *database);
/// Without `is_all` the sections that most people need, cut.
void report_gpu_text(FILE *out, struct database *database, bool is_all);
struct cJSON *report_gpu_json(struct database *database);
/// CUDA's name of a CUresult, NULL if it is not one of the usual.
const char *report_cuda_result(int64_t result);

#ifdef __cplusplus
}
#endif

#endif
