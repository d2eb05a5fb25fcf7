/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Call sites that go into the database while their files still grow: whatever was done by when, the rows are those of
 * an end that does everything. Small call sites that are put together: against a model that looks for the deepest
 * shared frame. The store and the symbols are fakes; names follow from the address.
 * Program of its own: it stands in for functions of the product.
 * Costs: 7 s
 */
#include "support/callsites.h"
#include "support/random.h"
#include "trace/error.h"
#include "trace/format/callsite_file.h"
#include "trace/model/derive/join.h"
#include "trace/store/rows.h"
#include "trace/store/store.h"
#include "trace/symbols/callsites/callsites.h"
#include "trace/symbols/callsites/output.h"
#include "trace/symbols/callsites/reader.h"
#include "trace/symbols/symbols.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define STACKS 3000U
#define NODES_MAX 200000U
#define SYMBOLS_MAX 8192U
#define PYTHON_MODULE 0x100000U
#define PLAIN_MODULE 0x200000U
#define TORN_MODULE 0x300000U

/* ---- the store ---- */

struct fake_symbol {
    char text[160];
};

struct fake_node {
    uint32_t parent, symbol;
    int64_t pc;
};

struct fake_site {
    uint32_t node, depth, symbol;
    bool is_there;
};

struct store {
    struct fake_symbol symbols[SYMBOLS_MAX]; /* of number k at [k - 1] */
    uint32_t symbol_count;
    struct fake_node nodes[NODES_MAX];
    uint32_t node_count;
    struct fake_site sites[STACKS + 1];
    uint32_t site_last;
    unsigned room;     /* rows before a commit is needed */
    bool is_over;      /* the program: it may commit by itself */
    unsigned fails_in; /* rows; 0: never */
    int64_t joined;
    unsigned begins, symbol_begins;
};

int store_module(struct store *store, uint32_t id, const char *path, const char *build_id_hex)
{
    (void)store;
    (void)id;
    (void)path;
    (void)build_id_hex;
    return VARVE_OK;
}

uint32_t store_symbol(struct store *store, const struct store_symbol *symbol)
{
    struct fake_symbol text;
    snprintf(text.text, sizeof(text.text), "%s %s %s %u%s%s", symbol->function ? symbol->function : "-",
             symbol->file ? symbol->file : "-", symbol->module ? symbol->module : "-", symbol->line,
             symbol->is_python ? " python" : "", symbol->is_inlined ? " inlined" : "");
    for (uint32_t i = 0; i < store->symbol_count; i++) {
        assert_string_not_equal(store->symbols[i].text, text.text); /* each comes once */
    }
    assert_true(store->symbol_count < SYMBOLS_MAX);
    store->symbols[store->symbol_count] = text;
    return ++store->symbol_count;
}

static bool has_failed(struct store *store)
{
    store->fails_in -= store->fails_in > 0;
    return store->fails_in == 1;
}

static void take_room(struct store *store)
{
    assert_true(store->room > 0 || store->is_over);
    store->room -= store->room > 0;
}

int store_stack_node(struct store *store, uint32_t id, uint32_t parent_id, uint32_t symbol_id, int64_t pc)
{
    if (has_failed(store)) {
        return VARVE_ERROR_FULL;
    }
    take_room(store);
    assert_true(id == store->node_count + 1 && id <= NODES_MAX && parent_id < id && symbol_id > 0);
    store->nodes[store->node_count++] = (struct fake_node){parent_id, symbol_id, pc};
    return VARVE_OK;
}

int store_callsite(struct store *store, uint32_t id, uint32_t node_id, uint32_t depth, uint32_t symbol_id,
                   uint32_t user_symbol_id)
{
    if (has_failed(store)) {
        return VARVE_ERROR_FULL;
    }
    take_room(store);
    assert_true(id > store->site_last && id <= STACKS && node_id <= store->node_count);
    assert_int_equal(user_symbol_id != 0, symbol_id != 0);
    store->sites[id] = (struct fake_site){node_id, depth, symbol_id, true};
    store->site_last = id;
    return VARVE_OK;
}

