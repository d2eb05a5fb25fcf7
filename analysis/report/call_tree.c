/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two steps. First the stack nodes of the database, whose callers come before them, become a tree of frames in which
 * each node has what its own call sites have. Then the part that is asked for is copied out of it, node by node:
 * downwards along the children; inverted, by advancing all stacks of a node to their callers and
 * grouping them by frame.
 */
#include "analysis/report/call_tree.h"

#include "analysis/base/key_map.h"
#include "analysis/base/memory_or_exit.h"
#include "analysis/base/number_format.h"
#include "analysis/query/database.h"
#include "analysis/query/loss_note.h"
#include "analysis/query/query_selection.h"
#include "analysis/query/segment_query.h"
#include "analysis/query/total_query.h"
#include "base/error.h"

#include "statements_generated.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define ROOT 0
#define NO_FRAME 0            /* the key of stacks without frames */
#define USER_FRAMES_MAX 256   /* in which the user's line is looked for */
#define NODES_MAX (1UL << 21) /* of a tree that is copied out: what is beyond is left out */

const char *const call_tree_metric_names[] = {"peak", "allocated", "leaked", "temporary", NULL};

/* A frame below a caller. Keys are ids of symbols: of equal ones the smallest. */
struct call_tree_source {
    uint32_t parent, key;
    uint32_t first_child, next; /* ROOT: none */
    int64_t own[CALL_TREE_FIGURES], total[CALL_TREE_FIGURES];
};

/* What some call sites of one source and one user's line have. */
struct call_tree_callsite {
    uint32_t source, key; /* of the line; NO_FRAME: none */
    int64_t figures[CALL_TREE_METRICS][CALL_TREE_FIGURES];
};

/* A stack on its way outwards: it began at `begin` and has come to `at`. */
struct climber {
    uint32_t at, begin;
};

/* A node that is to be copied out. */
struct pending {
    uint32_t parent, key, depth, level;
    uint32_t source;   /* its source node; inverted: unused */
    size_t begin, end; /* inverted: its climbers */
    int64_t total[CALL_TREE_FIGURES];
};

struct builder {
    struct call_tree *tree;
    struct database *database;
    struct call_tree_stacks *stacks;
    struct call_tree_source *sources; /* those of the stacks: callers first; ROOT is none */
    size_t source_count, symbol_limit;
    size_t node_capacity, frame_capacity;
    struct cursor symbols;
    struct pending *stack; /* the next one last */
    size_t stack_count, stack_capacity;
    struct pending *children; /* of the node that is being expanded */
    size_t child_count, child_capacity;
    uint32_t *slots; /* by key: 1 + index into children or frames; all 0 between uses */
    uint32_t *frame_slots;
    struct climber *climbers, *moved;
};

const char *call_tree_words(enum call_tree_metric metric)
{
    static const char *const words[] = {"at the peak", "allocated", "live at the end",
                                        "freed before the thread allocated again"};
    return words[metric];
}

/* ---- which part ---- */

static int part_check(const struct call_tree_part *part, struct database *database, const char *domain,
                      struct varve_message *message)
{
    static const char thread_sql[] = "SELECT count(*) FROM thread WHERE tid = ?1";
    char words[240];
    report_kept_words(words, sizeof(words), database);
    if (!report_keeps_allocations(database, domain)) {
        return varve_message_set(message, VARVE_ERROR_UNSUPPORTED,
                                 "%s has not the allocations that a part needs: it has %s", database_path(database),
                                 words);
    }
    if (part->tid != 0 && database_integer_of(database, thread_sql, part->tid) == 0) {
        return varve_message_set(message, VARVE_ERROR_NOT_FOUND,
                                 "%s has no thread %" PRId64 "; varve query DB \"SELECT pid, tid, name FROM thread\" "
                                 "lists them",
                                 database_path(database), part->tid);
    }
    const int64_t end_ns = report_duration_ns(database);
    if (part->from_ns > end_ns || part->to_ns > end_ns) {
        return varve_message_set(message, VARVE_ERROR_NOT_FOUND, "%s: the recording ended %s after the start",
                                 database_path(database), format_duration(end_ns).text);
    }
    return part->to_ns >= 0 && part->from_ns >= part->to_ns
               ? varve_message_set(message, VARVE_ERROR_INVALID, "--from must be before --to")
               : VARVE_OK;
}

