/* SPDX-License-Identifier: Apache-2.0 */
/* The comparison is that of `varve diff` (report/diff_growth.c); here its rows become those of a page. */
#include "analysis/page/page_writer.h"

#include "analysis/base/number_format.h"
#include "analysis/query/database.h"
#include "analysis/query/total_query.h"
#include "analysis/report/diff_growth.h"

#include "statements_generated.h"

#define BEFORE_STACKS_MAX 6000 /* whose changes are largest; the others of a domain are put together */
#define BEFORE_FIGURES 3       /* at the peak, allocated, live at the end: how much more, < 0: how much less */

enum column {
    COLUMN_DOMAIN,
    COLUMN_CALLSITE_A, /* NULL: A does not have it; both NULL: of several call sites */
    COLUMN_CALLSITE_B,
    COLUMN_FIGURES,
};

struct before {
    struct database *two;
    struct page_places *places_a, *places_b;
};

static void open_changed_stacks(struct cursor *cursor, const struct before *before)
{
    cursor_open(cursor, before->two, sql_page_changed_stacks);
    cursor_bind_integer(cursor, 1, BEFORE_STACKS_MAX);
}

/* Of B, if it has the stack, else of A; NULL: of several. */
static struct page_places *places_of(const struct before *before, struct cursor *stack, int64_t *callsite_out)
{
    const bool is_of_b = !cursor_is_null(stack, COLUMN_CALLSITE_B);
    *callsite_out = cursor_integer(stack, is_of_b ? COLUMN_CALLSITE_B : COLUMN_CALLSITE_A);
    return is_of_b ? before->places_b : cursor_is_null(stack, COLUMN_CALLSITE_A) ? NULL : before->places_a;
}

static void before_write_places(struct page_writer *writer, const struct before *before)
{
    struct cursor cursor;
    open_changed_stacks(&cursor, before);
    while (cursor_next(&cursor)) {
        int64_t callsite;
        struct page_places *places = places_of(before, &cursor, &callsite);
        if (places != NULL) {
            page_places_add(places, callsite);
        }
    }
    cursor_close(&cursor);
    page_key(writer, "after");
    page_open(writer, '{');
    page_places_write(before->places_b, writer);
    page_close(writer, '}');
    page_key(writer, "gone"); /* what A alone has; its frames have numbers of their own */
    page_open(writer, '{');
    page_places_write(before->places_a, writer);
    page_close(writer, '}');
}

static void before_write_rows(struct page_writer *writer, const struct before *before)
{
    struct cursor cursor;
    page_key(writer, "rows"); /* domain, is it gone, leaf, line, is it of an import, figures */
    page_open(writer, '[');
    open_changed_stacks(&cursor, before);
    while (cursor_next(&cursor)) {
        int64_t callsite;
        const struct page_places *places = places_of(before, &cursor, &callsite);
        page_name(writer, cursor_name(&cursor, COLUMN_DOMAIN));
        page_integer(writer, places == before->places_a ? 1 : 0);
        page_place_write(writer, places, callsite);
        for (int i = 0; i < BEFORE_FIGURES; i++) {
            page_integer(writer, cursor_integer(&cursor, COLUMN_FIGURES + i));
        }
    }
    cursor_close(&cursor);
    page_close(writer, ']');
}

void before_write(const struct growth *stacks, struct page_writer *writer, struct page_stacks *stacks_b)
{
    struct page_stacks stacks_a;
    page_stacks_init(&stacks_a, stacks->a.database);
    const struct before before = {stacks->two, page_places_begin(stacks->a.database, &stacks_a),
                                  page_places_begin(stacks->b.database, stacks_b)};
    page_open(writer, '{');
    page_member_text(writer, "name", format_base_name(database_path(stacks->a.database)));
    page_member_integer(writer, "end", report_duration_ns(stacks->a.database));
    page_key(writer, "curves");
    curves_write(stacks->a.database, writer);
    before_write_places(writer, &before);
    before_write_rows(writer, &before);
    page_close(writer, '}');
    page_places_free(before.places_a);
    page_places_free(before.places_b);
    page_stacks_free(&stacks_a);
}
