/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records that came when later ones of their ring were there already: those that the collector told for the
 * workload, those of another packet, those told twice. They are gathered, sorted in slices, and merged with
 * the run when the recording ends. Any order is right, only some are slow: slices that follow each other are
 * read one at a time, and only slices that overlap are open together. Called by rings.c.
 */
#include "trace/base/array.h"
#include "trace/error.h"
#include "trace/import/rebuild/rebuild.h"
#include "trace/record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CAPACITY_FIRST 16U
#define SLICE_RECORDS 16384U /* about a megabyte */
#define WINDOW_RECORDS 256U  /* of an open slice in memory */

static void side_path(const struct rebuild_folder *folder, const struct rebuild_side *side, char *path,
                      size_t bytes)
{
    snprintf(path, bytes, "%s/side%llu", folder->path, (unsigned long long)side->file);
}

static void memory_free(struct rebuild_folder *folder, struct rebuild_side *side)
{
    folder->buffered -= side->capacity * sizeof(*side->late);
    free(side->late);
    side->late = NULL;
    side->count = side->capacity = 0;
}

void rebuild_side_drop(struct rebuild_folder *folder, struct rebuild_side *side)
{
    char path[REBUILD_PATH_BYTES];

    memory_free(folder, side);
    free(side->slices);
    if (side->bytes > 0) {
        side_path(folder, side, path, sizeof(path));
        unlink(path);
    }
    *side = (struct rebuild_side){.file = side->file};
}

/* ---- gathering ---- */

struct place {
    uint64_t number;
    uint32_t at; /* in the order of arrival */
};

static int compare_places(const void *left, const void *right)
{
    const struct place *a = left;
    const struct place *b = right;

    if (a->number != b->number) {
        return a->number < b->number ? -1 : 1;
    }
    return a->at < b->at ? -1 : a->at > b->at;
}

/* Sorted, of equal numbers the first to come; false without memory. */
static bool sort_late(struct rebuild_side *side)
{
    struct place *places = malloc(side->count * sizeof(*places));
    struct rebuild_late *sorted = malloc(side->count * sizeof(*sorted));
    uint32_t kept = 0;

    if (places == NULL || sorted == NULL) {
        free(places);
        free(sorted);
        return false;
    }
    for (uint32_t i = 0; i < side->count; i++) {
        places[i] = (struct place){side->late[i].number, i};
    }
    qsort(places, side->count, sizeof(*places), compare_places);
    for (uint32_t i = 0; i < side->count; i++) {
        if (i == 0 || places[i].number != places[i - 1].number) {
            sorted[kept++] = side->late[places[i].at];
        }
    }
    memcpy(side->late, sorted, kept * sizeof(*sorted));
    side->count = kept;
    free(places);
    free(sorted);
    return true;
}

int rebuild_side_park(struct rebuild_folder *folder, struct rebuild_side *side, struct varve_message *message)
{
    char path[REBUILD_PATH_BYTES];
    size_t capacity = side->slice_capacity;
    size_t bytes;
    int code;

    if (side->count == 0) {
        memory_free(folder, side);
        return VARVE_OK;
    }
    if (!array_grow((void **)&side->slices, &capacity, side->slice_count + 1, sizeof(*side->slices)) ||
        !sort_late(side)) {
        return rebuild_no_memory(message);
    }
    side->slice_capacity = (uint32_t)capacity;
    bytes = side->count * sizeof(*side->late);
    side_path(folder, side, path, sizeof(path));
    code = rebuild_file_write(path, side->late, bytes, side->bytes, message);
    if (code == VARVE_OK) {
        side->slices[side->slice_count++] =
            (struct rebuild_slice){side->bytes, side->late[0].number, side->count};
        side->bytes += bytes;
        memory_free(folder, side);
    }
    return code;
}

int rebuild_side_add(struct rebuild_folder *folder, struct rebuild_side *side, uint64_t number,
                     const struct varve_record *record, struct varve_message *message)
{
    if (side->count == side->capacity) {
        uint32_t capacity = side->capacity == 0 ? CAPACITY_FIRST : side->capacity * 2;
        struct rebuild_late *grown = realloc(side->late, capacity * sizeof(*grown));

        if (grown == NULL) {
            return rebuild_no_memory(message);
        }
        folder->buffered += (capacity - side->capacity) * sizeof(*grown);
        side->late = grown;
        side->capacity = capacity;
    }
    side->late[side->count++] = (struct rebuild_late){number, *record};
    return side->count < SLICE_RECORDS ? VARVE_OK : rebuild_side_park(folder, side, message);
}

/* ---- merging ---- */

/* The run, or one slice: number and record of what comes next. */
struct source {
    uint64_t number;
    const struct varve_record *record; /* NULL: a slice that was not opened yet */
    uint32_t rank;                     /* of equal numbers the lowest counts; 0 is the run */
    struct rebuild_run_reader *reader; /* of the run */
    const struct rebuild_slice *slice;
    struct rebuild_late *window;
    uint32_t taken, filled, at; /* of the slice: read so far; of the window */
};

struct settling {
    struct rebuild_folder *folder;
    const struct rebuild_side *side;
    struct source *sources;
    struct source **heap;
    size_t count; /* in the heap */
    struct varve_message *message;
};

