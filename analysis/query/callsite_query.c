/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The left half of an entry's line is the user's line, as wide as the widest of the list and at most what the figures
 * leave over. A report names the same call site in several lists: its stack is printed once.
 */
#include "analysis/query/callsite_query.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/base/number_format.h"
#include "analysis/base/json_writer.h"
#include "analysis/base/table.h"
#include "analysis/base/terminal.h"
#include "analysis/query/database.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NARROW_COLUMNS 80 /* below, "allocations" is left out */
#define NAME_COLUMNS_MIN 12

static const struct callsite_rank_info ranks[CALLSITE_RANK_COUNT] = {
    [CALLSITE_BY_PEAK] = {"peak", "at the peak"},
    [CALLSITE_BY_BYTES] = {"by_bytes", "by bytes allocated"},
    [CALLSITE_BY_COUNT] = {"by_count", "by number of allocations"},
    [CALLSITE_BY_LIFETIME] = {"by_lifetime", "by mean lifetime (with 1 % of the bytes or more)"},
    [CALLSITE_BY_TEMPORARY] = {"by_temporary", "temporary allocations (freed before their thread allocated again)"},
    [CALLSITE_BY_LIVE] = {"leaks", "live at the end"},
};

const struct callsite_rank_info *callsite_rank_info(enum callsite_rank rank)
{
    return &ranks[rank];
}

void callsite_shown_free(struct callsite_shown *shown)
{
    free(shown->ids);
    *shown = (struct callsite_shown){0};
}

/* True if it was there before. Lists are short, so a walk is enough. */
static bool mark_shown(struct callsite_shown *shown, int64_t id)
{
    for (size_t i = 0; i < shown->count; i++) {
        if (shown->ids[i] == id) {
            return true;
        }
    }
    if (shown->count == shown->capacity) {
        shown->capacity = shown->capacity * 2 + 16;
        shown->ids = memory_resize(shown->ids, shown->capacity * sizeof(shown->ids[0]));
    }
    shown->ids[shown->count++] = id;
    return false;
}

/* ---- names ---- */

/* function  file:line, with what it takes to fit: the path gets what the function leaves, and two fifths at least. */
static void write_location(FILE *out, const struct group_location *location, size_t columns)
{
    char where[4 * TERMINAL_COLUMNS_MAX] = "";
    char line[24] = "";
    size_t function = format_width(location->function);
    size_t own = function + 2 < columns ? columns - function - 2 : 0;
    size_t left = own > columns * 2 / 5 ? own : columns * 2 / 5;
    if (location->file != NULL && location->line > 0) {
        snprintf(line, sizeof(line), ":%" PRId64, location->line);
    }
    left = left > strlen(line) + 4 ? left - strlen(line) : 4;
    if (location->file != NULL) {
        format_path(where, sizeof(where), location->file, left);
    } else if (location->module != NULL) {
        char module[4 * TERMINAL_COLUMNS_MAX];
        format_head(module, sizeof(module), format_base_name(location->module), left - 2);
        snprintf(where, sizeof(where), "(%.3990s)", module);
    }
    left = where[0] != '\0' ? format_width(where) + strlen(line) + 2 : 0;
    format_print_function(out, location->function, columns > left + 1 ? columns - left : 1);
    fprintf(out, "%s%s%s", where[0] != '\0' ? "  " : "", where, line);
}

static void write_cut(FILE *out, const char *text, size_t columns)
{
    char cut[4 * TERMINAL_COLUMNS_MAX];
    format_head(cut, sizeof(cut), text, columns);
    fputs(cut, out);
}

static void write_unresolved(FILE *out, const struct callsite_row *row, size_t columns)
{
    const char *module = row->user.module;
    char text[600];
    if (module != NULL) {
        format_unresolved(text, sizeof(text), module);
    } else {
        snprintf(text, sizeof(text), row->id > 0 ? "unresolved code in an unknown module" : "(no stack was recorded)");
    }
    write_cut(out, text, columns);
}

/* The module of Python code is its file. */
static const char *module_of(const struct group_location *location)
{
    return location->is_python ? location->file : location->module;
}

