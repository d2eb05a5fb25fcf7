/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pickle decoder: what Python's own picklers write, in protocols 2 to 5, comes back as the same values;
 * whatever would run code is refused by name; and small hostile files end in one line, not in memory or in a
 * crash.
 * Costs: 3 s, full 4 s
 */
#include "support/history_python.h"

#include "analysis/snapshot/pickle_decoder.h"

#include <inttypes.h>

/* ---- values as text, the same as the Python below prints ---- */

static void print_value(FILE *out, const struct pickle *pickle, struct pickle_value value)
{
    static const char brackets[][2] = {{'[', ']'}, {'(', ')'}, {'{', '}'}};
    switch ((enum pickle_type)value.type) {
    case PICKLE_NONE:
    case PICKLE_BOOL:
        fputs(value.type == PICKLE_NONE ? "N" : value.bits ? "T" : "F", out);
        break;
    case PICKLE_INTEGER:
        fprintf(out, "%" PRId64, (int64_t)value.bits);
        break;
    case PICKLE_UNSIGNED:
        fprintf(out, "%" PRIu64, value.bits);
        break;
    case PICKLE_FLOAT:
        fprintf(out, "f%016" PRIx64, value.bits);
        break;
    case PICKLE_TEXT:
        fprintf(out, "'%.*s'", (int)pickle->memory.texts[value.bits].count, pickle->memory.texts[value.bits].bytes);
        break;
    case PICKLE_LONG_TEXT:
    case PICKLE_BYTES:
    case PICKLE_BIG:
        fputs(value.type == PICKLE_BIG ? "big" : value.type == PICKLE_BYTES ? "bytes" : "long", out);
        break;
    case PICKLE_REPLACED:
        fail_msg("a sink replaced a value, without a sink");
        break;
    default: {
        const struct pickle_object *object = pickle_object(&pickle->memory, value);
        const char *bracket = brackets[value.type - PICKLE_LIST];
        fputc(bracket[0], out);
        for (uint32_t i = 0; i < object->count; i++) {
            print_value(out, pickle, object->items[i]);
            fputc(' ', out);
        }
        fputc(bracket[1], out);
    }
    }
}

/* Prints the value to *text_out (by free), or gives the error. */
static int read_value(const void *data, size_t bytes, char **text_out, struct varve_message *message)
{
    *text_out = NULL;
    struct input_stream *input;
    assert_int_equal(input_stream_open_memory("p", data, bytes, &input, message), VARVE_OK);
    struct pickle pickle;
    pickle_init(&pickle, input, NULL, NULL, NULL, message);
    struct pickle_value root;
    int error = pickle_run(&pickle, &root);
    size_t text_bytes;
    if (error == VARVE_OK) {
        FILE *out = open_memstream(text_out, &text_bytes);
        print_value(out, &pickle, root);
        fclose(out);
    }
    pickle_close(&pickle);
    input_stream_close(input);
    return error;
}

#define PROTO "\x80\x05"
#define ASSERT_VALUE(bytes, expected) assert_value(PROTO bytes, sizeof(PROTO bytes) - 1, expected)
#define ASSERT_FAILS(bytes, expected) assert_fails(PROTO bytes, sizeof(PROTO bytes) - 1, expected)
#define ASSERT_BEGIN_FAILS(bytes, expected) assert_fails(bytes, sizeof(bytes) - 1, expected)

static void assert_value(const char *data, size_t bytes, const char *expected)
{
    struct varve_message message = {""};
    char *text;
    if (read_value(data, bytes, &text, &message) != VARVE_OK) {
        fail_msg("'%s': %s", expected, message.text);
    }
    assert_string_equal(text, expected);
    free(text);
}

static void assert_fails(const char *data, size_t bytes, const char *expected)
{
    struct varve_message message = {""};
    char *text;
    assert_int_equal(read_value(data, bytes, &text, &message), VARVE_ERROR_FORMAT);
    assert_string_equal(message.text, expected);
}

/* ---- tests ---- */

/* What Python's picklers do not write, but might. */
TEST(test_other_opcodes)
{
    ASSERT_VALUE("\x8a\x00.", "0");
    ASSERT_VALUE("\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\xff.", "big");
    ASSERT_VALUE("\x8a\x0a\xfe\xff\xff\xff\xff\xff\xff\xff\xff\xff.", "-2");
    ASSERT_VALUE("\x8b\x01\x00\x00\x00\x07.", "7");
    ASSERT_VALUE("C\x03xyz.", "bytes");
    ASSERT_VALUE("\x96\x03\x00\x00\x00\x00\x00\x00\x00xyz.", "bytes");
    ASSERT_VALUE("(K\x01K\x02\x31N.", "N"); /* POP_MARK */
    ASSERT_VALUE("(N\x30\x30N.", "N");      /* POP takes the mark */
}

