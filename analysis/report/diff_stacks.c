/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Symbols are numbered by their words. Stacks then are paths in one tree for both traces, whose nodes are known by
 * caller, symbol and address: two stacks are equal if they end in the same node, and no frame is looked at twice.
 */
#include "analysis/report/diff_stacks.h"

#include "analysis/base/key_map.h"
#include "analysis/base/memory_or_exit.h"
#include "analysis/query/database.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PC_NONE INT64_MIN

/* Compared by its bytes: there is no gap between the members. */
struct stack_key {
    int64_t pc;
    uint32_t parent; /* 0: none */
    uint32_t symbol; /* 0: unknown */
};

struct stack_node {
    struct stack_key key;
    uint32_t stack; /* that ends here; 0: none so far */
};

struct stack_tree {
    struct database *two;
    const char *pc;           /* what of an address counts, in SQL */
    struct stack_node *nodes; /* by number; 0 is none */
    size_t count, capacity;
    uint32_t stacks;    /* numbered so far: by call site, whatever the numbers of nodes are */
    struct map numbers; /* by a hash of the key, which is counted up where it is taken */
};

/* The number of such a node, which is made if there is none. */
static uint32_t diff_stacks_find_node(struct stack_tree *tree, const struct stack_key *key)
{
    uint64_t hash = map_hash(key, sizeof(*key));
    for (uint64_t found; (found = map_find(&tree->numbers, hash)) != MAP_NONE; hash++) {
        if (memcmp(&tree->nodes[found].key, key, sizeof(*key)) == 0) {
            return (uint32_t)found;
        }
    }
    tree->nodes = memory_grow(tree->nodes, &tree->capacity, tree->count, sizeof(*tree->nodes));
    tree->nodes[tree->count] = (struct stack_node){.key = *key};
    map_put(&tree->numbers, hash, tree->count);
    return (uint32_t)tree->count++;
}

/* Symbol and address are columns of the cursor; there is no caller yet. */
static struct stack_key diff_stacks_frame_key(struct cursor *cursor, int column)
{
    return (struct stack_key){
        .pc = cursor_is_null(cursor, column + 1) ? PC_NONE : cursor_integer(cursor, column + 1),
        .symbol = (uint32_t)cursor_integer(cursor, column),
    };
}

static void put_stack(struct stack_tree *tree, struct cursor *insert, int64_t callsite_id, uint32_t node)
{
    if (node == 0 || insert->statement == NULL) {
        return;
    }
    uint32_t *stack = &tree->nodes[node].stack;
    *stack = *stack != 0 ? *stack : ++tree->stacks;
    cursor_bind_integer(insert, 1, callsite_id);
    cursor_bind_integer(insert, 2, *stack);
    cursor_next(insert);
    cursor_reset(insert);
}

static void open_insert(const struct stack_tree *tree, char side, struct cursor *insert)
{
    char sql[64];
    snprintf(sql, sizeof(sql), "INSERT INTO stack_%c VALUES (?1, ?2)", side);
    cursor_open(insert, tree->two, sql);
}

/* The frames of a trace, by id; 0 is none. */
static struct stack_key *diff_stacks_read_frames(const struct stack_tree *tree, char side, int64_t *limit_out)
{
    char sql[256];
    snprintf(sql, sizeof(sql), "%c.stack_frame", side);
    *limit_out = database_number_limit(tree->two, sql);
    struct stack_key *frames = memory_resize(NULL, (size_t)*limit_out * sizeof(*frames));
    for (int64_t id = 0; id < *limit_out; id++) {
        frames[id] = (struct stack_key){.pc = PC_NONE};
    }
    snprintf(sql, sizeof(sql),
             "SELECT f.id, coalesce(s.number, 0), %s FROM %c.stack_frame f LEFT JOIN symbol_%c s ON s.id = f.symbol_id",
             tree->pc, side, side);
    struct cursor cursor;
    cursor_open(&cursor, tree->two, sql);
    while (cursor_next(&cursor)) {
        int64_t id = cursor_integer(&cursor, 0);
        if (id > 0 && id < *limit_out) {
            frames[id] = diff_stacks_frame_key(&cursor, 1);
        }
    }
    cursor_close(&cursor);
    return frames;
}

/* The numbers of a trace's nodes, by id. A caller that does not come before its frame is as good as none. */
static uint32_t *number_nodes(struct stack_tree *tree, char side, int64_t limit)
{
    uint32_t *numbers = memory_resize(NULL, (size_t)limit * sizeof(*numbers));
    int64_t frame_limit;
    struct stack_key *frames = diff_stacks_read_frames(tree, side, &frame_limit);
    memset(numbers, 0, (size_t)limit * sizeof(*numbers));
    char sql[96];
    snprintf(sql, sizeof(sql), "SELECT id, id - parent_lag, frame_id FROM %c.stack_node_row ORDER BY id", side);
    struct cursor cursor;
    cursor_open(&cursor, tree->two, sql);
    while (cursor_next(&cursor)) {
        int64_t id = cursor_integer(&cursor, 0);
        int64_t parent = cursor_integer(&cursor, 1);
        int64_t frame = cursor_integer(&cursor, 2);
        if (id > 0 && id < limit) {
            struct stack_key key = frames[frame > 0 && frame < frame_limit ? frame : 0];
            key.parent = parent > 0 && parent < id ? numbers[parent] : 0;
            numbers[id] = diff_stacks_find_node(tree, &key);
        }
    }
    cursor_close(&cursor);
    free(frames);
    return numbers;
}