char *callsite_entry_name(const struct callsite_row *row, enum group_by by, size_t columns)
{
    char cut[4 * TERMINAL_COLUMNS_MAX];
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = memory_stream(&text, &bytes);
    if (row->name != NULL) {
        write_cut(out, row->name, columns);
    } else if (by == GROUP_BY_MODULE && module_of(&row->user) != NULL) {
        format_path(cut, sizeof(cut), module_of(&row->user), columns);
        fputs(cut, out);
    } else if (row->user.function == NULL) {
        write_unresolved(out, row, columns);
    } else {
        struct group_location location = row->user;
        location.line = by == GROUP_BY_FUNCTION ? 0 : location.line;
        write_location(out, &location, columns);
    }
    memory_stream_end(out, &text);
    return text;
}

/* ---- text ---- */

/* The right half of an entry's line. `counts`: columns of the largest number of allocations. */
static void callsite_query_write_figures(char *text, size_t bytes, const struct callsite_row *row,
                                         enum callsite_rank rank, int64_t whole, size_t counts)
{
    const struct group_figures *figures = &row->figures;
    int64_t allocations = callsite_rank_allocations(figures, rank);
    int64_t of_rank = callsite_rank_bytes(figures, rank);
    bool is_narrow = terminal_columns() < NARROW_COLUMNS;
    if (rank == CALLSITE_BY_TEMPORARY) {
        snprintf(text, bytes, "%*s of %s (%s)", (int)counts, format_count(allocations).text,
                 format_count(figures->allocations).text, format_share(allocations, figures->allocations).text);
        return;
    }
    snprintf(text, bytes, "%8s  %7s  %*s%s", format_bytes(of_rank).text,
             format_share(rank == CALLSITE_BY_COUNT ? allocations : of_rank, whole).text, (int)counts,
             format_count(allocations).text,
             is_narrow          ? "×"
             : allocations == 1 ? " allocation"
                                : " allocations");
    if (rank == CALLSITE_BY_LIFETIME) {
        size_t used = strlen(text);
        snprintf(text + used, bytes - used, "  %s", format_duration(group_mean_lifetime_ns(figures)).text);
    }
}

static void callsite_query_print_stack(FILE *out, struct database *database, const struct callsite_row *row,
                                       const struct callsite_options *options)
{
    if (row->id <= 0 || options->frames == 0) {
        return;
    }
    struct stack stack;
    stack_load(&stack, database, row->id);
    if (options->is_all && options->frames < 0) {
        stack_print_all(out, &stack);
    } else if (options->frames > 0) {
        stack_print(out, &stack, row, options->frames);
    } else {
        terminal_style(out, TERMINAL_FAINT);
        stack_print_chain(out, &stack, row);
        terminal_style(out, TERMINAL_PLAIN);
    }
    stack_free(&stack);
}

/* A line more, of an entry that is in the heap and in Python's memory. */
static void callsite_query_print_together(FILE *out, const struct callsite_row *row)
{
    char each[120];
    together_words(each, sizeof(each), &row->together);
    if (each[0] != '\0') {
        fprintf(out, "       %s together%s\n", format_bytes(row->together.bytes).text, each);
    }
}

#define FIGURES_BYTES 160

struct entry {
    char *name;
    char figures[FIGURES_BYTES];
};

static void callsite_query_print_lines(FILE *out, struct database *database, const struct callsite_list *list,
                                       enum callsite_rank rank, const struct callsite_options *options,
                                       struct callsite_shown *shown)
{
    struct entry *entries = memory_resize(NULL, (list->count + 1) * sizeof(*entries));
    int64_t whole = rank == CALLSITE_BY_COUNT ? list->sum_allocations : list->sum_bytes;
    size_t counts = 0;
    for (size_t i = 0; i < list->count; i++) {
        size_t width = format_width(format_count(callsite_rank_allocations(&list->rows[i].figures, rank)).text);
        counts = width > counts ? width : counts;
    }
    size_t figures = 0;
    for (size_t i = 0; i < list->count; i++) {
        callsite_query_write_figures(entries[i].figures, FIGURES_BYTES, &list->rows[i], rank, whole, counts);
        figures = format_width(entries[i].figures) > figures ? format_width(entries[i].figures) : figures;
    }
    size_t left =
        terminal_columns() > figures + 4 + NAME_COLUMNS_MIN ? terminal_columns() - figures - 4 : NAME_COLUMNS_MIN;
    size_t names = 0;
    for (size_t i = 0; i < list->count; i++) {
        entries[i].name = callsite_entry_name(&list->rows[i], list->by, left);
        size_t width = format_width(entries[i].name);
        names = width > names ? width : names;
    }
    for (size_t i = 0; i < list->count; i++) {
        bool with_stack = options->stacks < 0 || (int64_t)i < options->stacks;
        fprintf(out, "  %s%*s  %s\n", entries[i].name, (int)(names - format_width(entries[i].name)), "",
                entries[i].figures);
        free(entries[i].name);
        if (list->has_together) {
            callsite_query_print_together(out, &list->rows[i]);
        }
        if (with_stack && (shown == NULL || !mark_shown(shown, list->rows[i].id))) {
            callsite_query_print_stack(out, database, &list->rows[i], options);
        }
    }
    free(entries);
}

