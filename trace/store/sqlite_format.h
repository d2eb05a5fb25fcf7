/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of SQLite's file format that row_pages.c writes: rows of integers in leaves of a table, and the pages that
 * list these. https://www.sqlite.org/fileformat2.html
 */
#ifndef VARVE_TRACE_STORE_SQLITE_FORMAT_H
#define VARVE_TRACE_STORE_SQLITE_FORMAT_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* in the header of the file */
#define HEADER_BYTES 100
#define OFFSET_CHANGES 24
#define OFFSET_PAGES 28
#define OFFSET_VALID_FOR 92

#define LEAF_TYPE 0x0d
#define LEAF_HEADER 8U
#define INTERIOR_TYPE 0x05
#define INTERIOR_HEADER 12U

#define COLUMNS_MAX 28U
#define PREFIX_BYTES_MAX 10U /* of a cell: the record's size and the rowid */
#define CELL_BYTES_MAX (PREFIX_BYTES_MAX + 1U + 9U * COLUMNS_MAX + 8U)

static inline void put_16(uint8_t *at, uint32_t value)
{
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

static inline void put_32(uint8_t *at, uint32_t value)
{
    put_16(at, value >> 16);
    put_16(at + 2, value);
}

static inline uint32_t get_32(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* SQLite's variable-length integer, most significant group first; below 2^56 all that is needed. */
static inline unsigned put_varint(uint8_t *at, uint64_t value)
{
    assert(value < UINT64_C(1) << 56);
    if (value < 0x80) {
        at[0] = (uint8_t)value;
        return 1;
    }
    unsigned bytes = (70 - (unsigned)__builtin_clzll(value)) / 7;
    at[bytes - 1] = (uint8_t)value & 0x7f;
    for (unsigned i = bytes - 1; i-- > 0;) {
        value >>= 7;
        at[i] = (uint8_t)value | 0x80;
    }
    return bytes;
}

/* By the number of significant bits, sign included: the serial type of an integer, and the bytes it takes. */
static const uint8_t type_of_bits[66] = {[1 ... 8] = 1,   [9 ... 16] = 2,  [17 ... 24] = 3,
                                         [25 ... 32] = 4, [33 ... 48] = 5, [49 ... 65] = 6};
static const uint8_t bytes_of_type[7] = {0, 1, 2, 3, 4, 6, 8};

/* Encode a row as a record: sizes and types of all values, then their bytes. `out` has 9 bytes for each value
 * and 8 more. Returns its size. */
static inline unsigned record_encode(uint8_t *out, const int64_t *values, uint32_t nulls, unsigned count)
{
    assert(count < 127); /* so that the header's size is one byte */
    uint8_t *body = out + 1 + count;
    out[0] = (uint8_t)(1 + count);
    for (unsigned i = 0; i < count; i++) {
        int64_t value = values[i];
        if (nulls >> i & 1) {
            out[1 + i] = 0;
        } else if ((uint64_t)value <= 1) {
            out[1 + i] = (uint8_t)(8 + value); /* 0 and 1 are types of their own */
        } else {
            uint64_t magnitude = ((uint64_t)value ^ (0 - ((uint64_t)value >> 63))) | 1;
            unsigned type = type_of_bits[65 - (unsigned)__builtin_clzll(magnitude)];
            unsigned bytes = bytes_of_type[type];
            uint64_t big_endian = __builtin_bswap64((uint64_t)value << (64 - 8 * bytes));
            out[1 + i] = (uint8_t)type;
            memcpy(body, &big_endian, sizeof(big_endian));
            body += bytes;
        }
    }
    return (unsigned)(body - out);
}

/* What columns read as where a record ends before them: those without a bit as NULL. */
struct column_defaults {
    uint32_t columns; /* bits */
    int64_t values[32];
};

/* How many columns a record needs, of `count`. */
static inline unsigned record_columns(const int64_t *values, uint32_t nulls, const struct column_defaults *defaults,
                                      unsigned count)
{
    for (; count > 0; count--) {
        const unsigned column = count - 1;
        const bool is_null = nulls >> column & 1, has_default = defaults->columns >> column & 1;
        if (is_null ? has_default : !has_default || values[column] != defaults->values[column]) {
            break;
        }
    }
    return count;
}

/* The lists of columns_generated.h as values of a row, as the bits of those that have none of the bits `uses`, and as
 * what records leave out. */
#define COLUMN_VALUE(column, member) [column] = (int64_t)(member),
#define COLUMN_NULL(column, use) | ((uses & (use)) != 0 ? 0 : 1U << (column))
#define COLUMN_BIT(column, value) | 1U << (column)
#define COLUMN_DEFAULTS(list)                                           \
    {                                                                   \
        .columns = 0 list(COLUMN_BIT), .values = { list(COLUMN_VALUE) } \
    }

/* A cell of a leaf: sizes, rowid, record. `out` has CELL_BYTES_MAX. Returns its size; it begins at `*cell_out`. */
static inline unsigned cell_encode(uint8_t *out, uint64_t rowid, const int64_t *values, uint32_t nulls, unsigned count,
                                   const uint8_t **cell_out)
{
    uint8_t prefix[2 * PREFIX_BYTES_MAX];
    uint8_t *record = out + PREFIX_BYTES_MAX;
    assert(count <= COLUMNS_MAX);
    unsigned record_bytes = record_encode(record, values, nulls, count);
    unsigned bytes = put_varint(prefix, record_bytes);
    bytes += put_varint(prefix + bytes, rowid);
    assert(bytes <= PREFIX_BYTES_MAX);
    memcpy(record - bytes, prefix, bytes);
    *cell_out = record - bytes;
    return bytes + record_bytes;
}

#endif
