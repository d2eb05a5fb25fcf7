/* SPDX-License-Identifier: Apache-2.0 */
/* The sections of `varve report` on GPU runs. */
#ifndef VARVE_ANALYSIS_REPORT_REPORT_GPU_H
#define VARVE_ANALYSIS_REPORT_REPORT_GPU_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct cJSON;
struct database;
struct report_options;
struct report_section;

#define REPORT_LADDER_ORDER "ORDER BY reserved DESC, process_id, device"

/* Per device: how often the driver was queried, its memory, the most in use and what was attributed of it then, and
 * the rest: the least, the most, the last. */
#define REPORT_UNATTRIBUTED_SQL                                                                                 \
    "SELECT device, count(*) AS queries, max(total) AS total, max(used) AS most_used, "                         \
    "(SELECT attributed FROM device_unattributed m WHERE m.device = u.device ORDER BY used DESC, seq LIMIT 1) " \
    "AS attributed, min(unattributed) AS least, max(unattributed) AS most, "                                    \
    "(SELECT unattributed FROM device_unattributed l WHERE l.device = u.device ORDER BY seq DESC LIMIT 1) "     \
    "AS last FROM device_unattributed u GROUP BY device ORDER BY device"

/// Is there anything about GPUs in this database?
bool report_has_gpu(struct database *database);

/* Functions of sections: see report_section.h. */

void report_devices_text(FILE *out, struct database *database, const struct report_section *section,
                         const struct report_options *options);
struct cJSON *report_devices_json(struct database *database, const struct report_options *options);
void report_calls_text(FILE *out, struct database *database, const struct report_section *section,
                       const struct report_options *options);
void report_segments_text(FILE *out, struct database *database, const struct report_section *section,
                          const struct report_options *options);
struct cJSON *report_segments_json(struct database *database, const struct report_options *options);
struct cJSON *report_ladder_json(struct database *database, const struct report_options *options);
void report_unattributed_text(FILE *out, struct database *database, const struct report_section *section,
                              const struct report_options *options);
void report_failures_text(FILE *out, struct database *database, const struct report_section *section,
                          const struct report_options *options);
/// CUDA's name of a CUresult, NULL if it is not one of the usual.
const char *report_cuda_result(int64_t result);

#endif
