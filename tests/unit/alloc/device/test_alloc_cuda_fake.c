/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The allocator on the cuda device, on a fake driver, where a program does what allocators hardly see otherwise: it
 * captures streams that the allocator does not know of, resets the GPU under it, ends the driver before the last free,
 * forks. Nothing may crash or get lost, requests that can be served are, and the others are refused in CUDA's words.
 * Costs: 1 s
 */
#include "support/cuda/fake_device.h"
#include "tests/cmocka.h"

#include <sys/wait.h>
#include <unistd.h>

/* ---- the allocator in words of a play, which closes it before the device ---- */

static struct varve_alloc *alloc;
static struct varve_message said;

static int open_with(const struct device_case *one, struct varve_device **device_out, const char *policy)
{
    const struct varve_cuda_options device = {.index = RULES_INDEX, .ordinal = FAKE_ORDINAL};
    struct varve_alloc_options options;
    fake_reset();
    varve_alloc_options_init(&options);
    options.policy = policy;
    options.memory_limit = one->limit;
    int error = cuda_device_open(&fake_driver, &device, device_out, NULL);
    fake.device = options.device = *device_out;
    return error != VARVE_OK ? error : varve_alloc_open(&options, &alloc, NULL);
}

static int open_pytorch(const struct device_case *one, struct varve_device **device_out)
{
    return open_with(one, device_out, "pytorch");
}

static int open_async(const struct device_case *one, struct varve_device **device_out)
{
    return open_with(one, device_out, "cuda-async");
}

static int check(const struct varve_device *device, struct varve_message *message)
{
    int error = varve_alloc_check(alloc, message);
    nothing_is_wrong();
    return error != VARVE_OK ? error : varve_cuda_check(device, message);
}

static void closing(void)
{
    varve_alloc_close(alloc);
    fake.device = NULL;
}

static const char *what_it_said(void)
{
    return said.text;
}

#define ALLOC_WORD(name, expression)                                             \
    static int fake_word_##name(struct device_step *step)                        \
    {                                                                            \
        struct varve_alloc_stats stats;                                          \
        assert_int_equal(varve_alloc_get_device_stats(alloc, &stats), VARVE_OK); \
        (void)step;                                                              \
        return expression;                                                       \
    }
ALLOC_WORD(give, varve_alloc_raw_delete(alloc, step->at[0], &said))
ALLOC_WORD(use, varve_alloc_record_stream(alloc, step->at[0], step->stream, &said))
ALLOC_WORD(process, varve_alloc_process_events(alloc))
ALLOC_WORD(empty, varve_alloc_empty_cache(alloc))
ALLOC_WORD(allocated, (step->out = (uint64_t)stats.allocated_bytes[0].current, VARVE_OK))
ALLOC_WORD(active, (step->out = (uint64_t)stats.active_bytes[0].current, VARVE_OK))
#undef ALLOC_WORD

/* take:BYTES@STREAM: a request that fails gives 0. */
static int fake_word_take(struct device_step *step)
{
    uint64_t addr = 1;
    int error = varve_alloc_raw_alloc_with_stream(alloc, step->at[0], step->stream, &addr, &said);
    assert_true((error == VARVE_OK) == (addr != 0));
    step->out = error == VARVE_OK ? addr : step->out;
    return error;
}

/* One that is given back at once. */
static int fake_word_serve(struct device_step *step)
{
    int error = fake_word_take(step);
    return error != VARVE_OK ? error : varve_alloc_raw_delete(alloc, step->out, &said);
}

/* clang-format off */
static const struct device_word words[] = {
    FAKE_WORDS, FAKE_WORD(give), FAKE_WORD(use), FAKE_WORD(process), FAKE_WORD(empty), FAKE_WORD(allocated),
    FAKE_WORD(active), FAKE_WORD(take), FAKE_WORD(serve), {NULL, NULL}};
/* clang-format on */

#define KIND(name_, open_, closed_)                                                                \
    {                                                                                              \
        .name = (name_), .open = (open_), .check = check, .closing = closing, .closed = (closed_), \
        .reason = what_it_said, .words = words, .stream = STREAM                                   \
    }
