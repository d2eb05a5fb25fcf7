/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A ranking is a row of a table here: which rows of the view callsite_total it takes and in what order; ties go by call
 * site, so that equal traces give equal reports. The views define the figures; nothing is computed but sums of them.
 * A report names the same call site in several lists: its stack is printed once, then referred to.
 */
#include "analysis/query/callsites.h"

#include "analysis/output/format.h"
#include "analysis/output/json.h"
#include "analysis/base/memory.h"
#include "analysis/output/table.h"
#include "analysis/query/db.h"
#include "analysis/query/stack.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COLUMNS                                                                                            \
    "callsite_id, allocations, frees, bytes, live_allocations, live_bytes, peak_allocations, peak_bytes, " \
    "temporary, coalesce(mean_lifetime_ns, -1), function, file, line, module, is_python"

/* Of the long-lived, people want those that matter: a hundredth of all bytes of the domain at least. */
#define LONG_LIVED                                     \
    "mean_lifetime_ns IS NOT NULL AND bytes * 100 >= " \
    "(SELECT sum(bytes) FROM total WHERE domain = ?1)"

#define RANK_SQL(condition, order, bytes, allocations)                                             \
    "SELECT " COLUMNS " FROM callsite_total WHERE domain = ?1 AND (" condition ") ORDER BY " order \
    " DESC, callsite_id LIMIT ?2",                                                                 \
        "SELECT count(*), sum(" bytes "), sum(" allocations                                        \
        ") FROM callsite_total WHERE domain = ?1 AND (" condition ")"

static const struct {
    struct callsite_rank_info info;
    const char *sql, *sum_sql;
} ranks[CALLSITE_RANK_COUNT] = {
    [CALLSITE_BY_PEAK] = {{"peak", "Call sites at the peak"},
                          RANK_SQL("peak_bytes > 0", "peak_bytes", "peak_bytes", "peak_allocations")},
    [CALLSITE_BY_BYTES] = {{"by_bytes", "Call sites by bytes allocated"},
                           RANK_SQL("bytes > 0", "bytes", "bytes", "allocations")},
    [CALLSITE_BY_COUNT] = {{"by_count", "Call sites by number of allocations"},
                           RANK_SQL("allocations > 0", "allocations", "bytes", "allocations")},
    [CALLSITE_BY_LIFETIME] = {{"by_lifetime", "Call sites by mean lifetime (with 1 % of the bytes or more)"},
                              RANK_SQL(LONG_LIVED, "mean_lifetime_ns", "bytes", "allocations")},
    [CALLSITE_BY_TEMPORARY] = {{"by_temporary",
                                "Temporary allocations (freed before their thread allocated again)"},
                               RANK_SQL("temporary > 0", "temporary", "bytes", "temporary")},
    [CALLSITE_BY_LIVE] = {{"leaks", "Never freed"},
                          RANK_SQL("live_allocations > 0", "live_bytes", "live_bytes", "live_allocations")},
};

/* Blocks of one process that were live at ?3 (all that were never freed, if it is negative). */
#define PROCESS_ROWS                                                                      \
    " FROM allocations WHERE domain = ?1 AND process_id = ?2 AND CASE WHEN ?3 < 0 THEN "  \
    "free_completed_seq IS NULL ELSE alloc_seq <= ?3 AND (free_completed_seq IS NULL OR " \
    "free_completed_seq > ?3) END"

static const char process_sql[] =
    "SELECT a.callsite_id, a.n, a.bytes, t.function, t.file, t.line, t.module, t.is_python FROM "
    "(SELECT coalesce(callsite_id, 0) AS callsite_id, count(*) AS n, sum(size) AS bytes" PROCESS_ROWS
    " GROUP BY 1 ORDER BY bytes DESC, callsite_id LIMIT ?4) a LEFT JOIN callsite_total t "
    "ON t.callsite_id = a.callsite_id AND t.domain = ?1 ORDER BY a.bytes DESC, a.callsite_id";

static const char process_sum_sql[] =
    "SELECT count(DISTINCT coalesce(callsite_id, 0)), sum(size), count(*)" PROCESS_ROWS;

