/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operator logs: what each instruction becomes in the schedule, and what is refused, with the line and the reason. Logs
 * are written with ' for ", schedules are compared as text.
 * Costs: 1 s
 */
#include <cmocka.h>
#include <stdio.h>

#include "analysis/dtr/dtr_log.h"
#include "analysis/base/input_stream.h"
#include "support/command.h"
#include "support/random.h"

#include <stdlib.h>
#include <string.h>

#define START "{'INSTRUCTION':'ANNOTATE','ANNOTATION':'START'}\n"
#define MARK(text) "{'INSTRUCTION':'ANNOTATE','ANNOTATION':'" text "'}\n"
#define MEMORY(name, bytes) "{'INSTRUCTION':'MEMORY','MEMORY':'" bytes "','NAME':'" name "'}\n"
#define ALIAS(name, index) "{'ALIAS':'" index "','INSTRUCTION':'ALIAS','NAME':'" name "'}\n"
#define CONSTANT(name, bytes) "{'INSTRUCTION':'CONSTANT','NAME':'" name "'}\n" MEMORY(name, bytes)
#define CALL(name, results, arguments, time) \
    "{'ARGS':[" arguments "],'INSTRUCTION':'CALL','NAME':'" name "','RESULT':[" results "],'TIME':'" time "'}\n"
#define OUTPUT(name, bytes, alias) MEMORY(name, bytes) ALIAS(name, alias)
/* A CALL of one result that is no view. */
#define MAKE(result, arguments) CALL("f", "'" result "'", arguments, "5") OUTPUT(result, "64", "-1")
#define MUTATE(name, arguments, indices) \
    "{'ARGS':[" arguments "],'INSTRUCTION':'MUTATE','MUTATE':[" indices "],'NAME':'" name "','TIME':'7'}\n"
#define COPY(to, from) "{'DST':'" to "','INSTRUCTION':'COPY','SRC':'" from "'}\n"
#define COPY_FROM(to, from) "{'DST':'" to "','INSTRUCTION':'COPY_FROM','SRC':'" from "'}\n"
#define RELEASE(name) "{'INSTRUCTION':'RELEASE','NAME':'" name "'}\n"
#define PIN(name) "{'INSTRUCTION':'PIN','NAME':'" name "'}\n"

static int read_bytes(const char *data, size_t bytes, struct dtr_log **log_out, struct varve_message *message)
{
    struct input_stream *input;
    int error = input_stream_open_memory("p", data, bytes, &input, message);
    *log_out = NULL;
    error = error != VARVE_OK ? error : dtr_log_read_stream(input, NULL, log_out, message);
    assert_true((error == VARVE_OK) == (*log_out != NULL));
    if (error == VARVE_OK) {
        assert_int_equal(dtr_log_check(*log_out, message), VARVE_OK);
    }
    return error;
}

static int read_text(const char *text, struct dtr_log **log_out, struct varve_message *message)
{
    char *json = strdup(text);
    for (char *at = json; *at != '\0'; at++) {
        *at = *at == '\'' ? '"' : *at;
    }
    int error = read_bytes(json, strlen(json), log_out, message);
    free(json);
    return error;
}

static struct dtr_log *read_good(const char *text)
{
    struct varve_message message = {""};
    struct dtr_log *log;
    if (read_text(text, &log, &message) != VARVE_OK) {
        fail_msg("%s\n%s", text, message.text);
    }
    return log;
}

static void print_op(const struct dtr_log *log, const struct dtr_op *op, FILE *out)
{
    fputs(dtr_log_name(log, op->name), out);
    for (uint32_t i = 0; i < op->input_count; i++) {
        fprintf(out, "%s%u", i == 0 ? "(" : ",", log->inputs[op->first_input + i]);
    }
    fputs(op->input_count > 0 ? ")" : "", out);
    for (uint32_t i = op->first_output; i < op->first_output + op->output_count; i++) {
        fprintf(out, " %u=%llu", i, (unsigned long long)log->sizes[i]);
        if (log->aliases[i] >= 0) {
            fprintf(out, "~%d:%llu", log->aliases[i], (unsigned long long)log->storage_bytes[i]);
        }
    }
}

