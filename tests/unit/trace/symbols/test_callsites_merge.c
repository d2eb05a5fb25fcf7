/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Native and Python frames as one stack: against a model that merges the two lists of each stack from the innermost
 * frame outwards, and one by one where frames are missing.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "support/random.h"
#include "trace/error.h"
#include "trace/format/callsite_file.h"
#include "trace/symbols/callsites/merge.h"

#include <stdlib.h>
#include <string.h>

#define FRAMES 24U
#define NODES_MAX 20000U
#define LINES_MAX 100000U
#define FRAMES_MAX 64U

/* Frames 1 to 12 native, 13 to 24 Python; what each is. */
static const uint32_t frame_roles[FRAMES] = {0,
                                             CALLSITES_ROLE_LOOP,
                                             CALLSITES_ROLE_RECORDER,
                                             0,
                                             CALLSITES_ROLE_LOOP,
                                             0,
                                             0,
                                             CALLSITES_ROLE_ALLOCATION,
                                             0,
                                             0,
                                             0,
                                             CALLSITES_ROLE_CUT,
                                             CALLSITES_ROLE_PYTHON,
                                             CALLSITES_ROLE_PYTHON,
                                             CALLSITES_ROLE_PYTHON,
                                             CALLSITES_ROLE_PYTHON,
                                             CALLSITES_ROLE_PYTHON,
                                             CALLSITES_ROLE_PYTHON,
                                             CALLSITES_ROLE_PYTHON,
                                             CALLSITES_ROLE_PYTHON,
                                             CALLSITES_ROLE_PYTHON,
                                             CALLSITES_ROLE_PYTHON,
                                             CALLSITES_ROLE_PYTHON,
                                             CALLSITES_ROLE_PYTHON | CALLSITES_ROLE_CUT};
#define NATIVE_CUT 12U
#define PYTHON_CUT 24U

static struct callsites_frame frames[FRAMES];
static struct callsites_resolved resolved[FRAMES];
static struct callsites_line_symbol symbols[2 * FRAMES];

static struct pair nodes[NODES_MAX]; /* parent, frame */
static uint32_t node_count;

/* Frame 6 has an inlined function, frame 7 no line at all; each third Python frame entered the loop. */
static void make_frames(void)
{
    uint32_t next = 0;
    for (uint32_t i = 0; i < FRAMES; i++) {
        frames[i] = (struct callsites_frame){.position = i + 100, .owner = 1, .is_python = i >= 12};
        frames[i].position |= i >= 12 && i % 3 == 0 ? CALLSITE_FILE_PYTHON_ENTRY : 0;
        resolved[i] = (struct callsites_resolved){next, i == 5 ? 2 : i == 6 ? 0 : 1};
        for (uint32_t k = 0; k < resolved[i].count; k++) {
            symbols[next] = (struct callsites_line_symbol){next + 1, frame_roles[i]};
            next++;
        }
    }
}

static uint32_t node_put(uint32_t parent, uint32_t frame)
{
    for (uint32_t i = parent; i < node_count; i++) {
        if (nodes[i].first == parent && nodes[i].second == frame) {
            return i + 1;
        }
    }
    assert_true(node_count < NODES_MAX);
    nodes[node_count++] = (struct pair){parent, frame};
    return node_count;
}

/* ---- the merged tree as it is written ---- */

static struct written {
    uint32_t parent, symbol;
    int64_t pc;
} written[LINES_MAX];
static uint32_t written_count;

static int write_line(void *context, uint32_t line, uint32_t parent, uint32_t symbol, int64_t pc)
{
    assert_ptr_equal(context, written);
    assert_int_equal(line, ++written_count);
    assert_true(parent < line && line < LINES_MAX);
    written[line] = (struct written){parent, symbol, pc};
    return VARVE_OK;
}

/* ---- the model ---- */

struct path {
    uint32_t frames[FRAMES_MAX]; /* innermost first */
    unsigned count;
};

static void path_add(struct path *path, uint32_t frame)
{
    assert_true(path->count < FRAMES_MAX);
    if (frame_roles[frame - 1] != CALLSITES_ROLE_RECORDER) {
        path->frames[path->count++] = frame;
    }
}

/* Innermost frames first; takes Python frames from `at` on, up to one that entered the loop if `is_one`. */
static unsigned model_python(const struct path *python, unsigned at, bool is_one, struct path *out)
{
    while (at < python->count) {
        uint32_t frame = python->frames[at++];
        path_add(out, frame);
        if (is_one && (frames[frame - 1].position & CALLSITE_FILE_PYTHON_ENTRY)) {
            break;
        }
    }
    return at;
}

static unsigned count_loops(const struct path *path, unsigned from)
{
    unsigned count = 0;
    for (unsigned i = from; i < path->count; i++) {
        const struct callsites_frame *frame = &frames[path->frames[i] - 1];
        count += frame->is_python ? (frame->position & CALLSITE_FILE_PYTHON_ENTRY) != 0
                                  : (frame_roles[path->frames[i] - 1] & CALLSITES_ROLE_LOOP) != 0;
    }
    return count;
}

