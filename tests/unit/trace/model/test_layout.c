/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The writer and the state of segments and blocks: random histories go through varve_writer into a database,
 * and at many events the layout that follows from keyframes and the events after them must be the model's,
 * block by block, with splits and merges or without. Then what damaged keyframes do, and what a writer
 * leaves behind.
 * Costs: 2 s
 */
#include "support/derive/blocks_model.h"
#include "support/query.h"
#include "trace/model/layout_state.h"
#include "trace/record.h"
#include "base/error.h"
#include "trace/layout.h"
#include "trace/record_fold.h"
#include "trace/writer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <dirent.h>
#include <sqlite3.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEVICES 2
#define MOMENTS 40

static char folder[64]; /* of each test, gone into */

struct moment {
    uint64_t seq;
    int device;
    int block_count;
    struct model_block *blocks;
};

struct run {
    struct varve_writer *writer;
    struct model_device devices[DEVICES];
    struct moment moments[MOMENTS];
    int moment_count;
    uint64_t random;
};

static int enter(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/test_layout.XXXXXX");
    return mkdtemp(folder) == NULL || chdir(folder) != 0;
}

/* The names in the folder, without those of the last step; "" if it is empty. */
static const char *only_file(void)
{
    static char name[300];
    DIR *directory = opendir(".");
    name[0] = '\0';
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        if (entry->d_name[0] != '.') {
            assert_string_equal(name, "");
            snprintf(name, sizeof(name), "%s", entry->d_name);
        }
    }
    closedir(directory);
    return name;
}

static int leave(void **state)
{
    (void)state;
    const char *name = only_file();
    if (name[0] != '\0') {
        unlink(name);
    }
    return chdir("/") != 0 || rmdir(folder) != 0;
}

static void take_record(void *context, const struct varve_record *record)
{
    struct run *run = context;
    struct varve_record named = *record;
    named.callsite = 0;
    assert_int_equal(varve_writer_event(run->writer, &named, (int64_t)varve_writer_events(run->writer) * 1000),
                     VARVE_OK);
}

static void remember(struct run *run, int device)
{
    const struct model_device *model = &run->devices[device];
    if (run->moment_count == MOMENTS) {
        return;
    }
    struct moment *moment = &run->moments[run->moment_count++];
    size_t bytes = (size_t)model->block_count * sizeof(model->blocks[0]);
    *moment =
        (struct moment){.seq = varve_writer_events(run->writer), .device = device, .block_count = model->block_count};
    moment->blocks = malloc(bytes + 1);
    assert_non_null(moment->blocks);
    memcpy(moment->blocks, model->blocks, bytes);
}

static sqlite3_stmt *query_begin(sqlite3 *db, const char *sql)
{
    sqlite3_stmt *query;
    if (sqlite3_prepare_v2(db, sql, -1, &query, NULL) != SQLITE_OK) {
        fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    }
    return query;
}

