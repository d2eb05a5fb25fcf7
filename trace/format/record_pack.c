/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records that overflow a ring, packed: fresh pages are what they cost, and most bytes of a record are zeros
 * or those of a record before. A heap event takes about 6 bytes, and 2 more with stacks. Runs in the workload
 * (recorder/spill.c) and in the collector.
 */
#include "trace/format/ring_format.h"

#include <string.h>

/*
 *   short record:  uint8_t tag | time, address, size
 *   long record:   uint16_t tag | [uint16_t rest] | time, address, size | [requested, arg, id, kind] | last
 *
 * Each word is coded as its difference to the record before: time as a number, address, kind and last word as an
 * exclusive or, and of what is left only the low bytes that are not all zero above are kept; the tags say how many.
 * What is in brackets is left out where requested, arg and id are 0 and the kind is one of a pair that differ in one
 * bit: allocation and free of the heap at first, later those of the newest full record with such zeros, as other flags
 * make another kind. The last word, which has call site and cause, is compared with that of the newest such record of
 * the same kind. If it is the same one, and the other words are small, the record is short: nearly all of a heap
 * without stacks.
 *
 * Lengths are hard to predict, so there is no branch on them: every word is stored whole and the next one begins
 * where its significant bytes end.
 */

#define WORDS 8U

/* Bits of both tags, from the lowest on: is it a long one; is it the second kind of the pair; bytes of time less 1. */
#define TAG_LONG 1U
#define TAG_SECOND 2U
#define TAG_TIME_SHIFT 2U
/* Of a short one: one bit for these, then the bytes of address and size. */
#define SHORT_TIME_MASK 1U
#define SHORT_ADDRESS_SHIFT 3U
#define SHORT_ADDRESS_MASK 7U
#define SHORT_SIZE_SHIFT 6U
/* Of a long one: three bits, then the bytes of address, size, last word; is there a `rest`: four bits for each word in
 * brackets. */
#define LONG_TIME_MASK 7U
#define LONG_ADDRESS_SHIFT 5U
#define LONG_SIZE_SHIFT 8U
#define LONG_LAST_SHIFT 11U
#define TAG_FULL 0x8000U
#define REST_BITS 4U
/* Three bits for address and size: none has 7 bytes, which means 8. */
#define THREE_MASK 7U
#define FOUR_MASK 15U

/* Limits of a short record's words: time, address and tag fill one word at most. */
#define SHORT_TIME_BITS 16U
#define SHORT_ADDRESS_BITS 32U
#define SHORT_SIZE_BITS 24U

static_assert(sizeof(struct varve_record) == WORDS * sizeof(uint64_t), "a record is eight words");
static_assert(2 * sizeof(uint16_t) + sizeof(struct varve_record) <= RECORD_PACKED_MAX, "the longest record");

static const struct varve_record before_first;

#define KIND_SHIFT 8U
#define KIND_BIT (UINT64_C(1) << KIND_SHIFT) /* in which the kinds of a pair differ */

static_assert(VARVE_KIND_HEAP_ALLOC % 2 == 0 && VARVE_KIND_HEAP_FREE == VARVE_KIND_HEAP_ALLOC + 1, "it is one bit");

/* The kind without that bit, and the last words of the newest records with it clear and set. */
struct pair {
    uint64_t kind;
    uint64_t last[2];
};

static const struct pair pair_first = {.kind = (uint64_t)VARVE_KIND_HEAP_ALLOC << KIND_SHIFT};

static inline unsigned which_of(uint64_t kind)
{
    return (unsigned)(kind >> KIND_SHIFT) & 1U;
}

static inline void pair_take(struct pair *pair, uint64_t kind, uint64_t last)
{
    pair->kind = kind & ~KIND_BIT;
    pair->last[which_of(kind)] = last;
}

static inline uint64_t rotate_left(uint64_t word, unsigned bits)
{
    return word << bits | word >> (64U - bits);
}

static inline uint64_t rotate_right(uint64_t word, unsigned bits)
{
    return word >> bits | word << (64U - bits);
}

/* Addresses are multiples of 16 most often: the zeros go to the top. */
#define ADDRESS_BITS 4U
/* The last word holds call site, pool, device, cause from low to high: the cause goes lowest. */
#define LAST_BITS 8U

static inline uint64_t word_of(const struct varve_record *record, unsigned index)
{
    uint64_t word;
    memcpy(&word, (const char *)record + index * sizeof(word), sizeof(word));
    return word;
}

static inline unsigned significant_bytes(uint64_t word)
{
    return ((unsigned)__builtin_clzll(word | 1) ^ 63U) / 8U + (word != 0); /* no branch */
}

/* Stores the whole word, keeps its significant bytes. */
static inline uint8_t *put_word(uint8_t *at, unsigned *tag, unsigned shift, uint64_t word)
{
    unsigned bytes = significant_bytes(word);
    memcpy(at, &word, sizeof(word));
    *tag |= bytes << shift;
    return at + bytes;
}

