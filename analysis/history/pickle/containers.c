/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The opcodes of stack, marks and containers. The hard part is filling: the place of a container on the stack
 * tells the sink what it will be, before the file has said so; the sink checks that when the container
 * arrives. Limits on height and marks keep a small file from asking for much memory. Called through
 * pickle_opcodes.
 */
#include "analysis/history/pickle/pickle.h"

#include "analysis/output/memory.h"

#include <assert.h>

/* Picklers fill containers in portions of 1000, tuples at once. */
#define STACK_MAX ((size_t)1 << 22)
#define MARKS_MAX ((size_t)1 << 16)

/* ---- the stack ---- */

int pickle_stack_grow(struct pickle *pickle)
{
    if (pickle->height == STACK_MAX) {
        return pickle_fail(pickle, pickle->offset, "more than %zu values wait on the stack", STACK_MAX);
    }
    pickle->stack_capacity *= 2;
    pickle->stack = memory_resize(pickle->stack, pickle->stack_capacity * sizeof(*pickle->stack));
    return VARVE_OK;
}

int pickle_push_object(struct pickle *pickle, struct pickle_value value)
{
    int error = pickle_push(pickle, (enum pickle_type)value.type, value.bits);

    if (error != VARVE_OK) {
        pickle_release(pickle, value);
    }
    return error;
}

int pickle_fail_underflow(struct pickle *pickle)
{
    return pickle_fail(pickle, pickle->offset, "%s finds too few values on the stack",
                       pickle_opcodes[pickle->opcode].name);
}

/* An opcode may take the values above the last mark. */
static size_t base(const struct pickle *pickle)
{
    return pickle->mark_count > 0 ? pickle->marks[pickle->mark_count - 1] : 0;
}

size_t pickle_available(const struct pickle *pickle)
{
    return pickle->height - base(pickle);
}

/* Take the last mark away; *first_out is the first value above it. */
static int pop_mark(struct pickle *pickle, size_t *first_out)
{
    if (pickle->mark_count == 0) {
        return pickle_fail(pickle, pickle->offset, "%s without a MARK", pickle_opcodes[pickle->opcode].name);
    }
    *first_out = pickle->marks[--pickle->mark_count];
    assert(*first_out <= pickle->height);
    return VARVE_OK;
}

static void drop_above(struct pickle *pickle, size_t height)
{
    while (pickle->height > height) {
        pickle_release(pickle, pickle->stack[--pickle->height]);
    }
}

int pickle_run_mark(struct pickle *pickle)
{
    if (pickle->mark_count == pickle->mark_capacity) {
        if (pickle->mark_count == MARKS_MAX) {
            return pickle_fail(pickle, pickle->offset, "nested deeper than %zu containers", MARKS_MAX);
        }
        pickle->mark_capacity = pickle->mark_capacity == 0 ? 64 : pickle->mark_capacity * 2;
        pickle->marks = memory_resize(pickle->marks, pickle->mark_capacity * sizeof(*pickle->marks));
    }
    pickle->marks[pickle->mark_count++] = (uint32_t)pickle->height;
    return VARVE_OK;
}

int pickle_run_pop(struct pickle *pickle)
{
    if (pickle_available(pickle) > 0) {
        drop_above(pickle, pickle->height - 1);
    } else if (pickle->mark_count > 0) {
        pickle->mark_count--; /* Python lets POP take a mark */
    } else {
        return pickle_fail_underflow(pickle);
    }
    return VARVE_OK;
}

int pickle_run_pop_mark(struct pickle *pickle)
{
    size_t first = 0;
    int error = pop_mark(pickle, &first);

    if (error == VARVE_OK) {
        drop_above(pickle, first);
    }
    return error;
}

int pickle_run_dup(struct pickle *pickle)
{
    struct pickle_value top;

    if (pickle_available(pickle) == 0) {
        return pickle_fail_underflow(pickle);
    }
    top = pickle->stack[pickle->height - 1];
    pickle_retain(pickle, top);
    return pickle_push_object(pickle, top);
}

int pickle_run_none(struct pickle *pickle)
{
    return pickle_push(pickle, PICKLE_NONE, 0);
}

int pickle_run_true(struct pickle *pickle)
{
    return pickle_push(pickle, PICKLE_BOOL, 1);
}

int pickle_run_false(struct pickle *pickle)
{
    return pickle_push(pickle, PICKLE_BOOL, 0);
}

/* ---- containers ---- */

int pickle_run_empty_list(struct pickle *pickle)
{
    return pickle_push_object(pickle, pickle_object_new(pickle, PICKLE_LIST));
}

int pickle_run_empty_dict(struct pickle *pickle)
{
    return pickle_push_object(pickle, pickle_object_new(pickle, PICKLE_DICT));
}

int pickle_run_empty_tuple(struct pickle *pickle)
{
    return pickle_push_object(pickle, pickle_object_new(pickle, PICKLE_TUPLE));
}

int pickle_run_empty_set(struct pickle *pickle)
{
    return pickle_push_object(pickle, pickle_object_new(pickle, PICKLE_SET));
}

