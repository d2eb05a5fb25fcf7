/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The views of the CUDA API on a small trace made by hand: two ranks that both call their GPU 0, one of them
 * with a caching allocator and CUPTI beside the CUDA recorder. What each view gives is written out.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "support/derive/derived.h"
#include "trace/model/device_rows.h"

#define START_REAL_NS INT64_C(1000000000000)

static sqlite3 *db; /* opened once for all tests, read-only */

#define POOL_OF(memory, number) ((unsigned)(memory) << VARVE_MEMORY_KIND_SHIFT | (number))
#define DEVICE_POOL POOL_OF(VARVE_MEMORY_DEVICE, 1)
#define W VARVE_FLAG_DUPLICATE
#define F VARVE_FLAG_FAILED
#define MIB UINT64_C(1048576)
#define GIB (1024 * MIB)

#define ROW(process, kind, cause, ...)                   \
    {                                                    \
        process, VARVE_KIND_##kind, VARVE_CAUSE_##cause, \
        {                                                \
            __VA_ARGS__                                  \
        }                                                \
    }

static const struct {
    uint32_t process;
    unsigned kind, cause;
    struct event event;
} script[] = {
    /* 1 */ ROW(1, DEVICE, NONE, .addr = 0xaa, .arg = 1, .size = 100 * GIB),
    /* 2 */ ROW(2, STREAM, NONE, .stream = 1, .addr = 777),
    /* 3 */ ROW(2, DEVICE, NONE, .addr = 0xbb, .arg = 1, .size = 100 * GIB),
    /* 4 */ ROW(1, CUPTI_STATE, CUPTI_BEGIN, .arg = 26, .requested = START_REAL_NS + 5),
    /* 5: a segment of the allocator, reported twice */
    ROW(1, DEV_ALLOC, CUDA_MALLOC, .addr = 0x100000, .size = 20 * MIB, .requested = 100, .pool = DEVICE_POOL),
    ROW(1, DEV_ALLOC, CUDA_MALLOC, .addr = 0x100000, .size = 20 * MIB, .requested = 90, .pool = DEVICE_POOL,
        .flags = W),
    ROW(1, SEGMENT_ALLOC, NONE, .addr = 0x100000, .size = 20 * MIB, .arg = 1, .dev_seq = 1),
    ROW(1, ALLOC, NEW_SEGMENT, .addr = 0x100000, .size = 12 * MIB, .requested = 12 * MIB, .arg = 1, .dev_seq = 2),
    /* 9 */ ROW(1, DEV_MEMORY, CU_MEM_GET_INFO, .size = 100 * GIB, .requested = 99 * GIB),
    /* 10: what CUPTI missed, and what it saw only itself */
    ROW(1, DEV_ALLOC, CU_MEM_ALLOC, .addr = 0x9000000, .size = GIB, .requested = 300, .pool = DEVICE_POOL),
    ROW(1, DEV_ALLOC, CU_MEM_ALLOC, .addr = 0xb000000, .size = MIB, .requested = 80, .pool = DEVICE_POOL, .flags = W),
    /* 12: the other rank, on its stream */
    ROW(2, DEV_ALLOC_ASYNC, CUDA_MALLOC_ASYNC, .addr = 0x500000, .size = 4 * MIB, .requested = 10, .stream = 1,
        .pool = POOL_OF(VARVE_MEMORY_DEVICE, 2)),
    ROW(2, DEV_ALLOC_ASYNC, CUDA_MALLOC_ASYNC, .addr = 0x600000, .size = 2 * MIB, .requested = 30, .stream = 1,
        .pool = POOL_OF(VARVE_MEMORY_DEVICE, 2)),
    ROW(2, DEV_FREE_ASYNC, CUDA_FREE_ASYNC, .addr = 0x500000, .stream = 1),
    ROW(2, DEV_SYNC, CUDA_FREE_ASYNC, .requested = 7, .stream = 1),
    ROW(2, DEV_OOM, CUDA_MALLOC, .size = 200 * GIB, .requested = 2000, .arg = 2, .flags = F, .pool = DEVICE_POOL),
    ROW(2, DEV_ALLOC, CU_MEM_ALLOC, .size = 5, .requested = 20, .arg = 201, .flags = F, .pool = DEVICE_POOL),
    /* 18: given back; it failed at first */
    ROW(1, DEV_FREE, CU_MEM_FREE, .addr = 0x9000000),
    ROW(1, DEV_FREE, CU_MEM_FREE, .addr = 0x9000000, .flags = F, .arg = 1),
    ROW(1, DEV_SYNC, CU_MEM_FREE, .requested = 60, .flags = F),
    ROW(1, DEV_FREE, CU_MEM_FREE, .addr = 0x9000000),
    ROW(1, DEV_SYNC, CU_MEM_FREE, .requested = 40),
    /* 23: waiting */
    ROW(1, DEV_SYNC, CUDA_STREAM_SYNCHRONIZE, .requested = 5000, .stream = 3),
    ROW(1, DEV_SYNC, CUDA_STREAM_SYNCHRONIZE, .requested = 1000, .stream = 3),
    /* 25: activity records and pools of CUPTI */
    ROW(1, CUPTI_MEMORY, NONE, .addr = 0x100000, .size = 20 * MIB, .requested = START_REAL_NS + 4900,
        .arg = UINT64_C(1) << 32 | 41, .pool = POOL_OF(VARVE_MEMORY_DEVICE, 0)),
    ROW(1, CUPTI_MEMORY, NONE, .addr = 0x700000, .size = MIB, .requested = START_REAL_NS + 5100,
        .arg = UINT64_C(2) << 32 | 42, .pool = POOL_OF(VARVE_MEMORY_PINNED, 0)),
    ROW(1, DEV_POOL, POOL_TRIMMED, .addr = 0xf00, .size = 3 * MIB, .requested = MIB, .arg = 2 * MIB, .pool = 4),
    ROW(1, DEV_POOL, NONE, .addr = 0xf00, .size = 5 * MIB, .requested = MIB, .arg = 2 * MIB, .pool = 4),
    /* 29: physical memory of rank 2 */
    ROW(2, VMM_CREATE, CU_MEM_CREATE, .size = 2 * MIB, .arg = 0x77, .requested = 11, .pool = DEVICE_POOL),
    ROW(2, VMM_MAP, CU_MEM_MAP, .addr = 0x40000000, .size = 2 * MIB, .arg = 0x77, .requested = 3),
    ROW(2, DEV_MEMORY, CU_MEM_GET_INFO, .size = 100 * GIB, .requested = 90 * GIB),
    /* 32 */ ROW(2, DEV_RESET, CUDA_DEVICE_RESET, .requested = 900),
    ROW(1, DEV_MEMORY, CU_MEM_GET_INFO, .size = 100 * GIB, .requested = 98 * GIB),
    ROW(1, HEAP_ALLOC, MALLOC, .addr = 0x1000, .size = 10),
    /* 35 */ ROW(1, CUPTI_STATE, CUPTI_END, .arg = 0),
};

