/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pages of `varve top` on figures made by hand: no line is wider than the screen, whatever its width; a narrow one has
 * fewer columns; names drive no terminal; and the answer in JSON has what the views have.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "support/command.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/base/number_format.h"
#include "analysis/base/json_writer.h"
#include "analysis/query/database.h"
#include "analysis/top/top_figures.h"
#include "analysis/top/top_page.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

#define HOSTILE "evil\033[2J\r\n\t<script>\x01\xff\xc3"
#define HOSTILE_JSON "evil\\u001b[2J\\u000d\\u000a\\u0009<script>\\u0001\xff\xc3"

static const char hostile[] = HOSTILE;

/* The second of two moments, a second from each other, as the collector writes it. */
static const char document[] =
    "{\"varve_live\":2,"
    "\"recording\":[{\"number\":2,\"command\":\"" HOSTILE_JSON "\",\"pid\":4711,\"is_over\":0,"
    "\"duration_ns\":2000000000,\"events\":350,\"events_per_s\":2.5e+02,\"waiting\":5,\"lost\":3,"
    "\"rss_bytes\":123456789,\"processes\":2,\"processes_running\":1,\"threads\":3}],"
    "\"total\":[{\"domain\":\"heap\",\"device\":0,\"allocations\":10,\"frees\":2,\"bytes\":70000,"
    "\"live_allocations\":8,\"live_bytes\":35000,\"peak_bytes\":70000,\"peak_allocations\":8,\"temporary\":0,"
    "\"peak_ns\":null,\"failed\":0,\"allocations_per_s\":0.0,\"bytes_per_s\":6.0e4},"
    "{\"domain\":\"block\",\"device\":1,\"allocations\":9223372036854775807,\"frees\":2,\"bytes\":70000,"
    "\"live_allocations\":8,\"live_bytes\":35000,\"peak_bytes\":70000,\"peak_allocations\":8,\"temporary\":0,"
    "\"peak_ns\":null,\"failed\":0,\"allocations_per_s\":0.0,\"bytes_per_s\":6.0e4}],"
    "\"allocator\":[{\"pid\":4712,\"rank\":3,\"device\":1,\"segments\":4,\"reserved\":4000,\"active\":1100,"
    "\"allocated\":1000,\"requested\":900,\"cached\":0,\"unused_share\":7.5e-01}],"
    "\"process_total\":[{\"id\":1,\"pid\":4712,\"rank\":3,\"command_line\":\"" HOSTILE_JSON "\",\"threads\":2,"
    "\"rss_bytes\":1000000,\"heap_bytes\":35000,\"device_bytes\":null,\"allocations_per_s\":0.0}],"
    "\"callsite_total\":["
    "{\"callsite_id\":1,\"domain\":\"heap\",\"user_function\":\"" HOSTILE_JSON "\","
    "\"user_file\":\"/a/very/long/folder/of/sources/file.c\",\"user_line\":1,\"user_module\":\"program\","
    "\"function\":\"inner\",\"file\":\"inner.c\",\"line\":3,\"module\":\"library\",\"is_named\":1,"
    "\"allocations\":7000,\"frees\":2,\"bytes\":70000,\"live_allocations\":8,\"live_bytes\":100,\"peak_bytes\":70000,"
    "\"peak_allocations\":8,\"temporary\":0,\"allocations_per_s\":7.0e3,\"bytes_per_s\":6.0e4},"
    "{\"callsite_id\":2,\"domain\":\"block\","
    "\"user_function\":\"long_function_whose_name_is_much_too_long_for_any_screen_that_is_not_very_wide<int, 3>()\","
    "\"user_file\":\"/a/very/long/folder/of/sources/file.c\",\"user_line\":2,\"user_module\":\"program\","
    "\"function\":\"inner\",\"file\":\"inner.c\",\"line\":3,\"module\":\"library\",\"is_named\":1,"
    "\"allocations\":100,\"frees\":2,\"bytes\":1000,\"live_allocations\":8,\"live_bytes\":900,\"peak_bytes\":1000,"
    "\"peak_allocations\":8,\"temporary\":0,\"allocations_per_s\":1.0e2,\"bytes_per_s\":0.0},"
    "{\"callsite_id\":3,\"domain\":\"heap\",\"is_named\":0,\"allocations\":60,\"frees\":2,\"bytes\":600,"
    "\"live_allocations\":8,\"live_bytes\":500,\"peak_bytes\":600,\"peak_allocations\":8,\"temporary\":0,"
    "\"allocations_per_s\":6.0e1,\"bytes_per_s\":6.0e2},"
    "{\"callsite_id\":0,\"domain\":\"block\",\"is_named\":0,\"allocations\":6,\"frees\":2,\"bytes\":60,"
    "\"live_allocations\":8,\"live_bytes\":50,\"peak_bytes\":60,\"peak_allocations\":8,\"temporary\":0,"
    "\"allocations_per_s\":6.0,\"bytes_per_s\":0.0}]}";

