/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Marks of a process's work and of a call site's curve, against every allocation by itself: they lie where they say,
 * there are never more than there is room for, and between two of them a curve is their mean in proportion. And of call
 * sites that are one: theirs together is near that of all their allocations.
 * Costs: 1 s
 */
#include <stdbool.h>
#include <cmocka.h>

#include "support/random.h"
#include "trace/model/curve.h"
#include "trace/model/process_work.h"

#include <stdlib.h>

#define ALLOCATIONS 100000U

TEST(test_work)
{
    static struct work_mark marks[ALLOCATIONS + 1];
    static struct work work;
    uint64_t random = test_first_seed(1);
    for (uint64_t made = 1; made <= ALLOCATIONS; made++) {
        const uint64_t since = random_below(&random, 500) == 0 ? 3000000 : random_below(&random, 50);
        const struct work_mark before = marks[made - 1];
        marks[made].seq = before.seq + random_below(&random, 3);
        marks[made].ns = before.ns + (int64_t)since;
        marks[made].active_ns = made == 1 ? 0 : before.active_ns + (since < WORK_PAUSE_NS ? since : WORK_PAUSE_NS);
        marks[made].allocations = made;
        work_add(&work, marks[made].seq, marks[made].ns);
        assert_memory_equal(&work.first, &marks[1], sizeof(marks[1]));
        assert_memory_equal(&work.last, &marks[made], sizeof(marks[1]));
        assert_true(work.count <= WORK_MARKS);
        uint32_t count = 0;
        for (uint64_t i = 2; made % 1000 == 0 && i <= made; i++) {
            if (marks[i].active_ns >> work.shift != marks[i - 1].active_ns >> work.shift) {
                assert_memory_equal(&work.marks[count++], &marks[i], sizeof(marks[1]));
            }
        }
        assert_true(made % 1000 != 0 || count == work.count);
    }
    assert_true(work.count >= WORK_MARKS / 2);
}

/* Each allocation is live at random, all along equally often. */
TEST(test_curve)
{
    static struct curve_point live[ALLOCATIONS + 1];
    struct curve *curve = NULL;
    uint64_t random = test_first_seed(1);
    for (uint64_t made = 1; made <= ALLOCATIONS; made++) {
        const bool stays = random_below(&random, 20) == 0;
        live[made].allocations = live[made - 1].allocations + stays;
        live[made].bytes = live[made - 1].bytes + stays * random_below(&random, 100);
        if (made % CURVE_EVERY_MIN == 0) {
            curve_add(&curve, made, made, live[made]);
            assert_non_null(curve);
            assert_true(curve->count <= CURVE_MARKS && curve->count == made / curve->every);
        }
        for (unsigned tenth = 1; made % 7777 == 0 && tenth <= 10; tenth++) {
            const uint64_t at = made * tenth / 10, before = at / curve->every * curve->every;
            const uint64_t after = before + curve->every <= made ? before + curve->every : made;
            const struct curve_point point = curve_at(curve, tenth, made, live[made]);
            assert_in_range(point.allocations, live[before].allocations, live[after].allocations);
            assert_in_range(point.bytes, live[before].bytes, live[after].bytes);
        }
        if (made % 7777 == 0) {
            const struct curve_point last = curve_at(curve, 10, made, live[made]);
            assert_int_equal(last.allocations, live[made].allocations);
            assert_int_equal(last.bytes, live[made].bytes);
        }
    }
    assert_true(curve->count >= CURVE_MARKS / 2);
    free(curve);
}

/* ---- several call sites that are one ---- */

#define PARTS 40U
#define ROWS 6000U

struct row {
    uint32_t part;
    uint64_t size;
    bool stays;
};

struct scene {
    struct row rows[ROWS + 1]; /* allocation n is event 3 * n */
    struct curve_part parts[PARTS];
    struct curve_point lives[PARTS]; /* so far */
    struct curve *curves[PARTS];
};

