/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The second reading: all events of A in their order, each with the same one of B. B is read as far as
 * needed; what it has earlier than A waits, in a queue for each ring. Numbers of a ring grow on both sides
 * and events that only one side has never get here, so what comes next of a ring is always the partner:
 * nothing is searched for.
 *
 * Row numbers (id, callsite_id) need not be equal but must be paired one to one. Which of two contradicting
 * pairs is the wrong one is a matter of order: the one that comes later in A. Of call sites it is the one
 * with other frames.
 */
#include "analysis/query/diff/diff.h"

#include "analysis/output/memory.h"
#include "analysis/query/db.h"
#include "trace/trace.h"

#include <stdlib.h>

#define NO_NODE UINT32_MAX

/* An event of B that A has not come to. */
struct node {
    struct diff_event event;
    uint32_t next; /* of its ring, or of the spare ones */
};

struct comparison {
    struct diff *diff;
    struct diff_rows rows[DIFF_SIDES];
    struct node *nodes;
    uint32_t node_count, node_capacity;
    uint32_t spare;
    uint64_t waiting;
};

/* ---- rows ---- */

/* Without overflow: a damaged file may hold any number. */
static void add_events(int64_t *sum, const struct diff_event *event)
{
    *sum = (int64_t)((uint64_t)*sum + (uint64_t)event->values[DIFF_FIELD_ARG]);
}

/* Count a row, and find its ring. False if it has no place there. */
static bool event_place(struct diff *diff, enum diff_side side, struct diff_event *event)
{
    struct diff_trace *trace = &diff->traces[side];
    bool is_lost = event->values[DIFF_FIELD_KIND] == VARVE_KIND_LOST;

    if (is_lost && !event->has_number) {
        trace->gap_rows++;
        add_events(&trace->gap_events, event);
        return false;
    }
    trace->events++;
    if (is_lost) {
        trace->lost_rows++;
        add_events(&trace->lost_events, event);
    }
    event->ring = diff_ring_find(trace, event->thread_id);
    if (!event->has_number) {
        trace->without_number++;
        return false;
    }
    if (event->ring == DIFF_NO_RING) {
        trace->without_thread++;
        return false;
    }
    if (!diff_number_take(&diff->rings[event->ring].numbers[side], event->number)) {
        trace->out_of_order++;
        return false;
    }
    return true;
}

/* Nothing more is asked for. */
static bool is_answered(const struct diff *diff)
{
    return diff->stops_at_first && !diff_result_is_equal(diff);
}

/* The next event that the other side has too; what it has not is counted. */
static bool next_shared(struct comparison *comparison, enum diff_side side, struct diff_event *event)
{
    struct diff *diff = comparison->diff;
    enum diff_side other = side == DIFF_A ? DIFF_B : DIFF_A;
    const struct diff_event *row;

    while (!is_answered(diff) && (row = diff_rows_next(&comparison->rows[side])) != NULL) {
        *event = *row;
        diff_progress(diff, "comparing");
        if (!event_place(diff, side, event)) {
            continue;
        }
        if (diff_number_is_there(&diff->rings[event->ring].numbers[other], event->number)) {
            return true;
        }
        diff_result_alone(diff, side, event);
    }
    return false;
}

/* ---- what waits ---- */

static void queue_put(struct comparison *comparison, const struct diff_event *event)
{
    struct diff_ring *ring = &comparison->diff->rings[event->ring];
    uint32_t index = comparison->spare;

    if (index != NO_NODE) {
        comparison->spare = comparison->nodes[index].next;
    } else {
        if (comparison->node_count == comparison->node_capacity) {
            comparison->node_capacity = comparison->node_capacity * 2 + 256;
            comparison->nodes = memory_resize(comparison->nodes, (size_t)comparison->node_capacity *
                                                                     sizeof(comparison->nodes[0]));
        }
        index = comparison->node_count++;
    }
    comparison->nodes[index] = (struct node){.event = *event, .next = NO_NODE};
    if (ring->head == NO_NODE) {
        ring->head = index;
    } else {
        comparison->nodes[ring->tail].next = index;
    }
    ring->tail = index;
    comparison->waiting++;
}

