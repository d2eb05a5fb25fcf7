/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From numbered call sites to rows: names, merged stacks, what stands for a stack. The store is a fake that
 * keeps rows in memory, and the symbols are a fake whose names follow from the address, so that every row
 * that comes out can be known beforehand. Reading and numbering: test_callsites_reader.c.
 * Program of its own: it stands in for functions of the product.
 * Costs: 2 s
 */
#include <cmocka.h>

#include "support/callsites.h"
#include "support/random.h"
#include "trace/error.h"
#include "trace/format/callsite_file.h"
#include "trace/store/rows.h"
#include "trace/symbols/callsites/callsites.h"
#include "trace/symbols/callsites/reader.h"
#include "trace/symbols/symbols.h"

struct fake_symbol {
    char function[64], file[64], module[64];
    struct store_symbol row;
};

struct fake_frame {
    uint32_t parent, symbol;
    int64_t pc;
};

struct store {
    struct fake_symbol symbols[512];
    uint32_t symbol_count;
    struct fake_frame nodes[4096]; /* of number k at [k - 1] */
    uint32_t node_count;
    uint32_t callsite_symbol[512], callsite_user[512], callsite_depth[512], callsite_node[512];
    uint32_t callsite_count;
    uint32_t origin_count;
    char module_path[64][64], module_build_id[64][64];
    uint32_t module_count;
    int64_t file_errors, unknown;
    int room;       /* rows that fit before the next commit */
    int fail_after; /* row functions fail once this many calls were made; 0: never */
};

static int count_call(struct store *store)
{
    return store->fail_after && --store->fail_after == 0 ? VARVE_ERROR_DATABASE : VARVE_OK;
}

int store_module(struct store *store, uint32_t id, const char *path, const char *build_id_hex)
{
    assert_int_equal(id, store->module_count + 1);
    snprintf(store->module_path[id - 1], 64, "%s", path);
    snprintf(store->module_build_id[id - 1], 64, "%s", build_id_hex ? build_id_hex : "none");
    store->module_count++;
    return count_call(store);
}

static bool equal_texts(const char *row, const char *text)
{
    return strcmp(row, text ? text : "-") == 0;
}

uint32_t store_symbol(struct store *store, const struct store_symbol *symbol)
{
    struct fake_symbol *added = &store->symbols[store->symbol_count];
    if (count_call(store) != VARVE_OK) {
        return 0;
    }
    for (uint32_t i = 0; i < store->symbol_count; i++) {
        struct fake_symbol *row = &store->symbols[i];
        if (equal_texts(row->function, symbol->function) && equal_texts(row->file, symbol->file) &&
            equal_texts(row->module, symbol->module) && row->row.line == symbol->line &&
            row->row.is_python == symbol->is_python && row->row.is_inlined == symbol->is_inlined) {
            return i + 1;
        }
    }
    assert_true(store->symbol_count < 512);
    added->row = *symbol;
    snprintf(added->function, 64, "%s", symbol->function ? symbol->function : "-");
    snprintf(added->file, 64, "%s", symbol->file ? symbol->file : "-");
    snprintf(added->module, 64, "%s", symbol->module ? symbol->module : "-");
    return ++store->symbol_count;
}

int store_callsite(struct store *store, uint32_t id, uint32_t node_id, uint32_t depth, uint32_t symbol_id,
                   uint32_t user_symbol_id)
{
    assert_int_equal(id, store->callsite_count + 1);
    assert_true(id < 512);
    assert_true(node_id <= store->node_count);
    store->callsite_node[id] = node_id;
    store->callsite_depth[id] = depth;
    store->callsite_symbol[id] = symbol_id;
    store->callsite_user[id] = user_symbol_id;
    store->callsite_count++;
    return count_call(store);
}

int store_stack_node(struct store *store, uint32_t id, uint32_t parent_id, uint32_t symbol_id, int64_t pc)
{
    assert_true(id < 4096 && symbol_id > 0 && symbol_id <= store->symbol_count);
    assert_int_equal(id, store->node_count + 1);
    assert_true(parent_id < id);
    store->nodes[store->node_count++] = (struct fake_frame){parent_id, symbol_id, pc};
    return count_call(store);
}

