/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From numbered call sites to rows: names, merged stacks, what stands for a stack; rows that go into the database while
 * their files still grow, which are those of an end that does everything; small call sites that are put together. The
 * store is SQLite with constraints and nothing else, the test rules how many rows fit before a commit and which fails;
 * the symbols are fakes whose names follow from the address. Reading and numbering: test_callsites_reader.c.
 * Program of its own: it stands in for functions of the product.
 * Costs: 9 s
 */
#include "support/callsites.h"
#include "support/query.h"
#include "support/random.h"
#include "base/error.h"
#include "trace/format/callsite_format.h"
#include "trace/model/derive.h"
#include "trace/store/store.h"
#include "trace/callsites/callsites.h"
#include "trace/callsites/callsite_output.h"
#include "trace/callsites/callsite_reader.h"
#include "trace/symbols/symbols.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define STACKS 3000U
#define PYTHON_MODULE 0x100000U
#define PLAIN_MODULE 0x200000U
#define OUR_MODULE 0x300000U
#define TORN_MODULE 0x400000U
#define MADE_NAMES 0x8000U /* addresses from here on have names that are made of them */

/* ---- the store ---- */

enum row { ROW_MODULE, ROW_SYMBOL, ROW_FRAME, ROW_ADDRESS, ROW_NODE, ROW_CALLSITE, ROW_ORIGIN, ROW_STAT, ROWS };

static const char schema[] =
    "CREATE TABLE module(id INTEGER PRIMARY KEY, path TEXT NOT NULL, build_id TEXT);"
    "CREATE TABLE symbol(id INTEGER PRIMARY KEY, line, is_python, is_inlined, function, file, module);"
    /* each comes once */
    "CREATE UNIQUE INDEX names ON symbol(coalesce(function, ''), coalesce(file, ''), coalesce(module, ''), line,"
    " is_python, is_inlined);"
    "CREATE TABLE stack_frame(id INTEGER PRIMARY KEY, symbol NOT NULL REFERENCES symbol, pc);"
    "CREATE TABLE frame_address(id INTEGER PRIMARY KEY, frame NOT NULL REFERENCES stack_frame, pc, UNIQUE(frame, pc));"
    "CREATE TABLE stack_node(id INTEGER PRIMARY KEY, parent CHECK(parent < id) REFERENCES stack_node,"
    " frame NOT NULL REFERENCES stack_frame);"
    "CREATE UNIQUE INDEX lines ON stack_node(coalesce(parent, 0), frame);"
    "CREATE TABLE callsite(id INTEGER PRIMARY KEY, node REFERENCES stack_node, depth, symbol REFERENCES symbol,"
    " user_symbol REFERENCES symbol, CHECK((symbol IS NULL) = (user_symbol IS NULL)));"
    "CREATE TABLE origin(id INTEGER PRIMARY KEY, process, callsite, count CHECK(count > 0));"
    "CREATE TABLE stat(idx, value, name, severity, source, PRIMARY KEY(name, idx));"
    "CREATE VIEW frame AS WITH RECURSIVE walk(site, node, place) AS ("
    " SELECT id, node, 1 FROM callsite WHERE node NOT NULL UNION ALL"
    " SELECT site, parent, place + 1 FROM walk JOIN stack_node n ON n.id = node WHERE parent NOT NULL)"
    " SELECT site, place, node, frame, pc, s.* FROM walk JOIN stack_node n ON n.id = node"
    " JOIN stack_frame f ON f.id = n.frame JOIN symbol s ON s.id = f.symbol"
    " ORDER BY site, place; BEGIN";

struct store {
    sqlite3 *db;
    sqlite3_stmt *inserts[ROWS];
    bool is_over;      /* the program: it may commit by itself */
    unsigned fails_in; /* calls; 0: never */
    unsigned begins, symbol_begins;
};

static void run_sql(struct store *store, const char *sql)
{
    if (sqlite3_exec(store->db, sql, NULL, NULL, NULL) != SQLITE_OK) {
        fail_msg("%s: %s", sql, sqlite3_errmsg(store->db));
    }
}

/* NULL: in memory. */
static struct store *new_store(const char *name)
{
    static const char *const values[ROWS] = {"module VALUES(?1, ?2, ?3)",
                                             "symbol VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                                             "stack_frame VALUES(?1, ?2, ?3)",
                                             "frame_address VALUES(?1, ?2, ?3)",
                                             "stack_node VALUES(?1, nullif(?2, 0), ?3)",
                                             "callsite VALUES(?1, nullif(?2, 0), ?3, nullif(?4, 0), nullif(?5, 0))",
                                             "origin VALUES(?1, ?2, ?3, ?4)",
                                             "stat VALUES(?1, ?2, ?3, ?4, ?5)"};
    struct store *store = calloc(1, sizeof(*store));
    assert_non_null(store);
    char path[600] = ":memory:";
    if (name != NULL) {
        snprintf(path, sizeof(path), "%s/%s.db", callsite_file_folder(), name);
        unlink(path);
    }
    assert_int_equal(sqlite3_open(path, &store->db), SQLITE_OK);
    run_sql(store, "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF");
    run_sql(store, schema);
    for (unsigned i = 0; i < ROWS; i++) {
        char sql[128];
        snprintf(sql, sizeof(sql), "INSERT OR %s INTO %s", i == ROW_STAT ? "REPLACE" : "ABORT", values[i]);
        assert_int_equal(sqlite3_prepare_v2(store->db, sql, -1, &store->inserts[i], NULL), SQLITE_OK);
    }
    return store;
}

static void end_store(struct store *store)
{
    for (unsigned i = 0; i < ROWS; i++) {
        sqlite3_finalize(store->inserts[i]);
    }
    query_expect(store->db, "PRAGMA foreign_key_check", "");
    assert_int_equal(sqlite3_close(store->db), SQLITE_OK);
    free(store);
}

static int count_call(struct store *store)
{
    return store->fails_in > 0 && --store->fails_in == 0 ? VARVE_ERROR_FULL : VARVE_OK;
}

#define NUMBERS(...) (const int64_t[]){__VA_ARGS__}, (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))
#define TEXTS(...) \
    (const char *const[]){__VA_ARGS__, NULL}, (int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *))