/* The layout of one allocator at an event: its last keyframe, and the events since the last of all. */
static struct varve_layout *state_at(sqlite3 *db, const struct moment *moment, int *keyframes)
{
    struct varve_layout *layout = varve_layout_new();
    uint64_t from = 0;
    sqlite3_stmt *query = query_begin(db, "SELECT max(seq) FROM keyframe WHERE seq <= ?1");
    sqlite3_bind_int64(query, 1, (int64_t)moment->seq);
    assert_int_equal(sqlite3_step(query), SQLITE_ROW);
    from = (uint64_t)sqlite3_column_int64(query, 0);
    sqlite3_finalize(query);
    *keyframes += from > 0;
    query = query_begin(db, "SELECT data FROM keyframe WHERE seq <= ?1 AND process_id = ?2 AND device = ?3"
                            " ORDER BY seq DESC LIMIT 1");
    sqlite3_bind_int64(query, 1, (int64_t)from);
    sqlite3_bind_int(query, 2, 1);
    sqlite3_bind_int(query, 3, moment->device);
    if (sqlite3_step(query) == SQLITE_ROW) {
        assert_int_equal(
            varve_layout_decode(layout, sqlite3_column_blob(query, 0), (size_t)sqlite3_column_bytes(query, 0)),
            VARVE_OK);
    }
    sqlite3_finalize(query);
    query = query_begin(db, "SELECT kind, stream, pool, id, addr, size, requested, arg, cause FROM event"
                            " WHERE seq > ?1 AND seq <= ?2 AND device = ?3 ORDER BY seq");
    sqlite3_bind_int64(query, 1, (int64_t)from);
    sqlite3_bind_int64(query, 2, (int64_t)moment->seq);
    sqlite3_bind_int(query, 3, moment->device);
    while (sqlite3_step(query) == SQLITE_ROW) {
        const struct varve_record record = {
            .dev_seq_kind_flags = varve_record_tag(0, (enum varve_kind)sqlite3_column_int(query, 0), 0),
            .id_stream = (uint64_t)sqlite3_column_int64(query, 1) << 48 | (uint64_t)sqlite3_column_int64(query, 3),
            .pool = (uint16_t)sqlite3_column_int(query, 2),
            .addr = (uint64_t)sqlite3_column_int64(query, 4),
            .size = (uint64_t)sqlite3_column_int64(query, 5),
            .requested = (uint64_t)sqlite3_column_int64(query, 6),
            .arg = (uint64_t)sqlite3_column_int64(query, 7),
            .cause = (uint8_t)sqlite3_column_int(query, 8),
        };
        assert_int_equal(varve_layout_apply(layout, &record), VARVE_OK);
    }
    sqlite3_finalize(query);
    return layout;
}

static void compare_moment(sqlite3 *db, const struct moment *moment, int *keyframes)
{
    struct varve_layout *layout = state_at(db, moment, keyframes);
    struct varve_layout_block block = {0};
    for (int i = 0; i < moment->block_count; i++) {
        const struct model_block *expected = &moment->blocks[i];
        if (expected->state < 0) {
            continue;
        }
        assert_true(varve_layout_block(layout, block.addr + block.extent, &block));
        if (block.addr != expected->addr || block.extent != expected->size || block.size != expected->size ||
            block.requested != expected->requested || (int)block.state != expected->state || block.is_implied) {
            fail_msg("at %llu: block %#llx of %llu bytes (state %d, requested %llu); expected %#llx, %llu "
                     "(%d, %llu)",
                     (unsigned long long)moment->seq, (unsigned long long)block.addr, (unsigned long long)block.extent,
                     (int)block.state, (unsigned long long)block.requested, (unsigned long long)expected->addr,
                     (unsigned long long)expected->size, expected->state, (unsigned long long)expected->requested);
        }
    }
    assert_false(varve_layout_block(layout, block.addr + block.extent, &block));
    varve_layout_free(layout);
}

/* ---- histories ---- */

static void run_history(struct run *run, uint64_t seed, bool is_silent, uint64_t events, int limit)
{
    *run = (struct run){.random = seed * 104729};
    struct varve_message message;
    assert_int_equal(varve_writer_open("trace.db", false, &run->writer, &message), VARVE_OK);
    for (unsigned d = 0; d < DEVICES; d++) {
        model_init(&run->devices[d], d, is_silent, &run->random, take_record, run);
    }
    for (int i = 0; varve_writer_events(run->writer) < events; i++) {
        /* the second device falls silent for long */
        model_step(&run->devices[i % 40000 > 20000 ? 0 : i & 1], limit);
        if (model_random(&run->devices[0], events / MOMENTS) == 0) {
            remember(run, 0);
            remember(run, 1);
        }
    }
    if (run->moment_count == MOMENTS) {
        free(run->moments[--run->moment_count].blocks); /* for the last event */
    }
    remember(run, 1);
}

