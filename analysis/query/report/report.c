/* SPDX-License-Identifier: Apache-2.0 */
/*
 * As text, readable at 100 columns: what was recorded, totals, then for each domain the peak and who made it, the largest
 * call sites in several orders, temporary allocations, and what was never freed. As JSON the same with every figure and
 * whole stacks; keys are stable: they may be added to, never renamed; the manual page lists them.
 */
#include "analysis/query/report/report.h"

#include "analysis/output/format.h"
#include "analysis/output/json.h"
#include "analysis/output/table.h"
#include "analysis/query/db.h"
#include "analysis/query/header.h"
#include "analysis/query/loss.h"
#include "analysis/query/print.h"
#include "analysis/query/report/gpu.h"
#include "analysis/query/report/remat.h"
#include "analysis/query/report/rule.h"
#include "analysis/query/report/storages.h"
#include "analysis/query/totals.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PROCESSES_SHOWN 10

static void add_total_cells(struct table *table, const struct report_total *row)
{
    table_add(table, format_count(row->allocations).text);
    table_add(table, format_count(row->frees).text);
    table_add(table, format_share(row->temporary, row->allocations).text);
    table_add(table, format_bytes(row->bytes).text);
    table_add(table, format_bytes(row->peak_bytes).text);
    table_add(table, format_count(row->live_allocations).text);
    table_add(table, format_bytes(row->live_bytes).text);
}

static void print_totals(FILE *out, const struct report_totals *totals)
{
    static const struct table_column columns[] = {
        {"domain", false}, {"allocations", true}, {"freed", true},       {"temporary", true},
        {"bytes", true},   {"peak", true},        {"never freed", true}, {"bytes", true},
    };
    struct table table;

    report_rule_print(out, "Totals of all processes");
    table_init(&table, columns, sizeof(columns) / sizeof(columns[0]));
    table.indent = "  ";
    for (size_t i = 0; i < totals->count; i++) {
        const struct report_total *row = &totals->rows[i];

        table_add(&table, report_total_name(totals, row).text);
        add_total_cells(&table, row);
    }
    if (totals->count > 0) {
        table_print(&table, out, true);
    } else {
        fputs("  no allocation was recorded\n", out);
    }
    table_free(&table);
    for (size_t i = 0; i < totals->count; i++) {
        if (totals->rows[i].failed > 0) {
            fprintf(out, "  %s allocation%s failed in %s\n", format_count(totals->rows[i].failed).text,
                    totals->rows[i].failed == 1 ? "" : "s", report_total_name(totals, &totals->rows[i]).text);
        }
    }
}

/* Only where there are several: who of them needed most at its own peak. */
static void print_processes(FILE *out, struct database *database)
{
    static const struct table_column columns[] = {
        {"pid", true},  {"domain", false},     {"allocations", true}, {"bytes", true},
        {"peak", true}, {"never freed", true}, {"program", false},
    };
    static const struct query query = {
        .sql =
            "SELECT t.pid, t.domain || CASE WHEN t.device > 0 THEN ', GPU ' || t.device ELSE '' END, "
            "t.allocations, t.bytes, t.peak_bytes, t.live_bytes, coalesce(p.executable, '') FROM total_process t JOIN process p "
            "ON p.id = t.process_id ORDER BY t.peak_bytes DESC, t.process_id, t.domain LIMIT ?1",
        .columns = columns,
        .kinds = "ntcbbbp",
    };
    int64_t processes = database_integer(database, "SELECT count(*) FROM process", 0);

    if (processes < 2) {
        return;
    }
    report_rule_print(out, "Processes by peak");
    query_print(out, database, &query, PROCESSES_SHOWN);
    fprintf(out, "  %s processes in all; varve info lists them\n", format_count(processes).text);
}

static void print_peak(FILE *out, const struct report_totals *totals, const char *domain)
{
    for (size_t i = 0; i < totals->count; i++) {
        const struct report_total *row = &totals->rows[i];

        if (strcmp(row->domain, domain) == 0 && row->peak_seq >= 0) {
            const struct format_text name = report_total_name(totals, row);
            bool is_named = strcmp(name.text, domain) != 0;

            fprintf(out, "  %s%s%s in %s allocation%s, %s after the start (event %" PRId64 ")\n",
                    is_named ? name.text : "", is_named ? ": " : "", format_bytes_exact(row->peak_bytes).text,
                    format_count(row->peak_allocations).text, row->peak_allocations == 1 ? "" : "s",
                    format_duration(row->peak_ns).text, row->peak_seq);
        }
    }
}

