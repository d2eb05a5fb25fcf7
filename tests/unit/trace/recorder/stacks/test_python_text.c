/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace/recorder/stacks/python/text.c and trace/recorder/stacks/python/layout.c on made-up objects: str objects of
 * every kind against a plain encoder, and the three line table formats against a table of lines from which they are
 * written, offset by offset. The real interpreters are asked in faults/test_python_stack.py.
 * Costs: 1 s
 */
#include "trace/recorder/stacks/python/layout.h"
#include "trace/recorder/stacks/python/text.h"
#include "support/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define RANGES_MAX 60U
#define TABLE_MAX 4096U

static uint64_t seed;

/* ---- layouts ---- */

static int start(void **state)
{
    (void)state;
    seed = 20;
    return 0;
}

TEST(test_layout_of_version)
{
    for (unsigned minor = 9; minor <= 13; minor++) {
        char version[64];
        snprintf(version, sizeof(version), "3.%u.4 (main, Jan  1 2025) [GCC 12.2.0]", minor);
        const struct python_layout *layout = python_layout_find(version);
        assert_non_null(layout);
        assert_int_equal(layout->minor, minor);
        assert_true(layout->frame_bytes <= 128 && layout->state_thread + 8 <= 256);
        assert_true(layout->compact_data > layout->ascii_data);
    }
    const char *unknown[] = {"3.8.18 (default)",
                             "3.14.0 (main)",
                             "3.1.2",
                             "3.99999999999999.1",
                             "2.7.18",
                             "4.11.0",
                             "",
                             "3.",
                             "3",
                             "3.x",
                             "3.13.0 experimental free-threading build (main, Oct  8 2024) [GCC]"};
    for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
        assert_null(python_layout_find(unknown[i]));
    }
}

/* ---- names ---- */

static const char type_of_str;
static const struct python_types types = {.unicode = &type_of_str};

static size_t encode(char *out, uint32_t point)
{
    if (point > 0x10FFFF || (point >= 0xD800 && point <= 0xDFFF)) {
        point = 0xFFFD;
    }
    if (point < 0x80) {
        out[0] = (char)point;
        return 1;
    }
    if (point < 0x800) {
        out[0] = (char)(0xC0 | point >> 6);
        out[1] = (char)(0x80 | (point & 63));
        return 2;
    }
    if (point < 0x10000) {
        out[0] = (char)(0xE0 | point >> 12);
        out[1] = (char)(0x80 | (point >> 6 & 63));
        out[2] = (char)(0x80 | (point & 63));
        return 3;
    }
    out[0] = (char)(0xF0 | point >> 18);
    out[1] = (char)(0x80 | (point >> 12 & 63));
    out[2] = (char)(0x80 | (point >> 6 & 63));
    out[3] = (char)(0x80 | (point & 63));
    return 4;
}

/* A str object as CPython makes it, in a block of exactly its size; the caller frees it. */
static char *make_str(const struct python_layout *layout, unsigned kind, bool ascii, const uint32_t *points,
                      int64_t length)
{
    size_t data = ascii ? layout->ascii_data : layout->compact_data;
    char *object = calloc(1, data + (size_t)length * kind);
    assert_non_null(object);
    const void *type = &type_of_str;
    uint32_t bits = kind << 2 | PYTHON_UNICODE_COMPACT | (ascii ? PYTHON_UNICODE_ASCII : 0) | 3U;
    memcpy(object + PYTHON_OB_TYPE, &type, sizeof(type));
    memcpy(object + PYTHON_UNICODE_LENGTH, &length, sizeof(length));
    memcpy(object + PYTHON_UNICODE_STATE, &bits, sizeof(bits));
    for (int64_t i = 0; i < length; i++) {
        memcpy(object + data + (size_t)i * kind, &points[i], kind);
    }
    return object;
}

