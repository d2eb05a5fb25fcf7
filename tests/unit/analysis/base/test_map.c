/* SPDX-License-Identifier: Apache-2.0 */
/* The hash map against a plain array, under random operations. */
#include "support/random.h"
#include "support/replay.h"

#include "analysis/base/map.h"

#define KEYS 300

TEST(test_like_an_array)
{
    struct map map = {0};
    uint64_t values[KEYS] = {0}; /* 0: not there */
    uint64_t seed = 5;
    size_t count = 0;

    for (size_t i = 0; i < 200000; i++) {
        size_t key;
        uint64_t addr;
        uint64_t value;
        const uint64_t *found;

        key = random_below(&seed, KEYS);
        addr = 0x7f0000000000U + key * 512;
        found = map_find(&map, addr);
        assert_int_equal(found == NULL ? 0 : *found, values[key]);
        if (random_below(&seed, 16) < 8 + (i / 20000) % 2 * 4) {
            count += values[key] == 0 ? 1 : 0;
            values[key] = i + 1;
            map_put(&map, addr, i + 1);
        } else {
            assert_int_equal(map_remove(&map, addr, &value), values[key] != 0);
            assert_true(values[key] == 0 || value == values[key]);
            count -= values[key] != 0 ? 1 : 0;
            values[key] = 0;
        }
        assert_int_equal(map.count, count);
    }
    map_free(&map);
}

TEST(test_no_key)
{
    struct map map = {0};
    uint64_t value;

    assert_null(map_find(&map, 1));
    assert_false(map_remove(&map, 1, &value));
    map_put(&map, 0, 3);
    assert_null(map_find(&map, UINT64_MAX));
    assert_int_equal(*map_find(&map, 0), 3);
    map_free(&map);
}