int call_tree_part_make(struct call_tree_part *part, struct database *database, const char *domain, int64_t pid,
                        int64_t tid, const char *from, const char *to, const char *to_option,
                        struct varve_message *message)
{
    *part = (struct call_tree_part){.pid = pid, .tid = tid, .from_ns = -1, .to_ns = -1};
    int error = pid != 0 ? selection_check_pid(database, pid, message) : VARVE_OK;
    if (from != NULL) {
        VARVE_THEN(error, moment_parse(database, "from", "", from, &part->from_ns, message));
    }
    if (to != NULL) {
        VARVE_THEN(error, moment_parse(database, to_option, "", to, &part->to_ns, message));
    }
    VARVE_THEN(error, part_check(part, database, domain, message));
    return error;
}

/* ---- what the database has ---- */

/* Marks of left-out frames are one frame, whatever their figure: recursions of all depths go on below one node. */
static void mark_load(struct call_tree_stacks *stacks, uint32_t id)
{
    stacks->mark = stacks->mark != 0 ? stacks->mark : id;
    stacks->mark_count++;
    stacks->keys[id] = stacks->mark;
    stacks->is_plumbing[id] = false;
}

static void symbols_load(struct call_tree_stacks *stacks, struct database *database)
{
    int64_t limit = database_number_limit(database, "symbol");
    stacks->symbol_limit = limit < UINT32_MAX ? (size_t)limit : UINT32_MAX;
    stacks->keys = memory_resize(NULL, stacks->symbol_limit * sizeof(*stacks->keys));
    memset(stacks->keys, 0, stacks->symbol_limit * sizeof(*stacks->keys));
    stacks->is_plumbing = memory_resize(NULL, stacks->symbol_limit);
    memset(stacks->is_plumbing, 0, stacks->symbol_limit);
    stacks->is_importer = memory_resize(NULL, stacks->symbol_limit);
    memset(stacks->is_importer, 0, stacks->symbol_limit);
    struct cursor cursor;
    cursor_open(&cursor, database, sql_tree_symbols);
    while (cursor_next(&cursor)) {
        int64_t id = cursor_integer(&cursor, 0);
        if (id > 0 && id < (int64_t)stacks->symbol_limit) {
            stacks->keys[id] = (uint32_t)cursor_integer(&cursor, 1);
            stacks->is_plumbing[id] = cursor_integer(&cursor, 2) != 0;
            stacks->is_importer[id] = cursor_integer(&cursor, 4) != 0;
            if (cursor_integer(&cursor, 3) != 0 && !stacks->all_frames) {
                mark_load(stacks, (uint32_t)id);
            }
        }
    }
    cursor_close(&cursor);
}

static uint32_t add_source(struct call_tree_stacks *stacks, uint32_t parent, uint32_t key)
{
    stacks->sources =
        memory_grow(stacks->sources, &stacks->source_capacity, stacks->source_count, sizeof(*stacks->sources));
    stacks->sources[stacks->source_count] = (struct call_tree_source){.parent = parent, .key = key};
    return (uint32_t)stacks->source_count++;
}

/* The node of a frame below a caller, which may be the caller itself: plumbing is folded away, and so
 * are repetitions, also beyond a mark of left-out frames. */
static uint32_t find_source(struct call_tree_stacks *stacks, uint32_t parent, uint32_t key)
{
    uint64_t where = (uint64_t)parent << 32 | key;
    if (!stacks->all_frames && (stacks->is_plumbing[key] || (parent != ROOT && stacks->sources[parent].key == key))) {
        return parent;
    }
    const uint32_t outer = stacks->sources[parent].parent;
    if (parent != ROOT && outer != ROOT && stacks->mark != 0 && stacks->sources[parent].key == stacks->mark &&
        stacks->sources[outer].key == key) {
        return outer;
    }
    uint64_t found = map_find(&stacks->numbers, where);
    if (found != MAP_NONE) {
        return (uint32_t)found;
    }
    uint32_t number = add_source(stacks, parent, key);
    map_put(&stacks->numbers, where, number);
    return number;
}