/* f(0,1) 2=64: an operator with its inputs, outputs and sizes, ~INPUT:STORAGE of views; +2 -2 !2 for references and
 * pins; # a mark, | the end condition. */
static void expect_schedule(const char *text, const char *expected)
{
    static const char signs[] = {[DTR_EVENT_GET] = '+', [DTR_EVENT_PIN] = '!', [DTR_EVENT_RELEASE] = '-'};
    struct dtr_log *log = read_good(text);
    char *got;
    size_t bytes;
    FILE *out = open_memstream(&got, &bytes);
    for (size_t i = 0; i <= log->event_count; i++) {
        const struct dtr_event *event = &log->events[i];
        fputs(i == log->end_event ? "|" : i > 0 ? "; " : "", out);
        if (i == log->event_count) {
            break;
        }
        if (event->kind == DTR_EVENT_COMPUTE) {
            print_op(log, &log->ops[event->id], out);
        } else if (event->kind == DTR_EVENT_MARK) {
            fprintf(out, "#%s", dtr_log_name(log, event->id));
        } else {
            fprintf(out, "%c%u", signs[event->kind], event->id);
        }
    }
    fclose(out);
    got[bytes - (bytes >= 2 && strcmp(got + bytes - 2, "; ") == 0 ? 2 : 0)] = '\0';
    assert_string_equal(got, expected);
    free(got);
    dtr_log_free(log);
}

TEST(test_schedules)
{
    expect_schedule(START CONSTANT("x1", "4096") CALL("mm.default", "'x2','x3'", "'x1','x1'", "5")
                        OUTPUT("x2", "128", "-1") OUTPUT("x3", "0", "-1") RELEASE("x2"),
                    "constant 0=4096; !0; mm.default(0,0) 1=128 2=0; -1|!0; !2");
    /* views, of views too: no bytes of their own */
    expect_schedule(MAKE("a", "") CALL("v", "'b','c'", "'a'", "1") OUTPUT("b", "64", "0") OUTPUT("c", "8", "-1")
                        CALL("v", "'d'", "'c','b'", "1") OUTPUT("d", "64", "1"),
                    "f 0=64; v(0) 1=0~0:64 2=8; v(2,1) 3=0~1:64|!0; !1; !2; !3");
    expect_schedule(MAKE("a", "") RELEASE("a"), "f 0=64; -0|");
    expect_schedule(MAKE("a", "") PIN("a") PIN("a"), "f 0=64; !0; !0|!0");
    expect_schedule(MAKE("a", "") MARK("BACKWARD") MARK("") MAKE("b", "'a'"), "f 0=64; #BACKWARD; #; f(0) 1=64|!0; !1");
}

TEST(test_handles)
{
    /* the end condition asks for values, by all names that mean them, in the order in which these were defined */
    expect_schedule(MAKE("a", "") MAKE("b", "") COPY("c", "a") RELEASE("a"), "f 0=64; f 1=64; +0; -0|!0; !1; !0");
    expect_schedule(MAKE("a", "") MAKE("b", "") COPY_FROM("a", "b") RELEASE("b"), "f 0=64; f 1=64; -0; +1; -1|!1; !1");
    expect_schedule(MAKE("a", "") COPY("b", "a") COPY_FROM("a", "b"), "f 0=64; +0; -0; +0|!0; !0");
    expect_schedule(MAKE("a", "") COPY_FROM("a", "a") RELEASE("a"), "f 0=64; -0|");
    expect_schedule(RELEASE("z") MAKE("a", ""), "f 0=64|!0");
}

