/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One tree out of two: the native frames of threads and the frames of their Python interpreters, in which the calls of
 * one line are one: nobody asks for two addresses of it apart. The native stack shows the interpreter loop where Python
 * runs; one call of the loop runs a Python function and, since CPython 3.11, what that calls in Python as well. So each
 * frame of the loop stands for the Python frames up to and including the next one that entered the loop. Either may
 * lack frames, or the loop's name be unknown: every Python frame is shown all the same. Called by callsite_finish.c.
 */
#include "trace/callsites/stack_merge.h"

#include "base/grown_array.h"
#include "trace/format/callsite_format.h"
#include "base/error.h"
#include "trace/writer.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>

/*
 * A line stands for a pair of nodes, the native and the Python frames that are shown from there outwards. The line of a
 * pair follows from that of the next pair, outside of it; lines of pairs that were met before are not made again, and
 * stacks share most of their pairs. Python frames of a stack without a frame of the loop are shown innermost: the
 * native node of their pairs is marked, since there the same nodes make other lines.
 */
#define APART 0x80000000U

#define FRAMES_MAX (4U * CALLSITE_FILE_DEPTH_MAX)

/* One step outwards: the frames that the pair has and the next one has not, innermost first. */
struct step {
    struct pair next; /* first: the native node, second: the Python node */
    unsigned count;
    uint32_t frames[FRAMES_MAX];
};

static uint32_t parent_of(const struct callsites_merge *merge, uint32_t node)
{
    return merge->nodes->pairs[node - 1].first;
}

static uint32_t frame_of(const struct callsites_merge *merge, uint32_t node)
{
    return merge->nodes->pairs[node - 1].second;
}

static uint32_t roles_of(const struct callsites_merge *merge, uint32_t node)
{
    return merge->roles[frame_of(merge, node) - 1];
}

/* Of the path of a node. */
static uint32_t stack_merge_loops_of(const struct callsites_merge *merge, uint32_t number)
{
    return number != 0 ? merge->loops[number - 1] : 0;
}

static bool is_entry(const struct callsites_merge *merge, uint32_t number)
{
    return (merge->frames[frame_of(merge, number) - 1].position & CALLSITE_FILE_PYTHON_ENTRY) != 0;
}

static void step_add(const struct callsites_merge *merge, struct step *step, uint32_t node)
{
    if (step->count < FRAMES_MAX && !(roles_of(merge, node) & CALLSITES_ROLE_RECORDER)) {
        step->frames[step->count++] = frame_of(merge, node);
    }
}

/* Python frames up to and including the one that entered the loop, or up to a mark: true then. */
static bool step_add_python(const struct callsites_merge *merge, struct step *step)
{
    bool is_last = false;
    while (step->next.second != 0 && !is_last) {
        if (roles_of(merge, step->next.second) & CALLSITES_ROLE_CUT) {
            return true;
        }
        is_last = is_entry(merge, step->next.second);
        step_add(merge, step, step->next.second);
        step->next.second = parent_of(merge, step->next.second);
    }
    return false;
}

/*
 * Frames are missing here: of the native ones, of the Python ones or of both. What is outside of the marks is put
 * together from the outermost ends, where nothing is missing. One mark is shown: that of the Python frames if they have
 * one, since frames of Python are what is told by lines.
 */
static void step_over_cut(const struct callsites_merge *merge, struct step *step, uint32_t native_mark)
{
    uint32_t python = step->next.second;
    while (python != 0 && !(roles_of(merge, python) & CALLSITES_ROLE_CUT)) {
        python = parent_of(merge, python);
    }
    for (; python != 0 && step->next.second != python; step->next.second = parent_of(merge, step->next.second)) {
        step_add(merge, step, step->next.second);
    }
    step->next.second = python != 0 ? parent_of(merge, python) : step->next.second;
    step_add(merge, step, python != 0 ? python : native_mark);
    while (stack_merge_loops_of(merge, step->next.second) > stack_merge_loops_of(merge, step->next.first)) {
        if (step_add_python(merge, step)) { /* in a damaged file: a second mark */
            step->next.second = parent_of(merge, step->next.second);
        }
    }
    while (stack_merge_loops_of(merge, step->next.first) > stack_merge_loops_of(merge, step->next.second)) {
        if (!(roles_of(merge, step->next.first) & CALLSITES_ROLE_CUT)) {
            step_add(merge, step, step->next.first);
        }
        step->next.first = parent_of(merge, step->next.first);
    }
}

