/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names and lines out of a code object, read by hand: PyUnicode_AsUTF8 caches what it makes in the string
 * (it allocates) and PyCode_Addr2Line takes another path under instrumentation. There are three formats of
 * line tables (Objects/lnotab_notes.txt of 3.9 and 3.10, Objects/locations.md of 3.11). Every read stays
 * inside the table and inside the string, whatever is in them. Called by python_stack_describe.
 */
#include "trace/stacks/python_stack.h"
#include "trace/stacks/python_layout.h"
#include "trace/stacks/python_pages.h"

#include <string.h>

#define REPLACEMENT 0xFFFDU

/* Appends one code point; returns its length, 0 if it does not fit. */
static size_t utf8_put(char *out, size_t room, uint32_t point)
{
    if (point >= 0x110000U || (point >= 0xD800U && point < 0xE000U)) {
        point = REPLACEMENT;
    }
    if (point < 0x80U) {
        if (room < 1) {
            return 0;
        }
        out[0] = (char)point;
        return 1;
    }
    size_t length = point < 0x800U ? 2 : point < 0x10000U ? 3 : 4;
    if (room < length) {
        return 0;
    }
    for (size_t i = length - 1; i > 0; i--) {
        out[i] = (char)(0x80U | (point & 0x3FU));
        point >>= 6;
    }
    static const uint8_t lead[] = {0, 0, 0xC0, 0xE0, 0xF0};
    out[0] = (char)(lead[length] | point);
    return length;
}

static uint32_t code_point(const char *data, size_t index, unsigned kind)
{
    uint16_t two;
    uint32_t four;
    switch (kind) {
    case 1:
        return (uint8_t)data[index];
    case 2:
        memcpy(&two, data + 2 * index, sizeof(two));
        return two;
    default:
        memcpy(&four, data + 4 * index, sizeof(four));
        return four;
    }
}

bool python_text_copy(const struct python_layout *layout, const struct python_types *types, const void *object,
                      char *out, size_t out_bytes)
{
    if (out_bytes == 0 || !python_readable(object, PYTHON_UNICODE_STATE + sizeof(uint32_t)) ||
        python_pointer(object, PYTHON_OB_TYPE) != types->unicode) {
        return false;
    }
    uint32_t state = (uint32_t)python_int(object, PYTHON_UNICODE_STATE);
    unsigned kind = (state >> 2) & 7U;
    int64_t length = python_size(object, PYTHON_UNICODE_LENGTH);
    if ((state & PYTHON_UNICODE_COMPACT) == 0 || (kind != 1 && kind != 2 && kind != 4) || length < 0 ||
        length > PYTHON_LENGTH_MAX) {
        return false;
    }
    bool ascii = (state & PYTHON_UNICODE_ASCII) != 0;
    const char *data = (const char *)object + (ascii ? layout->ascii_data : layout->compact_data);
    size_t points = (size_t)length < out_bytes ? (size_t)length : out_bytes;
    if (!python_memory_probe(data, points * kind)) {
        return false;
    }
    size_t used = 0;
    for (size_t i = 0; i < points; i++) {
        size_t added = utf8_put(out + used, out_bytes - 1 - used, code_point(data, i, kind));
        if (added == 0) {
            break;
        }
        used += added;
    }
    out[used] = '\0';
    return true;
}

static uint32_t line_or_none(int64_t line)
{
    return line > 0 && line <= INT32_MAX ? (uint32_t)line : 0;
}

static uint32_t lnotab_line(const uint8_t *table, size_t bytes, int32_t first_line, int32_t offset)
{
    int64_t line = first_line;
    int64_t address = 0;
    for (size_t i = 0; i + 1 < bytes; i += 2) {
        address += table[i];
        if (address > offset) {
            break;
        }
        line += (int8_t)table[i + 1];
    }
    return line_or_none(line);
}

static uint32_t ranges_line(const uint8_t *table, size_t bytes, int32_t first_line, int32_t offset)
{
    int64_t line = first_line;
    int64_t end = 0;
    for (size_t i = 0; i + 1 < bytes; i += 2) {
        int8_t delta = (int8_t)table[i + 1];
        end += table[i];
        if (delta != -128) {
            line += delta;
        }
        if (end > offset) {
            return delta == -128 ? 0 : line_or_none(line);
        }
    }
    return 0;
}

/* A signed number of the location table: six bits a byte, least significant first, sign in bit 0. */
static int64_t location_delta(const uint8_t *at, const uint8_t *end)
{
    uint64_t value = 0;
    for (unsigned shift = 0; at < end && shift < 48; shift += 6) {
        value |= (uint64_t)(*at & 0x3FU) << shift;
        if ((*at++ & 0x40U) == 0) {
            break;
        }
    }
    return (value & 1U) != 0 ? -(int64_t)(value >> 1) : (int64_t)(value >> 1);
}

static uint32_t locations_line(const uint8_t *table, size_t bytes, int32_t first_line, int32_t offset)
{
    const uint8_t *at = table;
    const uint8_t *end = table + bytes;
    int64_t line = first_line;
    int64_t address = 0;
    while (at < end) {
        unsigned code = (*at >> 3) & 15U;
        address += 2 * ((*at & 7) + 1);
        if (code == 13 || code == 14) {
            line += location_delta(at + 1, end);
        } else if (code >= 10 && code <= 12) {
            line += code - 10;
        }
        if (address > offset) {
            return code == 15 ? 0 : line_or_none(line);
        }
        do {
            at++;
        } while (at < end && (*at & 0x80U) == 0);
    }
    return 0;
}

uint32_t python_line_find(enum python_line_format format, const uint8_t *table, size_t table_bytes, int32_t first_line,
                          int32_t offset)
{
    if (offset < 0) {
        return line_or_none(first_line);
    }
    switch (format) {
    case PYTHON_LINES_LNOTAB:
        return lnotab_line(table, table_bytes, first_line, offset);
    case PYTHON_LINES_RANGES:
        return ranges_line(table, table_bytes, first_line, offset);
    case PYTHON_LINES_LOCATIONS:
        return locations_line(table, table_bytes, first_line, offset);
    }
    return 0;
}
