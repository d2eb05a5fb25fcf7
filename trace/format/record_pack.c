/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records that overflow a ring, packed: fresh pages are what they cost, and most bytes of a record are zeros
 * or those of a record before. A heap event takes about 8 bytes, and 4 more with stacks. Runs in the workload
 * (recorder/overflow.c) and in the collector.
 */
#include "trace/format/ring_format.h"

#include <string.h>

/*
 *   record:  uint16_t tag | [uint16_t rest] | time, address, size | [requested, arg, id, kind] | last
 *
 * Each word is coded as its difference to a record before: time as a number, address and last word as an exclusive
 * or, and of what is left only the low bytes that are not all zero above are kept; the tags say how many. The last
 * word, which has call site and cause, resembles that of the newest record of the same kind, so two kinds are
 * remembered, the newest one and the one before: programs allocate and free. What is in brackets is left out where
 * requested, arg and id are 0 and the kind is one of these two.
 *
 * Lengths are hard to predict, so there is no branch on them: every word is stored whole and the next one begins
 * where its significant bytes end.
 */

#define WORDS 8U

/* Bits of the tag: bytes of time less 1, is it the other kind, bytes of address, of size, of the last word. */
#define TAG_OTHER 8U
#define TAG_ADDRESS_SHIFT 4U
#define TAG_SIZE_SHIFT 8U
#define TAG_LAST_SHIFT 12U
/* In the place of the bytes of the last word: they and those of the words in brackets are in `rest`. */
#define TAG_FULL 15U

static_assert(sizeof(struct varve_record) == WORDS * sizeof(uint64_t), "a record is eight words");
static_assert(2 * sizeof(uint16_t) + 1 + sizeof(struct varve_record) <= RECORD_PACKED_MAX, "the longest record");

/* What packer and unpacker know of the records before. */
struct history {
    uint64_t time, address;
    uint64_t kind[2], last[2];
    unsigned newest; /* of the two, which are never equal */
};

#define HISTORY_BEGIN             \
    {                             \
        .kind = { 0, UINT64_MAX } \
    }

/* Small differences of either sign become small numbers. */
static inline uint64_t record_pack_fold(uint64_t difference)
{
    return (difference << 1) ^ (0 - (difference >> 63));
}