TEST(test_mutations)
{
    /* the handle moves, its copies keep the old value */
    expect_schedule(MAKE("a", "") COPY("b", "a") MUTATE("m_", "'a'", "0") MAKE("c", "'a','b'"),
                    "f 0=64; +0; m_(0) 1=64; -0; f(1,0) 2=64|!1; !0; !2");
    /* as large as the storage, also where the input is a view of it */
    expect_schedule(MAKE("a", "") CALL("v", "'b'", "'a'", "1") OUTPUT("b", "64", "0") MUTATE("m_", "'a','b'", "1"),
                    "f 0=64; v(0) 1=0~0:64; m_(0,1) 2=64; -1|!0; !2");
    expect_schedule(MAKE("a", "") MAKE("b", "") MUTATE("m_", "'a','b'", "1, 0"),
                    "f 0=64; f 1=64; m_(0,1) 2=64 3=64; -1; -0|!3; !2");
    expect_schedule(MAKE("a", "") MUTATE("m_", "'a','a'", "0,1"), "f 0=64; m_(0,0) 1=64 2=64; -0; -1|!2");
}

TEST(test_start)
{
    /* before it anything may stand, also half an operator */
    expect_schedule(CONSTANT("x1", "1") MARK("BACKWARD") RELEASE("x1") START MAKE("x1", ""), "f 0=64|!0");
    expect_schedule("}\n" START MAKE("a", ""), "f 0=64|!0");
    expect_schedule(RELEASE("a") "{'INSTRUCTION':'PIN','NAME':'a'}\nmore\n" START MAKE("a", ""), "f 0=64|!0");
    expect_schedule(CALL("g", "'a'", "", "1") START MAKE("a", "") START, "f 0=64; #START|!0");
    expect_schedule(CALL("g", "'a'", "", "1") MEMORY("a", "1") START MAKE("a", ""), "f 0=64|!0");
    struct dtr_log *log = read_good(MARK("BACKWARD") START MAKE("a", "") CALL("f_backward", "'b'", "'a'", "9")
                                        OUTPUT("b", "1", "-1") MAKE("c", "") MARK("BACKWARD") MAKE("d", ""));
    assert_true(log->has_start);
    assert_int_equal(log->ops[0].line, 3);
    assert_int_equal(log->ops[1].line, 6);
    assert_int_equal(log->lines, 15);
    assert_false(log->ops[0].is_backward || log->ops[2].is_backward);
    assert_true(log->ops[1].is_backward && log->ops[3].is_backward);
    assert_int_equal(log->cost_ns, 5 + 9 + 5 + 5);
    assert_int_equal(log->bytes, 64 + 1 + 64 + 64);
    dtr_log_free(log);
}

TEST(test_counts)
{
    struct dtr_log *log = read_good(CONSTANT("w", "3") MAKE("a", "'w'") MAKE("b", "'w'") MUTATE("m_", "'a'", "0") COPY(
        "c", "a") COPY("d", "a") COPY_FROM("d", "b") RELEASE("c") RELEASE("u") PIN("a"));
    assert_false(log->has_start);
    assert_int_equal(log->constants, 1);
    assert_true(log->ops[0].is_constant && !log->ops[1].is_constant);
    assert_int_equal(log->calls, 2);
    assert_int_equal(log->mutates, 1);
    assert_int_equal(log->copies, 2);
    assert_int_equal(log->copies_from, 1);
    assert_int_equal(log->releases, 2);
    assert_int_equal(log->unknown_releases, 1);
    assert_int_equal(log->pins, 1);
    assert_int_equal(log->op_count, 4);
    assert_int_equal(log->tensor_count, 4);
    assert_int_equal(log->input_count, 3);
    dtr_log_free(log);
}

