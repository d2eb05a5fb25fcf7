/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each tree both ways, as `varve tree` has them: turned round, it begins at the user's lines, which only
 * the database knows.
 */
#include "analysis/page/page_writer.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/query/database.h"
#include "analysis/report/call_tree.h"
#include "base/error.h"

#include "statements_generated.h"

#include <stdlib.h>

#define FLAME_NODES_MAX 6000
#define FLAME_DOMAINS_MAX 6

/* In millionths of the whole: tried in turn until the tree is small enough. */
static const int64_t shares[] = {0, 20, 100, 300, 1000, 3000, 10000};

static int page_flame_load(struct call_tree *tree, struct database *database, struct call_tree_stacks *stacks,
                           const char *domain, int metric, bool is_inverted, struct varve_message *message)
{
    struct call_tree_options options = {
        .stacks = stacks,
        .domain = domain,
        .metric = (enum call_tree_metric)metric,
        .figure = CALL_TREE_BYTES,
        .is_inverted = is_inverted,
        .top = INT64_MAX,
        .depth = CALL_TREE_FRAMES_MAX,
        .nodes_max = FLAME_NODES_MAX,
    };
    for (size_t i = 0; i + 1 < sizeof(shares) / sizeof(shares[0]); i++) {
        options.share_min = shares[i];
        int error = call_tree_load(tree, database, &options, message);
        if (error != VARVE_OK || tree->count <= FLAME_NODES_MAX) {
            return error;
        }
        call_tree_free(tree);
    }
    options.share_min = shares[sizeof(shares) / sizeof(shares[0]) - 1];
    options.nodes_max = 0;
    return call_tree_load(tree, database, &options, message);
}

void page_stacks_init(struct page_stacks *stacks, struct database *database)
{
    *stacks = (struct page_stacks){.count = 0};
    call_tree_stacks_load(&stacks->stacks, database, false);
}

void page_stacks_free(struct page_stacks *stacks)
{
    call_tree_stacks_free(&stacks->stacks);
    map_free(&stacks->numbers);
    free(stacks->symbols);
}

bool page_frame_number(struct page_stacks *stacks, uint32_t symbol, size_t *number_out)
{
    const uint64_t found = map_find(&stacks->numbers, symbol);
    *number_out = found != MAP_NONE ? (size_t)found : stacks->count;
    if (found == MAP_NONE) {
        map_put(&stacks->numbers, symbol, stacks->count);
        stacks->symbols = memory_grow(stacks->symbols, &stacks->capacity, stacks->count, sizeof(*stacks->symbols));
        stacks->symbols[stacks->count++] = symbol;
    }
    return found == MAP_NONE;
}

void page_frame_write(struct page_writer *writer, const struct call_tree_frame *frame)
{
    page_name(writer, frame->is_missing ? "(no stack)" : frame->function);
    page_name(writer, frame->file);
    page_name(writer, frame->module);
    page_integer(writer, frame->line);
    page_integer(writer, frame->is_python ? 1 : 0);
}

/* Those of a tree that no tree before it had, which get the next numbers. */
static void page_flame_write_frames(struct page_writer *writer, struct page_stacks *stacks,
                                    const struct call_tree *tree)
{
    size_t number;
    page_key(writer, "new_frames");
    page_open(writer, '[');
    for (size_t i = 0; i < tree->frame_count; i++) {
        if (page_frame_number(stacks, tree->frames[i].symbol, &number)) {
            page_frame_write(writer, &tree->frames[i]);
        }
    }
    page_close(writer, ']');
}

/* Callers come before what they call: `up` is how many nodes back the caller is. Many frames have all that their caller
 * has: what is written is how much less. */
static void page_flame_write_nodes(struct page_writer *writer, const struct page_stacks *stacks,
                                   const struct call_tree *tree)
{
    int figure = tree->options.figure;
    page_key(writer, "nodes"); /* up, frame, less than its caller: all, allocations; left out */
    page_open(writer, '[');
    for (size_t i = 0; i < tree->count; i++) {
        const struct call_tree_node *node = &tree->nodes[i];
        const int64_t *whole = tree->nodes[node->parent].total; /* of node 0 its own */
        page_integer(writer, (int64_t)i - node->parent);
        page_integer(writer, i > 0 ? (int64_t)map_find(&stacks->numbers, tree->frames[node->frame].symbol) : 0);
        page_integer(writer, whole[figure] - node->total[figure]);
        page_integer(writer, whole[CALL_TREE_ALLOCATIONS] - node->total[CALL_TREE_ALLOCATIONS]);
        page_integer(writer, node->left_out[figure]);
    }
    page_close(writer, ']');
}

static void write_tree(struct page_writer *writer, struct page_stacks *stacks, const struct call_tree *tree)
{
    int figure = tree->options.figure;
    page_open(writer, '{');
    page_member_text(writer, "domain", tree->options.domain);
    page_member_text(writer, "metric", call_tree_metric_names[tree->options.metric]);
    page_member_bool(writer, "is_inverted", tree->options.is_inverted);
    page_member_bool(writer, "is_count", figure == CALL_TREE_ALLOCATIONS);
    page_member_bool(writer, "has_stacks", tree->has_stacks);
    page_member_integer(writer, "share_min", tree->options.share_min);
    page_member_integer(writer, "value", tree->nodes[0].total[figure]);
    page_member_integer(writer, "allocations", tree->nodes[0].total[CALL_TREE_ALLOCATIONS]);
    page_flame_write_frames(writer, stacks, tree);
    page_flame_write_nodes(writer, stacks, tree);
    page_close(writer, '}');
}

int flame_write(struct database *database, struct page_writer *writer, struct page_stacks *stacks,
                struct varve_message *message)
{
    page_open(writer, '[');
    struct cursor cursor;
    cursor_open(&cursor, database, sql_page_flame_domains);
    cursor_bind_integer(&cursor, 1, FLAME_DOMAINS_MAX);
    int error = VARVE_OK;
    while (error == VARVE_OK && cursor_next(&cursor)) {
        for (int metric = 0; error == VARVE_OK && metric < 2 * CALL_TREE_METRICS; metric++) {
            struct call_tree tree; /* of each metric first from the callers, then from the lines */
            error = page_flame_load(&tree, database, &stacks->stacks, cursor_name(&cursor, 0), metric / 2,
                                    metric % 2 != 0, message);
            if (error == VARVE_OK && tree.count > 0) {
                write_tree(writer, stacks, &tree);
            }
            call_tree_free(&tree);
        }
    }
    cursor_close(&cursor);
    page_close(writer, ']');
    return error;
}