static const struct device_kind pytorch = KIND("pytorch", open_pytorch, nothing_is_left);
static const struct device_kind async = KIND("cuda-async", open_async, nothing_is_left);
/* Their driver has ended. */
static const struct device_kind ended[] = {KIND("pytorch", open_pytorch, nothing_is_wrong),
                                           KIND("cuda-async", open_async, nothing_is_wrong)};

/* ---- captures that the allocator does not know of ---- */

/* A block that a captured stream uses is freed: it waits for the end of the capture, and nobody else does. `records` of
 * events before that end: of the other one; and of the stream of both. */
#define CAPTURE_USES(records, more)                                                                                  \
    "a=take:5M@s b=take:5M@s use:a@0x6000 use:b@0x6010 captured:0x6000 give:a give:b process event_records?" records \
    " serve:700@s serve:700@s serve:700@s empty allocated?0 active?5M captured:0 process process active?0 "          \
    "event_records?" more
/* The request can't be served while the block waits: it is out of memory, not in trouble. */
#define NO_MEMORY \
    "a=take:22M@s use:a@0x6000 captured:0x6000 give:a take:22M@s!memory reason{pending 23068672} captured:0 serve:22M@s"

static const struct device_case pytorch_plays[] = {
    PLAY("a captured stream uses what is freed", CAPTURE_USES("1", "2")),
    PLAY("no memory during a capture", NO_MEMORY, .limit = 30 * MIB),
    PLAY("on the captured stream itself, cached and new segments are the graph's affair",
         "captured:s serve:5M@s serve:5M@s captured:0"),
};
TEST_DEVICE_PLAYS(test_pytorch, &pytorch, pytorch_plays)

static const struct device_case async_plays[] = {
    PLAY("a captured stream uses what is freed", CAPTURE_USES("3", "4")),
    PLAY("no memory during a capture", NO_MEMORY, .limit = 30 * MIB),
    PLAY("on the captured stream itself the driver's pool is not: a free is put off",
         "a=take:5M@s captured:s give:a pooled?1 take:512@s!busy reason{the device failed to allocate 512 bytes: the "
         "stream 0x5000 is being captured} serve:512@0x6000 pooled?1 captured:0 serve:512@0x6000 pooled?0"),
    PLAY("the free is on a stream that is none of the program's, which had been made to wait for all users; with the "
         "same event, and nobody waits",
         "a=take:5M@s use:a@0x6000 use:a is_event_pending:1 streams?0 give:a orders?3 free_orders?3 f=free_stream "
         "is_stream:f?1 order:0:f:s order:1:f:0 order:2:f:0x6000 event_creates?1 waits?0 pooled?0 serve:5M@s "
         "free_stream?s orders?3 empty waits?2 trims?1 empty waits?2"), /* of both that freed, and not since */
    PLAY("part of the users is waited for, then one is captured: the rest follows, once each, and the free is last",
         "a=take:5M@s use:a@0x6000 use:a@0x6010 captured:0x6010 give:a process orders?2 pooled?1 captured:0 process "
         "orders?3 free_orders?3 f=free_stream is_stream:f?1 order:0:f:s order:1:f:0x6000 order:2:f:0x6010 pooled?0"),
    PLAY("the driver has less than the limit: it is asked a second time, with its pool trimmed",
         "has_no_memory:1 take:1M!memory reason{out of memory: 1048576 bytes} trims?1 has_no_memory:0 take:1M"),
};
TEST_DEVICE_PLAYS(test_async, &async, async_plays)

/* In use at the close, or in a capture: it goes back behind all that use it, not on its own stream. */
TEST_DEVICE(test_order_of_a_close, &async)
{
    device_words(play, "a=take:5M@s use:a@0x6000");
    device_play_close(play);
    assert_int_equal(fake.orders, 2);
    assert_int_equal(fake.free_orders, 2);
    assert_int_equal(fake.order[0].other, STREAM);
    assert_int_equal(fake.order[1].other, 0x6000);
    assert_int_equal(fake.order[1].stream, fake.free_stream);
    assert_int_not_equal(fake.free_stream, STREAM);
    device_play_open(play, &async, &(const struct device_case){.what = "in a capture"});
    device_words(play, "a=take:5M@s use:a@0x6000 use:a@0x6010 captured:0x6010 give:a process orders?2 pooled?1");
    device_play_close(play);
    assert_int_not_equal(fake.free_stream, STREAM);
    assert_int_equal(fake.orders, 2);
}

