/* SPDX-License-Identifier: Apache-2.0 */
/* C only: shared by C tests */
/*
 * Random copies, conversions, fills and indices on a storage in some memory (pool.h) and on its model in the C
 * library's, which NumPy vouches for: after each step both hold the same bytes, results are equal bit for bit, and
 * what one refuses the other does.
 */
#ifndef VARVE_TESTS_SUPPORT_STORAGE_RANDOM_RULES_H
#define VARVE_TESTS_SUPPORT_STORAGE_RANDOM_RULES_H

#include "support/storage/storage_rules.h"
#include "support/random_views.h"

#include <stdio.h>

#define RANDOM_STORAGES 4U
#define RANDOM_STEPS 1500U
#define RANDOM_VIEW 6000 /* elements, at most */
#define RANDOM_INDICES 6U
#define RANDOM_ARRAY 64 /* elements of an index array, at most */

struct random_scene {
    const struct pool *pool;
    uint64_t random;
    /* of equal contents: in the C library's memory, in the pool's */
    struct varve_storage *model[RANDOM_STORAGES], *tested[RANDOM_STORAGES];
    unsigned done, refused; /* operations */
    char what[400];         /* the last one */
};

static inline int64_t random_to(struct random_scene *scene, int64_t limit)
{
    return (int64_t)random_below(&scene->random, (uint64_t)limit);
}

static inline bool random_chance(struct random_scene *scene, unsigned percent)
{
    return random_below(&scene->random, 100) < percent;
}

/* ---- the storages ---- */

static inline void random_open(struct random_scene *scene, unsigned number, int64_t count)
{
    enum varve_dtype dtype = (enum varve_dtype)random_to(scene, VARVE_DTYPE_LIMIT);
    struct varve_storage_options options = {.memory = NULL};
    unsigned char *bytes;

    rule_ok(varve_storage_empty(&options, dtype, 1, &count, &scene->model[number], &rule_message));
    bytes = varve_storage_data(scene->model[number]);
    for (uint64_t i = 0; i < varve_storage_bytes(scene->model[number]); i++) {
        bytes[i] = (unsigned char)random_below(&scene->random, dtype == VARVE_DTYPE_BOOL ? 2 : 256);
    }
    options.memory = scene->pool->memory;
    rule_ok(varve_storage_clone(scene->model[number], &options, &scene->tested[number], &rule_message));
}

/* Both hold the same bytes. */
static inline void random_compare(struct random_scene *scene, struct varve_storage *model, struct varve_storage *tested)
{
    const struct varve_storage_options options = {.memory = varve_memory_host()};
    struct varve_storage *expected, *seen;
    size_t element = varve_dtype_bytes(varve_storage_dtype(model));

    rule_ok(varve_storage_check(tested, &rule_message));
    assert_int_equal(varve_storage_dtype(tested), varve_storage_dtype(model));
    assert_int_equal(varve_storage_count(tested), varve_storage_count(model));
    rule_ok(varve_storage_clone(model, &options, &expected, &rule_message));
    rule_ok(varve_storage_clone(tested, &options, &seen, &rule_message));
    for (int64_t i = 0; i < varve_storage_count(model); i++) {
        const char *one = (const char *)varve_storage_data(expected) + (size_t)i * element;
        const char *other = (const char *)varve_storage_data(seen) + (size_t)i * element;

        if (memcmp(one, other, element) != 0) {
            fail_msg("step %u, %s: element %lld of %lld differs", scene->done, scene->what, (long long)i,
                     (long long)varve_storage_count(model));
        }
    }
    rule_release(expected);
    rule_release(seen);
}

static inline void random_compare_errors(struct random_scene *scene, int model, int tested)
{
    if (model != tested) {
        fail_msg("step %u, %s: %s, not %s (%s)", scene->done, scene->what, varve_strerror(tested),
                 varve_strerror(model), rule_message.text);
    }
    scene->done++;
    scene->refused += model != VARVE_OK;
}

/* ---- views ---- */

/* The same view of both storages; false: none of that shape. */
static inline bool random_views(struct random_scene *scene, unsigned number, unsigned ndim, const int64_t *shape,
                                bool may_expand, struct varve_storage *views[2])
{
    struct varve_geometry geometry;

    if (!random_views_geometry(&scene->random, &geometry, ndim, shape, varve_storage_count(scene->model[number]))) {
        return false;
    }
    for (unsigned axis = 0; axis < ndim && may_expand; axis++) {
        geometry.strides[axis] *= !random_chance(scene, 10);
    }
    rule_ok(varve_storage_view(scene->model[number], &geometry, &views[0], &rule_message));
    rule_ok(varve_storage_view(scene->tested[number], &geometry, &views[1], &rule_message));
    return true;
}

static inline void random_release(struct varve_storage *views[2])
{
    rule_release(views[0]);
    rule_release(views[1]);
}

