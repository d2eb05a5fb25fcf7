/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What storages there were, and the worst of what looks leaked, without stacks: `varve leaks --domain storage` has them.
 */
#include "analysis/query/report/storages.h"

#include "analysis/output/json.h"
#include "analysis/query/db.h"
#include "analysis/query/report/rule.h"
#include "analysis/query/storage/storage_leaks.h"
#include "analysis/query/storage/storage_summary.h"
#include "trace/trace.h"

#define TOTALS_ALL 20
#define TOTALS_SHOWN 5

void report_storages_text(FILE *out, struct database *database, int64_t top, bool is_all)
{
    struct storage_leaks leaks;

    if (!storage_is_there(database)) {
        return;
    }
    report_rule_print(out, "Storages");
    storage_totals_print(out, database, is_all ? TOTALS_ALL : TOTALS_SHOWN);
    fputc('\n', out);
    if (storage_leaks_load(&leaks, database, 0, top, NULL) == VARVE_OK) {
        storage_leaks_print(out, database, &leaks, 0, 0);
    }
    storage_leaks_free(&leaks);
}

struct cJSON *report_storages_json(struct database *database, int64_t top, int64_t frames)
{
    struct cJSON *object;
    struct storage_leaks leaks;

    if (!storage_is_there(database)) {
        return NULL;
    }
    object = json_object();
    json_add(object, "totals", storage_totals_json(database));
    if (storage_leaks_load(&leaks, database, 0, top, NULL) == VARVE_OK) {
        json_add(object, "leaks", storage_leaks_json(database, &leaks, 0, frames));
    }
    storage_leaks_free(&leaks);
    return object;
}
