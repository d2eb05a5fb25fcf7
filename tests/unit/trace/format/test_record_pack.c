/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packed records: what goes in comes out, whatever the words are; the packer stays within the bounds that its
 * header promises; the unpacker, which reads files of crashed runs, takes nothing but exactly what the packer
 * makes and stays within its two buffers. Buffers are allocated to the byte, for the address sanitizer.
 * Costs: 1 s
 */
#include "trace/format/ring_format.h"
#include "support/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#define MOST_RECORDS 300U

static uint64_t random_state;

/* Extremes, powers of two and their neighbours, and words of any length. */
static uint64_t awkward_word(void)
{
    static const uint64_t extremes[] = {
        0, 1, UINT64_MAX, INT64_MAX, UINT64_C(0x00ff00ff00ff00ff), UINT64_C(0xff) << 56};
    uint64_t one = 1;
    switch (random_next(&random_state) % 4) {
    case 0:
        return extremes[random_next(&random_state) % (sizeof(extremes) / sizeof(extremes[0]))];
    case 1:
        return (one << (random_next(&random_state) % 64)) + random_next(&random_state) % 3 - 1;
    case 2:
        return random_next(&random_state) >> (random_next(&random_state) % 64);
    default:
        return (uint64_t) - (int64_t)(random_next(&random_state) >> (random_next(&random_state) % 64));
    }
}

static void fill_awkward(struct varve_record *to, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t words[8];
        for (size_t word = 0; word < 8; word++) {
            words[word] = awkward_word();
        }
        if (i > 0 && random_next(&random_state) % 8 == 0) {
            memcpy(words, &to[i - 1], sizeof(words)); /* the same record again: all differences are 0 */
        }
        memcpy(&to[i], words, sizeof(words));
    }
}

/* Packs into a buffer of exactly the size promised; the result is cut to what was used. */
static uint8_t *pack_exactly(const struct varve_record *from, size_t count, size_t *bytes_out)
{
    uint8_t *packed = malloc(count * RECORD_PACKED_MAX + 8);
    assert_non_null(packed);
    size_t bytes = record_pack(from, count, packed);
    if (bytes > count * RECORD_PACKED_MAX) {
        fail_msg("%zu records took %zu bytes", count, bytes);
    }
    *bytes_out = bytes;
    uint8_t *exact = realloc(packed, bytes > 0 ? bytes : 1);
    assert_non_null(exact);
    return exact;
}

static void check_round_trip(const struct varve_record *from, size_t count, const char *what, int round)
{
    size_t bytes;
    uint8_t *packed = pack_exactly(from, count, &bytes);
    struct varve_record *unpacked = malloc(count * sizeof(*unpacked) + 1);
    assert_non_null(unpacked);
    if (!record_unpack(packed, bytes, unpacked, count)) {
        fail_msg("%s, round %d: %zu records were refused", what, round, count);
    }
    for (size_t i = 0; i < count; i++) {
        if (memcmp(&from[i], &unpacked[i], sizeof(*from)) != 0) {
            fail_msg("%s, round %d: record %zu of %zu differs", what, round, i, count);
        }
    }
    free(unpacked);
    free(packed);
}

static struct varve_record records[RING_STAGING_RECORDS];

TEST(test_any_words_come_back)
{
    random_state = 1;
    for (int round = 0; round < 2000; round++) {
        size_t count = round == 0 ? MOST_RECORDS : random_next(&random_state) % 40;
        fill_awkward(records, count);
        check_round_trip(records, count, "awkward words", round);
    }
}

/* Each byte of each field alone: none is forgotten, none is confused with another. */
TEST(test_each_byte_comes_back)
{
    struct varve_record pair[2];
    for (size_t at = 0; at < sizeof(pair); at++) {
        for (unsigned value = 1; value < 256; value += 127) {
            memset(pair, 0, sizeof(pair));
            ((uint8_t *)pair)[at] = (uint8_t)value;
            check_round_trip(pair, 2, "one byte", (int)at);
            memset(pair, 0xff, sizeof(pair));
            ((uint8_t *)pair)[at] = (uint8_t)value;
            check_round_trip(pair, 2, "all bytes but one", (int)at);
        }
    }
}

