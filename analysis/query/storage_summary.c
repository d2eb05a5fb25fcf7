/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/query/storage_summary.h"

#include "analysis/base/table.h"
#include "analysis/query/database.h"
#include "analysis/query/query_print.h"
#include "analysis/query/total_query.h"

#include "statements_generated.h"

bool storage_is_there(struct database *database)
{
    return report_figure(database, "storages", 0) != 0;
}

static const struct table_column total_columns[] = {
    {"pid", true},   {"kind", false},    {"type", false}, {"storages", true},
    {"bytes", true}, {"not gone", true}, {"bytes", true}, {"no copy seen", true},
};

const struct query storage_totals = {.sql = sql_storage_totals, .columns = total_columns, .kinds = "nttcbcbc"};

struct cJSON *storage_totals_json(struct database *database)
{
    return query_json(database, "SELECT * FROM storage_total ORDER BY bytes DESC, process_id, kind, dtype", INT64_MAX);
}
