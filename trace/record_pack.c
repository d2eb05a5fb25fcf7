/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Spilled records, packed: writing fresh pages is what a spill costs, and most bytes of a record are zeros or
 * those of the record before. Each record is eight words; time and address become differences to the record
 * before, kind and call site an exclusive or with it; of each word only the bytes up to its highest nonzero
 * one are kept. Without branches, since lengths are hard to predict: every word is stored whole and the next
 * one begins where its significant bytes end. A heap event takes about 14 bytes.
 *
 *   record:  uint32_t lengths, four bits per word, the first word in the lowest | the words' bytes
 *
 * Runs in the workload (overflow.c) and in the collector (ring_reader.c).
 */
#include "trace/ring_internal.h"

#include <string.h>

#define WORDS 8U

static_assert(sizeof(struct varve_record) == WORDS * sizeof(uint64_t), "a record is eight words");

/* Small differences of either sign become small numbers. */
static inline uint64_t fold(uint64_t difference)
{
    return (difference << 1) ^ (uint64_t)((int64_t)difference >> 63);
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

size_t record_pack(const struct varve_record *records, size_t count, uint8_t *packed)
{
    uint64_t ticks = 0, addr = 0, kind = 0, last = 0; /* words 0, 1, 6 and 7 of the record before */
    uint8_t *at = packed;

    for (size_t i = 0; i < count; i++) {
        uint64_t now[WORDS];
        uint32_t lengths = 0;
        uint8_t *start = at;

        memcpy(now, &records[i], sizeof(now));
        at = put_word(at + sizeof(lengths), &lengths, 0, fold(now[0] - ticks));
        at = put_word(at, &lengths, 1, fold(now[1] - addr));
        at = put_word(at, &lengths, 2, now[2]);
        if ((now[3] | now[4] | now[5]) != 0) { /* hardly ever, for heap events */
            at = put_word(at, &lengths, 3, now[3]);
            at = put_word(at, &lengths, 4, now[4]);
            at = put_word(at, &lengths, 5, now[5]);
        }
        at = put_word(at, &lengths, 6, now[6] ^ kind);
        at = put_word(at, &lengths, 7, rotate(now[7] ^ last));
        memcpy(start, &lengths, sizeof(lengths));
        ticks = now[0];
        addr = now[1];
        kind = now[6];
        last = now[7];
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