#define NO_TEXTS NULL, 0

static int insert(struct store *store, enum row row, const int64_t *numbers, int number_count, const char *const *texts,
                  int text_count)
{
    sqlite3_stmt *insert = store->inserts[row];
    if (count_call(store) != VARVE_OK) {
        return VARVE_ERROR_FULL;
    }
    for (int i = 0; i < number_count; i++) {
        sqlite3_bind_int64(insert, i + 1, numbers[i]);
    }
    for (int i = 0; i < text_count; i++) {
        sqlite3_bind_text(insert, number_count + i + 1, texts[i], -1, SQLITE_STATIC);
    }
    if (sqlite3_step(insert) != SQLITE_DONE) {
        fail_msg("row of kind %d: %s", row, sqlite3_errmsg(store->db));
    }
    sqlite3_reset(insert);
    return VARVE_OK;
}

int store_module(struct store *store, uint32_t id, const char *path, const char *build_id_hex)
{
    return insert(store, ROW_MODULE, NUMBERS(id), TEXTS(path, build_id_hex));
}

uint32_t store_symbol(struct store *store, const struct store_symbol *symbol)
{
    const int64_t id = query_integer(store->db, "SELECT coalesce(max(id), 0) + 1 FROM symbol");
    return insert(store, ROW_SYMBOL, NUMBERS(id, symbol->line, symbol->is_python, symbol->is_inlined),
                  TEXTS(symbol->function, symbol->file, symbol->module)) == VARVE_OK
               ? (uint32_t)id
               : 0;
}

int store_stack_frame(struct store *store, uint32_t id, uint32_t symbol_id, int64_t pc)
{
    assert_true(store->is_over);
    return insert(store, ROW_FRAME, NUMBERS(id, symbol_id, pc), NO_TEXTS);
}

int store_frame_address(struct store *store, uint32_t id, uint32_t frame_id, int64_t pc)
{
    return insert(store, ROW_ADDRESS, NUMBERS(id, frame_id, pc), NO_TEXTS);
}

int store_stack_node(struct store *store, uint32_t id, uint32_t parent_id, uint32_t frame_id)
{
    return insert(store, ROW_NODE, NUMBERS(id, parent_id, frame_id), NO_TEXTS);
}

int store_callsite(struct store *store, uint32_t id, uint32_t node_id, uint32_t depth, uint32_t symbol_id,
                   uint32_t user_symbol_id)
{
    return insert(store, ROW_CALLSITE, NUMBERS(id, node_id, depth, symbol_id, user_symbol_id), NO_TEXTS);
}

int store_callsites_begin(struct store *store, struct varve_message *message)
{
    (void)message;
    store->begins++;
    run_sql(store, "DELETE FROM stack_node; DELETE FROM callsite; DELETE FROM stack_frame");
    run_sql(store, "DELETE FROM frame_address; DELETE FROM symbol; DELETE FROM module");
    return count_call(store);
}

int store_symbols_begin(struct store *store, struct varve_message *message)
{
    (void)message;
    store->symbol_begins++;
    run_sql(store, "DELETE FROM stack_frame; DELETE FROM frame_address; DELETE FROM symbol; DELETE FROM module");
    return count_call(store);
}

int store_commit(struct store *store, const struct store_ring_position *positions, size_t count,
                 struct varve_message *message)
{
    (void)message;
    assert_true(store->is_over && positions == NULL && count == 0);
    return count_call(store);
}

int store_callsite_origin(struct store *store, uint32_t callsite_id, uint32_t process_id, uint32_t callsite,
                          uint32_t count)
{
    return insert(store, ROW_ORIGIN, NUMBERS(callsite_id, process_id, callsite, count), NO_TEXTS);
}

int store_stat(struct store *store, const char *name, int64_t idx, const char *severity, const char *source,
               int64_t value)
{
    return insert(store, ROW_STAT, NUMBERS(idx, value), TEXTS(name, severity, source));
}

/* ---- the symbols ---- */

static unsigned opened;
static const volatile char *torn; /* a mapping of a file that was cut; NULL: none */

/* By the address looked up; see native(). Each line has two addresses. */
static const char *const fake_names[] = {"malloc",      "operator new(unsigned long)",
                                         "work",        "_PyEval_EvalFrameDefault",
                                         "list_resize", "_PyEval_EvalFrameDefault.cold",
                                         "run",         NULL,
                                         "inlined",     "std::allocator<int>::allocate(unsigned long)"};

enum fake_name { MALLOC, NEW, WORK, LOOP, LIST_RESIZE, LOOP_COLD, RUN, NAMELESS, INLINED, ALLOCATE };

int symbols_open(struct symbols **symbols_out, struct varve_message *message)
{
    static char fake;
    (void)message;
    opened++;
    *symbols_out = (struct symbols *)(void *)&fake;
    return VARVE_OK;
}

void symbols_close(struct symbols *symbols)
{
    assert_non_null(symbols);
}

int symbols_resolve(struct symbols *symbols, const char *path, const uint8_t *build_id, size_t build_id_bytes,
                    struct symbols_image *image, uint64_t address,
                    void (*take)(void *context, const struct symbols_frame *frame), void *context)
{
    (void)image;
    char name[64];
    char file[64];
    struct symbols_frame frame = {0};
    assert_non_null(symbols);
    assert_true(path && (build_id || build_id_bytes == 0));
    if (torn != NULL && strcmp(path, "/lib/torn") == 0 && torn[address % 512] != 0) {
        return VARVE_ERROR_IO;
    }
    if (address >= MADE_NAMES) {
        snprintf(name, sizeof(name), address % 11 == 0 ? "_PyEval_EvalFrameDefault" : "f%u", (unsigned)(address / 16));
        snprintf(file, sizeof(file), "%u.c", (unsigned)(address / 64));
        frame = (struct symbols_frame){name, file, (uint32_t)(address % 16 / 2), address % 7 == 0, 0};
    } else if (address / 0x100 == NAMELESS) { /* 16 bytes each; of the second half nothing is known */
        frame.start = (address & 0x80) == 0 ? address & ~UINT64_C(0xf) : 0;
    } else if (address / 0x100 < sizeof(fake_names) / sizeof(*fake_names)) {
        frame = (struct symbols_frame){fake_names[address / 0x100], NULL, (uint32_t)(address % 0x80),
                                       address / 0x100 == INLINED, 0};
    }
    take(context, &frame);
    if (frame.is_inlined) {
        take(context, &(struct symbols_frame){"outer", NULL, frame.line, false, 0});
    }
    return VARVE_OK;
}

