/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop, the table of opcodes and what each opcode does. Before each opcode the window holds RESERVE_BYTES,
 * or all that is left, so that the arguments of nearly all opcodes are contiguous and a shortage means a
 * truncated file. Lengths and memo indices are claims of the file: memory follows what has arrived. What would
 * make Python import, call or look up something outside the file is refused by name.
 */
#include "analysis/snapshot/pickle_decoder.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/base/progress.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define RESERVE_BYTES 288 /* opcode, length and 256 bytes */
#define PADDING_MAX 3
#define PROTOCOL_MIN 2
#define PROTOCOL_MAX 5
/* Picklers fill containers in portions of 1000, tuples at once. */
#define STACK_MAX ((size_t)1 << 22)
#define MARKS_MAX ((size_t)1 << 16)

struct opcode {
    const char *name;                  /* NULL: no opcode */
    int (*run)(struct pickle *pickle); /* 0, or the error that ends the reading */
    unsigned argument;                 /* what `run` is about: a type, a number of bytes or items */
};

static const struct opcode opcodes[256];

/* ---- messages ---- */

int pickle_fail(struct pickle *pickle, uint64_t offset, const char *format, ...)
{
    const char *path = input_stream_path(pickle->input);
    size_t length = strlen(path);
    va_list arguments;
    va_start(arguments, format);
    char reason[300];
    vsnprintf(reason, sizeof(reason), format, arguments);
    va_end(arguments);
    return varve_message_set(pickle->message, VARVE_ERROR_FORMAT, "%s%s: at byte %" PRIu64 ": %s",
                             length > 150 ? "…" : "", length > 150 ? path + length - 150 : path, offset, reason);
}

static int fail_truncated(struct pickle *pickle)
{
    return pickle_fail(pickle, pickle->offset, "the data end within %s", opcodes[pickle->opcode].name);
}

/* `count` bytes behind the opcode, NULL (see fail_truncated) if the data end before. count <= 256. */
static const unsigned char *pickle_decoder_take_bytes(struct pickle *pickle, size_t count)
{
    const unsigned char *bytes = pickle->input->next;
    if ((size_t)(pickle->input->end - bytes) < count) {
        return NULL;
    }
    pickle->input->next += count;
    return bytes;
}

static unsigned argument(const struct pickle *pickle)
{
    return opcodes[pickle->opcode].argument;
}

/* ---- the stack ---- */

static int stack_grow(struct pickle *pickle)
{
    if (pickle->height == STACK_MAX) {
        return pickle_fail(pickle, pickle->offset, "more than %zu values wait on the stack", STACK_MAX);
    }
    pickle->stack_capacity *= 2;
    pickle->stack = memory_resize(pickle->stack, pickle->stack_capacity * sizeof(*pickle->stack));
    return VARVE_OK;
}

static int pickle_decoder_push(struct pickle *pickle, enum pickle_type type, uint64_t bits)
{
    if (pickle->height == pickle->stack_capacity) {
        int error = stack_grow(pickle);
        if (error != VARVE_OK) {
            return error;
        }
    }
    struct pickle_value *top = &pickle->stack[pickle->height++];
    top->type = (unsigned char)type;
    top->offset = pickle->offset;
    top->bits = bits;
    return VARVE_OK;
}

static int push_object(struct pickle *pickle, struct pickle_value value)
{
    int error = pickle_decoder_push(pickle, (enum pickle_type)value.type, value.bits);
    if (error != VARVE_OK) {
        pickle_release(&pickle->memory, value);
    }
    return error;
}

static int fail_underflow(struct pickle *pickle)
{
    return pickle_fail(pickle, pickle->offset, "%s finds too few values on the stack", opcodes[pickle->opcode].name);
}

/* An opcode may take the values above the last mark. */
static size_t base(const struct pickle *pickle)
{
    return pickle->mark_count > 0 ? pickle->marks[pickle->mark_count - 1] : 0;
}