TEST(test_memo)
{
    ASSERT_VALUE("]\x94h\x00\x86.", "([] [] )");
    ASSERT_VALUE("]q\x05K\x01\x61h\x05\x86.", "([1 ] [1 ] )");
    ASSERT_VALUE("]r\x02\x00\x00\x00h\x02K\x07\x61\x86.", "([7 ] [7 ] )");
    ASSERT_VALUE("J\x00\x00\x00\x80\x94\x30h\x00.", "-2147483648");
    ASSERT_VALUE("\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f\x94\x30h\x00.", "9223372036854775807");
    ASSERT_VALUE("G\xbf\xf8\x00\x00\x00\x00\x00\x00\x94\x30h\x00.", "fbff8000000000000");
    ASSERT_VALUE("K\x01q\x00\x30K\x02q\x00\x30h\x00.", "2"); /* stored over */
    ASSERT_VALUE("]q\x00\x30]q\x00K\x03\x61\x30h\x00.", "[3 ]");
    ASSERT_FAILS("N\x94h\x01.", "p: at byte 4: BINGET of memo entry 1, which was never stored");
    ASSERT_FAILS("Nr\x00\x00\x00\x80.", "p: at byte 3: LONG_BINPUT to memo entry 2147483648, more than there can be");
    ASSERT_FAILS("j\xff\xff\xff\xff.", "p: at byte 2: LONG_BINGET of memo entry 4294967295, which was never stored");
    ASSERT_FAILS("q\x00N.", "p: at byte 2: BINPUT finds too few values on the stack");
}

#define RUNS "which makes Python run code or look outside the file, is refused"
#define IS_OLD "of pickle protocol 0 or 1; this reads 2 to 5, which PyTorch writes"
#define IS_SET "of a set, and no snapshot has sets"

/* What would run code, what later protocols do not have, and sets; the opcode is at byte 3, behind None. */
TEST(test_refused)
{
    static const struct {
        const char *data, *name, *reason;
    } cases[] = {
        {"cos\nsystem\n.", "GLOBAL,", RUNS},
        {"\x93.", "STACK_GLOBAL,", RUNS},
        {"R.", "REDUCE,", RUNS},
        {"b.", "BUILD,", RUNS},
        {"ios\nsystem\n.", "INST,", RUNS},
        {"o.", "OBJ,", RUNS},
        {"\x81.", "NEWOBJ,", RUNS},
        {"\x92.", "NEWOBJ_EX,", RUNS},
        {"\x82\x01.", "EXT1,", RUNS},
        {"\x83\x01\x01.", "EXT2,", RUNS},
        {"\x84\x01\x01\x01\x01.", "EXT4,", RUNS},
        {"P1\n.", "PERSID,", RUNS},
        {"Q.", "BINPERSID,", RUNS},
        {"\x97.", "NEXT_BUFFER,", RUNS},
        {"\x98.", "READONLY_BUFFER,", RUNS},
        {"I1\n", "INT is", IS_OLD},
        {"L1L\n", "LONG is", IS_OLD},
        {"F1.5\n", "FLOAT is", IS_OLD},
        {"S'a'\n", "STRING is", IS_OLD},
        {"Va\n", "UNICODE is", IS_OLD},
        {"T", "BINSTRING is", IS_OLD},
        {"U\1a", "SHORT_BINSTRING is", IS_OLD},
        {"g0\n", "GET is", IS_OLD},
        {"p0\n", "PUT is", IS_OLD},
        {"l", "LIST is", IS_OLD},
        {"d", "DICT is", IS_OLD},
        {"2", "DUP is", IS_OLD},
        {"\x8f.", "EMPTY_SET is", IS_SET},
        {"\x90.", "ADDITEMS is", IS_SET},
        {"\x91.", "FROZENSET is", IS_SET},
    };
    char data[40], expected[200];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        snprintf(expected, sizeof(expected), "p: at byte 3: opcode %s %s", cases[i].name, cases[i].reason);
        snprintf(data, sizeof(data), PROTO "N%s", cases[i].data);
        assert_fails(data, strlen(data), expected);
    }
    ASSERT_BEGIN_FAILS("(dp0\n.",
                       "p: at byte 0: a pickle of protocol 0 or 1, or none; this reads 2 to 5, which PyTorch writes");
    ASSERT_BEGIN_FAILS("}q\0.",
                       "p: at byte 0: a pickle of protocol 0 or 1, or none; this reads 2 to 5, which PyTorch writes");
}