/* The keys of the frames that stack nodes refer to, by id, and whether they are of Python's import system. */
static uint32_t *call_tree_read_frames(const struct call_tree_stacks *stacks, struct database *database, int64_t limit,
                                       bool *is_import)
{
    uint32_t *keys = memory_resize(NULL, (size_t)limit * sizeof(*keys));
    memset(keys, 0, (size_t)limit * sizeof(*keys));
    struct cursor cursor;
    memset(is_import, 0, (size_t)limit);
    cursor_open(&cursor, database, "SELECT id, symbol_id FROM stack_frame");
    while (cursor_next(&cursor)) {
        int64_t id = cursor_integer(&cursor, 0);
        int64_t symbol = cursor_integer(&cursor, 1);
        if (id > 0 && id < limit && symbol > 0 && symbol < (int64_t)stacks->symbol_limit) {
            keys[id] = stacks->keys[symbol];
            is_import[id] = stacks->is_importer[symbol];
        }
    }
    cursor_close(&cursor);
    return keys;
}

/* The source node of each stack node, by id. A caller that does not come before its frame is as good as none. */
static void nodes_load(struct call_tree_stacks *stacks, struct database *database)
{
    stacks->node_limit = database_number_limit(database, "stack_node_row");
    int64_t frame_limit = database_number_limit(database, "stack_frame");
    bool *is_import = memory_resize(NULL, (size_t)frame_limit);
    uint32_t *frames = call_tree_read_frames(stacks, database, frame_limit, is_import);
    stacks->is_import = memory_resize(NULL, (size_t)stacks->node_limit);
    memset(stacks->is_import, 0, (size_t)stacks->node_limit);
    stacks->nodes = memory_resize(NULL, (size_t)stacks->node_limit * sizeof(*stacks->nodes));
    memset(stacks->nodes, 0, (size_t)stacks->node_limit * sizeof(*stacks->nodes));
    struct cursor cursor;
    cursor_open(&cursor, database, "SELECT id, id - parent_lag, frame_id FROM stack_node_row ORDER BY id");
    while (cursor_next(&cursor)) {
        int64_t id = cursor_integer(&cursor, 0);
        int64_t parent = cursor_integer(&cursor, 1);
        int64_t frame = cursor_integer(&cursor, 2);
        uint32_t key = frame > 0 && frame < frame_limit ? frames[frame] : NO_FRAME;
        if (id > 0 && id < stacks->node_limit) {
            const bool has_import = parent > 0 && parent < id && stacks->is_import[parent];
            stacks->is_import[id] = has_import || (frame > 0 && frame < frame_limit && is_import[frame]);
            uint32_t caller = parent > 0 && parent < id ? stacks->nodes[parent] : ROOT;
            stacks->nodes[id] = key != NO_FRAME ? find_source(stacks, caller, key) : caller;
        }
    }
    cursor_close(&cursor);
    free(frames);
    free(is_import);
}

void call_tree_stacks_load(struct call_tree_stacks *stacks, struct database *database, bool all_frames)
{
    *stacks = (struct call_tree_stacks){.all_frames = all_frames};
    add_source(stacks, ROOT, NO_FRAME);
    symbols_load(stacks, database);
    nodes_load(stacks, database);
}

void call_tree_stacks_free(struct call_tree_stacks *stacks)
{
    map_free(&stacks->numbers);
    free(stacks->keys);
    free(stacks->is_plumbing);
    free(stacks->is_importer);
    free(stacks->is_import);
    free(stacks->sources);
    free(stacks->nodes);
    free(stacks->callsites);
    free(stacks->domain);
    *stacks = (struct call_tree_stacks){0};
}