/* Move the values from `first` up into the container, which is, or will be, at `position`. */
static int fill(struct pickle *pickle, struct pickle_value container, size_t position, size_t first)
{
    struct pickle_object *object = pickle_object(pickle, container);
    size_t count = pickle->height - first;

    if (object->is_replaced) {
        return pickle_fail(pickle, pickle->offset, "%s refers back to a consumed entry",
                           pickle_opcodes[pickle->opcode].name);
    }
    if (object->role == PICKLE_ROLE_UNDECIDED) {
        bool is_asked = pickle->sink != NULL &&
                        (object->type == PICKLE_LIST || (object->type == PICKLE_DICT && position == 0));

        object->role = is_asked ? pickle->sink->role(pickle->sink->context, pickle, position, object)
                                : PICKLE_ROLE_PLAIN;
    }
    if (object->role == PICKLE_ROLE_PLAIN) {
        pickle_object_add(object, pickle->stack + first, count);
        pickle->height = first;
    } else {
        int error = pickle->sink->take(pickle->sink->context, pickle, object, pickle->stack + first, count);

        drop_above(pickle, first);
        return error;
    }
    return VARVE_OK;
}

/* The container that a filling opcode means: below the items, of the right type. */
static int fill_below(struct pickle *pickle, size_t first, enum pickle_type type, size_t base)
{
    char description[PICKLE_DESCRIBE_BYTES];
    struct pickle_value container;

    if (first <= base) {
        return pickle_fail_underflow(pickle);
    }
    container = pickle->stack[first - 1];
    if (container.type == PICKLE_REPLACED) {
        return pickle_fail(pickle, pickle->offset, "%s refers back to a consumed entry",
                           pickle_opcodes[pickle->opcode].name);
    }
    if (container.type != type) {
        return pickle_fail(pickle, pickle->offset, "%s adds to %s", pickle_opcodes[pickle->opcode].name,
                           pickle_describe(pickle, container, description, sizeof(description)));
    }
    if (type == PICKLE_DICT && (pickle->height - first) % 2 != 0) {
        return pickle_fail(pickle, pickle->offset, "%s with a key but no value",
                           pickle_opcodes[pickle->opcode].name);
    }
    return fill(pickle, container, first - 1, first);
}

static int fill_marked(struct pickle *pickle, enum pickle_type type)
{
    size_t first = 0;
    int error = pop_mark(pickle, &first);

    return error != VARVE_OK ? error : fill_below(pickle, first, type, base(pickle));
}

int pickle_run_appends(struct pickle *pickle)
{
    return fill_marked(pickle, PICKLE_LIST);
}

int pickle_run_setitems(struct pickle *pickle)
{
    return fill_marked(pickle, PICKLE_DICT);
}

int pickle_run_additems(struct pickle *pickle)
{
    return fill_marked(pickle, PICKLE_SET);
}

int pickle_run_append(struct pickle *pickle)
{
    if (pickle_available(pickle) < 2) {
        return pickle_fail_underflow(pickle);
    }
    return fill_below(pickle, pickle->height - 1, PICKLE_LIST, 0);
}

int pickle_run_setitem(struct pickle *pickle)
{
    if (pickle_available(pickle) < 3) {
        return pickle_fail_underflow(pickle);
    }
    return fill_below(pickle, pickle->height - 2, PICKLE_DICT, 0);
}

/* A container of the values from `first` up, in their place. */
static int collect(struct pickle *pickle, enum pickle_type type, size_t first)
{
    struct pickle_value container = pickle_object_new(pickle, type);
    int error;

    if (type == PICKLE_DICT && (pickle->height - first) % 2 != 0) {
        error = pickle_fail(pickle, pickle->offset, "DICT with a key but no value");
    } else {
        error = fill(pickle, container, first, first);
    }
    if (error != VARVE_OK) {
        pickle_release(pickle, container);
        return error;
    }
    return pickle_push_object(pickle, container);
}

static int collect_marked(struct pickle *pickle, enum pickle_type type)
{
    size_t first = 0;
    int error = pop_mark(pickle, &first);

    return error != VARVE_OK ? error : collect(pickle, type, first);
}

int pickle_run_list(struct pickle *pickle)
{
    return collect_marked(pickle, PICKLE_LIST);
}

int pickle_run_dict(struct pickle *pickle)
{
    return collect_marked(pickle, PICKLE_DICT);
}

int pickle_run_tuple(struct pickle *pickle)
{
    return collect_marked(pickle, PICKLE_TUPLE);
}

int pickle_run_frozenset(struct pickle *pickle)
{
    return collect_marked(pickle, PICKLE_SET);
}

/* TUPLE1, TUPLE2 and TUPLE3 follow one another. */
int pickle_run_small_tuple(struct pickle *pickle)
{
    size_t count = pickle->opcode - 0x85 + 1U;

    return pickle_available(pickle) < count ? pickle_fail_underflow(pickle)
                                            : collect(pickle, PICKLE_TUPLE, pickle->height - count);
}
