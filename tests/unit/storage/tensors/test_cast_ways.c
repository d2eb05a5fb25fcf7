/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversions as the processor here gets them beside those that any processor runs: the same bits for random elements
 * of all pairs of types, whole runs and what is left beside them, at any address. What the bits must be:
 * test_casts.py.
 * Costs: 1 s
 */
#include "storage/tensors/element_loop.h"

#include "cmocka.h"
#include "support/structure.h"

#define COUNT 3000
#define BYTES (COUNT * 8 + 8)

/* Random bits, and for 4 and 8 bytes often numbers near those that integers hold. */
static void elements_shuffle(char *bytes, enum varve_dtype dtype)
{
    for (int i = 0; i < COUNT; i++) {
        uint64_t random = random_next(&random_state);
        double real = (double)(int64_t)random / (double)(UINT64_C(1) << random % 64);
        float narrow = (float)real;
        if (dtype == VARVE_DTYPE_F64 && random % 4 != 0) {
            memcpy(bytes + i * 8, &real, 8);
        } else if (dtype == VARVE_DTYPE_F32 && random % 4 != 0) {
            memcpy(bytes + i * 4, &narrow, 4);
        } else {
            memcpy(bytes + (size_t)i * varve_dtype_bytes(dtype), &random, varve_dtype_bytes(dtype));
        }
    }
}

static void compare_pair(enum varve_dtype target, enum varve_dtype source, const char *elements, char *one, char *other)
{
    size_t bytes = varve_dtype_bytes(target);
    for (int round = 0; round < 20; round++) {
        int64_t count = (int64_t)random_below(&random_state, round < 10 ? 40 : COUNT + 1);
        size_t skip = random_below(&random_state, 8);
        memset(one, 0x5a, BYTES);
        memset(other, 0x5a, BYTES);
        elements_cast_find(target, source)(one + skip, elements, count);
        elements_cast_find_plain(target, source)(other + skip, elements, count);
        for (size_t i = 0; i < BYTES; i++) {
            if (one[i] != other[i]) {
                fail_msg("%s to %s: element %zd of %d", varve_dtype_name(source), varve_dtype_name(target),
                         (ssize_t)(i - skip) / (ssize_t)bytes, (int)count);
            }
        }
        for (size_t i = skip + (size_t)count * bytes; i < BYTES; i++) {
            assert_int_equal(one[i], 0x5a);
        }
    }
}

TEST(test_ways_agree)
{
    char *elements = malloc(BYTES), *one = malloc(BYTES), *other = malloc(BYTES);
    random_state = test_first_seed(21);
    assert_true(elements != NULL && one != NULL && other != NULL);
    for (unsigned i = 0; i < VARVE_DTYPE_LIMIT * VARVE_DTYPE_LIMIT; i++) {
        enum varve_dtype source = (enum varve_dtype)(i / VARVE_DTYPE_LIMIT);
        elements_shuffle(elements, source);
        compare_pair((enum varve_dtype)(i % VARVE_DTYPE_LIMIT), source, elements, one, other);
    }
    free(elements);
    free(one);
    free(other);
}