/* One way of writing is what loggers do; others that say the same are read too. */
TEST(test_json)
{
    expect_schedule(
        "\r\n \t{ 'TIME' : 7 ,'NAME':'f','more':['x',''],'RESULT' :[ 'a' , 'b' ],\t'else':[-1,0],"
        "'INSTRUCTION':'CALL' ,'ARGS':[ ] } \r\n\n" OUTPUT(
            "a", "1",
            "-1") "{'INSTRUCTION':'MEMORY','NAME':'b','MEMORY':2}\n{'INSTRUCTION':'ALIAS','ALIAS':-1,'NAME':'b'}",
        "f 0=1 1=2|!0; !1");
    /* a name is what its escapes mean */
    struct dtr_log *log = read_good(
        CALL("\\u00e4\\ud83d\\ude00\\n\\\"\\\\\\/\\b\\f\\r\\t\\u20AC\\u007f", "'\\u0061'", "", "1")
            OUTPUT("a", "1", "-1") MAKE("\xc3\xa4", "'a'") "{'\\u0049NSTRUCTION':'RELEASE','NAME':'\\u00E4'}");
    assert_string_equal(dtr_log_name(log, log->ops[0].name), "\xc3\xa4\xf0\x9f\x98\x80\n\"\\/\b\f\r\t\xe2\x82\xac\x7f");
    assert_int_equal(log->releases, 1);
    assert_int_equal(log->unknown_releases, 0);
    dtr_log_free(log);
}