static unsigned find_frame(const struct path *path, unsigned from, uint32_t frame)
{
    while (from < path->count && path->frames[from] != frame) {
        from++;
    }
    return from;
}

static void model_merge(const struct path *native, const struct path *python, struct path *out)
{
    unsigned at = 0, i = 0;
    out->count = 0;
    if (count_loops(native, 0) == 0) {
        at = model_python(python, 0, false, out);
    }
    while (i < native->count) {
        uint32_t frame = native->frames[i++];
        if (frame == NATIVE_CUT && at < python->count) {
            unsigned mark = find_frame(python, at, PYTHON_CUT);
            for (; mark < python->count && at < mark; at++) {
                path_add(out, python->frames[at]);
            }
            at += mark < python->count;
            path_add(out, frame);
            while (count_loops(python, at) > count_loops(native, i)) {
                at = model_python(python, at, true, out);
            }
            while (count_loops(native, i) > count_loops(python, at)) {
                path_add(out, native->frames[i++]);
            }
        } else if (frame_roles[frame - 1] == CALLSITES_ROLE_LOOP && at < python->count) {
            at = model_python(python, at, true, out);
        } else {
            path_add(out, frame);
        }
    }
    (void)model_python(python, at, false, out);
}

static void expect_path(const struct callsites_merge *merge, uint32_t line, const struct path *path)
{
    uint32_t depth = line != 0 ? merge->lines[line].depth : 0;
    for (unsigned i = 0; i < path->count; i++) {
        const struct callsites_resolved *of = &resolved[path->frames[i] - 1];
        const bool has_pc = path->frames[i] <= 12 && path->frames[i] != NATIVE_CUT;
        for (uint32_t k = 0; k < of->count; k++, depth--) {
            assert_int_not_equal(line, 0);
            assert_int_equal(written[line].symbol, symbols[of->start + k].symbol);
            assert_int_equal(written[line].pc, has_pc ? (int64_t)frames[path->frames[i] - 1].position : -1);
            assert_int_equal(merge->lines[line].symbol, written[line].symbol);
            assert_int_equal(merge->lines[line].roles, symbols[of->start + k].roles);
            assert_int_equal(merge->lines[line].depth, depth);
            assert_int_equal(merge->lines[line].parent, written[line].parent);
            line = written[line].parent;
        }
    }
    assert_int_equal(line, 0);
    assert_int_equal(depth, 0);
}

/* A stack like one of before from its outermost frame to somewhere. */
static uint32_t vary(struct path *path, uint64_t *seed, uint32_t first, uint32_t last)
{
    unsigned keep = path->count > 0 ? (unsigned)random_below(seed, path->count + 1) : 0;
    unsigned fresh = (unsigned)random_below(seed, 6), count = keep + fresh;
    struct path next = {.count = count < FRAMES_MAX / 4 ? count : FRAMES_MAX / 4};
    uint32_t node = 0;
    for (unsigned i = 0; i < next.count; i++) { /* from the outermost */
        uint32_t frame = first + (uint32_t)random_below(seed, last - first + 1);
        frame = frame == last && random_below(seed, 4) != 0 ? first : frame; /* marks are rare */
        frame = i < keep ? path->frames[path->count - 1 - i] : frame;
        next.frames[next.count - 1 - i] = frame;
        node = node_put(node, frame);
    }
    *path = next;
    return node;
}

TEST(test_against_the_model)
{
    static struct path native[2000], python[2000];
    static struct pair stacks[2000];
    struct path one = {.count = 0}, other = {.count = 0}, expected;
    uint64_t seed = 41;
    make_frames();
    for (unsigned i = 0; i < 2000; i++) {
        stacks[i].first = random_below(&seed, 8) == 0 ? 0 : vary(&one, &seed, 1, 12);
        native[i] = one;
        native[i].count = stacks[i].first != 0 ? one.count : 0;
        stacks[i].second = random_below(&seed, 4) == 0 ? 0 : vary(&other, &seed, 13, 24);
        python[i] = other;
        python[i].count = stacks[i].second != 0 ? other.count : 0;
    }
    const struct pairs all = {.pairs = nodes, .count = node_count};
    struct callsites_merge merge = {.nodes = &all,
                                    .frames = frames,
                                    .frame_count = FRAMES,
                                    .resolved = resolved,
                                    .symbols = symbols,
                                    .add = write_line,
                                    .context = written};

    assert_int_equal(callsites_merge_extend(&merge), VARVE_OK);
    for (unsigned round = 0; round < 2; round++) {
        uint32_t before = written_count;
        for (unsigned i = 0; i < 2000; i++) {
            uint32_t line;
            assert_int_equal(callsites_merge_stack(&merge, stacks[i], &line), VARVE_OK);
            model_merge(&native[i], &python[i], &expected);
            expect_path(&merge, line, &expected);
        }
        assert_true(round == 0 || written_count == before); /* the second time nothing is new */
    }
    assert_true(node_count > 2000 && written_count > 2000);
    callsites_merge_close(&merge);
}
