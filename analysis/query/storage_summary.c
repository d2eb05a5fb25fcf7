/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/query/storage_summary.h"

#include "analysis/base/table.h"
#include "analysis/query/database.h"
#include "analysis/query/query_print.h"
#include "analysis/query/total_query.h"

bool storage_is_there(struct database *database)
{
    return report_figure(database, "storages", 0) != 0;
}

void storage_totals_print(FILE *out, struct database *database, int64_t rows)
{
    static const struct table_column columns[] = {
        {"pid", true},   {"kind", false},    {"type", false}, {"storages", true},
        {"bytes", true}, {"not gone", true}, {"bytes", true}, {"no copy seen", true},
    };
    static const struct query query = {
        .sql = "SELECT pid, kind, dtype, storages, bytes, alive, alive_bytes, unused FROM storage_total "
               "ORDER BY bytes DESC, process_id, kind, dtype LIMIT ?1",
        .columns = columns,
        .kinds = "nttcbcbc",
    };
    query_print(out, database, &query, rows);
}

struct cJSON *storage_totals_json(struct database *database)
{
    return query_json(database, "SELECT * FROM storage_total ORDER BY bytes DESC, process_id, kind, dtype", INT64_MAX);
}