TEST_WITH(test_text_is_utf8_cut_between_characters, start, NULL)
{
    const struct python_layout *layouts[] = {python_layout_find("3.11.2"), python_layout_find("3.12.1")};
    static const uint32_t limits[] = {0, 0x100, 0x10000, 0, 0x110000};
    for (unsigned round = 0; round < 4000; round++) {
        const struct python_layout *layout = layouts[random_below(&seed, 2)];
        static const unsigned kinds[] = {1, 1, 2, 4};
        unsigned choice = random_below(&seed, 4);
        bool ascii = choice == 0;
        uint32_t points[40];
        int64_t length = random_below(&seed, 40);
        for (int64_t i = 0; i < length; i++) {
            points[i] = random_below(&seed, random_below(&seed, 3) == 0 ? 0x80 : ascii ? 0x80 : limits[kinds[choice]]);
        }
        char *object = make_str(layout, kinds[choice], ascii, points, length);
        size_t room = 1 + random_below(&seed, 120);
        char want[256];
        size_t used = 0;
        for (int64_t i = 0; i < length; i++) {
            char one[4];
            size_t bytes = encode(one, points[i]);
            if (used + bytes > room - 1) {
                break;
            }
            memcpy(want + used, one, bytes);
            used += bytes;
        }
        char *got = malloc(room);
        assert_non_null(got);
        assert_true(python_text_copy(layout, &types, object, got, room));
        assert_memory_equal(got, want, used);
        assert_int_equal(got[used], '\0');
        free(got);
        free(object);
    }
}

TEST(test_text_refuses_what_is_no_str)
{
    const struct python_layout *layout = python_layout_find("3.12.1");
    char out[8];
    const uint32_t points[] = {'a'};
    char *object = make_str(layout, 1, true, points, 1);
    assert_false(python_text_copy(layout, &types, NULL, out, sizeof(out)));
    assert_false(python_text_copy(layout, &types, object + 1, out, sizeof(out)));
    assert_false(python_text_copy(layout, &types, object, out, 0));
    assert_true(python_text_copy(layout, &types, object, out, 1));
    assert_int_equal(out[0], '\0');
    object[PYTHON_UNICODE_STATE] ^= PYTHON_UNICODE_COMPACT;
    assert_false(python_text_copy(layout, &types, object, out, sizeof(out)));
    object[PYTHON_UNICODE_STATE] ^= PYTHON_UNICODE_COMPACT | 2 << 2; /* kind 3 */
    assert_false(python_text_copy(layout, &types, object, out, sizeof(out)));
    object[PYTHON_UNICODE_STATE] ^= 2 << 2;
    object[PYTHON_OB_TYPE] ^= 8;
    assert_false(python_text_copy(layout, &types, object, out, sizeof(out)));
    free(object);
}

/* ---- line tables ---- */

struct range {
    int32_t bytes;
    int32_t line; /* 0: none */
};

static size_t write_lnotab(uint8_t *out, const struct range *ranges, unsigned count, int32_t line)
{
    size_t used = 0;
    int32_t pending = 0;
    for (unsigned i = 0; i < count; i++) {
        int32_t delta = ranges[i].line - line;
        line = ranges[i].line;
        for (; pending > 255; pending -= 255) {
            out[used++] = 255;
            out[used++] = 0;
        }
        do {
            int32_t step = delta > 127 ? 127 : delta < -128 ? -128 : delta;
            out[used++] = (uint8_t)pending;
            out[used++] = (uint8_t)step;
            delta -= step;
            pending = 0;
        } while (delta != 0);
        pending = ranges[i].bytes;
    }
    return used;
}

static size_t write_ranges(uint8_t *out, const struct range *ranges, unsigned count, int32_t line)
{
    size_t used = 0;
    for (unsigned i = 0; i < count; i++) {
        int32_t delta = ranges[i].line == 0 ? 0 : ranges[i].line - line;
        line += delta;
        for (; delta > 127 || delta<-127; delta -= delta> 0 ? 127 : -127) {
            out[used++] = 0;
            out[used++] = (uint8_t)(delta > 0 ? 127 : -127);
        }
        for (int32_t bytes = ranges[i].bytes; bytes > 0; bytes -= 254) {
            out[used++] = (uint8_t)(bytes > 254 ? 254 : bytes);
            out[used++] = ranges[i].line == 0 ? (uint8_t)-128 : (uint8_t)delta;
            delta = 0;
        }
    }
    return used;
}

static size_t write_number(uint8_t *out, uint32_t value)
{
    size_t used = 0;
    for (; value >= 64; value >>= 6) {
        out[used++] = (uint8_t)(0x40 | (value & 63));
    }
    out[used++] = (uint8_t)value;
    return used;
}

