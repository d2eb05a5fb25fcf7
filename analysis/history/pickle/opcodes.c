/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of all opcodes, and those of the memo and of the stream itself. What would make Python import,
 * call or look up something outside the file is refused by name. Indices of the memo come from the file: none
 * can be larger than what picklers have had room to store. Called by reader.c.
 */
#include "analysis/history/pickle/pickle.h"

#include <inttypes.h>

#define PROTOCOL_MAX 5

/* ---- memo ---- */

static int memo_get(struct pickle *pickle, uint64_t index)
{
    struct pickle_value value = {0};

    if (!pickle_memo_get(pickle, index, &value)) {
        return pickle_fail(pickle, pickle->offset, "%s of memo entry %" PRIu64 ", which was never stored",
                           pickle_opcodes[pickle->opcode].name, index);
    }
    return pickle_push_object(pickle, value);
}

static int memo_put(struct pickle *pickle, uint64_t index)
{
    if (pickle_available(pickle) == 0) {
        return pickle_fail_underflow(pickle);
    }
    /* Picklers count from 0, and each entry takes at least two bytes of the file; a few more cost nothing. */
    if (index > UINT8_MAX && index > pickle->offset) {
        return pickle_fail(pickle, pickle->offset, "%s to memo entry %" PRIu64 ", more than there can be",
                           pickle_opcodes[pickle->opcode].name, index);
    }
    pickle_memo_put(pickle, index, pickle->stack[pickle->height - 1]);
    return VARVE_OK;
}

static int run_memoize(struct pickle *pickle)
{
    return memo_put(pickle, pickle->memo_count);
}

static int with_index(struct pickle *pickle, size_t count, int (*run)(struct pickle *pickle, uint64_t index))
{
    const unsigned char *bytes = pickle_take_bytes(pickle, count);
    uint32_t index = 0;

    if (bytes == NULL) {
        return pickle_fail_truncated(pickle);
    }
    for (size_t i = 0; i < count; i++) {
        index |= (uint32_t)bytes[i] << (8 * i);
    }
    return run(pickle, index);
}

static int run_binget(struct pickle *pickle)
{
    return with_index(pickle, 1, memo_get);
}

static int run_long_binget(struct pickle *pickle)
{
    return with_index(pickle, 4, memo_get);
}

static int run_binput(struct pickle *pickle)
{
    return with_index(pickle, 1, memo_put);
}

static int run_long_binput(struct pickle *pickle)
{
    return with_index(pickle, 4, memo_put);
}

static int with_decimal(struct pickle *pickle, int (*run)(struct pickle *pickle, uint64_t index))
{
    struct pickle_value value = {0};
    int error = pickle_read_decimal(pickle, &value);

    if (error == VARVE_OK && (value.type != PICKLE_INTEGER || (int64_t)value.bits < 0)) {
        error =
            pickle_fail(pickle, pickle->offset, "%s of no memo entry", pickle_opcodes[pickle->opcode].name);
    }
    return error != VARVE_OK ? error : run(pickle, value.bits);
}

static int run_get(struct pickle *pickle)
{
    return with_decimal(pickle, memo_get);
}

static int run_put(struct pickle *pickle)
{
    return with_decimal(pickle, memo_put);
}

/* ---- the rest ---- */

static int run_proto(struct pickle *pickle)
{
    const unsigned char *version = pickle_take_bytes(pickle, 1);

    if (version == NULL) {
        return pickle_fail_truncated(pickle);
    }
    return *version <= PROTOCOL_MAX
               ? VARVE_OK
               : pickle_fail(pickle, pickle->offset, "pickle protocol %u; this reads up to %u", *version,
                             PROTOCOL_MAX);
}

/* Frames tell a reader how much to buffer; this one has its own window. */
static int run_frame(struct pickle *pickle)
{
    const unsigned char *bytes = pickle_take_bytes(pickle, 8);

    if (bytes == NULL) {
        return pickle_fail_truncated(pickle);
    }
    return bytes[7] < 0x80 ? VARVE_OK : pickle_fail(pickle, pickle->offset, "FRAME of a negative length");
}

static int run_stop(struct pickle *pickle)
{
    if (pickle->height != 1 || pickle->mark_count != 0) {
        return pickle_fail(pickle, pickle->offset, "STOP with %zu values on the stack instead of one",
                           pickle->height);
    }
    pickle->is_stopped = true;
    return VARVE_OK;
}