TEST(test_damaged)
{
    ASSERT_BEGIN_FAILS("\x80\x06N.", "p: at byte 0: pickle protocol 6; this reads 2 to 5");
    ASSERT_BEGIN_FAILS("\x80\x01N.", "p: at byte 0: pickle protocol 1; this reads 2 to 5");
    ASSERT_BEGIN_FAILS("\x80", "p: at byte 0: the data end within PROTO");
    ASSERT_BEGIN_FAILS("{\"a\": 1}", "p: at byte 0: not a pickle (it begins with byte 0x7b)");
    ASSERT_FAILS("N?", "p: at byte 3: 0x3f is no opcode of a pickle");
    ASSERT_FAILS("N", "p: at byte 3: the data end without STOP");
    ASSERT_FAILS("N.N", "p: at byte 4: data follow STOP");
    ASSERT_FAILS("N.\0\0\0\0", "p: at byte 4: data follow STOP"); /* three zeros are padding */
    ASSERT_FAILS("NN.", "p: at byte 4: STOP with 2 values on the stack instead of one");
    ASSERT_FAILS("N(.", "p: at byte 4: STOP with 1 values on the stack instead of one");
    ASSERT_FAILS(".", "p: at byte 2: STOP with 0 values on the stack instead of one");
    ASSERT_FAILS("0", "p: at byte 2: POP finds too few values on the stack");
    ASSERT_FAILS("1", "p: at byte 2: POP_MARK without a MARK");
    ASSERT_FAILS("N\x86", "p: at byte 3: TUPLE2 finds too few values on the stack");
    ASSERT_FAILS("](a", "p: at byte 4: APPEND finds too few values on the stack");
    ASSERT_FAILS("(e", "p: at byte 3: APPENDS finds too few values on the stack");
    ASSERT_FAILS("]((Ne", "p: at byte 6: APPENDS finds too few values on the stack");
    ASSERT_FAILS("}(NNe", "p: at byte 6: APPENDS adds to a dict");
    ASSERT_FAILS("}(Nu", "p: at byte 5: SETITEMS with a key but no value");
    ASSERT_FAILS("\x8c\x03\x1b[mNs", "p: at byte 8: SETITEM finds too few values on the stack");
    ASSERT_FAILS("K", "p: at byte 2: the data end within BININT1");
    ASSERT_FAILS("\x8a\x07yyyyyy", "p: at byte 2: the data end within LONG1");
    ASSERT_FAILS("\x8b\xff\xff\xff\xff", "p: at byte 2: LONG4 of a negative length");
    ASSERT_FAILS("\x8b\xff\xff\xff\x7f\x31", "p: at byte 2: the data end within LONG4");
    ASSERT_FAILS("X\xff\xff\xff\x7fxyz", "p: at byte 2: the data end within BINUNICODE");
    ASSERT_FAILS("X\xff\x00\x00\x00xyz", "p: at byte 2: the data end within BINUNICODE");
    ASSERT_FAILS("B\xff\xff\xff\xffxyz", "p: at byte 2: the data end within BINBYTES");
    ASSERT_FAILS("\x8d\xff\xff\xff\xff\xff\xff\xff\x7f\x61", "p: at byte 2: the data end within BINUNICODE8");
    ASSERT_FAILS("\x8d\xff\xff\xff\xff\xff\xff\xff\xff\x61", "p: at byte 2: a length of 18446744073709551615 bytes");
    ASSERT_FAILS("\x95\xff\xff\xff\xff\xff\xff\xff\xff\x61", "p: at byte 2: FRAME of a negative length");
}

/* Data that begin with PROTO. Owner: the caller, by free, once the stream is closed. */
static FILE *begin(char **data, size_t *bytes)
{
    FILE *out = open_memstream(data, bytes);
    assert_non_null(out);
    fwrite(PROTO, 1, sizeof(PROTO) - 1, out);
    return out;
}

static void put_many(FILE *out, char byte, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        fputc(byte, out);
    }
}