/* ---- the end of the GPU and of the driver ---- */

/* A used block's event can't be recorded any more: reported, and the block is lost to nobody. */
TEST_WITH(test_end, device_play_setup, device_play_teardown)
{
    struct device_play *play = *state;
    for (size_t i = 0; i < 4; i++) {
        device_play_open(play, &ended[i % 2], &(const struct device_case){.what = "the end"});
        device_words(play, "p=take:700@s u=take:5M@s use:u@0x6000 serve:3M@s");
        fake.has_ended = i < 2;
        fake.context_result = i < 2 ? CUDA_RESULT_SUCCESS : CUDA_RESULT_CONTEXT_IS_DESTROYED;
        device_words(play, "give:u!unsupported reason{CUDA_ERROR_} give:p");
        uint64_t calls = fake.calls;
        device_words(play, "take:100M@s!unsupported reason{CUDA_ERROR_} empty!unsupported");
        assert_true(fake.calls <= calls + 1); /* the driver is left alone */
        device_play_close(play);
    }
}

TEST_WITH(test_fork_child, device_play_setup, device_play_teardown)
{
    struct device_play *play = *state;
    for (size_t i = 0; i < 2; i++) {
        int status = -1;
        device_play_open(play, i == 0 ? &pytorch : &async, &(const struct device_case){.what = "a fork child"});
        device_words(play, "a=take:5M@s");
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            uint64_t calls = fake.calls, late = 0;
            struct varve_message message = {""};
            bool is_reported = varve_alloc_raw_alloc(alloc, 200 * MIB, &late, &message) == VARVE_ERROR_UNSUPPORTED &&
                               strlen(message.text) > 10;
            varve_alloc_raw_delete(alloc, play->named[0], NULL);
            varve_alloc_empty_cache(alloc);
            varve_alloc_close(alloc);
            fake.device->ops->close(fake.device);
            _exit(is_reported && fake.calls == calls ? 0 : 1);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        device_words(play, "give:a");
        device_play_close(play);
    }
}

/* ---- settings ---- */

TEST(test_unit)
{
    const struct varve_cuda_options device = {.index = 3, .ordinal = FAKE_ORDINAL};
    struct varve_message message = {""};
    fake_reset();
    struct varve_alloc_options options;
    varve_alloc_options_init(&options);
    assert_int_equal(cuda_device_open(&fake_driver, &device, &options.device, NULL), VARVE_OK);
    options.config.expandable_segments = true;
    options.config.large_segment_size = 11 * MIB;
    options.config.max_non_split_rounding_size = 11 * MIB;
    assert_int_equal(varve_alloc_open(&options, &alloc, &message), VARVE_ERROR_INVALID);
    assert_string_equal(message.text, "expandable_segments: device cuda maps memory in pieces of 2097152 bytes; "
                                      "large_segment_size is 11534336: set large_segment_size_mb to a multiple of 2");
    options.config.large_segment_size = 12 * MIB;
    options.config.max_non_split_rounding_size = 12 * MIB;
    assert_int_equal(varve_alloc_open(&options, &alloc, &message), VARVE_OK);
    fake.device = options.device;
    uint64_t addr = 0;
    assert_int_equal(varve_alloc_raw_alloc_with_stream(alloc, 5 * MIB, STREAM, &addr, NULL), VARVE_OK);
    assert_int_equal(check(options.device, NULL), VARVE_OK);
    closing();
    options.device->ops->close(options.device);
    nothing_is_left();
}

/* ---- pages of expandable segments ---- */

static struct varve_device *open_sharing(bool shares)
{
    const struct varve_cuda_options device = {.index = 3, .ordinal = FAKE_ORDINAL, .shares = shares};
    struct varve_alloc_options options;
    fake_reset();
    varve_alloc_options_init(&options);
    assert_int_equal(cuda_device_open(&fake_driver, &device, &options.device, NULL), VARVE_OK);
    options.config.expandable_segments = true;
    assert_int_equal(varve_alloc_open(&options, &alloc, NULL), VARVE_OK);
    return fake.device = options.device;
}

static void close_sharing(struct varve_device *device)
{
    assert_int_equal(check(device, NULL), VARVE_OK);
    closing();
    device->ops->close(device);
    nothing_is_left();
}