/* What is said of a log that is not right. */
static const struct {
    const char *log;
    const char *expected;
} errors[] = {
    /* lines */
    {"{", "p: line 1: at byte 2: the line ends in the middle"},
    {START "\n{'NAME':'a\n", "p: line 3: at byte 11: the line ends in the middle"},
    {"[]\n", "p: line 1: at byte 1: '{' is missing"},
    {"{}\n", "p: line 1: at byte 2: a text in quotes is missing"},
    {"{'a' 1}\n", "p: line 1: at byte 6: ':' is missing"},
    {"{'a':1 'b':2}\n", "p: line 1: at byte 8: ',' or '}' is missing"},
    {"{'a':[1 2]}\n", "p: line 1: at byte 9: ',' or ']' is missing"},
    {"{'a':[1,'2']}\n", "p: line 1: at byte 12: texts and numbers in one list"},
    {"{'a':[[]]}\n", "p: line 1: at byte 7: a text, a whole number or a list of them is missing"},
    {"{'a':{}}\n", "p: line 1: at byte 6: a text, a whole number or a list of them is missing"},
    {"{'a':true}\n", "p: line 1: at byte 6: a text, a whole number or a list of them is missing"},
    {"{'a':1.5}\n", "p: line 1: at byte 7: ',' or '}' is missing"},
    {"{'a':-}\n", "p: line 1: at byte 7: a text, a whole number or a list of them is missing"},
    {"{'a':01}\n", "p: line 1: at byte 6: a number that begins with 0"},
    {"{'NAME':'a','N\\u0041ME':'b'}\n", "p: line 1: at byte 13: a key for the second time"},
    {"{'a':'b'} {}\n", "p: line 1: at byte 11: something follows the object"},
    {"{'a':'\\x'}\n", "p: line 1: at byte 8: no such escape"},
    {"{'a':'\\u12x4'}\n", "p: line 1: at byte 11: \\u wants four hexadecimal digits"},
    {"{'a':'\\ud800'}\n", "p: line 1: at byte 13: half of a surrogate pair"},
    {"{'a':'\\ud800\\n'}\n", "p: line 1: at byte 14: half of a surrogate pair"},
    {"{'a':'\\ud800\\u0041'}\n", "p: line 1: at byte 19: half of a surrogate pair"},
    {"{'a':'\\udc00'}\n", "p: line 1: at byte 13: half of a surrogate pair"},
    {"{'a':'\\u0000'}\n", "p: line 1: at byte 13: a NUL character"},
    {"{'a':'\x01'}\n", "p: line 1: at byte 7: a control character in a text"},
    {"{'a':'\xc3'}\n", "p: line 1: at byte 7: no UTF-8"},
    {"\n \n", "p: line 2: the log ends without an operator"},
    {MAKE("a", "") START "\n", "p: line 5: the log ends without an operator after ANNOTATE START"},
    {RELEASE("a"), "p: line 1: the log ends without an operator"},
    /* instructions and their values */
    {"{'NAME':'a'}\n", "p: line 1: it has no 'INSTRUCTION'"},
    {"{'INSTRUCTION':5}\n", "p: line 1: 'INSTRUCTION' is a number, not a text"},
    {START "{'INSTRUCTION':'COPI'}\n", "p: line 2: 'COPI' is no instruction that is known"},
    {START "{'INSTRUCTION':'\\u001b[2J'}\n", "p: line 2: '?[2J' is no instruction that is known"},
    {"{'INSTRUCTION':'ANNOTATE'}\n", "p: line 1: ANNOTATE has no 'ANNOTATION'"},
    {"{'INSTRUCTION':'CONSTANT'}\n", "p: line 1: CONSTANT has no 'NAME'"},
    {"{'INSTRUCTION':'RELEASE','NAME':['a']}\n", "p: line 1: 'NAME' is a list of texts, not a text"},
    {"{'INSTRUCTION':'RELEASE','NAME':[]}\n", "p: line 1: 'NAME' is an empty list, not a text"},
    {"{'INSTRUCTION':'PIN'}\n", "p: line 1: PIN has no 'NAME'"},
    {"{'INSTRUCTION':'COPY','SRC':'a'}\n", "p: line 1: COPY has no 'DST'"},
    {"{'INSTRUCTION':'COPY_FROM','DST':'a'}\n", "p: line 1: COPY_FROM has no 'SRC'"},
    {"{'INSTRUCTION':'CALL','NAME':'f','ARGS':[],'RESULT':['a']}\n", "p: line 1: CALL has no 'TIME'"},
    {"{'INSTRUCTION':'CALL','NAME':'f','ARGS':'a','RESULT':['a'],'TIME':'1'}\n",
     "p: line 1: 'ARGS' is a text, not a list of texts"},
    {"{'INSTRUCTION':'CALL','NAME':'f','ARGS':[],'RESULT':[1],'TIME':'1'}\n",
     "p: line 1: 'RESULT' is a list of numbers, not a list of texts"},
    {"{'INSTRUCTION':'CALL','NAME':'f','ARGS':[],'RESULT':['a'],'TIME':['1']}\n",
     "p: line 1: 'TIME' is a list of texts, not a whole number"},
    {MAKE("a", "") "{'INSTRUCTION':'MUTATE','NAME':'f','ARGS':['a'],'TIME':'1'}\n",
     "p: line 4: MUTATE has no 'MUTATE'"},
    {MAKE("a", "") MUTATE("f", "'a'", "'0'"), "p: line 4: 'MUTATE' is a list of texts, not a list of numbers"},
    {CALL("f", "", "", "1"), "p: line 1: CALL without results"},
    {MAKE("a", "") MUTATE("f", "'a'", ""), "p: line 4: MUTATE without an input that is changed"},
    /* numbers */
    {CALL("f", "'a'", "", "-5"), "p: line 1: 'TIME' is negative: -5"},
    {CALL("f", "'a'", "", ""), "p: line 1: 'TIME' is '', not a whole number"},
    {CALL("f", "'a'", "", "-"), "p: line 1: 'TIME' is '-', not a whole number"},
    {CALL("f", "'a'", "", "1e3"), "p: line 1: 'TIME' is '1e3', not a whole number"},
    {CALL("f", "'a'", "", "4611686018427387905"), "p: line 1: 'TIME' is 4611686018427387905, more than 2^62"},
    {CALL("f", "'a'", "", "99999999999999999999999999"),
     "p: line 1: 'TIME' is 99999999999999999999999999, more than 2^62"},
    {MAKE("a", "") CALL("f", "'b'", "", "4611686018427387900"),
     "p: line 4: the costs of all operators are more than 2^62 in sum"},
    {CONSTANT("a", "-1"), "p: line 2: 'MEMORY' is negative: -1"},
    {CONSTANT("a", "4611686018427387904") CONSTANT("b", "1"),
     "p: line 4: the sizes of all tensors are more than 2^62 in sum"},
    {CONSTANT("a", "4611686018427387904") CALL("f", "'b'", "'a','a'", "1"),
     "p: line 3: the sizes of the inputs are more than 2^62 in sum"},
    {CONSTANT("a", "4611686018427387904") MUTATE("f", "'a'", "0"),
     "p: line 3: the sizes of all tensors are more than 2^62 in sum"},
    /* names */
    {MAKE("a", "'z'"), "p: line 1: 'z' is not defined"},
    {MAKE("a", "'a'"), "p: line 1: 'a' is not defined"},
    {MUTATE("f", "'z'", "0"), "p: line 1: 'z' is not defined"},
    {COPY("a", "z"), "p: line 1: 'z' is not defined"},
    {MAKE("a", "") COPY_FROM("a", "z"), "p: line 4: 'z' is not defined"},
    {MAKE("a", "") COPY_FROM("z", "a"), "p: line 4: 'z' is not defined"},
    {PIN("z"), "p: line 1: 'z' is not defined"},
    {MAKE("a", "") MAKE("a", ""), "p: line 4: 'a' is defined already"},
    {MAKE("a", "") RELEASE("a") MAKE("a", ""), "p: line 5: 'a' is defined already"},
    {CALL("f", "'a','a'", "", "1"), "p: line 1: 'a' is defined already"},
    {CONSTANT("a", "1") CONSTANT("a", "1"), "p: line 3: 'a' is defined already"},
    {MAKE("a", "") COPY("a", "a"), "p: line 4: 'a' is defined already"},
    {MAKE("a", "") RELEASE("a") RELEASE("a"), "p: line 5: 'a' was released before"},
    {MAKE("a", "") COPY("b", "a") RELEASE("a") RELEASE("a"), "p: line 6: 'a' was released before"},
    {MAKE("a", "") RELEASE("a") MAKE("b", "'a'"), "p: line 5: 'a' was released before"},
    {MAKE("a", "") RELEASE("a") COPY("b", "a"), "p: line 5: 'a' was released before"},
    {MAKE("a", "") RELEASE("a") PIN("a"), "p: line 5: 'a' was released before"},
    {MAKE("a", "") MAKE("b", "") RELEASE("a") COPY_FROM("a", "b"), "p: line 8: 'a' was released before"},
    {START MAKE("abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz", "'a'"), "p: line 2: 'a' is not defined"},
    {RELEASE("a") PIN("abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz"),
     "p: line 2: 'abcdefghijklmnopqrstuvwxyzabcdefghijklmn' is not defined"},
    /* what must follow an operator */
    {CALL("f", "'a'", "", "1"), "p: line 1: the log ends before the MEMORY of 'a'"},
    {CALL("f", "'a'", "", "1") MEMORY("a", "1"), "p: line 2: the log ends before the ALIAS of 'a'"},
    {CALL("f", "'a','b'", "", "1") OUTPUT("a", "1", "-1"), "p: line 3: the log ends before the MEMORY of 'b'"},
    {"{'INSTRUCTION':'CONSTANT','NAME':'a'}\n", "p: line 1: the log ends before the MEMORY of 'a'"},
    {CALL("f", "'a'", "", "1") RELEASE("a"), "p: line 2: RELEASE where the MEMORY of 'a' is missing"},
    {CALL("f", "'a'", "", "1") ALIAS("a", "-1"), "p: line 2: ALIAS where the MEMORY of 'a' is missing"},
    {CALL("f", "'a'", "", "1") MEMORY("a", "1") MEMORY("a", "1"),
     "p: line 3: MEMORY where the ALIAS of 'a' is missing"},
    {CALL("f", "'a','b'", "", "1") MEMORY("b", "1"), "p: line 2: MEMORY of 'b' where that of 'a' is missing"},
    {CALL("f", "'a','b'", "", "1") MEMORY("a", "1") ALIAS("b", "-1"),
     "p: line 3: ALIAS of 'b' where that of 'a' is missing"},
    {CONSTANT("a", "1") ALIAS("a", "-1"), "p: line 3: ALIAS of 'a', which no CONSTANT or CALL before it has left open"},
    {MAKE("a", "") MEMORY("a", "64"), "p: line 4: MEMORY of 'a', which no CONSTANT or CALL before it has left open"},
    {CALL("f", "'a'", "", "1") "{'INSTRUCTION':'MEMORY','NAME':'a'}\n", "p: line 2: MEMORY has no 'MEMORY'"},
    {CALL("f", "'a'", "", "1") MEMORY("a", "1") "{'INSTRUCTION':'ALIAS','NAME':'a'}\n",
     "p: line 3: ALIAS has no 'ALIAS'"},
    /* views and mutations */
    {MAKE("a", "") CALL("v", "'b'", "'a'", "1") OUTPUT("b", "64", "1"),
     "p: line 6: 'b' is a view of input 1, but its operator has 1"},
    {CALL("v", "'b'", "", "1") OUTPUT("b", "64", "0"), "p: line 3: 'b' is a view of input 0, but its operator has 0"},
    {MAKE("a", "") CALL("v", "'b'", "'a'", "1") OUTPUT("b", "64", "-2"), "p: line 6: 'ALIAS' is negative: -2"},
    {MAKE("a", "") CALL("v", "'b'", "'a'", "1") OUTPUT("b", "32", "0"),
     "p: line 6: 'b' is a view of a storage of 64 bytes, but its MEMORY is 32"},
    {MAKE("a", "") MUTATE("m", "'a'", "1"), "p: line 4: 'MUTATE' has input 1, but its operator has 1"},
    {MAKE("a", "") MUTATE("m", "'a'", "-1"), "p: line 4: 'MUTATE' is negative: -1"},
    {MAKE("a", "") MUTATE("m", "'a','a'", "0,1,0"), "p: line 4: 'MUTATE' has input 0 twice"},
};

