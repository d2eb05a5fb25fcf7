/* SPDX-License-Identifier: Apache-2.0 */
/*
 * As text a node is a line: its figures, then its frame, indented where its caller has more than one part. A frame that
 * is all of its caller stays on the caller's level, without figures of its own; a long row of such frames is shortened.
 */
#include "analysis/report/tree_print.h"

#include "analysis/base/number_format.h"
#include "analysis/base/json_writer.h"
#include "analysis/base/terminal.h"
#include "analysis/query/database.h"
#include "analysis/query/query_selection.h"
#include "analysis/query/total_query.h"
#include "analysis/report/call_tree.h"

#include <inttypes.h>
#include <string.h>

#define LEVELS_DRAWN 20 /* deeper ones are not indented further */
#define CHAIN_HEAD 2    /* frames of a long row that are shown */
#define CHAIN_TAIL 5
#define FRAME_COLUMNS_MIN 20 /* even where the indentation leaves less */
#define FUNCTION_COLUMNS_MIN 12

struct printer {
    FILE *out;
    const struct call_tree *tree;
    bool has_more[LEVELS_DRAWN + 1];  /* by level: a sibling follows */
    uint32_t parts[LEVELS_DRAWN + 1]; /* likewise: lines that are still to come */
    uint32_t chain;                   /* frames in a row so far */
};

/* ---- a line ---- */

static void put_figures(char *text, size_t bytes, const struct call_tree *tree, const int64_t *figures)
{
    const int64_t *whole = tree->nodes[0].total;
    enum call_tree_figure figure = tree->options.figure;
    size_t used = 0;
    if (tree->options.metric != CALL_TREE_TEMPORARY) {
        used =
            (size_t)snprintf(text, bytes, "%10s ", figures != NULL ? format_bytes(figures[CALL_TREE_BYTES]).text : "");
    }
    snprintf(text + used, bytes - used, "%8s %11s  ",
             figures != NULL ? format_share(figures[figure], whole[figure]).text : "",
             figures != NULL ? format_count(figures[CALL_TREE_ALLOCATIONS]).text : "");
}

/* Figures, then the branches of the levels above; `branch` is that of the line itself. */
static void put_indent(char *text, size_t bytes, const struct printer *printer, const int64_t *figures, uint32_t level,
                       const char *branch)
{
    put_figures(text, bytes, printer->tree, figures);
    size_t used = strlen(text);
    for (uint32_t i = 2; i < level && i <= LEVELS_DRAWN; i++) {
        used += (size_t)snprintf(text + used, bytes - used, "%s", printer->has_more[i] ? "│ " : "  ");
    }
    snprintf(text + used, bytes - used, "%s", branch);
}

/* Is `node` all that its caller has? */
static bool is_chained(const struct call_tree *tree, size_t node)
{
    return node > 1 && tree->nodes[node].level == tree->nodes[tree->nodes[node].parent].level;
}

static bool is_branching(const struct call_tree *tree, size_t node)
{
    return tree->nodes[node].children > 0 && !is_chained(tree, node + 1);
}

static bool tree_print_is_large(const struct call_tree *tree, const int64_t *figures)
{
    enum call_tree_figure figure = tree->options.figure;
    return figures[figure] > 0 && (double)figures[figure] * CALL_TREE_SHARE_ONE >=
                                      (double)tree->options.share_min * (double)tree->nodes[0].total[figure];
}

static bool shows_own(const struct call_tree *tree, size_t node)
{
    return is_branching(tree, node) && tree_print_is_large(tree, tree->nodes[node].own);
}

static bool shows_left_out(const struct call_tree *tree, size_t node)
{
    return is_branching(tree, node) && tree->nodes[node].children_left_out > 0;
}

static uint32_t drawn(uint32_t level)
{
    return level < LEVELS_DRAWN ? level : LEVELS_DRAWN;
}

/* One of the parts of a node one level above; returns its branch. */
static const char *take_part(struct printer *printer, uint32_t level)
{
    uint32_t at = drawn(level);
    printer->parts[at] -= printer->parts[at] > 0 ? 1 : 0;
    printer->has_more[at] = printer->parts[at] > 0;
    return at < 2 ? "" : printer->has_more[at] ? "├ " : "└ ";
}