static size_t available(const struct pickle *pickle)
{
    return pickle->height - base(pickle);
}

/* Take the last mark away; *first_out is the first value above it. */
static int pop_mark(struct pickle *pickle, size_t *first_out)
{
    if (pickle->mark_count == 0) {
        return pickle_fail(pickle, pickle->offset, "%s without a MARK", opcodes[pickle->opcode].name);
    }
    *first_out = pickle->marks[--pickle->mark_count];
    assert(*first_out <= pickle->height);
    return VARVE_OK;
}

static void drop_above(struct pickle *pickle, size_t height)
{
    while (pickle->height > height) {
        pickle_release(&pickle->memory, pickle->stack[--pickle->height]);
    }
}

static int run_mark(struct pickle *pickle)
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

static int run_pop(struct pickle *pickle)
{
    if (available(pickle) > 0) {
        drop_above(pickle, pickle->height - 1);
    } else if (pickle->mark_count > 0) {
        pickle->mark_count--; /* Python lets POP take a mark */
    } else {
        return fail_underflow(pickle);
    }
    return VARVE_OK;
}

static int run_pop_mark(struct pickle *pickle)
{
    size_t first = 0;
    int error = pop_mark(pickle, &first);
    if (error == VARVE_OK) {
        drop_above(pickle, first);
    }
    return error;
}

static int run_none(struct pickle *pickle)
{
    return pickle_decoder_push(pickle, PICKLE_NONE, 0);
}

static int run_bool(struct pickle *pickle)
{
    return pickle_decoder_push(pickle, PICKLE_BOOL, argument(pickle));
}

/* ---- containers ---- */

static int run_empty(struct pickle *pickle)
{
    return push_object(pickle, pickle_object_new(&pickle->memory, (enum pickle_type)argument(pickle)));
}

