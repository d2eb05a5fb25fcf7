/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables process and thread of two traces, row by row: process by its id, thread by process and ring.
 * What differs is a remark, since a trace may know less of its processes than another and yet hold every
 * event. Values are compared as text, which tells NULL from anything else. The rows of both are read side by
 * side in the order of their keys.
 */
#include "analysis/query/diff/diff.h"

#include "analysis/output/memory.h"
#include "analysis/query/db.h"

#include <stdlib.h>
#include <string.h>

#define KEY_COLUMNS 2

struct comparison {
    const char *table;
    const char *sql;            /* key columns, then those compared; by key */
    const char *const *columns; /* names of those compared, NULL at the end */
};

static const struct comparison comparisons[] = {
    {
        "process",
        "SELECT id, -1, pid, parent_pid, parent_id, rank, executable, command_line FROM process ORDER BY id",
        (const char *const[]){"pid", "parent_pid", "parent_id", "rank", "executable", "command_line", NULL},
    },
    {
        "thread",
        "SELECT process_id, ring, pid, tid, name, emitted, lost FROM thread ORDER BY process_id, ring, id",
        (const char *const[]){"pid", "tid", "name", "emitted", "lost", NULL},
    },
};

static void remark_add(struct diff_remarks *remarks, const struct diff_remark *remark)
{
    if (remarks->count == remarks->capacity) {
        remarks->capacity = remarks->capacity * 2 + 16;
        remarks->items = memory_resize(remarks->items, remarks->capacity * sizeof(remarks->items[0]));
    }
    remarks->items[remarks->count++] = *remark;
}

/* Negative: the row of A comes first, or B has ended. */
static int compare_keys(struct cursor *cursors, const bool *has_row)
{
    for (int column = 0; column < KEY_COLUMNS && has_row[DIFF_A] && has_row[DIFF_B]; column++) {
        int64_t a = cursor_integer(&cursors[DIFF_A], column);
        int64_t b = cursor_integer(&cursors[DIFF_B], column);

        if (a != b) {
            return a < b ? -1 : 1;
        }
    }
    return (int)has_row[DIFF_B] - (int)has_row[DIFF_A];
}

/* One side has a row that the other has not; its pid says which process that is. */
static void remark_alone(struct diff *diff, const struct comparison *comparison, struct cursor *cursor,
                         enum diff_side side)
{
    struct diff_remark remark = {
        .table = comparison->table,
        .process_id = cursor_integer(cursor, 0),
        .ring = cursor_integer(cursor, 1),
    };

    remark.values[side] = memory_copy_text(cursor_name(cursor, KEY_COLUMNS));
    remark_add(&diff->remarks, &remark);
}

static void compare_rows(struct diff *diff, const struct comparison *comparison, struct cursor *cursors)
{
    for (int i = 0; comparison->columns[i] != NULL; i++) {
        const char *a = cursor_text(&cursors[DIFF_A], KEY_COLUMNS + i);
        const char *b = cursor_text(&cursors[DIFF_B], KEY_COLUMNS + i);

        if (a == NULL || b == NULL ? a != b : strcmp(a, b) != 0) {
            const struct diff_remark remark = {
                .table = comparison->table,
                .process_id = cursor_integer(&cursors[DIFF_A], 0),
                .ring = cursor_integer(&cursors[DIFF_A], 1),
                .column = comparison->columns[i],
                .values = {memory_copy_text(a), memory_copy_text(b)},
            };

            remark_add(&diff->remarks, &remark);
        }
    }
}

static void compare_table(struct diff *diff, const struct comparison *comparison)
{
    struct cursor cursors[DIFF_SIDES];
    bool has_row[DIFF_SIDES];

    for (int side = 0; side < DIFF_SIDES; side++) {
        cursor_open(&cursors[side], diff->traces[side].database, comparison->sql);
        has_row[side] = cursor_next(&cursors[side]);
    }
    while (has_row[DIFF_A] || has_row[DIFF_B]) {
        int order = compare_keys(cursors, has_row);

        if (order == 0) {
            compare_rows(diff, comparison, cursors);
        } else {
            enum diff_side side = order < 0 ? DIFF_A : DIFF_B;

            remark_alone(diff, comparison, &cursors[side], side);
        }
        if (order <= 0) {
            has_row[DIFF_A] = cursor_next(&cursors[DIFF_A]);
        }
        if (order >= 0) {
            has_row[DIFF_B] = cursor_next(&cursors[DIFF_B]);
        }
    }
    cursor_close(&cursors[DIFF_A]);
    cursor_close(&cursors[DIFF_B]);
}

void diff_tables_compare(struct diff *diff)
{
    for (size_t i = 0; i < sizeof(comparisons) / sizeof(comparisons[0]); i++) {
        compare_table(diff, &comparisons[i]);
    }
}

void diff_remarks_free(struct diff_remarks *remarks)
{
    for (size_t i = 0; i < remarks->count; i++) {
        free(remarks->items[i].values[DIFF_A]);
        free(remarks->items[i].values[DIFF_B]);
    }
    free(remarks->items);
    *remarks = (struct diff_remarks){0};
}
