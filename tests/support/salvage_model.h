/* SPDX-License-Identifier: Apache-2.0 */
/* C only: test code */
/*
 * Copies of records beside a naive list of what was kept and marked. A record follows from its ring and
 * number, so the list holds numbers alone. For unit/trace/collector/lttng/test_salvage.c and unit/trace/collector/lttng/test_salvage_faults.c.
 */
#ifndef VARVE_TESTS_SUPPORT_SALVAGE_MODEL_H
#define VARVE_TESTS_SUPPORT_SALVAGE_MODEL_H

#include "trace/collector/lttng/salvage_parts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RINGS_PER_PROCESS 7U
#define FAR (UINT64_C(1) << 40)

static inline uint64_t random_word(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state * UINT64_C(0x2545f4914f6cdd1d);
}

/* ---- the model ---- */

struct model_ring {
    uint64_t *numbers; /* kept */
    bool *is_marked;
    size_t count, room;
    bool is_done;  /* the current reading has left it */
    size_t handed; /* by the current reading: the model's records before this index are dealt with */
};

struct model {
    struct salvage *salvage;
    struct model_ring *rings;
    uint32_t ring_count;
    uint32_t current; /* ring of the current reading; ring_count: none yet */
    char problem[256];
    char folder[32];
    uint64_t random;
};

/* Ring 0 of a process is shared: its thread changes now and then. */
static inline struct varve_mirror_origin origin_of(uint32_t ring, uint64_t number)
{
    uint32_t index = ring % RINGS_PER_PROCESS;
    return (struct varve_mirror_origin){.process = 1 + ring / RINGS_PER_PROCESS,
                                        .ring = index,
                                        .pid = (int32_t)(70000 - ring / RINGS_PER_PROCESS),
                                        .tid = (int32_t)(index != 0 ? ring : 5 + number / 100 % 3)};
}

