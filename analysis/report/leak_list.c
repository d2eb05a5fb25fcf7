/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One walk over leak_line gives both the sums of all lines and the first of them. The sentence of a line is made of the
 * figures that the view has of it, and says nothing that they don't say.
 */
#include "analysis/report/leak_list.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/base/number_format.h"
#include "analysis/base/json_writer.h"
#include "analysis/base/table.h"
#include "analysis/base/terminal.h"
#include "analysis/query/callsite_query.h"
#include "analysis/query/database.h"
#include "analysis/query/loss_note.h"
#include "analysis/report/leak_suppress.h"
#include "analysis/query/query_selection.h"
#include "base/error.h"

#include "statements_generated.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_COLUMN 7
#define NAME_COLUMNS_MIN 20 /* of a line's function and file, even if the figures leave less */
#define CALLSITE_COLUMN 10
#define PLACE_COLUMN (11 + 2 * (LEAK_TENTHS - 1))

/* ---- the sentence ---- */

static struct format_text amount(const struct leak_line *line, int tenth)
{
    return line->by_bytes ? format_bytes(line->bytes[tenth]) : format_count(line->live[tenth]);
}

/* Of the ten, those after which there was never as little again as before. */
static int growing_tenths(const int64_t *series)
{
    int64_t low = INT64_MAX;
    int64_t lows[LEAK_TENTHS];
    for (int i = LEAK_TENTHS - 1; i >= 0; i--) {
        low = series[i] < low ? series[i] : low;
        lows[i] = low;
    }
    int count = 0;
    for (int i = 0; i < LEAK_TENTHS; i++) {
        count += lows[i] > (i > 0 ? lows[i - 1] : 0);
    }
    return count;
}

/* How many tenths it took until nine tenths of what is live were there for good. */
static int filled_tenths(const int64_t *series)
{
    int tenths = LEAK_TENTHS;
    while (tenths > 1 && (double)series[tenths - 2] >= 0.9 * (double)series[LEAK_TENTHS - 1]) {
        tenths--;
    }
    return tenths;
}

static void write_evidence(char *text, size_t bytes, const struct leak_line *line)
{
    const int64_t *series = line->by_bytes ? line->bytes : line->live;
    int64_t live = line->live[LEAK_TENTHS - 1];
    const char *unit = line->by_bytes ? "" : " live";
    size_t used;
    if (line->allocations >= live) {
        used = (size_t)snprintf(text, bytes, "%s of %s allocation%s not freed", format_count(live).text,
                                format_count(line->allocations).text, format_plural(line->allocations, "", "s"));
    } else {
        used = (size_t)snprintf(text, bytes, "%s allocation%s live", format_count(live).text,
                                format_plural(live, "", "s"));
    }
    if (used >= bytes) {
        return;
    }
    text += used;
    bytes -= used;
    if (strcmp(line->pattern, "few") == 0) {
        snprintf(text, bytes, ", and they came all along: about %s of them in the first half of these, %s in the rest",
                 amount(line, 4).text,
                 line->by_bytes ? format_bytes(series[9] - series[4]).text : format_count(series[9] - series[4]).text);
    } else if (strcmp(line->pattern, "growing") == 0) {
        snprintf(text, bytes,
                 ": %s%s after 10 %% of the work, %s after half of it, %s at the end; growth in %d of 10 tenths, %s",
                 amount(line, 0).text, unit, amount(line, 4).text, amount(line, 9).text, growing_tenths(series),
                 series[9] > series[8] ? "still growing at the end" : "none in the last");
    } else if (strcmp(line->pattern, "early") == 0) {
        snprintf(text, bytes, ": %s%s after 10 %% of the work, %s at the end: hardly any growth since",
                 amount(line, 0).text, unit, amount(line, 9).text);
    } else if (strcmp(line->pattern, "stopped") == 0) {
        snprintf(text, bytes, ": %s%s after %d %% of the work, %s at the end: hardly any growth since",
                 amount(line, filled_tenths(series) - 1).text, unit, filled_tenths(series) * 10, amount(line, 9).text);
    } else {
        snprintf(text, bytes, ": %s%s after half of the work, %s after 90 %% of it, %s at the end",
                 amount(line, 4).text, unit, amount(line, 8).text, amount(line, 9).text);
    }
}

/* ---- loading ---- */