/* Which call sites are at work, how many, and what of it stays changes on the way. */
static void scene_fill(struct scene *scene, uint64_t *random)
{
    uint32_t first = 0, width = PARTS, stays = 1;
    for (uint64_t made = 1; made <= ROWS; made++) {
        if (made % 500 == 1) {
            first = (uint32_t)random_below(random, PARTS);
            width = 1 + (uint32_t)random_below(random, random_below(random, 2) == 0 ? 3 : PARTS);
            stays = 1 + (uint32_t)random_below(random, 20);
        }
        struct row *row = &scene->rows[made];
        row->part = (first + (uint32_t)random_below(random, width)) % PARTS;
        row->size = random_below(random, 100);
        row->stays = random_below(random, stays) == 0;
        struct curve_part *part = &scene->parts[row->part];
        struct curve_point *live = &scene->lives[row->part];
        live->allocations += row->stays;
        live->bytes += row->stays ? row->size : 0;
        part->first_seq = part->made == 0 ? 3 * made : part->first_seq;
        part->last_seq = 3 * made;
        part->end = *live;
        if (++part->made % CURVE_EVERY_MIN == 0) {
            curve_add(&scene->curves[row->part], part->made, 3 * made, *live);
        }
        part->curve = scene->curves[row->part];
    }
}

/* What was live after so many of all allocations. */
static struct curve_point live_at(const struct scene *scene, double made)
{
    struct curve_point live = {0, 0};
    for (uint64_t i = 1; i <= ROWS && (double)i <= made; i++) {
        live.allocations += scene->rows[i].stays;
        live.bytes += scene->rows[i].stays ? scene->rows[i].size : 0;
    }
    return live;
}

/* Each is wrong by the distance of its marks, or by all that it has made, and by no more. */
TEST(test_curve_of_several)
{
    uint64_t random = test_first_seed(1);
    for (int round = 0; round < 30; round++) {
        struct scene *scene = calloc(1, sizeof(*scene));
        assert_non_null(scene);
        scene_fill(scene, &random);
        double slack = 1;
        for (uint32_t i = 0; i < PARTS; i++) {
            const struct curve *curve = scene->curves[i];
            slack += (double)(curve != NULL ? curve->every : scene->parts[i].made);
        }
        struct curve *curve = curve_join(scene->parts, PARTS);
        assert_non_null(curve);
        const struct curve_point end = live_at(scene, ROWS);
        for (unsigned tenth = 1; tenth <= 10; tenth++) {
            const struct curve_point point = curve_at(curve, tenth, ROWS, end);
            const struct curve_point low = live_at(scene, ROWS * tenth / 10.0 - slack);
            const struct curve_point high = live_at(scene, ROWS * tenth / 10.0 + slack);
            assert_in_range(point.allocations + 1, low.allocations, high.allocations + 1); /* rounded down */
            assert_in_range(point.bytes + 1, low.bytes, high.bytes + 1);
        }
        assert_memory_equal(&curve->marks[9].live, &end, sizeof(end));
        free(curve);
        for (uint32_t i = 0; i < PARTS; i++) {
            free(scene->curves[i]);
        }
        free(scene);
    }
}

/* One after the other, and one that makes all at once: as if it were one. */
TEST(test_curve_of_phases)
{
    struct curve *curves[2] = {NULL, NULL};
    for (uint64_t made = 64; made <= 640; made += 64) {
        curve_add(&curves[0], made, made, (struct curve_point){made, 10 * made});
        curve_add(&curves[1], made, 1000 + made, (struct curve_point){0, 0});
    }
    const struct curve_part parts[] = {{curves[0], 1, 640, 640, {640, 6400}},
                                       {curves[1], 1001, 1640, 640, {0, 0}},
                                       {NULL, 2000, 2000, 1, {1, 7}},
                                       {NULL, 2001, 2040, 319, {319, 0}}};
    struct curve *curve = curve_join(parts, 4);
    assert_non_null(curve);
    static const uint64_t expected[] = {160, 320, 480, 640, 640, 640, 640, 640, 800, 960};
    for (unsigned tenth = 1; tenth <= 10; tenth++) {
        const struct curve_point point = curve_at(curve, tenth, 1600, (struct curve_point){960, 6407});
        assert_in_range(point.allocations, expected[tenth - 1] - 1, expected[tenth - 1] + 1);
        assert_in_range(point.bytes, tenth < 4 ? 1600 * tenth - 11 : 6400, tenth < 4 ? 1600 * tenth + 11 : 6407);
    }
    free(curve);
    free(curves[0]);
    free(curves[1]);
}

TEST_FILE(NULL, NULL)
