/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve report --json`: the same answers as the text, with every figure and whole stacks. Keys are stable:
 * they may be added to, never renamed; the manual page lists them.
 */
#include "analysis/query/report/report.h"

#include "analysis/output/json.h"

#include <string.h>

static struct cJSON *domain_json(struct database *database, const struct report_totals *totals,
                                 const char *domain, const struct report_options *options)
{
    struct cJSON *object = json_object();
    struct cJSON *peaks = json_array();

    json_text(object, "domain", domain);
    for (size_t i = 0; i < totals->count; i++) {
        const struct report_total *row = &totals->rows[i];

        if (strcmp(row->domain, domain) == 0 && row->peak_seq >= 0) {
            struct cJSON *peak = json_object();

            json_integer(peak, "device", row->device);
            json_integer(peak, "bytes", row->peak_bytes);
            json_integer(peak, "allocations", row->peak_allocations);
            json_integer(peak, "seq", row->peak_seq);
            json_integer(peak, "ts_ns", row->peak_ns);
            json_append(peaks, peak);
        }
    }
    json_add(object, "peaks", peaks);
    for (int rank = 0; rank < CALLSITE_RANK_COUNT; rank++) {
        const struct callsite_rank_info *info = callsite_rank_info((enum callsite_rank)rank);
        struct cJSON *ranking = json_object();
        struct callsite_list list;

        callsite_list_load(&list, database, (enum callsite_rank)rank, domain, options->top);
        json_integer(ranking, "bytes", list.sum_bytes);
        json_integer(ranking, "allocations", list.sum_allocations);
        json_integer(ranking, "callsites_all", list.count_all);
        json_add(ranking, "callsites",
                 callsite_list_json(database, &list, (enum callsite_rank)rank, &options->stacks, true));
        callsite_list_free(&list);
        json_add(object, info->key, ranking);
    }
    return object;
}

struct cJSON *report_json(struct database *database, const char *path, const struct report_options *options)
{
    struct cJSON *object = json_object();
    struct cJSON *all = json_array();
    struct cJSON *domains = json_array();
    struct report_totals totals;
    struct report_loss loss;

    report_header_json(object, database, path);
    report_loss_load(&loss, database);
    json_add(object, "loss", report_loss_json(database, &loss));
    report_totals_load(&totals, database, 0);
    for (size_t i = 0; i < totals.count; i++) {
        json_append(all, report_total_json(&totals.rows[i]));
        if (i == 0 || strcmp(totals.rows[i].domain, totals.rows[i - 1].domain) != 0) {
            json_append(domains, domain_json(database, &totals, totals.rows[i].domain, options));
        }
    }
    json_add(object, "totals", all);
    json_add(object, "domains", domains);
    if (report_has_gpu(database)) {
        json_add(object, "gpu", report_gpu_json(database));
    }
    report_totals_free(&totals);
    return object;
}