static struct database *figures_make(void)
{
    struct varve_message message = {""};
    struct database *database = NULL;
    assert_int_equal(figures_open("here", document, strlen(document), 0, &database, &message), VARVE_OK);
    return database;
}

static char *print(struct database *database, const struct page *page)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = memory_stream(&text, &bytes);
    page_head(out, database, page);
    page_list(out, database, page);
    memory_stream_end(out, &text);
    assert_int_equal(database_error(database, NULL), VARVE_OK);
    return text;
}

static void expect_tame(char *text, size_t columns)
{
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        if (format_width(line) > columns) {
            fail_msg("%zu columns, wanted at most %zu: %s", format_width(line), columns, line);
        }
        for (const char *at = line; *at != '\0'; at++) {
            assert_true((unsigned char)*at >= ' ');
            assert_true(*at != 0x7f);
        }
    }
}

/* What came later is in the same tables and pages; it has fewer figures. */
TEST(test_more_rows)
{
    static const char more[] = "{\"total\":[{\"domain\":\"block\",\"device\":7,\"live_bytes\":3072,"
                               "\"live_allocations\":3}],\"callsite_total\":[{\"callsite_id\":1,"
                               "\"domain\":\"block\",\"user_function\":\"step\",\"user_file\":\"train.py\","
                               "\"user_line\":3,\"is_named\":1,\"live_bytes\":3072,\"live_allocations\":3}]}";
    struct database *database = figures_make();
    const int64_t before = database_integer(database, "SELECT count(*) FROM total", 0);
    database_execute(database, "PRAGMA query_only = 0");
    figures_extend(database, more);
    database_execute(database, "INSERT INTO torch(age_ns, is_seen) VALUES (1200000000, 1)");
    database_execute(database, "PRAGMA query_only = 1");
    assert_int_equal(database_integer(database, "SELECT count(*) FROM total", 0), before + 1);
    assert_int_equal(database_integer(database, "SELECT bytes FROM total WHERE device = 7", -1), -1);
    assert_int_equal(database_integer(database, "SELECT live_bytes FROM line_total WHERE user_function = 'step'", 0),
                     3072);
    const struct page page = {.columns = 100, .allocators = 3, .state = "recording", .top = 100};
    char *text = print(database, &page);
    assert_non_null(strstr(text, "block 7"));
    assert_non_null(strstr(text, "those of 1.2"));
    assert_non_null(strstr(text, "train.py:3"));
    free(text);
    database_close(database);
}

TEST(test_widths)
{
    struct database *database = figures_make();
    for (size_t columns = 60; columns <= 260; columns += test_is_full() ? 5 : 20) {
        for (int list = 0; list < PAGE_LISTS; list++) {
            const struct page page = {.columns = columns,
                                      .allocators = 3,
                                      .state = hostile,
                                      .order = (enum page_order)(columns % PAGE_ORDERS),
                                      .list = (enum page_list)list,
                                      .top = 100};
            char *text = print(database, &page);
            assert_true((strstr(text, "live count") != NULL) == (columns >= 100));
            assert_non_null(strstr(text, "GPU 1 rank 3"));
            assert_null(strstr(text, "cupti"));
            expect_tame(text, columns);
            free(text);
        }
    }
    database_close(database);
}