static void step_out(const struct callsites_merge *merge, struct pair pair, struct step *step)
{
    const uint32_t native = pair.first;
    step->next = pair;
    step->count = 0;
    if (native == 0 || (native & APART) != 0) {
        step_add(merge, step, pair.second);
        step->next.second = parent_of(merge, pair.second);
        step->next.first = step->next.second != 0 ? native : native & ~APART;
        return;
    }
    step->next.first = parent_of(merge, native);
    uint32_t roles = roles_of(merge, native);
    if (pair.second != 0 && (roles & CALLSITES_ROLE_CUT)) {
        step_over_cut(merge, step, native);
    } else if (pair.second != 0 && (roles & CALLSITES_ROLE_LOOP) && !(roles & CALLSITES_ROLE_RECORDER)) {
        if (step_add_python(merge, step)) {
            step_over_cut(merge, step, 0);
        }
    } else {
        step_add(merge, step, native);
    }
}

static unsigned stack_merge_rank_of(const struct callsites_line *line)
{
    return (unsigned)line->roles >> CALLSITES_RANK_SHIFT;
}

/* The user's line of the stack that begins at `line`, whose caller is `outer`. */
static uint32_t user_of(const struct callsites_line *lines, uint32_t line, uint32_t outer)
{
    const uint32_t user = outer != 0 ? lines[outer].user : 0;
    const unsigned rank = stack_merge_rank_of(&lines[line]);
    return rank != VARVE_FRAME_PLUMBING && (user == 0 || rank >= stack_merge_rank_of(&lines[user])) ? line : user;
}

/* The frame of lines for symbols[at], which stands for frame `id`; 0 without memory. */
static uint32_t line_frame(struct callsites_merge *merge, uint32_t id, uint32_t at, int64_t pc)
{
    if (merge->place_frames[at] == 0) {
        const struct callsites_line_symbol *symbol = &merge->symbols[at];
        const bool is_unnamed = (symbol->roles & CALLSITES_ROLE_UNNAMED) != 0;
        const struct callsites_line_frame frame = {is_unnamed ? merge->resolved[id - 1].place : 0, symbol->symbol, 0};
        const uint32_t before = merge->line_frames.count;
        if (!ARRAY_GROW(merge->frame_pcs, merge->frame_pc_capacity, (size_t)before + 1)) {
            return 0;
        }
        const uint32_t number = intern(&merge->line_frames, &frame, sizeof(frame), 0);
        if (number > before || (number > 0 && pc < merge->frame_pcs[number - 1])) {
            merge->frame_pcs[number - 1] = pc;
        }
        merge->place_frames[at] = number;
    }
    return merge->place_frames[at];
}

/* The line of a frame inside of line `outer`, made if it is new: `*line_out`. */
static int line_find(struct callsites_merge *merge, uint32_t outer, uint32_t frame,
                     const struct callsites_line_symbol *symbol, uint32_t *line_out)
{
    const uint32_t number = pairs_intern(&merge->tree, (struct pair){outer, frame});
    if (number == 0 || !ARRAY_GROW(merge->lines, merge->line_capacity, (size_t)number + 1)) {
        return VARVE_ERROR_NO_MEMORY;
    }
    *line_out = number;
    if (number <= merge->line_count) {
        return VARVE_OK;
    }
    const uint16_t depth = outer != 0 ? merge->lines[outer].depth : 0;
    merge->lines[number] = (struct callsites_line){outer, symbol->symbol, (uint16_t)symbol->roles,
                                                   (uint16_t)(depth + (depth < UINT16_MAX)), 0};
    merge->lines[number].user = user_of(merge->lines, number, outer);
    merge->line_count = number;
    return VARVE_OK;
}