static void put_callsites(struct stack_tree *tree, char side)
{
    char sql[128];
    snprintf(sql, sizeof(sql), "%c.stack_node_row", side);
    int64_t limit = database_number_limit(tree->two, sql);
    uint32_t *numbers = number_nodes(tree, side, limit);
    struct cursor insert;
    open_insert(tree, side, &insert);
    snprintf(sql, sizeof(sql), "SELECT id, node_id FROM %c.callsite ORDER BY id", side);
    struct cursor cursor;
    cursor_open(&cursor, tree->two, sql);
    while (cursor_next(&cursor)) {
        int64_t node = cursor_integer(&cursor, 1);
        put_stack(tree, &insert, cursor_integer(&cursor, 0), node > 0 && node < limit ? numbers[node] : 0);
    }
    cursor_close(&cursor);
    cursor_close(&insert);
    free(numbers);
}

#define SYMBOLS(side)                                                                                             \
    "CREATE TABLE symbol_" side "(id INTEGER PRIMARY KEY, number INTEGER);"                                       \
    "INSERT INTO symbol_" side " SELECT w.id, k.id FROM words_" side " w JOIN symbol_key k ON k.words = w.words;" \
    "CREATE TABLE stack_" side "(callsite_id INTEGER PRIMARY KEY, stack INTEGER);"

#define MAKE(words)                                                                                         \
    "CREATE TABLE words_a AS SELECT id, " words " AS words FROM a.symbol;"                                  \
    "CREATE TABLE words_b AS SELECT id, " words " AS words FROM b.symbol;"                                  \
    "CREATE TABLE symbol_key(id INTEGER PRIMARY KEY, words TEXT UNIQUE);"                                   \
    "INSERT INTO symbol_key(words) SELECT words FROM words_a UNION SELECT words FROM words_b;" SYMBOLS("a") \
        SYMBOLS("b")

void diff_stacks_make(struct database *two, enum diff_frames frames)
{
    static const char *const make_sql[] = {
        [DIFF_FRAMES_WHOLE] = MAKE("quote(function) || ',' || quote(file) || ',' || quote(module) || ',' || "
                                   "coalesce(line, 0) || ',' || coalesce(is_python, 0) || ',' || "
                                   "coalesce(is_inlined, 0)"),
        [DIFF_FRAMES_SOURCE] = MAKE("CASE WHEN function IS NULL AND file IS NULL THEN quote(module) ELSE "
                                    "quote(function) || ',' || quote(file) || ',' || coalesce(line, 0) END"),
    };
    static const char *const sides[] = {"a", "b"};
    struct stack_tree tree = {.two = two, .pc = frames == DIFF_FRAMES_WHOLE ? "pc" : "NULL", .count = 1};
    tree.nodes = memory_grow(NULL, &tree.capacity, 0, sizeof(*tree.nodes));
    database_execute(two, make_sql[frames]);
    for (size_t i = 0; i < sizeof(sides) / sizeof(sides[0]); i++) {
        put_callsites(&tree, *sides[i]);
    }
    map_free(&tree.numbers);
    free(tree.nodes);
}

/* A path without its folders. */
#define NAME_OF(path) "replace(" path ", rtrim(" path ", replace(" path ", '/', '')), '')"
#define UNNAMED "function IS NULL AND file IS NULL"
#define WHERE_OF "CASE WHEN file IS NULL THEN quote(" NAME_OF("module") ") ELSE quote(file) END"
#define USER_LINES(side)                                                                          \
    "INSERT INTO stack_" side " SELECT c.id, s.number FROM " side ".callsite c JOIN symbol_" side \
    " s ON s.id = coalesce(c.user_symbol_id, c.symbol_id);"

void diff_lines_make(struct database *two, enum diff_by by)
{
    static const char *const make_sql[] = {
        [DIFF_BY_LINE] = MAKE("CASE WHEN " UNNAMED " THEN quote(" NAME_OF(
            "module") ") ELSE quote(function) || ',' || " WHERE_OF " || ',' || coalesce(line, 0) END"),
        [DIFF_BY_FUNCTION] = MAKE("CASE WHEN " UNNAMED
                                  " THEN quote(" NAME_OF("module") ") ELSE quote(function) || ',' || " WHERE_OF " END"),
        [DIFF_BY_MODULE] = MAKE("coalesce(" NAME_OF("module") ", file, '')"),
    };
    if (by == DIFF_BY_STACK) {
        diff_stacks_make(two, DIFF_FRAMES_SOURCE);
        return;
    }
    database_execute(two, make_sql[by]);
    database_execute(two, USER_LINES("a") USER_LINES("b"));
}
