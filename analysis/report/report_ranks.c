/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks of a distributed program beside each other: who peaks, who is unlike the others and by which line, and how far
 * they are apart over time. Figures are those of the views rank_*; the words are about the first domain of the table.
 */
#include "analysis/report/report.h"

#include "analysis/base/number_format.h"
#include "analysis/base/table.h"
#include "analysis/base/terminal.h"
#include "analysis/query/database.h"
#include "analysis/query/query_print.h"
#include "analysis/query/total_query.h"
#include "analysis/report/report_title.h"

#include "statements_generated.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define RANKS_SHOWN 8
#define UNLIKE_SHOWN 4
#define RANKS_COLUMN_RANKS 11 /* of sql_report_ranks: ranks that have the domain */
#define APART_PART 10         /* a tenth of what the largest rank has, on average, is far */

bool report_has_ranks(struct database *database)
{
    return report_figure(database, "ranks", 0) > 1;
}

/* The domain that the table begins with, and how many ranks have it. */
static int64_t first_domain(struct database *database, const struct report_section *section, char *domain, size_t bytes)
{
    struct cursor cursor;
    cursor_open(&cursor, database, section->table->sql);
    cursor_bind_integer(&cursor, 1, 1);
    const bool is_there = cursor_next(&cursor);
    snprintf(domain, bytes, "%s", is_there ? cursor_name(&cursor, 0) : "");
    const int64_t ranks = is_there ? cursor_integer(&cursor, RANKS_COLUMN_RANKS) : 0;
    cursor_close(&cursor);
    return ranks;
}

static const char *figure_words(const char *figure)
{
    return strcmp(figure, "peak_bytes") == 0       ? "peak"
           : strcmp(figure, "reserved_bytes") == 0 ? "reserved"
           : strcmp(figure, "bytes") == 0          ? "allocated"
           : strcmp(figure, "allocations") == 0    ? "allocations"
                                                   : "failed";
}

/* Columns of sql_ranks_unlike; the first figure of a rank with its median. */
static void print_figure(FILE *out, struct cursor *cursor, bool is_first)
{
    const char *figure = cursor_name(cursor, 1);
    const bool is_bytes = strstr(figure, "bytes") != NULL;
    const int64_t value = cursor_integer(cursor, 2), median = cursor_integer(cursor, 3);
    const char *side = cursor_integer(cursor, 5) != 0 ? "above" : "below";
    fputs(figure_words(figure), out);
    if (cursor_is_null(cursor, 4)) {
        fprintf(out, " %s, the median is 0", is_bytes ? BYTES(value) : COUNT(value));
    } else if (is_first) {
        fprintf(out, " %s, %s %s the median of %s", is_bytes ? BYTES(value) : COUNT(value),
                format_share(cursor_integer(cursor, 4), 1000).text, side, is_bytes ? BYTES(median) : COUNT(median));
    } else {
        fprintf(out, " %s %s", format_share(cursor_integer(cursor, 4), 1000).text, side);
    }
}

/* How many ranks are unlike the others. */
static int64_t print_unlike(FILE *out, struct database *database, const char *domain)
{
    int64_t count = 0, rank = -1;
    int figures = 0;
    struct cursor cursor;
    cursor_open(&cursor, database, sql_ranks_unlike);
    cursor_bind_text(&cursor, 1, domain);
    while (cursor_next(&cursor)) {
        figures = count == 0 || cursor_integer(&cursor, 0) != rank ? 0 : figures + 1;
        rank = cursor_integer(&cursor, 0);
        count += figures == 0;
        if (count > UNLIKE_SHOWN) {
            continue;
        }
        if (figures == 0) {
            fprintf(out, "%s  rank %" PRId64 " is unlike the others: ", count > 1 ? "\n" : "", rank);
        } else {
            fputs(figures == 1 ? "\n      also " : ", ", out);
        }
        print_figure(out, &cursor, figures == 0);
    }
    cursor_close(&cursor);
    fputs(count > 0 ? "\n" : "", out);
    if (count > UNLIKE_SHOWN) {
        fprintf(out, "  and %s more ranks that are unlike the others (--json has all)\n", COUNT(count - UNLIKE_SHOWN));
    }
    return count;
}

