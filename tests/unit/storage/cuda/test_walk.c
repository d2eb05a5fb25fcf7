/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What kernels are given to walk: divisions by multiplication, loops cut into walks of fewer than 2^31 elements, and
 * the units that elements are moved in. The kernels' own arithmetic is repeated here as they do it.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "storage/cuda/gpu_copy.h"
#include "storage/cuda/gpu_walk.h"
#include "support/random.h"

#include <string.h>

static uint32_t quotient(const struct walk_axis *axis, uint32_t index)
{
    return ((uint32_t)(((uint64_t)index * axis->multiplier) >> 32) + index) >> axis->shift;
}

static void division_check(uint32_t size, uint32_t index)
{
    struct walk_axis axis = walk_axis_of(size);
    if (index < WALK_COUNT_MAX) {
        assert_int_equal(quotient(&axis, index), index / size);
    }
}

TEST(test_divisions)
{
    uint64_t random = 20;
    for (uint32_t size = 1; size < 3000; size++) {
        for (uint32_t index = 0; index < 300; index++) {
            division_check(size, index);
            division_check(size, size * index);
            division_check(size, size * index + size - 1);
            division_check(size, (uint32_t)WALK_COUNT_MAX - 1 - index);
        }
    }
    for (int round = 0; round < 2000000; round++) {
        uint64_t number = random_next(&random);
        uint32_t size = (uint32_t)(number >> 33 >> (number % 31)), index = (uint32_t)number >> 1;
        size = size > 0 ? size : 1;
        division_check(size, index);
        division_check(size, index - index % size);
        division_check(size, (uint32_t)WALK_COUNT_MAX - 1);
    }
}

/* A loop of two operands; `data` are numbers that nobody follows. */
static struct elements_loop loop_of(unsigned ndim, const int64_t *shape, const ptrdiff_t *first,
                                    const ptrdiff_t *second)
{
    struct elements_loop loop = {.operands = 2, .ndim = ndim, .data = {(char *)4096, (char *)65536}};
    memcpy(loop.shape, shape, ndim * sizeof(*shape));
    memcpy(loop.strides[0], first, ndim * sizeof(*first));
    memcpy(loop.strides[1], second, ndim * sizeof(*second));
    return loop;
}

struct sum {
    uint64_t count, walks;
    unsigned __int128 addrs[2]; /* of all elements */
};

static int add(const struct walk *walk, void *context)
{
    struct sum *sum = context;
    assert_in_range(walk->count, 1, WALK_COUNT_MAX - 1);
    sum->count += walk->count;
    sum->walks++;
    for (int k = 0; k < 2; k++) {
        unsigned __int128 total = (unsigned __int128)walk->addrs[k] * walk->count;
        for (uint32_t i = 0; i < walk->axis_count; i++) { /* each place of an axis comes equally often */
            const struct walk_axis *axis = &walk->axes[i];
            total += (unsigned __int128)((uint64_t)axis->size * (axis->size - 1) / 2) * (uint64_t)axis->strides[k] *
                     (walk->count / axis->size);
        }
        sum->addrs[k] += total;
    }
    return 0;
}

/* The walks have the loop's elements: as many, with the same sum of addresses. */
static void parts_check(unsigned ndim, const int64_t *shape, uint64_t walks)
{
    const ptrdiff_t first[] = {1 << 20, 4096, 16}, second[] = {3, 1 << 10, 1 << 22};
    struct elements_loop loop = loop_of(ndim, shape, first, second);
    unsigned __int128 addrs[2] = {0, 0};
    uint64_t count = 1;
    struct sum sum = {0};
    for (unsigned i = 0; i < ndim; i++) {
        count *= (uint64_t)shape[i];
    }
    for (unsigned k = 0; k < 2; k++) {
        addrs[k] = (unsigned __int128)(uintptr_t)loop.data[k] * count;
        for (unsigned i = 0; i < ndim; i++) {
            addrs[k] += (unsigned __int128)shape[i] * (unsigned __int128)(shape[i] - 1) / 2 *
                        (uint64_t)loop.strides[k][i] * (count / (uint64_t)shape[i]);
        }
    }
    assert_int_equal(walk_each(&loop, add, &sum), 0);
    assert_int_equal(sum.count, count);
    assert_true(sum.addrs[0] == addrs[0] && sum.addrs[1] == addrs[1]);
    assert_int_equal(sum.walks, walks);
}