/* The leaks of a process have an index of their own (those never freed), which only the view `leak` can
 * use. */
static const char leak_sql[] =
    "SELECT a.callsite_id, a.n, a.bytes, t.function, t.file, t.line, t.module, t.is_python FROM (SELECT "
    "coalesce(callsite_id, 0) AS callsite_id, count(*) AS n, sum(size) AS bytes FROM leak WHERE domain = ?1 "
    "AND process_id = ?2 AND ?3 < 0 GROUP BY 1 ORDER BY bytes DESC, callsite_id LIMIT ?4) a LEFT JOIN "
    "callsite_total t ON t.callsite_id = a.callsite_id AND t.domain = ?1 ORDER BY a.bytes DESC, a.callsite_id";

static const char leak_sum_sql[] =
    "SELECT count(DISTINCT coalesce(callsite_id, 0)), sum(size), count(*) FROM leak "
    "WHERE domain = ?1 AND process_id = ?2 AND ?3 < 0";

const struct callsite_rank_info *callsite_rank_info(enum callsite_rank rank)
{
    return &ranks[rank].info;
}

int64_t callsite_rank_bytes(const struct callsite_row *row, enum callsite_rank rank)
{
    return rank == CALLSITE_BY_PEAK   ? row->peak_bytes
           : rank == CALLSITE_BY_LIVE ? row->live_bytes
                                      : row->bytes;
}

int64_t callsite_rank_allocations(const struct callsite_row *row, enum callsite_rank rank)
{
    switch (rank) {
    case CALLSITE_BY_PEAK:
        return row->peak_allocations;
    case CALLSITE_BY_LIVE:
        return row->live_allocations;
    case CALLSITE_BY_TEMPORARY:
        return row->temporary;
    default:
        return row->allocations;
    }
}

static struct callsite_row *add_row(struct callsite_list *list)
{
    list->rows = memory_resize(list->rows, (list->count + 1) * sizeof(list->rows[0]));
    list->rows[list->count] = (struct callsite_row){.mean_lifetime_ns = -1};
    return &list->rows[list->count++];
}

static void read_location(struct callsite_row *row, struct cursor *cursor, int column)
{
    row->function = memory_copy_text(cursor_text(cursor, column));
    row->file = memory_copy_text(cursor_text(cursor, column + 1));
    row->line = cursor_integer(cursor, column + 2);
    row->module = memory_copy_text(cursor_text(cursor, column + 3));
    row->is_python = cursor_integer(cursor, column + 4) != 0;
}

void callsite_location_load(struct callsite_row *row, struct database *database)
{
    struct cursor cursor;

    cursor_open(
        &cursor, database,
        "SELECT function, file, line, module, is_python FROM callsite_total WHERE callsite_id = ?1 LIMIT 1");
    cursor_bind_integer(&cursor, 1, row->id);
    if (cursor_next(&cursor)) {
        read_location(row, &cursor, 0);
    }
    cursor_close(&cursor);
}

void callsite_location_free(struct callsite_row *row)
{
    free(row->function);
    free(row->file);
    free(row->module);
}

static void read_sums(struct callsite_list *list, struct cursor *cursor)
{
    if (cursor_next(cursor)) {
        list->count_all = cursor_integer(cursor, 0);
        list->sum_bytes = cursor_integer(cursor, 1);
        list->sum_allocations = cursor_integer(cursor, 2);
    }
    cursor_close(cursor);
}

void callsite_list_load(struct callsite_list *list, struct database *database, enum callsite_rank rank,
                        const char *domain, int64_t top)
{
    struct cursor cursor;

    *list = (struct callsite_list){0};
    cursor_open(&cursor, database, ranks[rank].sql);
    cursor_bind_text(&cursor, 1, domain);
    cursor_bind_integer(&cursor, 2, top);
    while (cursor_next(&cursor)) {
        struct callsite_row *row = add_row(list);
        int64_t *const figures[] = {
            &row->id,
            &row->allocations,
            &row->frees,
            &row->bytes,
            &row->live_allocations,
            &row->live_bytes,
            &row->peak_allocations,
            &row->peak_bytes,
            &row->temporary,
            &row->mean_lifetime_ns,
        };
        int column = 0;

        for (; column < (int)(sizeof(figures) / sizeof(figures[0])); column++) {
            *figures[column] = cursor_integer(&cursor, column);
        }
        read_location(row, &cursor, column);
    }
    cursor_close(&cursor);

    cursor_open(&cursor, database, ranks[rank].sum_sql);
    cursor_bind_text(&cursor, 1, domain);
    read_sums(list, &cursor);
}

