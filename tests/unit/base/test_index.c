/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The growing array, the hash index and the map of ranges against naive models: a list that is searched from end to
 * end, an array of all keys, an array of all addresses.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "support/random.h"
#include "base/grown_array.h"
#include "base/hash_index.h"
#include "base/range_set.h"

#include <stdlib.h>
#include <string.h>

static uint64_t random_state; /* seeded by each test */

/* ---- the index by what is equal, and the array that its entries lie in ---- */

#define ENTRIES_MAX 3000U
#define KEY_BYTES_MAX 24U

struct entry {
    unsigned char bytes[KEY_BYTES_MAX];
    size_t length;
};

struct key {
    const struct entry *entries, *wanted;
};

static bool entry_is_equal(const void *context, uint64_t number)
{
    const struct key *key = context;
    return memcmp(&key->entries[number - 1], key->wanted, sizeof(*key->wanted)) == 0;
}

/* Few lengths and few byte values, so that keys come again, and keys that differ in the last byte only. */
static struct entry random_entry(void)
{
    struct entry entry = {.length = random_below(&random_state, KEY_BYTES_MAX)};
    for (size_t i = 0; i < entry.length; i++) {
        entry.bytes[i] = (unsigned char)(i + 2 < entry.length ? 7 : random_below(&random_state, 16));
    }
    return entry;
}

TEST(test_index_against_list)
{
    static const uint64_t masks[] = {UINT64_MAX, 0xff, 0}; /* good hashes, poor ones, one for all */
    random_state = 1;
    for (size_t i = 0; i < sizeof(masks) / sizeof(masks[0]); i++) {
        struct index index = {0};
        struct entry *entries = NULL;
        size_t count = 0, capacity = 0;
        for (unsigned step = 0; step < ENTRIES_MAX; step++) {
            const struct entry wanted = random_entry();
            const struct key key = {.entries = entries, .wanted = &wanted};
            uint64_t hash = index_hash(wanted.bytes, wanted.length, 5) & masks[i];
            size_t expected = 1;
            while (expected <= count && !entry_is_equal(&key, expected)) {
                expected++;
            }
            struct index_slot *slot = index_find_equal(&index, hash, entry_is_equal, &key);
            assert_non_null(slot);
            assert_int_equal(slot->number, expected <= count ? expected : 0);
            if (expected > count) {
                assert_true(ARRAY_GROW(entries, capacity, count + 1));
                entries[count++] = wanted;
                index_fill(&index, slot, hash, count);
            }
            assert_int_equal(index.count, count);
            assert_true(index.count <= index_slots(&index) / 4 * 3);
        }
        assert_in_range(count, 2, ENTRIES_MAX);
        free(entries);
        index_free(&index);
        assert_null(index.slots);
        assert_int_equal(index.count + index.bits, 0);
    }
}

TEST(test_hash_depends_on_everything)
{
    unsigned char bytes[KEY_BYTES_MAX] = {0};
    for (size_t length = 0; length < sizeof(bytes); length++) {
        uint64_t hash = index_hash(bytes, length, 1);
        assert_int_equal(index_hash(bytes, length, 1), hash);
        assert_int_not_equal(index_hash(bytes, length + 1, 1), hash);
        assert_int_not_equal(index_hash(bytes, length, 2), hash);
        for (size_t i = 0; i < length; i++) {
            bytes[i] ^= 1;
            assert_int_not_equal(index_hash(bytes, length, 1), hash);
            bytes[i] ^= 1;
        }
    }
}

TEST(test_array_keeps_and_clears)
{
    uint32_t *array = NULL;
    size_t capacity = 0;
    for (size_t index = 0; index < 100000; index = index * 3 / 2 + 1) {
        size_t before = capacity;
        assert_true(index < capacity || ARRAY_COVER(array, capacity, index));
        assert_true(index < capacity);
        for (size_t i = 0; i < capacity; i++) {
            assert_int_equal(array[i], i < before ? i + 1 : 0);
            array[i] = (uint32_t)i + 1;
        }
    }
    size_t before = capacity;
    const uint32_t *same = array;
    assert_true(ARRAY_GROW(array, capacity, before));
    assert_ptr_equal(array, same);
    assert_int_equal(capacity, before);
    /* What can't be had leaves everything as it was. */
    assert_false(ARRAY_GROW(array, capacity, SIZE_MAX / 8));
    assert_ptr_equal(array, same);
    assert_int_equal(capacity, before);
    free(array);
}