/* A row for it; `last` has the number of the last one of each source, from 1. Other lines of a source are rare. */
static struct call_tree_callsite *find_callsite(struct call_tree_stacks *stacks, uint32_t *last, uint32_t source,
                                                uint32_t key)
{
    if (last[source] == 0 || stacks->callsites[last[source] - 1].key != key) {
        stacks->callsites = memory_grow(stacks->callsites, &stacks->callsite_capacity, stacks->callsite_count,
                                        sizeof(*stacks->callsites));
        stacks->callsites[stacks->callsite_count++] = (struct call_tree_callsite){.source = source, .key = key};
        last[source] = (uint32_t)stacks->callsite_count;
    }
    return &stacks->callsites[last[source] - 1];
}

static void call_tree_open_callsites(struct cursor *cursor, const struct call_tree_stacks *stacks,
                                     struct database *database, const struct call_tree_part *part)
{
    cursor_open(cursor, database,
                part != NULL              ? sql_tree_callsites_of_part
                : stacks->process_id == 0 ? sql_tree_callsites
                                          : sql_tree_callsites_of_process);
    cursor_bind_text(cursor, 1, stacks->domain);
    if (part != NULL) {
        cursor_bind_integer(cursor, 2, part->pid);
        cursor_bind_integer(cursor, 3, part->tid);
        cursor_bind_integer(cursor, 4, part->from_ns);
        cursor_bind_integer(cursor, 5, part->to_ns);
    } else if (stacks->process_id != 0) {
        cursor_bind_integer(cursor, 2, stacks->process_id);
    }
}

/* What the call sites of the domain have by all metrics, whose trees begin with the same rows. Of a metric with figures
 * that can't be nothing more is added. */
static void callsites_load(struct call_tree_stacks *stacks, struct database *database,
                           const struct call_tree_part *part)
{
    uint32_t *last = memory_resize(NULL, stacks->source_count * sizeof(*last));
    memset(last, 0, stacks->source_count * sizeof(*last));
    struct cursor cursor;
    stacks->callsite_count = 0;
    memset(stacks->sums, 0, sizeof(stacks->sums));
    memset(stacks->is_wrong, 0, sizeof(stacks->is_wrong));
    call_tree_open_callsites(&cursor, stacks, database, part);
    while (cursor_next(&cursor)) {
        int64_t node = cursor_integer(&cursor, 0), symbol = cursor_integer(&cursor, 1);
        struct call_tree_callsite *callsite =
            find_callsite(stacks, last, node > 0 && node < stacks->node_limit ? stacks->nodes[node] : ROOT,
                          symbol > 0 && symbol < (int64_t)stacks->symbol_limit ? stacks->keys[symbol] : NO_FRAME);
        for (int i = 0; i < CALL_TREE_METRICS * CALL_TREE_FIGURES; i++) {
            int64_t figure = cursor_integer(&cursor, 2 + i);
            int64_t *sum = &stacks->sums[i / CALL_TREE_FIGURES][i % CALL_TREE_FIGURES];
            bool *is_wrong = &stacks->is_wrong[i / CALL_TREE_FIGURES];
            *is_wrong = *is_wrong || figure < 0 || figure > INT64_MAX - *sum;
            if (!*is_wrong) {
                *sum += figure;
                callsite->figures[i / CALL_TREE_FIGURES][i % CALL_TREE_FIGURES] += figure;
            }
        }
    }
    cursor_close(&cursor);
    free(last);
}

/* Where a call site is in the tree; inverted, at the user's line, from which people ask outwards. A stack that is
 * plumbing from end to end is shown by its line as well. */
static uint32_t call_tree_place(struct call_tree_stacks *stacks, const struct call_tree_callsite *callsite,
                                bool is_inverted)
{
    uint32_t number = callsite->source;
    for (int i = 0; is_inverted && !stacks->all_frames && i < USER_FRAMES_MAX; i++) {
        if (number == ROOT || stacks->sources[number].key == callsite->key) {
            break;
        }
        number = stacks->sources[number].parent;
    }
    if (callsite->source != ROOT) {
        return number != ROOT && stacks->sources[number].key == callsite->key ? number : callsite->source;
    }
    uint64_t found = map_find(&stacks->numbers, callsite->key);
    if (found != MAP_NONE) {
        return (uint32_t)found;
    }
    number = add_source(stacks, ROOT, callsite->key);
    map_put(&stacks->numbers, callsite->key, number);
    return number;
}