static bool is_before(const struct source *a, const struct source *b)
{
    return a->number != b->number ? a->number < b->number : a->rank < b->rank;
}

static void sift_down(struct settling *settling, size_t at)
{
    struct source **heap = settling->heap;
    struct source *moved = heap[at];

    for (size_t child = 2 * at + 1; child < settling->count; child = 2 * at + 1) {
        if (child + 1 < settling->count && is_before(heap[child + 1], heap[child])) {
            child++;
        }
        if (!is_before(heap[child], moved)) {
            break;
        }
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
}

static int window_fill(const struct settling *settling, struct source *source)
{
    char path[REBUILD_PATH_BYTES];
    const struct rebuild_slice *slice = source->slice;
    uint32_t rest = slice->count - source->taken;

    if (source->window == NULL) {
        source->window = malloc(WINDOW_RECORDS * sizeof(*source->window));
    }
    if (source->window == NULL) {
        return rebuild_no_memory(settling->message);
    }
    source->filled = rest < WINDOW_RECORDS ? rest : WINDOW_RECORDS;
    source->at = 0;
    side_path(settling->folder, settling->side, path, sizeof(path));
    return rebuild_file_read(path, source->window, source->filled * sizeof(*source->window),
                             slice->offset + source->taken * sizeof(*source->window), settling->message);
}

/* To the next record; `*is_over` if there is none. Markers of the run stand for nothing here. */
static int source_advance(const struct settling *settling, struct source *source, bool *is_over)
{
    int code = VARVE_OK;

    if (source->reader != NULL) {
        do {
            code = rebuild_run_next(source->reader, &source->record, settling->message);
        } while (code == VARVE_OK && source->record != NULL && rebuild_is_marker(source->record));
        source->number = source->reader->number;
        *is_over = source->record == NULL;
        return code;
    }
    *is_over = source->taken == source->slice->count;
    if (*is_over) {
        free(source->window);
        source->window = NULL;
        return VARVE_OK;
    }
    if (source->at == source->filled) {
        code = window_fill(settling, source);
    }
    if (code == VARVE_OK) {
        source->number = source->window[source->at].number;
        source->record = &source->window[source->at].record;
        source->at++;
        source->taken++;
    }
    return code;
}

/* The top of the heap has been used: its source goes on, or ends. */
static int heap_advance(struct settling *settling)
{
    bool is_over = false;
    int code = source_advance(settling, settling->heap[0], &is_over);

    if (is_over) {
        settling->heap[0] = settling->heap[--settling->count];
    }
    if (settling->count > 0) {
        sift_down(settling, 0);
    }
    return code;
}

static int merge(struct settling *settling, struct rebuild_run *into)
{
    int code = VARVE_OK;

    while (code == VARVE_OK && settling->count > 0) {
        const struct source *source = settling->heap[0];

        if (source->record != NULL && source->number > into->last) {
            code =
                rebuild_run_append(settling->folder, into, source->number, source->record, settling->message);
        }
        if (code == VARVE_OK) {
            code = heap_advance(settling);
        }
    }
    return code;
}

/* Slices are opened when their first number is due. */
static int sources_make(struct settling *settling, struct rebuild_run_reader *reader)
{
    const struct rebuild_side *side = settling->side;
    bool is_over = false;
    int code;

    settling->sources = calloc((size_t)side->slice_count + 1, sizeof(*settling->sources));
    settling->heap = calloc((size_t)side->slice_count + 1, sizeof(struct source *));
    if (settling->sources == NULL || settling->heap == NULL) {
        return rebuild_no_memory(settling->message);
    }
    settling->sources[0] = (struct source){.reader = reader};
    code = source_advance(settling, &settling->sources[0], &is_over);
    if (!is_over) {
        settling->heap[settling->count++] = &settling->sources[0];
    }
    for (uint32_t i = 0; i < side->slice_count; i++) {
        struct source *source = &settling->sources[i + 1];
        *source = (struct source){.number = side->slices[i].first, .rank = i + 1, .slice = &side->slices[i]};
        settling->heap[settling->count++] = source;
    }
    for (size_t i = settling->count / 2; i-- > 0;) {
        sift_down(settling, i);
    }
    return code;
}

static void settling_end(struct settling *settling)
{
    for (uint32_t i = 0; settling->sources != NULL && i <= settling->side->slice_count; i++) {
        free(settling->sources[i].window);
    }
    free(settling->sources);
    free(settling->heap);
}

int rebuild_side_settle(struct rebuild_folder *folder, struct rebuild_run *run, struct rebuild_side *side,
                        uint64_t file, struct varve_message *message)
{
    struct settling settling = {.folder = folder, .side = side, .message = message};
    struct varve_record *records = malloc(RING_STAGING_RECORDS * sizeof(*records));
    struct rebuild_run_reader reader;
    struct rebuild_run into;
    int code = records != NULL ? rebuild_side_park(folder, side, message) : rebuild_no_memory(message);

    rebuild_run_init(&into, file);
    rebuild_run_reader_open(&reader, folder, run, records);
    if (code == VARVE_OK) {
        code = sources_make(&settling, &reader);
    }
    if (code == VARVE_OK) {
        code = merge(&settling, &into);
    }
    settling_end(&settling);
    free(records);
    rebuild_side_drop(folder, side);
    rebuild_run_drop(folder, run, true);
    *run = into;
    return code;
}