static bool queue_take(struct comparison *comparison, uint32_t ring_index, struct diff_event *event)
{
    struct diff_ring *ring = &comparison->diff->rings[ring_index];
    uint32_t index = ring->head;

    if (index == NO_NODE) {
        return false;
    }
    *event = comparison->nodes[index].event;
    ring->head = comparison->nodes[index].next;
    comparison->nodes[index].next = comparison->spare;
    comparison->spare = index;
    comparison->waiting--;
    return true;
}

/* The next event of a ring in B. */
static bool partner_find(struct comparison *comparison, uint32_t ring, struct diff_event *event)
{
    if (queue_take(comparison, ring, event)) {
        return true;
    }
    while (next_shared(comparison, DIFF_B, event)) {
        if (event->ring == ring) {
            return true;
        }
        queue_put(comparison, event);
    }
    return false;
}

/* ---- two events ---- */

/* The table whose rows the ids of a kind are; NULL: they are the program's own, and must be equal. */
static struct diff_pairs *id_pairs(struct diff *diff, int64_t kind)
{
    switch (kind) {
    case VARVE_KIND_ALLOC:
    case VARVE_KIND_FREE_REQUESTED:
    case VARVE_KIND_FREE_COMPLETED:
    case VARVE_KIND_RECORD_STREAM:
    case VARVE_KIND_HEAP_ALLOC:
    case VARVE_KIND_HEAP_FREE:
    case VARVE_KIND_HEAP_REALLOC:
    case VARVE_KIND_MMAP:
    case VARVE_KIND_MUNMAP:
        return &diff->allocations;
    case VARVE_KIND_SPLIT:
    case VARVE_KIND_MERGE:
    case VARVE_KIND_SEGMENT_ALLOC:
    case VARVE_KIND_SEGMENT_FREE:
    case VARVE_KIND_SEGMENT_MAP:
    case VARVE_KIND_SEGMENT_UNMAP:
        return &diff->segments;
    default:
        return NULL;
    }
}

static uint32_t field_bit(enum diff_field field)
{
    return UINT32_C(1) << field;
}

/* Bits of the fields that differ, row numbers as they are. */
static uint32_t compare_columns(const struct diff_event *a, const struct diff_event *b)
{
    uint32_t fields = a->nulls ^ b->nulls;

    for (unsigned i = 0; i < DIFF_COLUMNS; i++) {
        fields |= (uint32_t)(a->values[i] != b->values[i]) << i;
    }
    return fields;
}

/* The same for an id; 0 is none and is no row number. */
static uint32_t compare_ids(struct diff_pairs *pairs, int64_t a, int64_t b, uint32_t bit, uint32_t fields)
{
    if (pairs == NULL || a == 0 || b == 0) {
        return fields;
    }
    fields &= ~bit;
    return diff_pairs_take(pairs, a, b) == DIFF_PAIR_WRONG ? fields | bit : fields;
}

/* Call sites whose frames differ are no pair: else one wrong number would make others wrong. */
static uint32_t compare_sites(struct diff *diff, int64_t a, int64_t b, uint32_t fields)
{
    uint32_t bit = field_bit(DIFF_FIELD_CALLSITE_ID);
    enum diff_pair pair;

    if (a == 0 || b == 0) {
        return fields;
    }
    fields &= ~bit;
    if (diff_sites_are_equal(&diff->traces[DIFF_A].sites, a, &diff->traces[DIFF_B].sites, b)) {
        pair = diff_pairs_take(&diff->callsites, a, b);
        diff->site_pairs += pair == DIFF_PAIR_NEW ? 1 : 0;
        return pair == DIFF_PAIR_WRONG ? fields | bit : fields;
    }
    diff->site_pairs_odd += diff_pairs_take(&diff->callsites_odd, a, b) == DIFF_PAIR_NEW ? 1 : 0;
    if (diff_pairs_partner(&diff->callsites, DIFF_A, a) != 0 ||
        diff_pairs_partner(&diff->callsites, DIFF_B, b) != 0) {
        fields |= bit;
    }
    return fields | field_bit(DIFF_FIELD_FRAMES);
}