static void print_exact(FILE *out, const struct callsite_row *row, enum callsite_rank rank, size_t number,
                        int64_t whole)
{
    const struct group_figures *figures = &row->figures;
    int64_t bytes = callsite_rank_bytes(figures, rank);
    int64_t allocations = callsite_rank_allocations(figures, rank);
    if (rank == CALLSITE_BY_TEMPORARY) {
        fprintf(out, "%4zu.  %s of %s allocations (%s), mean %s", number, format_count(allocations).text,
                format_count(figures->allocations).text, format_share(allocations, figures->allocations).text,
                format_bytes(figures->allocations > 0 ? figures->bytes / figures->allocations : 0).text);
    } else {
        int64_t part = rank == CALLSITE_BY_COUNT ? allocations : bytes;
        fprintf(out, "%4zu.  %s, %s; %s allocation%s", number, format_bytes_exact(bytes).text,
                format_share(part, whole).text, format_count(allocations).text, allocations == 1 ? "" : "s");
        if (allocations > 1 && rank != CALLSITE_BY_LIFETIME) {
            fprintf(out, ", mean %s", format_bytes(bytes / allocations).text);
        }
        if (rank == CALLSITE_BY_LIFETIME) {
            fprintf(out, ", lived %s", format_duration(group_mean_lifetime_ns(figures)).text);
        }
    }
    if (row->id > 0) {
        fprintf(out, "  [#%" PRId64 "]", row->id);
    }
    fputc('\n', out);
}

static void print_all(FILE *out, struct database *database, const struct callsite_list *list, enum callsite_rank rank,
                      const struct callsite_options *options, struct callsite_shown *shown)
{
    int64_t whole = rank == CALLSITE_BY_COUNT ? list->sum_allocations : list->sum_bytes;
    for (size_t i = 0; i < list->count; i++) {
        const struct callsite_row *row = &list->rows[i];
        bool is_above = shown != NULL && row->id > 0 && mark_shown(shown, row->id);
        char *name = callsite_entry_name(row, list->by, terminal_columns() - 7);
        print_exact(out, row, rank, i + 1, whole);
        fprintf(out, "       %s\n", name);
        free(name);
        if (list->has_together) {
            callsite_query_print_together(out, row);
        }
        if (row->callsites > 1) {
            fprintf(out, "       %s call sites; the largest is #%" PRId64 "%s\n", format_count(row->callsites).text,
                    row->id, is_above ? " (stack above)" : "");
        } else if (is_above) {
            fputs("       (stack above)\n", out);
        }
        if (is_above) {
            continue;
        }
        if (options->stacks < 0 || (int64_t)i < options->stacks) {
            callsite_query_print_stack(out, database, row, options);
        }
    }
}

void callsite_stack_print(FILE *out, struct database *database, const struct callsite_row *row, int64_t frames)
{
    struct stack stack;
    if (row->id == 0) {
        fputs("       (no stack was recorded)\n", out);
    } else if (frames == 0) {
        char *name = callsite_entry_name(row, GROUP_BY_LINE, terminal_columns() - 7);
        fprintf(out, "       %s\n", name);
        free(name);
    } else {
        stack_load(&stack, database, row->id);
        stack_print(out, &stack, row, frames);
        stack_free(&stack);
    }
}

void callsite_list_print(FILE *out, struct database *database, const struct callsite_list *list,
                         enum callsite_rank rank, const struct callsite_options *options, struct callsite_shown *shown)
{
    if (options->is_all) {
        print_all(out, database, list, rank, options, shown);
    } else {
        callsite_query_print_lines(out, database, list, rank, options, shown);
    }
}

void callsite_list_extent(FILE *out, const struct callsite_list *list)
{
    if ((int64_t)list->count < list->count_all) {
        fprintf(out, "%s of ", format_count((int64_t)list->count).text);
    }
    fprintf(out, "%s %s", format_count(list->count_all).text, group_by_noun(list->by, list->count_all));
}

