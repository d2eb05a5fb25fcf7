/* SPDX-License-Identifier: Apache-2.0 */
/*
 * As text, at most 100 columns wide: the verdict, both sides with their losses, figures by kind and field, the first
 * differences, and what differs of processes and threads. Of two stacks the first frame that differs is printed. As
 * JSON the same with whole stacks, numbers instead of texts but for kinds and causes; keys are stable: they may be
 * added to, never renamed; the manual page lists them.
 */
#include "analysis/report/diff_events_print.h"

#include "analysis/base/number_format.h"
#include "analysis/base/json_writer.h"
#include "analysis/base/table.h"
#include "analysis/query/database.h"
#include "analysis/report/diff_events.h"
#include "analysis/query/loss_note.h"
#include "analysis/query/callsite_query.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LINE_COLUMNS 98U
#define VALUE_COLUMNS 34U
#define CELL_BYTES 512

/* ---- events that only one side has ---- */

/* Go on in the line, or in a new one if it is full. */
static void put_piece(FILE *out, size_t *column, const char *piece)
{
    if (*column + 1 + format_width(piece) > LINE_COLUMNS) {
        fprintf(out, "\n     ");
        *column = 5;
    }
    fprintf(out, " %s", piece);
    *column += 1 + format_width(piece);
}

static void print_alone(FILE *out, const struct diff_entry *entry, size_t column)
{
    int64_t events = entry->last - entry->first + 1;
    char piece[160];
    if (events > 1) {
        snprintf(piece, sizeof(piece), "to %s", format_count(entry->last).text);
        put_piece(out, &column, piece);
    }
    put_piece(out, &column, entry->what == DIFF_ONLY_A ? "only in A" : "only in B");
    if (events > 1) {
        snprintf(piece, sizeof(piece), "(%s events:", format_count(events).text);
        put_piece(out, &column, piece);
    }
    for (size_t i = 0; i < entry->kind_count; i++) {
        const struct diff_kind_count *kind = &entry->kinds[i];
        if (events > 1) {
            snprintf(piece, sizeof(piece), "%s %s%s", diff_kind_name(kind->kind), format_count(kind->events).text,
                     i + 1 == entry->kind_count ? ")" : ",");
        } else {
            snprintf(piece, sizeof(piece), "(%s)", diff_kind_name(kind->kind));
        }
        put_piece(out, &column, piece);
    }
    fputc('\n', out);
}

/* ---- events that differ ---- */

static void diff_events_print_add_row(struct table *table, const char *field, const char *a, const char *b,
                                      const char *note)
{
    table_add(table, field);
    char cell[CELL_BYTES];
    format_tail(cell, sizeof(cell), a != NULL ? a : "NULL", VALUE_COLUMNS);
    table_add(table, cell);
    format_tail(cell, sizeof(cell), b != NULL ? b : "NULL", VALUE_COLUMNS);
    char last[CELL_BYTES + sizeof(struct diff_value)];
    snprintf(last, sizeof(last), "%s%s", cell, note);
    table_add(table, last);
}

static struct diff_value number_text(int64_t number)
{
    struct diff_value result;
    snprintf(result.text, sizeof(result.text), "%" PRId64, number);
    return result;
}

static void add_frame_row(struct table *table, size_t depth, const char *what, const char *a, const char *b)
{
    char field[64];
    if (a == NULL || b == NULL ? a != b : strcmp(a, b) != 0) {
        snprintf(field, sizeof(field), "frame %zu %s", depth, what);
        diff_events_print_add_row(table, field, a, b, "");
    }
}

/* What differs between two frames; nothing if they are equal. */
static void add_frame_rows(struct table *table, size_t depth, const struct stack_frame *a, const struct stack_frame *b)
{
    char pcs[DIFF_SIDES][32] = {"NULL", "NULL"};
    if (a->pc >= 0) {
        snprintf(pcs[DIFF_A], sizeof(pcs[DIFF_A]), "0x%" PRIx64, (uint64_t)a->pc);
    }
    if (b->pc >= 0) {
        snprintf(pcs[DIFF_B], sizeof(pcs[DIFF_B]), "0x%" PRIx64, (uint64_t)b->pc);
    }
    add_frame_row(table, depth, "function", a->function, b->function);
    add_frame_row(table, depth, "file", a->file, b->file);
    add_frame_row(table, depth, "line", number_text(a->line).text, number_text(b->line).text);
    add_frame_row(table, depth, "module", a->module, b->module);
    add_frame_row(table, depth, "pc", pcs[DIFF_A], pcs[DIFF_B]);
    add_frame_row(table, depth, "is_python", a->is_python ? "1" : "0", b->is_python ? "1" : "0");
    add_frame_row(table, depth, "is_inlined", a->is_inlined ? "1" : "0", b->is_inlined ? "1" : "0");
}

