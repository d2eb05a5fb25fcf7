/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The views of caching allocators, storages, sizes and frames on a small trace made by hand, from its events through
 * the derivation as a collector does it. What each view gives is written out.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "support/derive/derived.h"

#define MIB UINT64_C(1048576)
#define STEP UINT64_C(0x70657473) /* "step" as a mark has it */

static sqlite3 *db; /* opened once for all tests, read-only */

#define EVENT(kind_name, cause_name, ...)                                              \
    {                                                                                  \
        .kind = VARVE_KIND_##kind_name, .cause = VARVE_CAUSE_##cause_name, __VA_ARGS__ \
    }

static const struct event script[] = {
    /* 1: two segments; a block is cut from the first, and freed; its remainder holds another one */
    EVENT(SEGMENT_ALLOC, NONE, .addr = 0x1000000, .size = 20 * MIB, .arg = 1, .dev_seq = 1),
    EVENT(SPLIT, NONE, .addr = 0x1000000, .size = 12 * MIB, .requested = 8 * MIB, .arg = 1, .dev_seq = 2),
    EVENT(ALLOC, NEW_SEGMENT, .addr = 0x1000000, .size = 12 * MIB, .requested = 12 * MIB - 100, .arg = 1, .dev_seq = 3,
          .callsite = 1),
    EVENT(SPLIT, NONE, .addr = 0x1c00000, .size = 2 * MIB, .requested = 6 * MIB, .arg = 1, .dev_seq = 4),
    EVENT(ALLOC, CACHE, .addr = 0x1c00000, .size = 2 * MIB, .requested = 2 * MIB, .arg = 1, .dev_seq = 5,
          .callsite = 2),
    /* 6 */ EVENT(SEGMENT_ALLOC, NONE, .addr = 0x8000000, .size = 4 * MIB, .arg = 2, .dev_seq = 6),
    EVENT(FREE_REQUESTED, NONE, .addr = 0x1000000, .size = 12 * MIB, .requested = 12 * MIB - 100, .arg = 1,
          .dev_seq = 7, .callsite = 3),
    EVENT(FREE_COMPLETED, NONE, .addr = 0x1000000, .size = 12 * MIB, .requested = 12 * MIB - 100, .arg = 1,
          .dev_seq = 8),
    /* 9: a request that is not served */
    EVENT(OOM_RETRY, CALLBACKS, .size = 64 * MIB, .dev_seq = 9),
    EVENT(OOM_RETRY, RELEASE_CACHED, .size = 64 * MIB, .requested = 4 * MIB, .arg = 0, .dev_seq = 10),
    EVENT(OOM, NONE, .addr = 12 * MIB, .size = 64 * MIB, .requested = 2 * MIB, .arg = 24 * MIB, .dev_seq = 11),
    /* 12: storages: the first outlives its phase, the second is destroyed, the third is a view */
    EVENT(MARK_BEGIN, NONE, .addr = STEP, .arg = 1),
    EVENT(STORAGE_CREATE, NONE, .id = 1, .addr = 0x5000, .size = 4000, .requested = 1000, .arg = 1, .callsite = 1),
    EVENT(STORAGE_CREATE, NONE, .id = 2, .addr = 0x9000, .size = 800, .requested = 200, .arg = 1, .callsite = 2),
    EVENT(VIEW, NONE, .id = 3, .addr = 0x5000, .size = 40, .arg = 1, .callsite = 2),
    EVENT(COPY, NONE, .id = 1, .addr = 0x5000, .size = 800, .requested = 2, .arg = 0x9000),
    EVENT(STORAGE_DESTROY, NONE, .id = 2, .addr = 0x9000, .size = 800),
    EVENT(MARK_END, NONE, .addr = STEP, .arg = 1),
    /* 19: the heap; who frees is not who allocated */
    EVENT(HEAP_ALLOC, MALLOC, .addr = 0x7000, .size = 100, .callsite = 1),
    EVENT(HEAP_ALLOC, MALLOC, .addr = 0x7100, .size = 128, .callsite = 2),
    EVENT(HEAP_ALLOC, MALLOC, .addr = 0x7200, .size = 129, .callsite = 2),
    EVENT(HEAP_FREE, FREE, .addr = 0x7000, .callsite = 3),
    /* 23: a graph's pool, which asks for small memory first, and one of which nothing is known */
    EVENT(POOL, NONE, .device = 1, .pool = 3, .addr = 6, .arg = 1, .dev_seq = 1),
    EVENT(SEGMENT_ALLOC, NONE, .device = 1, .pool = 3, .addr = 0x20000000, .size = 2 * MIB, .arg = 1, .dev_seq = 2,
          .callsite = 1),
    EVENT(SEGMENT_ALLOC, NONE, .device = 1, .pool = 2, .addr = 0x30000000, .size = 20 * MIB, .arg = 2, .dev_seq = 3,
          .callsite = 3),
    EVENT(SEGMENT_ALLOC, NONE, .device = 1, .pool = 4, .addr = 0x40000000, .size = 20 * MIB, .arg = 3, .dev_seq = 4),
};