static void call_tree_place_all(struct call_tree_stacks *stacks)
{
    for (size_t i = 0; i < stacks->callsite_count; i++) {
        const int64_t *figures = stacks->callsites[i].figures[stacks->metric];
        if (figures[CALL_TREE_BYTES] == 0 && figures[CALL_TREE_ALLOCATIONS] == 0) {
            continue;
        }
        struct call_tree_source *source =
            &stacks->sources[call_tree_place(stacks, &stacks->callsites[i], stacks->is_inverted)];
        stacks->has_stacks = stacks->has_stacks || source->key != NO_FRAME;
        for (int figure = 0; figure < CALL_TREE_FIGURES; figure++) {
            source->own[figure] += figures[figure];
        }
    }
}

uint32_t call_tree_source(struct call_tree_stacks *stacks, int64_t node, int64_t user_symbol, bool is_inverted)
{
    const struct call_tree_callsite callsite = {
        .source = node > 0 && node < stacks->node_limit ? stacks->nodes[node] : ROOT,
        .key = user_symbol > 0 && user_symbol < (int64_t)stacks->symbol_limit ? stacks->keys[user_symbol] : NO_FRAME};
    return call_tree_place(stacks, &callsite, is_inverted);
}

bool call_tree_is_import(const struct call_tree_stacks *stacks, int64_t node)
{
    return node > 0 && node < stacks->node_limit && stacks->is_import[node];
}

uint32_t call_tree_source_caller(const struct call_tree_stacks *stacks, uint32_t source, uint32_t *symbol_out)
{
    *symbol_out = stacks->sources[source].key;
    return stacks->sources[source].parent;
}

/* Callers have smaller numbers: one pass from the end adds up all subtrees. */
static void add_up(struct call_tree_stacks *stacks)
{
    for (size_t i = stacks->source_count - 1; i > ROOT; i--) {
        struct call_tree_source *node = &stacks->sources[i];
        struct call_tree_source *parent = &stacks->sources[node->parent];
        bool is_empty = true;
        for (int figure = 0; figure < CALL_TREE_FIGURES; figure++) {
            node->total[figure] += node->own[figure];
            is_empty = is_empty && node->total[figure] == 0;
            parent->total[figure] += node->total[figure];
        }
        if (!is_empty) {
            node->next = parent->first_child;
            parent->first_child = (uint32_t)i;
        }
    }
}

/* ---- what is copied out ---- */

static void add_child(struct builder *builder, const struct pending *child)
{
    builder->children =
        memory_grow(builder->children, &builder->child_capacity, builder->child_count, sizeof(*builder->children));
    builder->children[builder->child_count++] = *child;
}

static void find_callees(struct builder *builder, const struct pending *node, struct call_tree_node *out)
{
    const struct call_tree_source *source = &builder->sources[node->source];
    memcpy(out->own, source->own, sizeof(out->own));
    for (uint32_t at = source->first_child; at != ROOT; at = builder->sources[at].next) {
        struct pending child = {.key = builder->sources[at].key, .source = at};
        memcpy(child.total, builder->sources[at].total, sizeof(child.total));
        add_child(builder, &child);
    }
}

/* The frame at which a climber of this node stands next; ROOT: its stack ends. */
static uint32_t next_of(const struct builder *builder, const struct pending *node, const struct climber *climber)
{
    return node->depth == 0 ? climber->at : builder->sources[climber->at].parent;
}