static void add_stack_rows(struct table *table, const struct diff *diff, const struct diff_detail *detail)
{
    struct stack stacks[DIFF_SIDES];
    const struct stack *a = &stacks[DIFF_A];
    const struct stack *b = &stacks[DIFF_B];
    size_t cells = table->cell_count;
    for (int side = 0; side < DIFF_SIDES; side++) {
        stack_load(&stacks[side], diff->traces[side].database, detail->events[side].values[DIFF_FIELD_CALLSITE_ID]);
    }
    for (size_t i = 0; i < a->count && i < b->count && table->cell_count == cells; i++) {
        add_frame_rows(table, i, &a->frames[i], &b->frames[i]);
    }
    if (a->count != b->count || table->cell_count == cells) {
        diff_events_print_add_row(table, "frames", number_text((int64_t)a->count).text,
                                  number_text((int64_t)b->count).text, "");
    }
    stack_free(&stacks[DIFF_A]);
    stack_free(&stacks[DIFF_B]);
}

/* Which pair contradicts this one; to be put behind the values. */
static struct diff_value pair_note(const struct diff_detail *detail, enum diff_field field)
{
    const int64_t *partners = field == DIFF_FIELD_ID ? detail->id_partners : detail->callsite_partners;
    struct diff_value note = {""};
    if (field != DIFF_FIELD_ID && field != DIFF_FIELD_CALLSITE_ID) {
        return note;
    }
    if (partners[DIFF_A] != 0) {
        snprintf(note.text, sizeof(note.text), "  (%.20s in A was %.20s in B before)",
                 number_text(detail->events[DIFF_A].values[field]).text, number_text(partners[DIFF_A]).text);
    } else if (partners[DIFF_B] != 0) {
        snprintf(note.text, sizeof(note.text), "  (%.20s in B was %.20s in A before)",
                 number_text(detail->events[DIFF_B].values[field]).text, number_text(partners[DIFF_B]).text);
    }
    return note;
}

static void print_differs(FILE *out, const struct diff *diff, const struct diff_entry *entry)
{
    static const struct table_column columns[] = {{"", false}, {"A", false}, {"B", false}};
    const struct diff_event *a = &entry->detail->events[DIFF_A];
    const struct diff_event *b = &entry->detail->events[DIFF_B];
    fprintf(out, " %s differs (row %s in A", diff_value_text(a, DIFF_FIELD_KIND).text, format_count(a->seq).text);
    fprintf(out, ", %s in B)\n", format_count(b->seq).text);
    struct table table;
    table_init(&table, columns, sizeof(columns) / sizeof(columns[0]));
    table.indent = "    ";
    for (unsigned i = 0; i < DIFF_COLUMNS; i++) {
        enum diff_field field = (enum diff_field)i;
        if ((entry->detail->fields >> i & 1U) != 0) {
            diff_events_print_add_row(&table, diff_field_name(field), diff_value_text(a, field).text,
                                      diff_value_text(b, field).text, pair_note(entry->detail, field).text);
        }
    }
    if ((entry->detail->fields >> DIFF_FIELD_FRAMES & 1U) != 0) {
        add_stack_rows(&table, diff, entry->detail);
    }
    table_print(&table, out, false);
    table_free(&table);
}

