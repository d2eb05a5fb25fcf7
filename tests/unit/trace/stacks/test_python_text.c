/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace/stacks/python_{layout,text,verify}.c on made-up objects: str objects of every kind against iconv, the
 * three line table formats against a table of lines from which they are written, offset by offset; and a thread state
 * with two frames, laid out as python_layout.c says, which is found good; after any one field is broken, or the whole
 * of it is noise, it is found bad, and no wrong pointer costs more than an answer. The real interpreters are asked in
 * faults/test_python_stack.py. Costs: 2 s
 */
#include "trace/guest/guest_memory.h"
#include "trace/stacks/python_frame.h"
#include "trace/stacks/python_layout.h"
#include "trace/stacks/python_pages.h"
#include "trace/stacks/python_stack.h"
#include "support/random.h"

#include <iconv.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define RANGES_MAX 60U
#define TABLE_MAX 4096U
#define BLOCK 512U
#define UNITS 20
#define LAST_MINOR 15U

static uint64_t seed;

static const uint64_t type_objects[4];
static const struct python_types types = {
    .code = &type_objects[0],
    .frame = &type_objects[1],
    .unicode = &type_objects[2],
    .bytes = &type_objects[3],
};

static const struct python_layout *layout_of(unsigned minor)
{
    char version[64];
    snprintf(version, sizeof(version), "3.%u.4 (main, Jan  1 2025) [GCC 12.2.0]", minor);
    return python_layout_find(version);
}

/* ---- layouts ---- */

static int start(void **state)
{
    (void)state;
    seed = 20;
    return 0;
}

TEST(test_layout_of_version)
{
    for (unsigned minor = 9; minor <= LAST_MINOR; minor++) {
        const struct python_layout *layout = layout_of(minor);
        assert_non_null(layout);
        assert_int_equal(layout->minor, minor);
        assert_true(layout->frame_bytes <= 128 && layout->state_thread + 8 <= 256);
        assert_true(layout->compact_data > layout->ascii_data);
    }
    static const char no_gil[] = "3.13.0 experimental free-threading build (main, Oct  8 2024) [GCC]";
    const char *unknown[] = {"3.8.18 (default)",
                             "3.16.0 (main)",
                             "3.1.2",
                             "3.99999999999999.1",
                             "2.7.18",
                             "4.11.0",
                             "",
                             "3.",
                             "3",
                             "3.x",
                             no_gil};
    for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
        assert_null(python_layout_find(unknown[i]));
    }
}

/* ---- names ---- */

/* Without room for all of it, as many whole characters as fit; what is no character is the replacement character. */
static size_t encode(char *out, size_t room, const uint32_t *points, int64_t length)
{
    size_t used = 0;
    iconv_t codec = iconv_open("UTF-8", "UCS-4LE");
    assert_true(codec != (iconv_t)-1);
    for (int64_t i = 0; i < length; i++) {
        bool is_character = points[i] <= 0x10FFFF && (points[i] < 0xD800 || points[i] > 0xDFFF);
        uint32_t point = is_character ? points[i] : 0xFFFD;
        char *from = (char *)&point, *to = out + used;
        size_t bytes = sizeof(point), left = room - used;
        if (iconv(codec, &from, &bytes, &to, &left) != 0) {
            break;
        }
        used = (size_t)(to - out);
    }
    iconv_close(codec);
    return used;
}

