/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON inside HTML: nothing in a name ends its element or its string; long names are cut between characters; equal
 * names have one number.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "analysis/base/memory.h"
#include "analysis/query/page/writer.h"
#include "tests/support/random.h"

#include <stdlib.h>
#include <string.h>

/* Owner: the caller, by free. */
static char *written(const char *text)
{
    char *out;
    size_t bytes;
    struct page_writer writer;
    FILE *stream = memory_stream(&out, &bytes);
    page_writer_init(&writer, stream);
    page_text(&writer, text);
    page_writer_free(&writer);
    memory_stream_end(stream, &out);
    return out;
}

static void expect(const char *text, const char *json)
{
    char *out = written(text);
    assert_string_equal(out, json);
    free(out);
}

TEST(test_text)
{
    expect("plain, \xc3\xa9", "\"plain, \xc3\xa9\"");
    expect("</script><!--&", "\"\\u003c/script\\u003e\\u003c!--\\u0026\"");
    expect("\"\\\n\t\x1b\x7f", "\"\\u0022\\u005c\\u000a\\u0009\\u001b\\u007f\"");
    expect("a\xe2\x80\xa8\xe2\x80\xa9z", "\"a\\u2028\\u2029z\"");
    expect("\xff\xc3(\xed\xa0\x80", "\"\\ufffd\\ufffd(\\ufffd\\ufffd\\ufffd\"");
    expect("\xc2\x80", "\"\\u0080\"");
    expect(NULL, "null");
}

/* Whatever the bytes: no '<', no control character, no byte that is no UTF-8, and no quotation mark but at the ends. */
TEST(test_any_bytes)
{
    uint64_t random = test_first_seed(1);
    for (int round = 0; round < 2000; round++) {
        char text[64] = {0};
        size_t length = random_below(&random, sizeof(text) - 1);
        for (size_t i = 0; i < length; i++) {
            text[i] = (char)(1 + random_below(&random, 255));
        }
        char *out = written(text);
        length = strlen(out);
        assert_true(length >= 2 && out[0] == '"' && out[length - 1] == '"');
        for (size_t i = 1; i + 1 < length; i++) {
            assert_null(memchr("\"<>&", out[i], 4));
            assert_true((unsigned char)out[i] >= 0x20);
        }
        free(out);
    }
}

TEST(test_long_names_are_cut)
{
    char *text = memory_resize(NULL, (1 << 20) + 1);
    for (size_t before = 0; before < 4; before++) {
        for (size_t i = 0; i < 1 << 20; i++) {
            text[i] = i < before ? 'a' : "\xf0\x9f\x8c\xb2"[(i - before) % 4];
        }
        text[1 << 20] = '\0';
        char *out = written(text);
        assert_true(strlen(out) <= PAGE_NAME_BYTES_MAX + 5);
        assert_non_null(strstr(out, "\x9f\x8c\xb2\xe2\x80\xa6\"")); /* whole characters, and an ellipsis */
        assert_null(strstr(out, "fffd"));
        free(out);
    }
    free(text);
}

TEST(test_names_have_one_number)
{
    char *out;
    size_t bytes;
    struct page_writer writer;
    FILE *stream = memory_stream(&out, &bytes);
    page_writer_init(&writer, stream);
    page_open(&writer, '[');
    page_name(&writer, "one");
    page_name(&writer, "two");
    page_name(&writer, "one");
    page_name(&writer, NULL);
    page_name(&writer, "");
    page_close(&writer, ']');
    page_names(&writer);
    page_writer_free(&writer);
    memory_stream_end(stream, &out);
    assert_string_equal(out, "[0,1,0,-1,2],[\"one\",\"two\",\"\"]");
    free(out);
}

TEST(test_deltas)
{
    static const int64_t numbers[] = {5, 7, 3, INT64_MAX, INT64_MIN};
    char *out;
    size_t bytes;
    struct page_writer writer;
    FILE *stream = memory_stream(&out, &bytes);
    page_writer_init(&writer, stream);
    page_open(&writer, '{');
    page_member_deltas(&writer, "a", numbers, 3);
    page_member_deltas(&writer, "none", numbers, 0);
    page_member_deltas(&writer, "wide", numbers + 3, 2);
    page_close(&writer, '}');
    page_writer_free(&writer);
    memory_stream_end(stream, &out);
    assert_string_equal(out, "{\"a\":[5,2,-4],\"none\":[],\"wide\":[9223372036854775807,1]}");
    free(out);
}

TEST(test_html)
{
    char *out;
    size_t bytes;
    FILE *stream = memory_stream(&out, &bytes);
    page_html(stream, "<b a=\"1\">&\\\n\x01\xff</b>");
    memory_stream_end(stream, &out);
    assert_string_equal(out, "&#60;b a=&#34;1&#34;&#62;&#38;&#92;\n\xef\xbf\xbd\xef\xbf\xbd&#60;/b&#62;");
    free(out);
}