/* ---- files ---- */

static struct writer begin_file(const char *name)
{
    struct writer writer = writer_open(name);
    put_module(&writer, 0, PYTHON_MODULE, 0x10000, PYTHON_MODULE, "/usr/bin/python3.11", "x");
    put_module(&writer, 1, PLAIN_MODULE, 0x10000, PLAIN_MODULE, "/usr/bin/plain", "y");
    put_module(&writer, 2, OUR_MODULE, 0x10000, OUR_MODULE, "/usr/lib/libvarve_preload.so", "z");
    put_code(&writer, 1, "one", "1.py");
    put_code(&writer, 2, "two", "2.py");
    put_code(&writer, 3, "three", "3.py");
    return writer;
}

static struct callsites *read_file(const struct writer *writer)
{
    struct callsites *callsites;
    assert_int_equal(callsites_open(&callsites), VARVE_OK);
    assert_int_equal(callsites_process(callsites, 1, writer->path), VARVE_OK);
    return callsites;
}

static void finish(struct callsites *callsites, struct store *store)
{
    store->is_over = true;
    assert_int_equal(callsites_finish(callsites, store, NULL, NULL, NULL), VARVE_OK);
}

/* The module at a pc is the one that was there when the site was written. */
TEST(test_modules_come_and_go)
{
    const uint64_t at = 0x5100;
    struct store *store = new_store(NULL);
    struct writer writer = writer_open("modules");
    put_native(&writer, 1, at); /* before there is one */
    put_module(&writer, 0, 0x5000, 0x1000, 0x5000, "/lib/a", "");
    put_native(&writer, 2, at);
    put_gone(&writer, 0);
    put_native(&writer, 3, at);
    put_module(&writer, 1, 0x5000, 0x100, 0x5000, "/lib/b", "");
    put_native(&writer, 4, at); /* returns behind its last byte: the call is inside */
    put_module(&writer, 2, 0x50ff, 0x2000, 0x5000, "/lib/c", "i"); /* over the old one, which went unnoticed */
    put_native(&writer, 5, at);
    put_gone(&writer, 1); /* long gone */
    put_native(&writer, 6, 0x5001);
    put_native(&writer, 7, 0);
    struct callsites *callsites = read_file(&writer);
    char numbers[64] = "";
    for (uint32_t i = 1; i <= 7; i++) {
        snprintf(numbers + strlen(numbers), 16, "%u ", callsites_global(callsites, 1, i));
    }
    assert_string_equal(numbers, "1 2 1 3 4 5 6 ");
    finish(callsites, store);
    query_expect(store->db, "SELECT path, build_id FROM module", "/lib/a -\n/lib/b -\n/lib/c 69\n");
    query_expect(store->db, "SELECT site, place, module FROM frame",
                 "1 1 -\n2 1 /lib/a\n3 1 /lib/b\n4 1 /lib/c\n5 1 -\n6 1 -\n");
    assert_int_equal(callsites->processes[1]->errors, 0);
    callsites_close(callsites);
    end_store(store);
    fclose(writer.stream);
}

/* ---- merging ---- */

/* A return address after a call in line `line` of a function of the fake symbols. */
static uint64_t native(uint64_t module, enum fake_name name, uint64_t line)
{
    return module + (uint64_t)name * 0x100 + line + 1;
}