static inline void random_say(struct random_scene *scene, const char *what, struct varve_storage *target,
                              struct varve_storage *source)
{
    char text[2][180] = {"", ""};
    struct varve_storage_info info;

    varve_storage_inspect(target, &info);
    varve_storage_info_text(&info, text[0], sizeof(text[0]));
    if (source != NULL) {
        varve_storage_inspect(source, &info);
        varve_storage_info_text(&info, text[1], sizeof(text[1]));
    }
    snprintf(scene->what, sizeof(scene->what), "%s %s; %s", what, text[0], text[1]);
}

/* ---- steps ---- */

static inline struct varve_scalar random_scalar(struct random_scene *scene)
{
    return (struct varve_scalar){.kind = random_chance(scene, 30)   ? VARVE_SCALAR_BOOL
                                         : random_chance(scene, 50) ? VARVE_SCALAR_INTEGER
                                                                    : VARVE_SCALAR_REAL,
                                 .integer = random_to(scene, 2),
                                 .real = (double)random_to(scene, 1000) / 8 - 60};
}

/* Another storage's elements, or its own, of the same memory or of the C library's. */
static inline void random_copy(struct random_scene *scene)
{
    unsigned target = (unsigned)random_to(scene, RANDOM_STORAGES), source = (unsigned)random_to(scene, RANDOM_STORAGES),
             ndim;
    int64_t shape[VARVE_DIMS_MAX] = {0}, narrow[VARVE_DIMS_MAX] = {0};
    struct varve_storage *into[2], *from[2];
    bool is_from_host;

    ndim = random_views_shape(&scene->random, shape, RANDOM_VIEW);
    for (unsigned axis = 0; axis < ndim; axis++) {
        narrow[axis] = random_chance(scene, 10) ? 1 : shape[axis];
    }
    if (!random_views(scene, target, ndim, shape, false, into)) {
        return;
    }
    if (!random_views(scene, source, ndim, narrow, true, from)) {
        random_release(into);
        return;
    }
    is_from_host = target != source && random_chance(scene, 20);
    random_say(scene, "copy", into[0], from[0]);
    random_compare_errors(scene, varve_storage_copy(into[0], from[0], NULL),
                          varve_storage_copy(into[1], from[is_from_host ? 0 : 1], &rule_message));
    random_release(from);
    random_release(into);
    random_compare(scene, scene->model[target], scene->tested[target]);
}

static inline void random_fill(struct random_scene *scene)
{
    unsigned target = (unsigned)random_to(scene, RANDOM_STORAGES), ndim;
    struct varve_scalar value = random_scalar(scene);
    int64_t shape[VARVE_DIMS_MAX] = {0};
    struct varve_storage *into[2];

    ndim = random_views_shape(&scene->random, shape, RANDOM_VIEW);
    if (random_views(scene, target, ndim, shape, false, into)) {
        random_say(scene, "fill", into[0], NULL);
        random_compare_errors(scene, varve_storage_fill(into[0], value, NULL),
                              varve_storage_fill(into[1], value, &rule_message));
        random_release(into);
        random_compare(scene, scene->model[target], scene->tested[target]);
    }
}

/* What stands in the brackets, and the arrays of it. */
struct random_index {
    struct varve_index entries[RANDOM_INDICES];
    int64_t positions[RANDOM_INDICES][RANDOM_ARRAY];
    bool masks[RANDOM_INDICES][80];
    unsigned count;
};

static inline void random_entry(struct random_scene *scene, struct random_index *index, int64_t size, int64_t picked)
{
    struct varve_index *entry = &index->entries[index->count];
    unsigned kind = (unsigned)random_to(scene, 100);
    int64_t one[1] = {0};

    *entry = (struct varve_index){.kind = VARVE_INDEX_SLICE,
                                  .start = VARVE_SLICE_NONE,
                                  .stop = VARVE_SLICE_NONE,
                                  .step = random_chance(scene, 50) ? 1 : random_to(scene, 5) * 2 - 5};
    if (kind < 25 && size > 0) {
        *entry = (struct varve_index){.kind = VARVE_INDEX_INTEGER, .start = random_to(scene, size)};
    } else if (kind < 60 && size > 0) {
        entry->kind = VARVE_INDEX_ARRAY;
        for (int64_t i = 0; i < picked; i++) { /* now and then one beyond the end */
            index->positions[index->count][i] =
                random_to(scene, 2 * size) - size + (random_chance(scene, 1) ? size : 0);
        }
        one[0] = picked;
        entry->array = (struct varve_array){.data = index->positions[index->count], .dtype = VARVE_DTYPE_I64};
    } else if (kind < 75 && size <= 80) {
        entry->kind = VARVE_INDEX_MASK;
        for (int64_t i = 0; i < size; i++) {
            index->masks[index->count][i] = random_chance(scene, 50);
        }
        one[0] = size;
        entry->array = (struct varve_array){.data = index->masks[index->count], .dtype = VARVE_DTYPE_BOOL};
    }
    rule_ok(varve_geometry_contiguous(1, one, &entry->array.geometry, &rule_message));
    index->count++;
}

