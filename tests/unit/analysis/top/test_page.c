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
#include "analysis/top/top_page.h"
#include "base/error.h"
#include "trace/model/domain.h"
#include "trace/model/group_leaders.h"
#include "trace/store/live_store.h"
#include "trace/store/store.h"

#include <stdlib.h>
#include <string.h>

static const char hostile[] = "evil\033[2J\r\n\t<script>\x01\xff\xc3";

static void add_callsite(struct live *live, uint32_t id, uint64_t live_bytes, uint64_t bytes, uint64_t before,
                         const char *function)
{
    const struct leader leader = {.callsite = id,
                                  .domain = id % 2 == 0 ? DOMAIN_BLOCK : DOMAIN_HEAP,
                                  .total = {.allocations = bytes / 10, .bytes = bytes, .live_bytes = live_bytes},
                                  .bytes_before = before};
    const struct store_symbol user = {
        .function = function, .file = "/a/very/long/folder/of/sources/file.c", .line = id, .module = "program"};
    const struct store_symbol symbol = {.function = "inner", .file = "inner.c", .line = 3, .module = "library"};
    assert_int_equal(live_callsite(live, &leader), VARVE_OK);
    if (function != NULL) {
        assert_int_equal(live_name(live, id, &user, &symbol), VARVE_OK);
    }
}

static void moment(struct live *live, int64_t ts_ns, uint64_t events)
{
    const struct live_moment row = {.ts_ns = ts_ns,
                                    .command = hostile,
                                    .pid = 4711,
                                    .events = events,
                                    .waiting = 5,
                                    .lost = 3,
                                    .rss_bytes = 123456789,
                                    .processes = 2,
                                    .processes_running = 1,
                                    .threads = 3};
    assert_int_equal(live_begin(live, &row), VARVE_OK);
}

static void add_totals(struct live *live, uint64_t bytes)
{
    struct total total = {.allocations = 10, .frees = 2, .bytes = bytes, .live_bytes = bytes / 2, .peak_bytes = bytes};
    assert_int_equal(live_total(live, 0, slot_of(DOMAIN_HEAP, 0), &total), VARVE_OK);
    assert_int_equal(live_total(live, 1, slot_of(DOMAIN_HEAP, 0), &total), VARVE_OK);
    assert_int_equal(live_total(live, 0, slot_of(DOMAIN_BLOCK, 1), &total), VARVE_OK);
    total.allocations = UINT64_MAX; /* of a damaged record */
    assert_int_equal(live_total(live, 0, slot_of(DOMAIN_CUPTI, 0), &total), VARVE_OK);
}

/* Two moments, a second from each other. */
static struct database *figures_make(void)
{
    const struct live_process process = {
        .id = 1, .pid = 4712, .rank = 3, .command_line = hostile, .rss_bytes = 1000000, .threads = 2};
    const struct live_allocator allocator = {.process_id = 1,
                                             .device = 1,
                                             .segments = 4,
                                             .reserved = 4000,
                                             .active = 1100,
                                             .allocated = 1000,
                                             .requested = 900};
    struct varve_message message = {""};
    struct database *database = NULL;
    struct live *live;
    assert_int_equal(live_open(&live), VARVE_OK);
    moment(live, 1000000000, 100);
    add_totals(live, 10000);
    moment(live, 2000000000, 350);
    add_totals(live, 70000);
    add_callsite(live, 1, 100, 70000, 10000, hostile);
    add_callsite(live, 2, 900, 1000, 1000,
                 "long_function_whose_name_is_much_too_long_for_any_screen_that_is_not_very_wide<int, 3>()");
    add_callsite(live, 3, 500, 600, 0, NULL);
    add_callsite(live, 0, 50, 60, 60, NULL);
    assert_int_equal(live_process(live, &process), VARVE_OK);
    assert_int_equal(live_allocator(live, &allocator), VARVE_OK);
    size_t count;
    void *bytes = live_bytes(live, &count);
    assert_non_null(bytes);
    assert_int_equal(database_open_live("here", bytes, count, &database, &message), VARVE_OK);
    live_bytes_free(bytes);
    live_close(live);
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

/* What is read may be anything. */
TEST(test_other_bytes)
{
    struct varve_message message = {""};
    struct database *database = NULL;
    assert_int_equal(database_open_live("here", "nothing", 7, &database, &message), VARVE_ERROR_FORMAT);
    struct live *live;
    assert_int_equal(live_open(&live), VARVE_OK);
    moment(live, 1, 1);
    size_t count;
    unsigned char *bytes = live_bytes(live, &count);
    assert_non_null(bytes);
    unsigned char *copy;
    for (size_t length = 0; length < count; length += 1 + count / 50) {
        copy = malloc(length + 1); /* of just that length, for the sanitizer */
        assert_non_null(copy);
        memcpy(copy, bytes, length);
        if (database_open_live("here", copy, length, &database, &message) == VARVE_OK) {
            const struct page page = {.columns = 80, .allocators = 2, .state = "", .top = 10};
            FILE *out = fopen("/dev/null", "w");
            page_head(out, database, &page);
            page_list(out, database, &page);
            fclose(out);
            database_close(database);
        }
        free(copy);
    }
    bytes[63] = 99; /* user_version */
    assert_int_equal(database_open_live("here", bytes, count, &database, &message), VARVE_ERROR_VERSION);
    bytes[71] = 99; /* application_id */
    assert_int_equal(database_open_live("here", bytes, count, &database, &message), VARVE_ERROR_FORMAT);
    live_bytes_free(bytes);
    live_close(live);
}
