/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libvarve-cupti.so against a fake CUPTI: a program (programs/cuda/cupti_play.c) loads it as the driver does and
 * plays the driver's calls; the records in its rings are compared with what the CUDA recorder makes of such
 * calls. And all the ways in which CUPTI is not there, or not for us, or leaves: the program goes on, and its rings and
 * one line on stderr say what became of it. Then threads, fork children and exit handlers.
 * Costs: 2 s
 */
#include "support/cuda/cupti.h"

#define ANY UINT64_MAX
#define DUPLICATE VARVE_FLAG_DUPLICATE

/* A record that must be there. */
struct expected {
    enum varve_kind kind;
    enum varve_cause cause;
    unsigned memory, device, number; /* number: of context or pool */
    uint64_t addr, size, arg;
    unsigned stream;
    bool is_failed;
};

#define ROW(kind, cause, ...)                                      \
    {                                                              \
        VARVE_KIND_##kind, VARVE_CAUSE_##cause, __VA_ARGS__, false \
    }
#define FAILED(kind, cause, ...)                                  \
    {                                                             \
        VARVE_KIND_##kind, VARVE_CAUSE_##cause, __VA_ARGS__, true \
    }

/* ---- comparing ---- */

static void expect_field(unsigned at, const char *field, uint64_t is, uint64_t should_be)
{
    if (should_be != ANY && is != should_be) {
        fail_msg("record %u (kind %u, cause %u): %s is %#llx, not %#llx", at, varve_record_kind(&seen.records[at]),
                 seen.records[at].cause, field, (unsigned long long)is, (unsigned long long)should_be);
    }
}

static void expect_record(unsigned at, const struct expected *expected, unsigned flags)
{
    const struct varve_record *record = &seen.records[at];
    if (at >= seen.count) {
        fail_msg("record %u is not there; it should be of kind %d", at, expected->kind);
    }
    expect_field(at, "kind", varve_record_kind(record), expected->kind);
    expect_field(at, "cause", record->cause, expected->cause);
    expect_field(at, "memory", record->pool >> VARVE_MEMORY_KIND_SHIFT, expected->memory);
    expect_field(at, "number", record->pool & 0xfffU, expected->number);
    expect_field(at, "device", record->device, expected->device);
    expect_field(at, "addr", record->addr, expected->addr);
    expect_field(at, "size", record->size, expected->size);
    expect_field(at, "arg", record->arg, expected->arg);
    expect_field(at, "stream", varve_record_stream(record), expected->stream);
    expect_field(at, "flags", varve_record_flags(record), flags | (expected->is_failed ? 1U : 0U));
}

/* The first and the last records are CUPTI's own story. */
static const struct expected beginning[] = {ROW(CUPTI_STATE, CUPTI_BEGIN, 0, 0, 0, 0, 0, 130001, 0),
                                            ROW(CUPTI_STATE, CUPTI_CLOCK, 0, 0, 0, 0, 0, 0, 0)};
static const struct expected end[] = {ROW(CUPTI_STATE, CUPTI_CLOCK, 0, 0, 0, 0, 0, 0, 0),
                                      ROW(CUPTI_STATE, CUPTI_END, 0, 0, 0, 0, 0, 0, 0)};

static unsigned expect_records(unsigned at, const struct expected *expected, unsigned count, unsigned flags)
{
    for (unsigned i = 0; i < count; i++) {
        bool is_flagged = expected[i].kind != VARVE_KIND_DEVICE && expected[i].kind != VARVE_KIND_DEVICE_NAME &&
                          expected[i].kind != VARVE_KIND_STREAM;
        expect_record(at + i, &expected[i], is_flagged ? flags : 0);
    }
    return at + count;
}

/* All records of a run but the story around them. */
static void expect_all(const struct run *run, const struct expected *expected, unsigned count)
{
    unsigned flags = (run->records & VARVE_RECORDS_CUDA) != 0 ? DUPLICATE : 0;
    play(run);
    unsigned at = expect_records(0, beginning, 2, 0);
    expect_field(1, "time", seen.records[1].requested, FAKE_TIME);
    at = expect_records(at, expected, count, flags);
    at = expect_records(at, end, 2, 0);
    if (at != seen.count) {
        fail_msg("%s: %u records, %u of them not expected; the first: kind %u cause %u", run->scene, seen.count,
                 seen.count - at, varve_record_kind(&seen.records[at]), seen.records[at].cause);
    }
    if (seen.said[0] != '\0') {
        fail_msg("%s: said '%s'", run->scene, seen.said);
    }
}