static void leak_list_read_line(struct leak_line *line, struct cursor *cursor)
{
    int64_t *const figures[] = {&line->allocations, &line->first_ns, &line->last_ns, &line->row.id};
    *line = (struct leak_line){
        .domain = memory_copy_text(cursor_name(cursor, 2)),
        .pattern = memory_copy_text(cursor_name(cursor, 3)),
        .score = (double)cursor_integer(cursor, 4) / 100,
        .by_bytes = cursor_integer(cursor, 5) != 0,
        .is_library = cursor_integer(cursor, 6) != 0,
    };
    int column = 7;
    for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++) {
        *figures[i] = cursor_integer(cursor, column++);
    }
    for (int i = 0; i < LEAK_TENTHS - 1; i++) {
        line->live[i] = cursor_integer(cursor, column + i);
        line->bytes[i] = cursor_integer(cursor, column + LEAK_TENTHS - 1 + i);
    }
    struct together *together = &line->together;
    together->heap_bytes = cursor_integer(cursor, PLACE_COLUMN + 3);
    together->python_bytes = cursor_integer(cursor, PLACE_COLUMN + 4);
    together->bytes =
        together->heap_bytes >= 0 && together->python_bytes >= 0 ? cursor_integer(cursor, PLACE_COLUMN + 2) : -1;
    line->live[LEAK_TENTHS - 1] = cursor_integer(cursor, 0);
    line->bytes[LEAK_TENTHS - 1] = cursor_integer(cursor, 1);
}

static void take_sums(struct leak_list *list, const struct leak_query *query, struct cursor *cursor)
{
    bool is_object = query->domain == NULL && strcmp(cursor_name(cursor, 2), "python") == 0;
    *(is_object ? &list->object_bytes : &list->bytes) += cursor_integer(cursor, 1);
    *(is_object ? &list->objects : &list->allocations) += cursor_integer(cursor, 0);
    list->shared_bytes += is_object ? cursor_integer(cursor, PLACE_COLUMN + 1) : 0;
}

/* A line that is shown once, here: it is counted, and is one of the rows while there are fewer than `top`. */
static void leak_list_take_line(struct leak_list *list, const struct leak_query *query, struct database *database,
                                const struct suppressions *suppressions, struct cursor *cursor)
{
    if (suppressions_match(suppressions, database, cursor_integer(cursor, CALLSITE_COLUMN))) {
        list->suppressed++;
        list->suppressed_bytes += cursor_integer(cursor, PLACE_COLUMN + 2);
    } else if (cursor_integer(cursor, PLACE_COLUMN + 5) != 0 && !query->is_all) {
        list->unlikely++;
    } else if (++list->count_all <= query->top) {
        list->rows = memory_resize(list->rows, (list->count + 1) * sizeof(list->rows[0]));
        leak_list_read_line(&list->rows[list->count], cursor);
        callsite_location_load(&list->rows[list->count].row, database);
        list->count++;
    }
}

const char *leak_list_domain(struct database *database, const char *domain)
{
    const char *otherwise = selection_default_domain(database);
    return domain == NULL && strcmp(otherwise, "heap") != 0 ? otherwise : domain;
}

int leak_list_load(struct leak_list *list, struct database *database, const struct leak_query *query,
                   struct varve_message *message)
{
    struct selection selection;
    struct suppressions *suppressions = NULL;
    *list = (struct leak_list){0};
    int error =
        selection_make(&selection, database, query->domain != NULL ? query->domain : "heap", query->pid, message);
    VARVE_THEN(error,
               leak_moment_make(&list->moment, database, query->at, query->from, query->to, query->pid, message));
    VARVE_THEN(error, suppressions_load(&suppressions, query->suppress, message));
    if (error != VARVE_OK) {
        return error;
    }
    struct cursor cursor;
    cursor_open(&cursor, database, sql_leak_lines);
    cursor_bind_text(&cursor, 1, query->domain);
    while (cursor_next(&cursor)) {
        take_sums(list, query, &cursor);
        if (cursor_integer(&cursor, PLACE_COLUMN) == 1) {
            leak_list_take_line(list, query, database, suppressions, &cursor);
        }
    }
    cursor_close(&cursor);
    suppressions_free(suppressions);
    bool is_whole = query->pid == 0 && query->from == NULL && list->moment.at != LEAK_AT_TIME;
    for (size_t i = 0; i < list->count; i++) {
        struct leak_line *line = &list->rows[i];
        char evidence[400];
        line->allocations = is_whole ? line->allocations : -1;
        write_evidence(evidence, sizeof(evidence), line);
        line->evidence = memory_copy_text(evidence);
    }
    return VARVE_OK;
}