static sqlite3 *run_finish(struct run *run)
{
    assert_int_not_equal(access("trace.db", F_OK), 0);
    struct varve_message message;
    assert_int_equal(varve_writer_finish(run->writer, NULL, NULL, &message), VARVE_OK);
    assert_string_equal(only_file(), "trace.db");
    sqlite3 *db;
    assert_int_equal(sqlite3_open_v2("trace.db", &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    return db;
}

TEST_WITH(test_moments, enter, leave)
{
    static const struct {
        uint64_t seed, events;
        int limit;
        bool is_silent;
    } histories[] = {{1, 2000, 30, false},   {8, 2000, 30, true},      {3, 2000, 100, false}, {4, 60000, 400, false},
                     {10, 60000, 400, true}, {6, 100000, 3000, false}, {7, 30000, 1000, true}};
    /* Without numbers a segment that gets its first piece again is taken for another one, and what unmapped
     * blocks were last asked for can be forgotten with it: with these seeds it is not. */
    static struct run run;
    for (size_t i = 0; i < sizeof(histories) / sizeof(histories[0]); i++) {
        int keyframes = 0;
        run_history(&run, histories[i].seed, histories[i].is_silent, histories[i].events, histories[i].limit);
        sqlite3 *db = run_finish(&run);
        for (int k = 0; k < run.moment_count; k++) {
            compare_moment(db, &run.moments[k], &keyframes);
            free(run.moments[k].blocks);
        }
        assert_true(histories[i].events < 10000 || keyframes > MOMENTS / 2);
        /* A tenth of the events' bytes, which are more than 60 each. */
        assert_true(query_integer(db, "SELECT coalesce(sum(length(data)), 0) FROM keyframe") <=
                    6 * query_integer(db, "SELECT max(seq) FROM event"));
        sqlite3_close(db);
        unlink("trace.db");
    }
}

/* ---- layouts ---- */

TEST_WITH(test_code, enter, leave)
{
    static struct run run;
    struct varve_layout *layout = varve_layout_new();
    struct varve_layout *copy = varve_layout_new();
    run_history(&run, 11, false, 9000, 200);
    sqlite3 *db = run_finish(&run);
    sqlite3_stmt *query = query_begin(db, "SELECT data FROM keyframe WHERE data IS NOT NULL");
    for (int i = 0; i < run.moment_count; i++) {
        free(run.moments[i].blocks);
    }
    assert_int_equal(sqlite3_step(query), SQLITE_ROW);
    size_t bytes = (size_t)sqlite3_column_bytes(query, 0);
    uint8_t *data = malloc(bytes);
    assert_non_null(data);
    memcpy(data, sqlite3_column_blob(query, 0), bytes);
    assert_int_equal(varve_layout_decode(layout, data, bytes), VARVE_OK);
    assert_int_equal(layout_check(layout), VARVE_OK);
    uint8_t *again = malloc(layout_encode_bound(layout));
    assert_non_null(again);
    assert_int_equal(layout_encode(layout, again), bytes);
    free(again);
    for (size_t cut = 0; cut < bytes; cut += cut < 200 ? 1 : 37) {
        assert_int_equal(varve_layout_decode(copy, data, cut), VARVE_ERROR_CORRUPT);
    }
    for (int i = 0; i < 20000; i++) {
        size_t at = model_random(&run.devices[0], bytes);
        uint8_t before = data[at];
        data[at] = (uint8_t)model_random(&run.devices[0], 256);
        if (varve_layout_decode(copy, data, bytes) == VARVE_OK) {
            assert_int_equal(layout_check(copy), VARVE_OK);
        }
        data[at] = i % 50 == 0 ? data[at] : before; /* damage piles up slowly */
    }
    varve_layout_free(layout);
    varve_layout_free(copy);
    free(data);
    sqlite3_finalize(query);
    sqlite3_close(db);
}

/* ---- addresses that are mapped again ---- */

#define PIECE UINT64_C(0x200000)
#define BASE UINT64_C(0x7f0000000000)

/* "mA/N map piece A in segment N, uA-B unmap pieces, aA*R hand out a piece of which R was asked for, fA free it;
 * UA*R/N: map, hand out and free; =A*R: so much was asked for what is there; #N: so many unmapped blocks are
 * remembered". */
static void play(struct varve_layout *layout, const char *words)
{
    for (const char *word = words; *word != '\0'; word += strcspn(word, " "), word += *word == ' ') {
        char *at;
        const uint64_t first = strtoull(word + 1, &at, 10);
        const uint64_t last = *at == '-' ? strtoull(at + 1, &at, 10) : first;
        const uint64_t requested = *at == '*' ? strtoull(at + 1, &at, 10) : 0;
        const uint64_t number = *at == '/' ? strtoull(at + 1, &at, 10) : 1;
        struct varve_layout_block block;
        static const struct {
            char word;
            enum varve_kind kind;
        } kinds[] = {{'m', VARVE_KIND_SEGMENT_MAP},    {'U', VARVE_KIND_SEGMENT_MAP},
                     {'u', VARVE_KIND_SEGMENT_UNMAP},  {'a', VARVE_KIND_ALLOC},
                     {'U', VARVE_KIND_ALLOC},          {'U', VARVE_KIND_FREE_REQUESTED},
                     {'U', VARVE_KIND_FREE_COMPLETED}, {'f', VARVE_KIND_FREE_COMPLETED}};
        for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
            const struct varve_record record = {.dev_seq_kind_flags = varve_record_tag(0, kinds[i].kind, 0),
                                                .addr = BASE + first * PIECE,
                                                .size = (last - first + 1) * PIECE,
                                                .requested = requested,
                                                .arg = number};
            assert_int_equal(kinds[i].word == *word ? varve_layout_apply(layout, &record) : VARVE_OK, VARVE_OK);
            assert_int_equal(layout_check(layout), VARVE_OK);
        }
        if (*word == '=') {
            assert_true(varve_layout_block(layout, BASE + first * PIECE, &block));
            assert_int_equal(block.addr, BASE + first * PIECE);
            assert_int_equal(block.requested, requested);
        } else if (*word == '#') {
            assert_int_equal(layout->unmapped.count, first);
        }
    }
}

/* What the blocks of a second expandable segment were last asked for is nothing, whatever those of the first one were
 * at its addresses. As long as a segment has any memory, its unmapped blocks keep what they were asked for. */
TEST(test_mapped_again)
{
    static const char *const cases[] = {
        "U0*1234/1 u0/1 #0 m0/2 =0*0",
        /* pieces that are unmapped one by one, with a gap that was never mapped: the segment lives */
        "U0*11 a0*11 U1*22 a1*22 U3*44 u3 #1 m3 =3*44 u3 f0 f1 u0-1 #0",
        /* two segments whose addresses touch: the end of one does not touch what the other has unmapped */
        "U0*11/1 U1*22/2 a1*22/2 U2*33/2 a2*33/2 f1*22/2 u1/2 u0/1 #1 m1/2 =1*22 m0/3 =0*0",
        /* a request of 2^64 - 1 bytes, which only a damaged trace holds, is one byte less after the unmapping */
        "U0*11 U2*18446744073709551615 u2 m2 =2*18446744073709551614",
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct varve_layout *layout = varve_layout_new();
        play(layout, cases[i]);
        assert_true(i != 1 || layout->expandable_count == 0);
        varve_layout_free(layout);
    }
}

/* ---- the writer ---- */

static const struct varve_record one_alloc = {
    .addr = 0x1000, .size = 512, .requested = 500, .dev_seq_kind_flags = (uint64_t)VARVE_KIND_ALLOC << 8};

TEST_WITH(test_rows, enter, leave)
{
    struct varve_writer *writer;
    struct varve_message message;
    const struct varve_writer_process process = {.pid = 77, .rank = 3, .command_line = "python3 train.py"};
    const struct varve_writer_symbol symbols[] = {
        {.function = "malloc", .module = "libc.so.6"},
        {.function = "main", .file = "a.c", .line = 7},
        {.function = "<module>", .file = "a.py", .line = 9, .is_python = true}};
    struct varve_record record = one_alloc;
    assert_int_equal(varve_writer_open("trace.db", false, &writer, &message), VARVE_OK);
    assert_int_equal(varve_writer_process(writer, &process), 1);
    assert_int_equal(varve_writer_meta_text(writer, "block_sizes", "requested"), VARVE_OK);
    assert_int_equal(varve_writer_meta_integer(writer, "answer", 42), VARVE_OK);
    assert_int_equal(varve_writer_device(writer, 0, "sim", 1 << 20), VARVE_OK);
    assert_int_equal(varve_writer_stream(writer, 0, 1, UINT64_C(0xffff800000000000)), VARVE_OK);
    assert_int_equal(varve_writer_pool(writer, 0, 3, 5, 6, true), VARVE_OK);
    uint32_t numbers[3];
    for (int i = 0; i < 3; i++) {
        numbers[i] = varve_writer_symbol(writer, &symbols[i]);
        assert_int_equal(varve_writer_symbol(writer, &symbols[i]), numbers[i]);
    }
    record.callsite = varve_writer_callsite(writer, numbers, 3);
    assert_int_equal(record.callsite, 1);
    assert_int_equal(varve_writer_event(writer, &record, 1000), VARVE_OK);
    assert_int_equal(varve_writer_finish(writer, NULL, NULL, &message), VARVE_OK);
    assert_string_equal(only_file(), "trace.db");
    sqlite3 *db;
    assert_int_equal(sqlite3_open_v2("trace.db", &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    assert_int_equal(query_integer(db, "SELECT count(*) FROM process WHERE pid = 77 AND rank = 3"), 1);
    assert_int_equal(query_integer(db, "SELECT handle FROM stream"), (int64_t)UINT64_C(0xffff800000000000));
    assert_int_equal(query_integer(db, "SELECT number FROM pool WHERE is_small AND capture_id = 5"), 3);
    assert_int_equal(query_integer(db, "SELECT total_bytes FROM device"), 1 << 20);
    assert_int_equal(query_integer(db, "SELECT count(*) FROM callsite_total WHERE function = 'main'"), 1);
    assert_int_equal(query_integer(db, "SELECT count(*) FROM frame"), 3);
    assert_int_equal(query_integer(db, "SELECT value FROM meta WHERE key = 'complete'"), 1);
    assert_int_equal(query_integer(db, "SELECT emitted = stored AND stored = 1 FROM thread"), 1);
    sqlite3_close(db);
}

/* Each event is of the process and thread that were entered last; a thread without events gives its row to the first
 * one that is named. */
TEST_WITH(test_processes_and_threads, enter, leave)
{
    struct varve_writer *writer;
    struct varve_message message;
    assert_int_equal(varve_writer_open("threads.db", false, &writer, &message), VARVE_OK);
    assert_int_equal(varve_writer_process(writer, &(struct varve_writer_process){.pid = 70, .rank = -1}), 1);
    assert_int_equal(varve_writer_thread(writer, 71, "worker"), 1);
    assert_int_equal(varve_writer_event(writer, &one_alloc, 1), VARVE_OK);
    assert_int_equal(varve_writer_thread(writer, 72, NULL), 2);
    assert_int_equal(varve_writer_use_thread(writer, 2), VARVE_OK);
    assert_int_equal(varve_writer_event(writer, &one_alloc, 2), VARVE_OK);
    assert_int_equal(varve_writer_process(writer, &(struct varve_writer_process){.pid = 80, .rank = 5}), 3);
    assert_int_equal(varve_writer_event(writer, &one_alloc, 3), VARVE_OK);
    assert_int_equal(
        varve_writer_process(writer, &(struct varve_writer_process){.pid = 70, .rank = -1, .executable = "a"}), 1);
    assert_int_equal(varve_writer_event(writer, &one_alloc, 4), VARVE_OK);
    assert_int_equal(varve_writer_stat(writer, "odd", true, UINT64_MAX), VARVE_OK);
    assert_int_equal(varve_writer_finish(writer, NULL, NULL, &message), VARVE_OK);
    sqlite3 *db;
    assert_int_equal(sqlite3_open_v2("threads.db", &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    query_expect(db, "SELECT pid, tid, name, emitted, stored FROM thread ORDER BY id",
                 "70 71 worker 2 2\n70 72 - 1 1\n80 80 - 1 1\n");
    query_expect(db, "SELECT pid, rank, executable FROM process ORDER BY id", "70 - a\n80 5 -\n");
    query_expect(db, "SELECT pid, tid FROM events ORDER BY seq", "70 71\n70 72\n80 80\n70 71\n");
    /* the second and the fourth end what lay at their address in the first process, not in the other one */
    query_expect(db, "SELECT pid, free_ns FROM allocation ORDER BY id", "70 2\n70 4\n80 -\n70 -\n");
    query_expect(db, "SELECT name, value = 9223372036854775807 FROM data_loss", "odd 1\n");
    sqlite3_close(db);
    assert_int_equal(varve_writer_open("none.db", false, &writer, &message), VARVE_OK);
    assert_int_equal(varve_writer_use_thread(writer, 2), VARVE_ERROR_INVALID);
    assert_int_equal(varve_writer_thread(writer, 5, NULL), 0);
    varve_writer_abandon(writer);
}

TEST_WITH(test_no_half_file, enter, leave)
{
    struct varve_writer *writer;
    struct varve_message message = {""};
    const uint32_t unknown[] = {9};
    assert_int_equal(varve_writer_open("nowhere/trace.db", false, &writer, &message), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(varve_writer_open("trace.db", false, &writer, &message), VARVE_OK);
    assert_int_equal(varve_writer_event(writer, &one_alloc, 0), VARVE_OK);
    varve_writer_abandon(writer);
    assert_string_equal(only_file(), "");
    varve_writer_abandon(NULL);
    /* the first error stays */
    assert_int_equal(varve_writer_open("trace.db", false, &writer, &message), VARVE_OK);
    assert_int_equal(varve_writer_callsite(writer, unknown, 1), 0);
    assert_int_equal(varve_writer_event(writer, &one_alloc, 0), VARVE_ERROR_INVALID);
    assert_int_equal(varve_writer_finish(writer, NULL, NULL, &message), VARVE_ERROR_INVALID);
    assert_non_null(strstr(message.text, "unknown symbols"));
    assert_string_equal(only_file(), "");
    /* what is there stays, unless it may go; also if it came meanwhile */
    assert_int_equal(varve_writer_open("trace.db", false, &writer, &message), VARVE_OK);
    FILE *file = fopen("trace.db", "w");
    assert_non_null(file);
    fputs("precious", file);
    fclose(file);
    assert_int_equal(varve_writer_finish(writer, NULL, NULL, &message), VARVE_ERROR_INVALID);
    assert_int_equal(varve_writer_open("trace.db", false, &writer, &message), VARVE_ERROR_INVALID);
    struct stat status;
    assert_int_equal(stat("trace.db", &status), 0);
    assert_int_equal(status.st_size, 8);
    assert_int_equal(varve_writer_open("trace.db", true, &writer, &message), VARVE_OK);
    assert_int_equal(varve_writer_finish(writer, NULL, NULL, &message), VARVE_OK);
    assert_int_equal(stat("trace.db", &status), 0);
    assert_true(status.st_size > 8);
    assert_string_equal(only_file(), "trace.db");
}
