/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rings of both traces and which numbers each has, as runs without a gap, from a first reading of two
 * columns. Without it, the second reading would have to wait for an event that the other side may not have,
 * and keep all that comes meanwhile: after a gap of a million events, a million. With it, it is known at once
 * whether there is anything to wait for.
 */
#include "analysis/query/diff/diff.h"

#include "analysis/output/memory.h"
#include "analysis/output/progress.h"
#include "analysis/query/db.h"

#include <assert.h>
#include <stdlib.h>

#define PROGRESS_ROWS 65536U
#define PORTION_ROWS 1024U

static int compare_rings(const void *a_untyped, const void *b_untyped)
{
    const struct diff_ring *a = a_untyped;
    const struct diff_ring *b = b_untyped;

    if (a->process_id != b->process_id) {
        return a->process_id < b->process_id ? -1 : 1;
    }
    return a->ring < b->ring ? -1 : a->ring > b->ring ? 1 : 0;
}

/* Adds the rings of one side, some of them again; the threads are filled in by threads_connect. */
static void rings_load(struct diff *diff, struct diff_trace *trace, size_t *capacity)
{
    size_t thread_capacity = 0;
    struct cursor cursor;

    cursor_open(&cursor, trace->database, "SELECT id, process_id, ring FROM thread ORDER BY id");
    while (cursor_next(&cursor)) {
        if (trace->thread_count == thread_capacity) {
            thread_capacity = thread_capacity * 2 + 64;
            trace->threads = memory_resize(trace->threads, thread_capacity * sizeof(trace->threads[0]));
        }
        if (diff->ring_count == *capacity) {
            *capacity = *capacity * 2 + 64;
            diff->rings = memory_resize(diff->rings, *capacity * sizeof(diff->rings[0]));
        }
        trace->threads[trace->thread_count++] = (struct diff_thread){.id = cursor_integer(&cursor, 0)};
        diff->rings[diff->ring_count++] = (struct diff_ring){
            .process_id = cursor_integer(&cursor, 1),
            .ring = cursor_integer(&cursor, 2),
        };
    }
    cursor_close(&cursor);
}

/* `loaded`: the rings in the order in which rings_load found them, those of this trace from `first` on. */
static void threads_connect(struct diff *diff, struct diff_trace *trace, const struct diff_ring *loaded)
{
    for (size_t i = 0; i < trace->thread_count; i++) {
        const struct diff_ring *ring =
            bsearch(&loaded[i], diff->rings, diff->ring_count, sizeof(diff->rings[0]), compare_rings);

        assert(ring != NULL);
        trace->threads[i].ring = (uint32_t)(ring - diff->rings);
    }
}

static void rings_make(struct diff *diff)
{
    size_t capacity = 0;
    size_t count = 0;
    struct diff_ring *loaded;
    size_t bytes;

    for (int side = 0; side < DIFF_SIDES; side++) {
        rings_load(diff, &diff->traces[side], &capacity);
    }
    bytes = diff->ring_count * sizeof(diff->rings[0]);
    loaded = memory_resize(NULL, bytes);
    for (size_t i = 0; i < diff->ring_count; i++) {
        loaded[i] = diff->rings[i];
    }
    if (diff->ring_count > 0) {
        qsort(diff->rings, diff->ring_count, sizeof(diff->rings[0]), compare_rings);
    }
    for (size_t i = 0; i < diff->ring_count; i++) {
        if (count == 0 || compare_rings(&diff->rings[count - 1], &diff->rings[i]) != 0) {
            diff->rings[count++] = diff->rings[i];
        }
    }
    diff->ring_count = count;
    threads_connect(diff, &diff->traces[DIFF_A], loaded);
    threads_connect(diff, &diff->traces[DIFF_B], loaded + diff->traces[DIFF_A].thread_count);
    free(loaded);
}

uint32_t diff_ring_find(struct diff_trace *trace, int64_t thread_id)
{
    size_t low = 0;
    size_t high = trace->thread_count;

    /* the same thread as before, most of the time */
    if (trace->thread_last < high && trace->threads[trace->thread_last].id == thread_id) {
        return trace->threads[trace->thread_last].ring;
    }
    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (trace->threads[middle].id < thread_id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == trace->thread_count || trace->threads[low].id != thread_id) {
        return DIFF_NO_RING;
    }
    trace->thread_last = low;
    return trace->threads[low].ring;
}