void leak_list_free(struct leak_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        callsite_location_free(&list->rows[i].row);
        free(list->rows[i].domain);
        free(list->rows[i].pattern);
        free(list->rows[i].evidence);
    }
    free(list->rows);
    *list = (struct leak_list){0};
}

/* ---- printing ---- */

static const char *domain_name(const struct leak_list *list, const struct leak_query *query)
{
    return query->domain != NULL ? query->domain : list->objects > 0 ? "heap and python" : "heap";
}

static void leak_list_print_head(FILE *out, const struct leak_list *list, const struct leak_query *query)
{
    terminal_style(out, TERMINAL_TITLE);
    if (list->allocations + list->objects == 0) {
        fprintf(out, "Nothing of %s", domain_name(list, query));
    } else {
        fprintf(out, "%s in %s allocation%s of %s", format_bytes_exact(list->bytes).text,
                format_count(list->allocations).text, format_plural(list->allocations, "", "s"),
                query->domain != NULL ? query->domain : "heap");
    }
    if (list->objects > 0) {
        fprintf(out, ", %s in %s object%s of Python", format_bytes_exact(list->object_bytes).text,
                format_count(list->objects).text, format_plural(list->objects, "", "s"));
        fprintf(out, ", %s together", format_bytes(list->bytes + list->object_bytes - list->shared_bytes).text);
    }
    if (query->pid > 0) {
        fprintf(out, ", process %" PRId64, query->pid);
    }
    terminal_style(out, TERMINAL_PLAIN);
    fputs("\n  ", out);
    leak_moment_words(out, &list->moment);
    fputc('\n', out);
    if (list->moment.only_live) {
        fputs("  of allocations that were freed nothing was kept: growth is that of what was not freed\n", out);
    }
    if (list->count_all > 0) {
        fprintf(out, "  %s%s%s line%s, the likeliest leaks first\n",
                (int64_t)list->count < list->count_all ? format_count((int64_t)list->count).text : "",
                (int64_t)list->count < list->count_all ? " of " : "", format_count(list->count_all).text,
                format_plural(list->count_all, "", "s"));
    }
    if (list->unlikely > 0) {
        fprintf(out, "  %s line%s of score 0.00 %s not listed: --all\n", format_count(list->unlikely).text,
                format_plural(list->unlikely, "", "s"), list->unlikely == 1 ? "is" : "are");
    }
    if (list->suppressed > 0) {
        fprintf(out, "  suppressed: %s line%s, %s\n", format_count(list->suppressed).text,
                format_plural(list->suppressed, "", "s"), format_bytes(list->suppressed_bytes).text);
    }
}

static void leak_list_print_stack(FILE *out, struct database *database, const struct callsite_row *row, int64_t frames)
{
    if (row->id == 0 || frames == 0) {
        return;
    }
    struct stack stack;
    stack_load(&stack, database, row->id);
    if (frames > 0) {
        stack_print(out, &stack, row, frames);
    } else {
        terminal_style(out, TERMINAL_FAINT);
        stack_print_chain(out, &stack, row);
        terminal_style(out, TERMINAL_PLAIN);
    }
    stack_free(&stack);
}

static void leak_list_print_line(FILE *out, struct database *database, const struct leak_line *line, size_t number,
                                 bool with_domain, int64_t frames)
{
    char each[120];
    together_words(each, sizeof(each), &line->together);
    char figures[320];
    snprintf(figures, sizeof(figures), "  %s%s, score %.2f%s%s%s",
             format_bytes(line->together.bytes >= 0 ? line->together.bytes : line->bytes[LEAK_TENTHS - 1]).text, each,
             line->score, with_domain ? ", " : "", with_domain ? line->domain : "",
             line->is_library ? ", library" : "");
    size_t used = format_width(figures) + 6;
    char *name = callsite_entry_name(&line->row, GROUP_BY_LINE,
                                     terminal_columns() > used + NAME_COLUMNS_MIN ? terminal_columns() - used
                                                                                  : NAME_COLUMNS_MIN);
    fprintf(out, "%4zu. %s%s\n%*s", number, line->row.id == 0 ? "(no stack was recorded)" : name, figures, TEXT_COLUMN,
            "");
    free(name);
    format_print_wrapped(out, line->evidence, TEXT_COLUMN);
    leak_list_print_stack(out, database, &line->row, frames);
}

/* Small objects of Python are in no line of the heap unless they were asked for: the line that leaks
 * them may be missing. */
static void print_hint(FILE *out, const struct leak_list *list)
{
    for (size_t i = 0; i < list->count && list->objects == 0; i++) {
        if (list->rows[i].row.user.is_python && strcmp(list->rows[i].domain, "heap") == 0) {
            fputs("  most objects of Python lie in its arenas and are not listed;\n"
                  "  varve record --python-allocators records each\n",
                  out);
            return;
        }
    }
}

