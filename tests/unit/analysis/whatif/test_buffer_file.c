/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CSV files of buffers: columns in any order and by their older names, what is refused, with the line, and files
 * written and read again.
 * Costs: 1 s
 */
#include "cmocka.h"

#include "analysis/base/input_stream.h"
#include "analysis/whatif/buffer_file.h"
#include "support/command.h"
#include "support/random.h"

#include <stdlib.h>
#include <string.h>

static int read_text(const char *text, struct buffer_file *file, struct varve_message *message)
{
    struct input_stream *input;
    int error = input_stream_open_memory("b.csv", text, strlen(text), &input, message);
    return error != VARVE_OK ? error : buffer_file_read_stream(input, file, message);
}

static void expect_same(const char *text, const char *expected)
{
    struct varve_message message = {""};
    struct buffer_file file;
    char *written = NULL;
    size_t bytes = 0;
    if (read_text(text, &file, &message) != VARVE_OK) {
        fail_msg("%s: %s", text, message.text);
    }
    FILE *out = open_memstream(&written, &bytes);
    assert_non_null(out);
    buffer_file_write(out, &file, file.buffers, file.count);
    assert_int_equal(fclose(out), 0);
    assert_string_equal(written, expected);
    free(written);
    buffer_file_free(&file);
}

TEST(test_columns)
{
    static const char expected[] = "id,lower,upper,size,offset\na,-1,4,10,0\nb c,3,9,20,0\n";
    expect_same("id,lower,upper,size\na,-1,4,10\nb c,3,9,20\n", expected);
    expect_same("size,upper,note,id,lower\r\n10,4,,a,-1\r\n\r\n 20 ,\t9,x, b c ,3", expected);
    expect_same("\nbuffer,start,end,size\na,-1,3,10\nb c,3,8,20\n\n\n", expected);
    expect_same("begin,upper,buffer_id,size\n-1,4,a,10\n3,9,b c,20\n", expected);
    expect_same("id,lower,upper,size,offset\na,0,1,7,8\n", "id,lower,upper,size,offset\na,0,1,7,8\n");
    expect_same("id,lower,upper,size\n,-9223372036854775808,9223372036854775807,0\n",
                "id,lower,upper,size,offset\n,-9223372036854775808,9223372036854775807,0,0\n");
}

static void expect_refused(const char *text, const char *reason)
{
    struct varve_message message = {""};
    struct buffer_file file;
    int error = read_text(text, &file, &message);
    if (error != VARVE_ERROR_FORMAT || strcmp(message.text, reason) != 0) {
        fail_msg("%s\ngives %d, %s\nnot %s", text, error, message.text, reason);
    }
}

#define HEAD "id,lower,upper,size\n"

TEST(test_refused)
{
    expect_refused("\n", "b.csv: no buffers");
    expect_refused(HEAD "\n", "b.csv: no buffers");
    expect_refused("id,lower,size\n1,2,3\n",
                   "b.csv: line 1: no column 'upper': the first line names the columns, id,lower,upper,size");
    expect_refused("1,2,3,4\n", "b.csv: line 1: no column 'id': the first line names the columns, id,lower,upper,size");
    expect_refused("id,lower,start,upper,size\n", "b.csv: line 1: two columns for lower");
    expect_refused("id,lower,upper,size,gaps\n", "b.csv: line 1: buffers with a column 'gaps' can't be placed here");
    expect_refused(HEAD "1,0,1\n", "b.csv: line 2: 3 fields, but the first line names 4 columns");
    expect_refused(HEAD "1,0,1,2,3\n", "b.csv: line 2: 5 fields, but the first line names 4 columns");
    expect_refused(HEAD "1,0,1,2\n\n2,5,5,1\n", "b.csv: line 4: the buffer ends at 5, no later than it begins, at 5");
    expect_refused(HEAD "1,7,-5,1\n", "b.csv: line 2: the buffer ends at -5, no later than it begins, at 7");
    expect_refused("id,start,end,size\n1,1,0,1\n",
                   "b.csv: line 2: the buffer ends at 1, no later than it begins, at 1");
    expect_refused(HEAD "1,0,1,-2\n", "b.csv: line 2: size -2 is negative");
    expect_refused("id,lower,upper,size,offset\n1,0,1,2,-1\n", "b.csv: line 2: offset -1 is negative");
    expect_refused(HEAD "1,0,1,2x\n", "b.csv: line 2: size '2x' is no whole number");
    expect_refused(HEAD "1,0x1,2,2\n", "b.csv: line 2: lower '0x1' is no whole number");
    expect_refused(HEAD "1,0,1e3,2\n", "b.csv: line 2: upper '1e3' is no whole number");
    expect_refused(HEAD "1,0,1,\n", "b.csv: line 2: size '' is no whole number");
    expect_refused(HEAD "1,0,1,-\n", "b.csv: line 2: size '-' is no whole number");
    expect_refused(HEAD "1,0,1,1 2\n", "b.csv: line 2: size '1 2' is no whole number");
    expect_refused(HEAD "a\tb,0,1,1\n", "b.csv: line 2: the id has a control character");
    expect_refused(HEAD "1,0,9223372036854775808,2\n",
                   "b.csv: line 2: upper 9223372036854775808 does not fit into 64 bits");
    expect_refused(HEAD "1,0,1,4611686018427387904\n2,0,1,1\n",
                   "b.csv: line 3: with this one the buffers have more than 2^62 bytes");
}

/* Longer than the reader's window. */
TEST(test_long)
{
    struct varve_message message = {""};
    uint64_t random = test_first_seed(1);
    size_t bytes = 0;
    char *text = NULL;
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    fputs("id,lower,upper,size,offset\n", out);
    for (int i = 0; i < 50000; i++) {
        uint64_t lower = random_below(&random, 1000000);
        uint64_t upper = lower + 1 + random_below(&random, 1000);
        fprintf(out, "%d,%llu,%llu,%llu,%llu\n", i, (unsigned long long)lower, (unsigned long long)upper,
                (unsigned long long)random_below(&random, 1 << 20), (unsigned long long)random_below(&random, 1 << 20));
    }
    assert_int_equal(fclose(out), 0);
    assert_true(bytes > 4 * INPUT_STREAM_WINDOW_BYTES);
    expect_same(text, text);
    memset(text, 'x', INPUT_STREAM_WINDOW_BYTES);
    struct buffer_file file;
    assert_int_equal(read_text(text, &file, &message), VARVE_ERROR_FORMAT);
    assert_non_null(strstr(message.text, "line 1: longer than"));
    free(text);
}

static void expect_recognised(const char *text, size_t bytes, bool expected)
{
    file_write("some.file", text, bytes);
    if (buffer_file_recognise("some.file") != expected) {
        fail_msg("%.*s is %staken for a file of buffers", (int)bytes, text, expected ? "not " : "");
    }
}

TEST(test_recognise)
{
    expect_recognised("id,lower,upper,size\n1,2,3,4\n", 29, true);
    expect_recognised("id,size", 7, true);
    expect_recognised("{\"a\":1,\"b\":2}\n", 14, false);
    expect_recognised("no comma\na,b\n", 13, false);
    expect_recognised("SQLite format 3\0,,,\n", 20, false);
    expect_recognised("\x80\x04\x95,\n", 5, false);
    expect_recognised("", 0, false);
    assert_false(buffer_file_recognise("absent.csv"));
    assert_false(buffer_file_recognise("."));
}

TEST_FILE(test_folder_setup, test_folder_teardown)
