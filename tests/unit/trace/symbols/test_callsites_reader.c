/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading and numbering call sites: equal stacks of two processes, files that grow, files that are damaged,
 * recordings that are continued. The files are made by hand. Rows and names: test_callsites_output.c.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "support/callsites.h"
#include "support/query.h"
#include "support/random.h"
#include "base/error.h"
#include "trace/format/callsite_format.h"
#include "trace/store/store.h"
#include "trace/callsites/callsites.h"
#include "trace/callsites/callsite_reader.h"

#include <malloc.h>
#include <unistd.h>

static struct store *store;
static char store_path[600];

/* The transaction before is committed, as if the collector had died after it. */
static void store_again(enum store_mode mode)
{
    if (store != NULL) {
        assert_int_equal(store_commit(store, NULL, 0, NULL), VARVE_OK);
        store_close(store);
    }
    snprintf(store_path, sizeof(store_path), "%s/trace.db", callsite_file_folder());
    assert_int_equal(store_open(store_path, mode, &store, NULL), VARVE_OK);
}

static void expect_origins(const char *rows)
{
    sqlite3 *db;
    assert_int_equal(store_commit(store, NULL, 0, NULL), VARVE_OK);
    assert_int_equal(store_wait(store, NULL), VARVE_OK);
    assert_int_equal(sqlite3_open(store_path, &db), SQLITE_OK);
    query_expect(db, "SELECT * FROM callsite_origin ORDER BY 1", rows);
    sqlite3_close(db);
}

/* A reader of one file, or of two. */
static struct callsites *open_files(const struct writer *a, const struct writer *b)
{
    struct callsites *callsites;
    assert_int_equal(callsites_open(&callsites), VARVE_OK);
    assert_int_equal(callsites_process(callsites, 1, a->path), VARVE_OK);
    assert_int_equal(b != NULL ? callsites_process(callsites, 2, b->path) : VARVE_OK, VARVE_OK);
    return callsites;
}

/* What call sites `first` to `last` of a process are. */
static void expect_numbers(struct callsites *callsites, uint32_t process, uint32_t first, uint32_t last,
                           const char *expected)
{
    char text[128] = "";
    for (uint32_t i = first; i <= last; i++) {
        snprintf(text + strlen(text), 16, "%s%u", i > first ? " " : "", callsites_global(callsites, process, i));
    }
    assert_string_equal(text, expected);
}

TEST(test_equal_stacks_of_two_processes)
{
    const struct callsite_file_python python[2] = {{1, 10}, {1, 12 | CALLSITE_FILE_PYTHON_ENTRY}};
    const struct callsite_file_python other[2] = {{7, 10}, {7, 12 | CALLSITE_FILE_PYTHON_ENTRY}};
    const struct callsite_file_python inner[2] = {{7, 10}, {7, 12}};
    const uint64_t first[2] = {0x10500, 0x20100}, second[2] = {0x70500, 0x90100};
    struct writer a = writer_open("same.a");
    struct writer b = writer_open("same.b");
    put_module(&a, 0, 0x10000, 0x1000, 0x10000, "/bin/x", "idid");
    put_module(&a, 1, 0x20000, 0x1000, 0x20000, "/lib/y", "");
    put_module(&b, 0, 0x90000, 0x1000, 0x90000, "/lib/y", "");
    put_module(&b, 1, 0x70000, 0x1000, 0x70000, "/bin/x", "idid");
    put_module(&b, 2, 0x80000, 0x1000, 0x80000, "/bin/x", "else");
    put_code(&a, 1, "f", "m.py");
    put_code(&b, 7, "f", "m.py");
    put_callsite(&a, 1, first, 2, python, 2);
    put_callsite(&b, 5, second, 2, other, 2);
    put_callsite(&b, 6, second, 2, inner, 2); /* another entry flag */
    put_native(&a, 2, 0x10500);
    put_native(&b, 7, 0x80500); /* same path and address, other build id */
    put_native(&b, 8, 0x70500);
    put_callsite(&a, 3, NULL, 0, python, 2);
    put_callsite(&b, 9, NULL, 0, other, 2);

    struct callsites *callsites = open_files(&a, NULL);
    assert_int_equal(callsites_process(callsites, 3, b.path), VARVE_OK);
    assert_int_equal(callsites_process(callsites, 3, b.path), VARVE_ERROR_INVALID);
    assert_int_equal(callsites_process(callsites, 0, b.path), VARVE_ERROR_INVALID);
    expect_numbers(callsites, 2, 1, 1, "0");
    expect_numbers(callsites, 99, 1, 1, "0");
    expect_numbers(callsites, 1, 0, 4, "0 1 2 3 0");
    expect_numbers(callsites, 3, 5, 9, "1 4 5 2 3");
    callsites_process_end(callsites, 1);
    callsites_process_end(callsites, 77);
    expect_numbers(callsites, 1, 0, 4, "0 1 2 3 0");
    callsites_close(callsites);
    fclose(a.stream);
    fclose(b.stream);
}