TEST(test_merge)
{
    const struct callsite_file_python python[3] = {
        {1, 10}, {2, 20 | CALLSITE_FILE_PYTHON_ENTRY}, {3, 30 | CALLSITE_FILE_PYTHON_ENTRY}};
    const uint64_t in_python[6] = {
        native(PYTHON_MODULE, LIST_RESIZE, 1), native(PYTHON_MODULE, LOOP, 2), native(PLAIN_MODULE, WORK, 3),
        native(PYTHON_MODULE, LOOP_COLD, 4),   native(PYTHON_MODULE, RUN, 5),  native(PYTHON_MODULE, LOOP, 6),
    };
    const uint64_t plain[4] = {native(PLAIN_MODULE, MALLOC, 1), native(PLAIN_MODULE, NEW, 2),
                               native(PLAIN_MODULE, ALLOCATE, 3), native(PLAIN_MODULE, INLINED, 4)};
    const uint64_t extension[3] = {native(PLAIN_MODULE, MALLOC, 1), native(PLAIN_MODULE, WORK, 2),
                                   native(PYTHON_MODULE, LOOP, 3)};
    const uint64_t ours[3] = {native(OUR_MODULE, WORK, 1), native(PLAIN_MODULE, NAMELESS, 2),
                              native(PLAIN_MODULE, RUN, 3)};
    const struct {
        const uint64_t *pcs;
        unsigned native_count, python_count;
        const char *expected; /* "function:line …" of the frames, innermost first; then what stands for it */
    } cases[] = {
        /* A loop for two Python frames, a loop for one, and a loop without (the Python stack was cut). */
        {in_python, 6, 3, "list_resize:1 one:10 two:20 work:3 three:30 run:5 _PyEval_EvalFrameDefault:6 = one\n"},
        /* The native stack was cut: the rest of the Python frames follows. */
        {in_python, 2, 3, "list_resize:1 one:10 two:20 three:30 = one\n"},
        {in_python, 1, 3, "one:10 two:20 three:30 list_resize:1 = one\n"},
        {NULL, 0, 3, "one:10 two:20 three:30 = one\n"},
        {in_python, 2, 0, "list_resize:1 _PyEval_EvalFrameDefault:2 = list_resize\n"},
        {plain, 4, 0,
         "malloc:1 operator new(unsigned long):2 std::allocator<int>::allocate(unsigned long):3 inlined:4 outer:4 = "
         "inlined\n"},
        {plain, 2, 0, "malloc:1 operator new(unsigned long):2 = operator new(unsigned long)\n"},
        /* Native code of an extension says more than the Python line that called it. */
        {extension, 3, 2, "malloc:1 work:2 one:10 two:20 = work\n"},
        {ours, 3, 0, "-:0 run:3 = -\n"},
        {ours, 1, 0, "- = nothing\n"},
        {NULL, 0, 0, "- = nothing\n"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct store *store = new_store(NULL);
        struct writer writer = begin_file("merge");
        put_callsite(&writer, 1, cases[i].pcs, cases[i].native_count, python, cases[i].python_count);
        struct callsites *callsites = read_file(&writer);
        assert_int_equal(callsites_global(callsites, 1, 1), 1);
        finish(callsites, store);
        query_expect(store->db,
                     "SELECT (SELECT group_concat(coalesce(function, '-') || ':' || line, ' ') FROM frame), '=', "
                     "iif(symbol IS NULL, 'nothing', coalesce(function, '-')) FROM callsite c LEFT JOIN symbol s "
                     "ON s.id = c.symbol",
                     cases[i].expected);
        query_expect(store->db, "SELECT 1 FROM frame WHERE (pc < 0) <> is_python", "");
        query_expect(store->db, "SELECT depth = (SELECT count(*) FROM frame) FROM callsite", "1\n");
        callsites_close(callsites);
        end_store(store);
        fclose(writer.stream);
    }
}

/* Two addresses of a line are one, two lines of a function are two; a function without a name is one line, or, where
 * its begin is not known, each of its addresses is. Which are one is known as soon as they are merged, in turn. */
TEST(test_lines)
{
    static const struct {
        enum fake_name name;
        uint64_t at[3]; /* lines in malloc, in that, in run; 0x80 more: the other address of the line */
        uint32_t row;
    } cases[] = {
        {WORK, {1, 5, 3}, 1},        {WORK, {1, 0x85, 3}, 1},     {WORK, {1, 6, 3}, 2},
        {WORK, {0x81, 5, 0x83}, 1},  {NAMELESS, {1, 2, 3}, 3},    {NAMELESS, {1, 0xa, 0x83}, 3},
        {NAMELESS, {1, 0x12, 3}, 4}, {NAMELESS, {1, 0x82, 3}, 5}, {NAMELESS, {1, 0x83, 3}, 6},
    };
    const uint32_t count = sizeof(cases) / sizeof(cases[0]);
    struct store *store = new_store(NULL);
    struct writer writer = begin_file("lines");
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t pcs[3] = {native(PLAIN_MODULE, MALLOC, cases[i].at[0]),
                                 native(PLAIN_MODULE, cases[i].name, cases[i].at[1]),
                                 native(PLAIN_MODULE, RUN, cases[i].at[2])};
        put_callsite(&writer, i + 1, pcs, 3, NULL, 0);
    }
    struct callsites *callsites = read_file(&writer);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(callsites_global(callsites, 1, i + 1), i + 1);
        assert_int_equal(callsites_row(callsites, i + 1), UINT32_MAX);
    }
    assert_int_equal(callsites_row(callsites, 0), 0);
    finish(callsites, store);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(callsites_row(callsites, i + 1), cases[i].row);
    }
    assert_int_equal(callsites_row_count(callsites), 6);
    assert_int_equal(callsites_row(callsites, count + 1), UINT32_MAX);
    query_expect(store->db, "SELECT site, coalesce(function, '-') || ':' || line FROM frame WHERE place = 2",
                 "1 work:5\n2 work:6\n3 -:0\n4 -:0\n5 -:0\n6 -:0\n");
    /* run, the six in it, and malloc in each */
    query_expect(store->db, "SELECT count(*), count(DISTINCT frame) FROM stack_node", "13 8\n");
    query_expect(store->db,
                 "SELECT function, a.pc - f.pc FROM frame_address a JOIN stack_frame f ON f.id = a.frame"
                 " JOIN symbol s ON s.id = f.symbol",
                 "run 0\nrun 128\nwork 0\nwork 128\nmalloc 0\nmalloc 128\n- 0\n- 8\n");
    callsites_close(callsites);
    end_store(store);
    fclose(writer.stream);
}

/* ---- faults ---- */

static void count_progress(void *context, const char *stage, uint64_t done, uint64_t total)
{
    assert_string_equal(stage, "symbols");
    assert_true(done <= total);
    *(uint64_t *)context = done == total ? 1 : 0;
}

/* Each function of the store fails once, at every place: the error comes through. */
TEST(test_store_errors)
{
    const struct callsite_file_python python = {1, 5 | CALLSITE_FILE_PYTHON_ENTRY};
    const uint64_t pcs[2] = {native(PLAIN_MODULE, WORK, 1), native(PLAIN_MODULE, INLINED, 2)};
    uint64_t complete = 0;
    int result = VARVE_ERROR_DATABASE;
    unsigned calls = 1;
    struct writer writer = writer_open("errors");
    put_module(&writer, 0, PLAIN_MODULE, 0x10000, PLAIN_MODULE, "/usr/bin/plain", "y");
    put_code(&writer, 1, "one", "1.py");
    put_callsite(&writer, 1, pcs, 2, &python, 1);
    for (; result != VARVE_OK; calls++) {
        struct store *store = new_store(NULL);
        struct varve_message message;
        store->is_over = true;
        store->fails_in = calls;
        struct callsites *callsites = read_file(&writer);
        callsites_process_end(callsites, 1);
        complete = 0;
        result = callsites_commit(callsites, store);
        if (result == VARVE_OK) {
            result = callsites_finish(callsites, store, count_progress, &complete, &message);
        }
        assert_true(result == VARVE_OK || result == VARVE_ERROR_FULL || result == VARVE_ERROR_DATABASE);
        callsites_close(callsites);
        run_sql(store, "DELETE FROM callsite; DELETE FROM stack_node; DELETE FROM stack_frame");
        end_store(store);
    }
    assert_int_equal(complete, 1);
    /* origin, begin, frames, nodes, call site, begin, module, symbols, commit; and none */
    assert_int_equal(calls, 1 + 1 + 1 + 4 + 4 + 1 + 1 + 1 + 4 + 1 + 1);
    fclose(writer.stream);
}