TEST(test_large)
{
    static const struct {
        char opcode;
        size_t count;
        const char *expected;
    } cases[] = {{'N', 5000000, "p: at byte 4194306: more than 4194304 values wait on the stack"},
                 {'(', 70000, "p: at byte 65538: nested deeper than 65536 containers"}};
    char *data;
    size_t bytes;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        FILE *out = begin(&data, &bytes);
        put_many(out, cases[i].opcode, cases[i].count);
        fputc('.', out);
        fclose(out);
        assert_fails(data, bytes, cases[i].expected);
        free(data);
    }
    /* lists within lists, which are dropped: nothing may recurse */
    FILE *out = begin(&data, &bytes);
    put_many(out, ']', 3000000);
    put_many(out, 'a', 2999999);
    fputs("0N.", out);
    fclose(out);
    assert_value(data, bytes, "N");
    free(data);
}

/* A text of PICKLE_TEXT_MAX bytes is kept, a longer one passed over. */
TEST(test_long_texts)
{
    static const uint32_t counts[] = {PICKLE_TEXT_MAX, PICKLE_TEXT_MAX + 1, 2000000};
    for (size_t i = 0; i < 3; i++) {
        char *data, *expected = calloc(1, counts[i] + 3);
        size_t bytes;
        FILE *out = begin(&data, &bytes);
        fputc('X', out);
        fwrite(&counts[i], sizeof(counts[i]), 1, out);
        put_many(out, 'x', counts[i]);
        fputc('.', out);
        fclose(out);
        memset(expected, 'x', counts[i] + 2);
        expected[0] = expected[counts[i] + 1] = '\'';
        assert_value(data, bytes, counts[i] > PICKLE_TEXT_MAX ? "long" : expected);
        free(expected);
        free(data);
    }
}

/* ---- against Python ---- */

static const char python[] =
    "def value(depth):\n"
    "    kind = random.randrange(14 if depth < 6 else 9)\n"
    "    if kind == 0: return None\n"
    "    if kind == 1: return random.random() < 0.5\n"
    "    if kind < 5: return random.choice((1, -1)) * (random.getrandbits(random.choice((1, 8, 9, 16, 17, "
    "31, 32,"
    " 47, 63, 64, 70))))\n"
    "    if kind == 5: return random.choice((0.0, -1.5, 1e300, random.random()))\n"
    "    if kind < 8: return random.choice(('', 'abc', 'addr', 'd\\u00e4\\u20ac\\U0001f600', 'x' * "
    "random.randrange(400), '%d' % random.randrange(99)))\n"
    "    if kind == 8: return shared[random.randrange(len(shared))] if shared else 7\n"
    "    items = [value(depth + 1) for _ in range(random.choice((0, 1, 2, 3, 5, 8)))]\n"
    "    if depth == 1 and random.random() < 0.1: items *= 400\n"
    "    made = items if kind < 11 else tuple(items) if kind < 12 else {i: v for i, v in enumerate(items)}\n"
    "    shared.append(made)\n"
    "    return made\n"
    "def text(v):\n"
    "    if v is None: return 'N'\n"
    "    if isinstance(v, bool): return 'T' if v else 'F'\n"
    "    if isinstance(v, int): return str(v) if -2**63 <= v < 2**64 else 'big'\n"
    "    if isinstance(v, float): return 'f' + struct.pack('>d', v).hex()\n"
    "    if isinstance(v, str): return \"'\" + v + \"'\"\n"
    "    if isinstance(v, list): return '[' + ''.join(text(i) + ' ' for i in v) + ']'\n"
    "    if isinstance(v, tuple): return '(' + ''.join(text(i) + ' ' for i in v) + ')'\n"
    "    return '{' + ''.join(text(k) + ' ' + text(i) + ' ' for k, i in v.items()) + '}'\n"
    "for number in range(4 * int(sys.argv[1])):\n"
    "    random.seed(number); shared = []\n"
    "    v = [value(0) for _ in range(40)]\n"
    "    for pickler in (pickle._Pickler, pickle.Pickler):\n"
    "        pack(v, text(v).encode(), 2 + number % 4, pickler)\n";

TEST(test_python)
{
    int numbers = test_rounds(3, 6), count = 0;
    char arguments[16];
    struct made made;
    snprintf(arguments, sizeof(arguments), "%d", numbers);
    for (FILE *pipe = python_open(python, arguments); python_next(pipe, &made); count++) {
        assert_value(made.data, made.bytes, made.expected);
        made_free(&made);
    }
    assert_int_equal(count, 2 * 4 * numbers);
}