TEST(test_errors)
{
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        struct varve_message message = {""};
        struct dtr_log *log;
        if (read_text(errors[i].log, &log, &message) != VARVE_ERROR_FORMAT) {
            fail_msg("read: %s", errors[i].log);
        }
        assert_string_equal(message.text, errors[i].expected);
    }
}

TEST(test_nul_bytes)
{
    static const char in_text[] = "{\"INSTRUCTION\":\"PIN\",\"NAME\":\"a\0b\"}\n";
    static const char zeros[100] = {0};
    struct varve_message message = {""};
    struct dtr_log *log;
    assert_int_equal(read_bytes(in_text, sizeof(in_text) - 1, &log, &message), VARVE_ERROR_FORMAT);
    assert_string_equal(message.text, "p: line 1: at byte 31: a NUL byte");
    assert_int_equal(read_bytes(zeros, sizeof(zeros), &log, &message), VARVE_ERROR_FORMAT);
    assert_string_equal(message.text, "p: line 1: at byte 1: a NUL byte");
    assert_int_equal(read_bytes("", 0, &log, &message), VARVE_ERROR_FORMAT);
    assert_string_equal(message.text, "p: is empty");
}

/* An operator whose line is longer than a stream's window; and a line that is longer than may be. */
TEST(test_long_lines)
{
    static const size_t lengths[] = {10, INPUT_STREAM_WINDOW_BYTES, 3 << 20};
    const size_t endless = ((size_t)64 << 20) + 5;
    struct varve_message message = {""};
    struct dtr_log *log;
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        char *name = calloc(1, lengths[i] + 1), *text;
        memset(name, 'n', lengths[i]);
        assert_true(asprintf(&text,
                             MAKE("a", "") "{'INSTRUCTION':'CALL','NAME':'%s\\u0021','ARGS':['a'],'RESULT':['b'],"
                                           "'TIME':'1'}\n" OUTPUT("b", "2", "-1")
                                               MAKE("c", "'b'") "{'INSTRUCTION':'COPY','DST':'%s','SRC':'c'}",
                             name, name) > 0);
        log = read_good(text);
        assert_int_equal(log->lines, 10);
        assert_int_equal(log->op_count, 3);
        assert_int_equal(strlen(dtr_log_name(log, log->ops[1].name)), lengths[i] + 1);
        dtr_log_free(log);
        free(text);
        free(name);
    }
    char *text = malloc(endless);

    assert_non_null(text);
    memset(text, ' ', endless);
    text[0] = '\n';
    assert_int_equal(read_bytes(text, endless, &log, &message), VARVE_ERROR_FORMAT);
    assert_string_equal(message.text, "p: line 2: longer than 67108864 bytes");
    free(text);
}