int store_callsites_begin(struct store *store, struct varve_message *message)
{
    (void)message;
    store->begins++;
    store->node_count = store->site_last = store->symbol_count = 0;
    return VARVE_OK;
}

int store_symbols_begin(struct store *store, struct varve_message *message)
{
    (void)message;
    store->symbol_begins++;
    store->symbol_count = 0;
    return VARVE_OK;
}

bool store_has_room(const struct store *store)
{
    return store->room > 0;
}

int store_commit(struct store *store, const struct store_ring_position *positions, size_t count,
                 struct varve_message *message)
{
    (void)positions;
    (void)count;
    (void)message;
    assert_true(store->is_over);
    return VARVE_OK;
}

int store_callsite_origin(struct store *store, uint32_t callsite_id, uint32_t process_id, uint32_t callsite,
                          uint32_t count)
{
    (void)store;
    (void)callsite_id;
    (void)process_id;
    (void)callsite;
    (void)count;
    return VARVE_OK;
}

int store_stat(struct store *store, const char *name, int64_t idx, const char *severity, const char *source,
               int64_t value)
{
    assert_string_equal(name, CALLSITES_STAT_JOINED);
    assert_int_equal(idx, -1);
    assert_string_equal(severity, "info");
    assert_string_equal(source, "sites");
    store->joined = value;
    return VARVE_OK;
}

/* ---- the symbols ---- */

static unsigned opened;
static const volatile char *torn; /* a mapping of a file that was cut; NULL: none */

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
    (void)symbols;
}

int symbols_resolve(struct symbols *symbols, const char *path, const uint8_t *build_id, size_t build_id_bytes,
                    uint64_t address, void (*take)(void *context, const struct symbols_frame *frame), void *context)
{
    char name[64];
    char file[64];
    struct symbols_frame frame = {name, file, (uint32_t)(address % 16), address % 7 == 0};
    (void)symbols;
    (void)build_id;
    (void)build_id_bytes;
    if (torn != NULL && strcmp(path, "/lib/torn") == 0 && torn[address % 512] != 0) {
        return VARVE_ERROR_IO;
    }
    snprintf(name, sizeof(name), address % 11 == 0 ? "_PyEval_EvalFrameDefault" : "f%u", (unsigned)(address / 16));
    snprintf(file, sizeof(file), "%u.c", (unsigned)(address / 64));
    take(context, &frame);
    if (frame.is_inlined) {
        frame = (struct symbols_frame){"outer", NULL, 0, false};
        take(context, &frame);
    }
    return VARVE_OK;
}

/* ---- stacks ---- */

struct stack {
    uint64_t pcs[24];
    struct callsite_file_python python[8];
    unsigned native_count, python_count;
};

static struct stack stacks[STACKS + 1];

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
            stack->pcs[k] = outer <= shared ? before->pcs[before->native_count - outer]
                                            : (random_below(&seed, 3) == 0 ? PYTHON_MODULE : PLAIN_MODULE) + 1 +
                                                  random_below(&seed, 100 + i);
        }
        stack->python_count = (unsigned)random_below(&seed, 4);
        for (unsigned k = 0; k < stack->python_count; k++) {
            stack->python[k] =
                (struct callsite_file_python){1 + (uint32_t)random_below(&seed, 3), (uint32_t)random_below(&seed, 40)};
            stack->python[k].line |= random_below(&seed, 2) ? CALLSITE_FILE_PYTHON_ENTRY : 0;
        }
    }
}

static struct writer begin_file(const char *name)
{
    struct writer writer = writer_open(name);
    put_module(&writer, 0, PYTHON_MODULE, 0x10000, PYTHON_MODULE, "/usr/bin/python3.11", "x");
    put_module(&writer, 1, PLAIN_MODULE, 0x10000, PLAIN_MODULE, "/usr/bin/plain", "y");
    put_code(&writer, 1, "one", "1.py");
    put_code(&writer, 2, "two", "2.py");
    put_code(&writer, 3, "three", "3.py");
    return writer;
}