/* The text has these words, one behind the other. Frees it. */
#define EXPECT_WORDS(text, ...)                                                    \
    command_expect(0, (struct command_outcome){0, text, calloc(1, 1)}, "the page", \
                   (const char *const[]){__VA_ARGS__, NULL})

TEST(test_answers)
{
    struct database *database = figures_make();
    struct page page = {.columns = 120, .allocators = 3, .state = "recording", .top = 100};
    char *next = page_next_domain(database, NULL);
    EXPECT_WORDS(print(database, &page), "350 events, 250/s; 3 lost; 5 behind",
                 "RSS 118 MiB; 1 of 2 processes running, 3 threads; varve record 4711", "lines", "long_f",
                 "(name not looked up yet)", "evil", "(no stack was recorded)"); /* by bytes that are live */
    page.order = PAGE_BY_RATE;
    EXPECT_WORDS(print(database, &page), "lines", "evil", "<script>", "long_f");
    assert_string_equal(next, "block");
    free(next);
    next = page_next_domain(database, "block");
    assert_string_equal(next, "heap");
    free(next);
    assert_null(page_next_domain(database, "heap"));
    database_close(database);
}

TEST(test_json)
{
    struct database *database = figures_make();
    const struct page page = {.columns = 80, .state = "", .domain = "block", .top = 100};
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = memory_stream(&text, &bytes);
    json_print(page_json(database, &page), out);
    memory_stream_end(out, &text);
    EXPECT_WORDS(text, "\"allocations_per_s\":0", "\"bytes_per_s\":60000", "\"unused_share\":0.75", "\"user_line\":2,",
                 "!\"user_line\":1,"); /* of the heap */
    database_close(database);
}

static int open_text(const char *text, size_t count, int64_t known, struct database **database_out)
{
    struct varve_message message = {""};
    char *copy = malloc(count + 1); /* of just that length, for the sanitizer */
    assert_non_null(copy);
    memcpy(copy, text, count);
    const int error = figures_open("here", copy, count, known, database_out, &message);
    free(copy);
    return error;
}

/* What is read may be anything. */
TEST(test_other_bytes)
{
    static const char *const others[] = {"nothing", "", "[]", "null", "{\"varve_live\":null}", "{\"x\":2}", "\xff"};
    struct database *database = NULL;
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        assert_int_equal(open_text(others[i], strlen(others[i]), 0, &database), VARVE_ERROR_FORMAT);
        assert_null(database);
    }
    for (size_t length = 0; length + 2 < sizeof(document); length += 1 + sizeof(document) / 50) {
        assert_int_equal(open_text(document, length, 0, &database), VARVE_ERROR_FORMAT);
    }
    static const char version[] = "{\"varve_live\":99}";
    assert_int_equal(open_text(version, strlen(version), 0, &database), VARVE_ERROR_VERSION);
    static const char rows[] = "{\"varve_live\":2,\"recording\":[{\"number\":1},7],\"total\":\"text\"}";
    assert_int_equal(open_text(rows, strlen(rows), 0, &database), VARVE_ERROR_CORRUPT);
    static const char empty[] = "{\"varve_live\":2,\"recording\":[{\"number\":[1]}]}";
    assert_int_equal(open_text(empty, strlen(empty), 0, &database), VARVE_OK);
    assert_null(database); /* of moment 0 */
    assert_int_equal(open_text(empty, strlen(empty), 5, &database), VARVE_OK);
    const struct page page = {.columns = 80, .allocators = 2, .state = "", .top = 10};
    free(print(database, &page));
    database_close(database);
}

TEST(test_known_moment)
{
    struct database *database = NULL;
    assert_int_equal(open_text(document, strlen(document), 2, &database), VARVE_OK);
    assert_null(database);
}