void leak_list_print(FILE *out, struct database *database, const struct leak_list *list, const struct leak_query *query,
                     int64_t frames)
{
    struct report_loss loss;
    report_loss_load(&loss, database);
    if (report_has_remarks(&loss)) {
        report_loss_print(out, database, &loss);
    }
    leak_list_print_head(out, list, query);
    report_times_print(out, database);
    for (size_t i = 0; i < list->count; i++) {
        leak_list_print_line(out, database, &list->rows[i], i + 1, list->objects > 0, frames);
    }
    print_hint(out, list);
}

static struct cJSON *series_json(const int64_t *series)
{
    struct cJSON *array = json_array();
    for (int i = 0; i < LEAK_TENTHS; i++) {
        json_append(array, json_integer_value(series[i]));
    }
    return array;
}

static struct cJSON *leak_list_line_json(struct database *database, const struct leak_line *line, int64_t frames)
{
    struct cJSON *object = json_object();
    group_location_json(object, "user_", &line->row.user);
    json_bool(object, "is_library", line->is_library);
    json_text(object, "domain", line->domain);
    json_integer(object, "bytes", line->bytes[LEAK_TENTHS - 1]);
    together_json(object, &line->together);
    json_integer(object, "allocations", line->live[LEAK_TENTHS - 1]);
    json_integer_or_null(object, "allocations_made", line->allocations);
    json_real(object, "score", line->score);
    json_text(object, "pattern", line->pattern);
    json_text(object, "evidence", line->evidence);
    json_integer_or_null(object, "first_ns", line->first_ns);
    json_integer_or_null(object, "last_ns", line->last_ns);
    json_add(object, "live", series_json(line->live));
    json_add(object, "live_bytes", series_json(line->bytes));
    json_integer(object, "callsite_id", line->row.id);
    json_add(object, "frames", stack_json(database, line->row.id, frames));
    return object;
}

struct cJSON *leak_list_json(struct database *database, const struct leak_list *list, const struct leak_query *query,
                             int64_t frames)
{
    struct cJSON *object = json_object();
    struct cJSON *lines = json_array();
    struct report_loss loss;
    report_loss_load(&loss, database);
    json_text(object, "database", database_path(database));
    json_text(object, "domain", domain_name(list, query));
    json_integer_or_null(object, "pid", query->pid > 0 ? query->pid : -1);
    json_add(object, "moment", leak_moment_json(&list->moment));
    json_integer(object, "bytes", list->bytes);
    json_integer(object, "allocations", list->allocations);
    if (list->objects > 0) {
        json_integer(object, "python_bytes", list->object_bytes);
        json_integer(object, "python_allocations", list->objects);
        json_integer(object, "together_bytes", list->bytes + list->object_bytes - list->shared_bytes);
    }
    json_bool(object, "nothing_lost", report_is_lossless(&loss));
    report_times_json(object, database);
    json_bool(object, "only_live_kept", list->moment.only_live);
    json_integer(object, "lines_all", list->count_all);
    json_integer(object, "lines_unlikely", list->unlikely);
    json_integer(object, "lines_suppressed", list->suppressed);
    json_integer(object, "bytes_suppressed", list->suppressed_bytes);
    for (size_t i = 0; i < list->count; i++) {
        json_append(lines, leak_list_line_json(database, &list->rows[i], frames));
    }
    json_add(object, "lines", lines);
    return object;
}

void leak_list_csv(FILE *out, const struct leak_list *list)
{
    fputs("domain,score,pattern,bytes,allocations,allocations_made,evidence,callsite_id,"
          "user_function,user_file,user_line,user_module\n",
          out);
    for (size_t i = 0; i < list->count; i++) {
        const struct leak_line *line = &list->rows[i];
        csv_field(out, line->domain);
        fprintf(out, ",%.2f,", line->score);
        csv_field(out, line->pattern);
        fprintf(out, ",%" PRId64 ",%" PRId64 ",", line->bytes[LEAK_TENTHS - 1], line->live[LEAK_TENTHS - 1]);
        if (line->allocations >= 0) {
            fprintf(out, "%" PRId64, line->allocations);
        }
        fputc(',', out);
        csv_field(out, line->evidence);
        fprintf(out, ",%" PRId64 ",", line->row.id);
        callsite_location_csv(out, &line->row.user);
        fputc('\n', out);
    }
}
