/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All the ways in which CUPTI is not there, or not for libvarve-cupti.so, or leaves: the program goes on, and
 * its rings and one line on stderr say what became of it. Then threads, fork children and exit handlers.
 * Costs: 1 s
 */
#include "support/cuda/cupti.h"

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
