/* SPDX-License-Identifier: Apache-2.0 */
/* Hashes of stacks: 128 bits, made word by word, inline since each capture of a call site makes one. */
#ifndef VARVE_TRACE_GUEST_STACK_HASH_H
#define VARVE_TRACE_GUEST_STACK_HASH_H

#include <stdint.h>

struct stack_hash {
    uint64_t low; /* never 0 in a table */
    uint64_t high;
};

/* Source: the mixing step of wyhash (W. Yi, public domain). */
static inline uint64_t stack_hash_mix(uint64_t a, uint64_t b)
{
    __uint128_t product = (__uint128_t)a * b;

    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* Two independent chains over pairs of words. */
static inline void stack_hash_words(struct stack_hash *hash, const uint64_t *words, unsigned count)
{
    unsigned i = 0;

    for (; i + 1 < count; i += 2) {
        hash->low = stack_hash_mix(words[i] ^ UINT64_C(0xa0761d6478bd642f), words[i + 1] ^ hash->low);
        hash->high = stack_hash_mix(words[i] ^ UINT64_C(0xe7037ed1a0b428db), words[i + 1] ^ hash->high);
    }
    if (i < count) {
        hash->low = stack_hash_mix(words[i] ^ UINT64_C(0x8ebc6af09c88c6e3), hash->low);
        hash->high = stack_hash_mix(words[i] ^ UINT64_C(0x589965cc75374cc3), hash->high);
    }
}

#endif