static void tree_print_part(struct printer *printer, uint32_t level, const int64_t *figures, const char *words)
{
    char indent[512];
    put_indent(indent, sizeof(indent), printer, figures, level, take_part(printer, level));
    fprintf(printer->out, "%s%s\n", indent, words);
}

/* ---- the tree ---- */

static void tree_print_frame(struct printer *printer, size_t number, const char *indent)
{
    const struct call_tree_frame *frame = &printer->tree->frames[printer->tree->nodes[number].frame];
    size_t used = format_width(indent);
    size_t left = terminal_columns() > used + FRAME_COLUMNS_MIN ? terminal_columns() - used : FRAME_COLUMNS_MIN;
    const char *function = frame->function;
    char location[4 * TERMINAL_COLUMNS_MAX] = "";
    if (frame->file != NULL) {
        char file[4 * TERMINAL_COLUMNS_MAX];
        size_t wide = function != NULL ? format_width(function) : FUNCTION_COLUMNS_MIN;
        size_t rest = left - (wide < FUNCTION_COLUMNS_MIN ? wide : FUNCTION_COLUMNS_MIN) -
                      (size_t)snprintf(NULL, 0, "  :%" PRId64, frame->line);
        format_path(file, sizeof(file), frame->file, rest < left / 2 ? rest : left / 2);
        snprintf(location, sizeof(location), frame->line > 0 ? "  %s:%" PRId64 : "  %s", file, frame->line);
    } else if (frame->module != NULL && function != NULL) {
        char module[120];
        format_head(module, sizeof(module), format_base_name(frame->module), left / 3 < 28 ? left / 3 : 28);
        snprintf(location, sizeof(location), "  (%s)", module);
    }
    char unresolved[400];
    if (function == NULL) {
        format_unresolved(unresolved, sizeof(unresolved), frame->module);
        function = frame->is_missing ? "(no stack was recorded)" : unresolved;
    }
    size_t others = format_width(location);
    fputs(indent, printer->out);
    format_print_function(printer->out, function,
                          others + FUNCTION_COLUMNS_MIN < left ? left - others : FUNCTION_COLUMNS_MIN);
    fprintf(printer->out, "%s\n", location);
}

/* Frames from `number` on that are each all of the one before. */
static uint32_t chain_left(const struct call_tree *tree, size_t number)
{
    uint32_t count = 0;
    while (tree->nodes[number + count].children == 1 && is_chained(tree, number + count + 1)) {
        count++;
    }
    return count;
}

static void print_node(struct printer *printer, size_t number)
{
    const struct call_tree *tree = printer->tree;
    const struct call_tree_node *node = &tree->nodes[number];
    const int64_t *figures = node->total;
    const char *branch;
    if (is_chained(tree, number)) {
        const char *inner = printer->has_more[drawn(node->level)] ? "│ " : "  ";
        bool is_all = memcmp(figures, tree->nodes[node->parent].total, sizeof(node->total)) == 0;
        branch = node->level < 2 ? "" : inner;
        figures = is_all ? NULL : figures;
        printer->chain++;
    } else {
        branch = take_part(printer, node->level);
        printer->chain = 0;
    }
    char indent[512];
    if (!tree->options.all_frames && printer->chain >= CHAIN_HEAD) {
        uint32_t left = chain_left(tree, number);
        if (left >= CHAIN_TAIL && printer->chain > CHAIN_HEAD) {
            return;
        }
        if (left > CHAIN_TAIL) {
            put_indent(indent, sizeof(indent), printer, NULL, node->level, branch);
            fprintf(printer->out, "%s… %" PRIu32 " more\n", indent, left - CHAIN_TAIL + 1);
            return;
        }
    }
    put_indent(indent, sizeof(indent), printer, figures, node->level, branch);
    tree_print_frame(printer, number, indent);
}