/* One byte more at a time: a site is known exactly when its entry is complete. */
TEST(test_growing_file)
{
    struct writer whole = writer_open("whole");
    put_module(&whole, 0, 0x1000, 0x1000, 0, "/bin/grow", "0123456789");
    long complete[4];
    for (uint32_t i = 1; i <= 3; i++) {
        put_native(&whole, i, 0x1000 + 8 * i);
        complete[i] = ftell(whole.stream);
    }
    char bytes[4096];
    size_t count = writer_close(&whole, bytes, sizeof(bytes));
    struct writer part;
    snprintf(part.path, sizeof(part.path), "%s/part", callsite_file_folder());
    struct callsites *callsites = open_files(&part, NULL);
    assert_int_equal(callsites_global(callsites, 1, 1), 0); /* not there yet */
    part = writer_open("part");
    for (size_t at = 0; at < count; at++) {
        put(&part, bytes + at, 1);
        assert_int_equal(fflush(part.stream), 0);
        for (uint32_t i = 1; i <= 3; i++) {
            assert_int_equal(callsites_global(callsites, 1, i), (long)at + 1 >= complete[i] ? i : 0);
        }
    }
    fclose(part.stream);
    callsites_process_end(callsites, 1);
    assert_int_equal(callsites->processes[1]->errors, 0);
    callsites_close(callsites);
}

TEST(test_resume_keeps_numbers)
{
    struct writer a = writer_open("resume.a");
    struct writer b = writer_open("resume.b");
    store_again(STORE_CREATE);
    put_native(&a, 1, 0x111);
    put_native(&b, 1, 0x222);
    put_native(&b, 2, 0x111);
    struct callsites *callsites = open_files(&a, &b);
    expect_numbers(callsites, 2, 1, 1, "1"); /* the second file is read first */
    expect_numbers(callsites, 1, 1, 1, "2");
    assert_int_equal(callsites_commit(callsites, store), VARVE_OK);
    assert_int_equal(callsites_commit(callsites, store), VARVE_OK);
    expect_origins("1 2 1 2\n");
    put_native(&b, 3, 0x333);
    put_native(&a, 2, 0x444);
    expect_numbers(callsites, 2, 3, 3, "3");
    assert_int_equal(callsites_commit(callsites, store), VARVE_OK);
    expect_numbers(callsites, 1, 2, 2, "4"); /* never committed: the collector dies */
    expect_origins("1 2 1 2\n3 2 3 1\n");
    callsites_close(callsites);

    put_native(&a, 3, 0x555);
    put_native(&a, 4, 0x222);
    store_again(STORE_RESUME);
    callsites = open_files(&a, &b);
    assert_int_equal(callsites_resume(callsites, store, NULL), VARVE_OK);
    expect_numbers(callsites, 2, 1, 3, "1 2 3");
    expect_numbers(callsites, 1, 1, 4, "2 4 5 1");
    put_native(&b, 4, 0x333);
    put_native(&b, 5, 0x666);
    expect_numbers(callsites, 2, 4, 5, "3 6");
    assert_int_equal(callsites_commit(callsites, store), VARVE_OK);
    expect_origins("1 2 1 2\n3 2 3 1\n4 1 2 2\n6 2 5 1\n");
    callsites_close(callsites);

    /* The second file is gone: numbers that came from it stay, with empty stacks. */
    assert_int_equal(unlink(b.path), 0);
    store_again(STORE_RESUME);
    callsites = open_files(&a, &b);
    assert_int_equal(callsites_resume(callsites, store, NULL), VARVE_OK);
    expect_numbers(callsites, 1, 1, 4, "7 4 5 8");
    for (uint32_t i = 1; i <= 6; i++) {
        assert_int_equal(callsites->stacks.pairs[i - 1].first != 0, i == 4 || i == 5);
    }
    callsites_close(callsites);

    /* Numbers that cannot be: the database is damaged. */
    assert_int_equal(store_commit(store, NULL, 0, NULL), VARVE_OK);
    assert_int_equal(store_wait(store, NULL), VARVE_OK);
    sqlite3 *db;
    assert_int_equal(sqlite3_open(store_path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "UPDATE callsite_origin SET callsite_id = 77 WHERE callsite_id = 3", 0, 0, 0),
                     SQLITE_OK);
    sqlite3_close(db);
    store_again(STORE_RESUME);
    callsites = open_files(&a, &b);
    assert_int_equal(callsites_resume(callsites, store, NULL), VARVE_ERROR_CORRUPT);
    callsites_close(callsites);
    store_close(store);
    fclose(a.stream);
    fclose(b.stream);
}

