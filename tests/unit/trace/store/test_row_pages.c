/* SPDX-License-Identifier: Apache-2.0 */
/* Rows as finished pages: what SQLite finds in a database that they were appended to. */
#include <cmocka.h>

#include "support/command.h"
#include "support/query.h"
#include "base/error.h"
#include "trace/store/row_pages.h"
#include "trace/store/schema.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#define LOCK_PAGE 65537U

struct scene {
    char path[256];
    struct row_pages *pages;
    uint32_t roots[ROW_TABLE_LIMIT];
    uint32_t page_count;
};

/* A database without rows. */
static void scene_open(struct scene *scene, const char *name)
{
    char rows[300];
    sqlite3 *db;
    snprintf(scene->path, sizeof(scene->path), "%s", name);
    snprintf(rows, sizeof(rows), "%s-rows", scene->path);
    assert_int_equal(sqlite3_open(scene->path, &db), SQLITE_OK);
    assert_int_equal(schema_pragmas(db, scene->path, true, NULL), VARVE_OK);
    assert_int_equal(schema_create(db, scene->path, NULL), VARVE_OK);
    for (unsigned i = 0; i < ROW_TABLE_LIMIT; i++) {
        char sql[128];
        snprintf(sql, sizeof(sql), "SELECT rootpage FROM sqlite_schema WHERE name = '%s'", row_table_names[i]);
        scene->roots[i] = (uint32_t)query_integer(db, sql);
        assert_true(scene->roots[i] > 1);
    }
    scene->page_count = (uint32_t)query_integer(db, "PRAGMA page_count");
    sqlite3_close(db);
    assert_int_equal(row_pages_open(rows, &scene->pages, NULL), VARVE_OK);
    assert_int_not_equal(access(rows, F_OK), 0);
}

static int64_t address_of(uint64_t id)
{
    return (int64_t)(id * UINT64_C(0x9e3779b97f4a7c15) >> 2);
}

static void add_addresses(const struct scene *scene, uint64_t first, uint64_t last, uint64_t step)
{
    for (uint64_t id = first; id <= last; id += step) {
        const int64_t values[] = {(int64_t)(id % 1000), address_of(id)};
        assert_true(row_pages_add(scene->pages, ROWS_FRAME_ADDRESS, id, values, 0, 2));
    }
}

static void add_frames(const struct scene *scene, uint64_t count)
{
    for (uint64_t id = 1; id <= count; id++) {
        const int64_t values[] = {(int64_t)id};
        assert_true(row_pages_add(scene->pages, ROWS_STACK_FRAME, id, values, 2, 1));
    }
}

static sqlite3 *scene_append(struct scene *scene, uint32_t page_count)
{
    sqlite3 *db;
    int fd = open(scene->path, O_RDWR);
    assert_true(fd >= 0);
    const uint32_t before = page_count;
    assert_int_equal(row_pages_append(scene->pages, fd, &page_count, scene->roots), VARVE_OK);
    assert_true(page_count >= before);
    close(fd);
    row_pages_close(scene->pages);
    assert_int_equal(sqlite3_open(scene->path, &db), SQLITE_OK);
    return db;
}

/* Each row by itself, and none besides. */
static void expect_addresses(sqlite3 *db, uint64_t last, uint64_t step)
{
    sqlite3_stmt *query;
    uint64_t id = 1;
    assert_int_equal(sqlite3_prepare_v2(db, "SELECT id, frame_id, pc FROM frame_address ORDER BY id", -1, &query, NULL),
                     SQLITE_OK);
    for (; sqlite3_step(query) == SQLITE_ROW; id += step) {
        assert_int_equal(sqlite3_column_int64(query, 0), id);
        assert_int_equal(sqlite3_column_int64(query, 1), id % 1000);
        assert_int_equal(sqlite3_column_int64(query, 2), address_of(id));
    }
    sqlite3_finalize(query);
    assert_true(id > last);
    for (id = 1; id <= last; id += step * 997) {
        char sql[128];
        snprintf(sql, sizeof(sql), "SELECT pc FROM frame_address WHERE id = %llu", (unsigned long long)id);
        assert_int_equal(query_integer(db, sql), address_of(id));
    }
}

/* No row, one leaf, one page above leaves, and two levels of them; and SQLite goes on with what it finds. */
TEST(test_trees_of_every_height)
{
    static const uint64_t lasts[] = {1, 500, 200000, 2500000};
    for (size_t i = 0; i < sizeof(lasts) / sizeof(lasts[0]); i++) {
        struct scene scene;
        char name[32];
        snprintf(name, sizeof(name), "height%zu.db", i);
        scene_open(&scene, name);
        add_addresses(&scene, 1, lasts[i], 1);
        add_frames(&scene, 10 * i);
        sqlite3 *db = scene_append(&scene, scene.page_count);
        expect_addresses(db, lasts[i], 1);
        assert_int_equal(query_integer(db, "SELECT count(*) FROM stack_frame WHERE pc IS NULL AND symbol_id = id"),
                         10 * i);
        assert_int_equal(query_integer(db, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check = 'ok'"),
                         1);
        assert_int_equal(
            sqlite3_exec(db,
                         "INSERT INTO frame_address SELECT frame_id, pc, NULL FROM frame_address LIMIT 50000;"
                         "DELETE FROM frame_address WHERE id % 3 = 0",
                         NULL, NULL, NULL),
            SQLITE_OK);
        assert_int_equal(query_integer(db, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check = 'ok'"),
                         1);
        sqlite3_close(db);
    }
}

/* Of a table that begins again nothing is left, nor of its pages. */
TEST(test_dropped_rows)
{
    struct scene scene;
    scene_open(&scene, "dropped.db");
    add_addresses(&scene, 1, 150000, 3);
    add_frames(&scene, 70000);
    const uint64_t bytes = row_pages_bytes(scene.pages);
    row_pages_drop(scene.pages, ROWS_FRAME_ADDRESS);
    assert_true(row_pages_bytes(scene.pages) < bytes);
    add_addresses(&scene, 1, 1000000, 7);
    sqlite3 *db = scene_append(&scene, scene.page_count);
    expect_addresses(db, 1000000, 7);
    assert_int_equal(query_integer(db, "SELECT sum(symbol_id) FROM stack_frame"), 70000LL * 70001 / 2);
    assert_int_equal(query_integer(db, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check = 'ok'"), 1);
    sqlite3_close(db);
}

/* Of a database of more than 1 GiB one page stays empty, whichever it would be: a hole stands for what comes before. */
TEST(test_page_of_locks)
{
    assert_int_equal(row_pages_next(LOCK_PAGE - 2), LOCK_PAGE - 1);
    assert_int_equal(row_pages_next(LOCK_PAGE - 1), LOCK_PAGE + 1);
    for (uint32_t before = 1, step = 60 / (uint32_t)test_rounds(60, 60); before < 60; before += step) {
        struct scene scene;
        scene_open(&scene, "locks.db");
        add_addresses(&scene, 1, 40000, 1);
        sqlite3 *db = scene_append(&scene, LOCK_PAGE - before);
        expect_addresses(db, 40000, 1);
        sqlite3_close(db);
        unlink(scene.path);
    }
}

TEST_FILE(test_folder_setup, test_folder_teardown)