/* What follows all of a node's children. */
static void print_end(struct printer *printer, size_t number)
{
    const struct call_tree *tree = printer->tree;
    const struct call_tree_node *node = &tree->nodes[number];
    char words[96];
    if (shows_left_out(tree, number)) {
        snprintf(words, sizeof(words), "… %s more", format_count(node->children_left_out).text);
        tree_print_part(printer, node->level + 1, node->left_out, words);
    }
}

static void begin_parts(struct printer *printer, size_t number)
{
    const struct call_tree *tree = printer->tree;
    const struct call_tree_node *node = &tree->nodes[number];
    if (is_branching(tree, number)) {
        printer->parts[drawn(node->level + 1)] =
            node->children + (shows_own(tree, number) ? 1 : 0) + (shows_left_out(tree, number) ? 1 : 0);
    }
    if (shows_own(tree, number)) {
        tree_print_part(printer, node->level + 1, node->own,
                        tree->options.is_inverted ? "(called by nobody)" : "(itself)");
    }
}

/* "at the peak"; "live 2.00 s after the start, allocated later than 1.00 s"; "allocated later than 1.00 s and until
 * 2.00 s after the start" */
static void tree_print_when(FILE *out, const struct call_tree_part *part, enum call_tree_metric metric)
{
    const bool has_from = part != NULL && part->from_ns >= 0, has_to = part != NULL && part->to_ns >= 0;
    const bool is_of_moment = metric == CALL_TREE_PEAK || metric == CALL_TREE_LEAKED;
    if (has_to && is_of_moment) {
        fprintf(out, "live %s after the start", format_duration(part->to_ns).text);
    } else {
        fputs(call_tree_words(metric), out);
    }
    if (has_from) {
        fprintf(out, "%s later than %s",
                is_of_moment                    ? ", allocated"
                : metric == CALL_TREE_ALLOCATED ? ""
                                                : ",",
                format_duration(part->from_ns).text);
    }
    if (has_to && !is_of_moment) {
        fprintf(out, "%s until %s",
                has_from                        ? " and"
                : metric == CALL_TREE_ALLOCATED ? ""
                                                : ",",
                format_duration(part->to_ns).text);
    }
    fputs((has_from || has_to) && !(has_to && is_of_moment) ? " after the start" : "", out);
}

static void print_whose(FILE *out, const struct call_tree_part *part)
{
    if (part != NULL && part->tid != 0) {
        fprintf(out, ", by thread %" PRId64, part->tid);
    }
    if (part != NULL && part->pid != 0) {
        fprintf(out, ", of process %" PRId64, part->pid);
    }
}

static void tree_print_add_part(struct cJSON *object, const struct call_tree_part *part)
{
    json_integer_or_null(object, "pid", part != NULL && part->pid != 0 ? part->pid : -1);
    json_integer_or_null(object, "tid", part != NULL && part->tid != 0 ? part->tid : -1);
    json_integer_or_null(object, "from_ns", part != NULL ? part->from_ns : -1);
    json_integer_or_null(object, "to_ns", part != NULL ? part->to_ns : -1);
}

void call_tree_print_title(FILE *out, struct database *database, const struct call_tree *tree)
{
    const int64_t *total = tree->nodes[0].total;
    const struct call_tree_part *part = tree->options.part;
    fprintf(out, "%s, ", tree->options.domain);
    tree_print_when(out, part, tree->options.metric);
    print_whose(out, part);
    fputs(": ", out);
    if (tree->options.metric != CALL_TREE_TEMPORARY) {
        fprintf(out, "%s in ", format_bytes_exact(total[CALL_TREE_BYTES]).text);
    }
    fprintf(out, "%s allocation%s", format_count(total[CALL_TREE_ALLOCATIONS]).text,
            total[CALL_TREE_ALLOCATIONS] == 1 ? "" : "s");
    struct varve_message *no_message = NULL;
    struct selection selection;
    struct report_total moment;
    if (tree->options.metric == CALL_TREE_PEAK && (part == NULL || part->to_ns < 0) &&
        selection_make(&selection, database, tree->options.domain, 0, no_message) == 0 &&
        selection_total(&selection, database, &moment)) {
        fprintf(out, ", %s after the start", format_duration(moment.peak_ns).text);
    }
}

