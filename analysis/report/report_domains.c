/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What was allocated: totals, processes, and of the first domain the peak, what was allocated, what was live at the end
 * and what was temporary, a few entries each; of the other domains less. With --all every ranking with whole stacks.
 */
#include "analysis/report/report.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/base/number_format.h"
#include "analysis/base/json_writer.h"
#include "analysis/base/table.h"
#include "analysis/base/terminal.h"
#include "analysis/query/database.h"
#include "analysis/query/query_print.h"
#include "analysis/report/report_title.h"
#include "analysis/query/line_together.h"
#include "analysis/query/total_query.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROCESSES_ALL 10
#define PROCESSES_SHOWN 4
#define ENTRIES_SHOWN 5
#define ENTRIES_OTHERS 3 /* of domains that are not the first */

static void add_total_cells(struct table *table, const struct report_total *row)
{
    table_add(table, format_bytes(row->bytes).text);
    table_add(table, format_bytes(row->peak_bytes).text);
    table_add(table, format_bytes(row->live_bytes).text);
    table_add(table, format_count(row->allocations).text);
    table_add(table, format_count(row->live_allocations).text);
    table_add(table, format_share(row->temporary, row->allocations).text);
}

/* What the kernel counts beside what was allocated: more, by code and files, or less, where memory
 * was never touched. */
static void report_domains_add_rss(struct table *table, struct database *database)
{
    int64_t peak = report_figure(database, "rss peak", -1);
    int64_t last = report_figure(database, "rss last", -1);
    if (peak >= 0) {
        table_add(table, "RSS");
        table_add(table, "");
        table_add(table, format_bytes(peak).text);
        table_add(table, last >= 0 ? format_bytes(last).text : "");
        table_add(table, "");
        table_add(table, "");
        table_add(table, "");
    }
}

/* Mappings that the heap did not ask for and the heap share the process's memory: as others count it. */
static void add_host_peak(struct table *table, struct database *database)
{
    int64_t peak = report_figure(database, "host peak", -1);
    if (peak >= 0) {
        table_add(table, "heap + mmap");
        table_add(table, "");
        table_add(table, format_bytes(peak).text);
        for (int i = 0; i < 4; i++) {
            table_add(table, "");
        }
    }
}

static void print_failed(FILE *out, const struct report_totals *totals)
{
    for (size_t i = 0; i < totals->count; i++) {
        const struct report_total *row = &totals->rows[i];
        if (row->failed > 0) {
            fprintf(out, "  %s allocation%s failed in %s%s\n", format_count(row->failed).text,
                    row->failed == 1 ? "" : "s", report_total_name(totals, row).text,
                    strcmp(row->domain, "block") == 0 ? ": varve oom says why" : "");
        }
    }
}

static void print_totals(FILE *out, struct database *database, const struct report_totals *totals, const char *title)
{
    static const struct table_column columns[] = {
        {"", false},           {"allocated", true},        {"peak", true},      {"live at the end", true},
        {"allocations", true}, {"live allocations", true}, {"temporary", true},
    };
    report_rule_print(out, title);
    struct table table;
    table_init(&table, columns, sizeof(columns) / sizeof(columns[0]));
    table.indent = "  ";
    table.columns_max = terminal_columns();
    for (size_t i = 0; i < totals->count; i++) {
        const struct report_total *row = &totals->rows[i];
        table_add(&table, report_total_name(totals, row).text);
        add_total_cells(&table, row);
    }
    add_host_peak(&table, database);
    report_domains_add_rss(&table, database);
    if (totals->count > 0) {
        table_print(&table, out, true);
    } else {
        fputs("  no allocation was recorded\n", out);
    }
    table_free(&table);
    if (report_image_count(database) > 1) {
        fputs("  what a process had not freed counts here after its end too; below, each has its own peak\n", out);
    }
    print_failed(out, totals);
}

void report_total_text(FILE *out, struct database *database, const struct report_section *section,
                       const struct report_options *options)
{
    (void)options;
    struct report_totals totals;
    report_totals_load(&totals, database, 0);
    print_totals(out, database, &totals, section->title);
    report_totals_free(&totals);
}

struct cJSON *report_total_json(struct database *database, const struct report_options *options)
{
    (void)options;
    return report_totals_json(database);
}

bool report_has_processes(struct database *database)
{
    return report_process_count(database) > 1;
}

bool report_has_together(struct database *database)
{
    if (!together_is_there(database)) {
        return false;
    }
    together_prepare(database);
    return database_integer(database, "SELECT EXISTS (SELECT 1 FROM line_together)", 0) != 0;
}

