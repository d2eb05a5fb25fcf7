/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace/recorder/stacks/python/verify.c on a made-up interpreter: a thread state with two frames, laid out as
 * trace/recorder/stacks/python/layout.c says, is found good; after any one field is broken, or the whole of it is
 * noise, it is found bad, and no wrong pointer costs more than an answer. Real interpreters are walked in
 * faults/test_python_stack.py.
 * Costs: 1 s
 */
#include "trace/recorder/guest/memory.h"
#include "trace/recorder/stacks/python/frame.h"
#include "trace/recorder/stacks/python/layout.h"
#include "trace/recorder/stacks/python/verify.h"
#include "support/random.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define BLOCK 512U
#define UNITS 20

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

static const uint64_t type_objects[4];
static const struct python_types types = {
    .code = &type_objects[0],
    .frame = &type_objects[1],
    .unicode = &type_objects[2],
    .bytes = &type_objects[3],
};

static _Alignas(16) char memory[BLOCK_COUNT][BLOCK];
static uint64_t seed;

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
        put(BLOCK_ENTRY, layout->frame_owner, PYTHON_OWNER_CSTACK, 1);
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

static const struct python_layout *layout_of(unsigned minor)
{
    char version[16];
    snprintf(version, sizeof(version), "3.%u.1", minor);
    return python_layout_find(version);
}

static enum python_verdict verify(const struct python_layout *layout)
{
    unsigned frames = 0;
    return python_verify_stack(layout, &types, memory[BLOCK_STATE], &frames);
}

TEST(test_good_stack)
{
    for (unsigned minor = 9; minor <= 13; minor++) {
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
    for (unsigned minor = 9; minor <= 13; minor++) {
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

TEST(test_another_thread)
{
    for (unsigned minor = 9; minor <= 13; minor++) {
        const struct python_layout *layout = layout_of(minor);
        make_stack(layout);
        put(BLOCK_STATE, layout->state_thread, (uint64_t)pthread_self() + 64, 8);
        assert_int_equal(verify(layout), PYTHON_VERDICT_BAD);
    }
}

/*
 * A ring of frames ends the check without a verdict; a layout of the wrong version ends it as bad, but
 * for 3.9 and 3.10, which differ in what f_lasti counts: these two only the version itself distinguishes.
 */
TEST(test_no_end_and_wrong_version)
{
    for (unsigned minor = 9; minor <= 13; minor++) {
        const struct python_layout *layout = layout_of(minor);
        make_stack(layout);
        put_pointer(BLOCK_OUTER, layout->frame_previous, memory[BLOCK_INNER]);
        assert_int_equal(verify(layout), PYTHON_VERDICT_NO_FRAMES);
        for (unsigned other = 9; other <= 13; other++) {
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