int store_callsites_begin(struct store *store, struct varve_message *message)
{
    (void)message;
    assert_int_equal(store->node_count + store->callsite_count, 0);
    return count_call(store);
}

int store_symbols_begin(struct store *store, struct varve_message *message)
{
    (void)message;
    assert_int_equal(store->symbol_count + store->module_count, 0);
    return count_call(store);
}

bool store_has_room(const struct store *store)
{
    return store->room > 0;
}

int store_commit(struct store *store, const struct store_ring_position *positions, size_t count,
                 struct varve_message *message)
{
    (void)message;
    assert_true(positions == NULL && count == 0);
    return count_call(store);
}

int store_callsite_origin(struct store *store, uint32_t callsite_id, uint32_t process_id, uint32_t callsite,
                          uint32_t count)
{
    (void)process_id;
    (void)callsite;
    assert_int_equal(callsite_id, store->origin_count + 1);
    store->origin_count += count;
    return count_call(store);
}

int store_stat(struct store *store, const char *name, int64_t idx, const char *severity, const char *source,
               int64_t value)
{
    (void)idx;
    assert_string_equal(severity, "data_loss");
    assert_string_equal(source, "sites");
    if (strcmp(name, "callsite_file_errors") == 0) {
        store->file_errors += value;
    } else if (strcmp(name, "callsites_unknown") == 0) {
        store->unknown += value;
    } else {
        fail();
    }
    return VARVE_OK;
}

/* Names by the address looked up; see make_native. Odd thousands are inlined into "outer". */
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
    *symbols_out = (struct symbols *)(void *)&fake;
    return VARVE_OK;
}

void symbols_close(struct symbols *symbols)
{
    assert_non_null(symbols);
}

int symbols_resolve(struct symbols *symbols, const char *path, const uint8_t *build_id, size_t build_id_bytes,
                    uint64_t address, void (*take)(void *context, const struct symbols_frame *frame), void *context)
{
    struct symbols_frame frame = {NULL, NULL, 0, false};
    uint64_t name = address / 0x100;
    assert_non_null(symbols);
    assert_true(path && (build_id || build_id_bytes == 0));
    if (name < sizeof(fake_names) / sizeof(*fake_names)) {
        frame.function = fake_names[name];
        frame.line = (uint32_t)(address % 0x100);
        frame.is_inlined = name == INLINED;
        take(context, &frame);
        if (name != INLINED) {
            return VARVE_OK;
        }
        frame.function = "outer";
        frame.is_inlined = false;
    }
    take(context, &frame);
    return VARVE_OK;
}

static struct store *new_store(void)
{
    struct store *store = calloc(1, sizeof(*store));
    assert_non_null(store);
    return store;
}

static const struct fake_frame *innermost(const struct store *store, uint32_t callsite)
{
    assert_true(callsite > 0 && callsite <= store->callsite_count && store->callsite_node[callsite] > 0);
    return &store->nodes[store->callsite_node[callsite] - 1];
}

/* The module at a pc is the one that was there when the site was written. */
TEST(test_modules_come_and_go)
{
    const uint64_t at = 0x5100;
    struct store *store = new_store();
    struct writer writer = writer_open("modules");
    put_native(&writer, 1, at); /* before there is one */
    put_module(&writer, 0, 0x5000, 0x1000, 0x5000, "/lib/a", "");
    put_native(&writer, 2, at);
    put_gone(&writer, 0);
    put_native(&writer, 3, at);
    put_module(&writer, 1, 0x5000, 0x100, 0x5000, "/lib/b", "");
    put_native(&writer, 4, at);                                   /* returns behind its last byte: the call is inside */
    put_module(&writer, 2, 0x50ff, 0x2000, 0x5000, "/lib/c", ""); /* over the old one, which went unnoticed */
    put_native(&writer, 5, at);
    put_gone(&writer, 1); /* long gone */
    put_native(&writer, 6, 0x5001);
    put_native(&writer, 7, 0);
    struct callsites *callsites;
    assert_int_equal(callsites_open(&callsites), VARVE_OK);
    assert_int_equal(callsites_process(callsites, 1, writer.path), VARVE_OK);
    uint32_t number[8];
    for (uint32_t i = 1; i <= 7; i++) {
        number[i] = callsites_global(callsites, 1, i);
    }
    assert_int_equal(number[1], number[3]);
    assert_int_equal(callsites_finish(callsites, store, NULL, NULL, NULL), VARVE_OK);
    assert_int_equal(store->module_count, 3);
    assert_string_equal(store->module_build_id[0], "none");
    for (uint32_t callsite = 1; callsite <= 7; callsite++) {
        static const char *const modules[] = {"", "-", "/lib/a", "-", "/lib/b", "/lib/c", "-", "-"};
        const struct fake_frame *node = innermost(store, number[callsite]);
        assert_int_equal(node->parent, 0);
        assert_string_equal(store->symbols[node->symbol - 1].module, modules[callsite]);
    }
    assert_int_equal(callsites->processes[1]->errors, 0);
    callsites_close(callsites);
    free(store);
    fclose(writer.stream);
}

