/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A comparison as text: the verdict, what each side says of itself and of its losses, figures by kind and
 * field, the list of list.c, and what differs of processes and threads. At most 100 columns wide.
 */
#include "analysis/output/format.h"
#include "analysis/output/table.h"
#include "analysis/query/db.h"
#include "analysis/query/diff/diff.h"
#include "analysis/query/loss.h"

#include <inttypes.h>
#include <stdio.h>

#define LINE_COLUMNS 98U
#define CELL_BYTES 512

static const char side_names[DIFF_SIDES] = {'A', 'B'};

static const char *plural(int64_t count, const char *one, const char *more)
{
    return count == 1 ? one : more;
}

/* ---- the verdict, and both sides ---- */

static void print_verdict(FILE *out, const struct diff *diff)
{
    struct diff_totals all = diff_result_totals(diff);
    int64_t unkeyed = diff_result_unkeyed(&diff->traces[DIFF_A]) + diff_result_unkeyed(&diff->traces[DIFF_B]);
    int64_t rings = diff_rings_used(diff);

    if (diff_result_is_equal(diff)) {
        fprintf(out, "equal: %s event%s in %s ring%s\n", format_count(all.both).text,
                plural(all.both, "", "s"), format_count(rings).text, plural(rings, "", "s"));
        return;
    }
    fprintf(out, "differ: %s event%s only in A", format_count(all.alone[DIFF_A]).text,
            plural(all.alone[DIFF_A], "", "s"));
    fprintf(out, ", %s only in B", format_count(all.alone[DIFF_B]).text);
    fprintf(out, "; of %s in both %s %s\n", format_count(all.both).text, format_count(all.differing).text,
            plural(all.differing, "differs", "differ"));
    if (unkeyed > 0) {
        fprintf(out, "        %s could not be compared\n", format_count(unkeyed).text);
    }
    if (diff->with_tables && diff->remarks.count > 0) {
        fprintf(out, "        processes and threads differ\n");
    }
}

static void print_unkeyed(FILE *out, int64_t count, const char *why)
{
    if (count > 0) {
        fprintf(out, "            %s not compared: %s\n", format_count(count).text, why);
    }
}

static void print_side(FILE *out, const struct diff *diff, enum diff_side side)
{
    const struct diff_trace *trace = &diff->traces[side];
    struct report_loss loss;
    char path[CELL_BYTES];

    format_tail(path, sizeof(path), database_path(trace->database), 60);
    fprintf(out, "  %-9c %s: %s event%s\n", side_names[side], path, format_count(trace->events).text,
            plural(trace->events, "", "s"));
    report_loss_load(&loss, trace->database);
    fputs("            ", out);
    report_loss_print(out, trace->database, &loss);
    if (trace->lost_rows > 0) {
        fprintf(out, "            %s event%s tell%s of %s that the program dropped\n",
                format_count(trace->lost_rows).text, plural(trace->lost_rows, "", "s"),
                plural(trace->lost_rows, "s", ""), format_count(trace->lost_events).text);
    }
    if (trace->gap_rows > 0) {
        fprintf(out, "            %s row%s without a number stand%s for %s missing events\n",
                format_count(trace->gap_rows).text, plural(trace->gap_rows, "", "s"),
                plural(trace->gap_rows, "s", ""), format_count(trace->gap_events).text);
    }
    print_unkeyed(out, trace->without_number, "they have no number (ring_seq is NULL)");
    print_unkeyed(out, trace->without_thread, "the table thread has no row for them");
    print_unkeyed(out, trace->out_of_order, "their numbers do not grow with seq");
}

/* ---- figures ---- */

static void add_count(struct table *table, int64_t count)
{
    table_add(table, format_count(count).text);
}

