/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The growing array and the hash index against a naive model: a list that is searched from end to end.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "trace/base/array.h"
#include "trace/base/index.h"

#include <stdlib.h>
#include <string.h>

#define ENTRIES_MAX 3000U
#define KEY_BYTES_MAX 24U

struct entry {
    unsigned char bytes[KEY_BYTES_MAX];
    size_t length;
};

struct key {
    const struct entry *entries;
    const struct entry *wanted;
};

static bool entry_is_equal(const void *context, uint32_t number)
{
    const struct key *key = context;
    const struct entry *entry = &key->entries[number - 1];
    return entry->length == key->wanted->length &&
           memcmp(entry->bytes, key->wanted->bytes, entry->length) == 0;
}

static uint32_t naive_find(const struct entry *entries, size_t count, const struct entry *wanted)
{
    const struct key key = {.entries = entries, .wanted = wanted};
    for (uint32_t number = 1; number <= count; number++) {
        if (entry_is_equal(&key, number)) {
            return number;
        }
    }
    return 0;
}

/* Few lengths and few byte values, so that keys come again, and keys that differ in the last byte only. */
static struct entry random_entry(uint64_t *state)
{
    struct entry entry = {0};
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    entry.length = (size_t)(*state >> 60) % KEY_BYTES_MAX;
    for (size_t i = 0; i < entry.length; i++) {
        entry.bytes[i] = (unsigned char)(i + 2 < entry.length ? 7 : (*state >> (20 + 8 * (i % 3))) & 15U);
    }
    return entry;
}

static void intern_all(struct index *index, unsigned steps, uint32_t hash_mask, uint64_t *state)
{
    struct entry *entries = NULL;
    size_t count = 0;
    size_t capacity = 0;
    for (unsigned step = 0; step < steps; step++) {
        const struct entry wanted = random_entry(state);
        const struct key key = {.entries = entries, .wanted = &wanted};
        uint32_t hash = index_hash(wanted.bytes, wanted.length, 5) & hash_mask;
        uint32_t expected = naive_find(entries, count, &wanted);
        struct index_slot *slot = index_find(index, hash, entry_is_equal, &key);
        assert_non_null(slot);
        if (slot->number != expected) {
            fail_msg("step %u: number %u, expected %u", step, slot->number, expected);
        }
        if (expected == 0) {
            assert_true(array_grow((void **)&entries, &capacity, count + 1, sizeof(*entries)));
            entries[count++] = wanted;
            index_fill(index, slot, hash, (uint32_t)count);
        }
        assert_int_equal(index->used, count);
        assert_true(2 * index->used <= index->slot_count + 1);
    }
    assert_in_range(count, 2, ENTRIES_MAX);
    free(entries);
}

static void test_index_against_list(void **state)
{
    static const uint32_t masks[] = {UINT32_MAX, 0xff, 0}; /* good hashes, poor ones, one for all */
    uint64_t random = 1;
    (void)state;
    for (size_t i = 0; i < sizeof(masks) / sizeof(masks[0]); i++) {
        struct index index = {0};
        intern_all(&index, ENTRIES_MAX, masks[i], &random);
        index_clear(&index);
        intern_all(&index, ENTRIES_MAX / 4, masks[i], &random);
        index_free(&index);
        assert_null(index.slots);
        assert_int_equal(index.used + index.slot_count, 0);
    }
}

static void test_hash_depends_on_everything(void **state)
{
    unsigned char bytes[KEY_BYTES_MAX] = {0};
    (void)state;
    for (size_t length = 0; length < sizeof(bytes); length++) {
        uint32_t hash = index_hash(bytes, length, 1);
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

static void test_array_keeps_and_clears(void **state)
{
    uint32_t *array = NULL;
    size_t capacity = 0;
    (void)state;
    for (size_t index = 0; index < 100000; index = index * 3 / 2 + 1) {
        size_t before = capacity;
        if (index >= capacity) {
            assert_true(array_cover((void **)&array, &capacity, index, sizeof(*array)));
        }
        assert_true(index < capacity);
        for (size_t i = before; i < capacity; i++) {
            assert_int_equal(array[i], 0);
            array[i] = (uint32_t)i + 1;
        }
        for (size_t i = 0; i < before; i += 97) {
            assert_int_equal(array[i], i + 1);
        }
    }
    size_t before = capacity;
    const uint32_t *same = array;
    assert_true(array_grow((void **)&array, &capacity, before, sizeof(*array)));
    assert_ptr_equal(array, same);
    assert_int_equal(capacity, before);
    /* What can't be had leaves everything as it was. */
    assert_false(array_grow((void **)&array, &capacity, SIZE_MAX / 8, sizeof(*array)));
    assert_ptr_equal(array, same);
    assert_int_equal(capacity, before);
    free(array);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_index_against_list),
        cmocka_unit_test(test_hash_depends_on_everything),
        cmocka_unit_test(test_array_keeps_and_clears),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