static int record(void **state)
{
    test_folder_setup(state);
    struct derived derived;
    derived_begin(&derived);
    for (size_t i = 0; i < sizeof(script) / sizeof(script[0]); i++) {
        struct event event = script[i].event;
        event.kind = (uint8_t)script[i].kind;
        event.cause = (uint8_t)script[i].cause;
        derived_event(&derived, event, i + 1, script[i].process);
    }
    for (uint32_t i = 1; i <= 2; i++) {
        derived_process(&derived, (struct store_process){.id = i, .rank = (int32_t)i - 1, .end_ns = 100000});
    }
    assert_int_equal(store_meta_integer(derived.store, "start_real_ns", START_REAL_NS), VARVE_OK);
    db = derived_end(&derived);
    return 0;
}

static int forget(void **state)
{
    sqlite3_close(db);
    return test_folder_teardown(state);
}

static void expect(const char *sql, const char *rows)
{
    query_expect(db, sql, rows);
}

TEST(test_devices)
{
    expect("SELECT id, total_bytes >> 30, uuid FROM device", "0 100 GPU-aa000000-0000-0000-0100-000000000000\n"
                                                             "1 100 GPU-bb000000-0000-0000-0100-000000000000\n");
    expect("SELECT process_id, ordinal, device FROM process_device", "1 0 0\n2 0 1\n");
    expect("SELECT device, process_id, pid, rank, ordinal FROM device_process", "0 1 101 0 0\n1 2 102 1 0\n");
    expect("SELECT * FROM stream", "2 1 1 777\n");
    expect("SELECT DISTINCT process_id, device FROM allocation WHERE device IS NOT NULL ORDER BY 1", "1 0\n2 1\n");
}

TEST(test_calls)
{
    expect("SELECT process_id, device, activity, function, calls, failed, total_ns, mean_ns, max_ns, bytes >> 20"
           " FROM device_call ORDER BY 1, 3, 4",
           "1 0 allocate cuMemAlloc 1 0 300 300 300 1024\n"
           "1 0 allocate cudaMalloc 1 0 100 100 100 20\n"
           "1 0 free cuMemFree 2 1 100 50 60 2048\n"
           "1 0 wait cudaStreamSynchronize 2 0 6000 3000 5000 0\n"
           "2 1 allocate cuMemAlloc 1 1 20 20 20 0\n"
           "2 1 allocate cuMemCreate 1 0 11 11 11 2\n"
           "2 1 allocate cuMemMap 1 0 3 3 3 2\n"
           "2 1 allocate cudaMalloc 1 1 2000 2000 2000 0\n"
           "2 1 allocate cudaMallocAsync 2 0 40 20 30 6\n"
           "2 1 free cudaFreeAsync 1 0 7 7 7 4\n"
           "2 1 other cudaDeviceReset 1 0 900 900 900 0\n");
    expect("SELECT process_id, device, stream, handle, calls, failed, allocate_ns, free_ns, wait_ns, other_ns"
           " FROM device_time ORDER BY 1, 3",
           "1 0 0 0 4 1 400 100 0 0\n"
           "1 0 3 - 2 0 0 0 6000 0\n"
           "2 1 0 0 5 2 2034 0 0 900\n"
           "2 1 1 777 3 0 40 7 0 0\n");
    expect("SELECT seq, process_id, pid, device, kind, function, bytes, result, took_ns FROM device_failure",
           "16 2 102 1 dev_oom cudaMalloc 214748364800 2 2000\n17 2 102 1 dev_alloc cuMemAlloc 5 201 20\n");
}