/* ---- merging ---- */

#define PYTHON_MODULE 0x100000
#define PLAIN_MODULE 0x200000
#define OUR_MODULE 0x300000

/* A return address after a call in line `line` of a function of the fake symbols. */
static uint64_t native(uint64_t module, enum fake_name name, uint64_t line)
{
    return module + (uint64_t)name * 0x100 + line + 1;
}

/* "function:line function:line …" of a call site, innermost first; then "= function" that stands for it. */
static const char *describe(const struct store *store, uint32_t callsite)
{
    static char text[2048];
    size_t used = 0;
    uint32_t depth = 0;
    for (uint32_t node = store->callsite_node[callsite]; node != 0; node = store->nodes[node - 1].parent) {
        const struct fake_symbol *symbol = &store->symbols[store->nodes[node - 1].symbol - 1];
        depth++;
        assert_int_equal(store->nodes[node - 1].pc < 0, symbol->row.is_python);
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s:%u ", symbol->function, symbol->row.line);
    }
    assert_int_equal(store->callsite_depth[callsite], depth);
    if (store->callsite_symbol[callsite]) {
        assert_int_not_equal(store->callsite_user[callsite], 0);
        snprintf(text + used, sizeof(text) - used, "= %s",
                 store->symbols[store->callsite_symbol[callsite] - 1].function);
    } else {
        snprintf(text + used, sizeof(text) - used, "= nothing");
    }
    return text;
}

static const char *merge(const uint64_t *pcs, unsigned native_count, const struct callsite_file_python *python,
                         unsigned python_count)
{
    struct store *store = new_store();
    struct writer writer = writer_open("merge");
    put_module(&writer, 0, PYTHON_MODULE, 0x10000, PYTHON_MODULE, "/usr/bin/python3.11", "x");
    put_module(&writer, 1, PLAIN_MODULE, 0x10000, PLAIN_MODULE, "/usr/bin/plain", "y");
    put_module(&writer, 2, OUR_MODULE, 0x10000, OUR_MODULE, "/usr/lib/libvarve_preload.so", "z");
    put_code(&writer, 1, "one", "1.py");
    put_code(&writer, 2, "two", "2.py");
    put_code(&writer, 3, "three", "3.py");
    put_callsite(&writer, 1, pcs, native_count, python, python_count);
    struct callsites *callsites;
    assert_int_equal(callsites_open(&callsites), VARVE_OK);
    assert_int_equal(callsites_process(callsites, 1, writer.path), VARVE_OK);
    assert_int_equal(callsites_global(callsites, 1, 1), 1);
    assert_int_equal(callsites_finish(callsites, store, NULL, NULL, NULL), VARVE_OK);
    const char *text = describe(store, 1);
    callsites_close(callsites);
    free(store);
    fclose(writer.stream);
    return text;
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

    /* A loop for two Python frames, a loop for one, and a loop without (the Python stack was cut). */
    assert_string_equal(merge(in_python, 6, python, 3),
                        "list_resize:1 one:10 two:20 work:3 three:30 run:5 _PyEval_EvalFrameDefault:6 = one");
    /* The native stack was cut: the rest of the Python frames follows. */
    assert_string_equal(merge(in_python, 2, python, 3), "list_resize:1 one:10 two:20 three:30 = one");
    assert_string_equal(merge(in_python, 1, python, 3), "one:10 two:20 three:30 list_resize:1 = one");
    assert_string_equal(merge(NULL, 0, python, 3), "one:10 two:20 three:30 = one");
    assert_string_equal(merge(in_python, 2, NULL, 0), "list_resize:1 _PyEval_EvalFrameDefault:2 = list_resize");
    assert_string_equal(merge(plain, 4, NULL, 0),
                        "malloc:1 operator new(unsigned long):2 std::allocator<int>::allocate(unsigned long):3 "
                        "inlined:4 outer:4 = inlined");
    assert_string_equal(merge(plain, 2, NULL, 0),
                        "malloc:1 operator new(unsigned long):2 = operator new(unsigned long)");
    /* Native code of an extension says more than the Python line that called it. */
    assert_string_equal(merge(extension, 3, python, 2), "malloc:1 work:2 one:10 two:20 = work");
    assert_string_equal(merge(ours, 3, NULL, 0), "-:2 run:3 = -");
    assert_string_equal(merge(ours, 1, NULL, 0), "= nothing");
    assert_string_equal(merge(NULL, 0, NULL, 0), "= nothing");
}