static void call_tree_find_callers(struct builder *builder, const struct pending *node, struct call_tree_node *out)
{
    size_t to = node->begin;
    for (size_t i = node->begin; i < node->end; i++) {
        uint32_t at = next_of(builder, node, &builder->climbers[i]);
        const int64_t *figures = builder->sources[builder->climbers[i].begin].own;
        uint32_t *slot = &builder->slots[builder->sources[at].key];
        int64_t *sums = out->own;
        if (at != ROOT) {
            if (*slot == 0) {
                add_child(builder, &(struct pending){.key = builder->sources[at].key});
                *slot = (uint32_t)builder->child_count;
            }
            builder->children[*slot - 1].end++;
            sums = builder->children[*slot - 1].total;
        }
        for (int figure = 0; figure < CALL_TREE_FIGURES; figure++) {
            sums[figure] += figures[figure];
        }
    }
    for (size_t i = 0; i < builder->child_count; i++) {
        size_t count = builder->children[i].end;
        builder->children[i].begin = to;
        builder->children[i].end = to; /* counted up again below */
        to += count;
    }
    for (size_t i = node->begin; i < node->end; i++) {
        uint32_t at = next_of(builder, node, &builder->climbers[i]);
        if (at != ROOT) {
            uint32_t slot = builder->slots[builder->sources[at].key];
            builder->moved[builder->children[slot - 1].end++] = (struct climber){at, builder->climbers[i].begin};
        }
    }
    memcpy(builder->climbers + node->begin, builder->moved + node->begin,
           (to - node->begin) * sizeof(*builder->climbers));
    for (size_t i = 0; i < builder->child_count; i++) {
        builder->slots[builder->children[i].key] = 0;
    }
}

/* The figure of the order comes first in a comparison. */
static int call_tree_compare(const struct pending *a, const struct pending *b, enum call_tree_figure figure)
{
    for (int i = 0; i < CALL_TREE_FIGURES; i++) {
        int at = ((int)figure + i) % CALL_TREE_FIGURES;
        if (a->total[at] != b->total[at]) {
            return a->total[at] > b->total[at] ? -1 : 1;
        }
    }
    return a->key < b->key ? -1 : a->key > b->key;
}

static int compare_bytes(const void *a, const void *b)
{
    return call_tree_compare(a, b, CALL_TREE_BYTES);
}

static int compare_allocations(const void *a, const void *b)
{
    return call_tree_compare(a, b, CALL_TREE_ALLOCATIONS);
}

static bool call_tree_is_large(const struct builder *builder, const int64_t *figures)
{
    const struct call_tree_options *options = &builder->tree->options;
    double part = (double)figures[options->figure];
    double whole = (double)builder->sources[ROOT].total[options->figure];
    return part * CALL_TREE_SHARE_ONE >= (double)options->share_min * whole;
}

static bool is_shown(const struct builder *builder, const int64_t *figures)
{
    return (figures[CALL_TREE_BYTES] > 0 || figures[CALL_TREE_ALLOCATIONS] > 0) && call_tree_is_large(builder, figures);
}

static void leave_out(struct builder *builder, struct call_tree_node *out, size_t first)
{
    for (size_t i = first; i < builder->child_count; i++) {
        out->children_left_out++;
        for (int figure = 0; figure < CALL_TREE_FIGURES; figure++) {
            out->left_out[figure] += builder->children[i].total[figure];
        }
    }
    builder->child_count = first;
}

/* Order the children of a node and leave out what is not asked for; those that stay have their level. */
static void select_children(struct builder *builder, struct call_tree_node *out)
{
    const struct call_tree_options *options = &builder->tree->options;
    if (builder->child_count > 1) {
        qsort(builder->children, builder->child_count, sizeof(*builder->children),
              options->figure == CALL_TREE_BYTES ? compare_bytes : compare_allocations);
    }
    size_t count = 0;
    while (count < builder->child_count && (int64_t)count < options->top &&
           call_tree_is_large(builder, builder->children[count].total)) {
        count++;
    }
    leave_out(builder, out, count);
    size_t parts = count + (is_shown(builder, out->own) ? 1 : 0) + (is_shown(builder, out->left_out) ? 1 : 0);
    uint32_t level = out->level + (parts > 1 || out->depth == 0 ? 1 : 0);
    if ((int64_t)level > options->depth || out->depth >= CALL_TREE_FRAMES_MAX ||
        builder->tree->count + builder->stack_count + count > NODES_MAX) {
        leave_out(builder, out, 0);
    }
    out->children = (uint32_t)builder->child_count;
    for (size_t i = 0; i < builder->child_count; i++) {
        builder->children[i].level = level;
        builder->children[i].depth = out->depth + 1;
    }
}