static void compare_events(struct diff *diff, const struct diff_event *a, const struct diff_event *b)
{
    struct diff_pairs *pairs = id_pairs(diff, a->values[DIFF_FIELD_KIND]);
    int64_t a_id = a->values[DIFF_FIELD_ID];
    int64_t b_id = b->values[DIFF_FIELD_ID];
    int64_t a_site = a->values[DIFF_FIELD_CALLSITE_ID];
    int64_t b_site = b->values[DIFF_FIELD_CALLSITE_ID];
    uint32_t fields = compare_columns(a, b);

    if (id_pairs(diff, b->values[DIFF_FIELD_KIND]) != pairs) {
        pairs = NULL;
    }
    fields = compare_ids(pairs, a_id, b_id, field_bit(DIFF_FIELD_ID), fields);
    fields = compare_sites(diff, a_site, b_site, fields);
    diff->kinds[diff_kind_of(a)].both++;
    if (fields != 0) {
        struct diff_detail detail = {.events = {*a, *b}, .fields = fields};

        if (pairs != NULL) {
            detail.id_partners[DIFF_A] = diff_pairs_partner(pairs, DIFF_A, a_id);
            detail.id_partners[DIFF_B] = diff_pairs_partner(pairs, DIFF_B, b_id);
        }
        detail.site_partners[DIFF_A] = diff_pairs_partner(&diff->callsites, DIFF_A, a_site);
        detail.site_partners[DIFF_B] = diff_pairs_partner(&diff->callsites, DIFF_B, b_site);
        diff_result_differs(diff, &detail);
    }
}

/* ---- all of them ---- */

static int fail_changed(const struct diff *diff, struct varve_message *message)
{
    return varve_message_set(message, VARVE_ERROR_BUSY, "%s or %s was changed while it was read: try again",
                             database_path(diff->traces[DIFF_A].database),
                             database_path(diff->traces[DIFF_B].database));
}

static int compare_all(struct comparison *comparison, struct varve_message *message)
{
    struct diff *diff = comparison->diff;
    bool are_paired = true;
    struct diff_event a;
    struct diff_event b;

    while (are_paired && next_shared(comparison, DIFF_A, &a)) {
        are_paired = partner_find(comparison, a.ring, &b) && a.number == b.number;
        if (are_paired) {
            compare_events(diff, &a, &b);
        }
    }
    if (are_paired) {
        are_paired = !next_shared(comparison, DIFF_B, &b) && comparison->waiting == 0;
    }
    return are_paired || is_answered(diff) ? VARVE_OK : fail_changed(diff, message);
}

int diff_events_compare(struct diff *diff, struct varve_message *message)
{
    struct comparison comparison = {.diff = diff, .spare = NO_NODE};
    int result;

    for (size_t i = 0; i < diff->ring_count; i++) {
        diff->rings[i].head = NO_NODE;
    }
    for (int side = 0; side < DIFF_SIDES; side++) {
        diff_sites_load(&diff->traces[side].sites, diff->traces[side].database);
        diff_rows_open(&comparison.rows[side], diff->traces[side].database, DIFF_READING_EVENTS,
                       side == DIFF_B);
    }
    result = compare_all(&comparison, message);
    for (int side = 0; side < DIFF_SIDES; side++) {
        diff_rows_close(&comparison.rows[side]);
    }
    free(comparison.nodes);
    for (int side = 0; side < DIFF_SIDES; side++) {
        if (database_error(diff->traces[side].database, NULL) != VARVE_OK) {
            return database_error(diff->traces[side].database, message);
        }
    }
    return result;
}