/* ---- the index by key ---- */

TEST(test_index_as_array)
{
    enum { ADDRESSES = 3000 };
    static uint64_t ids[ADDRESSES];
    struct index index = {0};
    uint64_t count = 0;
    random_state = 11;
    memset(ids, 0, sizeof(ids));
    assert_int_equal(index_find(&index, 16), 0);
    assert_int_equal(index_remove(&index, 16), 0);
    for (uint64_t step = 1; step < 60000; step++) {
        /* Grows in the first third, shrinks in the last. */
        uint64_t bias = step < 20000 ? 70 : step < 40000 ? 50 : 25;
        uint64_t slot = random_below(&random_state, ADDRESSES);
        uint64_t addr = UINT64_C(0x7f0000000000) + 16 * slot;
        assert_int_equal(index_find(&index, addr), ids[slot]);
        if (random_below(&random_state, 100) < bias) {
            assert_true(index_reserve(&index));
            assert_int_equal(index_insert(&index, addr, step), ids[slot]);
            count += ids[slot] == 0;
            ids[slot] = step;
        } else {
            assert_int_equal(index_remove(&index, addr), ids[slot]);
            count -= ids[slot] != 0;
            ids[slot] = 0;
        }
        assert_int_equal(index.count, count);
        if (step % 64 == 0) {
            assert_true(index_check(&index));
        }
    }
    for (uint64_t i = 0; i < ADDRESSES; i++) {
        assert_int_equal(index_find(&index, UINT64_C(0x7f0000000000) + 16 * i), ids[i]);
    }
    index_free(&index);
    assert_int_equal(index_find(&index, 16), 0);
}

/* The promise of 64 bytes per live block, also while the table is doubled. */
TEST(test_index_bytes)
{
    struct index index = {0};
    uint64_t slots_before = 0;
    for (uint64_t i = 1; i <= 200000; i++) {
        assert_true(index_reserve(&index));
        uint64_t slots = UINT64_C(1) << index.bits;
        if (slots != slots_before && i > 1000) {
            assert_true((slots + slots_before) * sizeof(struct index_slot) <= 64 * i + 4096);
        }
        slots_before = slots;
        index_insert(&index, i * 32, i);
    }
    index_free(&index);
}

/* ---- ranges ---- */

/* One cell per page: the id of the range that covers it. */
enum { PAGES = 4000 };

static int expect_range(void *context, const struct range *range)
{
    const uint64_t *pages = context;
    for (uint64_t page = range->start; page < range->end; page++) {
        assert_int_equal(pages[page], range->id);
    }
    return 0;
}

TEST(test_ranges_as_pages)
{
    static uint64_t pages[PAGES];
    struct ranges ranges = {0};
    uint64_t covered = 0;
    random_state = 5;
    memset(pages, 0, sizeof(pages));
    for (uint64_t step = 1; step < 30000; step++) {
        uint64_t start = random_below(&random_state, PAGES - 8);
        uint64_t end = start + 1 + random_below(&random_state, 4);
        uint64_t first = 0;
        for (uint64_t page = start; page < end && first == 0; page++) {
            first = pages[page];
        }
        struct range range;
        assert_int_equal(ranges_first(&ranges, start, end, &range), first != 0);
        if (first != 0) {
            assert_int_equal(range.id, first);
            ranges_remove(&ranges, range.start);
            memset(&pages[range.start], 0, (range.end - range.start) * sizeof(pages[0]));
            covered -= range.end - range.start;
        } else if (step < 20000 || random_below(&random_state, 4) == 0) {
            range = (struct range){.start = start, .end = end, .id = step};
            assert_true(ranges_reserve(&ranges, 1));
            ranges_insert(&ranges, &range);
            for (uint64_t page = start; page < end; page++) {
                pages[page] = step;
            }
            covered += end - start;
        }
        assert_true(ranges_check(&ranges));
    }
    assert_int_equal(ranges_each(&ranges, expect_range, pages), 0);
    for (uint64_t i = 0; i < PAGES; i++) {
        covered -= pages[i] != 0;
    }
    assert_int_equal(covered, 0);
    assert_true(ranges.leaf_count > 4);
    ranges_clear(&ranges);
}