static unsigned open_descriptors(void)
{
    unsigned count = 0;
    for (int fd = 0; fd < 256; fd++) {
        count += fcntl(fd, F_GETFD) >= 0;
    }
    return count;
}

/* A block's pages and no more, one descriptor each for as long as the memory; mapped as often as they are opened. */
TEST(test_pages)
{
    const unsigned descriptors = open_descriptors();
    struct varve_device *device = open_sharing(true);
    uint64_t front, block, opened[2];
    struct varve_alloc_pages pages, again;
    assert_int_equal(varve_alloc_raw_alloc_with_stream(alloc, 15 * MIB, STREAM, &front, NULL), VARVE_OK);
    assert_int_equal(varve_alloc_raw_alloc_with_stream(alloc, 30 * MIB, STREAM, &block, NULL), VARVE_OK);
    assert_int_equal(varve_alloc_ipc_export_pages(alloc, block, &pages), VARVE_OK);
    assert_int_equal(pages.count, 3); /* of 20 MiB: 15 to 45 MiB */
    assert_int_equal(pages.unit, 20 * MIB);
    assert_int_equal(pages.offset, 15 * MIB);
    assert_int_equal(varve_alloc_ipc_export_pages(alloc, block, &again), VARVE_OK);
    assert_memory_equal(again.fds, pages.fds, pages.count * sizeof(pages.fds[0]));
    assert_int_equal(open_descriptors(), descriptors + 3);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(varve_alloc_ipc_open_pages(alloc, &pages, &opened[i], NULL), VARVE_OK);
    }
    assert_true(opened[0] != opened[1]);
    assert_int_equal(varve_alloc_ipc_close(alloc, opened[1]), VARVE_OK);
    assert_int_equal(varve_alloc_ipc_close(alloc, opened[1]), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(varve_alloc_ipc_export_pages(alloc, block + 512, &again), VARVE_ERROR_NOT_FOUND);
    free(again.fds);
    varve_alloc_raw_delete(alloc, block, NULL);
    varve_alloc_raw_delete(alloc, front, NULL);
    assert_int_equal(varve_alloc_empty_cache(alloc), VARVE_OK);
    assert_int_equal(open_descriptors(), descriptors);
    pages.fds[2] = 250; /* as of another process that has closed it */
    assert_true(varve_alloc_ipc_open_pages(alloc, &pages, &opened[1], NULL) != VARVE_OK);
    free(pages.fds);
    close_sharing(device); /* with one open */
    assert_int_equal(open_descriptors(), descriptors);
}

/* Each call of the driver fails once: nothing is left of it. */
TEST(test_pages_fail)
{
    for (uint64_t at = 1;; at++) {
        struct varve_device *device = open_sharing(true);
        uint64_t block, opened;
        struct varve_alloc_pages pages = {0};
        assert_int_equal(varve_alloc_raw_alloc_with_stream(alloc, 50 * MIB, STREAM, &block, NULL), VARVE_OK);
        fake.fail_at = at;
        fake.fail_with = CUDA_RESULT_OUT_OF_MEMORY;
        int error = varve_alloc_ipc_export_pages(alloc, block, &pages);
        VARVE_THEN(error, varve_alloc_ipc_open_pages(alloc, &pages, &opened, NULL));
        const bool has_failed = fake.fail_at == 0;
        fake.fail_at = 0;
        assert_int_equal(error != VARVE_OK, has_failed);
        free(pages.fds);
        close_sharing(device);
        if (!has_failed) {
            assert_true(at > 10);
            return;
        }
    }
}

TEST(test_pages_are_not_there)
{
    struct varve_device *device = open_sharing(false);
    uint64_t block;
    struct varve_alloc_pages pages = {.count = 1, .unit = 20 * MIB};
    assert_int_equal(varve_alloc_raw_alloc_with_stream(alloc, 50 * MIB, STREAM, &block, NULL), VARVE_OK);
    assert_int_equal(varve_alloc_ipc_export_pages(alloc, block, &pages), VARVE_ERROR_UNSUPPORTED);
    assert_int_equal(varve_alloc_ipc_open_pages(alloc, &pages, &block, NULL), VARVE_ERROR_UNSUPPORTED);
    close_sharing(device);
}