/* Sound files with bytes changed, cut and repeated: never a fault, never a loop, and equal answers twice. */
TEST(test_fuzz)
{
    const struct callsite_file_python python[2] = {{1, 10}, {2, 12 | CALLSITE_FILE_PYTHON_ENTRY}};
    const uint64_t pcs[3] = {native(PLAIN_MODULE, MALLOC, 1), native(PLAIN_MODULE, LOOP, 3), 0x300};
    uint64_t seed = 4711, random = 0;
    struct writer writer = writer_open("sound");
    put_module(&writer, 0, PLAIN_MODULE, 0x10000, PLAIN_MODULE, "/usr/bin/plain", "y");
    put_code(&writer, 1, "one", "1.py");
    put_code(&writer, 2, "two", "2.py");
    for (uint32_t i = 1; i <= 6; i++) {
        put_callsite(&writer, i, pcs, 3 - i % 3, python, i % 3);
    }
    put_gone(&writer, 0);
    uint8_t sound[4096], bytes[4096];
    size_t size = writer_close(&writer, sound, sizeof(sound));
    const int rounds = test_rounds(3000, 10000);
    for (int round = 0; round < rounds; round++) {
        struct writer fuzzed = writer_open("fuzzed");
        struct store *store = new_store(NULL);
        size_t length = size;
        memcpy(bytes, sound, size);
        for (int i = round % 8; i >= 0; i--) {
            random = random_next(&seed);
            bytes[(random >> 33) % size] = random & 1 ? (uint8_t)(random >> 24) : (uint8_t)(random >> 20 & 7);
        }
        if (round % 3 == 0) {
            length = (random >> 30) % (size + 1);
        }
        put(&fuzzed, bytes, length);
        fclose(fuzzed.stream);
        struct callsites *callsites = read_file(&fuzzed);
        for (uint32_t i = 1; i <= 8; i++) {
            uint32_t number = callsites_global(callsites, 1, i);
            assert_true(number <= callsites->stacks.count);
            assert_int_equal(callsites_global(callsites, 1, i), number);
        }
        callsites_process_end(callsites, 1);
        assert_int_equal(callsites_commit(callsites, store), VARVE_OK);
        finish(callsites, store);
        assert_int_equal(query_integer(store->db, "SELECT count(*) FROM callsite"), callsites_row_count(callsites));
        for (uint32_t i = 1, last = 0; i <= callsites->stacks.count; i++) {
            assert_in_range(callsites_row(callsites, i), 1, last + 1);
            last += callsites_row(callsites, i) > last;
        }
        callsites_close(callsites);
        end_store(store);
    }
}

/* A file that is cut while it is read: its frames have no names, all others do, and nobody dies. */
TEST(test_a_torn_file)
{
    const uint64_t plain = PLAIN_MODULE + MADE_NAMES, broken = TORN_MODULE + MADE_NAMES;
    const uint64_t pcs[4] = {plain + 5, broken + 18, broken + 50, plain + 37};
    struct writer writer = begin_file("torn");
    struct store *store = new_store(NULL);
    int file = open(writer.path, O_RDONLY | O_CLOEXEC);
    void *mapping = mmap(NULL, 1U << 20, PROT_READ, MAP_SHARED, file, 0); /* far beyond its end */
    assert_true(file >= 0 && mapping != MAP_FAILED);
    torn = (const char *)mapping + (1U << 19);
    put_module(&writer, 3, TORN_MODULE, 0x10000, TORN_MODULE, "/lib/torn", "z");
    put_callsite(&writer, 1, pcs, 4, NULL, 0);
    fflush(writer.stream);
    struct callsites *callsites = read_file(&writer);
    assert_int_equal(callsites_global(callsites, 1, 1), 1);
    opened = 0;
    finish(callsites, store);
    assert_int_equal(opened, 2); /* what had read it was left alone */
    query_expect(store->db, "SELECT module, function LIKE 'f%', file NOT NULL FROM frame",
                 "/usr/bin/plain 1 1\n/lib/torn - 0\n/lib/torn - 0\n/usr/bin/plain 1 1\n");
    callsites_close(callsites);
    munmap(mapping, 1U << 20);
    torn = NULL;
    close(file);
    fclose(writer.stream);
    end_store(store);
}

/* ---- random stacks ---- */

struct stack {
    uint64_t pcs[24];
    struct callsite_file_python python[8];
    unsigned native_count, python_count;
    uint32_t number; /* of the call site */
    uint32_t row;    /* that record_whole has found for it */
};

static struct stack stacks[STACKS + 1];

static uint64_t random_pc(uint64_t *seed, uint32_t limit)
{
    const uint64_t offset = MADE_NAMES + 1 + random_below(seed, limit);
    switch (random_below(seed, 24)) {
    case 0:
        return CALLSITE_FILE_CUT + (random_below(seed, 2) ? 1000 + random_below(seed, 3000) : 0);
    case 1:
        return OUR_MODULE + MADE_NAMES + 3 + 11 * random_below(seed, 20); /* none is a loop */
    default:
        return (random_below(seed, 3) == 0 ? PYTHON_MODULE : PLAIN_MODULE) + offset;
    }
}

/* Like the one before but for some of the innermost frames, as stacks of a program are. */
static void make_stacks(uint64_t seed)
{
    for (uint32_t i = 1; i <= STACKS; i++) {
        struct stack *stack = &stacks[i];
        const struct stack *before = &stacks[random_below(&seed, i)];
        unsigned shared = (unsigned)random_below(&seed, before->native_count + 1);
        unsigned more = (unsigned)random_below(&seed, 6);
        stack->native_count = shared + more <= 24 ? shared + more : 24;
        for (unsigned k = 0; k < stack->native_count; k++) {
            unsigned outer = stack->native_count - k; /* from 1, counted from the outermost */
            stack->pcs[k] = outer <= shared ? before->pcs[before->native_count - outer] : random_pc(&seed, 100 + i);
        }
        stack->python_count = (unsigned)random_below(&seed, 8);
        for (unsigned k = 0; k < stack->python_count; k++) {
            stack->python[k] = (struct callsite_file_python){0, CALLSITE_FILE_CUT + 1000 * (k % 5)};
            if (random_below(&seed, 12) > 0) {
                stack->python[k] = (struct callsite_file_python){1 + (uint32_t)random_below(&seed, 3),
                                                                 (uint32_t)random_below(&seed, 40)};
                stack->python[k].line |= random_below(&seed, 2) ? CALLSITE_FILE_PYTHON_ENTRY : 0;
            }
        }
    }
}