static int refuse(struct pickle *pickle)
{
    return pickle_fail(pickle, pickle->offset,
                       "opcode %s, which makes Python run code or look outside the file, is refused",
                       pickle_opcodes[pickle->opcode].name);
}

const struct pickle_opcode pickle_opcodes[256] = {
    [0x80] = {"PROTO", run_proto},
    [0x95] = {"FRAME", run_frame},
    ['.'] = {"STOP", run_stop},
    ['('] = {"MARK", pickle_run_mark},
    ['0'] = {"POP", pickle_run_pop},
    ['1'] = {"POP_MARK", pickle_run_pop_mark},
    ['2'] = {"DUP", pickle_run_dup},
    ['N'] = {"NONE", pickle_run_none},
    [0x88] = {"NEWTRUE", pickle_run_true},
    [0x89] = {"NEWFALSE", pickle_run_false},
    ['I'] = {"INT", pickle_run_int},
    ['L'] = {"LONG", pickle_run_long},
    ['F'] = {"FLOAT", pickle_run_float},
    ['J'] = {"BININT", pickle_run_binint},
    ['K'] = {"BININT1", pickle_run_binint1},
    ['M'] = {"BININT2", pickle_run_binint2},
    [0x8a] = {"LONG1", pickle_run_long1},
    [0x8b] = {"LONG4", pickle_run_long4},
    ['G'] = {"BINFLOAT", pickle_run_binfloat},
    ['S'] = {"STRING", pickle_run_string},
    ['T'] = {"BINSTRING", pickle_run_text4},
    ['U'] = {"SHORT_BINSTRING", pickle_run_text1},
    ['V'] = {"UNICODE", pickle_run_unicode},
    ['X'] = {"BINUNICODE", pickle_run_text4},
    [0x8c] = {"SHORT_BINUNICODE", pickle_run_text1},
    [0x8d] = {"BINUNICODE8", pickle_run_text8},
    ['B'] = {"BINBYTES", pickle_run_bytes4},
    ['C'] = {"SHORT_BINBYTES", pickle_run_bytes1},
    [0x8e] = {"BINBYTES8", pickle_run_bytes8},
    [0x96] = {"BYTEARRAY8", pickle_run_bytes8},
    [']'] = {"EMPTY_LIST", pickle_run_empty_list},
    ['a'] = {"APPEND", pickle_run_append},
    ['e'] = {"APPENDS", pickle_run_appends},
    ['l'] = {"LIST", pickle_run_list},
    ['}'] = {"EMPTY_DICT", pickle_run_empty_dict},
    ['s'] = {"SETITEM", pickle_run_setitem},
    ['u'] = {"SETITEMS", pickle_run_setitems},
    ['d'] = {"DICT", pickle_run_dict},
    [')'] = {"EMPTY_TUPLE", pickle_run_empty_tuple},
    ['t'] = {"TUPLE", pickle_run_tuple},
    [0x85] = {"TUPLE1", pickle_run_small_tuple},
    [0x86] = {"TUPLE2", pickle_run_small_tuple},
    [0x87] = {"TUPLE3", pickle_run_small_tuple},
    [0x8f] = {"EMPTY_SET", pickle_run_empty_set},
    [0x90] = {"ADDITEMS", pickle_run_additems},
    [0x91] = {"FROZENSET", pickle_run_frozenset},
    ['g'] = {"GET", run_get},
    ['h'] = {"BINGET", run_binget},
    ['j'] = {"LONG_BINGET", run_long_binget},
    ['p'] = {"PUT", run_put},
    ['q'] = {"BINPUT", run_binput},
    ['r'] = {"LONG_BINPUT", run_long_binput},
    [0x94] = {"MEMOIZE", run_memoize},
    ['c'] = {"GLOBAL", refuse},
    [0x93] = {"STACK_GLOBAL", refuse},
    ['R'] = {"REDUCE", refuse},
    ['b'] = {"BUILD", refuse},
    ['i'] = {"INST", refuse},
    ['o'] = {"OBJ", refuse},
    [0x81] = {"NEWOBJ", refuse},
    [0x92] = {"NEWOBJ_EX", refuse},
    [0x82] = {"EXT1", refuse},
    [0x83] = {"EXT2", refuse},
    [0x84] = {"EXT4", refuse},
    ['P'] = {"PERSID", refuse},
    ['Q'] = {"BINPERSID", refuse},
    [0x97] = {"NEXT_BUFFER", refuse},
    [0x98] = {"READONLY_BUFFER", refuse},
};
