/* SPDX-License-Identifier: Apache-2.0 */
/* Storages of the storage layer in a few lines, for `varve report` and `varve info`. */
#ifndef VARVE_ANALYSIS_QUERY_STORAGE_SUMMARY_H
#define VARVE_ANALYSIS_QUERY_STORAGE_SUMMARY_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct cJSON;
struct database;

/// Is there any in this database?
bool storage_is_there(struct database *database);
/// Rows of the view storage_total, largest first.
void storage_totals_print(FILE *out, struct database *database, int64_t rows);
struct cJSON *storage_totals_json(struct database *database);

#endif