/* ---- nodes ---- */

static void put_nodes(struct writer *writer, uint32_t tag, uint32_t first, uint32_t parent, const uint64_t *frames,
                      unsigned count)
{
    const struct callsite_file_nodes chain = {first, parent};
    put_head(writer, tag, sizeof(chain) + count * sizeof(*frames));
    put(writer, &chain, sizeof(chain));
    put(writer, frames, count * sizeof(*frames));
    put_padding(writer, 0);
}

static void put_site(struct writer *writer, uint32_t number, uint32_t native, uint32_t python)
{
    const struct callsite_file_site site = {number, native, python, 0};
    put_head(writer, CALLSITE_FILE_TAG_SITE, sizeof(site));
    put(writer, &site, sizeof(site));
    put_padding(writer, 0);
}

/* What a listener got: call sites only. */
struct heard {
    unsigned count;
    struct unroll_stack stacks[4];
};

static void hear(void *context, uint32_t process_id, const struct callsite_file_entry *entry, const uint8_t *payload)
{
    struct heard *heard = context;
    assert_int_equal(process_id, 1);
    if (entry->tag == CALLSITE_FILE_TAG_STACK) {
        assert_true(heard->count < 4);
        heard->stacks[heard->count].entry = *entry;
        memcpy(&heard->stacks[heard->count++].stack, payload, entry->bytes);
    }
}

/* Stacks of nodes are those of the same frames as lists, and are told as lists. */
TEST(test_nodes)
{
    const uint64_t outer[] = {0x300, 0x200}, inner = 0x100, lines[] = {0x500000000, 0x700000000};
    const uint64_t list[] = {0x100, 0x200, 0x300};
    const struct callsite_file_python python[] = {{0, 7}, {0, 5}};
    static struct heard heard;
    struct writer writer = writer_open("nodes");
    put_nodes(&writer, CALLSITE_FILE_TAG_NATIVE, 1, 0, outer, 2);
    put_nodes(&writer, CALLSITE_FILE_TAG_PYTHON, 3, 0, lines, 2);
    put_nodes(&writer, CALLSITE_FILE_TAG_NATIVE, 5, 2, &inner, 1);
    put_site(&writer, 1, 5, 4);
    put_callsite(&writer, 2, list, 3, python, 2);
    put_site(&writer, 3, 2, 0);
    put_callsite(&writer, 4, list + 1, 2, NULL, 0);
    struct callsites *callsites = open_files(&writer, NULL);
    callsites_listen(callsites, hear, &heard);
    expect_numbers(callsites, 1, 1, 4, "1 1 2 2");
    assert_int_equal(callsites->nodes.count, 5);
    for (unsigned round = 0; round < 2; round++) {
        assert_int_equal(heard.count, 4);
        for (unsigned i = 0; i < 4; i++) {
            assert_int_equal(heard.stacks[i].stack.callsite, i + 1);
        }
        heard.stacks[0].stack.callsite = 2;
        assert_memory_equal(&heard.stacks[0], &heard.stacks[1], 8 + heard.stacks[1].entry.bytes);
        heard.stacks[2].stack.callsite = 4;
        assert_memory_equal(&heard.stacks[2], &heard.stacks[3], 8 + heard.stacks[3].entry.bytes);
        heard.count = 0;
        callsites_replay(callsites);
    }
    /* All that was not kept is one call site. */
    assert_int_equal(callsites_global(callsites, 1, CALLSITE_FILE_NOT_KEPT), 3);
    assert_int_equal(callsites_global(callsites, 1, CALLSITE_FILE_NOT_KEPT), 3);
    assert_int_equal(callsites->processes[1]->errors, 0);
    assert_int_equal(callsites->processes[1]->unknown, 0);
    callsites_close(callsites);
    fclose(writer.stream);
}

