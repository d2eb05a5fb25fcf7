/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hash of the interning tables of histories and pickles: eight bytes a step, good enough to be cut to its
 * low bits. Not made against an adversary: what collides makes a table slow, never wrong.
 */
#ifndef VARVE_ANALYSIS_HISTORY_PICKLE_HASH_H
#define VARVE_ANALYSIS_HISTORY_PICKLE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

static inline uint64_t hash_bytes(const void *data, size_t bytes)
{
    const unsigned char *next = (const unsigned char *)data;
    uint64_t hash = UINT64_C(0x9e3779b97f4a7c15) ^ bytes;

    for (; bytes >= 8; bytes -= 8, next += 8) {
        uint64_t word;

        memcpy(&word, next, 8);
        hash = (hash ^ word) * UINT64_C(0xff51afd7ed558ccd);
        hash ^= hash >> 32;
    }
    for (; bytes > 0; bytes--) {
        hash = (hash ^ *next++) * UINT64_C(0x100000001b3);
    }
    hash = (hash ^ (hash >> 29)) * UINT64_C(0xbf58476d1ce4e5b9);
    return hash ^ (hash >> 32);
}

#ifdef __cplusplus
}
#endif

#endif