/* Only where there are several: who of them needed most at its own peak. */
void report_processes_text(FILE *out, struct database *database, const struct report_section *section,
                           const struct report_options *options)
{
    int64_t processes = report_process_count(database);
    report_rule_print(out, section->title);
    query_print(out, database, section->table, options->stacks.is_all ? PROCESSES_ALL : PROCESSES_SHOWN);
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

/* ---- the lists of a domain ---- */

static void print_ranking(FILE *out, struct database *database, const struct report_totals *totals, const char *domain,
                          struct groups *groups, enum callsite_rank rank, const struct report_options *options,
                          struct callsite_shown *shown)
{
    struct callsite_list list;
    groups_rank(groups, rank, options->top, &list);
    char title[200];
    if (list.count_all > 0) {
        snprintf(title, sizeof(title), "%s: %s", domain, callsite_rank_info(rank)->title);
        report_rule_print(out, title);
        if (rank == CALLSITE_BY_PEAK) {
            print_peak(out, totals, domain);
        } else if (rank == CALLSITE_BY_TEMPORARY) {
            fprintf(out, "  %s allocation%s", format_count(list.sum_allocations).text,
                    list.sum_allocations == 1 ? "" : "s");
        } else {
            fprintf(out, "  %s in %s allocation%s", format_bytes_exact(list.sum_bytes).text,
                    format_count(list.sum_allocations).text, list.sum_allocations == 1 ? "" : "s");
        }
        fputs(rank == CALLSITE_BY_PEAK ? "  " : ", ", out);
        callsite_list_extent(out, &list);
        fprintf(out, ", %s call site%s\n", format_count(list.callsites_all).text, list.callsites_all == 1 ? "" : "s");
        callsite_list_print(out, database, &list, rank, &options->stacks, shown);
    } else if (rank == CALLSITE_BY_LIVE) {
        fprintf(out, "\n%s: everything was freed\n", domain);
    }
    callsite_list_free(&list);
}

/* Mappings and memory of a device are few and large: orders other than by bytes would only repeat them. */
static bool suits(enum callsite_rank rank, const char *domain)
{
    bool is_of_many = rank == CALLSITE_BY_COUNT || rank == CALLSITE_BY_LIFETIME || rank == CALLSITE_BY_TEMPORARY;
    return !is_of_many || strcmp(domain, "heap") == 0 || strcmp(domain, "block") == 0;
}

static void print_domain_all(FILE *out, struct database *database, const struct report_totals *totals,
                             const char *domain, const struct report_options *options, struct callsite_shown *shown)
{
    struct groups *groups = groups_open(database, options->by);
    groups_load(groups, domain);
    for (int rank = 0; rank < CALLSITE_RANK_COUNT; rank++) {
        if (suits((enum callsite_rank)rank, domain)) {
            print_ranking(out, database, totals, domain, groups, (enum callsite_rank)rank, options, shown);
        }
    }
    groups_close(groups);
}

/* The lists of the short report. */
static const struct {
    enum callsite_rank rank;
    const char *title;
    bool is_of_others; /* also of domains that are not the first */
} short_lists[] = {
    {CALLSITE_BY_PEAK, "Peak", true},
    {CALLSITE_BY_BYTES, "Allocated", false},
    {CALLSITE_BY_LIVE, "Live at the end", true},
    {CALLSITE_BY_TEMPORARY, "Temporary", false},
};

/* The moment of a peak, where there is one for all devices. */
static const struct report_total *single_peak(const struct report_totals *totals, const char *domain)
{
    const struct report_total *found = NULL;
    for (size_t i = 0; i < totals->count; i++) {
        if (strcmp(totals->rows[i].domain, domain) == 0) {
            if (found != NULL) {
                return NULL;
            }
            found = &totals->rows[i];
        }
    }
    return found;
}

static void print_short_title(FILE *out, const struct report_totals *totals, const char *domain, const char *title,
                              const struct callsite_list *list, enum callsite_rank rank, const char *remark)
{
    const struct report_total *peak = rank == CALLSITE_BY_PEAK ? single_peak(totals, domain) : NULL;
    char *text;
    size_t bytes;
    FILE *line = memory_stream(&text, &bytes);
    fprintf(line, "%s (%s): ", title, domain);
    if (rank == CALLSITE_BY_TEMPORARY) {
        fprintf(line, "%s allocation%s freed before their thread allocated again",
                format_count(list->sum_allocations).text, list->sum_allocations == 1 ? "" : "s");
    } else {
        fprintf(line, "%s in %s allocation%s", format_bytes(list->sum_bytes).text,
                format_count(list->sum_allocations).text, list->sum_allocations == 1 ? "" : "s");
    }
    if (peak != NULL && peak->peak_ns >= 0) {
        fprintf(line, ", %s after the start", format_duration(peak->peak_ns).text);
    }
    fputs("; ", line);
    callsite_list_extent(line, list);
    fputs(remark, line);
    memory_stream_end(line, &text);
    report_rule_print(out, text);
    free(text);
}

/* The end that is meant: what exit handlers and interpreters freed after it counts as live. */
static const char *live_remark(struct database *database)
{
    return report_figure(database, "exit of main", 0) != 0 ? "; the end is that of main" : "";
}

static void report_print_domain(FILE *out, struct database *database, const struct report_totals *totals,
                                const char *domain, bool is_main, const struct report_options *options,
                                struct callsite_shown *shown)
{
    struct groups *groups = groups_open(database, options->by);
    int64_t top = options->top >= 0 ? options->top : is_main ? ENTRIES_SHOWN : ENTRIES_OTHERS;
    struct callsite_options stacks = options->stacks;
    stacks.stacks = stacks.stacks < 0 && !is_main ? 0 : stacks.stacks;
    groups_load(groups, domain);
    for (size_t i = 0; i < sizeof(short_lists) / sizeof(short_lists[0]); i++) {
        enum callsite_rank rank = short_lists[i].rank;
        if (!is_main && !short_lists[i].is_of_others) {
            continue;
        }
        struct callsite_list list;
        groups_rank(groups, rank, top, &list);
        if (list.count_all > 0) {
            print_short_title(out, totals, domain, short_lists[i].title, &list, rank,
                              rank == CALLSITE_BY_LIVE && is_main ? live_remark(database) : "");
            callsite_list_print(out, database, &list, rank, &stacks, shown);
        }
        callsite_list_free(&list);
    }
    groups_close(groups);
}

/* Addresses without memory behind them have totals, and lists with --all only. */
static bool is_memory(const char *domain)
{
    return strcmp(domain, "address_space") != 0;
}

/* A domain has a row for each device, and one chapter; a duplicate source (cupti) has none of its own. */
static bool begins_chapter(const struct report_totals *totals, size_t row)
{
    return (row == 0 || strcmp(totals->rows[row].domain, totals->rows[row - 1].domain) != 0) &&
           strcmp(totals->rows[row].domain, "cupti") != 0;
}

/* The domain that gets most room: objects of Python, which are recorded only if asked for, or the first. */
static size_t find_main(const struct report_totals *totals)
{
    size_t first = totals->count;
    for (size_t i = totals->count; i-- > 0;) {
        if (strcmp(totals->rows[i].domain, "python") == 0) {
            return i;
        }
        if (begins_chapter(totals, i) && is_memory(totals->rows[i].domain)) {
            first = i;
        }
    }
    return first;
}

void report_domains_text(FILE *out, struct database *database, const struct report_section *section,
                         const struct report_options *options)
{
    struct report_options all = *options;
    struct callsite_shown shown = {0};
    bool is_all = options->stacks.is_all;
    (void)section;
    all.top = options->top >= 0 ? options->top : REPORT_ENTRIES_ALL;
    struct report_totals totals;
    report_totals_load(&totals, database, 0);
    size_t main_row = find_main(&totals);
    if (!is_all && main_row < totals.count) {
        report_print_domain(out, database, &totals, totals.rows[main_row].domain, true, options, &shown);
    }
    for (size_t i = 0; i < totals.count; i++) {
        if (begins_chapter(&totals, i) && is_all) {
            print_domain_all(out, database, &totals, totals.rows[i].domain, &all, &shown);
        } else if (begins_chapter(&totals, i) && is_memory(totals.rows[i].domain) && i != main_row) {
            report_print_domain(out, database, &totals, totals.rows[i].domain, false, options, &shown);
        }
    }
    report_totals_free(&totals);
    callsite_shown_free(&shown);
}

/* ---- JSON ---- */

static struct cJSON *domain_json(struct database *database, const struct report_totals *totals, const char *domain,
                                 const struct report_options *options)
{
    struct groups *groups = groups_open(database, options->by);
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
    groups_load(groups, domain);
    for (int rank = 0; rank < CALLSITE_RANK_COUNT; rank++) {
        const struct callsite_rank_info *info = callsite_rank_info((enum callsite_rank)rank);
        struct cJSON *ranking = json_object();
        struct callsite_list list;
        groups_rank(groups, (enum callsite_rank)rank, options->top >= 0 ? options->top : REPORT_ENTRIES_ALL, &list);
        json_integer(ranking, "bytes", list.sum_bytes);
        json_integer(ranking, "allocations", list.sum_allocations);
        json_integer(ranking, "callsites_all", list.callsites_all);
        json_integer(ranking, "groups_all", list.count_all);
        json_add(ranking, "callsites",
                 callsite_list_json(database, &list, (enum callsite_rank)rank, &options->stacks, true));
        callsite_list_free(&list);
        json_add(object, info->key, ranking);
    }
    groups_close(groups);
    return object;
}

struct cJSON *report_domains_json(struct database *database, const struct report_options *options)
{
    struct cJSON *domains = json_array();
    struct report_totals totals;
    report_totals_load(&totals, database, 0);
    for (size_t i = 0; i < totals.count; i++) {
        if (i == 0 || strcmp(totals.rows[i].domain, totals.rows[i - 1].domain) != 0) {
            json_append(domains, domain_json(database, &totals, totals.rows[i].domain, options));
        }
    }
    report_totals_free(&totals);
    return domains;
}
