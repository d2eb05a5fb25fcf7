/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a map adds to an index (tests/unit/base/test_index.c): values may be 0, and every number is a key.
 *
 * Costs: 1 s
 */
#include "analysis/base/key_map.h"

#include <cmocka.h>

TEST(test_map_values)
{
    static const uint64_t keys[] = {0, 1, UINT64_MAX};
    struct map map = {0};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        assert_int_equal(map_find(&map, keys[i]), MAP_NONE);
        map_put(&map, keys[i], i);
        assert_int_equal(map_find(&map, keys[i]), i);
        map_put(&map, keys[i], MAP_NONE); /* which would be none */
        assert_int_equal(map_find(&map, keys[i]), MAP_NONE - 1);
    }
    assert_int_equal(map.index.count, 3);
    assert_int_equal(map_remove(&map, UINT64_MAX), MAP_NONE - 1);
    assert_int_equal(map_remove(&map, UINT64_MAX), MAP_NONE);
    assert_int_equal(map.index.count, 2);
    map_free(&map);
    assert_int_equal(map_remove(&map, 0), MAP_NONE);
}
