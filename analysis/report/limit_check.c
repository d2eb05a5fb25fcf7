/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/report/limit_check.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/query/database.h"
#include "analysis/query/query_selection.h"
#include "analysis/query/total_query.h"
#include "base/error.h"

#include "statements_generated.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* By enum limit_figure. */
static const struct {
    const char *name;
    enum limit_unit unit;
    enum callsite_rank rank; /* whose first line has most of it */
} figures[] = {
    {"peak", LIMIT_IN_BYTES, CALLSITE_BY_PEAK},
    {"live at the end", LIMIT_IN_BYTES, CALLSITE_BY_LIVE},
    {"allocated", LIMIT_IN_BYTES, CALLSITE_BY_BYTES},
    {"allocations", LIMIT_IN_ALLOCATIONS, CALLSITE_BY_COUNT},
};

/* What a program has of this machine's memory: that its allocator asks for and that it maps itself, as of Python's
 * arenas. */
static const char heap_and_mmap[] = "heap + mmap";

static const char *default_domain(struct database *database)
{
    const char *domain = selection_default_domain(database);
    return strcmp(domain, "heap") == 0 && database_integer(database, sql_has_host_peak, 0) > 0 ? heap_and_mmap : domain;
}

/* ---- figures ---- */

static void host_figures_load(int64_t values[LIMIT_FIGURES], struct database *database)
{
    struct cursor cursor;
    cursor_open(&cursor, database, sql_host_figures);
    for (int i = 0, has_row = cursor_next(&cursor); i < LIMIT_FIGURES; i++) {
        values[i] = has_row ? cursor_integer(&cursor, i) : 0;
    }
    cursor_close(&cursor);
}

static int limit_figures_load(int64_t values[LIMIT_FIGURES], struct database *database, const char *domain,
                              struct varve_message *message)
{
    struct selection selection;
    struct report_total total = {0};
    if (domain == heap_and_mmap) {
        host_figures_load(values, database);
        return VARVE_OK;
    }
    int error = selection_make(&selection, database, domain, 0, message);
    if (error == VARVE_OK) {
        (void)selection_sum(&selection, database, &total);
    }
    values[LIMIT_PEAK] = total.peak_bytes;
    values[LIMIT_LIVE] = total.live_bytes;
    values[LIMIT_ALLOCATED] = total.bytes;
    values[LIMIT_ALLOCATIONS] = total.allocations;
    return error;
}

static void add(struct limit_check *check, const struct limit_verdict *verdict)
{
    check->verdicts = memory_resize(check->verdicts, (check->count + 1) * sizeof(*check->verdicts));
    check->verdicts[check->count++] = *verdict;
    check->broken += verdict->is_broken;
}

static void add_figure(struct limit_check *check, enum limit_figure figure, int64_t value, int64_t most, int64_t base)
{
    struct limit_verdict verdict = {.name = figures[figure].name,
                                    .domain = check->domain,
                                    .unit = figures[figure].unit,
                                    .value = value,
                                    .most = most,
                                    .base = base,
                                    .is_broken = value > most};
    if (check->lists[figure].count > 0) {
        verdict.line = &check->lists[figure].rows[0];
        verdict.line_bytes = callsite_rank_bytes(&verdict.line->figures, figures[figure].rank);
        verdict.line_allocations = callsite_rank_allocations(&verdict.line->figures, figures[figure].rank);
    }
    add(check, &verdict);
}

static void lines_load(struct callsite_list lists[LIMIT_FIGURES], struct database *database, const char *domain)
{
    struct groups *groups = groups_open(database, GROUP_BY_LINE);
    groups_load(groups, domain);
    for (unsigned i = 0; i < LIMIT_FIGURES; i++) {
        groups_rank(groups, figures[i].rank, 1, &lists[i]);
    }
    groups_close(groups);
}

static int64_t limit_value_of_first(const struct callsite_list *list, unsigned figure)
{
    if (list->count == 0) {
        return -1;
    }
    return figures[figure].unit == LIMIT_IN_BYTES
               ? callsite_rank_bytes(&list->rows[0].figures, figures[figure].rank)
               : callsite_rank_allocations(&list->rows[0].figures, figures[figure].rank);
}

/* Of each figure the line that has more of it, of either. */
static void host_lines_load(struct limit_check *check, struct database *database)
{
    struct callsite_list mapped[LIMIT_FIGURES] = {0};
    lines_load(check->lists, database, "heap");
    lines_load(mapped, database, "mmap");
    for (unsigned i = 0; i < LIMIT_FIGURES; i++) {
        if (limit_value_of_first(&mapped[i], i) > limit_value_of_first(&check->lists[i], i)) {
            const struct callsite_list smaller = check->lists[i];
            check->lists[i] = mapped[i];
            mapped[i] = smaller;
        }
        callsite_list_free(&mapped[i]);
    }
}