/* A record of which no byte can be saved takes RECORD_PACKED_MAX at most, a whole block of them too. */
TEST(test_worst_case_fits)
{
    for (size_t i = 0; i < RING_STAGING_RECORDS; i++) {
        uint64_t words[8];
        for (size_t word = 0; word < 8; word++) {
            words[word] = i % 2 == 0 ? UINT64_MAX >> 1 : UINT64_C(0x1000000000000000) + i;
        }
        memcpy(&records[i], words, sizeof(words));
    }
    size_t bytes;
    free(pack_exactly(records, RING_STAGING_RECORDS, &bytes));
    assert_true(bytes > RING_STAGING_RECORDS * 60); /* the case is as bad as it is meant to be */
    check_round_trip(records, RING_STAGING_RECORDS, "worst case", 0);
}

/* malloc and free in turns: times a few hundred ticks apart, addresses near each other, one of `sites` call sites. */
static size_t pack_heap_events(unsigned flags, unsigned sites, const char *what)
{
    uint64_t ticks = UINT64_C(0x0003a1b2c3d4e5f6);
    random_state = 7;
    memset(records, 0, sizeof(records));
    for (size_t i = 0; i < RING_STAGING_RECORDS; i++) {
        bool is_free = i % 2 == 1;
        ticks += 150 + random_next(&random_state) % 800;
        records[i].ticks = ticks;
        records[i].addr =
            is_free ? records[i - 1].addr : UINT64_C(0x55d0c0a00000) + random_next(&random_state) % 65536 * 16;
        records[i].size = is_free ? 0 : 16 + random_next(&random_state) % 4096;
        records[i].dev_seq_kind_flags =
            varve_record_tag(0, is_free ? VARVE_KIND_HEAP_FREE : VARVE_KIND_HEAP_ALLOC, flags);
        records[i].callsite = sites > 0 ? (uint32_t)(1 + random_next(&random_state) % sites) : 0;
        records[i].cause = is_free ? VARVE_CAUSE_FREE : VARVE_CAUSE_MALLOC;
    }
    size_t bytes;
    free(pack_exactly(records, RING_STAGING_RECORDS, &bytes));
    check_round_trip(records, RING_STAGING_RECORDS, what, 0);
    return bytes;
}

TEST(test_heap_events_are_small)
{
    static const struct {
        const char *what;
        unsigned flags, sites;
        size_t bytes_max; /* of a record */
    } cases[] = {{"heap events without call sites", 0, 0, 6},
                 {"heap events that another sink has", VARVE_FLAG_SECOND_SINK, 0, 6},
                 {"heap events", 0, 300, 10}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        size_t bytes = pack_heap_events(cases[i].flags, cases[i].sites, cases[i].what);
        if (bytes >= RING_STAGING_RECORDS * cases[i].bytes_max) {
            fail_msg("%s took %zu bytes, %.1f each", cases[i].what, bytes, (double)bytes / RING_STAGING_RECORDS);
        }
    }
}

/* Around the lengths of each word at which a record changes its form, in both directions of time. */
TEST(test_short_and_long_records)
{
    const uint64_t one = 1;
    struct varve_record three[3];
    for (unsigned kind = VARVE_KIND_HEAP_ALLOC - 1; kind <= VARVE_KIND_HEAP_FREE + 1; kind++) {
        for (unsigned bits = 0; bits < 64; bits++) {
            for (unsigned word = 0; word < 4; word++) {
                const uint64_t value = (one << bits) - word % 2;
                memset(three, 0, sizeof(three));
                for (size_t i = 0; i < 3; i++) {
                    three[i].dev_seq_kind_flags = varve_record_tag(0, (enum varve_kind)kind, 0);
                }
                three[1].ticks = value;
                three[1].addr = word < 2 ? value << 4 : value;
                three[1].size = value;
                three[2].cause = word < 2 ? VARVE_CAUSE_MALLOC : VARVE_CAUSE_FREE;
                check_round_trip(three, 3, "one length", (int)bits);
                memset(&three[1], 0, 3 * sizeof(uint64_t));
                memcpy((uint64_t *)&three[1] + word % 3, &value, sizeof(value));
                check_round_trip(three, 3, "one length of one word", (int)bits);
            }
        }
    }
}

