/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What storages there were, and the worst of what looks leaked, without stacks: `varve leaks --domain
 * storage` has them.
 */
#include "analysis/report/report.h"

#include "analysis/base/json_writer.h"
#include "analysis/query/database.h"
#include "analysis/report/report_title.h"
#include "analysis/query/storage_summary.h"
#include "base/error.h"

#define TOTALS_ALL 20
#define TOTALS_SHOWN 5
#define LEAKS_SHOWN 3

void report_storages_text(FILE *out, struct database *database, const struct report_section *section,
                          const struct report_options *options)
{
    bool is_all = options->stacks.is_all;
    int64_t top = !is_all ? LEAKS_SHOWN : options->top < 0 ? REPORT_ENTRIES_ALL : options->top;
    report_rule_print(out, section->title);
    query_print(out, database, section->table, is_all ? TOTALS_ALL : TOTALS_SHOWN);
    fputc('\n', out);
    struct storage_leaks leaks;
    if (storage_leaks_load(&leaks, database, 0, top, NULL) == VARVE_OK) {
        storage_leaks_print(out, database, &leaks, 0, 0);
    }
    storage_leaks_free(&leaks);
}

struct cJSON *report_storages_json(struct database *database, const struct report_options *options)
{
    int64_t top = options->top >= 0 ? options->top : REPORT_ENTRIES_ALL;
    struct cJSON *object = json_object();
    json_add(object, "totals", storage_totals_json(database));
    struct storage_leaks leaks;
    if (storage_leaks_load(&leaks, database, 0, top, NULL) == VARVE_OK) {
        json_add(object, "leaks", storage_leaks_json(database, &leaks, 0, options->stacks.frames));
    }
    storage_leaks_free(&leaks);
    return object;
}