/* ---- growth ---- */

static int64_t share_of(int64_t value, int64_t growth)
{
    return value / LIMIT_GROWTH_ONE * growth + value % LIMIT_GROWTH_ONE * growth / LIMIT_GROWTH_ONE;
}

/* What is live at the end may be next to nothing: it may grow by a share of the peak. */
static int add_growth(struct limit_check *check, const int64_t values[LIMIT_FIGURES], const struct limits *limits,
                      struct varve_message *message)
{
    int64_t before[LIMIT_FIGURES];
    int error = limit_figures_load(before, limits->base, check->domain, message);
    if (error == VARVE_OK) {
        error = database_error(limits->base, message);
    }
    for (unsigned i = 0; error == VARVE_OK && i < LIMIT_FIGURES; i++) {
        const int64_t of = before[i == LIMIT_LIVE ? LIMIT_PEAK : i];
        add_figure(check, (enum limit_figure)i, values[i], before[i] + share_of(of, limits->growth), before[i]);
    }
    return error;
}

/* ---- leaks ---- */

static int64_t hundredths(const struct leak_line *line)
{
    return (int64_t)(line->score * 100 + 0.5);
}

static void add_leak(struct limit_check *check, const struct leak_line *line, int64_t most)
{
    const struct limit_verdict verdict = {.name = "leak",
                                          .domain = line != NULL ? line->domain : check->leak_domain,
                                          .unit = LIMIT_IN_HUNDREDTHS,
                                          .value = line != NULL ? hundredths(line) : 0,
                                          .most = most,
                                          .base = -1,
                                          .is_broken = line != NULL && hundredths(line) > most,
                                          .line = line != NULL && line->row.id != 0 ? &line->row : NULL,
                                          .line_bytes = line != NULL ? line->bytes[LEAK_TENTHS - 1] : 0,
                                          .line_allocations = line != NULL ? line->live[LEAK_TENTHS - 1] : 0};
    add(check, &verdict);
}

/* The list's first have the highest scores; a verdict for each above the limit, or one for them all. */
static int add_leaks(struct limit_check *check, struct database *database, const struct limits *limits,
                     struct varve_message *message)
{
    const struct leak_query query = {.domain = leak_list_domain(database, limits->domain), .top = INT32_MAX};
    const int error = leak_list_load(&check->leaks, database, &query, message);
    size_t above = 0;
    while (error == VARVE_OK && above < check->leaks.count &&
           hundredths(&check->leaks.rows[above]) > limits->leak_score) {
        if (above < LIMIT_LEAKS_MAX) {
            add_leak(check, &check->leaks.rows[above], limits->leak_score);
        }
        above++;
    }
    if (error == VARVE_OK && above == 0) {
        add_leak(check, check->leaks.count > 0 ? &check->leaks.rows[0] : NULL, limits->leak_score);
    }
    check->leaks_left_out = above > LIMIT_LEAKS_MAX ? (int64_t)(above - LIMIT_LEAKS_MAX) : 0;
    return error;
}

int limit_check_load(struct limit_check *check, struct database *database, const struct limits *limits,
                     struct varve_message *message)
{
    int64_t values[LIMIT_FIGURES];
    *check = (struct limit_check){.domain = limits->domain != NULL ? limits->domain : default_domain(database),
                                  .leak_domain =
                                      limits->domain != NULL ? limits->domain : selection_default_domain(database),
                                  .base = limits->base != NULL ? database_path(limits->base) : NULL};
    report_loss_load(&check->loss, database);
    int error = limit_figures_load(values, database, check->domain, message);
    if (error != VARVE_OK) {
        return error;
    }
    if (check->domain == heap_and_mmap) {
        host_lines_load(check, database);
    } else {
        lines_load(check->lists, database, check->domain);
    }
    for (unsigned i = 0; i < LIMIT_FIGURES; i++) {
        if (limits->figures[i] >= 0) {
            add_figure(check, (enum limit_figure)i, values[i], limits->figures[i], -1);
        }
    }
    if (limits->base != NULL) {
        error = add_growth(check, values, limits, message);
    }
    if (error == VARVE_OK && limits->leak_score >= 0) {
        error = add_leaks(check, database, limits, message);
    }
    return error;
}

void limit_check_free(struct limit_check *check)
{
    for (unsigned i = 0; i < LIMIT_FIGURES; i++) {
        callsite_list_free(&check->lists[i]);
    }
    leak_list_free(&check->leaks);
    free(check->verdicts);
}