static void bind_process(struct cursor *cursor, const char *domain, int64_t process_id, int64_t seq)
{
    cursor_bind_text(cursor, 1, domain);
    cursor_bind_integer(cursor, 2, process_id);
    cursor_bind_integer(cursor, 3, seq);
}

void callsite_list_load_process(struct callsite_list *list, struct database *database,
                                enum callsite_rank rank, const char *domain, int64_t process_id, int64_t seq,
                                int64_t top)
{
    struct cursor cursor;

    *list = (struct callsite_list){0};
    cursor_open(&cursor, database, seq < 0 ? leak_sql : process_sql);
    bind_process(&cursor, domain, process_id, seq);
    cursor_bind_integer(&cursor, 4, top);
    while (cursor_next(&cursor)) {
        struct callsite_row *row = add_row(list);
        int64_t allocations = cursor_integer(&cursor, 1);
        int64_t bytes = cursor_integer(&cursor, 2);

        row->id = cursor_integer(&cursor, 0);
        if (rank == CALLSITE_BY_PEAK) {
            row->peak_allocations = allocations;
            row->peak_bytes = bytes;
        } else {
            row->live_allocations = allocations;
            row->live_bytes = bytes;
        }
        read_location(row, &cursor, 3);
    }
    cursor_close(&cursor);

    cursor_open(&cursor, database, seq < 0 ? leak_sum_sql : process_sum_sql);
    bind_process(&cursor, domain, process_id, seq);
    read_sums(list, &cursor);
}

void callsite_list_free(struct callsite_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        callsite_location_free(&list->rows[i]);
    }
    free(list->rows);
    *list = (struct callsite_list){0};
}

/* ---- printing ---- */

#define FRAMES_TEXT 6

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

static void print_figures(FILE *out, const struct callsite_row *row, enum callsite_rank rank, size_t number,
                          int64_t whole, bool is_above)
{
    int64_t bytes = callsite_rank_bytes(row, rank);
    int64_t allocations = callsite_rank_allocations(row, rank);

    if (rank == CALLSITE_BY_TEMPORARY) {
        fprintf(out, "%4zu.  %s of %s allocations (%s), mean %s", number, format_count(allocations).text,
                format_count(row->allocations).text, format_share(allocations, row->allocations).text,
                format_bytes(row->allocations > 0 ? row->bytes / row->allocations : 0).text);
    } else {
        int64_t part = rank == CALLSITE_BY_COUNT ? allocations : bytes;

        fprintf(out, "%4zu.  %s, %s; %s allocation%s", number, format_bytes_exact(bytes).text,
                format_share(part, whole).text, format_count(allocations).text, allocations == 1 ? "" : "s");
        if (allocations > 1 && rank != CALLSITE_BY_LIFETIME) {
            fprintf(out, ", mean %s", format_bytes(bytes / allocations).text);
        }
        if (rank == CALLSITE_BY_LIFETIME) {
            fprintf(out, ", lived %s", format_duration(row->mean_lifetime_ns).text);
        }
    }
    fprintf(out, "  [#%" PRId64 "%s]\n", row->id, is_above ? " above" : "");
}

void callsite_stack_print(FILE *out, struct database *database, const struct callsite_row *row,
                          int64_t frames)
{
    const struct stack_frame frame = {
        .function = row->function,
        .file = row->file,
        .line = row->line,
        .module = row->module,
        .is_python = row->is_python,
        .pc = -1,
    };
    struct stack stack;

    if (row->id == 0) {
        fputs("       (no stack was recorded)\n", out);
    } else if (frames == 0 && row->function != NULL) {
        stack_print_frame(out, "       ", &frame, 1);
    } else {
        stack_load(&stack, database, row->id);
        if (frames == 0) {
            stack_print_unnamed(out, &stack, row);
        } else {
            stack_print(out, &stack, row, frames);
        }
        stack_free(&stack);
    }
}