/* The lines of a frame inside of `*line`, which becomes the innermost of them. */
static int stack_merge_add_frame(struct callsites_merge *merge, uint32_t id, uint32_t *line)
{
    const struct callsites_frame *frame = &merge->frames[id - 1];
    const struct callsites_resolved *resolved = &merge->resolved[id - 1];
    const bool has_pc =
        !frame->is_python && frame->position <= INT64_MAX && !(merge->roles[id - 1] & CALLSITES_ROLE_CUT);
    int error = VARVE_OK;
    for (uint32_t i = resolved->count; i-- > 0 && error == VARVE_OK;) {
        const uint32_t at = resolved->start + i;
        const uint32_t number = line_frame(merge, id, at, has_pc ? (int64_t)frame->position : -1);
        error = number != 0 ? line_find(merge, *line, number, &merge->symbols[at], line) : VARVE_ERROR_NO_MEMORY;
    }
    return error;
}

static bool stack_merge_is_none(struct pair pair)
{
    return pair.first == 0 && pair.second == 0;
}

/* Remember the line of a pair that has none yet; false without memory. */
static bool pair_done(struct callsites_merge *merge, struct pair pair, uint32_t line)
{
    uint32_t number = pairs_intern(&merge->done, pair);
    if (number == 0 || !ARRAY_GROW(merge->done_line, merge->done_capacity, number)) {
        return false;
    }
    merge->done_line[number - 1] = line;
    return true;
}

int callsites_merge_stack(struct callsites_merge *merge, struct pair stack, uint32_t *line_out)
{
    struct step step;
    step.next = stack;
    if (stack.second != 0 && stack.first != 0 && stack_merge_loops_of(merge, stack.first) == 0) {
        step.next.first |= APART;
    }
    uint32_t line = 0;
    size_t steps = 0;
    while (!stack_merge_is_none(step.next)) {
        uint32_t done = pairs_find(&merge->done, step.next);
        if (done != 0) {
            line = merge->done_line[done - 1];
            break;
        }
        if (!ARRAY_GROW(merge->path, merge->path_capacity, steps + 1)) {
            return VARVE_ERROR_NO_MEMORY;
        }
        merge->path[steps++] = step.next;
        step_out(merge, step.next, &step);
    }
    int error = VARVE_OK;
    while (steps > 0 && error == VARVE_OK) {
        const struct pair pair = merge->path[--steps];
        step_out(merge, pair, &step);
        while (step.count > 0 && error == VARVE_OK) {
            error = stack_merge_add_frame(merge, step.frames[--step.count], &line);
        }
        if (error == VARVE_OK && !pair_done(merge, pair, line)) {
            error = VARVE_ERROR_NO_MEMORY;
        }
    }
    *line_out = line;
    return error;
}

static void add_roles(struct callsites_merge *merge)
{
    const struct callsites_resolved *resolved = &merge->resolved[merge->role_count];
    uint32_t roles = 0;
    for (uint32_t k = 0; k < resolved->count; k++) {
        roles |= merge->symbols[resolved->start + k].roles;
    }
    merge->roles[merge->role_count++] = roles;
}

static void add_loops(struct callsites_merge *merge)
{
    const uint32_t node = ++merge->node_count;
    const bool is_python = merge->frames[frame_of(merge, node) - 1].is_python != 0;
    assert(parent_of(merge, node) < node);
    merge->loops[node - 1] = stack_merge_loops_of(merge, parent_of(merge, node)) +
                             (is_python ? is_entry(merge, node) : (roles_of(merge, node) & CALLSITES_ROLE_LOOP) != 0);
}