TEST(test_files)
{
    static const char text[] = "{\"INSTRUCTION\":\"CONSTANT\",\"NAME\":\"a\"}\n"
                               "{\"INSTRUCTION\":\"MEMORY\",\"NAME\":\"a\",\"MEMORY\":\"8\"}\n";
    char *folder = test_folder_enter();
    struct varve_message message = {""};
    file_write("a.log", text, sizeof(text) - 1);
    struct dtr_log *log;
    assert_int_equal(dtr_log_read("a.log", NULL, &log, &message), VARVE_OK);
    assert_int_equal(log->bytes, 8);
    dtr_log_free(log);
    assert_int_equal(dtr_log_read("none.log", NULL, &log, &message), VARVE_ERROR_NOT_FOUND);
    assert_null(log);
    assert_string_equal(message.text, "none.log: No such file or directory");
    assert_int_equal(system("xz -k a.log && head -c 70 a.log.xz >b.log"), 0);
    assert_int_equal(dtr_log_read("a.log.xz", NULL, &log, &message), VARVE_OK);
    assert_int_equal(log->lines, 2);
    dtr_log_free(log);
    assert_int_equal(dtr_log_read("b.log", NULL, &log, &message), VARVE_ERROR_FORMAT);
    assert_non_null(strstr(message.text, "b.log: "));
    test_folder_leave(folder);
}