static void put_stack(struct writer *writer, struct callsites *callsites, uint32_t number)
{
    const struct stack *stack = &stacks[number];
    put_callsite(writer, number, stack->pcs, stack->native_count, stack->python, stack->python_count);
    fflush(writer->stream);
    assert_true(callsites_global(callsites, 1, number) > 0);
}

static void nap(void)
{
    nanosleep(&(struct timespec){0, 1000000}, NULL);
}

/* Until something is on its way into the database: the thread takes its time. */
static void await_rows(struct callsites *callsites, struct store *store)
{
    bool has_more;
    for (int i = 0; i < 20000 && (callsites->output == NULL || callsites->output->stacks == 0); i++) {
        store->room = 1000;
        callsites_step(callsites, store, &has_more);
        nap();
    }
    assert_true(callsites->output->stacks > 0);
}

/* All stacks, and in between what the collector has time for. */
static void run(struct callsites *callsites, struct store *store, bool is_beside, uint64_t seed)
{
    struct writer writer = begin_file("run");
    assert_int_equal(callsites_process(callsites, 1, writer.path), VARVE_OK);
    bool has_more;
    for (uint32_t i = 1; i <= STACKS; i++) {
        put_stack(&writer, callsites, i);
        if (is_beside && i == STACKS / 2) {
            await_rows(callsites, store);
        }
        if (is_beside && random_below(&seed, 4) == 0) {
            store->room = (unsigned)random_below(&seed, 60);
            callsites_step(callsites, store, &has_more);
        }
        if (is_beside && random_below(&seed, 100) == 0) {
            nap();
        }
    }
    callsites_process_end(callsites, 1);
    fclose(writer.stream);
    store->is_over = true;
}

static struct store *new_store(void)
{
    struct store *store = calloc(1, sizeof(*store));
    assert_non_null(store);
    return store;
}

/* ---- tests ---- */

static void expect_equal(const struct store *a, const struct store *b)
{
    assert_int_equal(a->symbol_count, b->symbol_count);
    for (uint32_t i = 0; i < a->symbol_count; i++) {
        assert_string_equal(a->symbols[i].text, b->symbols[i].text);
    }
    assert_int_equal(a->node_count, b->node_count);
    assert_memory_equal(a->nodes, b->nodes, a->node_count * sizeof(a->nodes[0]));
    assert_int_equal(a->site_last, b->site_last);
    assert_memory_equal(a->sites, b->sites, sizeof(a->sites));
}

TEST(test_rows_while_it_runs)
{
    for (uint64_t seed = 1; seed <= 4; seed++) {
        struct store *whole = new_store();
        struct store *beside = new_store();
        make_stacks(seed);
        struct callsites *callsites;
        assert_int_equal(callsites_open(&callsites), VARVE_OK);
        run(callsites, whole, false, seed);
        assert_int_equal(callsites_finish(callsites, whole, NULL, NULL, NULL), VARVE_OK);
        assert_true(whole->begins == 1 && whole->symbol_begins == 0);
        assert_true(whole->node_count > STACKS && whole->site_last > STACKS / 2);
        callsites_close(callsites);

        assert_int_equal(callsites_open(&callsites), VARVE_OK);
        run(callsites, beside, true, seed);
        if (seed % 2 == 0) {
            assert_int_equal(callsites_hurry(callsites, NULL), VARVE_OK);
        }
        assert_int_equal(callsites_finish(callsites, beside, NULL, NULL, NULL), VARVE_OK);
        assert_true(beside->begins == 0 && beside->symbol_begins == 1);
        expect_equal(whole, beside);
        callsites_close(callsites);
        free(whole);
        free(beside);
    }
}