void call_tree_print_text(FILE *out, struct database *database, const struct call_tree *tree)
{
    struct printer printer = {.out = out, .tree = tree};
    call_tree_print_title(out, database, tree);
    fputc('\n', out);
    if (!tree->has_stacks && tree->nodes[0].children > 0) {
        fputs("no call site has a stack: they were not recorded\n", out);
    }
    if (tree->nodes[0].children == 0) {
        if (tree->nodes[0].children_left_out > 0) {
            fprintf(out, "each of its %s frames has less than --min-share of it\n",
                    format_count(tree->nodes[0].children_left_out).text);
        }
        return;
    }
    fprintf(out, "\n%s%8s %11s  %s\n", tree->options.metric != CALL_TREE_TEMPORARY ? "     bytes " : "", "share",
            "allocations", tree->options.is_inverted ? "allocating line, callers below" : "function, callees below");
    begin_parts(&printer, 0);
    for (size_t i = 1; i < tree->count; i++) {
        for (size_t done = i - 1; done != tree->nodes[i].parent; done = tree->nodes[done].parent) {
            print_end(&printer, done);
        }
        print_node(&printer, i);
        begin_parts(&printer, i);
    }
    for (size_t done = tree->count - 1; done != 0; done = tree->nodes[done].parent) {
        print_end(&printer, done);
    }
    print_end(&printer, 0);
}

/* ---- JSON ---- */

static void tree_print_add_figures(struct cJSON *object, const struct call_tree *tree, const char *bytes_key,
                                   const char *allocations_key, const int64_t *figures)
{
    json_integer_or_null(object, bytes_key,
                         tree->options.metric == CALL_TREE_TEMPORARY ? -1 : figures[CALL_TREE_BYTES]);
    json_integer(object, allocations_key, figures[CALL_TREE_ALLOCATIONS]);
}

static struct cJSON *node_json(const struct call_tree *tree, size_t number)
{
    const struct call_tree_node *node = &tree->nodes[number];
    const struct call_tree_frame *frame = &tree->frames[node->frame];
    struct cJSON *object = json_object();
    json_integer(object, "id", (int64_t)number);
    json_integer_or_null(object, "parent_id", node->parent > 0 ? (int64_t)node->parent : -1);
    json_integer(object, "depth", node->depth);
    tree_print_add_figures(object, tree, "bytes", "allocations", node->total);
    tree_print_add_figures(object, tree, "self_bytes", "self_allocations", node->own);
    json_integer(object, "left_out", node->children_left_out);
    tree_print_add_figures(object, tree, "left_out_bytes", "left_out_allocations", node->left_out);
    json_text(object, "function", frame->function);
    json_text(object, "file", frame->file);
    json_integer_or_null(object, "line", frame->line > 0 ? frame->line : -1);
    json_text(object, "module", frame->module);
    json_bool(object, "is_python", frame->is_python);
    return object;
}

struct cJSON *call_tree_json(struct database *database, const struct call_tree *tree)
{
    const struct call_tree_node *root = &tree->nodes[0];
    struct cJSON *object = json_object();
    struct cJSON *nodes = json_array();
    json_text(object, "database", database_path(database));
    json_text(object, "domain", tree->options.domain);
    json_text(object, "metric", call_tree_metric_names[tree->options.metric]);
    json_text(object, "order", tree->options.figure == CALL_TREE_BYTES ? "bytes" : "allocations");
    json_bool(object, "inverted", tree->options.is_inverted);
    tree_print_add_part(object, tree->options.part);
    tree_print_add_figures(object, tree, "bytes", "allocations", root->total);
    json_integer(object, "left_out", root->children_left_out);
    tree_print_add_figures(object, tree, "left_out_bytes", "left_out_allocations", root->left_out);
    for (size_t i = 1; i < tree->count; i++) {
        json_append(nodes, node_json(tree, i));
    }
    json_add(object, "nodes", nodes);
    return object;
}