/* Call site 1: a line of Python that calls into a library without symbols, as 2 does from another address of it;
 * 3: C. */
static void fill_names(struct store *store)
{
    const struct store_symbol blind = {.module = "/lib/blind.so"};
    const struct store_symbol python = {.function = "load", .file = "train.py", .line = 7, .is_python = true};
    const struct store_symbol c = {.function = "release", .file = "a.c", .line = 3, .module = "/bin/a"};
    uint32_t blind_id = store_symbol(store, &blind);
    uint32_t python_id = store_symbol(store, &python);
    uint32_t c_id = store_symbol(store, &c);
    assert_int_equal(store_symbol(store, &blind), blind_id);
    assert_int_equal(store_stack_frame(store, 1, python_id, -1), VARVE_OK);
    assert_int_equal(store_stack_frame(store, 2, blind_id, 0x10), VARVE_OK);
    assert_int_equal(store_stack_frame(store, 3, blind_id, 0x20), VARVE_OK);
    assert_int_equal(store_stack_frame(store, 4, c_id, 0x30), VARVE_OK);
    assert_int_equal(store_stack_node(store, 1, 0, 1), VARVE_OK);
    assert_int_equal(store_stack_node(store, 2, 1, 2), VARVE_OK);
    assert_int_equal(store_stack_node(store, 3, 0, 3), VARVE_OK);
    assert_int_equal(store_stack_node(store, 4, 0, 4), VARVE_OK);
    assert_int_equal(store_callsite(store, 1, 2, 2, blind_id, python_id), VARVE_OK);
    assert_int_equal(store_callsite(store, 2, 3, 1, blind_id, 0), VARVE_OK);
    assert_int_equal(store_callsite(store, 3, 4, 1, c_id, c_id), VARVE_OK);
}

