/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stacks of call sites, for equality: a hash of all that is known of their frames, but not of the numbers
 * that call sites and symbols have in their trace. 64 bits are enough, since only the two call sites of one
 * event are ever compared, not each with all. The tables are read once, in the order in which they lie: a
 * question for each call site would take longer than the events do. events.c asks; those who print load
 * the two stacks of what they list.
 */
#include "analysis/query/diff/diff.h"

#include "analysis/history/pickle/hash.h"
#include "analysis/output/memory.h"
#include "analysis/query/db.h"

#include <stdlib.h>

static struct diff_site *site_add(struct diff_sites *sites, int64_t id)
{
    if (sites->count == sites->capacity) {
        sites->capacity = sites->capacity * 2 + 256;
        sites->rows = memory_resize(sites->rows, sites->capacity * sizeof(sites->rows[0]));
    }
    sites->rows[sites->count] = (struct diff_site){.id = id};
    return &sites->rows[sites->count++];
}

/* Rows are numbered from 1 without gaps, unless somebody has been at the file. */
static const struct diff_site *site_find(const struct diff_sites *sites, int64_t id)
{
    size_t low = 0;
    size_t high = sites->count;

    if (id > 0 && (uint64_t)id <= sites->count && sites->rows[id - 1].id == id) {
        return &sites->rows[id - 1];
    }
    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (sites->rows[middle].id < id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < sites->count && sites->rows[low].id == id ? &sites->rows[low] : NULL;
}

/* The symbols of a database, with the hash of what they say. */
static void symbols_load(struct diff_sites *symbols, struct database *database)
{
    struct cursor cursor;

    cursor_open(&cursor, database,
                "SELECT id, function, file, module, line, is_python, is_inlined FROM symbol ORDER BY id");
    while (cursor_next(&cursor)) {
        uint64_t words[6]; /* a line that is NULL is line 0, as in struct stack_frame */

        for (int column = 1; column <= 6; column++) {
            const char *text = column <= 3 ? cursor_text(&cursor, column) : NULL;

            words[column - 1] =
                text != NULL ? hash_bytes(text, strlen(text)) : (uint64_t)cursor_integer(&cursor, column);
        }
        site_add(symbols, cursor_integer(&cursor, 0))->hash = hash_bytes(words, sizeof(words));
    }
    cursor_close(&cursor);
}

void diff_sites_load(struct diff_sites *sites, struct database *database)
{
    struct diff_sites symbols = {0};
    struct diff_site *site = NULL;
    struct cursor cursor;

    symbols_load(&symbols, database);
    cursor_open(&cursor, database,
                "SELECT callsite_id, symbol_id, pc FROM callsite_frame ORDER BY callsite_id, depth");
    while (cursor_next(&cursor)) {
        int64_t id = cursor_integer(&cursor, 0);
        const struct diff_site *symbol = site_find(&symbols, cursor_integer(&cursor, 1));
        uint64_t words[3];

        if (site == NULL || site->id != id) {
            site = site_add(sites, id);
        }
        words[0] = site->hash; /* of the frames within */
        words[1] = symbol != NULL ? symbol->hash : 0;
        words[2] = cursor_is_null(&cursor, 2) ? UINT64_MAX : (uint64_t)cursor_integer(&cursor, 2);
        site->hash = hash_bytes(words, sizeof(words));
    }
    cursor_close(&cursor);
    diff_sites_free(&symbols);
}

void diff_sites_free(struct diff_sites *sites)
{
    free(sites->rows);
    *sites = (struct diff_sites){0};
}

bool diff_sites_are_equal(const struct diff_sites *a, int64_t a_id, const struct diff_sites *b, int64_t b_id)
{
    const struct diff_site *of_a = site_find(a, a_id);
    const struct diff_site *of_b = site_find(b, b_id);

    return of_a != NULL && of_b != NULL ? of_a->hash == of_b->hash : of_a == of_b;
}