/* Where there are three bits for their number. */
static inline uint8_t *put_three(uint8_t *at, unsigned *tag, unsigned shift, uint64_t word)
{
    unsigned bytes = significant_bytes(word);
    memcpy(at, &word, sizeof(word));
    *tag |= (bytes < THREE_MASK ? bytes : THREE_MASK) << shift;
    return at + bytes + (bytes == THREE_MASK);
}

static inline void put_tag(uint8_t *at, unsigned tag)
{
    uint16_t word = (uint16_t)tag;
    memcpy(at, &word, sizeof(word));
}

static inline uint8_t *put_last(uint8_t *at, unsigned *tag, uint64_t difference)
{
    return put_word(at, tag, LONG_LAST_SHIFT, rotate_left(difference, LAST_BITS));
}

static uint8_t *put_brackets(uint8_t *at, uint8_t *rest_at, uint64_t kind, const struct varve_record *now)
{
    unsigned rest = 0;
    for (unsigned index = 3; index < 6; index++) {
        at = put_word(at, &rest, REST_BITS * (index - 3), word_of(now, index));
    }
    at = put_word(at, &rest, 3 * REST_BITS, kind);
    put_tag(rest_at, rest);
    return at;
}

static __attribute__((noinline)) uint8_t *put_long(uint8_t *start, const struct varve_record *now,
                                                   const struct varve_record *before, struct pair *pair)
{
    const uint64_t time = word_of(now, 0) - word_of(before, 0), kind = word_of(now, 6), last = word_of(now, 7);
    const bool has_brackets = (word_of(now, 3) | word_of(now, 4) | word_of(now, 5)) != 0;
    const bool is_full = has_brackets || (kind & ~KIND_BIT) != pair->kind;
    const unsigned which = which_of(kind);
    unsigned tag = TAG_LONG | (is_full ? TAG_FULL : which * TAG_SECOND);
    uint8_t *at = start + (is_full ? 2 : 1) * sizeof(uint16_t);
    memcpy(at, &time, sizeof(time));
    tag |= (significant_bytes(time | 1) - 1) << TAG_TIME_SHIFT;
    at = put_three(at + significant_bytes(time | 1), &tag, LONG_ADDRESS_SHIFT,
                   rotate_right(word_of(now, 1) ^ word_of(before, 1), ADDRESS_BITS));
    at = put_three(at, &tag, LONG_SIZE_SHIFT, word_of(now, 2));
    if (is_full) {
        at = put_brackets(at, start + sizeof(uint16_t), kind ^ word_of(before, 6), now);
        at = put_last(at, &tag, last ^ word_of(before, 7));
    } else {
        at = put_last(at, &tag, last ^ pair->last[which]);
    }
    if (!has_brackets) {
        pair_take(pair, kind, last);
    }
    put_tag(start, tag);
    return at;
}

size_t record_pack(const struct varve_record *records, size_t count, uint8_t *packed)
{
    const struct varve_record *before = &before_first;
    struct pair pair = pair_first;
    uint8_t *at = packed;
    for (const struct varve_record *now = records; now < records + count; before = now++) {
        const uint64_t time = word_of(now, 0) - word_of(before, 0), size = word_of(now, 2);
        const uint64_t address = rotate_right(word_of(now, 1) ^ word_of(before, 1), ADDRESS_BITS);
        const unsigned which = which_of(word_of(now, 6));
        const uint64_t rest = word_of(now, 3) | word_of(now, 4) | word_of(now, 5) |
                              ((word_of(now, 6) ^ pair.kind) & ~KIND_BIT) | (word_of(now, 7) ^ pair.last[which]) |
                              time >> SHORT_TIME_BITS | address >> SHORT_ADDRESS_BITS | size >> SHORT_SIZE_BITS;
        if (__builtin_expect(rest != 0, 0)) {
            at = put_long(at, now, before, &pair);
            continue;
        }
        const unsigned is_late = time > 0xff;
        const unsigned address_bytes = significant_bytes(address), size_bytes = significant_bytes(size);
        const unsigned tag = which * TAG_SECOND | is_late << TAG_TIME_SHIFT | address_bytes << SHORT_ADDRESS_SHIFT |
                             size_bytes << SHORT_SIZE_SHIFT;
        const uint64_t word = tag | time << 8 | address << (16 + 8 * is_late);
        memcpy(at, &word, sizeof(word));
        at += 2 + is_late + address_bytes;
        memcpy(at, &size, sizeof(size));
        at += size_bytes;
    }
    return (size_t)(at - packed);
}