/* Move the values from `first` up into the container, which is, or will be, at `position`. */
static int pickle_decoder_fill(struct pickle *pickle, struct pickle_value container, size_t position, size_t first)
{
    struct pickle_object *object = pickle_object(&pickle->memory, container);
    size_t count = pickle->height - first;
    if (object->is_replaced) {
        return pickle_fail(pickle, pickle->offset, "%s refers back to a consumed entry", opcodes[pickle->opcode].name);
    }
    if (object->role == PICKLE_ROLE_UNDECIDED) {
        bool is_asked =
            pickle->sink != NULL && (object->type == PICKLE_LIST || (object->type == PICKLE_DICT && position == 0));
        object->role =
            is_asked ? pickle->sink->role(pickle->sink->context, pickle, position, object) : PICKLE_ROLE_PLAIN;
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
static int fill_below(struct pickle *pickle, size_t first, size_t base)
{
    enum pickle_type type = (enum pickle_type)argument(pickle);
    const char *name = opcodes[pickle->opcode].name;
    if (first <= base) {
        return fail_underflow(pickle);
    }
    struct pickle_value container = pickle->stack[first - 1];
    if (container.type == PICKLE_REPLACED) {
        return pickle_fail(pickle, pickle->offset, "%s refers back to a consumed entry", name);
    }
    char description[PICKLE_DESCRIBE_BYTES];
    if (container.type != type) {
        return pickle_fail(pickle, pickle->offset, "%s adds to %s", name,
                           pickle_describe(&pickle->memory, container, description, sizeof(description)));
    }
    if (type == PICKLE_DICT && (pickle->height - first) % 2 != 0) {
        return pickle_fail(pickle, pickle->offset, "%s with a key but no value", name);
    }
    return pickle_decoder_fill(pickle, container, first - 1, first);
}

static int run_fill_marked(struct pickle *pickle)
{
    size_t first = 0;
    int error = pop_mark(pickle, &first);
    return error != VARVE_OK ? error : fill_below(pickle, first, base(pickle));
}

/* One item: a value, or a key and a value. */
static int run_fill(struct pickle *pickle)
{
    size_t count = argument(pickle) == PICKLE_DICT ? 2 : 1;
    return available(pickle) <= count ? fail_underflow(pickle) : fill_below(pickle, pickle->height - count, 0);
}

/* A tuple of the values from `first` up, which it replaces on the stack. */
static int pickle_decoder_collect(struct pickle *pickle, size_t first)
{
    struct pickle_value tuple = pickle_object_new(&pickle->memory, PICKLE_TUPLE);
    int error = pickle_decoder_fill(pickle, tuple, first, first);
    if (error != VARVE_OK) {
        pickle_release(&pickle->memory, tuple);
        return error;
    }
    return push_object(pickle, tuple);
}

static int run_tuple(struct pickle *pickle)
{
    size_t first = 0;
    int error = pop_mark(pickle, &first);
    return error != VARVE_OK ? error : pickle_decoder_collect(pickle, first);
}

static int run_small_tuple(struct pickle *pickle)
{
    size_t count = argument(pickle);
    return available(pickle) < count ? fail_underflow(pickle) : pickle_decoder_collect(pickle, pickle->height - count);
}

/* ---- numbers ---- */

static uint64_t little_endian(const unsigned char *bytes, size_t count)
{
    uint64_t number = 0;
    for (size_t i = 0; i < count; i++) {
        number |= (uint64_t)bytes[i] << (8 * i);
    }
    return number;
}

static int run_binint(struct pickle *pickle)
{
    size_t count = argument(pickle);
    const unsigned char *bytes = pickle_decoder_take_bytes(pickle, count);
    uint64_t number = bytes != NULL ? little_endian(bytes, count) : 0;
    if (bytes == NULL) {
        return fail_truncated(pickle);
    }
    /* only the longest one has a sign */
    return pickle_decoder_push(pickle, PICKLE_INTEGER, count == 4 ? (uint64_t)(int64_t)(int32_t)number : number);
}

/* Two's complement, lowest byte first, of any length. */
static int pickle_decoder_push_integer(struct pickle *pickle, const unsigned char *bytes, size_t count)
{
    unsigned char sign = count > 0 && bytes[count - 1] >= 0x80 ? 0xff : 0;
    while (count > 8 && bytes[count - 1] == sign) {
        count--;
    }
    if (count > 8) {
        return pickle_decoder_push(pickle, PICKLE_BIG, 0);
    }
    uint64_t number = little_endian(bytes, count);
    if (sign != 0 && count < 8) {
        number |= UINT64_MAX << (8 * count);
    }
    if ((int64_t)number < 0 && sign == 0) {
        return pickle_decoder_push(pickle, PICKLE_UNSIGNED, number);
    }
    if ((int64_t)number >= 0 && sign != 0) {
        return pickle_decoder_push(pickle, PICKLE_BIG, 0);
    }
    return pickle_decoder_push(pickle, PICKLE_INTEGER, number);
}

static int run_long1(struct pickle *pickle)
{
    const unsigned char *count = pickle_decoder_take_bytes(pickle, 1);
    const unsigned char *bytes = count != NULL ? pickle_decoder_take_bytes(pickle, *count) : NULL;
    return bytes == NULL ? fail_truncated(pickle) : pickle_decoder_push_integer(pickle, bytes, *count);
}

static int skip_bytes(struct pickle *pickle, uint64_t count)
{
    struct input_stream *input = pickle->input;
    while (count > 0) {
        size_t there = (size_t)(input->end - input->next);
        size_t step = count < there ? (size_t)count : there;
        input->next += step;
        count -= step;
        if (count > 0) {
            int error = input_stream_fill(input, 1, pickle->message);
            if (error != VARVE_OK) {
                return error;
            }
            if (input->next == input->end) {
                return fail_truncated(pickle);
            }
        }
    }
    return VARVE_OK;
}

static int run_long4(struct pickle *pickle)
{
    const unsigned char *bytes = pickle_decoder_take_bytes(pickle, 4);
    uint64_t count = bytes != NULL ? little_endian(bytes, 4) : 0;
    if (bytes == NULL) {
        return fail_truncated(pickle);
    }
    if (count > INT32_MAX) {
        return pickle_fail(pickle, pickle->offset, "LONG4 of a negative length");
    }
    if (count <= 256) {
        bytes = pickle_decoder_take_bytes(pickle, (size_t)count);
        return bytes == NULL ? fail_truncated(pickle) : pickle_decoder_push_integer(pickle, bytes, (size_t)count);
    }
    int error = skip_bytes(pickle, count);
    return error != VARVE_OK ? error : pickle_decoder_push(pickle, PICKLE_BIG, 0);
}

static int run_binfloat(struct pickle *pickle)
{
    const unsigned char *bytes = pickle_decoder_take_bytes(pickle, 8);
    if (bytes == NULL) {
        return fail_truncated(pickle);
    }
    uint64_t bits = 0;
    for (size_t i = 0; i < 8; i++) {
        bits = bits << 8 | bytes[i];
    }
    return pickle_decoder_push(pickle, PICKLE_FLOAT, bits);
}

/* ---- texts and bytes with a length ---- */

static int push_text(struct pickle *pickle, uint64_t count)
{
    struct input_stream *input = pickle->input;
    int error;
    if (count > PICKLE_TEXT_MAX) {
        error = skip_bytes(pickle, count);
        return error != VARVE_OK ? error : pickle_decoder_push(pickle, PICKLE_LONG_TEXT, 0);
    }
    if ((size_t)(input->end - input->next) < count) {
        error = input_stream_fill(input, (size_t)count, pickle->message);
        if (error != VARVE_OK) {
            return error;
        }
        if ((size_t)(input->end - input->next) < count) {
            return fail_truncated(pickle);
        }
    }
    input->next += count;
    return pickle_decoder_push(pickle, PICKLE_TEXT,
                               pickle_text(&pickle->memory, (const char *)input->next - count, (size_t)count));
}

static int push_bytes(struct pickle *pickle, uint64_t count)
{
    int error = skip_bytes(pickle, count);
    return error != VARVE_OK ? error : pickle_decoder_push(pickle, PICKLE_BYTES, 0);
}

static int run_counted(struct pickle *pickle, int (*push_counted)(struct pickle *pickle, uint64_t count))
{
    const unsigned char *bytes = pickle_decoder_take_bytes(pickle, argument(pickle));
    uint64_t count = bytes != NULL ? little_endian(bytes, argument(pickle)) : 0;
    if (bytes == NULL) {
        return fail_truncated(pickle);
    }
    if (count > INT64_MAX) {
        return pickle_fail(pickle, pickle->offset, "a length of %llu bytes", (unsigned long long)count);
    }
    return push_counted(pickle, count);
}

static int run_text(struct pickle *pickle)
{
    return run_counted(pickle, push_text);
}

static int run_bytes(struct pickle *pickle)
{
    return run_counted(pickle, push_bytes);
}

/* ---- memo ---- */

static int memo_get(struct pickle *pickle, uint64_t index)
{
    struct pickle_value value = {0};
    if (!pickle_memo_get(&pickle->memory, index, &value)) {
        return pickle_fail(pickle, pickle->offset, "%s of memo entry %" PRIu64 ", which was never stored",
                           opcodes[pickle->opcode].name, index);
    }
    return push_object(pickle, value);
}

static int memo_put(struct pickle *pickle, uint64_t index)
{
    if (available(pickle) == 0) {
        return fail_underflow(pickle);
    }
    /* Picklers count from 0, and each entry takes at least two bytes of the file; a few more cost nothing. */
    if (index > UINT8_MAX && index > pickle->offset) {
        return pickle_fail(pickle, pickle->offset, "%s to memo entry %" PRIu64 ", more than there can be",
                           opcodes[pickle->opcode].name, index);
    }
    pickle_memo_put(&pickle->memory, index, pickle->stack[pickle->height - 1]);
    return VARVE_OK;
}

static int run_memoize(struct pickle *pickle)
{
    return memo_put(pickle, pickle->memory.memo_count);
}

static int with_index(struct pickle *pickle, int (*run)(struct pickle *pickle, uint64_t index))
{
    const unsigned char *bytes = pickle_decoder_take_bytes(pickle, argument(pickle));
    return bytes == NULL ? fail_truncated(pickle) : run(pickle, little_endian(bytes, argument(pickle)));
}

static int run_get(struct pickle *pickle)
{
    return with_index(pickle, memo_get);
}

static int run_put(struct pickle *pickle)
{
    return with_index(pickle, memo_put);
}

/* ---- the rest ---- */

static int run_proto(struct pickle *pickle)
{
    const unsigned char *version = pickle_decoder_take_bytes(pickle, 1);
    if (version == NULL) {
        return fail_truncated(pickle);
    }
    return *version >= PROTOCOL_MIN && *version <= PROTOCOL_MAX
               ? VARVE_OK
               : pickle_fail(pickle, pickle->offset, "pickle protocol %u; this reads %d to %d", *version, PROTOCOL_MIN,
                             PROTOCOL_MAX);
}

/* Frames say how much to buffer; this one has its own window. */
static int run_frame(struct pickle *pickle)
{
    const unsigned char *bytes = pickle_decoder_take_bytes(pickle, 8);
    if (bytes == NULL) {
        return fail_truncated(pickle);
    }
    return bytes[7] < 0x80 ? VARVE_OK : pickle_fail(pickle, pickle->offset, "FRAME of a negative length");
}

static int run_stop(struct pickle *pickle)
{
    if (pickle->height != 1 || pickle->mark_count != 0) {
        return pickle_fail(pickle, pickle->offset, "STOP with %zu values on the stack instead of one", pickle->height);
    }
    pickle->is_stopped = true;
    return VARVE_OK;
}

static int pickle_decoder_refuse(struct pickle *pickle)
{
    pickle->is_refused = true;
    return pickle_fail(pickle, pickle->offset,
                       "opcode %s, which makes Python run code or look outside the file, is refused",
                       opcodes[pickle->opcode].name);
}

static int refuse_old(struct pickle *pickle)
{
    return pickle_fail(pickle, pickle->offset,
                       "opcode %s is of pickle protocol 0 or 1; this reads %d to %d, which PyTorch writes",
                       opcodes[pickle->opcode].name, PROTOCOL_MIN, PROTOCOL_MAX);
}

static int refuse_set(struct pickle *pickle)
{
    return pickle_fail(pickle, pickle->offset, "opcode %s is of a set, and no snapshot has sets",
                       opcodes[pickle->opcode].name);
}

static const struct opcode opcodes[256] = {
    [0x80] = {"PROTO", run_proto, 0},
    [0x95] = {"FRAME", run_frame, 0},
    ['.'] = {"STOP", run_stop, 0},
    ['('] = {"MARK", run_mark, 0},
    ['0'] = {"POP", run_pop, 0},
    ['1'] = {"POP_MARK", run_pop_mark, 0},
    ['2'] = {"DUP", refuse_old, 0},
    ['N'] = {"NONE", run_none, 0},
    [0x88] = {"NEWTRUE", run_bool, 1},
    [0x89] = {"NEWFALSE", run_bool, 0},
    ['I'] = {"INT", refuse_old, 0},
    ['L'] = {"LONG", refuse_old, 0},
    ['F'] = {"FLOAT", refuse_old, 0},
    ['J'] = {"BININT", run_binint, 4},
    ['K'] = {"BININT1", run_binint, 1},
    ['M'] = {"BININT2", run_binint, 2},
    [0x8a] = {"LONG1", run_long1, 0},
    [0x8b] = {"LONG4", run_long4, 0},
    ['G'] = {"BINFLOAT", run_binfloat, 0},
    ['S'] = {"STRING", refuse_old, 0},
    ['T'] = {"BINSTRING", refuse_old, 0},
    ['U'] = {"SHORT_BINSTRING", refuse_old, 0},
    ['V'] = {"UNICODE", refuse_old, 0},
    ['X'] = {"BINUNICODE", run_text, 4},
    [0x8c] = {"SHORT_BINUNICODE", run_text, 1},
    [0x8d] = {"BINUNICODE8", run_text, 8},
    ['B'] = {"BINBYTES", run_bytes, 4},
    ['C'] = {"SHORT_BINBYTES", run_bytes, 1},
    [0x8e] = {"BINBYTES8", run_bytes, 8},
    [0x96] = {"BYTEARRAY8", run_bytes, 8},
    [']'] = {"EMPTY_LIST", run_empty, PICKLE_LIST},
    ['a'] = {"APPEND", run_fill, PICKLE_LIST},
    ['e'] = {"APPENDS", run_fill_marked, PICKLE_LIST},
    ['l'] = {"LIST", refuse_old, 0},
    ['}'] = {"EMPTY_DICT", run_empty, PICKLE_DICT},
    ['s'] = {"SETITEM", run_fill, PICKLE_DICT},
    ['u'] = {"SETITEMS", run_fill_marked, PICKLE_DICT},
    ['d'] = {"DICT", refuse_old, 0},
    [')'] = {"EMPTY_TUPLE", run_empty, PICKLE_TUPLE},
    ['t'] = {"TUPLE", run_tuple, 0},
    [0x85] = {"TUPLE1", run_small_tuple, 1},
    [0x86] = {"TUPLE2", run_small_tuple, 2},
    [0x87] = {"TUPLE3", run_small_tuple, 3},
    [0x8f] = {"EMPTY_SET", refuse_set, 0},
    [0x90] = {"ADDITEMS", refuse_set, 0},
    [0x91] = {"FROZENSET", refuse_set, 0},
    ['g'] = {"GET", refuse_old, 0},
    ['h'] = {"BINGET", run_get, 1},
    ['j'] = {"LONG_BINGET", run_get, 4},
    ['p'] = {"PUT", refuse_old, 0},
    ['q'] = {"BINPUT", run_put, 1},
    ['r'] = {"LONG_BINPUT", run_put, 4},
    [0x94] = {"MEMOIZE", run_memoize, 0},
    ['c'] = {"GLOBAL", pickle_decoder_refuse, 0},
    [0x93] = {"STACK_GLOBAL", pickle_decoder_refuse, 0},
    ['R'] = {"REDUCE", pickle_decoder_refuse, 0},
    ['b'] = {"BUILD", pickle_decoder_refuse, 0},
    ['i'] = {"INST", pickle_decoder_refuse, 0},
    ['o'] = {"OBJ", pickle_decoder_refuse, 0},
    [0x81] = {"NEWOBJ", pickle_decoder_refuse, 0},
    [0x92] = {"NEWOBJ_EX", pickle_decoder_refuse, 0},
    [0x82] = {"EXT1", pickle_decoder_refuse, 0},
    [0x83] = {"EXT2", pickle_decoder_refuse, 0},
    [0x84] = {"EXT4", pickle_decoder_refuse, 0},
    ['P'] = {"PERSID", pickle_decoder_refuse, 0},
    ['Q'] = {"BINPERSID", pickle_decoder_refuse, 0},
    [0x97] = {"NEXT_BUFFER", pickle_decoder_refuse, 0},
    [0x98] = {"READONLY_BUFFER", pickle_decoder_refuse, 0},
};

/* ---- the loop ---- */

void pickle_init(struct pickle *pickle, struct input_stream *input, const struct pickle_sink *sink,
                 const char *const *words, struct progress *progress, struct varve_message *message)
{
    *pickle = (struct pickle){.input = input, .sink = sink, .progress = progress, .message = message};
    pickle->stack_capacity = 1024;
    pickle->stack = memory_resize(NULL, pickle->stack_capacity * sizeof(*pickle->stack));
    pickle_memory_init(&pickle->memory);
    for (uint32_t i = 0; words != NULL && words[i] != NULL; i++) {
        uint32_t number = pickle_text(&pickle->memory, words[i], strlen(words[i]));
        assert(number == i);
        (void)number;
    }
}

/* Protocols 2 and later begin with PROTO; a dict, list or tuple of an older one does with what makes it. */
static int check_beginning(struct pickle *pickle)
{
    unsigned char first = *pickle->input->next;
    if (opcodes[first].run == run_proto) {
        return VARVE_OK;
    }
    if (first == '(' || first == ']' || first == '}') {
        return pickle_fail(pickle, 0, "a pickle of protocol 0 or 1, or none; this reads %d to %d, which PyTorch writes",
                           PROTOCOL_MIN, PROTOCOL_MAX);
    }
    return pickle_fail(pickle, 0, "not a pickle (it begins with byte 0x%02x)", first);
}

static int pickle_decoder_refill(struct pickle *pickle)
{
    struct input_stream *input = pickle->input;
    int error = input_stream_fill(input, RESERVE_BYTES, pickle->message);
    if (error == VARVE_OK && pickle->progress != NULL) {
        progress_step(pickle->progress, "reading the snapshot", input_stream_done(input), input_stream_total(input));
    }
    if (error == VARVE_OK && input->next == input->end) {
        error = pickle_fail(pickle, input_stream_offset(input), "the data end without STOP");
    }
    return error;
}

/* Pages of memory_viz have a pickle with up to three zeros behind it, for its base64 to come out even. */
static int pickle_decoder_check_end(struct pickle *pickle)
{
    struct input_stream *input = pickle->input;
    if (pickle->may_have_more) {
        return VARVE_OK;
    }
    int error = input_stream_fill(input, PADDING_MAX + 1, pickle->message);
    size_t count = (size_t)(input->end - input->next);
    if (error == VARVE_OK && (count > PADDING_MAX || memcmp(input->next, "\0\0\0", count) != 0)) {
        error = pickle_fail(pickle, input_stream_offset(input), "data follow STOP");
    }
    return error;
}

int pickle_step(struct pickle *pickle, uint64_t offset, unsigned char opcode)
{
    pickle->offset = offset;
    pickle->opcode = opcode;
    return opcodes[opcode].run(pickle);
}

int pickle_push(struct pickle *pickle, uint64_t offset, enum pickle_type type, uint64_t bits)
{
    pickle->offset = offset;
    return pickle_decoder_push(pickle, type, bits);
}

int pickle_run(struct pickle *pickle, struct pickle_value *root_out)
{
    struct input_stream *input = pickle->input;
    int error = pickle_decoder_refill(pickle);
    VARVE_THEN(error, check_beginning(pickle));
    while (error == VARVE_OK && !pickle->is_stopped) {
        if (input->end - input->next < RESERVE_BYTES) {
            error = pickle_decoder_refill(pickle);
            if (error != VARVE_OK) {
                break;
            }
        }
        pickle->offset = input_stream_offset(input);
        pickle->opcode = *input->next++;
        const struct opcode *opcode = &opcodes[pickle->opcode];
        error = opcode->run != NULL
                    ? opcode->run(pickle)
                    : pickle_fail(pickle, pickle->offset, "0x%02x is no opcode of a pickle", pickle->opcode);
    }
    VARVE_THEN(error, pickle_decoder_check_end(pickle));
    if (error == VARVE_OK) {
        assert(pickle->height == 1);
        *root_out = pickle->stack[0];
    }
    return error;
}

void pickle_close(struct pickle *pickle)
{
    pickle_memory_close(&pickle->memory);
    free(pickle->stack);
    free(pickle->marks);
}