void call_tree_frame_read(const struct call_tree_stacks *stacks, struct cursor *symbols, uint32_t symbol,
                          struct call_tree_frame *frame)
{
    *frame = (struct call_tree_frame){.symbol = symbol, .is_missing = symbol == NO_FRAME};
    cursor_reset(symbols);
    cursor_bind_integer(symbols, 1, symbol);
    if (symbol != NO_FRAME && cursor_next(symbols)) {
        const bool is_any = symbol == stacks->mark && stacks->mark_count > 1;
        frame->function = memory_copy_text(is_any ? "… frames …" : cursor_text(symbols, 0));
        frame->file = memory_copy_text(cursor_text(symbols, 1));
        frame->line = cursor_integer(symbols, 2) > 0 ? cursor_integer(symbols, 2) : 0;
        frame->module = memory_copy_text(cursor_text(symbols, 3));
        frame->is_python = cursor_integer(symbols, 4) != 0;
    }
}

void call_tree_frame_free(struct call_tree_frame *frame)
{
    free(frame->function);
    free(frame->file);
    free(frame->module);
}

/* The number of a frame in the tree, which has its words once. */
static uint32_t number_frame(struct builder *builder, uint32_t key)
{
    struct call_tree *tree = builder->tree;
    if (builder->frame_slots[key] == 0) {
        tree->frames = memory_grow(tree->frames, &builder->frame_capacity, tree->frame_count, sizeof(*tree->frames));
        call_tree_frame_read(builder->stacks, &builder->symbols, key, &tree->frames[tree->frame_count++]);
        builder->frame_slots[key] = (uint32_t)tree->frame_count;
    }
    return builder->frame_slots[key] - 1;
}

static void copy_out(struct builder *builder, const struct pending *node)
{
    struct call_tree *tree = builder->tree;
    uint32_t number = (uint32_t)tree->count;
    tree->nodes = memory_grow(tree->nodes, &builder->node_capacity, tree->count, sizeof(*tree->nodes));
    struct call_tree_node *out = &tree->nodes[tree->count++];
    *out = (struct call_tree_node){.parent = node->parent, .depth = node->depth, .level = node->level};
    out->frame = node->depth > 0 ? number_frame(builder, node->key) : 0;
    memcpy(out->total, node->total, sizeof(out->total));
    builder->child_count = 0;
    if (tree->options.is_inverted) {
        call_tree_find_callers(builder, node, out);
    } else {
        find_callees(builder, node, out);
    }
    select_children(builder, out);
    for (size_t i = builder->child_count; i > 0; i--) {
        builder->children[i - 1].parent = number;
        builder->stack =
            memory_grow(builder->stack, &builder->stack_capacity, builder->stack_count, sizeof(*builder->stack));
        builder->stack[builder->stack_count++] = builder->children[i - 1];
    }
}

static void select_nodes(struct builder *builder)
{
    struct pending node = {.source = ROOT};
    builder->slots = memory_resize(NULL, builder->symbol_limit * sizeof(*builder->slots));
    memset(builder->slots, 0, builder->symbol_limit * sizeof(*builder->slots));
    builder->frame_slots = memory_resize(NULL, builder->symbol_limit * sizeof(*builder->frame_slots));
    memset(builder->frame_slots, 0, builder->symbol_limit * sizeof(*builder->frame_slots));
    memcpy(node.total, builder->sources[ROOT].total, sizeof(node.total));
    if (builder->tree->options.is_inverted) {
        builder->climbers = memory_resize(NULL, builder->source_count * sizeof(*builder->climbers));
        builder->moved = memory_resize(NULL, builder->source_count * sizeof(*builder->moved));
        for (uint32_t i = ROOT + 1; i < builder->source_count; i++) {
            const int64_t *own = builder->sources[i].own;
            if (own[CALL_TREE_BYTES] > 0 || own[CALL_TREE_ALLOCATIONS] > 0) {
                builder->climbers[node.end++] = (struct climber){i, i};
            }
        }
    }
    cursor_open(&builder->symbols, builder->database, sql_symbol);
    copy_out(builder, &node);
    const size_t nodes_max = builder->tree->options.nodes_max;
    while (builder->stack_count > 0 && (nodes_max == 0 || builder->tree->count <= nodes_max)) {
        node = builder->stack[--builder->stack_count];
        copy_out(builder, &node);
    }
    cursor_close(&builder->symbols);
}