#define EXPECT(name, expected, ...)                                        \
    do {                                                                   \
        const struct run run_ = {.scene = (name), __VA_ARGS__};            \
        expect_all(&run_, expected, sizeof(expected) / sizeof(*expected)); \
    } while (0)

#define ALLOC(cause, memory, addr, size) ROW(DEV_ALLOC, cause, VARVE_MEMORY_##memory, 0, 3, addr, size, 0, 0)
#define FREE(cause, memory, addr)                                     \
    ROW(DEV_FREE, cause, VARVE_MEMORY_##memory, 0, 3, addr, 0, 0, 0), \
        ROW(DEV_SYNC, cause, VARVE_MEMORY_##memory, 0, 3, 0, 0, 0, 0)
#define UUID(number) (UINT64_C(0x1010101010101010) + (number)*UINT64_C(0x0101010101010101))
#define DEVICE(number)                                                                              \
    ROW(DEVICE, NONE, 0, number, 0, UUID(number), (uint64_t)((number) + 1) << 30, UUID(number), 0), \
        ROW(DEVICE_NAME, NONE, 0, number, 0, ANY, ANY, ANY, 0)

/* ---- every function ---- */

TEST(test_linear)
{
    const struct expected expected[] = {
        DEVICE(0),
        ALLOC(CU_MEM_ALLOC, DEVICE, 0x7000000000, 4096),
        ALLOC(CU_MEM_ALLOC_PITCH, DEVICE, 0x7000001000, 5120),
        ALLOC(CU_MEM_ALLOC_MANAGED, MANAGED, 0x7000010000, 8192),
        ALLOC(CU_MEM_ALLOC_HOST, PINNED, 0x7000020000, 100),
        ALLOC(CU_MEM_HOST_ALLOC, PINNED, 0x7000030000, 200),
        ALLOC(CU_MEM_HOST_REGISTER, PINNED, 0x7000040000, 300),
        ALLOC(CU_IPC_OPEN_MEM_HANDLE, DEVICE, 0x7000050000, 0),
        FREE(CU_MEM_FREE, DEVICE, 0x7000000000),
        FREE(CU_MEM_FREE_HOST, PINNED, 0x7000020000),
        FREE(CU_MEM_HOST_UNREGISTER, PINNED, 0x7000040000),
        FREE(CU_IPC_CLOSE_MEM_HANDLE, DEVICE, 0x7000050000),
    };
    EXPECT("linear", expected, .how = NULL);
    EXPECT("linear", expected, .records = VARVE_RECORDS_CUPTI | VARVE_RECORDS_CUDA);
    EXPECT("linear", expected, .without_activity = true);
    for (unsigned i = 0; i < seen.count; i++) { /* durations: none yet where a free begins */
        if (varve_record_kind(&seen.records[i]) == VARVE_KIND_DEV_FREE) {
            assert_int_equal(seen.records[i].requested, 0);
            assert_true(seen.records[i + 1].requested < UINT64_C(100000000000));
        }
    }
}

TEST(test_arrays)
{
    const struct expected expected[] = {
        DEVICE(0),
        FAILED(DEV_ALLOC, CU_ARRAY_CREATE, VARVE_MEMORY_ARRAY, 0, 3, 0, 0, 1, 0),
        ALLOC(CU_ARRAY_CREATE, ARRAY, 0xa000, 64 * 32 * 4 * 4),
        ALLOC(CU_ARRAY_3D_CREATE, ARRAY, 0xb000, 8 * 4 * 2 * 2),
        ALLOC(CU_MIPMAPPED_ARRAY_CREATE, ARRAY, 0xc000, (64 + 8 + 2) * 2),
        ALLOC(CU_ARRAY_3D_CREATE, ARRAY, 0xd000, 0),
        FREE(CU_ARRAY_DESTROY, ARRAY, 0xa000),
        FREE(CU_MIPMAPPED_ARRAY_DESTROY, ARRAY, 0xc000),
    };
    EXPECT("arrays", expected, .how = NULL);
}

#define POOL(cause, device, arg) ROW(DEV_POOL, cause, VARVE_MEMORY_DEVICE, device, 1, 0x9000, 0, arg, 0)
#define ASYNC(cause, number, addr, size, stream) \
    ROW(DEV_ALLOC_ASYNC, cause, VARVE_MEMORY_DEVICE, 0, number, addr, size, 0, stream)
#define STREAM(number, handle) ROW(STREAM, NONE, 0, 0, 0, handle, 0, 0, number)

TEST(test_ordered)
{
    const struct expected expected[] = {
        DEVICE(1),
        POOL(CU_MEM_POOL_CREATE, 1, 0),
        DEVICE(0),
        POOL(CU_MEM_POOL_SET_ATTRIBUTE, 0, 1 << 20),
        STREAM(1, 0x55),
        ASYNC(CU_MEM_ALLOC_ASYNC, 0, 0x7100000000, 1000, 1),
        STREAM(2, 2),
        ASYNC(CU_MEM_ALLOC_ASYNC, 0, 0x7100001000, 1000, 2),
        ASYNC(CU_MEM_ALLOC_FROM_POOL_ASYNC, 1, 0x7100002000, 2000, 0),
        ROW(DEV_FREE_ASYNC, CU_MEM_FREE_ASYNC, 3, 0, 3, 0x7100000000, 0, 0, 1),
        ROW(DEV_SYNC, CU_MEM_FREE_ASYNC, 3, 0, 3, 0, 0, 0, 1),
        POOL(CU_MEM_POOL_TRIM_TO, 0, 4096),
        POOL(CU_MEM_POOL_DESTROY, 0, 0),
        ROW(DEV_POOL, CU_MEM_POOL_CREATE, VARVE_MEMORY_MANAGED, 1, 1, 0x9000, 0, 0, 0),
        ROW(DEV_ALLOC_ASYNC, CU_MEM_ALLOC_FROM_POOL_ASYNC, VARVE_MEMORY_MANAGED, 0, 1, 0x7100002000, 2000, 0, 0),
    };
    EXPECT("ordered", expected, .how = NULL);
}

#define VMM(kind, cause, device, addr, size, arg) \
    ROW(VMM_##kind, cause, VARVE_MEMORY_DEVICE, device, 3, addr, size, arg, 0)
#define VMM_FREE(kind, cause, addr, size, arg) \
    VMM(kind, cause, 0, addr, size, arg), ROW(DEV_SYNC, cause, VARVE_MEMORY_DEVICE, 0, 3, 0, 0, 0, 0)

TEST(test_virtual)
{
    const struct expected expected[] = {
        DEVICE(0),
        VMM(RESERVE, CU_MEM_ADDRESS_RESERVE, 0, 0x7200000000, 20 << 20, 0),
        DEVICE(1),
        VMM(CREATE, CU_MEM_CREATE, 1, 0, 2 << 20, 0x77),
        VMM(MAP, CU_MEM_MAP, 0, 0x7200000000, 2 << 20, 0x77),
        VMM(SET_ACCESS, CU_MEM_SET_ACCESS, 0, 0x7200000000, 2 << 20, 2),
        VMM(CREATE, CU_MEM_RETAIN_ALLOCATION_HANDLE, 0, 0, 0, 0x77),
        VMM(CREATE, CU_MEM_IMPORT_FROM_SHAREABLE_HANDLE, 0, 0, 0, 0x78),
        ROW(VMM_CREATE, CU_MEM_CREATE, VARVE_MEMORY_PINNED, 0, 3, 0, 2 << 20, 0x79, 0),
        VMM_FREE(UNMAP, CU_MEM_UNMAP, 0x7200000000, 2 << 20, 0),
        VMM_FREE(RELEASE, CU_MEM_RELEASE, 0, 0, 0x77),
        VMM_FREE(ADDRESS_FREE, CU_MEM_ADDRESS_FREE, 0x7200000000, 20 << 20, 0),
    };
    EXPECT("virtual", expected, .how = NULL);
}

TEST(test_waits)
{
    const struct expected expected[] = {
        DEVICE(0),
        ROW(DEV_SYNC, CU_CTX_SYNCHRONIZE, 0, 0, 3, 0, 0, 0, 0),
        STREAM(1, 0x55),
        ROW(DEV_SYNC, CU_STREAM_SYNCHRONIZE, 0, 0, 3, 0, 0, 0, 1),
        FAILED(DEV_SYNC, CU_EVENT_SYNCHRONIZE, 0, 0, 3, ANY, 0, 719, 0),
        ROW(DEV_MEMORY, CU_MEM_GET_INFO, 0, 0, 3, 0, 222, 0, 0),
        DEVICE(1),
        ROW(DEV_RESET, CU_DEVICE_PRIMARY_CTX_RELEASE, 0, 1, 0, 0, 0, 0, 0),
        ROW(DEV_RESET, CU_DEVICE_PRIMARY_CTX_RESET, 0, 1, 0, 0, 0, 0, 0),
        ROW(DEV_RESET, CU_CTX_DESTROY, 0, 1, 101, 0, 0, 0, 0),
    };
    EXPECT("waits", expected, .how = NULL);
    assert_int_equal(seen.records[8].requested, 111); /* bytes that are free */
}

TEST(test_failures)
{
    const struct expected expected[] = {
        DEVICE(0),
        FAILED(DEV_OOM, CU_MEM_ALLOC, 3, 0, 3, 0, 1 << 30, 2, 0),
        FAILED(DEV_ALLOC, CU_MEM_ALLOC, 3, 0, 3, 0, 0, 1, 0),
        FAILED(VMM_RESERVE, CU_MEM_ADDRESS_RESERVE, 3, 0, 3, 0, 4096, 2, 0),
        FAILED(VMM_MAP, CU_MEM_MAP, 3, 0, 3, ANY, 4096, 1, 0),
        ROW(DEV_FREE, CU_MEM_FREE, 3, 0, 3, 0x123000, 0, 0, 0),
        FAILED(DEV_FREE, CU_MEM_FREE, 3, 0, 3, ANY, 0, 1, 0),
        FAILED(DEV_SYNC, CU_MEM_FREE, 3, 0, 3, 0, 0, 1, 0),
        ROW(VMM_UNMAP, CU_MEM_UNMAP, 3, 0, 3, 0x7200000000, 4096, 0, 0),
        FAILED(VMM_UNMAP, CU_MEM_UNMAP, 3, 0, 3, ANY, 4096, 1, 0),
        FAILED(DEV_SYNC, CU_MEM_UNMAP, 3, 0, 3, 0, 0, 1, 0),
    };
    EXPECT("failures", expected, .how = NULL);
}

TEST(test_nested)
{
    const struct expected expected[] = {
        DEVICE(0),
        ALLOC(CU_MEM_ALLOC_PITCH, DEVICE, 0x7300001000, 128),
    };
    EXPECT("nested", expected, .how = NULL);
}

/* What the driver is not asked in a capture is in the first record after it. */
TEST(test_graph)
{
    const struct expected expected[] = {
        STREAM(1, 0x66),
        ASYNC(GRAPH, 0, 0x7300001000, 1000, 1),
        ROW(DEV_FREE_ASYNC, CU_MEM_FREE_ASYNC, 3, 0, 3, 0x7300001000, 0, 0, 1),
        ROW(DEV_SYNC, CU_MEM_FREE_ASYNC, 3, 0, 3, 0, 0, 0, 1),
        FAILED(DEV_ALLOC_ASYNC, GRAPH, 3, 0, 0, 0, 1000, 901, 1),
        DEVICE(0),
        ASYNC(CU_MEM_ALLOC_ASYNC, 0, 0x7300001000, 1000, 1),
        ROW(DEV_FREE_ASYNC, CU_MEM_FREE_ASYNC, 3, 0, 3, 0x7300001000, 0, 0, 1),
        ROW(DEV_SYNC, CU_MEM_FREE_ASYNC, 3, 0, 3, 0, 0, 0, 1),
        ASYNC(CU_MEM_ALLOC_ASYNC, 0, 0x7300001000, 1000, 0),
    };
    EXPECT("graph", expected, .how = NULL);
}

/* ---- activity ---- */

#define MEMORY(operation) \
    ROW(CUPTI_MEMORY, NONE, VARVE_MEMORY_DEVICE, 1, 5, 0x7000, 4096, (uint64_t)(operation) << 32 | 17, 0)
#define POOL_STATE(cause, device, size, used) \
    ROW(DEV_POOL, cause, VARVE_MEMORY_DEVICE, device, 1, 0x9000, size, used, 0)

TEST(test_activity)
{
    const struct expected expected[] = {
        MEMORY(1), POOL_STATE(POOL_CREATED, 0, 100, 50),
        MEMORY(2), POOL_STATE(NONE, 1, 300, 60),
        MEMORY(2), POOL_STATE(POOL_DESTROYED_BY_DRIVER, 0, 100, 50),
    };
    EXPECT("activity", expected, .records = VARVE_RECORDS_CUPTI | VARVE_RECORDS_CUDA);
    assert_int_equal(seen.records[2].requested, FAKE_TIME + 1);
    assert_int_equal(seen.records[3].requested, 200); /* its threshold */
}

TEST(test_activity_dropped)
{
    play(&(struct run){.scene = "flood", .how = "slow"});
    assert_int_equal(count_records(VARVE_KIND_CUPTI_MEMORY, VARVE_CAUSE_NONE), 8 * 65536 / 128);
    assert_int_equal(find_state(VARVE_CAUSE_CUPTI_DROPPED)->arg, 10);
    assert_int_equal(count_records(VARVE_KIND_CUPTI_STATE, VARVE_CAUSE_CUPTI_DROPPED), 1);
}

/* A record that names another process is none of the layout that we know. */
TEST(test_activity_garbled)
{
    play(&(struct run){.scene = "garbled"});
    assert_int_equal(count_records(VARVE_KIND_CUPTI_MEMORY, VARVE_CAUSE_NONE), 1);
    assert_int_equal(find_state(VARVE_CAUSE_CUPTI_REFUSED)->size, 49);
    assert_int_equal(find_state(VARVE_CAUSE_CUPTI_REFUSED)->arg, 130001);
}

/* A version to come: callbacks as ever, activity is not asked for. */
TEST(test_activity_unknown)
{
    play(&(struct run){.scene = "linear", .how = "future"});
    assert_int_equal(find_state(VARVE_CAUSE_CUPTI_REFUSED)->arg, 140000);
    assert_int_equal(count_records(VARVE_KIND_DEV_ALLOC, VARVE_CAUSE_CU_MEM_ALLOC), 1);
}

/* ---- not there, not for us, no longer ---- */

static void expect_refused(const struct run *run, uint64_t result, const char *said)
{
    play(run);
    assert_int_equal(seen.count, 1);
    assert_int_equal(find_state(VARVE_CAUSE_CUPTI_REFUSED)->arg, result);
    if (strstr(seen.said, said) == NULL || strncmp(seen.said, "varve: ", 7) != 0 ||
        strchr(seen.said, '\n') != seen.said + strlen(seen.said) - 1) {
        fail_msg("%s: said '%s'", said, seen.said);
    }
}

TEST(test_refused)
{
    expect_refused(&(struct run){.scene = "alone", .how = "taken"}, 39, "CUPTI for somebody");
    expect_refused(&(struct run){.scene = "alone", .how = "closed"}, 15, "CUPTI_ERROR_NOT_INITIALIZED, 15");
    expect_refused(&(struct run){.scene = "alone", .cupti_path = "/nowhere/libcupti.so"}, 0, "VARVE_CUPTI_LIBRARY");
    expect_refused(&(struct run){.scene = "alone", .cupti_path = VARVE_BUILD_DIR "/libvarve_trace.so"}, 0,
                   "CUDA 11.2 or newer");
}

/* It let us in, but sends nothing: the subscription is given back. */
TEST(test_deaf)
{
    play(&(struct run){.scene = "alone", .how = "deaf"});
    assert_int_equal(find_state(VARVE_CAUSE_CUPTI_REFUSED)->arg, 1);
    assert_int_equal(count_records(VARVE_KIND_CUPTI_STATE, VARVE_CAUSE_CUPTI_BEGIN), 0);
    assert_non_null(strstr(seen.said, "CUPTI refuses the subscription"));
    assert_int_equal(count_records(VARVE_KIND_DEV_ALLOC, VARVE_CAUSE_CU_MEM_ALLOC), 0);
}

TEST(test_not_wanted)
{
    play(&(struct run){.scene = "alone", .records = VARVE_RECORDS_CUDA});
    assert_int_equal(seen.count, 0);
    assert_string_equal(seen.said, "");
}

/* Somebody has taken LD_PRELOAD away: the library has brought a recorder. */
TEST(test_without_preload)
{
    play(&(struct run){.scene = "late", .without_preload = true, .records = VARVE_RECORDS_CUPTI | VARVE_RECORDS_CUDA});
    assert_int_equal(count_records(VARVE_KIND_DEV_ALLOC, VARVE_CAUSE_CU_MEM_ALLOC), 1);
    for (unsigned i = 0; i < seen.count; i++) { /* no other recorder: this is no mere duplicate */
        assert_int_equal(varve_record_flags(&seen.records[i]) & VARVE_FLAG_DUPLICATE, 0);
    }
    assert_int_equal(count_records(VARVE_KIND_CUPTI_STATE, VARVE_CAUSE_CUPTI_END), 1);
    assert_string_equal(seen.said, "");
}

TEST(test_release)
{
    play(&(struct run){.scene = "release"});
    assert_int_equal(count_records(VARVE_KIND_DEV_ALLOC, VARVE_CAUSE_CU_MEM_ALLOC), 1);
    assert_int_equal(count_records(VARVE_KIND_CUPTI_STATE, VARVE_CAUSE_CUPTI_END), 1);
    assert_int_equal(seen.records[seen.count - 1].cause, VARVE_CAUSE_CUPTI_END);
    assert_int_equal(seen.records[seen.count - 1].arg, 1); /* we hear of nothing more, unlike at an exit */
}

TEST(test_fatal)
{
    play(&(struct run){.scene = "fatal"});
    assert_int_equal(find_state(VARVE_CAUSE_CUPTI_FATAL)->arg, 9);
    assert_int_equal(count_records(VARVE_KIND_DEV_ALLOC, VARVE_CAUSE_CU_MEM_ALLOC), 1);
    assert_non_null(strstr(seen.said, "the GPU is gone"));
}

TEST(test_fork)
{
    play(&(struct run){.scene = "fork"});
    assert_int_equal(count_records(VARVE_KIND_DEV_ALLOC, VARVE_CAUSE_CU_MEM_ALLOC), 2);
    assert_int_equal(count_records(VARVE_KIND_CUPTI_STATE, VARVE_CAUSE_CUPTI_END), 1);
}

TEST(test_threads)
{
    play(&(struct run){.scene = "threads"});
    assert_int_equal(count_records(VARVE_KIND_DEV_ALLOC, VARVE_CAUSE_CU_MEM_ALLOC), 4 * 2000);
    assert_int_equal(count_records(VARVE_KIND_DEV_FREE, VARVE_CAUSE_CU_MEM_FREE), 4 * 2000);
    assert_int_equal(count_records(VARVE_KIND_DEV_SYNC, VARVE_CAUSE_CU_MEM_FREE), 4 * 2000);
    assert_int_equal(count_records(VARVE_KIND_DEVICE, VARVE_CAUSE_NONE), 1);
}

/* What the program frees after our last record is still recorded. */
TEST(test_late)
{
    play(&(struct run){.scene = "late"});
    assert_int_equal(count_records(VARVE_KIND_CUPTI_MEMORY, VARVE_CAUSE_NONE), 1);
    assert_int_equal(count_records(VARVE_KIND_DEV_FREE, VARVE_CAUSE_CU_MEM_FREE), 1);
    assert_int_equal(varve_record_kind(&seen.records[seen.count - 1]), VARVE_KIND_DEV_SYNC);
}

TEST_FILE(cupti_support_start, NULL)