/* A store that takes no more for a moment, at any row, again and again: the same in the end. */
TEST(test_ends_that_are_repeated)
{
    unsigned all_failures = 0;
    make_stacks(7);
    for (uint64_t seed = 0; seed < 12; seed++) {
        struct store *whole = new_store();
        struct store *store = new_store();
        struct callsites *callsites;
        uint64_t random = seed;
        unsigned failures = 0;
        assert_int_equal(callsites_open(&callsites), VARVE_OK);
        run(callsites, whole, false, seed);
        assert_int_equal(callsites_finish(callsites, whole, NULL, NULL, NULL), VARVE_OK);
        callsites_close(callsites);

        assert_int_equal(callsites_open(&callsites), VARVE_OK);
        run(callsites, store, seed % 2 == 0, seed);
        int error;
        do {
            store->fails_in = failures < 5 ? 2 + (unsigned)random_below(&random, 4000) : 0;
            error = callsites_finish(callsites, store, NULL, NULL, NULL);
            failures += error == VARVE_ERROR_FULL;
        } while (error == VARVE_ERROR_FULL);
        assert_int_equal(error, VARVE_OK);
        all_failures += failures; /* few where all was handed over before */
        expect_equal(whole, store);
        callsites_close(callsites);
        free(whole);
        free(store);
    }
    assert_true(all_failures > 20);
}

/* Closed at any moment: the thread ends with it. */
TEST(test_close_at_any_time)
{
    make_stacks(5);
    for (unsigned i = 0; i < 3; i++) {
        struct store *store = new_store();
        struct callsites *callsites;
        assert_int_equal(callsites_open(&callsites), VARVE_OK);
        run(callsites, store, i > 0, i);
        if (i != 1) {
            assert_int_equal(callsites_hurry(callsites, NULL), VARVE_OK);
        }
        callsites_close(callsites);
        free(store);
    }
}

/* A file that is cut while it is read: its frames have no names, all others do, and nobody dies. */
TEST(test_a_torn_file)
{
    const uint64_t pcs[4] = {PLAIN_MODULE + 5, TORN_MODULE + 18, TORN_MODULE + 50, PLAIN_MODULE + 37};
    struct writer writer = begin_file("torn");
    struct store *store = new_store();
    unsigned unnamed = 0, named = 0;
    int file = open(writer.path, O_RDONLY | O_CLOEXEC);
    void *mapping = mmap(NULL, 1U << 20, PROT_READ, MAP_SHARED, file, 0); /* far beyond its end */
    assert_true(file >= 0 && mapping != MAP_FAILED);
    torn = (const char *)mapping + (1U << 19);
    put_module(&writer, 2, TORN_MODULE, 0x10000, TORN_MODULE, "/lib/torn", "z");
    put_callsite(&writer, 1, pcs, 4, NULL, 0);
    fflush(writer.stream);
    struct callsites *callsites;
    assert_int_equal(callsites_open(&callsites), VARVE_OK);
    assert_int_equal(callsites_process(callsites, 1, writer.path), VARVE_OK);
    assert_int_equal(callsites_global(callsites, 1, 1), 1);
    opened = 0;
    store->is_over = true;
    assert_int_equal(callsites_finish(callsites, store, NULL, NULL, NULL), VARVE_OK);
    assert_int_equal(opened, 2); /* what had read it was left alone */
    assert_int_equal(store->sites[1].depth, 4);
    for (uint32_t i = 0; i < store->node_count; i++) {
        const char *text = store->symbols[store->nodes[i].symbol - 1].text;
        unnamed += strcmp(text, "- - /lib/torn 0") == 0;
        named += text[0] == 'f';
    }
    assert_true(unnamed == 2 && named == 2);
    callsites_close(callsites);
    munmap(mapping, 1U << 20);
    torn = NULL;
    close(file);
    fclose(writer.stream);
    free(store);
}

/* ---- small call sites ---- */

/* Outermost last: the frames from a node outwards. */
static void path_text(const struct store *store, uint32_t node, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (; node != 0; node = store->nodes[node - 1].parent) {
        const struct fake_node *at = &store->nodes[node - 1];
        used += (size_t)snprintf(text + used, bytes - used, "%s @%lld\n", store->symbols[at->symbol - 1].text,
                                 (long long)at->pc);
        assert_true(used < bytes);
    }
}