/* Cut anywhere, or with one byte or one record too many or too few, it is refused; one flipped bit is never without
 * consequence, and never leads out of the buffers. */
TEST(test_damage)
{
    struct varve_record unpacked[13];
    random_state = 11;
    fill_awkward(records, 12);
    size_t bytes;
    uint8_t *packed = pack_exactly(records, 12, &bytes);
    for (size_t cut = 0; cut < bytes; cut++) {
        uint8_t *part = malloc(cut > 0 ? cut : 1);
        assert_non_null(part);
        memcpy(part, packed, cut);
        if (record_unpack(part, cut, unpacked, 12)) {
            fail_msg("cut to %zu of %zu bytes it was taken", cut, bytes);
        }
        free(part);
    }
    for (size_t bit = 0; bit < bytes * 8; bit++) {
        packed[bit / 8] ^= (uint8_t)(1U << (bit % 8));
        if (record_unpack(packed, bytes, unpacked, 12) && memcmp(records, unpacked, 12 * sizeof(*records)) == 0) {
            fail_msg("bit %zu does not matter", bit);
        }
        packed[bit / 8] ^= (uint8_t)(1U << (bit % 8));
    }
    assert_false(record_unpack(packed, bytes, unpacked, 11));
    assert_false(record_unpack(packed, bytes, unpacked, 13));
    assert_true(record_unpack(packed, bytes, unpacked, 12));
    uint8_t *longer = realloc(packed, bytes + 1);
    assert_non_null(longer);
    longer[bytes] = 0;
    assert_false(record_unpack(longer, bytes + 1, unpacked, 12));
    assert_true(record_unpack(longer, 0, unpacked, 0));
    assert_false(record_unpack(longer, 1, unpacked, 0));
    free(longer);
}

/* Whatever is read from the disk: the answer may be yes or no, the buffers stay whole. What is taken must be
 * the only thing that its packed form can mean. */
TEST(test_garbage_stays_in_bounds)
{
    unsigned taken = 0;
    random_state = 13;
    for (int round = 0; round < 20000; round++) {
        size_t count = 1 + random_next(&random_state) % 4;
        size_t bytes = random_next(&random_state) % 64;
        uint8_t *garbage = malloc(bytes > 0 ? bytes : 1);
        struct varve_record *unpacked = malloc(count * sizeof(*unpacked));
        assert_non_null(garbage);
        assert_non_null(unpacked);
        for (size_t i = 0; i < bytes; i++) {
            garbage[i] = random_next(&random_state) % 4 == 0 ? (uint8_t)random_next(&random_state) : 0;
        }
        if (record_unpack(garbage, bytes, unpacked, count)) {
            taken++;
            check_round_trip(unpacked, count, "garbage", round);
        }
        free(unpacked);
        free(garbage);
    }
    assert_true(taken > 0); /* else the rounds above have tried nothing but refusals */
}

/* A word has eight bytes at most. Lengths that can be more: of the last word in the tag of a long record; with a tag
 * that says that all words follow, of these too. Such a record has its kind, so the tag says no other.
 */
TEST(test_impossible_tags_are_refused)
{
    static const uint64_t heads[] = {0x4801,    0x7801,     0xc801,     0x98001, 0x908001,
                                     0x9008001, 0x90008001, 0xffff8001, 0xf8001, 0x8003};
    struct varve_record record;
    for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
        uint8_t one[RECORD_PACKED_MAX] = {0};
        memcpy(one, &heads[i], sizeof(heads[i]));
        for (size_t bytes = 0; bytes < sizeof(one); bytes++) {
            if (record_unpack(one, bytes, &record, 1)) {
                fail_msg("a record that begins with %llx was taken", (unsigned long long)heads[i]);
            }
        }
    }
}