static void report_ranks_print_lines(FILE *out, struct database *database, const char *domain)
{
    static const struct table_column columns[] = {
        {"rank", true},       {"line that makes most of it", false}, {"", false}, {"bytes", true}, {"median", true},
        {"difference", true},
    };
    static const struct query query = {.sql = sql_rank_lines_unlike, .columns = columns, .kinds = "ntpbbB"};
    struct cursor cursor;
    cursor_open(&cursor, database, query.sql);
    cursor_bind_text(&cursor, 1, domain);
    query_print_rows(out, &cursor, &query, terminal_columns(), UNLIKE_SHOWN);
}

static void print_alike(FILE *out, struct database *database, const char *domain)
{
    fprintf(out, "  no rank is unlike the others: each figure is within %s of the median of all ranks\n",
            format_share(database_integer_named(database, sql_ranks_alike, domain, 0), 1000).text);
}

static void print_line_apart(FILE *out, struct database *database, const char *domain)
{
    struct cursor cursor;
    cursor_open(&cursor, database, sql_rank_line_apart);
    cursor_bind_text(&cursor, 1, domain);
    if (cursor_next(&cursor)) {
        fprintf(out, "      %s of it by ", format_signed(cursor_integer(&cursor, 2), format_bytes).text);
        format_print_function(out, cursor_name(&cursor, 0), TERMINAL_COLUMNS_MAX);
        fputs("  ", out);
        format_print_safe(out, cursor_name(&cursor, 1));
        fputc('\n', out);
    }
    cursor_close(&cursor);
}

/* Ranks that do the same, but not at the same time, are apart as well: no line is to blame for that. The line reads all
 * allocations, as those of ranks that are unlike do: with_line. */
static void print_apart(FILE *out, struct database *database, const char *domain, bool are_alike, bool with_line)
{
    struct cursor cursor;
    cursor_open(&cursor, database, sql_ranks_apart);
    cursor_bind_text(&cursor, 1, domain);
    bool is_far = false;
    if (cursor_next(&cursor)) {
        const int64_t sum = cursor_integer(&cursor, 1), of = cursor_integer(&cursor, 2);
        is_far = sum > of / APART_PART;
        fprintf(out, "  apart over time: %s on average, %s of what the largest rank has\n",
                BYTES(cursor_integer(&cursor, 0)), format_share(sum, of).text);
        fprintf(out, "      most %s after the start, %s: rank %" PRId64 " has %s, rank %" PRId64 " %s\n",
                DURATION(cursor_integer(&cursor, 4)), BYTES(cursor_integer(&cursor, 3)), cursor_integer(&cursor, 5),
                BYTES(cursor_integer(&cursor, 6)), cursor_integer(&cursor, 7), BYTES(cursor_integer(&cursor, 8)));
    }
    cursor_close(&cursor);
    if (is_far && are_alike) {
        fputs("      the figures are alike: the ranks do the same, but not at the same time\n", out);
    } else if (is_far && with_line) {
        print_line_apart(out, database, domain);
    }
}

void report_ranks_text(FILE *out, struct database *database, const struct report_section *section,
                       const struct report_options *options)
{
    char domain[32];
    const int64_t ranks = first_domain(database, section, domain, sizeof(domain));
    if (options->stacks.is_all) {
        report_section_table(out, database, section);
    } else {
        report_rule_print(out, section->title);
        query_print(out, database, section->table, ranks < RANKS_SHOWN ? ranks : RANKS_SHOWN);
    }
    if (ranks > RANKS_SHOWN && !options->stacks.is_all) {
        fprintf(out, "  and %s more (--json has all)\n", COUNT(ranks - RANKS_SHOWN));
    }
    const bool are_alike = print_unlike(out, database, domain) == 0;
    if (are_alike) {
        print_alike(out, database, domain);
    } else {
        report_ranks_print_lines(out, database, domain);
    }
    print_apart(out, database, domain, are_alike, options->stacks.is_all);
}
