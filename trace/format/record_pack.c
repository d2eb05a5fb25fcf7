/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Spilled records, packed: writing fresh pages is what a spill costs, and most bytes of a record are zeros
 * or those of the record before. Each record is eight words; time and address become differences to the
 * record before, kind and call site an exclusive or with it; of each word only the low bytes are kept that
 * are not all zero above. A heap event takes about 15 bytes. Runs in the workload (recorder/overflow.c) and
 * in the collector.
 */
#include "trace/format/ring.h"

#include <string.h>

/*
 *   record:  uint32_t lengths, four bits per word, the first word in the lowest | the words' bytes
 *
 * Most events of a program without stacks fit one shape (SHORT_*), which is written at once: 4 ns instead
 * of 15. The others take only the bytes up to each word's highest nonzero one, without branches, since
 * lengths are hard to predict: every word is stored whole and the next one begins where its significant
 * bytes end.
 */

#define WORDS 8U

/* The common shape, in bytes: time 2, address 4, size 2, kind and flags 2, cause 1; the other words are 0. */
#define SHORT_LENGTHS UINT32_C(0x12000242)
#define SHORT_BYTES 15U   /* with the lengths */
#define SHORT_TOUCHED 16U /* what the fast path reads and writes */

static_assert(sizeof(struct varve_record) == WORDS * sizeof(uint64_t), "a record is eight words");

/* Small differences of either sign become small numbers. */
static inline uint64_t fold(uint64_t difference)
{
    return (difference << 1) ^ (0 - (difference >> 63));
}

static inline uint64_t unfold(uint64_t folded)
{
    return (folded >> 1) ^ (uint64_t) - (int64_t)(folded & 1);
}

/* The last word holds call site, pool, device, cause from low to high: the cause, which changes, goes lowest.
 */
static inline uint64_t rotate(uint64_t word)
{
    return word << 8 | word >> 56;
}

static inline uint64_t rotate_back(uint64_t word)
{
    return word >> 8 | word << 56;
}

static inline unsigned significant_bytes(uint64_t word)
{
    return (71U - (unsigned)__builtin_clzll(word | 1)) / 8U - (word == 0); /* no branch */
}

/* Stores the whole word, keeps its significant bytes. */
static inline __attribute__((always_inline)) uint8_t *put_word(uint8_t *at, uint32_t *lengths, unsigned index,
                                                               uint64_t word)
{
    unsigned bytes = significant_bytes(word);

    memcpy(at, &word, sizeof(word));
    *lengths |= bytes << (4 * index);
    return at + bytes;
}

static inline uint8_t *put_short(uint8_t *at, uint64_t time, uint64_t addr, uint64_t size, uint64_t kind,
                                 uint64_t last)
{
    uint64_t low = SHORT_LENGTHS | time << 32 | addr << 48;
    uint64_t high = addr >> 16 | size << 16 | kind << 32 | last << 48;

    memcpy(at, &low, sizeof(low));
    memcpy(at + sizeof(low), &high, sizeof(high));
    return at + SHORT_BYTES;
}

static inline void get_short(const uint8_t *at, uint64_t *coded)
{
    uint64_t low, high;

    memcpy(&low, at, sizeof(low));
    memcpy(&high, at + sizeof(low), sizeof(high));
    coded[0] = low >> 32 & 0xffff;
    coded[1] = low >> 48 | (high & 0xffff) << 16;
    coded[2] = high >> 16 & 0xffff;
    coded[3] = coded[4] = coded[5] = 0;
    coded[6] = high >> 32 & 0xffff;
    coded[7] = high >> 48 & 0xff;
}

static uint8_t *put_words(uint8_t *at, uint64_t time, uint64_t addr, const uint64_t *middle, uint64_t kind,
                          uint64_t last)
{
    uint32_t lengths = 0;
    uint8_t *start = at;

    at = put_word(at + sizeof(lengths), &lengths, 0, time);
    at = put_word(at, &lengths, 1, addr);
    at = put_word(at, &lengths, 2, middle[0]);
    if ((middle[1] | middle[2] | middle[3]) != 0) {
        at = put_word(at, &lengths, 3, middle[1]);
        at = put_word(at, &lengths, 4, middle[2]);
        at = put_word(at, &lengths, 5, middle[3]);
    }
    at = put_word(at, &lengths, 6, kind);
    at = put_word(at, &lengths, 7, last);
    memcpy(start, &lengths, sizeof(lengths));
    return at;
}

static inline uint64_t word_of(const struct varve_record *record, unsigned index)
{
    uint64_t word;

    memcpy(&word, (const char *)record + index * sizeof(word), sizeof(word));
    return word;
}

size_t record_pack(const struct varve_record *records, size_t count, uint8_t *packed)
{
    static const struct varve_record zero;
    const struct varve_record *previous = &zero;
    uint8_t *at = packed;

    for (const struct varve_record *now = records; now < records + count; previous = now++) {
        uint64_t time = fold(word_of(now, 0) - word_of(previous, 0));
        uint64_t addr = fold(word_of(now, 1) - word_of(previous, 1));
        uint64_t middle[] = {word_of(now, 2), word_of(now, 3), word_of(now, 4), word_of(now, 5)};
        uint64_t kind = word_of(now, 6) ^ word_of(previous, 6);
        uint64_t last = rotate(word_of(now, 7) ^ word_of(previous, 7));

        if (((time | middle[0] | kind) >> 16 | addr >> 32 | last >> 8 | middle[1] | middle[2] | middle[3]) ==
            0) {
            at = put_short(at, time, addr, middle[0], kind, last);
        } else {
            at = put_words(at, time, addr, middle, kind, last);
        }
    }
    return (size_t)(at - packed);
}

static bool unpack_words(const uint8_t **at, const uint8_t *end, uint64_t *coded)
{
    uint32_t lengths;

    if (end - *at < (ptrdiff_t)sizeof(lengths)) {
        return false;
    }
    memcpy(&lengths, *at, sizeof(lengths));
    if (lengths == SHORT_LENGTHS && end - *at >= (ptrdiff_t)SHORT_TOUCHED) {
        get_short(*at, coded);
        *at += SHORT_BYTES;
        return true;
    }
    *at += sizeof(lengths);
    for (unsigned word = 0; word < WORDS; word++) {
        unsigned bytes = (lengths >> (4 * word)) & 15U;
        if (bytes > sizeof(uint64_t) || end - *at < (ptrdiff_t)bytes) {
            return false;
        }
        coded[word] = 0;
        memcpy(&coded[word], *at, bytes);
        *at += bytes;
    }
    return true;
}

bool record_unpack(const uint8_t *packed, size_t bytes, struct varve_record *records, size_t count)
{
    const uint8_t *at = packed;
    const uint8_t *end = packed + bytes;
    uint64_t words[WORDS] = {0};

    for (size_t i = 0; i < count; i++) {
        uint64_t coded[WORDS];

        if (!unpack_words(&at, end, coded)) {
            return false;
        }
        words[0] += unfold(coded[0]);
        words[1] += unfold(coded[1]);
        memcpy(&words[2], &coded[2], 4 * sizeof(uint64_t));
        words[6] ^= coded[6];
        words[7] ^= rotate_back(coded[7]);
        memcpy(&records[i], words, sizeof(words));
    }
    return at == end;
}