static int record(void **state)
{
    test_folder_setup(state);
    struct derived derived;
    derived_begin(&derived);
    for (size_t i = 0; i < sizeof(script) / sizeof(script[0]); i++) {
        derived_event(&derived, script[i], i + 1, 1);
    }
    derived_process(&derived, (struct store_process){.id = 1, .rank = -1, .end_ns = 50000, .end_cause = "exit"});
    fill_names(derived.store);
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

TEST(test_segments)
{
    expect("SELECT seq, kind, segment_id, addr, size >> 20, other_addr, other_size >> 20 FROM block_op",
           "2 4 1 16777216 12 29360128 8\n4 4 1 29360128 2 31457280 6\n");
    expect("SELECT process_id, domain, device, seq, allocated >> 20, reserved >> 20, round(unused_share, 3) FROM "
           "fragmentation WHERE device = 0",
           "1 block 0 1 0 20 1.0\n1 block 0 3 12 20 0.4\n1 block 0 5 14 20 0.3\n"
           "1 block 0 6 14 24 0.417\n1 block 0 7 2 24 0.917\n1 block 0 8 2 24 0.917\n");
    expect("SELECT segment_id, process_id, pid, device, is_expandable, addr, size >> 20, alloc_seq FROM empty_segment",
           "2 1 101 0 0 134217728 4 6\n");
    expect("SELECT segment_id, process_id, addr, size >> 20, before_id, behind_id FROM hole",
           "1 1 16777216 12 - 2\n1 1 31457280 6 2 -\n");
    expect("SELECT seq, ts_ns, pid, tid, device, stage, bytes_asked >> 20, bytes_freed >> 20, succeeded FROM oom_retry",
           "9 9000 101 101 0 callbacks 64 0 0\n10 10000 101 101 0 release_cached 64 4 0\n");
}

TEST(test_private_pools)
{
    expect("SELECT process_id, pid, device, number, capture_id, user_id, kind, user_function, user_file, user_line, "
           "segments FROM private_pool ORDER BY number",
           "1 101 1 1 6 0 CUDA graph load train.py 7 2\n1 101 1 2 - - - - - - 1\n");
}

TEST(test_sizes)
{
    static const char *const views[] = {"size_total", "size_total_process WHERE process_id = 1 AND pid = 101"};
    for (size_t i = 0; i < 2; i++) {
        char sql[256];
        snprintf(
            sql, sizeof(sql),
            "SELECT domain, device, up_to_bytes, allocations, frees, bytes, live_allocations, live_bytes, temporary,"
            " mean_lifetime_ns FROM %s",
            views[i]);
        expect(sql, "heap 0 128 2 1 228 1 128 0 3000\nheap 0 256 1 0 129 1 129 0 -\n"
                    "block 0 2097152 1 0 2097152 1 2097152 0 -\nblock 0 16777216 1 1 12582912 0 0 0 4000\n");
    }
    expect("SELECT DISTINCT process_id FROM size_total_process", "1\n");
}

TEST(test_storages)
{
    expect("SELECT id, number, process_id, pid, kind, dtype, base_id, addr, size, elements, create_seq, destroy_seq, "
           "lifetime_ns,"
           " last_use_ns, writes, reads, is_alive, callsite_id, function, module FROM storages",
           "1 1 1 101 storage f32 - 20480 4000 1000 13 - - 16000 1 0 1 1 - /lib/blind.so\n"
           "2 2 1 101 storage f32 - 36864 800 200 14 17 3000 16000 0 1 0 2 - /lib/blind.so\n"
           "3 3 1 101 view f32 1 20480 40 10 15 - - - 0 0 1 2 - /lib/blind.so\n");
    expect("SELECT process_id, pid, kind, dtype, storages, bytes, alive, alive_bytes, unused FROM storage_total",
           "1 101 storage f32 2 4800 1 4000 0\n1 101 view f32 1 40 1 40 1\n");
    expect(
        "SELECT mark_id, name, process_id, begin_ns, end_ns, callsite_id, storages, bytes, left_over, left_over_bytes"
        " FROM storage_growth",
        "1 step 1 12000 18000 1 1 4000 1 4000\n");
    expect("SELECT storage_id, number, process_id, pid, size, callsite_id, create_ns, kind, score, evidence FROM "
           "storage_leak",
           "1 1 1 101 4000 1 13000 held by views 0.99 1 view shows 40 of its 4000 bytes; not released before the "
           "process exited\n");
    expect("SELECT process_id, pid, callsite_id, kind, storages, bytes, score, module, is_python FROM "
           "storage_leak_callsite",
           "1 101 1 held by views 1 4000 0.99 /lib/blind.so 0\n");
    expect("SELECT id FROM storage_kept", "");
}

/* A frame without a name keeps its module and its own address; lines of one module without names are one symbol. */
TEST(test_call_sites)
{
    expect("SELECT callsite_id, depth, function, file, line, module, is_python, pc FROM frame",
           "1 0 - - - /lib/blind.so 0 16\n1 1 load train.py 7 - 1 -\n"
           "2 0 - - - /lib/blind.so 0 32\n3 0 release a.c 3 /bin/a 0 48\n");
    expect("SELECT user_function, user_file, user_line, user_module, user_is_python, callsite_id, domain, bytes, "
           "function, module"
           " FROM callsite_total ORDER BY callsite_id, bytes",
           "load train.py 7 - 1 1 heap 100 - /lib/blind.so\nload train.py 7 - 1 1 block 12582912 - /lib/blind.so\n"
           "- - - /lib/blind.so 0 2 heap 257 - /lib/blind.so\n- - - /lib/blind.so 0 2 block 2097152 - /lib/blind.so\n");
    expect(
        "SELECT user_function, user_module, domain, bytes, allocations, callsite_id FROM peak ORDER BY domain, bytes",
        "- /lib/blind.so block 2097152 1 2\nload - block 12582912 1 1\n"
        "load - heap 100 1 1\n- /lib/blind.so heap 257 2 2\n");
    expect("SELECT count(*) FROM symbol WHERE module = '/lib/blind.so'", "1\n");
}

/* An event of a free has the call site of the free, and leads to the allocation with its own. */
TEST(test_frees)
{
    expect("SELECT f.seq, f.kind, f.callsite_id, a.id = f.id, a.callsite_id, a.size FROM events f JOIN allocations a ON"
           " a.free_requested_seq = f.seq ORDER BY f.seq",
           "7 free_requested 3 1 1 12582912\n22 heap_free 3 1 1 100\n");
}

TEST(test_leaks)
{
    expect("SELECT process_id, pid, begin_ns, end_ns, moment FROM leak_moment", "1 101 0 50000 end\n");
    expect(
        "SELECT domain, user_symbol_id, made_in, freed_in, blocks, bytes, first_ns, last_ns FROM leak_tenth ORDER BY "
        "1, 3",
        /* the line's time is that from the fourth of five allocations to the fifth */
        "1 1 1 11 1 128 20000 20000\n1 1 10 11 1 129 21000 21000\n4 1 1 11 1 2097152 5000 5000\n");
    expect("SELECT domain, user_function, user_module, live_allocations, live_bytes, live_4, live_5, callsite_id FROM "
           "leak_line"
           " ORDER BY domain",
           "block - /lib/blind.so 1 2097152 1 1 2\nheap - /lib/blind.so 2 257 1 1 2\n");
    expect("SELECT begin_ns, end_ns, duration_ns, processes, images, processes_running, threads FROM recording",
           "0 50000 50000 1 1 0 1\n");
}

TEST_FILE(record, forget)