/* ---- both kinds of frames of a stack as one, the plainest way: from the innermost outwards ---- */

struct frames {
    struct frame {
        char text[96]; /* its lines in words */
        bool is_loop, is_cut, is_recorder;
    } frames[40];
    unsigned count;
};

static struct frames frames_of(const struct stack *stack, bool is_python)
{
    static const char *const names[] = {"-", "one", "two", "three"};
    struct frames to = {.count = is_python ? stack->python_count : stack->native_count};
    for (unsigned i = 0; i < to.count; i++) {
        struct frame *frame = &to.frames[i];
        const struct callsite_file_python *python = is_python ? &stack->python[i] : NULL;
        const uint64_t address = is_python ? 0 : (stack->pcs[i] - 1) % PYTHON_MODULE;
        frame->is_cut = is_python ? python->code == 0 : callsite_file_is_cut(stack->pcs[i]);
        if (frame->is_cut) {
            unsigned left_out = (unsigned)(is_python ? python->line : stack->pcs[i]) - CALLSITE_FILE_CUT;
            snprintf(frame->text, sizeof(frame->text), left_out > 0 ? "… %.0u,%03u frames …:0 " : "… %.0uframes …:0 ",
                     left_out / 1000, left_out % 1000);
        } else if (is_python) {
            frame->is_loop = (python->line & CALLSITE_FILE_PYTHON_ENTRY) != 0;
            snprintf(frame->text, sizeof(frame->text), "%s:%u ", names[python->code],
                     python->line & ~CALLSITE_FILE_PYTHON_ENTRY);
        } else {
            frame->is_recorder = stack->pcs[i] >= OUR_MODULE;
            frame->is_loop = address % 11 == 0;
            snprintf(frame->text, sizeof(frame->text), frame->is_loop ? "_PyEval_EvalFrameDefault:%u " : "f%2$u:%1$u ",
                     (unsigned)(address % 16 / 2), (unsigned)(address / 16));
            if (address % 7 == 0) {
                snprintf(frame->text + strlen(frame->text), 24, "outer:%u ", (unsigned)(address % 16 / 2));
            }
        }
    }
    return to;
}

static unsigned count_loops(const struct frames *of, unsigned from)
{
    unsigned count = 0;
    for (; from < of->count; from++) {
        count += of->frames[from].is_loop;
    }
    return count;
}

static void add_frame(char *text, const struct frame *frame)
{
    strcat(text, frame->is_recorder ? "" : frame->text);
}

/* Python frames from `at` on, up to one that entered the loop, or up to a mark, if `is_one`. */
static unsigned add_python(char *text, const struct frames *python, unsigned at, bool is_one)
{
    bool is_last = false;
    while (at < python->count && !is_last && !(is_one && python->frames[at].is_cut)) {
        is_last = is_one && python->frames[at].is_loop;
        add_frame(text, &python->frames[at++]);
    }
    return at;
}

/* Frames are missing: outside of the marks nothing is. Returns where the Python frames go on. */
static unsigned add_cut(char *text, const struct frames *native, unsigned *i, const struct frames *python, unsigned at,
                        const struct frame *native_mark)
{
    unsigned mark = at;
    while (mark < python->count && !python->frames[mark].is_cut) {
        mark++;
    }
    for (; mark < python->count && at < mark; at++) {
        add_frame(text, &python->frames[at]);
    }
    at += mark < python->count;
    add_frame(text, mark < python->count ? &python->frames[mark] : native_mark);
    while (count_loops(python, at) > count_loops(native, *i)) {
        at = add_python(text, python, at, true);
        at += at < python->count && python->frames[at].is_cut && count_loops(python, at) > count_loops(native, *i);
    }
    for (; count_loops(native, *i) > count_loops(python, at); (*i)++) {
        if (!native->frames[*i].is_cut) {
            add_frame(text, &native->frames[*i]);
        }
    }
    return at;
}

static void merge_plainly(char *text, const struct frames *native, const struct frames *python)
{
    unsigned at = count_loops(native, 0) == 0 ? add_python(text, python, 0, false) : 0;
    for (unsigned i = 0; i < native->count;) {
        const struct frame *frame = &native->frames[i++];
        if (frame->is_cut && at < python->count) {
            at = add_cut(text, native, &i, python, at, frame);
        } else if (frame->is_loop && at < python->count) {
            const unsigned begin = at;
            at = add_python(text, python, at, true);
            if (at < python->count && python->frames[at].is_cut && (at == begin || !python->frames[at - 1].is_loop)) {
                at = add_cut(text, native, &i, python, at, NULL);
            }
        } else {
            add_frame(text, frame);
        }
    }
    add_python(text, python, at, false);
}

static void expect_merged(struct store *store)
{
    sqlite3_stmt *insert;
    run_sql(store, "CREATE TEMP TABLE plain(site, text)");
    assert_int_equal(sqlite3_prepare_v2(store->db, "INSERT INTO plain VALUES(?, ?)", -1, &insert, NULL), SQLITE_OK);
    for (uint32_t i = 1; i <= STACKS; i++) {
        char text[4096] = "";
        const struct frames native = frames_of(&stacks[i], false), python = frames_of(&stacks[i], true);
        merge_plainly(text, &native, &python);
        sqlite3_bind_int64(insert, 1, stacks[i].row);
        sqlite3_bind_text(insert, 2, text, -1, SQLITE_STATIC);
        assert_int_equal(sqlite3_step(insert), SQLITE_DONE);
        sqlite3_reset(insert);
    }
    sqlite3_finalize(insert);
    run_sql(store,
            "CREATE TEMP TABLE merged AS SELECT site, group_concat(coalesce(function, '-') || ':' || line || ' ', "
            "'') AS text, count(*) AS depth FROM frame GROUP BY site; CREATE INDEX temp.merged_site ON merged(site)");
    query_expect(store->db,
                 "SELECT p.site, p.text, m.text FROM plain p LEFT JOIN merged m USING (site) WHERE p.text <> "
                 "coalesce(m.text, '') LIMIT 3",
                 "");
    query_expect(store->db, "SELECT site FROM frame WHERE (pc < 0) <> (is_python OR function LIKE '…%')", "");
    query_expect(store->db,
                 "SELECT id FROM callsite LEFT JOIN merged ON site = id WHERE callsite.depth <> "
                 "coalesce(merged.depth, 0)",
                 "");
    /* a row for each stack of lines, and a node for each beginning of one */
    query_expect(store->db,
                 "SELECT count(*) - count(DISTINCT coalesce(frames, '')) FROM callsite LEFT JOIN (SELECT site,"
                 " group_concat(frame) AS frames FROM frame GROUP BY site) ON site = id",
                 "0\n");
    query_expect(store->db, "SELECT count(*) - count(DISTINCT symbol) FROM stack_frame", "0\n");
    run_sql(store, "COMMIT; BEGIN");
}