static inline struct varve_record record_of(uint32_t ring, uint64_t number)
{
    uint64_t noise = (number + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ ring * UINT64_C(0xd6e8feb86659fd93);
    bool is_rich = noise % 5 == 0;
    return (struct varve_record){
        .ticks = UINT64_C(0x0003a1b2c3d4e5f6) + number * 300 + noise % 256,
        .addr = UINT64_C(0x55d0c0a00000) + (noise >> 40) * 16,
        .size = (noise >> 8) % 5000,
        .requested = is_rich ? noise : 0,
        .arg = is_rich ? ~noise : 0,
        .id_stream = is_rich ? noise << 7 : 0,
        .dev_seq_kind_flags = varve_record_tag(number % 3, VARVE_KIND_HEAP_ALLOC, ring % 2),
        .callsite = (uint32_t)(noise % 300),
        .pool = (uint16_t)(ring % 3),
        .cause = VARVE_CAUSE_MALLOC,
    };
}

static inline void model_open(struct model *model, uint32_t ring_count)
{
    char path[sizeof(model->folder) + 16];
    struct varve_message message = {""};

    *model = (struct model){
        .ring_count = ring_count, .folder = "/tmp/varve-salvage-XXXXXX", .random = 88172645463325252U};
    model->rings = calloc(ring_count, sizeof(*model->rings));
    assert_non_null(model->rings);
    assert_non_null(mkdtemp(model->folder));
    snprintf(path, sizeof(path), "%s/copies", model->folder);
    if (salvage_open(path, &model->salvage, &message) != VARVE_OK) {
        fail_msg("%s", message.text);
    }
    assert_int_equal(access(path, F_OK), -1); /* nothing is left behind, whoever is killed */
}

static inline void model_close(struct model *model)
{
    salvage_close(model->salvage);
    for (uint32_t i = 0; i < model->ring_count; i++) {
        free(model->rings[i].numbers);
        free(model->rings[i].is_marked);
    }
    free(model->rings);
    assert_int_equal(rmdir(model->folder), 0);
}

static inline void model_note(struct model *model, uint32_t index, uint64_t number)
{
    struct model_ring *ring = &model->rings[index];

    if (ring->count == ring->room) {
        ring->room = ring->room * 2 + 16;
        ring->numbers = realloc(ring->numbers, ring->room * sizeof(*ring->numbers));
        ring->is_marked = realloc(ring->is_marked, ring->room * sizeof(*ring->is_marked));
        assert_non_null(ring->numbers);
        assert_non_null(ring->is_marked);
    }
    ring->numbers[ring->count] = number;
    ring->is_marked[ring->count++] = false;
}

static inline int keep_only(struct model *model, uint32_t ring, uint64_t number)
{
    const struct varve_mirror_origin origin = origin_of(ring, number);
    const struct varve_record record = record_of(ring, number);

    return salvage_keep(model->salvage, &origin, number, &record);
}

static inline void keep(struct model *model, uint32_t ring, uint64_t number)
{
    int error = keep_only(model, ring, number);

    if (error != VARVE_OK) {
        fail_msg("number %llu of ring %u: %s", (unsigned long long)number, ring, varve_strerror(error));
    }
    model_note(model, ring, number);
}

static inline void mark_only(struct model *model, uint32_t ring, uint64_t number)
{
    const struct varve_mirror_origin origin = origin_of(ring, number);

    assert_int_equal(salvage_mark(model->salvage, origin.process, origin.pid, origin.ring, number), VARVE_OK);
}

static inline void mark(struct model *model, uint32_t ring, size_t index)
{
    mark_only(model, ring, model->rings[ring].numbers[index]);
    model->rings[ring].is_marked[index] = true;
}

/* The first of a ring's records, from `from` on, that is not marked; `count` of them if there is none. */
static inline size_t model_next(const struct model_ring *ring, size_t from)
{
    while (from < ring->count && ring->is_marked[from]) {
        from++;
    }
    return from;
}

/* A callback that asserts would leave salvage_each by longjmp: problems are told afterwards. */
static inline int problem(struct model *model, const char *what, uint32_t ring, uint64_t number)
{
    snprintf(model->problem, sizeof(model->problem), "number %llu of ring %u: %s", (unsigned long long)number,
             ring, what);
    return VARVE_ERROR_CORRUPT;
}

static inline int check_taken(void *context, const struct varve_mirror_origin *origin, uint64_t number,
                              const struct varve_record *record)
{
    struct model *model = context;
    uint32_t index = (origin->process - 1) * RINGS_PER_PROCESS + origin->ring;
    struct varve_mirror_origin expected_origin;
    struct model_ring *ring;
    struct varve_record expected;
    size_t next;

    if (index >= model->ring_count) {
        return problem(model, "there is no such ring", index, number);
    }
    ring = &model->rings[index];
    if (index != model->current) {
        if (ring->is_done) {
            return problem(model, "another ring came in between", index, number);
        }
        if (model->current < model->ring_count) {
            model->rings[model->current].is_done = true;
        }
        model->current = index;
    }
    next = model_next(ring, ring->handed);
    if (next == ring->count || ring->numbers[next] != number) {
        return problem(model, "was not the next one", index, number);
    }
    ring->handed = next + 1;
    expected = record_of(index, number);
    expected_origin = origin_of(index, number);
    if (memcmp(&expected, record, sizeof(expected)) != 0) {
        return problem(model, "the record is another one", index, number);
    }
    if (memcmp(&expected_origin, origin, sizeof(expected_origin)) != 0) {
        return problem(model, "the origin is another one", index, number);
    }
    return VARVE_OK;
}

/* Reads everything; salvage_each must return `expected`, the records must be the model's. */
static inline void compare(struct model *model, int expected, struct varve_message *message)
{
    uint64_t missing = 0;
    uint64_t count = 0;
    int error;

    model->current = model->ring_count;
    for (uint32_t i = 0; i < model->ring_count; i++) {
        struct model_ring *ring = &model->rings[i];
        ring->handed = 0;
        ring->is_done = false;
        for (size_t k = 0; k < ring->count; k++) {
            missing += !ring->is_marked[k];
        }
    }
    error = salvage_each(model->salvage, check_taken, model, &count, message);
    if (model->problem[0] != '\0') {
        fail_msg("%s", model->problem);
    }
    if (error != expected) {
        fail_msg("%s: %s", varve_strerror(error), message->text);
    }
    assert_int_equal(count, missing);
}

static inline void compare_all(struct model *model)
{
    struct varve_message message = {""};

    compare(model, VARVE_OK, &message);
}

static inline void mark_some(struct model *model, unsigned one_in)
{
    for (uint32_t ring = 0; ring < model->ring_count; ring++) {
        for (size_t i = 0; i < model->rings[ring].count; i++) {
            if (random_word(&model->random) % one_in == 0) {
                mark(model, ring, i);
            }
        }
    }
}

#endif
