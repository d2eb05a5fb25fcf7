/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Row numbers are given in the order of storage, so two traces of one run may number the same allocation
 * differently: what must hold is that numbers which were once seen together come together ever after, in both
 * directions. Numbers are dense, so both directions are arrays, cut into pages: the numbers of a damaged file
 * cost a page each and no more. events.c calls it.
 */
#include "analysis/query/diff/diff.h"

#include "analysis/output/memory.h"

#include <stdlib.h>
#include <string.h>

#define PAGE_NUMBERS 1024U

static bool is_row_number(int64_t number)
{
    return number > 0 && number <= UINT32_MAX;
}

/* The place of a number's partner; pages are made as needed. */
static uint32_t *partner_place(struct diff_pages *pages, int64_t number)
{
    size_t page = (size_t)number / PAGE_NUMBERS;

    if (page >= pages->count) {
        size_t count = page + page / 2 + 16;

        pages->pages = memory_resize(pages->pages, count * sizeof(pages->pages[0]));
        memset(pages->pages + pages->count, 0, (count - pages->count) * sizeof(pages->pages[0]));
        pages->count = count;
    }
    if (pages->pages[page] == NULL) {
        pages->pages[page] = memory_resize(NULL, PAGE_NUMBERS * sizeof(uint32_t));
        memset(pages->pages[page], 0, PAGE_NUMBERS * sizeof(uint32_t));
    }
    return &pages->pages[page][(size_t)number % PAGE_NUMBERS];
}

enum diff_pair diff_pairs_take(struct diff_pairs *pairs, int64_t a, int64_t b)
{
    uint32_t *of_a;
    uint32_t *of_b;

    if (!is_row_number(a) || !is_row_number(b)) {
        return a == b ? DIFF_PAIR_KNOWN : DIFF_PAIR_WRONG;
    }
    of_a = partner_place(&pairs->partners[DIFF_A], a);
    of_b = partner_place(&pairs->partners[DIFF_B], b);
    if (*of_a == 0 && *of_b == 0) {
        *of_a = (uint32_t)b;
        *of_b = (uint32_t)a;
        return DIFF_PAIR_NEW;
    }
    return *of_a == (uint32_t)b ? DIFF_PAIR_KNOWN : DIFF_PAIR_WRONG; /* then *of_b is a */
}

int64_t diff_pairs_partner(const struct diff_pairs *pairs, enum diff_side side, int64_t number)
{
    const struct diff_pages *pages = &pairs->partners[side];
    size_t page = (size_t)number / PAGE_NUMBERS;

    if (!is_row_number(number) || page >= pages->count || pages->pages[page] == NULL) {
        return 0;
    }
    return pages->pages[page][(size_t)number % PAGE_NUMBERS];
}

void diff_pairs_free(struct diff_pairs *pairs)
{
    for (int side = 0; side < DIFF_SIDES; side++) {
        struct diff_pages *pages = &pairs->partners[side];

        for (size_t i = 0; i < pages->count; i++) {
            free(pages->pages[i]);
        }
        free(pages->pages);
        *pages = (struct diff_pages){0};
    }
}