/* A str object as CPython makes it, in a block of exactly its size; the caller frees it. */
static char *make_str(const struct python_layout *layout, unsigned kind, bool ascii, const uint32_t *points,
                      int64_t length)
{
    size_t data = ascii ? layout->ascii_data : layout->compact_data;
    char *object = calloc(1, data + (size_t)length * kind);
    assert_non_null(object);
    const void *type = types.unicode;
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
    const struct python_layout *layouts[] = {layout_of(11), layout_of(12)};
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
        size_t used = encode(want, room - 1, points, length);
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
    const struct python_layout *layout = layout_of(12);
    char out[8];
    const uint32_t points[] = {'a'};
    char *object = make_str(layout, 1, true, points, 1);
    assert_false(python_text_copy(layout, &types, NULL, out, sizeof(out)));
    assert_false(python_text_copy(layout, &types, object + 1, out, sizeof(out)));
    assert_false(python_text_copy(layout, &types, object, out, 0));
    assert_true(python_text_copy(layout, &types, object, out, 1));
    assert_int_equal(out[0], '\0');
    /* not compact; of kind 3; of another type */
    static const uint8_t flips[][2] = {
        {PYTHON_UNICODE_STATE, PYTHON_UNICODE_COMPACT}, {PYTHON_UNICODE_STATE, 2 << 2}, {PYTHON_OB_TYPE, 8}};
    for (size_t i = 0; i < sizeof(flips) / sizeof(flips[0]); i++) {
        object[flips[i][0]] ^= (char)flips[i][1];
        assert_false(python_text_copy(layout, &types, object, out, sizeof(out)));
        object[flips[i][0]] ^= (char)flips[i][1];
    }
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

/* ---- stacks ---- */

enum block {
    BLOCK_STATE,
    BLOCK_CFRAME,
    BLOCK_INNER,
    BLOCK_OUTER,
    BLOCK_ENTRY,
    BLOCK_CODE,
    BLOCK_NAME,
    BLOCK_TABLE,
    BLOCK_BYTECODE,
    BLOCK_COUNT,
};

static _Alignas(16) char memory[BLOCK_COUNT][BLOCK];

static void put(enum block block, size_t offset, uint64_t value, size_t bytes)
{
    memcpy(&memory[block][offset], &value, bytes);
}

static void put_pointer(enum block block, size_t offset, const void *value)
{
    put(block, offset, (uint64_t)(uintptr_t)value, 8);
}

static void make_frame(const struct python_layout *layout, enum block block, const void *previous)
{
    put_pointer(block, layout->frame_code, memory[BLOCK_CODE]);
    put_pointer(block, layout->frame_previous, previous);
    if (layout->frames_are_objects) {
        put_pointer(block, PYTHON_OB_TYPE, types.frame);
        put(block, layout->frame_instruction, 4, 4);
        return;
    }
    put_pointer(block, layout->frame_instruction, memory[BLOCK_CODE] + layout->code_bytecode + 8);
    if (layout->has_entry_flag) {
        put(block, layout->frame_entry, previous == NULL, 1);
    }
}

static void make_stack(const struct python_layout *layout)
{
    memset(memory, 0, sizeof(memory));
    bool entry_frames = !layout->frames_are_objects && !layout->has_entry_flag;
    put(BLOCK_STATE, layout->state_thread, (uint64_t)pthread_self(), 8);
    put_pointer(BLOCK_STATE, layout->state_frame, memory[layout->has_cframe ? BLOCK_CFRAME : BLOCK_INNER]);
    if (layout->has_cframe) {
        put_pointer(BLOCK_CFRAME, layout->cframe_frame, memory[BLOCK_INNER]);
    }
    make_frame(layout, BLOCK_INNER, memory[BLOCK_OUTER]);
    make_frame(layout, BLOCK_OUTER, entry_frames ? memory[BLOCK_ENTRY] : NULL);
    if (entry_frames) {
        put(BLOCK_ENTRY, layout->frame_owner, PYTHON_OWNER_INTERPRETER, 1);
    }
    put_pointer(BLOCK_CODE, PYTHON_OB_TYPE, types.code);
    put_pointer(BLOCK_CODE, layout->code_name, memory[BLOCK_NAME]);
    put_pointer(BLOCK_CODE, layout->code_filename, memory[BLOCK_NAME]);
    put_pointer(BLOCK_CODE, layout->code_lines, memory[BLOCK_TABLE]);
    put(BLOCK_CODE, layout->code_first_line, 7, 4);
    if (layout->frames_are_objects) {
        put_pointer(BLOCK_CODE, layout->code_bytecode, memory[BLOCK_BYTECODE]);
    } else {
        put(BLOCK_CODE, PYTHON_OB_SIZE, UNITS, 8);
        put(BLOCK_CODE, layout->code_first_traceable, 1, 4);
    }
    put_pointer(BLOCK_NAME, PYTHON_OB_TYPE, types.unicode);
    put(BLOCK_NAME, PYTHON_UNICODE_LENGTH, 3, 8);
    put(BLOCK_NAME, PYTHON_UNICODE_STATE, 1 << 2 | PYTHON_UNICODE_COMPACT | PYTHON_UNICODE_ASCII, 4);
    put_pointer(BLOCK_TABLE, PYTHON_OB_TYPE, types.bytes);
    put_pointer(BLOCK_BYTECODE, PYTHON_OB_TYPE, types.bytes);
    put(BLOCK_BYTECODE, PYTHON_OB_SIZE, (uint64_t)UNITS * 2, 8);
}

static enum python_verdict verify(const struct python_layout *layout)
{
    unsigned frames = 0;
    return python_verify_stack(layout, &types, memory[BLOCK_STATE], &frames);
}

TEST(test_good_stack)
{
    for (unsigned minor = 9; minor <= LAST_MINOR; minor++) {
        const struct python_layout *layout = layout_of(minor);
        unsigned frames = 0;
        make_stack(layout);
        assert_int_equal(python_verify_stack(layout, &types, memory[BLOCK_STATE], &frames), PYTHON_VERDICT_GOOD);
        assert_int_equal(frames, minor >= 12 ? 3 : 2);
        enum block top = layout->has_cframe ? BLOCK_CFRAME : BLOCK_STATE;
        put(top, layout->has_cframe ? layout->cframe_frame : layout->state_frame, 0, 8);
        assert_int_equal(verify(layout), PYTHON_VERDICT_NO_FRAMES);
    }
}

/* Every pointer on the way, replaced by each kind of wrong one. */
TEST(test_wrong_pointers)
{
    char *gone = mmap(NULL, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(gone != MAP_FAILED);
    const uint64_t wrong[] = {8,
                              UINT64_MAX - 7,
                              (uint64_t)(uintptr_t)gone,
                              (uint64_t)(uintptr_t)memory[BLOCK_NAME] + 1,
                              (uint64_t)(uintptr_t)memory[BLOCK_NAME] + 8,
                              UINT64_C(0x7FFFFFFFF000)};
    for (unsigned minor = 9; minor <= LAST_MINOR; minor++) {
        const struct python_layout *layout = layout_of(minor);
        const struct {
            enum block block;
            size_t offset;
        } pointers[] = {
            {BLOCK_STATE, layout->state_frame},
            {BLOCK_STATE, layout->state_thread},
            {BLOCK_INNER, layout->frame_code},
            {BLOCK_INNER, layout->frame_previous},
            {BLOCK_OUTER, layout->frame_code},
            {BLOCK_OUTER, layout->frame_previous},
            {BLOCK_CODE, PYTHON_OB_TYPE},
            {BLOCK_CODE, layout->code_name},
            {BLOCK_CODE, layout->code_filename},
            {BLOCK_CODE, layout->code_lines},
            {BLOCK_NAME, PYTHON_OB_TYPE},
            {BLOCK_TABLE, PYTHON_OB_TYPE},
            {BLOCK_INNER, layout->frame_instruction},
        };
        for (size_t i = 0; i < sizeof(pointers) / sizeof(pointers[0]); i++) {
            for (size_t j = 0; j < sizeof(wrong) / sizeof(wrong[0]); j++) {
                /* f_lasti is a number, and 8 is one inside the bytecode. */
                if (layout->frames_are_objects && pointers[i].offset == layout->frame_instruction &&
                    (int32_t)wrong[j] >= -1 && (int64_t)(int32_t)wrong[j] * layout->lasti_unit < 2 * UNITS) {
                    continue;
                }
                make_stack(layout);
                put(pointers[i].block, pointers[i].offset, wrong[j], 8);
                assert_int_equal(verify(layout), PYTHON_VERDICT_BAD);
            }
        }
    }
    munmap(gone, 8192);
}

/*
 * A ring of frames ends the check without a verdict; a layout of the wrong version ends it as bad, but
 * for 3.9 and 3.10, which differ in what f_lasti counts: these two only the version itself distinguishes.
 */
TEST(test_no_end_and_wrong_version)
{
    for (unsigned minor = 9; minor <= LAST_MINOR; minor++) {
        const struct python_layout *layout = layout_of(minor);
        make_stack(layout);
        put_pointer(BLOCK_OUTER, layout->frame_previous, memory[BLOCK_INNER]);
        assert_int_equal(verify(layout), PYTHON_VERDICT_NO_FRAMES);
        for (unsigned other = 9; other <= LAST_MINOR; other++) {
            make_stack(layout);
            if (other != minor && (other > 10 || minor > 10)) {
                assert_int_not_equal(verify(layout_of(other)), PYTHON_VERDICT_GOOD);
            }
        }
    }
}

/* Noise in place of one byte, or of everything, is survived; of everything, it is refused. */
TEST(test_noise)
{
    seed = 13;
    for (unsigned round = 0; round < 3000; round++) {
        const struct python_layout *layout = layout_of(9 + random_below(&seed, 5));
        make_stack(layout);
        memory[random_below(&seed, BLOCK_COUNT)][random_below(&seed, 200)] ^= (char)(1 + random_below(&seed, 255));
        (void)verify(layout);
        char *all = memory[0];
        for (size_t i = 0; i < sizeof(memory); i++) {
            all[i] = (char)random_below(&seed, 256);
        }
        assert_int_equal(verify(layout), PYTHON_VERDICT_BAD);
    }
}

TEST(test_copy_stops_at_the_end_of_memory)
{
    long page = sysconf(_SC_PAGESIZE);
    char *pages = mmap(NULL, 2 * (size_t)page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(pages != MAP_FAILED);
    assert_int_equal(munmap(pages + page, (size_t)page), 0);
    memcpy(pages + page - 8, "abcdefg", 8);
    char out[16] = "";
    assert_true(recorder_read_memory(out, (uintptr_t)pages + page - 8, 8));
    assert_string_equal(out, "abcdefg");
    assert_false(recorder_read_memory(out, (uintptr_t)pages + page - 8, 9));
    assert_false(recorder_read_memory(out, (uintptr_t)pages + page, 1));
    assert_false(recorder_read_memory(out, 0, 8));
    munmap(pages, (size_t)page);
}

/* Pages that share a set do not drive each other out, and one too many drives out one other. */
TEST(test_pages_share_a_set)
{
    const size_t stride = PYTHON_PAGE_SETS * PYTHON_PAGE_BYTES, bytes = (PYTHON_PAGE_WAYS + 2) * stride;
    char *pages = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(pages != MAP_FAILED);
    unsigned kept = 0;
    char *first = pages;
    while (python_pages[(uintptr_t)first / PYTHON_PAGE_BYTES % PYTHON_PAGE_SETS].pages[0] != 0) {
        first += PYTHON_PAGE_BYTES; /* a set that no other test has used */
        assert_true(first < pages + stride);
    }
    for (unsigned i = 0; i <= PYTHON_PAGE_WAYS; i++) {
        assert_false(python_page_known((uintptr_t)first + i * stride));
        assert_true(python_memory_probe(first + i * stride, 8));
        kept = 0;
        for (unsigned j = 0; j <= i; j++) {
            kept += python_page_known((uintptr_t)first + j * stride);
        }
        assert_int_equal(kept, i < PYTHON_PAGE_WAYS ? i + 1 : PYTHON_PAGE_WAYS);
    }
    munmap(pages, bytes);
}