TEST(test_senseless_nodes)
{
    const uint64_t frame = 0x100, line = 0x500000000;
    struct writer writer = writer_open("senseless");
    put_nodes(&writer, CALLSITE_FILE_TAG_NATIVE, 1, 0, &frame, 1);
    put_nodes(&writer, CALLSITE_FILE_TAG_NATIVE, 2, 3, &frame, 1); /* no such parent */
    put_nodes(&writer, CALLSITE_FILE_TAG_NATIVE, 2, 2, &frame, 1); /* its own */
    put_nodes(&writer, CALLSITE_FILE_TAG_PYTHON, 2, 1, &line, 1);  /* of the other kind */
    put_nodes(&writer, CALLSITE_FILE_TAG_NATIVE, 1, 0, &line, 1);  /* a second time */
    put_nodes(&writer, CALLSITE_FILE_TAG_NATIVE, 0, 0, &frame, 1);
    put_nodes(&writer, CALLSITE_FILE_TAG_NATIVE, UINT32_MAX, 0, &frame, 1);
    put_nodes(&writer, CALLSITE_FILE_TAG_NATIVE, CALLSITE_FILE_NUMBER_MAX, 0, &frame, 1); /* far from all others */
    put_site(&writer, 1, 2, 0);
    put_site(&writer, 1, 0, 1);
    put_site(&writer, 1, UINT32_MAX, 0);
    put_site(&writer, 1, 1, 0);
    struct callsites *callsites = open_files(&writer, NULL);
    assert_int_equal(callsites_global(callsites, 1, 1), 1);
    assert_int_equal(callsites->processes[1]->errors, 10);
    assert_int_equal(((const struct callsites_frame *)callsites->frames.bytes)[0].position, 0x100);
    assert_int_equal(callsites->stacks.pairs[1 - 1].first, 1);
    callsites_close(callsites);
    fclose(writer.stream);
}

/* ---- damage ---- */

static void check_damaged(const struct writer *writer, uint32_t known)
{
    struct callsites *callsites = open_files(writer, NULL);
    for (uint32_t i = 1; i <= 3; i++) {
        assert_int_equal(callsites_global(callsites, 1, i) != 0, i <= known);
    }
    callsites_process_end(callsites, 1);
    assert_true(callsites->processes[1]->errors > 0);
    assert_int_equal(callsites->processes[1]->unknown, 3 - known);
    callsites_close(callsites);
}

TEST(test_damage_ends_the_file)
{
    static const struct {
        uint32_t tag, bytes;
    } heads[] = {{10, 8},
                 {CALLSITE_FILE_TAG_SITE, 8},
                 {CALLSITE_FILE_TAG_NATIVE, 0},
                 {CALLSITE_FILE_TAG_PYTHON, 0},
                 {0, 8},
                 {CALLSITE_FILE_TAG_STACK, 12},
                 {CALLSITE_FILE_TAG_STACK, 0},
                 {CALLSITE_FILE_TAG_STACK, 16},
                 {CALLSITE_FILE_TAG_MODULE, 8},
                 {CALLSITE_FILE_TAG_MODULE, 32},
                 {CALLSITE_FILE_TAG_CODE, 0},
                 {CALLSITE_FILE_TAG_CODE, 16},
                 {CALLSITE_FILE_TAG_MODULE_GONE, 16},
                 {CALLSITE_FILE_TAG_STACK, 0xfffffff8U},
                 {CALLSITE_FILE_TAG_MODULE, 1U << 20}};
    for (size_t i = 0; i < sizeof(heads) / sizeof(*heads); i++) {
        uint8_t ones[64];
        memset(ones, 0xff, sizeof(ones));
        struct writer writer = writer_open("damage");
        put_native(&writer, 1, 0x100);
        put_native(&writer, 2, 0x200);
        put(&writer, &heads[i], sizeof(heads[i]));
        put(&writer, ones, sizeof(ones));
        put_native(&writer, 3, 0x300);
        check_damaged(&writer, 2);
        fclose(writer.stream);
    }
    struct writer folder;
    snprintf(folder.path, sizeof(folder.path), "%s", callsite_file_folder());
    check_damaged(&folder, 0);
}

/* The writer has the file mapped, longer than it is written: what lies behind a head of zeros is not there
 * yet, be it a payload already. */
