/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rule is the recorder's (varve_plumbing_rank): from the outermost frame inwards, a frame becomes the user's line
 * unless that has a larger rank. Callers have smaller numbers than what they call, so one pass over the nodes is
 * enough. The views are made again as temporary ones, since a view of the file sees the tables of the file alone.
 */
#include "analysis/query/hidden_lines.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/base/user_config.h"
#include "analysis/query/database.h"
#include "base/error.h"
#include "trace/writer.h"

#include "statements_generated.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct lines {
    unsigned char *ranks; /* of symbol n at [n]: enum varve_frame_rank */
    size_t symbol_limit;
    uint32_t *users; /* of node n at [n]: the symbol of the user's line of the stack that begins there, 0: none */
    size_t node_limit;
};

/* ---- the patterns ---- */

/* Those of the user's files. */
static int add_set(struct varve_plumbing *plumbing, const struct user_config *config, struct varve_message *message)
{
    for (const struct config_entry *entry = NULL; (entry = user_config_next(config, "plumbing", entry)) != NULL;) {
        struct varve_message why = {""};
        if (varve_plumbing_add_kind(plumbing, entry->key, entry->value, &why) != VARVE_OK) {
            return user_config_refuse(entry, why.text, message);
        }
    }
    return VARVE_OK;
}

/* ---- the lines ---- */

static void rank_symbols(struct lines *lines, struct database *database, const struct varve_plumbing *plumbing)
{
    lines->symbol_limit = (size_t)database_number_limit(database, "symbol");
    lines->ranks = memory_resize(NULL, lines->symbol_limit * sizeof(*lines->ranks));
    memset(lines->ranks, 0, lines->symbol_limit * sizeof(*lines->ranks));
    struct cursor cursor;
    cursor_open(&cursor, database, "SELECT id, function, file, module, coalesce(line, 0), is_python FROM symbol");
    while (cursor_next(&cursor)) {
        const int64_t id = cursor_integer(&cursor, 0);
        const struct varve_writer_symbol symbol = {
            .function = cursor_text(&cursor, 1),
            .file = cursor_text(&cursor, 2),
            .module = cursor_text(&cursor, 3),
            .line = (uint32_t)cursor_integer(&cursor, 4),
            .is_python = cursor_integer(&cursor, 5) != 0,
        };
        if (id > 0 && (size_t)id < lines->symbol_limit) {
            lines->ranks[id] = (unsigned char)varve_plumbing_rank(plumbing, &symbol);
        }
    }
    cursor_close(&cursor);
}

static void find_lines(struct lines *lines, struct database *database)
{
    lines->node_limit = (size_t)database_number_limit(database, "stack_node_row");
    lines->users = memory_resize(NULL, lines->node_limit * sizeof(*lines->users));
    memset(lines->users, 0, lines->node_limit * sizeof(*lines->users));
    struct cursor cursor;
    cursor_open(&cursor, database, "SELECT id, coalesce(parent_id, 0), symbol_id FROM stack_node ORDER BY id");
    while (cursor_next(&cursor)) {
        const int64_t id = cursor_integer(&cursor, 0);
        const int64_t parent = cursor_integer(&cursor, 1);
        const int64_t symbol = cursor_integer(&cursor, 2);
        if (id <= 0 || (size_t)id >= lines->node_limit || symbol <= 0 || (size_t)symbol >= lines->symbol_limit) {
            continue; /* a damaged file may have any */
        }
        lines->users[id] = parent > 0 && parent < id ? lines->users[parent] : 0;
        if (lines->ranks[symbol] != VARVE_FRAME_PLUMBING &&
            (lines->users[id] == 0 || lines->ranks[symbol] >= lines->ranks[lines->users[id]])) {
            lines->users[id] = (uint32_t)symbol;
        }
    }
    cursor_close(&cursor);
}

/* ---- the tables that stand in front ---- */

static void hidden_lines_write_symbols(const struct lines *lines, struct database *database)
{
    struct cursor cursor;
    cursor_open(&cursor, database, "UPDATE temp.symbol SET user_rank = ?2 WHERE id = ?1 AND user_rank <> ?2");
    for (size_t id = 1; id < lines->symbol_limit; id++) {
        cursor_bind_integer(&cursor, 1, (int64_t)id);
        cursor_bind_integer(&cursor, 2, lines->ranks[id]);
        cursor_next(&cursor);
        cursor_reset(&cursor);
    }
    cursor_close(&cursor);
}

/* Returns how many call sites have frames, if all of these are hidden in each, else 0. */
static size_t hidden_lines_write_callsites(const struct lines *lines, struct database *database)
{
    struct cursor read;
    cursor_open(&read, database, "SELECT id, coalesce(node_id, 0) FROM main.callsite");
    struct cursor write;
    cursor_open(&write, database,
                "UPDATE temp.callsite SET user_symbol_id = coalesce(nullif(?2, 0), symbol_id) WHERE id = ?1");
    size_t count = 0, shown = 0;
    while (cursor_next(&read)) {
        const int64_t node = cursor_integer(&read, 1);
        const uint32_t user = node > 0 && (size_t)node < lines->node_limit ? lines->users[node] : 0;
        count += node > 0;
        shown += user != 0 && lines->ranks[user] > VARVE_FRAME_RUNTIME;
        cursor_bind_integer(&write, 1, cursor_integer(&read, 0));
        cursor_bind_integer(&write, 2, user);
        cursor_next(&write);
        cursor_reset(&write);
    }
    cursor_close(&read);
    cursor_close(&write);
    return shown == 0 ? count : 0;
}

/* Returns what hidden_lines_write_callsites does. */
static size_t choose_lines(struct database *database, const struct varve_plumbing *plumbing)
{
    struct lines lines = {0};
    rank_symbols(&lines, database, plumbing);
    find_lines(&lines, database);
    database_execute(database, sql_hidden_tables);
    hidden_lines_write_symbols(&lines, database);
    size_t all = hidden_lines_write_callsites(&lines, database);
    database_copy_views(database, NULL);
    database_execute(database, "COMMIT; PRAGMA query_only = 1;");
    free(lines.ranks);
    free(lines.users);
    return all;
}

int hidden_patterns(const char *const *patterns, size_t count, struct varve_plumbing **plumbing_out,
                    struct varve_message *message)
{
    struct user_config config;
    struct varve_plumbing *plumbing = NULL;
    int error = user_config_load(&config, message);
    if (error == VARVE_OK && (count > 0 || user_config_next(&config, "plumbing", NULL) != NULL)) {
        error = varve_plumbing_open(&plumbing);
        if (error != VARVE_OK) {
            varve_message_set(message, error, "no memory for patterns");
        }
        VARVE_THEN(error, add_set(plumbing, &config, message));
    }
    for (size_t i = 0; i < count && error == VARVE_OK; i++) {
        error = varve_plumbing_add(plumbing, patterns[i], message);
    }
    user_config_free(&config);
    if (error != VARVE_OK) {
        varve_plumbing_close(plumbing);
        plumbing = NULL;
    }
    *plumbing_out = plumbing;
    return error;
}

int database_hide(struct database *database, const char *const *patterns, size_t count, size_t *all_out,
                  struct varve_message *message)
{
    struct varve_plumbing *plumbing;
    int error = hidden_patterns(patterns, count, &plumbing, message);
    *all_out = 0;
    if (error == VARVE_OK && plumbing != NULL) {
        *all_out = choose_lines(database, plumbing);
        error = database_error(database, message);
        varve_plumbing_close(plumbing);
    }
    return error;
}