static void print_kinds(FILE *out, const struct diff *diff)
{
    static const struct table_column columns[] = {
        {"kind", false}, {"in both", true}, {"only in A", true}, {"only in B", true}, {"differing", true},
    };
    struct table table;

    table_init(&table, columns, sizeof(columns) / sizeof(columns[0]));
    table.indent = "  ";
    for (uint32_t kind = 0; kind < DIFF_KINDS; kind++) {
        const struct diff_totals *row = &diff->kinds[kind];

        if (row->both + row->alone[DIFF_A] + row->alone[DIFF_B] > 0) {
            table_add(&table, diff_kind_name(kind));
            add_count(&table, row->both);
            add_count(&table, row->alone[DIFF_A]);
            add_count(&table, row->alone[DIFF_B]);
            add_count(&table, row->differing);
        }
    }
    if (table.cell_count > 0) {
        fputc('\n', out);
        table_print(&table, out, true);
    }
    table_free(&table);
}

static void print_fields(FILE *out, const struct diff *diff)
{
    static const struct table_column columns[] = {{"field", false}, {"differs in events", true}};
    struct table table;

    table_init(&table, columns, sizeof(columns) / sizeof(columns[0]));
    table.indent = "  ";
    for (unsigned field = 0; field < DIFF_FIELD_LIMIT; field++) {
        if (diff->fields[field] > 0) {
            table_add(&table, diff_field_name((enum diff_field)field));
            add_count(&table, diff->fields[field]);
        }
    }
    if (table.cell_count > 0) {
        fputc('\n', out);
        table_print(&table, out, true);
    }
    table_free(&table);
    if (diff->site_pairs_odd > 0) {
        fprintf(out, "  (%s call site%s with other frames, %s with the same)\n",
                format_count(diff->site_pairs_odd).text, plural(diff->site_pairs_odd, "", "s"),
                format_count(diff->site_pairs).text);
    }
}

/* ---- processes and threads ---- */

static void print_remark(FILE *out, const struct diff_remark *remark)
{
    const char *values[DIFF_SIDES];
    char ring[32] = "";
    char place[128];
    size_t columns;

    for (int side = 0; side < DIFF_SIDES; side++) {
        values[side] = remark->values[side] != NULL ? remark->values[side] : "NULL";
    }
    if (remark->ring >= 0) {
        snprintf(ring, sizeof(ring), " ring %" PRId64, remark->ring);
    }
    snprintf(place, sizeof(place), "  process %" PRId64 "%s", remark->process_id, ring);
    if (remark->column == NULL) {
        enum diff_side side = remark->values[DIFF_A] != NULL ? DIFF_A : DIFF_B;

        fprintf(out, "%s (pid %.20s): only in %c\n", place, values[side], side_names[side]);
        return;
    }
    columns = format_width(place) + format_width(remark->column) + format_width(values[DIFF_A]) +
              format_width(values[DIFF_B]);
    if (columns + 16 <= LINE_COLUMNS) {
        fprintf(out, "%s: %s ", place, remark->column);
        format_print_safe(out, values[DIFF_A]);
        fputs(" in A, ", out);
        format_print_safe(out, values[DIFF_B]);
        fputs(" in B\n", out);
        return;
    }
    fprintf(out, "%s: %s\n", place, remark->column);
    for (int side = 0; side < DIFF_SIDES; side++) {
        char cell[CELL_BYTES];

        format_tail(cell, sizeof(cell), values[side], LINE_COLUMNS - 8);
        fprintf(out, "    %c  %s\n", side_names[side], cell);
    }
}

static void print_remarks(FILE *out, const struct diff *diff)
{
    size_t count = diff->remarks.count;
    size_t shown = count < diff->entry_limit ? count : diff->entry_limit;

    if (count == 0) {
        return;
    }
    fprintf(out, "\n%s difference%s of processes and threads", format_count((int64_t)count).text,
            count == 1 ? "" : "s");
    if (shown < count) {
        fprintf(out, ", the first %s", format_count((int64_t)shown).text);
    }
    fputs(diff->with_tables ? "\n" : " (no part of the verdict without --tables)\n", out);
    for (size_t i = 0; i < shown; i++) {
        print_remark(out, &diff->remarks.items[i]);
    }
}

void diff_print_text(FILE *out, const struct diff *diff)
{
    print_verdict(out, diff);
    print_side(out, diff, DIFF_A);
    print_side(out, diff, DIFF_B);
    print_kinds(out, diff);
    print_fields(out, diff);
    diff_print_list(out, diff);
    print_remarks(out, diff);
}