bool diff_number_take(struct diff_numbers *numbers, int64_t number)
{
    bool grows = number > numbers->last;

    numbers->last = grows ? number : numbers->last;
    return grows;
}

static void number_add(struct diff_numbers *numbers, int64_t number)
{
    if (numbers->count > 0 && numbers->runs[numbers->count - 1].last == number - 1) {
        numbers->runs[numbers->count - 1].last = number;
        return;
    }
    if (numbers->count == numbers->capacity) {
        numbers->capacity = numbers->capacity * 2 + 4;
        numbers->runs = memory_resize(numbers->runs, numbers->capacity * sizeof(numbers->runs[0]));
    }
    numbers->runs[numbers->count++] = (struct diff_run){number, number};
}

bool diff_number_is_there(struct diff_numbers *numbers, int64_t number)
{
    while (numbers->at < numbers->count && numbers->runs[numbers->at].last < number) {
        numbers->at++;
    }
    return numbers->at < numbers->count && numbers->runs[numbers->at].first <= number;
}

void diff_progress(struct diff *diff, const char *stage)
{
    if (++diff->rows_read % PROGRESS_ROWS == 0) {
        progress_step(diff->progress, stage, diff->rows_read, diff->rows_all);
    }
}

/* The next rows of one side; false at the end. */
static bool numbers_scan(struct diff *diff, enum diff_side side, struct diff_rows *rows)
{
    struct diff_trace *trace = &diff->traces[side];
    const struct diff_event *event = NULL;

    for (unsigned i = 0; i < PORTION_ROWS && (event = diff_rows_next(rows)) != NULL; i++) {
        uint32_t ring = diff_ring_find(trace, event->thread_id);

        diff_progress(diff, "looking for gaps");
        if (ring != DIFF_NO_RING && diff_number_take(&diff->rings[ring].numbers[side], event->number)) {
            number_add(&diff->rings[ring].numbers[side], event->number);
        }
    }
    return event != NULL;
}

void diff_rings_scan(struct diff *diff)
{
    struct diff_rows rows[DIFF_SIDES];
    bool has_more[DIFF_SIDES] = {true, true};

    for (int side = 0; side < DIFF_SIDES; side++) {
        diff->rows_all +=
            2 * (uint64_t)database_integer(diff->traces[side].database, "SELECT max(seq) FROM event", 0);
    }
    rings_make(diff);
    diff_rows_open(&rows[DIFF_A], diff->traces[DIFF_A].database, DIFF_READING_NUMBERS, false);
    diff_rows_open(&rows[DIFF_B], diff->traces[DIFF_B].database, DIFF_READING_NUMBERS, true);
    while (has_more[DIFF_A] || has_more[DIFF_B]) {
        has_more[DIFF_A] = has_more[DIFF_A] && numbers_scan(diff, DIFF_A, &rows[DIFF_A]);
        has_more[DIFF_B] = has_more[DIFF_B] && numbers_scan(diff, DIFF_B, &rows[DIFF_B]);
    }
    for (int side = 0; side < DIFF_SIDES; side++) {
        diff_rows_close(&rows[side]);
        for (size_t i = 0; i < diff->ring_count; i++) {
            diff->rings[i].numbers[side].last = 0;
        }
    }
}

int64_t diff_rings_used(const struct diff *diff)
{
    int64_t used = 0;

    for (size_t i = 0; i < diff->ring_count; i++) {
        used += diff->rings[i].numbers[DIFF_A].count > 0 || diff->rings[i].numbers[DIFF_B].count > 0 ? 1 : 0;
    }
    return used;
}

void diff_rings_free(struct diff *diff)
{
    for (size_t i = 0; i < diff->ring_count; i++) {
        for (int side = 0; side < DIFF_SIDES; side++) {
            free(diff->rings[i].numbers[side].runs);
        }
    }
    free(diff->rings);
    for (int side = 0; side < DIFF_SIDES; side++) {
        free(diff->traces[side].threads);
    }
}