void callsite_list_print(FILE *out, struct database *database, const struct callsite_list *list,
                         enum callsite_rank rank, const struct callsite_options *options,
                         struct callsite_shown *shown)
{
    int64_t frames = options->frames < 0 ? FRAMES_TEXT : options->frames;
    int64_t whole = rank == CALLSITE_BY_COUNT ? list->sum_allocations : list->sum_bytes;

    for (size_t i = 0; i < list->count; i++) {
        const struct callsite_row *row = &list->rows[i];
        bool with_stack = row->id != 0 && frames > 0 && (options->stacks < 0 || (int64_t)i < options->stacks);
        bool is_above = with_stack && mark_shown(shown, row->id);

        print_figures(out, row, rank, i + 1, whole, is_above);
        callsite_stack_print(out, database, row, with_stack && !is_above ? frames : 0);
    }
    if ((int64_t)list->count < list->count_all) {
        int64_t rest = list->count_all - (int64_t)list->count;

        fprintf(out, "       and %s more call site%s\n", format_count(rest).text, rest == 1 ? "" : "s");
    }
}

static void add_figures(struct cJSON *object, const struct callsite_row *row, enum callsite_rank rank,
                        bool with_totals)
{
    if (!with_totals) {
        json_integer(object, "bytes", callsite_rank_bytes(row, rank));
        json_integer(object, "allocations", callsite_rank_allocations(row, rank));
        return;
    }
    json_integer(object, "bytes", row->bytes);
    json_integer(object, "allocations", row->allocations);
    json_integer(object, "frees", row->frees);
    json_integer(object, "live_bytes", row->live_bytes);
    json_integer(object, "live_allocations", row->live_allocations);
    json_integer(object, "peak_bytes", row->peak_bytes);
    json_integer(object, "peak_allocations", row->peak_allocations);
    json_integer(object, "temporary", row->temporary);
    json_integer_or_null(object, "mean_lifetime_ns", row->mean_lifetime_ns);
}

struct cJSON *callsite_list_json(struct database *database, const struct callsite_list *list,
                                 enum callsite_rank rank, const struct callsite_options *options,
                                 bool with_totals)
{
    struct cJSON *array = json_array();

    for (size_t i = 0; i < list->count; i++) {
        const struct callsite_row *row = &list->rows[i];
        struct cJSON *object = json_object();
        struct stack stack;

        json_integer(object, "callsite_id", row->id);
        add_figures(object, row, rank, with_totals);
        json_text(object, "function", row->function);
        json_text(object, "file", row->file);
        json_integer_or_null(object, "line", row->line > 0 ? row->line : -1);
        json_text(object, "module", row->module);
        json_bool(object, "is_python", row->is_python);
        stack_load(&stack, database, row->id);
        json_add(object, "frames", stack_json(&stack, options->frames));
        stack_free(&stack);
        json_append(array, object);
    }
    return array;
}

void callsite_location_csv(FILE *out, const struct callsite_row *row)
{
    csv_field(out, row->function);
    fputc(',', out);
    csv_field(out, row->file);
    if (row->line > 0) {
        fprintf(out, ",%" PRId64 ",", row->line);
    } else {
        fputs(",,", out);
    }
    csv_field(out, row->module);
}

void callsite_list_csv(FILE *out, const struct callsite_list *list, enum callsite_rank rank,
                       const char *domain)
{
    fputs("callsite_id,domain,bytes,allocations,function,file,line,module\n", out);
    for (size_t i = 0; i < list->count; i++) {
        const struct callsite_row *row = &list->rows[i];

        fprintf(out, "%" PRId64 ",", row->id);
        csv_field(out, domain);
        fprintf(out, ",%" PRId64 ",%" PRId64 ",", callsite_rank_bytes(row, rank),
                callsite_rank_allocations(row, rank));
        callsite_location_csv(out, row);
        fputc('\n', out);
    }
}