static const char whole[] = CONSTANT("w", "4096") MAKE("a", "'w'") CALL("v", "'b','c'", "'w','a'", "3")
    OUTPUT("b", "64", "1") OUTPUT("c", "7", "-1") MUTATE("m_", "'w','b'", "1,0") COPY("d", "a") COPY_FROM("a", "c")
        RELEASE("b") RELEASE("u") PIN("c") MARK("BACKWARD") MAKE("e", "'w','d'") RELEASE("d");

/* Cut or with a byte changed, it ends in a message of one line or in a log in which all numbers are right. */
TEST(test_damaged)
{
    char *text = strdup(whole);
    const size_t bytes = strlen(text);
    uint64_t seed = test_first_seed(5);
    for (size_t i = 0; i < bytes; i++) {
        text[i] = text[i] == '\'' ? '"' : text[i];
    }
    for (size_t i = 0; i < (size_t)test_rounds(5000, 20000); i++) {
        struct varve_message message = {""};
        size_t at = random_below(&seed, bytes);
        char before = text[at];
        text[at] = i % 3 == 0 ? text[random_below(&seed, bytes)] : (char)random_next(&seed);
        struct dtr_log *log;
        if (read_bytes(text, i % 2 == 0 ? bytes : at + 1, &log, &message) != VARVE_OK) {
            assert_true(strncmp(message.text, "p: line ", 8) == 0 && strchr(message.text, '\n') == NULL);
        }
        dtr_log_free(log);
        text[at] = before;
    }
    free(text);
}