static void print_ranking(FILE *out, struct database *database, const struct report_totals *totals,
                          const char *domain, enum callsite_rank rank, const struct report_options *options,
                          struct callsite_shown *shown)
{
    struct callsite_list list;
    char title[160];

    callsite_list_load(&list, database, rank, domain, options->top);
    if (list.count_all > 0) {
        snprintf(title, sizeof(title), "%s: %s", domain, callsite_rank_info(rank)->title);
        report_rule_print(out, title);
        if (rank == CALLSITE_BY_PEAK) {
            print_peak(out, totals, domain);
        } else if (rank == CALLSITE_BY_TEMPORARY) {
            fprintf(out, "  %s allocation%s, %s call site%s\n", format_count(list.sum_allocations).text,
                    list.sum_allocations == 1 ? "" : "s", format_count(list.count_all).text,
                    list.count_all == 1 ? "" : "s");
        } else {
            fprintf(out, "  %s in %s allocation%s, %s call site%s\n", format_bytes_exact(list.sum_bytes).text,
                    format_count(list.sum_allocations).text, list.sum_allocations == 1 ? "" : "s",
                    format_count(list.count_all).text, list.count_all == 1 ? "" : "s");
        }
        callsite_list_print(out, database, &list, rank, &options->stacks, shown);
    } else if (rank == CALLSITE_BY_LIVE) {
        fprintf(out, "\n%s: everything was freed\n", domain);
    }
    callsite_list_free(&list);
}

/* Mappings and memory of a device are few and large: orders other than by bytes would only repeat them. */
static bool suits(enum callsite_rank rank, const char *domain)
{
    bool is_of_many =
        rank == CALLSITE_BY_COUNT || rank == CALLSITE_BY_LIFETIME || rank == CALLSITE_BY_TEMPORARY;

    return !is_of_many || strcmp(domain, "heap") == 0 || strcmp(domain, "block") == 0;
}

void report_text(FILE *out, struct database *database, const struct report_options *options)
{
    struct callsite_shown shown = {0};
    struct report_totals totals;
    struct report_loss loss;

    report_loss_load(&loss, database);
    report_header_print(out, database, &loss);
    report_totals_load(&totals, database, 0);
    print_totals(out, &totals);
    print_processes(out, database);
    report_gpu_text(out, database);
    for (size_t i = 0; i < totals.count; i++) {
        const char *domain = totals.rows[i].domain;

        /* a domain has a row for each device, and one chapter; a duplicate source (cupti) has none of its own */
        if ((i > 0 && strcmp(domain, totals.rows[i - 1].domain) == 0) || strcmp(domain, "cupti") == 0) {
            continue;
        }
        for (int rank = 0; rank < CALLSITE_RANK_COUNT; rank++) {
            if (suits((enum callsite_rank)rank, domain)) {
                print_ranking(out, database, &totals, domain, (enum callsite_rank)rank, options, &shown);
            }
        }
    }
    report_totals_free(&totals);
    callsite_shown_free(&shown);
    report_storages_text(out, database, options->top);
    report_remat_text(out, database);
}

/* ---- JSON ---- */

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

struct cJSON *report_json(struct database *database, const struct report_options *options)
{
    struct cJSON *object = json_object();
    struct cJSON *domains = json_array();
    struct cJSON *storages, *remat;
    struct report_totals totals;
    struct report_loss loss;

    report_header_json(object, database);
    report_loss_load(&loss, database);
    json_add(object, "loss", report_loss_json(database, &loss));
    report_totals_load(&totals, database, 0);
    for (size_t i = 0; i < totals.count; i++) {
        if (i == 0 || strcmp(totals.rows[i].domain, totals.rows[i - 1].domain) != 0) {
            json_append(domains, domain_json(database, &totals, totals.rows[i].domain, options));
        }
    }
    json_add(object, "totals", report_totals_json(database));
    json_add(object, "domains", domains);
    if (report_has_gpu(database)) {
        json_add(object, "gpu", report_gpu_json(database));
    }
    report_totals_free(&totals);
    storages = report_storages_json(database, options->top, options->stacks.frames);
    if (storages != NULL) {
        json_add(object, "storages", storages);
    }
    remat = report_remat_json(database);
    if (remat != NULL) {
        json_add(object, "rematerialization", remat);
    }
    return object;
}
