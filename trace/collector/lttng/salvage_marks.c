/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which of the kept numbers the trace has: one bit each, in pages found by hash, since numbers may jump and
 * marks come in any order. What is marked was read from a trace that a killed program left, so it is not
 * believed: only a number below the newest one of a known ring gets a page.
 */
#include "trace/collector/lttng/salvage_parts.h"
#include "trace/error.h"

#include <stdlib.h>

#define PAGE_BITS_MIN 6U
#define WORD_BITS 64U
#define PAGE_WORDS (SALVAGE_PAGE_NUMBERS / WORD_BITS)

/* The slot of a page, or the free one where it belongs. */
static struct salvage_page *page_slot(struct salvage_page *pages, unsigned bits, uint32_t ring, uint64_t page)
{
    size_t mask = ((size_t)1 << bits) - 1;
    size_t slot = salvage_hash(page, ring, bits);

    while (pages[slot].bits != NULL && (pages[slot].page != page || pages[slot].ring != ring)) {
        slot = (slot + 1) & mask;
    }
    return &pages[slot];
}

static bool pages_grow(struct salvage *salvage)
{
    unsigned bits = salvage->pages != NULL ? salvage->page_bits + 1 : PAGE_BITS_MIN;
    struct salvage_page *grown = calloc((size_t)1 << bits, sizeof(*grown));

    if (grown == NULL) {
        return false;
    }
    for (size_t i = 0; salvage->pages != NULL && i < (size_t)1 << salvage->page_bits; i++) {
        const struct salvage_page *page = &salvage->pages[i];
        if (page->bits != NULL) {
            *page_slot(grown, bits, page->ring, page->page) = *page;
        }
    }
    free(salvage->pages);
    salvage->pages = grown;
    salvage->page_bits = bits;
    return true;
}

/* The bits of a page, made if need be; NULL: no memory. */
static uint64_t *page_need(struct salvage *salvage, uint32_t ring, uint64_t page)
{
    struct salvage_page *slot;

    if ((salvage->pages == NULL || (salvage->page_count + 1) * 2 > (size_t)1 << salvage->page_bits) &&
        !pages_grow(salvage)) {
        return NULL;
    }
    slot = page_slot(salvage->pages, salvage->page_bits, ring, page);
    if (slot->bits == NULL) {
        uint64_t *bits = calloc(PAGE_WORDS, sizeof(*bits));
        if (bits == NULL) {
            return NULL;
        }
        *slot = (struct salvage_page){.bits = bits, .page = page, .ring = ring};
        salvage->page_count++;
    }
    return slot->bits;
}

int salvage_mark(struct salvage *salvage, uint32_t process, int32_t pid, uint32_t ring, uint64_t ring_seq)
{
    uint32_t index = salvage_ring_find(salvage, process, pid, ring);
    uint64_t page = ring_seq / SALVAGE_PAGE_NUMBERS;
    struct salvage_ring *kept;

    if (index == SALVAGE_NO_RING || ring_seq >= salvage->rings[index].next) {
        return VARVE_OK;
    }
    kept = &salvage->rings[index];
    if (kept->marks == NULL || kept->marks_page != page) {
        uint64_t *bits = page_need(salvage, index, page);
        if (bits == NULL) {
            return VARVE_ERROR_NO_MEMORY;
        }
        kept->marks = bits;
        kept->marks_page = page;
    }
    kept->marks[ring_seq % SALVAGE_PAGE_NUMBERS / WORD_BITS] |= UINT64_C(1) << (ring_seq % WORD_BITS);
    return VARVE_OK;
}

/* The same within one page: `end` is not beyond it. */
static uint64_t unmarked_in_page(const uint64_t *bits, uint64_t number, uint64_t end)
{
    while (number < end) {
        uint64_t clear = ~bits[number % SALVAGE_PAGE_NUMBERS / WORD_BITS] >> (number % WORD_BITS);
        if (clear != 0) {
            number += (unsigned)__builtin_ctzll(clear);
            break;
        }
        number += WORD_BITS - number % WORD_BITS;
    }
    return number < end ? number : end;
}

uint64_t salvage_unmarked(const struct salvage *salvage, uint32_t ring, uint64_t number, uint64_t end)
{
    while (number < end && salvage->pages != NULL) {
        uint64_t page = number / SALVAGE_PAGE_NUMBERS;
        uint64_t page_end = (page + 1) * SALVAGE_PAGE_NUMBERS < end ? (page + 1) * SALVAGE_PAGE_NUMBERS : end;
        const uint64_t *bits = page_slot(salvage->pages, salvage->page_bits, ring, page)->bits;
        if (bits == NULL) {
            break;
        }
        number = unmarked_in_page(bits, number, page_end);
        if (number < page_end) {
            break;
        }
    }
    return number;
}

void salvage_marks_free(struct salvage *salvage)
{
    for (size_t i = 0; salvage->pages != NULL && i < (size_t)1 << salvage->page_bits; i++) {
        free(salvage->pages[i].bits);
    }
    free(salvage->pages);
    salvage->pages = NULL;
}
