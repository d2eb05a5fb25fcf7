/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first differences as text, an entry of a comparison each: where, what, and of an event that differs the
 * fields with the values of both sides. Of two stacks the first frame that differs is told. --json cuts
 * nothing.
 */
#include "analysis/output/format.h"
#include "analysis/output/table.h"
#include "analysis/query/diff/diff.h"
#include "analysis/query/stack.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LINE_COLUMNS 98U
#define VALUE_COLUMNS 34U
#define CELL_BYTES 256

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
            snprintf(piece, sizeof(piece), "%s %s%s", diff_kind_name(kind->kind),
                     format_count(kind->events).text, i + 1 == entry->kind_count ? ")" : ",");
        } else {
            snprintf(piece, sizeof(piece), "(%s)", diff_kind_name(kind->kind));
        }
        put_piece(out, &column, piece);
    }
    fputc('\n', out);
}

/* ---- events that differ ---- */

static void add_row(struct table *table, const char *field, const char *a, const char *b, const char *note)
{
    char cell[CELL_BYTES];
    char last[CELL_BYTES + sizeof(struct diff_value)];

    table_add(table, field);
    format_tail(cell, sizeof(cell), a != NULL ? a : "NULL", VALUE_COLUMNS);
    table_add(table, cell);
    format_tail(cell, sizeof(cell), b != NULL ? b : "NULL", VALUE_COLUMNS);
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
        add_row(table, field, a, b, "");
    }
}

/* What differs between two frames; nothing if they are equal. */
static void add_frame_rows(struct table *table, size_t depth, const struct stack_frame *a,
                           const struct stack_frame *b)
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
        stack_load(&stacks[side], diff->traces[side].database,
                   detail->events[side].values[DIFF_FIELD_CALLSITE_ID]);
    }
    for (size_t i = 0; i < a->count && i < b->count && table->cell_count == cells; i++) {
        add_frame_rows(table, i, &a->frames[i], &b->frames[i]);
    }
    if (a->count != b->count || table->cell_count == cells) {
        add_row(table, "frames", number_text((int64_t)a->count).text, number_text((int64_t)b->count).text,
                "");
    }
    stack_free(&stacks[DIFF_A]);
    stack_free(&stacks[DIFF_B]);
}

/* Which pair contradicts this one; to be put behind the values. */
static struct diff_value pair_note(const struct diff_detail *detail, enum diff_field field)
{
    const int64_t *partners = field == DIFF_FIELD_ID ? detail->id_partners : detail->site_partners;
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
    struct table table;

    fprintf(out, " %s differs (row %s in A", diff_value_text(a, DIFF_FIELD_KIND).text,
            format_count(a->seq).text);
    fprintf(out, ", %s in B)\n", format_count(b->seq).text);
    table_init(&table, columns, sizeof(columns) / sizeof(columns[0]));
    table.indent = "    ";
    for (unsigned i = 0; i < DIFF_COLUMNS; i++) {
        enum diff_field field = (enum diff_field)i;

        if ((entry->detail->fields >> i & 1U) != 0) {
            add_row(&table, diff_field_name(field), diff_value_text(a, field).text,
                    diff_value_text(b, field).text, pair_note(entry->detail, field).text);
        }
    }
    if ((entry->detail->fields >> DIFF_FIELD_FRAMES & 1U) != 0) {
        add_stack_rows(&table, diff, entry->detail);
    }
    table_print(&table, out, false);
    table_free(&table);
}

void diff_print_list(FILE *out, const struct diff *diff)
{
    if (diff->entries_all == 0) {
        return;
    }
    fprintf(out, "\n%s difference%s", format_count(diff->entries_all).text,
            diff->entries_all == 1 ? "" : "s");
    if ((int64_t)diff->entry_count < diff->entries_all) {
        fprintf(out, ", the first %s", format_count((int64_t)diff->entry_count).text);
    }
    fputc('\n', out);
    for (size_t i = 0; i < diff->entry_count; i++) {
        const struct diff_entry *entry = &diff->entries[i];
        const struct diff_ring *ring = &diff->rings[entry->ring];
        int column = fprintf(out, "  process %" PRId64 " ring %" PRId64 ": %s", ring->process_id, ring->ring,
                             format_count(entry->first).text);

        if (entry->what == DIFF_DIFFERS) {
            print_differs(out, diff, entry);
        } else {
            print_alone(out, entry, column > 0 ? (size_t)column : 0);
        }
    }
}
