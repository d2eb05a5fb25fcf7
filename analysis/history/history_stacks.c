/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tree of nodes is read in one sweep, and a stack is walked in memory from its innermost frame outwards. A caller
 * has the smaller number, so that a walk ends in any database.
 */
#include "analysis/history/history_database.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/history/history.h"
#include "analysis/query/database.h"
#include "base/error.h"

#include "statements_generated.h"

#include <stdlib.h>
#include <string.h>

#define STACK_UNKNOWN UINT32_MAX /* not asked for yet */
#define DEPTH_MAX 65536U         /* as in the view `frame` */
#define FRAMES_MAX (1U << 26)    /* of all stacks together: what they share is there for each in a history */

struct stack_node {
    uint32_t parent; /* 0: none */
    uint32_t symbol; /* 0: unknown */
};

struct callsite {
    uint32_t node;  /* 0: none */
    uint32_t stack; /* in the history, or STACK_UNKNOWN */
};

struct history_stacks {
    struct database *database;
    struct history *history;
    struct callsite *callsites; /* these three by id, below their limits */
    struct stack_node *nodes;
    struct history_frame *symbols;
    int64_t callsite_limit, node_limit, symbol_limit;
    struct history_frame *frames;
    size_t capacity;
    bool is_full;
};

/* Of such numbers as fit; `item_bytes` of zeros for each. */
static void *array_of(struct database *database, const char *table, size_t item_bytes, int64_t *limit_out)
{
    int64_t limit = database_number_limit(database, table);
    *limit_out = limit < UINT32_MAX ? limit : UINT32_MAX;
    void *array = memory_resize(NULL, (size_t)*limit_out * item_bytes);
    memset(array, 0, (size_t)*limit_out * item_bytes);
    return array;
}

/* Function, file and line are columns of the cursor. */
static struct history_frame history_stacks_read_frame(struct history *history, struct cursor *cursor, int column)
{
    uint32_t texts[2];
    for (int i = 0; i < 2; i++) {
        const char *text = cursor_text(cursor, column + i);
        texts[i] = text == NULL ? 0 : history_text(history, text, strlen(text));
    }
    return (struct history_frame){
        .function = texts[0], .file = texts[1], .line = (uint32_t)cursor_integer(cursor, column + 2)};
}

static void read_symbols(struct history_stacks *stacks)
{
    struct cursor cursor;
    cursor_open(&cursor, stacks->database, "SELECT id, function, file, line FROM symbol");
    while (cursor_next(&cursor)) {
        int64_t id = cursor_integer(&cursor, 0);
        if (id > 0 && id < stacks->symbol_limit) {
            stacks->symbols[id] = history_stacks_read_frame(stacks->history, &cursor, 1);
        }
    }
    cursor_close(&cursor);
}

static void history_stacks_read_nodes(struct history_stacks *stacks)
{
    struct cursor cursor;
    cursor_open(&cursor, stacks->database, sql_history_stack_nodes);
    while (cursor_next(&cursor)) {
        int64_t id = cursor_integer(&cursor, 0);
        int64_t parent = cursor_integer(&cursor, 1);
        int64_t symbol = cursor_integer(&cursor, 2);
        if (id > 0 && id < stacks->node_limit) {
            stacks->nodes[id] = (struct stack_node){
                .parent = parent > 0 && parent < id ? (uint32_t)parent : 0,
                .symbol = symbol > 0 && symbol < stacks->symbol_limit ? (uint32_t)symbol : 0,
            };
        }
    }
    cursor_close(&cursor);
}

static void read_callsites(struct history_stacks *stacks)
{
    struct cursor cursor;
    cursor_open(&cursor, stacks->database, "SELECT id, node_id FROM callsite");
    while (cursor_next(&cursor)) {
        int64_t id = cursor_integer(&cursor, 0);
        int64_t node = cursor_integer(&cursor, 1);
        if (id > 0 && id < stacks->callsite_limit) {
            stacks->callsites[id] = (struct callsite){
                .node = node > 0 && node < stacks->node_limit ? (uint32_t)node : 0, .stack = STACK_UNKNOWN};
        }
    }
    cursor_close(&cursor);
}

struct history_stacks *history_stacks_new(struct database *database, struct history *history)
{
    struct history_stacks *stacks = memory_resize(NULL, sizeof(*stacks));
    *stacks = (struct history_stacks){.database = database, .history = history};
    stacks->callsites = array_of(database, "callsite", sizeof(*stacks->callsites), &stacks->callsite_limit);
    stacks->nodes = array_of(database, "stack_node_row", sizeof(*stacks->nodes), &stacks->node_limit);
    stacks->symbols = array_of(database, "symbol", sizeof(*stacks->symbols), &stacks->symbol_limit);
    read_symbols(stacks);
    history_stacks_read_nodes(stacks);
    read_callsites(stacks);
    return stacks;
}

static void history_stacks_add_frame(struct history_stacks *stacks, size_t *count, struct history_frame frame)
{
    *MEMORY_ADD(stacks->frames, *count, stacks->capacity) = frame;
}

static size_t history_stacks_walk(struct history_stacks *stacks, uint32_t node)
{
    size_t count = 0;
    for (uint32_t depth = 0; node != 0 && depth < DEPTH_MAX; depth++) {
        if (stacks->nodes[node].symbol != 0) {
            history_stacks_add_frame(stacks, &count, stacks->symbols[stacks->nodes[node].symbol]);
        }
        node = stacks->nodes[node].parent;
    }
    return count;
}

uint32_t history_stacks_of(struct history_stacks *stacks, uint64_t callsite)
{
    if (callsite >= (uint64_t)stacks->callsite_limit) {
        return 0;
    }
    struct callsite *row = &stacks->callsites[callsite];
    if (row->stack != STACK_UNKNOWN) {
        return row->stack;
    }
    size_t count = history_stacks_walk(stacks, row->node);
    stacks->is_full = stacks->is_full || stacks->history->frame_count + count > FRAMES_MAX;
    row->stack = stacks->is_full ? 0 : history_add_stack(stacks->history, stacks->frames, (uint32_t)count);
    return row->stack;
}

int history_stacks_error(const struct history_stacks *stacks, struct varve_message *message)
{
    return stacks->is_full ? varve_message_set(message, VARVE_ERROR_UNSUPPORTED,
                                               "%s: the stacks of its allocators' events have more than %u frames",
                                               database_path(stacks->database), FRAMES_MAX)
                           : VARVE_OK;
}

void history_stacks_free(struct history_stacks *stacks)
{
    if (stacks != NULL) {
        free(stacks->callsites);
        free(stacks->nodes);
        free(stacks->symbols);
        free(stacks->frames);
        free(stacks);
    }
}
