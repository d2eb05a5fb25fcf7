/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve report` on GPU runs from records to words: events go through the writer, which derives the tables,
 * and the report must give the figures that were put in. How it looks is seen by the golden tests.
 */
#include <cmocka.h>

#include "support/command.h"

#include "trace/trace.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB UINT64_C(1048576)
#define SEGMENT UINT64_C(0x7f0000000000)
#define OTHER UINT64_C(0x7f0010000000)

/* ---- a run ---- */

struct scene {
    struct varve_writer *writer;
    int64_t ns;
    uint32_t callsite;
};

static void emit(struct scene *scene, enum varve_kind kind, unsigned flags, struct varve_record record)
{
    record.dev_seq_kind_flags = varve_record_tag(0, kind, flags);
    record.callsite = scene->callsite;
    scene->ns += 1000000;
    assert_int_equal(varve_writer_event(scene->writer, &record, scene->ns), 0);
}

/* A call that allocates, as the CUDA recorder reports it, and CUPTI beside it if wanted. */
static void allocate(struct scene *scene, uint64_t addr, uint64_t bytes, unsigned stream, bool with_duplicate)
{
    const struct varve_record record = {
        .addr = addr,
        .size = bytes,
        .requested = 200000,
        .id_stream = (uint64_t)stream << 48,
        .pool = VARVE_MEMORY_DEVICE << VARVE_MEMORY_KIND_SHIFT,
        .cause = VARVE_CAUSE_CUDA_MALLOC,
    };

    emit(scene, VARVE_KIND_DEV_ALLOC, 0, record);
    if (with_duplicate) {
        emit(scene, VARVE_KIND_DEV_ALLOC, VARVE_FLAG_DUPLICATE, record);
    }
}

static void release(struct scene *scene, uint64_t addr, uint64_t bytes, bool with_duplicate)
{
    struct varve_record record = {.addr = addr, .size = bytes, .cause = VARVE_CAUSE_CUDA_FREE};

    record.pool = VARVE_MEMORY_DEVICE << VARVE_MEMORY_KIND_SHIFT;
    emit(scene, VARVE_KIND_DEV_FREE, 0, record);
    if (with_duplicate) {
        emit(scene, VARVE_KIND_DEV_FREE, VARVE_FLAG_DUPLICATE, record);
    }
    emit(scene, VARVE_KIND_DEV_SYNC, 0,
         (struct varve_record){.requested = 700000, .cause = VARVE_CAUSE_CUDA_FREE});
}

static void memory_info(struct scene *scene, uint64_t free_bytes)
{
    emit(scene, VARVE_KIND_DEV_MEMORY, 0,
         (struct varve_record){
             .size = 1024 * MIB, .requested = free_bytes, .cause = VARVE_CAUSE_CU_MEM_GET_INFO});
}

static void blocks(struct scene *scene)
{
    const struct varve_record segment = {.addr = SEGMENT, .size = 20 * MIB, .requested = 20 * MIB, .arg = 1};
    const struct varve_record block = {
        .addr = SEGMENT, .size = 12 * MIB, .requested = 12 * MIB, .arg = 1, .cause = VARVE_CAUSE_NEW_SEGMENT};

    emit(scene, VARVE_KIND_SEGMENT_ALLOC, 0, segment);
    emit(scene, VARVE_KIND_SPLIT, 0,
         (struct varve_record){.addr = SEGMENT, .size = 12 * MIB, .requested = 8 * MIB, .arg = 1});
    emit(scene, VARVE_KIND_ALLOC, 0, block);
}

/* 100 MiB of the driver's own, 20 MiB in a segment, 30 MiB more on stream 3 for a while, one request too
 * large. */
static void write_run(const char *path, bool with_duplicate, bool misses_one)
{
    struct scene scene = {.ns = 0};
    struct varve_message message = {""};
    const struct varve_writer_process process = {.pid = 77, .rank = 2, .executable = "train"};
    const struct varve_writer_symbol symbol = {.function = "fill_cache", .file = "cache.cu", .line = 9};
    uint32_t frame;

    if (varve_writer_open(path, true, &scene.writer, &message) != VARVE_OK) {
        fail_msg("%s", message.text);
    }
    varve_writer_process(scene.writer, &process);
    varve_writer_device(scene.writer, 0, "Fake \033[31mGPU", 1024 * MIB);
    frame = varve_writer_symbol(scene.writer, &symbol);
    scene.callsite = varve_writer_callsite(scene.writer, &frame, 1);
    if (with_duplicate) {
        emit(&scene, VARVE_KIND_CUPTI_STATE, 0,
             (struct varve_record){.arg = 130001, .cause = VARVE_CAUSE_CUPTI_BEGIN});
    }
    memory_info(&scene, 924 * MIB);
    allocate(&scene, SEGMENT, 20 * MIB, 0, with_duplicate);
    blocks(&scene);
    allocate(&scene, OTHER, 30 * MIB, 3, with_duplicate && !misses_one);
    memory_info(&scene, 870 * MIB); /* 154 in use, 50 seen */
    release(&scene, OTHER, 30 * MIB, with_duplicate && !misses_one);
    emit(&scene, VARVE_KIND_DEV_SYNC, 0,
         (struct varve_record){.requested = 9000000, .cause = VARVE_CAUSE_CUDA_DEVICE_SYNCHRONIZE});
    emit(&scene, VARVE_KIND_DEV_OOM, VARVE_FLAG_FAILED,
         (struct varve_record){.size = 2048 * MIB,
                               .requested = 300000,
                               .arg = 2,
                               .pool = VARVE_MEMORY_DEVICE << VARVE_MEMORY_KIND_SHIFT,
                               .cause = VARVE_CAUSE_CU_MEM_ALLOC});
    memory_info(&scene, 903 * MIB); /* 121 in use, 20 seen */
    if (varve_writer_finish(scene.writer, NULL, NULL, &message) != VARVE_OK) {
        fail_msg("%s", message.text);
    }
}

static char *report(const char *option)
{
    struct command_outcome outcome = command_run("report", option, "run.db", NULL);
    char *text = outcome.out;

    if (outcome.status != 0 || outcome.err[0] != '\0') {
        fail_msg("report: status %d, %s", outcome.status, outcome.err);
    }
    outcome.out = NULL;
    command_outcome_free(&outcome);
    return text;
}

/* Words separated by any number of blanks count as equal. */
static void assert_says(const char *text, const char *words)
{
    size_t length = strlen(text);
    char *plain = malloc(length + 1);
    size_t to = 0;
    bool is_there;

    assert_non_null(plain);
    for (size_t i = 0; i < length; i++) {
        if (text[i] != ' ' || (i > 0 && text[i - 1] != ' ')) {
            plain[to++] = text[i];
        }
    }
    plain[to] = '\0';
    is_there = strstr(plain, words) != NULL;
    free(plain);
    if (!is_there) {
        fputs(text, stderr); /* print_error cuts it */
        fail_msg("'%s' is not in this report", words);
    }
}

/* ---- tests ---- */

TEST(test_text)
{
    char *text;

    write_run("run.db", false, false);
    text = report("--all");
    assert_says(text, "GPU 0 Fake ?[31mGPU, 1.00 GiB\n process 77 (rank 2)\n");
    assert_says(text, " 0 77 device 0 1 0 20.0 MiB 20.0 MiB 20.0 MiB\n");
    assert_says(text, " 0 77 device 3 1 1 30.0 MiB 30.0 MiB 0 B\n");
    assert_says(text, " 0 77 block 0 1 0 12.0 MiB 12.0 MiB 12.0 MiB\n");
    assert_says(text, " 0 cudaDeviceSynchronize 1 0 9.00 ms ");
    assert_says(text, " 0 cudaFree 1 0 700 us ");
    assert_says(text, " 0 cudaMalloc 2 0 400 us ");
    assert_says(text, " 0 cuMemAlloc 1 1 300 us ");
    assert_says(text, "allocating 700 us (");
    assert_says(text, "waiting 9.00 ms (");
    assert_says(text, " 0 77 20.0 MiB 20.0 MiB 12.0 MiB 0 B 40.0 % 8.00 MiB 1 ");
    assert_says(text, " 0 3 1.00 GiB 154 MiB 50.0 MiB 100 MiB 104 MiB 101 MiB\n");
    assert_says(
        text,
        "): cuMemAlloc of 2.00 GiB (2,147,483,648)\n CUDA_ERROR_OUT_OF_MEMORY (2)\n fill_cache cache.cu:9\n");
    assert_null(strstr(text, "\nCUPTI\n"));
    free(text);
}

TEST(test_json)
{
    char *text;

    write_run("run.db", false, false);
    text = report("--json");
    assert_says(
        text,
        "\"gpu\":{\"devices\":[{\"device\":0,\"name\":\"Fake \\u001b[31mGPU\",\"total_bytes\":1073741824,");
    assert_says(text, "\"processes\":[{\"process_id\":1,\"pid\":77,\"rank\":2}]");
    assert_says(
        text,
        "\"queries\":3,\"total\":1073741824,\"most_used\":161480704,\"attributed\":52428800,\"least\":104857600,"
        "\"most\":109051904,\"last\":105906176}");
    assert_says(text, "\"function\":\"cuMemAlloc\",\"bytes\":2147483648,\"result\":2,\"took_ns\":300000,");
    assert_says(text, "\"largest_free\":8388608,\"segments\":1}");
    assert_says(text, "\"cupti\":{\"states\":[],\"agree\":null,");
    free(text);
}

TEST(test_duplicate)
{
    char *text;

    write_run("run.db", true, false);
    text = report("--all");
    assert_says(text, "it recorded in 1 process (API version 130001)\n");
    assert_says(text, "CUDA recorder and CUPTI recorded the same 2 allocations\n");
    assert_says(text, " 0 cudaMalloc 2 0 400 us "); /* not twice */
    assert_null(strstr(text, "cupti: "));
    free(text);
    text = report("--json");
    assert_says(text, "\"agree\":true,\"by_cuda\":2,\"by_cupti\":2,\"differences\":[]");
    free(text);
    write_run("run.db", true, true);
    text = report("--all");
    assert_says(text, "the CUDA recorder has 2 allocations, CUPTI 1; they differ in 1:\n");
    assert_says(text, " 77 0 0x7f0010000000 30.0 MiB 1 0\n");
    free(text);
}

/* A database of before these views, and one without a GPU, have no such chapter and no error. */
TEST(test_nothing)
{
    static const char *const scripts[] = {"nothing.sql", NULL};
    char *text;

    assert_int_equal(remove("run.db"), 0);
    trace_database_make("run.db", scripts);
    text = report("--json");
    assert_null(strstr(text, "\"gpu\""));
    free(text);
    sql_run("run.db", "INSERT INTO device(id, name) VALUES (0, NULL)");
    text = report("--all");
    assert_says(text, "GPU 0 (no name)\n");
    free(text);
}

TEST_FILE(test_folder_setup, test_folder_teardown)