static inline uint64_t record_pack_unfold(uint64_t folded)
{
    return (folded >> 1) ^ (uint64_t) - (int64_t)(folded & 1);
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

static inline unsigned significant_bytes(uint64_t word)
{
    return (71U - (unsigned)__builtin_clzll(word | 1)) / 8U - (word == 0); /* no branch */
}

/* Stores the whole word, keeps its significant bytes. */
static inline __attribute__((always_inline)) uint8_t *put_word(uint8_t *at, unsigned *tag, unsigned shift,
                                                               uint64_t word)
{
    unsigned bytes = significant_bytes(word);
    memcpy(at, &word, sizeof(word));
    *tag |= bytes << shift;
    return at + bytes;
}

static inline uint64_t word_of(const struct varve_record *record, unsigned index)
{
    uint64_t word;
    memcpy(&word, (const char *)record + index * sizeof(word), sizeof(word));
    return word;
}

/* Time, address and size. */
static inline __attribute__((always_inline)) uint8_t *put_begin(uint8_t *at, unsigned *tag, struct history *history,
                                                                const struct varve_record *now)
{
    uint64_t time = record_pack_fold(word_of(now, 0) - history->time);
    memcpy(at, &time, sizeof(time));
    time = significant_bytes(time | 1);
    *tag |= (unsigned)time - 1;
    at = put_word(at + time, tag, TAG_ADDRESS_SHIFT, rotate_right(word_of(now, 1) ^ history->address, ADDRESS_BITS));
    history->time = word_of(now, 0);
    history->address = word_of(now, 1);
    return put_word(at, tag, TAG_SIZE_SHIFT, word_of(now, 2));
}

static __attribute__((noinline)) uint8_t *put_full(uint8_t *start, struct history *history,
                                                   const struct varve_record *now)
{
    unsigned tag = TAG_FULL << TAG_LAST_SHIFT;
    unsigned newest = history->newest;
    unsigned rest[2] = {0, 0}; /* requested, arg, id, kind; last */
    uint8_t *at = put_begin(start + 5, &tag, history, now);
    for (unsigned index = 3; index < 6; index++) {
        at = put_word(at, &rest[0], 4 * (index - 3), word_of(now, index));
    }
    at = put_word(at, &rest[0], 12, word_of(now, 6) ^ history->kind[newest]);
    at = put_word(at, &rest[1], 0, rotate_left(word_of(now, 7) ^ history->last[newest], LAST_BITS));
    uint16_t word = (uint16_t)tag;
    memcpy(start, &word, sizeof(word));
    word = (uint16_t)rest[0];
    memcpy(start + 2, &word, sizeof(word));
    start[4] = (uint8_t)rest[1];
    if (word_of(now, 6) != history->kind[newest]) {
        history->newest = newest ^= 1U;
        history->kind[newest] = word_of(now, 6);
    }
    history->last[newest] = word_of(now, 7);
    return at;
}

size_t record_pack(const struct varve_record *records, size_t count, uint8_t *packed)
{
    struct history history = HISTORY_BEGIN;
    uint8_t *at = packed;
    for (const struct varve_record *now = records; now < records + count; now++) {
        uint64_t kind = word_of(now, 6);
        unsigned is_other = kind != history.kind[history.newest];
        unsigned which = history.newest ^ is_other;
        if (__builtin_expect((word_of(now, 3) | word_of(now, 4) | word_of(now, 5) | (kind ^ history.kind[which])) == 0,
                             1)) {
            unsigned tag = is_other * TAG_OTHER;
            uint64_t last = word_of(now, 7);
            uint8_t *start = at;
            uint16_t word;
            at = put_begin(at + sizeof(word), &tag, &history, now);
            at = put_word(at, &tag, TAG_LAST_SHIFT, rotate_left(last ^ history.last[which], LAST_BITS));
            word = (uint16_t)tag;
            memcpy(start, &word, sizeof(word));
            history.last[which] = last;
            history.newest = which;
        } else {
            at = put_full(at, &history, now);
        }
    }
    return (size_t)(at - packed);
}

/* A word of `bytes` bytes; `at` moves behind it. False: so many are not there, or no word has so many. */
static inline __attribute__((always_inline)) bool get_word(const uint8_t **at, const uint8_t *end, unsigned bytes,
                                                           uint64_t *word)
{
    *word = 0;
    if (end - *at >= (ptrdiff_t)sizeof(*word) && bytes - 1 < sizeof(*word)) {
        memcpy(word, *at, sizeof(*word));
        *word &= UINT64_MAX >> (64U - 8U * bytes);
    } else if (bytes > sizeof(*word) || end - *at < (ptrdiff_t)bytes) {
        return false;
    } else {
        memcpy(word, *at, bytes);
    }
    *at += bytes;
    return true;
}

/* The words in brackets, and which kind it is. */
static bool get_rest(const uint8_t **at, const uint8_t *end, unsigned rest, struct history *history, uint64_t *words)
{
    bool done = true;
    for (unsigned index = 3; index < 6; index++) {
        done = done && get_word(at, end, rest >> (4 * (index - 3)) & 15U, &words[index]);
    }
    uint64_t kind = 0;
    done = done && get_word(at, end, rest >> 12, &kind);
    if (kind != 0) {
        uint64_t before = history->kind[history->newest];
        words[7] = history->last[history->newest]; /* the one that it differs from */
        history->newest ^= 1U;
        history->kind[history->newest] = before ^ kind;
        history->last[history->newest] = words[7];
    }
    return done;
}

static bool unpack_one(const uint8_t **at, const uint8_t *end, struct history *history, uint64_t *words)
{
    if (end - *at < 2) {
        return false;
    }
    unsigned tag = (*at)[0] | (unsigned)(*at)[1] << 8;
    bool is_full = tag >> TAG_LAST_SHIFT == TAG_FULL;
    uint8_t head[5] = {0}; /* tag, rest, bytes of the last word */
    if (is_full && ((tag & TAG_OTHER) != 0 || end - *at < (ptrdiff_t)sizeof(head))) {
        return false;
    }
    memcpy(head, *at, is_full ? sizeof(head) : 2);
    *at += is_full ? sizeof(head) : 2;
    words[3] = words[4] = words[5] = 0;
    uint64_t time, address;
    if (!get_word(at, end, (tag & 7U) + 1, &time) || !get_word(at, end, tag >> TAG_ADDRESS_SHIFT & 15U, &address) ||
        !get_word(at, end, tag >> TAG_SIZE_SHIFT & 15U, &words[2])) {
        return false;
    }
    if (is_full) {
        if (!get_rest(at, end, head[2] | (unsigned)head[3] << 8, history, words)) {
            return false;
        }
    } else {
        history->newest ^= (tag & TAG_OTHER) != 0;
    }
    uint64_t last;
    if (!get_word(at, end, is_full ? head[4] : tag >> TAG_LAST_SHIFT, &last)) {
        return false;
    }
    words[0] = history->time += record_pack_unfold(time);
    words[1] = history->address ^= rotate_left(address, ADDRESS_BITS);
    words[6] = history->kind[history->newest];
    words[7] = history->last[history->newest] ^= rotate_right(last, LAST_BITS);
    return true;
}

bool record_unpack(const uint8_t *packed, size_t bytes, struct varve_record *records, size_t count)
{
    const uint8_t *at = packed;
    const uint8_t *end = packed + bytes;
    struct history history = HISTORY_BEGIN;
    uint64_t words[WORDS];
    for (size_t i = 0; i < count; i++) {
        if (!unpack_one(&at, end, &history, words)) {
            return false;
        }
        memcpy(&records[i], words, sizeof(words));
    }
    return at == end;
}
