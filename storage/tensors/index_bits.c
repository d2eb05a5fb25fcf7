/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Masks, a byte an element, as bits: an eighth of the memory, counted 64 at a time, and with words that say at once
 * whether none, some or all of 64 elements are picked.
 */
#include "storage/tensors/index_internal.h"

#include <stdlib.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

int64_t index_bits_words(const struct index_bits *bits)
{
    return (bits->size + 63) / 64;
}

#ifdef __SSE2__
/* 64 bytes, each false if it is 0, as 64 bits; the first one becomes the lowest. */
static uint64_t word_read(const char *data)
{
    uint64_t zeros = 0;
    for (unsigned i = 0; i < 4; i++) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(data + 16 * i));
        unsigned part = (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_setzero_si128()));
        zeros |= (uint64_t)part << 16 * i;
    }
    return ~zeros;
}
#else
/* Eight bytes, each false if it is 0, as eight bits; the first one becomes the lowest. */
static uint64_t bytes_pack(uint64_t bytes)
{
    bytes |= bytes >> 4;
    bytes |= bytes >> 2;
    bytes |= bytes >> 1;
    bytes &= UINT64_C(0x0101010101010101);
    return (bytes * UINT64_C(0x0102040810204080)) >> 56;
}

static uint64_t bytes_load(const char *data)
{
    uint64_t bytes;

    memcpy(&bytes, data, sizeof(bytes));
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    bytes = __builtin_bswap64(bytes);
#endif
    return bytes;
}

static uint64_t word_read(const char *data)
{
    uint64_t word = 0;

    for (unsigned i = 0; i < 8; i++) {
        word |= bytes_pack(bytes_load(data + 8 * i)) << 8 * i;
    }
    return word;
}
#endif

/* `count` elements, `stride` bytes apart, are bits from bit `at` on. */
static void index_bits_row_read(uint64_t *words, int64_t at, const char *data, int64_t stride, int64_t count)
{
    int64_t i = 0;
    while (i < count && (stride != 1 || (at + i) % 64 != 0)) {
        words[(at + i) / 64] |= (uint64_t)(data[i * stride] != 0) << (at + i) % 64;
        i++;
    }
    for (; count - i >= 64; i += 64) {
        words[(at + i) / 64] = word_read(data + i);
    }
    for (; i < count; i++) {
        words[(at + i) / 64] |= (uint64_t)(data[i] != 0) << (at + i) % 64;
    }
}

/* Row after row, the last axis the row. */
static void index_bits_rows_read(const struct varve_geometry *mask, const char *data, uint64_t *words)
{
    int64_t at[VARVE_DIMS_MAX] = {0};
    unsigned last = mask->ndim - 1;
    int64_t offset = mask->offset;
    for (int64_t bit = 0;; bit += mask->shape[last]) {
        unsigned axis = last;
        index_bits_row_read(words, bit, data + offset, mask->strides[last], mask->shape[last]);
        while (axis > 0 && ++at[axis - 1] == mask->shape[axis - 1]) {
            axis--;
            offset -= (mask->shape[axis] - 1) * mask->strides[axis];
            at[axis] = 0;
        }
        if (axis == 0) {
            return;
        }
        offset += mask->strides[axis - 1];
    }
}

int index_bits_read(const struct varve_array *mask, struct index_bits *bits_out, struct varve_message *message)
{
    struct index_bits bits = {.size = varve_geometry_count(&mask->geometry)};
    int64_t words = index_bits_words(&bits);
    bits.words = calloc(words > 0 ? (size_t)words : 1, sizeof(*bits.words));
    if (bits.words == NULL) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for the bits of a mask");
    }
    if (varve_geometry_is_contiguous(&mask->geometry)) {
        index_bits_row_read(bits.words, 0, (const char *)mask->data + mask->geometry.offset, 1, bits.size);
    } else {
        index_bits_rows_read(&mask->geometry, mask->data, bits.words);
    }
    for (int64_t i = 0; i < words; i++) {
        bits.set_count += __builtin_popcountll(bits.words[i]);
    }
    *bits_out = bits;
    return VARVE_OK;
}