int callsites_merge_extend(struct callsites_merge *merge)
{
    if (!ARRAY_GROW(merge->place_frames, merge->place_capacity, merge->symbol_count + 1) ||
        !ARRAY_GROW(merge->roles, merge->role_capacity, merge->frame_count + 1) ||
        !ARRAY_GROW(merge->loops, merge->loop_capacity, (size_t)merge->nodes->count + 1)) {
        return VARVE_ERROR_NO_MEMORY;
    }
    while (merge->place_count < merge->symbol_count) {
        merge->place_frames[merge->place_count++] = 0;
    }
    while (merge->role_count < merge->frame_count) {
        add_roles(merge);
    }
    while (merge->node_count < merge->nodes->count && frame_of(merge, merge->node_count + 1) <= merge->frame_count) {
        add_loops(merge);
    }
    return VARVE_OK;
}

bool callsites_merge_knows(const struct callsites_merge *merge, struct pair stack)
{
    return stack.first <= merge->node_count && stack.second <= merge->node_count;
}

void callsites_merge_forget(struct callsites_merge *merge)
{
    free(merge->roles);
    free(merge->loops);
    free(merge->path);
    free(merge->done_line);
    pairs_free(&merge->done);
    merge->roles = merge->loops = merge->done_line = NULL;
    merge->path = NULL;
    merge->role_capacity = merge->loop_capacity = merge->path_capacity = merge->done_capacity = 0;
}

void callsites_merge_close(struct callsites_merge *merge)
{
    callsites_merge_forget(merge);
    pairs_free(&merge->tree);
    interned_free(&merge->line_frames);
    free(merge->frame_pcs);
    free(merge->place_frames);
    free(merge->lines);
}

/* Did PyTorch call nothing but itself and CUDA, from its first Python frame or the program's down to here? */
static bool is_torch_call(const struct callsites_line *lines, uint32_t line)
{
    bool has_torch = false;
    for (; line != 0; line = lines[line].parent) {
        uint32_t roles = lines[line].roles;
        if (roles & CALLSITES_ROLE_PYTHON) {
            return has_torch || (roles & CALLSITES_ROLE_TORCH);
        }
        if (!(roles & (CALLSITES_ROLE_TORCH | CALLSITES_ROLE_ALLOCATION | CALLSITES_ROLE_INTERPRETER))) {
            return false;
        }
        has_torch = has_torch || (roles & CALLSITES_ROLE_TORCH);
    }
    return false;
}

/* The innermost Python line, the program's own rather than PyTorch's or one that only allocates; NULL
 * if there is none. */
static const struct callsites_line *python_line(const struct callsites_line *lines, uint32_t line, bool is_torch_passed)
{
    const struct callsites_line *first = NULL;
    for (; line != 0; line = lines[line].parent) {
        if (!(lines[line].roles & CALLSITES_ROLE_PYTHON)) {
            continue;
        }
        if (!(lines[line].roles & CALLSITES_ROLE_ALLOCATION) &&
            (!is_torch_passed || !(lines[line].roles & CALLSITES_ROLE_TORCH))) {
            return &lines[line];
        }
        first = first ? first : &lines[line];
    }
    return first;
}

uint32_t callsites_line_symbol(const struct callsites_line *lines, uint32_t line)
{
    if (is_torch_call(lines, line)) {
        return python_line(lines, line, true)->symbol;
    }
    const struct callsites_line *chosen = NULL;
    for (uint32_t at = line; at != 0; at = lines[at].parent) {
        chosen = &lines[at]; /* nothing but allocation functions: the outermost says most */
        if (!(chosen->roles & CALLSITES_ROLE_ALLOCATION)) {
            break;
        }
    }
    /* Where Python called into code that says nothing, the Python line does. */
    if (chosen && (chosen->roles & (CALLSITES_ROLE_INTERPRETER | CALLSITES_ROLE_UNNAMED))) {
        const struct callsites_line *python = python_line(lines, line, false);
        chosen = python ? python : chosen;
    }
    return chosen ? chosen->symbol : 0;
}

uint32_t callsites_line_user(const struct callsites_line *lines, uint32_t line)
{
    const uint32_t user = line != 0 ? lines[line].user : 0;
    return user != 0 ? lines[user].symbol : callsites_line_symbol(lines, line);
}