TEST(test_parts)
{
    parts_check(1, (const int64_t[]){1}, 1);
    parts_check(3, (const int64_t[]){3, 5, 7}, 1);
    parts_check(1, (const int64_t[]){INT32_MAX}, 1);
    parts_check(1, (const int64_t[]){INT64_C(1) << 31}, 2);
    parts_check(1, (const int64_t[]){(INT64_C(1) << 33) + 5}, 5);
    parts_check(2, (const int64_t[]){5, INT32_MAX}, 5);
    parts_check(2, (const int64_t[]){5, (INT64_C(1) << 31) + 1}, 10);
    parts_check(3, (const int64_t[]){2, 3, INT64_C(1) << 32}, 18);
    parts_check(3, (const int64_t[]){3000, 1000, 1000}, 2);
}

static int fail_at_second(const struct walk *walk, void *context)
{
    (void)walk;
    return ++*(int *)context == 2 ? VARVE_ERROR_IO : 0;
}

TEST(test_visits)
{
    const ptrdiff_t strides[] = {4, 4};
    struct elements_loop loop = loop_of(1, (const int64_t[]){INT64_C(1) << 34}, strides, strides);
    int visits = 0;
    assert_int_equal(walk_each(&loop, fail_at_second, &visits), VARVE_ERROR_IO);
    assert_int_equal(visits, 2);
    loop.shape[0] = 0;
    assert_int_equal(walk_each(&loop, fail_at_second, &visits), 0);
    assert_int_equal(visits, 2);
}

/* ---- units ---- */

static void unit_check(struct elements_loop loop, unsigned bytes, uint64_t also, unsigned expected, unsigned ndim,
                       int64_t last_size)
{
    assert_int_equal(gpu_widen(&loop, 2, bytes, also), expected);
    assert_int_equal(loop.ndim, ndim);
    assert_int_equal(loop.shape[ndim - 1], last_size);
}

TEST(test_units)
{
    const ptrdiff_t rows[] = {96, 4}, odd_rows[] = {100, 4}, apart[] = {96, 8};
    const int64_t shape[] = {10, 24}, few[] = {10, 2};
    struct elements_loop shifted = loop_of(2, shape, rows, rows);
    struct elements_loop full = {.operands = 2, .ndim = VARVE_DIMS_MAX, .data = {(char *)1, (char *)1}};
    unit_check(loop_of(2, shape, rows, rows), 4, 0, 16, 2, 6);
    unit_check(loop_of(2, shape, rows, odd_rows), 4, 0, 4, 2, 24);
    unit_check(loop_of(2, shape, rows, rows), 4, 8, 8, 2, 12);
    unit_check(loop_of(2, few, rows, rows), 4, 0, 8, 1, 10);    /* one unit: the axis goes */
    unit_check(loop_of(2, shape, rows, apart), 4, 0, 4, 2, 24); /* not dense */
    shifted.data[1] += 2;
    unit_check(shifted, 4, 0, 2, 2, 48);
    shifted.strides[1][1] = 8;
    unit_check(shifted, 4, 0, 2, 3, 2); /* elements in two parts */
    for (unsigned i = 0; i < VARVE_DIMS_MAX; i++) {
        full.shape[i] = 2;
        full.strides[0][i] = full.strides[1][i] = (ptrdiff_t)8 << i;
    }
    assert_int_equal(gpu_widen(&full, 2, 4, 0), 0);
}
