/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranked lists of call sites, as text, JSON and CSV: what report, leaks and peak show. An entry is a line of
 * figures and its stack. A report names the same call site in several lists: its stack is shown once, then
 * referred to.
 */
#include "analysis/query/report/report.h"

#include "analysis/output/format.h"
#include "analysis/output/json.h"
#include "analysis/output/memory.h"
#include "analysis/output/table.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FRAMES_TEXT 6

void callsite_seen_free(struct callsite_seen *seen)
{
    free(seen->ids);
    *seen = (struct callsite_seen){0};
}

/* True if it was there before. Lists are short, so a walk is enough. */
static bool see(struct callsite_seen *seen, int64_t id)
{
    for (size_t i = 0; i < seen->count; i++) {
        if (seen->ids[i] == id) {
            return true;
        }
    }
    if (seen->count == seen->capacity) {
        seen->capacity = seen->capacity * 2 + 16;
        seen->ids = memory_resize(seen->ids, seen->capacity * sizeof(seen->ids[0]));
    }
    seen->ids[seen->count++] = id;
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

static void print_place(FILE *out, struct database *database, const struct callsite_row *row)
{
    const struct stack_frame place = {
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
    } else if (row->function != NULL) {
        stack_print_place(out, "       ", &place, 1);
    } else {
        stack_load(&stack, database, row->id);
        stack_print_unnamed(out, &stack, row);
        stack_free(&stack);
    }
}

void callsite_list_print(FILE *out, struct database *database, const struct callsite_list *list,
                         enum callsite_rank rank, const struct callsite_options *options,
                         struct callsite_seen *seen)
{
    int64_t frames = options->frames < 0 ? FRAMES_TEXT : options->frames;
    int64_t whole = rank == CALLSITE_BY_COUNT ? list->sum_allocations : list->sum_bytes;

    for (size_t i = 0; i < list->count; i++) {
        const struct callsite_row *row = &list->rows[i];
        bool with_stack = row->id != 0 && frames > 0 && (options->stacks < 0 || (int64_t)i < options->stacks);
        bool is_above = with_stack && see(seen, row->id);

        print_figures(out, row, rank, i + 1, whole, is_above);
        if (with_stack && !is_above) {
            struct stack stack;

            stack_load(&stack, database, row->id);
            stack_print(out, &stack, row, frames);
            stack_free(&stack);
        } else {
            print_place(out, database, row);
        }
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

static void csv_field(FILE *out, const char *text)
{
    if (text != NULL) {
        csv_text(out, text, strlen(text));
    }
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
        csv_field(out, row->function);
        fputc(',', out);
        csv_field(out, row->file);
        if (row->line > 0) {
            fprintf(out, ",%" PRId64 ",", row->line);
        } else {
            fputs(",,", out);
        }
        csv_field(out, row->module);
        fputc('\n', out);
    }
}