TEST(test_head_is_written_last)
{
    static const uint8_t none[4096];
    const uint64_t lost = 7;
    struct writer writer = writer_open("mapped");
    put_head(&writer, CALLSITE_FILE_TAG_LOST, sizeof(lost));
    put(&writer, &lost, sizeof(lost));
    put_native(&writer, 1, 0x100);
    put_head(&writer, CALLSITE_FILE_TAG_PADDING, 64);
    put(&writer, none, 64);
    long at = ftell(writer.stream);
    put(&writer, none, 8);
    put(&writer, "payload.", 8);
    put(&writer, none, sizeof(none));
    assert_int_equal(fflush(writer.stream), 0);
    struct callsites *callsites = open_files(&writer, NULL);
    assert_true(callsites_global(callsites, 1, 1) != 0);
    assert_int_equal(callsites_global(callsites, 1, 2), 0);
    assert_int_equal(fseek(writer.stream, at, SEEK_SET), 0);
    put_native(&writer, 2, 0x200);
    assert_int_equal(fflush(writer.stream), 0);
    assert_true(callsites_global(callsites, 1, 2) != 0);
    callsites_process_end(callsites, 1);
    assert_int_equal(callsites->processes[1]->errors, 0);
    assert_int_equal(callsites->processes[1]->lost, lost);
    callsites_close(callsites);
    fclose(writer.stream);
}

/* Values that make no sense cost their own entry and nothing else. */
TEST(test_senseless_numbers)
{
    struct writer writer = writer_open("senseless");
    put_native(&writer, 0, 0x100);
    put_native(&writer, 0xffffffffU, 0x100);
    put_native(&writer, 1, 0x100);
    put_native(&writer, 1, 0x200);
    put_code(&writer, 0, "f", "g");
    put_code(&writer, 0xffffffffU, "f", "g");
    put_module(&writer, 0, 0x2000, 0, 0, "/empty", "");
    put_module(&writer, 0, UINT64_MAX - 5, 100, 0, "/wraps", "");
    put_module(&writer, 1, 0x2000, 0x1000, 0, "/long",
               "0123456789012345678901234567890123456789012345678901234567890123"
               "456789");
    put_native(&writer, CALLSITE_FILE_NUMBER_MAX, 0x100);
    put_native(&writer, 2, 0x100);
    put_native(&writer, 3, 0x200);
    check_damaged(&writer, 3);
    fclose(writer.stream);
}

/* 100,000 call sites of depth 30, as the issue of memory counts them. */
TEST(test_memory)
{
    const uint32_t count = 100000;
    uint64_t pcs[30], seed = 1, random = 0;
    struct writer writer = writer_open("large");
    put_module(&writer, 0, 0x100000, 0x1000000, 0x100000, "/usr/bin/large", "id");
    setvbuf(writer.stream, NULL, _IOFBF, 1 << 16);
    for (uint32_t i = 1; i <= count; i++) {
        const struct callsite_file_stack callsite = {i, 30, 0};
        random = i % 64 == 1 ? random_next(&seed) : random;
        for (unsigned depth = 0; depth < 30; depth++) {
            pcs[depth] = 0x100000 + ((random >> depth) & 0xffff) * 16;
        }
        pcs[0] = 0x100001 + 16 * (uint64_t)i;
        pcs[1] = pcs[0] + 16 * (uint64_t)count;
        put_head(&writer, CALLSITE_FILE_TAG_STACK, sizeof(callsite) + sizeof(pcs));
        put(&writer, &callsite, sizeof(callsite));
        put(&writer, pcs, sizeof(pcs));
    }
    assert_int_equal(fclose(writer.stream), 0);
    struct mallinfo2 before = mallinfo2();
    struct callsites *callsites = open_files(&writer, NULL);
    for (uint32_t i = 1; i <= count; i++) {
        assert_int_equal(callsites_global(callsites, 1, i), i);
    }
    struct mallinfo2 after = mallinfo2();
    /* Zero under a sanitizer's allocator; two frames for each stack that no other has is a bad case. */
    assert_true(callsites->frames.count > count);
    assert_true(after.uordblks + after.hblkhd - before.uordblks - before.hblkhd < 40U << 20);
    print_message("%u call sites, %u frames: %zu bytes\n", count, callsites->frames.count,
                  after.uordblks + after.hblkhd - before.uordblks - before.hblkhd);
    callsites_close(callsites);
    assert_int_equal(unlink(writer.path), 0);
}

TEST_FILE(NULL, remove_folder)