/* ---- JSON and CSV ---- */

/* An entry by function has no line of its own, and one by module no function. */
static void add_location(struct cJSON *object, const struct callsite_row *row, enum group_by by)
{
    struct callsite_row entry = *row;
    entry.user.line = by == GROUP_BY_FUNCTION || by == GROUP_BY_MODULE ? 0 : entry.user.line;
    entry.user.function = by == GROUP_BY_MODULE ? NULL : entry.user.function;
    callsite_location_json(object, &entry);
}

static void callsite_query_add_figures(struct cJSON *object, const struct group_figures *figures,
                                       enum callsite_rank rank, bool with_totals)
{
    if (!with_totals) {
        json_integer(object, "bytes", callsite_rank_bytes(figures, rank));
        json_integer(object, "allocations", callsite_rank_allocations(figures, rank));
        return;
    }
    json_integer(object, "bytes", figures->bytes);
    json_integer(object, "allocations", figures->allocations);
    json_integer(object, "frees", figures->frees);
    json_integer(object, "live_bytes", figures->live_bytes);
    json_integer(object, "live_allocations", figures->live_allocations);
    json_integer(object, "peak_bytes", figures->peak_bytes);
    json_integer(object, "peak_allocations", figures->peak_allocations);
    json_integer(object, "temporary", figures->temporary);
    json_integer_or_null(object, "mean_lifetime_ns", group_mean_lifetime_ns(figures));
}

static const char *prefixed(char key[24], const char *prefix, const char *name)
{
    snprintf(key, 24, "%s%s", prefix, name);
    return key;
}

void group_location_json(struct cJSON *object, const char *prefix, const struct group_location *location)
{
    char key[24];
    json_text(object, prefixed(key, prefix, "function"), location->function);
    json_text(object, prefixed(key, prefix, "file"), location->file);
    json_integer_or_null(object, prefixed(key, prefix, "line"), location->line > 0 ? location->line : -1);
    json_text(object, prefixed(key, prefix, "module"), location->module);
    json_bool(object, prefixed(key, prefix, "is_python"), location->is_python);
}

void callsite_location_json(struct cJSON *object, const struct callsite_row *row)
{
    group_location_json(object, "user_", &row->user);
    group_location_json(object, "", &row->innermost);
}

struct cJSON *callsite_list_json(struct database *database, const struct callsite_list *list, enum callsite_rank rank,
                                 const struct callsite_options *options, bool with_totals)
{
    struct cJSON *array = json_array();
    for (size_t i = 0; i < list->count; i++) {
        const struct callsite_row *row = &list->rows[i];
        struct cJSON *object = json_object();
        if (row->name != NULL) {
            json_text(object, "name", row->name);
            json_integer(object, "key", row->key);
        }
        json_integer_or_null(object, "callsite_id", row->id >= 0 ? row->id : -1);
        json_integer(object, "callsites", row->callsites);
        callsite_query_add_figures(object, &row->figures, rank, with_totals);
        if (list->has_together) {
            together_json(object, &row->together);
        }
        add_location(object, row, list->by);
        json_add(object, "frames", stack_json(database, row->id, options->frames));
        json_append(array, object);
    }
    return array;
}

void callsite_location_csv(FILE *out, const struct group_location *location)
{
    csv_field(out, location->function);
    fputc(',', out);
    csv_field(out, location->file);
    if (location->line > 0) {
        fprintf(out, ",%" PRId64 ",", location->line);
    } else {
        fputs(",,", out);
    }
    csv_field(out, location->module);
}

void callsite_list_csv(FILE *out, const struct callsite_list *list, enum callsite_rank rank, const char *domain)
{
    fputs(
        "callsite_id,domain,bytes,allocations,function,file,line,module,user_function,user_file,user_line,user_module,"
        "callsites,name\n",
        out);
    for (size_t i = 0; i < list->count; i++) {
        const struct callsite_row *row = &list->rows[i];
        fprintf(out, "%" PRId64 ",", row->id);
        csv_field(out, domain);
        fprintf(out, ",%" PRId64 ",%" PRId64 ",", callsite_rank_bytes(&row->figures, rank),
                callsite_rank_allocations(&row->figures, rank));
        callsite_location_csv(out, &row->innermost);
        fputc(',', out);
        callsite_location_csv(out, &row->user);
        fprintf(out, ",%" PRId64 ",", row->callsites);
        csv_field(out, row->name);
        fputc('\n', out);
    }
}