static size_t write_locations(uint8_t *out, const struct range *ranges, unsigned count, int32_t line)
{
    size_t used = 0;
    for (unsigned i = 0; i < count; i++) {
        for (int32_t units = ranges[i].bytes / 2; units > 0; units -= 8) {
            unsigned size = (unsigned)(units > 8 ? 8 : units) - 1;
            int32_t delta = ranges[i].line == 0 ? 0 : ranges[i].line - line;
            line += delta;
            unsigned code = ranges[i].line == 0 ? 15 : 13 + random_below(&seed, 2);
            if (ranges[i].line != 0 && delta >= 0 && delta <= 2 && random_below(&seed, 2) == 0) {
                code = delta == 0 && random_below(&seed, 2) == 0 ? random_below(&seed, 10) : 10 + (unsigned)delta;
            }
            out[used++] = (uint8_t)(0x80 | code << 3 | size);
            if (code == 13 || code == 14) {
                used += write_number(out + used, delta < 0 ? (uint32_t)-delta << 1 | 1 : (uint32_t)delta << 1);
            }
            if (code == 14) {
                for (unsigned columns = 0; columns < 3; columns++) {
                    used += write_number(out + used, random_below(&seed, 300));
                }
            }
            for (unsigned columns = code >= 13 ? 0 : code >= 10 ? 2 : 1; columns > 0; columns--) {
                out[used++] = (uint8_t)random_below(&seed, 128);
            }
        }
    }
    return used;
}

TEST_WITH(test_lines_of_every_offset, start, NULL)
{
    for (unsigned round = 0; round < 3000; round++) {
        enum python_line_format format = (enum python_line_format)random_below(&seed, 3);
        struct range ranges[RANGES_MAX];
        unsigned count = 1 + random_below(&seed, RANGES_MAX);
        int32_t first_line = 1 + (int32_t)random_below(&seed, 100000);
        int32_t line = first_line;
        for (unsigned i = 0; i < count; i++) {
            int32_t spread = random_below(&seed, 4) == 0 ? 2000 : 6;
            line += (int32_t)random_below(&seed, (uint32_t)(2 * spread)) - spread / 2;
            line = line < 1 ? 1 : line;
            bool none = format != PYTHON_LINES_LNOTAB && random_below(&seed, 6) == 0;
            ranges[i].line = none ? 0 : line;
            ranges[i].bytes = 2 * (1 + (int32_t)random_below(&seed, random_below(&seed, 5) == 0 ? 300 : 12));
        }
        uint8_t scratch[TABLE_MAX * 4];
        size_t bytes = format == PYTHON_LINES_LNOTAB   ? write_lnotab(scratch, ranges, count, first_line)
                       : format == PYTHON_LINES_RANGES ? write_ranges(scratch, ranges, count, first_line)
                                                       : write_locations(scratch, ranges, count, first_line);
        assert_true(bytes <= sizeof(scratch));
        uint8_t *table = malloc(bytes + 1);
        assert_non_null(table);
        memcpy(table, scratch, bytes);
        int32_t at = 0;
        for (unsigned i = 0; i < count; i++) {
            for (int32_t end = at + ranges[i].bytes; at < end; at += 2) {
                assert_int_equal(python_line_find(format, table, bytes, first_line, at), ranges[i].line);
            }
        }
        assert_int_equal(python_line_find(format, table, bytes, first_line, -1), first_line);
        if (format != PYTHON_LINES_LNOTAB) {
            assert_int_equal(python_line_find(format, table, bytes, first_line, at), 0);
        }
        free(table);
    }
}

/* The sanitizers and valgrind see a read outside the block. */
TEST_WITH(test_lines_of_garbage, start, NULL)
{
    for (unsigned round = 0; round < 20000; round++) {
        size_t bytes = random_below(&seed, 24);
        uint8_t *table = malloc(bytes == 0 ? 1 : bytes);
        assert_non_null(table);
        for (size_t i = 0; i < bytes; i++) {
            table[i] = (uint8_t)random_below(&seed, 256);
        }
        int32_t first_line = (int32_t)random_below(&seed, UINT32_C(0x7FFFFFFF));
        uint32_t line = python_line_find((enum python_line_format)random_below(&seed, 3), table, bytes, first_line,
                                         (int32_t)random_below(&seed, 200) - 10);
        assert_true(line <= INT32_MAX);
        free(table);
    }
}