static void expect_path(const struct store *a, uint32_t a_node, const struct store *b, uint32_t b_node)
{
    static char a_text[65536], b_text[65536];
    path_text(a, a_node, a_text, sizeof(a_text));
    path_text(b, b_node, b_text, sizeof(b_text));
    assert_string_equal(a_text, b_text);
}

static void expect_joined(const struct store *whole, const struct store *store, const uint8_t *sizes,
                          const uint32_t *joined)
{
    static bool is_kept[NODES_MAX + 1];
    static uint32_t first_at[NODES_MAX + 1];
    int64_t small = 0;
    memset(is_kept, 0, sizeof(is_kept));
    memset(first_at, 0, sizeof(first_at));
    for (uint32_t id = 1; id <= whole->site_last; id++) {
        for (uint32_t node = whole->sites[id].node; sizes[id] == JOIN_LARGE && node != 0;
             node = whole->nodes[node - 1].parent) {
            is_kept[node] = true;
        }
    }
    for (uint32_t id = 1; id <= whole->site_last; id++) {
        const struct fake_site *site = &store->sites[id];
        uint32_t above = whole->sites[id].node;
        if (sizes[id] == JOIN_LARGE) {
            assert_true(joined[id] == id && site->is_there && site->depth == whole->sites[id].depth);
            expect_path(whole, above, store, site->node);
            assert_true((site->symbol == 0) == (whole->sites[id].symbol == 0));
            continue;
        }
        if (sizes[id] == JOIN_UNUSED) {
            assert_true(joined[id] == id && !site->is_there);
            continue;
        }
        small++;
        while (above != 0 && !is_kept[above]) {
            above = whole->nodes[above - 1].parent;
        }
        first_at[above] = first_at[above] != 0 ? first_at[above] : id;
        assert_int_equal(joined[id], first_at[above]);
        assert_int_equal(site->is_there, joined[id] == id);
        if (site->is_there) {
            const struct fake_node *node = &store->nodes[site->node - 1];
            assert_string_equal(store->symbols[node->symbol - 1].text, "(smaller call sites) - - 0");
            assert_true(node->pc == -1 && site->symbol == node->symbol);
            expect_path(whole, above, store, node->parent);
        }
    }
    assert_int_equal(store->joined, small);
}

TEST(test_small_ones)
{
    static uint8_t sizes[STACKS + 1];
    static uint32_t joined[STACKS + 1];
    for (uint64_t seed = 11; seed <= 16; seed++) {
        struct store *whole = new_store();
        struct store *store = new_store();
        uint64_t random = seed;
        make_stacks(seed);
        struct callsites *callsites;
        assert_int_equal(callsites_open(&callsites), VARVE_OK);
        run(callsites, whole, false, seed);
        assert_int_equal(callsites_finish(callsites, whole, NULL, NULL, NULL), VARVE_OK);
        callsites_close(callsites);

        assert_int_equal(callsites_open(&callsites), VARVE_OK);
        assert_int_equal(callsites_hold(callsites, NULL), VARVE_OK);
        run(callsites, store, seed % 2 == 0, seed);
        assert_true(store->node_count == 0 && store->site_last == 0); /* held back */
        uint32_t count = callsites_count(callsites);
        assert_int_equal(count, whole->site_last);
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
        assert_int_equal(callsites_join(callsites, sizes, joined, NULL, NULL, NULL), VARVE_OK);
        assert_int_equal(callsites_finish(callsites, store, NULL, NULL, NULL), VARVE_OK);
        expect_joined(whole, store, sizes, joined);
        assert_true(seed == 16 ? store->node_count == whole->node_count : store->node_count < whole->node_count);
        callsites_close(callsites);
        free(whole);
        free(store);
    }
}

TEST_FILE(NULL, remove_folder)