/* ---- while they are recorded ---- */

static void nap(void)
{
    nanosleep(&(struct timespec){0, 1000000}, NULL);
}

/* Until something is on its way into the database: the thread takes its time. */
static void await_rows(struct callsites *callsites, struct store *store)
{
    bool has_more;
    for (int i = 0; i < 20000 && (callsites->output == NULL || callsites->output->stacks == 0); i++) {
        callsites_step(callsites, store, &has_more);
        nap();
    }
    assert_true(callsites->output->stacks > 0);
}

/* All stacks, and in between what the collector has time for. */
static struct callsites *run(struct store *store, bool is_held, bool is_beside, uint64_t seed)
{
    struct writer writer = begin_file("run");
    struct callsites *callsites = read_file(&writer);
    assert_int_equal(is_held ? callsites_hold(callsites, NULL) : VARVE_OK, VARVE_OK);
    bool has_more;
    for (uint32_t i = 1; i <= STACKS; i++) {
        struct stack *stack = &stacks[i];
        put_callsite(&writer, i, stack->pcs, stack->native_count, stack->python, stack->python_count);
        fflush(writer.stream);
        stack->number = callsites_global(callsites, 1, i);
        assert_true(stack->number > 0);
        if (is_beside && i == STACKS / 2) {
            await_rows(callsites, store);
        }
        if (is_beside && random_below(&seed, 4) == 0) {
            callsites_step(callsites, store, &has_more);
        }
        if (is_beside && random_below(&seed, 100) == 0) {
            nap();
        }
        const uint32_t row = callsites_row(callsites, stack->number);
        assert_true(row == UINT32_MAX ||
                    (is_beside && stack->row == row && stack->number <= callsites->output->stacks));
    }
    callsites_process_end(callsites, 1);
    fclose(writer.stream);
    store->is_over = true;
    return callsites;
}

/* The rows of an end that does everything: whole.db. */
static void record_whole(uint64_t seed)
{
    struct store *whole = new_store("whole");
    struct callsites *callsites = run(whole, false, false, seed);
    finish(callsites, whole);
    assert_true(whole->begins == 1 && whole->symbol_begins == 1);
    for (uint32_t i = 1; i <= STACKS; i++) {
        stacks[i].row = callsites_row(callsites, stacks[i].number);
    }
    assert_true(query_integer(whole->db, "SELECT count(*) FROM stack_node") > STACKS);
    const int64_t rows = query_integer(whole->db, "SELECT count(*) FROM callsite");
    assert_true(rows > STACKS / 2 && rows < callsites->stacks.count);
    assert_true(query_integer(whole->db, "SELECT count(*) FROM frame_address") > STACKS / 10);
    expect_merged(whole);
    run_sql(whole, "COMMIT");
    callsites_close(callsites);
    end_store(whole);
}

static void attach_whole(struct store *store)
{
    char sql[600];
    snprintf(sql, sizeof(sql), "COMMIT; ATTACH '%s/whole.db' AS whole", callsite_file_folder());
    run_sql(store, sql);
}

static void expect_whole(struct store *store)
{
    static const char *const tables[] = {"symbol", "stack_frame", "frame_address", "stack_node", "callsite"};
    attach_whole(store);
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
        char sql[256];
        snprintf(sql, sizeof(sql), "SELECT * FROM main.%s EXCEPT SELECT * FROM whole.%s", tables[i], tables[i]);
        query_expect(store->db, sql, "");
        snprintf(sql, sizeof(sql), "SELECT * FROM whole.%s EXCEPT SELECT * FROM main.%s", tables[i], tables[i]);
        query_expect(store->db, sql, "");
    }
}

TEST(test_rows_while_it_runs)
{
    for (uint64_t seed = 1; seed <= 4; seed++) {
        struct store *beside = new_store(NULL);
        make_stacks(seed);
        record_whole(seed);
        struct callsites *callsites = run(beside, false, true, seed);
        if (seed % 2 == 0) {
            assert_int_equal(callsites_hurry(callsites, NULL), VARVE_OK);
        }
        finish(callsites, beside);
        assert_true(beside->begins == 0 && beside->symbol_begins == 1);
        expect_whole(beside);
        callsites_close(callsites);
        end_store(beside);
    }
}

/* A store that takes no more for a moment, at any row, again and again: the same in the end. */
TEST(test_ends_that_are_repeated)
{
    unsigned all_failures = 0;
    make_stacks(7);
    record_whole(0);
    for (uint64_t seed = 0; seed < 12; seed++) {
        struct store *store = new_store(NULL);
        uint64_t random = seed;
        unsigned failures = 0;
        struct callsites *callsites = run(store, false, seed % 2 == 0, seed);
        int error;
        do {
            store->fails_in = failures < 5 ? 2 + (unsigned)random_below(&random, 4000) : 0;
            error = callsites_finish(callsites, store, NULL, NULL, NULL);
            failures += error != VARVE_OK;
        } while (error == VARVE_ERROR_FULL || error == VARVE_ERROR_DATABASE);
        assert_int_equal(error, VARVE_OK);
        all_failures += failures; /* few where all was handed over before */
        expect_whole(store);
        callsites_close(callsites);
        end_store(store);
    }
    assert_true(all_failures > 20);
}