static void print_list(FILE *out, const struct diff *diff)
{
    if (diff->entries_all == 0) {
        return;
    }
    fprintf(out, "\n%s difference%s", format_count(diff->entries_all).text, diff->entries_all == 1 ? "" : "s");
    if ((int64_t)diff->entry_count < diff->entries_all) {
        fprintf(out, ", the first %s", format_count((int64_t)diff->entry_count).text);
    }
    fputc('\n', out);
    for (size_t i = 0; i < diff->entry_count; i++) {
        const struct diff_entry *entry = &diff->entries[i];
        int column = fprintf(out, "  process %" PRId64 " ring %" PRId64 ": %s", entry->process_id, entry->ring,
                             format_count(entry->first).text);
        if (entry->what == DIFF_DIFFERS) {
            print_differs(out, diff, entry);
        } else {
            print_alone(out, entry, column > 0 ? (size_t)column : 0);
        }
    }
}

static const char side_names[DIFF_SIDES] = {'A', 'B'};

/* ---- the verdict, and both sides ---- */

static void print_verdict(FILE *out, const struct diff *diff)
{
    struct diff_totals all = diff_totals_all(diff);
    int64_t unkeyed = diff_unkeyed(&diff->traces[DIFF_A]) + diff_unkeyed(&diff->traces[DIFF_B]);
    int64_t rings = diff->rings;
    if (diff_is_equal(diff)) {
        fprintf(out, "equal: %s event%s in %s ring%s\n", format_count(all.both).text, format_plural(all.both, "", "s"),
                format_count(rings).text, format_plural(rings, "", "s"));
        return;
    }
    fprintf(out, "differ: %s event%s only in A", format_count(all.alone[DIFF_A]).text,
            format_plural(all.alone[DIFF_A], "", "s"));
    fprintf(out, ", %s only in B", format_count(all.alone[DIFF_B]).text);
    fprintf(out, "; of %s in both %s %s\n", format_count(all.both).text, format_count(all.differing).text,
            format_plural(all.differing, "differs", "differ"));
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

static void diff_events_print_side(FILE *out, const struct diff *diff, enum diff_side side)
{
    const struct diff_trace *trace = &diff->traces[side];
    char path[CELL_BYTES];
    format_tail(path, sizeof(path), database_path(trace->database), 60);
    fprintf(out, "  %-9c %s: %s event%s\n", side_names[side], path, format_count(trace->events).text,
            format_plural(trace->events, "", "s"));
    struct report_loss loss;
    report_loss_load(&loss, trace->database);
    fputs("            ", out);
    report_loss_print(out, trace->database, &loss);
    if (trace->lost_rows > 0) {
        fprintf(out, "            %s event%s stand%s for %s that the program dropped\n",
                format_count(trace->lost_rows).text, format_plural(trace->lost_rows, "", "s"),
                format_plural(trace->lost_rows, "s", ""), format_count(trace->lost_events).text);
    }
    if (trace->gap_rows > 0) {
        fprintf(out, "            %s row%s without a number stand%s for %s missing events\n",
                format_count(trace->gap_rows).text, format_plural(trace->gap_rows, "", "s"),
                format_plural(trace->gap_rows, "s", ""), format_count(trace->gap_events).text);
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
    if (diff->callsite_pairs_odd > 0) {
        fprintf(out, "  (%s call site%s with other frames, %s with the same)\n",
                format_count(diff->callsite_pairs_odd).text, format_plural(diff->callsite_pairs_odd, "", "s"),
                format_count(diff->callsite_pairs).text);
    }
}

/* ---- processes and threads ---- */

static void diff_events_print_remark(FILE *out, const struct diff_remark *remark)
{
    const char *values[DIFF_SIDES];
    for (int side = 0; side < DIFF_SIDES; side++) {
        values[side] = remark->values[side] != NULL ? remark->values[side] : "NULL";
    }
    char ring[32] = "";
    if (remark->ring >= 0) {
        snprintf(ring, sizeof(ring), " ring %" PRId64, remark->ring);
    }
    char location[128];
    snprintf(location, sizeof(location), "  process %" PRId64 "%s", remark->process_id, ring);
    if (remark->column == NULL) {
        enum diff_side side = remark->values[DIFF_A] != NULL ? DIFF_A : DIFF_B;
        fprintf(out, "%s (pid %.20s): only in %c\n", location, values[side], side_names[side]);
        return;
    }
    size_t columns = format_width(location) + format_width(remark->column) + format_width(values[DIFF_A]) +
                     format_width(values[DIFF_B]);
    if (columns + 16 <= LINE_COLUMNS) {
        fprintf(out, "%s: %s ", location, remark->column);
        format_print_safe(out, values[DIFF_A]);
        fputs(" in A, ", out);
        format_print_safe(out, values[DIFF_B]);
        fputs(" in B\n", out);
        return;
    }
    fprintf(out, "%s: %s\n", location, remark->column);
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
        diff_events_print_remark(out, &diff->remarks.items[i]);
    }
}

void diff_events_text(FILE *out, const struct diff *diff)
{
    print_verdict(out, diff);
    diff_events_print_side(out, diff, DIFF_A);
    diff_events_print_side(out, diff, DIFF_B);
    print_kinds(out, diff);
    print_fields(out, diff);
    print_list(out, diff);
    print_remarks(out, diff);
}

/* ---- JSON ---- */

static struct cJSON *trace_json(const struct diff_trace *trace)
{
    struct cJSON *object = json_object();
    json_text(object, "database", database_path(trace->database));
    json_integer(object, "events", trace->events);
    json_integer(object, "lost_rows", trace->lost_rows);
    json_integer(object, "lost_events", trace->lost_events);
    json_integer(object, "gap_rows", trace->gap_rows);
    json_integer(object, "gap_events", trace->gap_events);
    json_integer(object, "without_number", trace->without_number);
    json_integer(object, "without_thread", trace->without_thread);
    json_integer(object, "out_of_order", trace->out_of_order);
    struct report_loss loss;
    report_loss_load(&loss, trace->database);
    json_add(object, "loss", report_loss_json(trace->database, &loss));
    return object;
}

static void add_totals(struct cJSON *object, const struct diff_totals *totals)
{
    json_integer(object, "in_both", totals->both);
    json_integer(object, "only_in_a", totals->alone[DIFF_A]);
    json_integer(object, "only_in_b", totals->alone[DIFF_B]);
    json_integer(object, "differing", totals->differing);
}

static struct cJSON *kinds_json(const struct diff *diff)
{
    struct cJSON *array = json_array();
    for (uint32_t kind = 0; kind < DIFF_KINDS; kind++) {
        const struct diff_totals *totals = &diff->kinds[kind];
        if (totals->both + totals->alone[DIFF_A] + totals->alone[DIFF_B] > 0) {
            struct cJSON *object = json_object();
            json_text(object, "kind", diff_kind_name(kind));
            add_totals(object, totals);
            json_append(array, object);
        }
    }
    return array;
}

static struct cJSON *fields_json(const struct diff *diff)
{
    struct cJSON *object = json_object();
    for (unsigned field = 0; field < DIFF_FIELD_LIMIT; field++) {
        if (diff->fields[field] > 0) {
            json_integer(object, diff_field_name((enum diff_field)field), diff->fields[field]);
        }
    }
    return object;
}

static void diff_events_print_add_value(struct cJSON *object, const char *key, const struct diff_event *event,
                                        enum diff_field field)
{
    const char *name = diff_value_name(event, field);
    if ((event->nulls >> field & 1U) != 0) {
        json_add(object, key, json_null_value());
    } else if (name != NULL) {
        json_text(object, key, name);
    } else {
        json_integer(object, key, event->values[field]);
    }
}

static struct cJSON *field_json(const struct diff *diff, const struct diff_detail *detail, enum diff_field field)
{
    static const char *const keys[DIFF_SIDES] = {"a", "b"};
    static const char *const partner_keys[DIFF_SIDES] = {"a_belongs_to", "b_belongs_to"};
    struct cJSON *object = json_object();
    json_text(object, "field", diff_field_name(field));
    for (int side = 0; side < DIFF_SIDES; side++) {
        if (field == DIFF_FIELD_FRAMES) {
            struct stack stack;
            stack_load(&stack, diff->traces[side].database, detail->events[side].values[DIFF_FIELD_CALLSITE_ID]);
            json_add(object, keys[side], stack_json(&stack, -1));
            stack_free(&stack);
        } else {
            diff_events_print_add_value(object, keys[side], &detail->events[side], field);
        }
    }
    for (int side = 0; side < DIFF_SIDES && (field == DIFF_FIELD_ID || field == DIFF_FIELD_CALLSITE_ID); side++) {
        int64_t partner = field == DIFF_FIELD_ID ? detail->id_partners[side] : detail->callsite_partners[side];
        json_integer_or_null(object, partner_keys[side], partner != 0 ? partner : -1);
    }
    return object;
}

static void add_detail(struct cJSON *object, const struct diff *diff, const struct diff_detail *detail)
{
    struct cJSON *fields = json_array();
    diff_events_print_add_value(object, "kind", &detail->events[DIFF_A], DIFF_FIELD_KIND);
    json_integer(object, "seq_a", detail->events[DIFF_A].seq);
    json_integer(object, "seq_b", detail->events[DIFF_B].seq);
    for (unsigned field = 0; field < DIFF_FIELD_LIMIT; field++) {
        if ((detail->fields >> field & 1U) != 0) {
            json_append(fields, field_json(diff, detail, (enum diff_field)field));
        }
    }
    json_add(object, "fields", fields);
}

static struct cJSON *entry_json(const struct diff *diff, const struct diff_entry *entry)
{
    static const char *const whats[] = {
        [DIFF_ONLY_A] = "only_in_a", [DIFF_ONLY_B] = "only_in_b", [DIFF_DIFFERS] = "differing"};
    struct cJSON *object = json_object();
    json_text(object, "what", whats[entry->what]);
    json_integer(object, "process_id", entry->process_id);
    json_integer(object, "ring", entry->ring);
    json_integer(object, "first", entry->first);
    json_integer(object, "last", entry->last);
    if (entry->what == DIFF_DIFFERS) {
        add_detail(object, diff, entry->detail);
    } else {
        struct cJSON *kinds = json_object();
        json_integer(object, "seq", entry->seq);
        for (size_t i = 0; i < entry->kind_count; i++) {
            json_integer(kinds, diff_kind_name(entry->kinds[i].kind), entry->kinds[i].events);
        }
        json_add(object, "kinds", kinds);
    }
    return object;
}

static struct cJSON *remark_json(const struct diff_remark *remark)
{
    struct cJSON *object = json_object();
    json_text(object, "table", remark->table);
    json_integer(object, "process_id", remark->process_id);
    json_integer_or_null(object, "ring", remark->ring);
    if (remark->column == NULL) {
        json_text(object, "only_in", remark->values[DIFF_A] != NULL ? "a" : "b");
        return object;
    }
    json_text(object, "column", remark->column);
    json_text(object, "a", remark->values[DIFF_A]);
    json_text(object, "b", remark->values[DIFF_B]);
    return object;
}

static struct cJSON *remarks_json(const struct diff *diff)
{
    struct cJSON *array = json_array();
    for (size_t i = 0; i < diff->remarks.count && i < diff->entry_limit; i++) {
        json_append(array, remark_json(&diff->remarks.items[i]));
    }
    return array;
}

void diff_events_json(FILE *out, const struct diff *diff)
{
    static const char *const runs[] = {
        [DIFF_RUNS_UNKNOWN] = "unknown", [DIFF_RUNS_SAME] = "same", [DIFF_RUNS_OTHER] = "other"};
    struct diff_totals all = diff_totals_all(diff);
    struct cJSON *object = json_object();
    struct cJSON *entries = json_array();
    json_bool(object, "equal", diff_is_equal(diff));
    json_text(object, "run", runs[diff->runs]);
    json_add(object, "a", trace_json(&diff->traces[DIFF_A]));
    json_add(object, "b", trace_json(&diff->traces[DIFF_B]));
    json_integer(object, "rings", diff->rings);
    add_totals(object, &all);
    json_add(object, "kinds", kinds_json(diff));
    json_add(object, "fields", fields_json(diff));
    json_integer(object, "callsites", diff->callsite_pairs);
    json_integer(object, "callsites_differing", diff->callsite_pairs_odd);
    json_integer(object, "differences_all", diff->entries_all);
    for (size_t i = 0; i < diff->entry_count; i++) {
        json_append(entries, entry_json(diff, &diff->entries[i]));
    }
    json_add(object, "differences", entries);
    json_bool(object, "with_tables", diff->with_tables);
    json_integer(object, "tables_all", (int64_t)diff->remarks.count);
    json_add(object, "tables", remarks_json(diff));
    json_print(object, out);
}