/* Figures of the sources, unless they have them already: of trees that differ by what is copied out alone. */
static void figures_load(struct builder *builder)
{
    struct call_tree_stacks *stacks = builder->stacks;
    const struct call_tree_options *options = &builder->tree->options;
    bool is_same = stacks->domain != NULL && strcmp(stacks->domain, options->domain) == 0 &&
                   stacks->process_id == options->process_id && !stacks->is_part && options->part == NULL;
    if (!is_same) {
        stacks->is_part = options->part != NULL;
        free(stacks->domain);
        stacks->domain = memory_copy_text(options->domain);
        stacks->process_id = options->process_id;
        callsites_load(stacks, builder->database, options->part);
    }
    if (!is_same || stacks->metric != options->metric || stacks->is_inverted != options->is_inverted) {
        for (size_t i = 0; i < stacks->source_count; i++) {
            struct call_tree_source *source = &stacks->sources[i];
            *source = (struct call_tree_source){.parent = source->parent, .key = source->key};
        }
        stacks->metric = options->metric;
        stacks->is_inverted = options->is_inverted;
        stacks->has_stacks = false;
        call_tree_place_all(stacks);
        add_up(stacks);
    }
    builder->tree->has_stacks = stacks->has_stacks;
    builder->sources = stacks->sources;
    builder->source_count = stacks->source_count;
    builder->symbol_limit = stacks->symbol_limit;
}

int call_tree_load(struct call_tree *tree, struct database *database, const struct call_tree_options *options,
                   struct varve_message *message)
{
    struct call_tree_stacks own = {0};
    struct builder builder = {.tree = tree, .database = database, .stacks = options->stacks};
    *tree = (struct call_tree){.options = *options};
    if (options->metric == CALL_TREE_TEMPORARY) {
        tree->options.figure = CALL_TREE_ALLOCATIONS;
    }
    if (builder.stacks == NULL) {
        builder.stacks = &own;
        call_tree_stacks_load(&own, database, options->all_frames);
    }
    figures_load(&builder);
    const bool is_right = !builder.stacks->is_wrong[options->metric];
    select_nodes(&builder);
    call_tree_stacks_free(&own);
    free(builder.stack);
    free(builder.children);
    free(builder.slots);
    free(builder.frame_slots);
    free(builder.climbers);
    free(builder.moved);
    return is_right
               ? VARVE_OK
               : varve_message_set(message, VARVE_ERROR_FORMAT,
                                   "%s: the figures of a call site are negative or too large", database_path(database));
}

void call_tree_free(struct call_tree *tree)
{
    for (size_t i = 0; i < tree->frame_count; i++) {
        call_tree_frame_free(&tree->frames[i]);
    }
    free(tree->frames);
    free(tree->nodes);
    *tree = (struct call_tree){0};
}

size_t call_tree_left_out(const struct call_tree *tree, int64_t figures[CALL_TREE_FIGURES])
{
    memset(figures, 0, CALL_TREE_FIGURES * sizeof(figures[0]));
    size_t count = 0;
    for (size_t i = 0; i < tree->count; i++) {
        count += tree->nodes[i].children_left_out;
        for (int figure = 0; figure < CALL_TREE_FIGURES; figure++) {
            figures[figure] += tree->nodes[i].left_out[figure];
        }
    }
    return count;
}