/* Closed at any moment: the thread ends with it. */
TEST(test_close_at_any_time)
{
    make_stacks(5);
    record_whole(5);
    for (unsigned i = 0; i < 3; i++) {
        struct store *store = new_store(NULL);
        struct callsites *callsites = run(store, false, i > 0, i);
        if (i != 1) {
            assert_int_equal(callsites_hurry(callsites, NULL), VARVE_OK);
        }
        callsites_close(callsites);
        /* its symbols have not come yet */
        run_sql(store, "DELETE FROM callsite; DELETE FROM stack_node; DELETE FROM stack_frame");
        end_store(store);
    }
}

/* ---- small call sites ---- */

/* What must be there: the large ones as they were; of the small ones that leave the kept stacks at the same frame one
 * line on top of that frame, which stands for the first of them; nothing of the unused. */
static void expect_joined(struct store *store, const uint8_t *sizes, const uint32_t *joined, uint32_t count)
{
    attach_whole(store);
    run_sql(store, "CREATE TABLE judged(id INTEGER PRIMARY KEY, size, joined);"
                   "CREATE TEMP TABLE was AS SELECT site, place, node, printf('%s %s %s %d %d %d %d|', function, file,"
                   " module, line, is_python, is_inlined, pc) AS text FROM whole.frame;"
                   "CREATE INDEX temp.was_site ON was(site, place);"
                   "CREATE TEMP TABLE found AS SELECT site, group_concat(text, '') AS text FROM (SELECT site,"
                   " printf('%s %s %s %d %d %d %d|', function, file, module, line, is_python, is_inlined, pc) AS text"
                   " FROM main.frame) GROUP BY site");
    for (uint32_t id = 1; id <= count; id++) {
        char sql[96];
        snprintf(sql, sizeof(sql), "INSERT INTO judged VALUES(%u, %u, %u)", id, sizes[id], joined[id]);
        run_sql(store, sql);
    }
    run_sql(store,
            "CREATE TEMP TABLE kept AS SELECT DISTINCT node FROM was JOIN judged j ON j.id = site WHERE size = 2;"
            "CREATE UNIQUE INDEX temp.kept_node ON kept(node);"
            "CREATE TEMP TABLE cut AS SELECT id, size, (SELECT min(place) FROM was WHERE site = id"
            " AND node IN (SELECT node FROM kept)) AS first FROM judged;"
            "CREATE TEMP TABLE expected AS SELECT c.id, size, iif(size = 1, min(c.id) OVER"
            " (PARTITION BY size, coalesce(node, 0)), c.id) AS joined, coalesce((SELECT group_concat(text, '') FROM ("
            " SELECT text FROM was w WHERE w.site = c.id AND w.place >= c.first ORDER BY place)), '') AS text"
            " FROM cut c LEFT JOIN was ON was.site = c.id AND was.place = c.first;");
    query_expect(store->db,
                 "SELECT e.id, e.joined, j.joined FROM expected e JOIN judged j USING (id) WHERE e.joined "
                 "<> j.joined",
                 "");
    query_expect(store->db,
                 "SELECT id FROM expected WHERE size > 0 AND joined = id EXCEPT SELECT id FROM main.callsite", "");
    query_expect(store->db,
                 "SELECT id FROM main.callsite EXCEPT SELECT id FROM expected WHERE size > 0 AND joined = id", "");
    query_expect(store->db,
                 "SELECT id, size FROM expected e JOIN main.callsite c USING (id) JOIN whole.callsite w USING (id)"
                 " LEFT JOIN found ON site = id WHERE coalesce(found.text, '') <> iif(size = 1,"
                 " '(smaller call sites)   0 0 0 -1|', '') || e.text OR (size = 2 AND (c.depth <> w.depth OR"
                 " (c.symbol IS NULL) <> (w.symbol IS NULL))) OR (size = 1 AND c.symbol <> (SELECT f.symbol FROM"
                 " main.stack_node n JOIN main.stack_frame f ON f.id = n.frame WHERE n.id = c.node))",
                 "");
    query_expect(store->db,
                 "SELECT 1 WHERE (SELECT count(*) FROM judged WHERE size = 1) <> coalesce((SELECT value FROM"
                 " main.stat WHERE name = 'callsites_joined' AND idx = -1 AND severity = 'info' AND"
                 " source = 'sites'), 0)",
                 "");
}

TEST(test_small_ones)
{
    static uint8_t sizes[STACKS + 1];
    static uint32_t joined[STACKS + 1];
    for (uint64_t seed = 11; seed <= 16; seed++) {
        struct store *store = new_store(NULL);
        uint64_t random = seed;
        make_stacks(seed);
        record_whole(seed);
        struct callsites *callsites = run(store, true, seed % 2 == 0, seed);
        query_expect(store->db, "SELECT 1 FROM stack_node UNION SELECT 1 FROM callsite", ""); /* held back */
        assert_int_equal(callsites_merge_all(callsites, store, NULL, NULL, NULL), VARVE_OK);
        query_expect(store->db, "SELECT 1 FROM stack_node UNION SELECT 1 FROM callsite", "");
        uint32_t count = callsites_row_count(callsites);
        memset(sizes, 0, sizeof(sizes));
        for (uint32_t id = 1; id <= count; id++) {
            uint64_t kind = random_below(&random, 30);

            /* once none is large, once all are */
            sizes[id] = (uint8_t)(seed == 15   ? JOIN_SMALL
                                  : seed == 16 ? JOIN_LARGE
                                  : kind < 2   ? JOIN_LARGE
                                  : kind < 5   ? JOIN_UNUSED
                                               : JOIN_SMALL);
        }
        assert_int_equal(callsites_join(callsites, sizes, joined, NULL), VARVE_OK);
        finish(callsites, store);
        expect_joined(store, sizes, joined, count);
        for (uint32_t i = 1; i <= STACKS; i++) {
            assert_int_equal(callsites_row(callsites, stacks[i].number), joined[stacks[i].row]);
        }
        assert_int_equal(query_integer(store->db, "SELECT count(*) FROM whole.callsite"), count);
        query_expect(store->db,
                     "SELECT (SELECT count(*) FROM main.stack_node) < (SELECT count(*) FROM whole.stack_node)",
                     seed == 16 ? "0\n" : "1\n");
        callsites_close(callsites);
        end_store(store);
    }
}

TEST_FILE(NULL, remove_folder)