/* A word of `bytes` bytes; `at` moves behind it. False: so many are not there, or no word has so many. */
static inline __attribute__((always_inline)) bool get_word(const uint8_t **at, const uint8_t *end, unsigned bytes,
                                                           uint64_t *word)
{
    static const uint64_t masks[] = {
        0, 0xff, 0xffff, 0xffffff, UINT32_MAX, 0xffffffffff, 0xffffffffffff, 0xffffffffffffff, UINT64_MAX};
    *word = 0;
    if (bytes > sizeof(*word) || end - *at < (ptrdiff_t)bytes) {
        return false;
    }
    if (__builtin_expect(end - *at >= (ptrdiff_t)sizeof(*word), 1)) {
        memcpy(word, *at, sizeof(*word));
        *word &= masks[bytes];
    } else {
        memcpy(word, *at, bytes);
    }
    *at += bytes;
    return true;
}

/* Time, address and size. */
static inline __attribute__((always_inline)) bool get_begin(const uint8_t **at, const uint8_t *end,
                                                            const unsigned bytes[3], uint64_t *words)
{
    uint64_t time, address;
    if (!get_word(at, end, bytes[0], &time) || !get_word(at, end, bytes[1], &address) ||
        !get_word(at, end, bytes[2], &words[2])) {
        return false;
    }
    words[0] += time;
    words[1] ^= rotate_left(address, ADDRESS_BITS);
    return true;
}

/* Of the words in brackets those that are as they are. */
static bool get_brackets(const uint8_t **at, const uint8_t *end, unsigned rest, uint64_t *kind, uint64_t *words)
{
    bool done = true;
    for (unsigned index = 3; index < 6; index++) {
        done = done && get_word(at, end, rest >> (REST_BITS * (index - 3)) & FOUR_MASK, &words[index]);
    }
    return done && get_word(at, end, rest >> (3 * REST_BITS), kind);
}

static inline unsigned three_bytes(unsigned tag, unsigned shift)
{
    unsigned bytes = tag >> shift & THREE_MASK;
    return bytes + (bytes == THREE_MASK);
}

/* The tag of a long record, and what follows it. */
static bool get_tag(const uint8_t **at, const uint8_t *end, uint16_t *tag)
{
    if (end - *at < (ptrdiff_t)sizeof(*tag)) {
        return false;
    }
    memcpy(tag, *at, sizeof(*tag));
    *at += sizeof(*tag);
    return true;
}

/* `words` are those of the record before. */
static __attribute__((noinline)) bool unpack_long(const uint8_t **at, const uint8_t *end, struct pair *pair,
                                                  uint64_t *words)
{
    uint16_t tag, rest = 0;
    if (!get_tag(at, end, &tag)) {
        return false;
    }
    const bool is_full = (tag & TAG_FULL) != 0;
    const unsigned which = (tag & TAG_SECOND) != 0;
    if (is_full && (which != 0 || !get_tag(at, end, &rest))) {
        return false;
    }
    const unsigned bytes[] = {(tag >> TAG_TIME_SHIFT & LONG_TIME_MASK) + 1, three_bytes(tag, LONG_ADDRESS_SHIFT),
                              three_bytes(tag, LONG_SIZE_SHIFT)};
    uint64_t kind = 0, last;
    words[3] = words[4] = words[5] = 0;
    if (!get_begin(at, end, bytes, words) || (is_full && !get_brackets(at, end, rest, &kind, words)) ||
        !get_word(at, end, tag >> LONG_LAST_SHIFT & FOUR_MASK, &last)) {
        return false;
    }
    if (is_full) {
        words[6] ^= kind;
        words[7] ^= rotate_right(last, LAST_BITS);
    } else {
        words[6] = pair->kind | which * KIND_BIT;
        words[7] = pair->last[which] ^ rotate_right(last, LAST_BITS);
    }
    if ((words[3] | words[4] | words[5]) == 0) {
        pair_take(pair, words[6], words[7]);
    }
    return true;
}

static inline __attribute__((always_inline)) bool unpack_short(const uint8_t **at, const uint8_t *end,
                                                               const struct pair *pair, uint64_t *words)
{
    const unsigned tag = *(*at)++;
    const unsigned which = (tag & TAG_SECOND) != 0;
    const unsigned bytes[] = {(tag >> TAG_TIME_SHIFT & SHORT_TIME_MASK) + 1,
                              tag >> SHORT_ADDRESS_SHIFT & SHORT_ADDRESS_MASK, tag >> SHORT_SIZE_SHIFT};
    words[3] = words[4] = words[5] = 0;
    words[6] = pair->kind | which * KIND_BIT;
    words[7] = pair->last[which];
    return get_begin(at, end, bytes, words);
}

bool record_unpack(const uint8_t *packed, size_t bytes, struct varve_record *records, size_t count)
{
    const uint8_t *at = packed;
    const uint8_t *end = packed + bytes;
    struct pair pair = pair_first;
    uint64_t words[WORDS] = {0};
    for (size_t i = 0; i < count; i++) {
        if (at == end ||
            !((*at & TAG_LONG) != 0 ? unpack_long(&at, end, &pair, words) : unpack_short(&at, end, &pair, words))) {
            return false;
        }
        memcpy(&records[i], words, sizeof(words));
    }
    return at == end;
}
