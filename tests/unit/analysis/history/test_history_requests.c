/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Databases without decisions of an allocator as histories: what a program asked of the driver, or what an import says
 * is requests; what is no request, and what can't be taken.
 * Costs: 1 s
 */
#include "support/command.h"
#include "support/history_python.h"

#include "analysis/history/history_read.h"
#include "analysis/replay/replay.h"
#include "base/error.h"
#include "trace/record.h"
#include "trace/record_fold.h"
#include "trace/writer.h"

#define DEVICE_MEMORY ((uint16_t)(VARVE_MEMORY_DEVICE << VARVE_MEMORY_KIND_SHIFT))
#define MANAGED_MEMORY ((uint16_t)(VARVE_MEMORY_MANAGED << VARVE_MEMORY_KIND_SHIFT))

struct call {
    enum varve_kind kind;
    uint64_t addr, size;
    uint16_t pool, stream;
    uint8_t device;
    int32_t pid; /* 0: the same as before */
};

static void write_calls(const char *path, const struct call *calls, size_t count, const char *requests)
{
    struct varve_message message = {""};
    struct varve_writer *writer;
    assert_int_equal(varve_writer_open(path, true, &writer, &message), VARVE_OK);
    if (requests != NULL) {
        varve_writer_meta_text(writer, "history.requests", requests);
    }
    varve_writer_stream(writer, 0, 1, 0xabc0);
    for (size_t i = 0; i < count; i++) {
        struct varve_record record = {
            .addr = calls[i].addr,
            .size = calls[i].size,
            .requested = calls[i].kind <= VARVE_KIND_FREE_COMPLETED ? calls[i].size : 5, /* else a duration */
            .id_stream = (uint64_t)calls[i].stream << 48,
            .dev_seq_kind_flags = varve_record_tag(0, calls[i].kind, 0),
            .pool = calls[i].pool,
            .device = calls[i].device,
        };
        if (calls[i].pid != 0) {
            varve_writer_process(writer, &(struct varve_writer_process){.pid = calls[i].pid, .rank = -1});
        }
        varve_writer_event(writer, &record, (int64_t)i * 1000);
    }
    assert_int_equal(varve_writer_finish(writer, NULL, NULL, &message), VARVE_OK);
}

static void expect(const char *path, const char *want)
{
    struct varve_message message = {""};
    struct history *history;
    if (history_read_database(path, &history, NULL, &message) != VARVE_OK) {
        fail_msg("%s", message.text);
    }
    assert_true(history->has_requests_only);
    char *text = print_history(history);

    if (strncmp(text, want, strlen(want)) != 0 || strncmp(text + strlen(want), "settings ", 9) != 0) {
        fail_msg("%s and not %s", text, want);
    }
    free(text);
    history_free(history);
}

TEST(test_driver)
{
    static const struct call calls[] = {
        {VARVE_KIND_DEV_ALLOC, 0x1000, 100, DEVICE_MEMORY, 0, 0, 0},
        {VARVE_KIND_DEV_ALLOC, 0x2000, 200, MANAGED_MEMORY, 0, 0, 0}, /* no device memory */
        {VARVE_KIND_DEV_ALLOC_ASYNC, 0x3000, 300, DEVICE_MEMORY, 1, 0, 0},
        {VARVE_KIND_DEV_ALLOC, 0x9000, 900, DEVICE_MEMORY, 0, 2, 0},
        {VARVE_KIND_DEV_OOM, 0, 5000, DEVICE_MEMORY, 0, 0, 0},
        {VARVE_KIND_DEV_ALLOC, 0x1000, 150, DEVICE_MEMORY, 0, 0, 0}, /* the free before it is missing */
        {VARVE_KIND_DEV_FREE_ASYNC, 0x3000, 0, DEVICE_MEMORY, 1, 0, 0},
        {VARVE_KIND_DEV_FREE, 0x7777, 0, DEVICE_MEMORY, 0, 0, 0}, /* of nothing */
    };
    write_calls("driver.db", calls, sizeof(calls) / sizeof(calls[0]), NULL);
    expect("driver.db", "device 0 0\n"
                        "e 0 4096 100 0 0\ne 0 12288 300 43968 2\ne 8 0 5000 0 4\n"
                        "e 1 4096 100 0 5\ne 2 4096 100 0 5\ne 0 4096 150 0 5\n"
                        "e 1 12288 300 43968 6\ne 2 12288 300 43968 6\n"
                        "device 0 0\ndevice 0 0\ne 0 36864 900 0 3\n");
}

TEST(test_blocks)
{
    static const struct call calls[] = {
        {VARVE_KIND_ALLOC, 0x1000, 100, 0, 1, 1, 0},
        {VARVE_KIND_DEV_ALLOC, 0x1000000, 4096, DEVICE_MEMORY, 0, 1, 0}, /* what the pool did, if it is known */
        {VARVE_KIND_OOM, 0, 7000, 0, 0, 1, 0},
        {VARVE_KIND_FREE_REQUESTED, 0x1000, 100, 0, 1, 1, 0},
        {VARVE_KIND_FREE_COMPLETED, 0x1000, 100, 0, 1, 1, 0},
    };
    write_calls("blocks.db", calls, sizeof(calls) / sizeof(calls[0]), "block");
    expect("blocks.db", "device 0 0\ndevice 0 0\n"
                        "e 0 4096 100 1 0\ne 8 0 7000 0 2\ne 1 4096 100 1 3\ne 2 4096 100 1 3\n");
}

static void refuse(const char *path, const char *word)
{
    struct varve_message message = {""};
    struct history *history;
    assert_int_not_equal(history_read_database(path, &history, NULL, &message), VARVE_OK);
    assert_null(history);
    if (strstr(message.text, word) == NULL) {
        fail_msg("%s", message.text);
    }
}

TEST(test_refused)
{
    static const struct call heap[] = {{VARVE_KIND_HEAP_ALLOC, 0x1000, 100, 0, 0, 0, 0}};
    static const struct call two[] = {{VARVE_KIND_DEV_ALLOC, 0x1000, 100, DEVICE_MEMORY, 0, 0, 5},
                                      {VARVE_KIND_DEV_ALLOC, 0x1000, 100, DEVICE_MEMORY, 0, 0, 6}};
    write_calls("heap.db", heap, 1, NULL);
    refuse("heap.db", "no events of a caching allocator");
    write_calls("two.db", two, 2, NULL);
    refuse("two.db", "2 processes");
}

/* There is nothing that could come out again, and that is said, not tried. */
TEST(test_replay)
{
    static const struct call calls[] = {{VARVE_KIND_DEV_ALLOC, 0x1000, 100, DEVICE_MEMORY, 0, 0, 0}};
    struct varve_message message = {""};
    struct replay_options options = {.follow = true};
    write_calls("one.db", calls, 1, NULL);
    struct history *history;
    assert_int_equal(history_read_database("one.db", &history, NULL, &message), VARVE_OK);
    struct replay_result result;
    assert_int_equal(replay_run(history, &options, &result, &message), VARVE_ERROR_UNSUPPORTED);
    assert_non_null(strstr(message.text, "requests only"));
    options.follow = false;
    assert_int_equal(replay_run(history, &options, &result, &message), VARVE_OK);
    assert_int_equal(result.allocations, 1);
    assert_int_equal(result.stats.allocated_bytes[VARVE_ALLOC_STAT_ALL].peak, 512);
    history_free(history);
}

TEST_FILE(test_folder_setup, test_folder_teardown)
