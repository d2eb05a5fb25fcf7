/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a comparison found: figures by kind and by field, and a list of the first differences in the order in
 * which they were found. A run of events that only one side has is one entry, which grows while its numbers
 * follow one another, whatever else is found meanwhile.
 */
#include "analysis/query/diff/diff.h"

#include "analysis/output/memory.h"

#include <stdlib.h>

/* NULL: the list is full. */
static struct diff_entry *entry_add(struct diff *diff)
{
    diff->entries_all++;
    if (diff->entry_count == diff->entry_limit) {
        return NULL;
    }
    if (diff->entry_count == diff->entry_capacity) {
        diff->entry_capacity = diff->entry_capacity * 2 + 16;
        diff->entries = memory_resize(diff->entries, diff->entry_capacity * sizeof(diff->entries[0]));
    }
    return &diff->entries[diff->entry_count++];
}

static void entry_count_kind(struct diff_entry *entry, uint32_t kind)
{
    for (size_t i = 0; i < entry->kind_count; i++) {
        if (entry->kinds[i].kind == kind) {
            entry->kinds[i].events++;
            return;
        }
    }
    entry->kinds = memory_resize(entry->kinds, (entry->kind_count + 1) * sizeof(entry->kinds[0]));
    entry->kinds[entry->kind_count++] = (struct diff_kind_count){kind, 1};
}

void diff_result_alone(struct diff *diff, enum diff_side side, const struct diff_event *event)
{
    struct diff_open_run *run = &diff->rings[event->ring].alone[side];
    uint32_t kind = diff_kind_of(event);
    struct diff_entry *entry;

    diff->kinds[kind].alone[side]++;
    if (run->last == 0 || event->number != run->last + 1) {
        entry = entry_add(diff);
        if (entry != NULL) {
            *entry = (struct diff_entry){
                .what = side == DIFF_A ? DIFF_ONLY_A : DIFF_ONLY_B,
                .ring = event->ring,
                .first = event->number,
                .seq = event->seq,
            };
        }
        run->entry = entry != NULL ? diff->entry_count : 0;
    }
    run->last = event->number;
    if (run->entry > 0) {
        entry = &diff->entries[run->entry - 1];
        entry->last = event->number;
        entry_count_kind(entry, kind);
    }
}

void diff_result_differs(struct diff *diff, const struct diff_detail *detail)
{
    const struct diff_event *a = &detail->events[DIFF_A];
    struct diff_entry *entry = entry_add(diff);

    diff->kinds[diff_kind_of(a)].differing++;
    for (unsigned field = 0; field < DIFF_FIELD_LIMIT; field++) {
        diff->fields[field] += detail->fields >> field & 1U;
    }
    if (entry != NULL) {
        *entry = (struct diff_entry){
            .what = DIFF_DIFFERS,
            .ring = a->ring,
            .first = a->number,
            .last = a->number,
            .seq = a->seq,
            .detail = memory_resize(NULL, sizeof(*detail)),
        };
        *entry->detail = *detail;
    }
}

struct diff_totals diff_result_totals(const struct diff *diff)
{
    struct diff_totals all = {0};

    for (uint32_t kind = 0; kind < DIFF_KINDS; kind++) {
        all.both += diff->kinds[kind].both;
        all.alone[DIFF_A] += diff->kinds[kind].alone[DIFF_A];
        all.alone[DIFF_B] += diff->kinds[kind].alone[DIFF_B];
        all.differing += diff->kinds[kind].differing;
    }
    return all;
}

int64_t diff_result_unkeyed(const struct diff_trace *trace)
{
    return trace->without_number + trace->without_thread + trace->out_of_order;
}

bool diff_result_is_equal(const struct diff *diff)
{
    return diff->entries_all == 0 && diff_result_unkeyed(&diff->traces[DIFF_A]) == 0 &&
           diff_result_unkeyed(&diff->traces[DIFF_B]) == 0 &&
           (!diff->with_tables || diff->remarks.count == 0);
}

void diff_result_free(struct diff *diff)
{
    for (size_t i = 0; i < diff->entry_count; i++) {
        free(diff->entries[i].kinds);
        free(diff->entries[i].detail);
    }
    free(diff->entries);
}