/* ---- faults ---- */

static void count_progress(void *context, const char *stage, uint64_t done, uint64_t total)
{
    assert_string_equal(stage, "symbols");
    assert_true(done <= total);
    *(uint64_t *)context = done == total ? 1 : 0;
}

/* Each row function of the store fails once, at every place: the error comes through. */
TEST(test_store_errors)
{
    const struct callsite_file_python python = {1, 5 | CALLSITE_FILE_PYTHON_ENTRY};
    const uint64_t pcs[2] = {native(PLAIN_MODULE, WORK, 1), native(PLAIN_MODULE, INLINED, 2)};
    uint64_t complete = 0;
    int result = VARVE_ERROR_DATABASE, calls = 1;
    struct writer writer = writer_open("errors");
    put_module(&writer, 0, PLAIN_MODULE, 0x10000, PLAIN_MODULE, "/usr/bin/plain", "y");
    put_code(&writer, 1, "one", "1.py");
    put_callsite(&writer, 1, pcs, 2, &python, 1);
    struct varve_message message;
    for (; result != VARVE_OK; calls++) {
        struct store *store = new_store();
        store->fail_after = calls;
        struct callsites *callsites;
        assert_int_equal(callsites_open(&callsites), VARVE_OK);
        assert_int_equal(callsites_process(callsites, 1, writer.path), VARVE_OK);
        callsites_process_end(callsites, 1);
        complete = 0;
        result = callsites_commit(callsites, store);
        if (result == VARVE_OK) {
            result = callsites_finish(callsites, store, count_progress, &complete, &message);
        }
        assert_true(result == VARVE_OK || result == VARVE_ERROR_DATABASE);
        callsites_close(callsites);
        free(store);
    }
    assert_int_equal(complete, 1);
    assert_int_equal(calls, 1 + 1 + 4 + 1 + 1 + 1 + 4 + 1 +
                                1); /* origin, symbols, module, begin, call site, nodes, commit; and none */
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
    fclose(writer.stream);
    FILE *stream = fopen(writer.path, "r");
    assert_non_null(stream);
    uint8_t sound[4096], bytes[4096];
    size_t size = fread(sound, 1, sizeof(sound), stream);
    fclose(stream);
    for (int round = 0; round < 3000; round++) {
        struct writer fuzzed = writer_open("fuzzed");
        struct store *store = new_store();
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
        struct callsites *callsites;
        assert_int_equal(callsites_open(&callsites), VARVE_OK);
        assert_int_equal(callsites_process(callsites, 1, fuzzed.path), VARVE_OK);
        for (uint32_t i = 1; i <= 8; i++) {
            uint32_t number = callsites_global(callsites, 1, i);
            assert_true(number <= callsites->stacks.count);
            assert_int_equal(callsites_global(callsites, 1, i), number);
        }
        callsites_process_end(callsites, 1);
        assert_int_equal(callsites_commit(callsites, store), VARVE_OK);
        assert_int_equal(callsites_finish(callsites, store, NULL, NULL, NULL), VARVE_OK);
        assert_int_equal(store->callsite_count, callsites->stacks.count);
        callsites_close(callsites);
        free(store);
    }
}

TEST_FILE(NULL, remove_folder)