static inline void random_index_of(struct random_scene *scene, unsigned ndim, const int64_t *shape,
                                   struct random_index *index)
{
    int64_t picked = 1 + random_to(scene, random_chance(scene, 80) ? 5 : RANDOM_ARRAY - 1);

    index->count = 0;
    for (unsigned axis = 0; axis < ndim && index->count < RANDOM_INDICES - 1; axis++) {
        if (random_chance(scene, 8)) {
            index->entries[index->count++] = (struct varve_index){.kind = VARVE_INDEX_NEW_AXIS};
        } else if (random_chance(scene, 85)) {
            random_entry(scene, index, shape[axis], picked);
        } else {
            break;
        }
    }
}

static inline void random_pick(struct random_scene *scene)
{
    unsigned source = (unsigned)random_to(scene, RANDOM_STORAGES), ndim;
    int64_t shape[VARVE_DIMS_MAX] = {0};
    struct varve_storage *from[2], *picked[2];
    struct random_index index;
    int error;

    ndim = random_views_shape(&scene->random, shape, RANDOM_VIEW);
    if (!random_views(scene, source, ndim, shape, true, from)) {
        return;
    }
    random_index_of(scene, ndim, shape, &index);
    random_say(scene, "pick", from[0], NULL);
    error = varve_storage_index(from[0], index.entries, index.count, &picked[0], NULL);
    random_compare_errors(scene, error,
                          varve_storage_index(from[1], index.entries, index.count, &picked[1], &rule_message));
    random_release(from);
    if (error == VARVE_OK) {
        random_compare(scene, picked[0], picked[1]);
        random_release(picked);
    }
}

/* Of a storage's elements, or of one number. */
static inline void random_set(struct random_scene *scene)
{
    unsigned target = (unsigned)random_to(scene, RANDOM_STORAGES), source = (unsigned)random_to(scene, RANDOM_STORAGES),
             ndim;
    int64_t shape[VARVE_DIMS_MAX] = {0};
    struct varve_scalar value = random_scalar(scene);
    struct varve_storage *into[2], *picked, *from[2];
    struct random_index index;
    struct varve_array array;

    ndim = random_views_shape(&scene->random, shape, RANDOM_VIEW);
    if (!random_views(scene, target, ndim, shape, false, into)) {
        return;
    }
    random_index_of(scene, ndim, shape, &index);
    random_say(scene, "set", into[0], NULL);
    if (varve_storage_index(into[0], index.entries, index.count, &picked, NULL) == VARVE_OK) {
        varve_storage_get_array(picked, &array); /* the shape that values have */
        rule_release(picked);
        if (random_chance(scene, 40) ||
            !random_views(scene, source, array.geometry.ndim, array.geometry.shape, true, from)) {
            random_compare_errors(scene, varve_storage_index_fill(into[0], index.entries, index.count, value, NULL),
                                  varve_storage_index_fill(into[1], index.entries, index.count, value, &rule_message));
        } else {
            random_say(scene, "set", into[0], from[0]);
            random_compare_errors(scene, varve_storage_index_set(into[0], index.entries, index.count, from[0], NULL),
                                  varve_storage_index_set(into[1], index.entries, index.count, from[1], &rule_message));
            random_release(from);
        }
    }
    random_release(into);
    random_compare(scene, scene->model[target], scene->tested[target]);
}

static inline void rule_random(void **state)
{
    static void (*const steps[])(struct random_scene *) = {random_copy, random_copy, random_fill, random_pick,
                                                           random_set};
    struct random_scene scene = {.pool = *state, .random = test_first_seed(1)};

    for (unsigned step = 0; step < RANDOM_STEPS; step++) {
        if (step % 50 == 0) { /* other types, and sizes up to what takes many of a GPU's threads */
            for (unsigned i = 0; i < RANDOM_STORAGES; i++) {
                if (step > 0) {
                    rule_release(scene.model[i]);
                    rule_release(scene.tested[i]);
                }
                random_open(&scene, i, random_chance(&scene, 30) ? 20000 : 200 + random_to(&scene, 2000));
            }
        }
        steps[random_below(&scene.random, sizeof(steps) / sizeof(steps[0]))](&scene);
    }
    for (unsigned i = 0; i < RANDOM_STORAGES; i++) {
        rule_release(scene.model[i]);
        rule_release(scene.tested[i]);
    }
    printf("%u operations, of which %u were refused\n", scene.done, scene.refused);
    assert_true(scene.done > RANDOM_STEPS / 2 && scene.refused < scene.done / 4);
}

#define RANDOM_RULES(kind) POOL_CASE(rule_random, kind)

#endif