TEST(test_memory)
{
    expect("SELECT seq, process_id, device, total >> 30, free >> 30, used >> 20, attributed >> 20, unattributed >> 20"
           " FROM device_unattributed",
           "9 1 0 100 99 1024 20 1004\n"
           "31 2 1 100 90 10240 4 10236\n"
           "33 1 0 100 98 2048 20 2028\n");
    expect("SELECT process_id, domain, device, stream, handle, allocations, frees, bytes >> 20, live_bytes "
           ">> 20,"
           " peak_bytes >> 20 FROM stream_total ORDER BY 1, 2, 4",
           "1 block 0 0 0 1 0 12 12 12\n"
           "1 device 0 0 0 2 1 1044 20 1044\n"
           "2 device 1 0 0 1 1 2 0 2\n"
           "2 device 1 1 777 2 2 6 0 6\n");
    expect("SELECT process_id, pid, device, peak_reserved >> 20, seq, allocated >> 20, active >> 20,"
           " device_bytes >> 20, live_segments, live_reserved >> 20, live_allocated >> 20, live_device_bytes "
           ">> 20"
           " FROM device_segment",
           "1 101 0 20 7 0 0 20 1 20 12 20\n");
    expect("SELECT seq, process_id, kind, function, handle, addr, size >> 20, allocation_id, failed, is_duplicate"
           " FROM vmm",
           "29 2 vmm_create cuMemCreate 119 - 2 8 0 0\n30 2 vmm_map cuMemMap 119 1073741824 2 8 0 0\n");
    expect("SELECT domain, memory_kind, pool, count(*) FROM allocations WHERE domain IN ('device', 'heap')"
           " GROUP BY 1, 2, 3",
           "device 3 1 3\ndevice 3 2 2\nheap - - 1\n");
}

TEST(test_cupti)
{
    expect("SELECT process_id, pid, device, allocations, frees, bytes >> 20, peak_bytes >> 20, failed FROM cupti_total",
           "1 101 0 2 0 21 21 0\n");
    expect("SELECT seq, process_id, device, op, addr, size >> 20, memory_kind, correlation_id, time_ns"
           " FROM cupti_memory",
           "25 1 0 allocation 1048576 20 3 41 4900\n26 1 0 release 7340032 1 2 42 5100\n");
    expect("SELECT seq, process_id, pool, handle, op, bytes >> 20, release_threshold >> 20, used_bytes >> 20"
           " FROM cupti_pool",
           "27 1 4 3840 pool_trimmed 3 1 2\n28 1 4 3840 changed 5 1 2\n");
    expect("SELECT seq, process_id, pid, state, arg, time_ns FROM cupti_state",
           "4 1 101 cupti_begin 26 5\n35 1 101 cupti_end 0 -\n");
    expect("SELECT process_id, pid, device, addr, size >> 20, by_cuda, by_cupti FROM cupti_difference ORDER "
           "BY addr",
           "1 101 0 150994944 1024 1 0\n1 101 0 184549376 1 0 1\n");
}

/* None of them may look for its few events among all. */
TEST(test_no_view_reads_all_events)
{
    static const char *const views[] = {"device_process", "device_call",    "device_time",         "stream_total",
                                        "device_failure", "device_segment", "device_unattributed", "vmm",
                                        "cupti_memory",   "cupti_pool",     "cupti_state",         "cupti_difference"};
    for (size_t i = 0; i < sizeof(views) / sizeof(views[0]); i++) {
        char sql[96];
        snprintf(sql, sizeof(sql), "EXPLAIN QUERY PLAN SELECT * FROM %s", views[i]);
        sqlite3_stmt *query;
        assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &query, NULL), SQLITE_OK);
        while (sqlite3_step(query) == SQLITE_ROW) {
            const char *step = (const char *)sqlite3_column_text(query, 3);
            bool is_large = strncmp(step, "SCAN e", 6) == 0 && (step[6] == '\0' || step[6] == ' ');
            is_large = is_large || (strncmp(step, "SCAN a", 6) == 0 && (step[6] == '\0' || step[6] == ' '));
            if (is_large || strstr(step, "SCAN event ") != NULL || strstr(step, "SCAN allocation") != NULL) {
                fail_msg("%s: %s", views[i], step);
            }
        }
        sqlite3_finalize(query);
    }
}

TEST_FILE(record, forget)
