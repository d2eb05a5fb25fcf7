/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve tree` and `varve flamegraph`: the call sites of a domain as a tree of callers and callees, as text
 * and as a picture.
 */
#include "analysis/cli/command.h"
#include "analysis/cli/options.h"
#include "analysis/base/output_file.h"
#include "analysis/base/json_writer.h"
#include "analysis/base/terminal.h"
#include "analysis/query/database.h"
#include "analysis/query/loss_note.h"
#include "analysis/query/query_selection.h"
#include "analysis/report/call_tree.h"
#include "analysis/report/flamegraph.h"
#include "analysis/report/tree_print.h"
#include "base/error.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STDOUT "-"

struct values {
    const char *domain;
    const char *share_min; /* percent; NULL: as suits the output */
    int64_t depth, top, width;
    const char *output;
    const char *at, *from, *to;
    int64_t pid, tid;
    int metric; /* -1: as suits the part */
    bool count, inverted, all, full_names, json, folded, force;
};

static const struct values defaults = {.depth = CALL_TREE_FRAMES_MAX, .top = 10, .metric = -1};

/* clang-format off */
#define COMMON_OPTIONS \
    {"metric", 0, OPTION_CHOICE, "WHAT", "peak: live at the peak, or at --at (default); allocated: in all, or " \
     "between --from and --to (with --from the default); leaked: of these, live when main ended, or at --to; " \
     "temporary: freed before their thread allocated again, by number", offsetof(struct values, metric), \
     0, 0, \
     call_tree_metric_names}, \
    {"at", 0, OPTION_TEXT, "TIME", "what was live then: a time since the trace began such as 1.5s, 20ms, 7us, " \
     "900ns, or the number of an event", offsetof(struct values, at), 0, 0, NULL}, \
    {"from", 0, OPTION_TEXT, "TIME", "only what was allocated later than then", offsetof(struct values, from), 0, 0, \
     NULL}, \
    {"to", 0, OPTION_TEXT, "TIME", "only what was allocated until then", offsetof(struct values, to), 0, 0, NULL}, \
    {"pid", 'p', OPTION_INTEGER, "PID", "of this process only", offsetof(struct values, pid), 1, INT32_MAX, NULL}, \
    {"thread", 0, OPTION_INTEGER, "TID", "by this thread only", offsetof(struct values, tid), 1, INT32_MAX, NULL}, \
    {"count", 0, OPTION_FLAG, NULL, "by number of allocations, not by bytes", \
     offsetof(struct values, count), 0, 0, NULL}, \
    {"domain", 'd', OPTION_TEXT, "NAME", DOMAIN_HELP, offsetof(struct values, domain), 0, 0, NULL}, \
    {"inverted", 'i', OPTION_FLAG, NULL, "from the allocating lines to their callers", \
     offsetof(struct values, inverted), 0, 0, NULL}, \
    {"all", 'a', OPTION_FLAG, NULL, \
     "plumbing too: the frames of allocators and interpreters, and those without a name", \
     offsetof(struct values, all), 0, 0, NULL}
/* clang-format on */

static const struct option_spec tree_options[] = {
    COMMON_OPTIONS,
    {"min-share", 0, OPTION_TEXT, "PERCENT", "leave out what has less of the total (default 1)",
     offsetof(struct values, share_min), 0, 0, NULL},
    {"depth", 0, OPTION_INTEGER, "N", "levels of indentation (default: all)", offsetof(struct values, depth), 1,
     CALL_TREE_FRAMES_MAX, NULL},
    {"top", 'n', OPTION_INTEGER, "N", "frames below a frame (default 10)", offsetof(struct values, top), 1, 1000000000,
     NULL},
    {"full-names", 0, OPTION_FLAG, NULL, "names of functions uncut", offsetof(struct values, full_names), 0, 0, NULL},
    {"width", 'w', OPTION_INTEGER, "N", "columns (default: those of the terminal, else 100)",
     offsetof(struct values, width), TERMINAL_COLUMNS_MIN, TERMINAL_COLUMNS_MAX, NULL},
    {"json", 0, OPTION_FLAG, NULL, "one JSON object", offsetof(struct values, json), 0, 0, NULL},
    {.kind = OPTION_END},
};

static const struct option_spec flamegraph_options[] = {
    {"output", 'o', OPTION_TEXT, "FILE", "where to write it; - is standard output", offsetof(struct values, output), 0,
     0, NULL},
    {"force", 'f', OPTION_FLAG, NULL, "replace FILE if it exists", offsetof(struct values, force), 0, 0, NULL},
    {"folded", 0, OPTION_FLAG, NULL,
     "folded stacks, one a line, for flamegraph.pl, speedscope or inferno; without -o to standard output",
     offsetof(struct values, folded), 0, 0, NULL},
    COMMON_OPTIONS,
    {"min-share", 0, OPTION_TEXT, "PERCENT", "leave out what has less of the total (default 0.1; with --folded 0.01)",
     offsetof(struct values, share_min), 0, 0, NULL},
    {.kind = OPTION_END},
};

/* In millionths; false: it is none. */
static bool read_share(const char *text, int64_t *share)
{
    errno = 0;
    char *end;
    double percent = strtod(text, &end);
    end += *end == '%' ? 1 : 0;
    if (end == text || *end != '\0' || errno != 0 || !(percent >= 0 && percent <= 100)) {
        return false;
    }
    *share = llround(percent * (CALL_TREE_SHARE_ONE / 100.0));
    return true;
}

static bool is_of_part(const struct values *values)
{
    return values->at != NULL || values->from != NULL || values->to != NULL || values->pid != 0 || values->tid != 0;
}

static enum call_tree_metric tree_metric(const struct values *values)
{
    return values->metric >= 0                          ? (enum call_tree_metric)values->metric
           : values->from != NULL || values->to != NULL ? CALL_TREE_ALLOCATED
                                                        : CALL_TREE_PEAK;
}

static const char *check_part(const void *values_untyped)
{
    const struct values *values = values_untyped;
    const bool has_span = values->from != NULL || values->to != NULL;
    return values->at != NULL && has_span ? "--at and --from or --to are mutually exclusive"
           : values->at != NULL && tree_metric(values) != CALL_TREE_PEAK
               ? "--at has one metric, peak: what was live then"
           : has_span && tree_metric(values) == CALL_TREE_PEAK ? "--from and --to have no metric peak; --at has"
                                                               : NULL;
}

/* `part` is borrowed by the tree. */
static int command_tree_load(struct call_tree *tree, struct call_tree_part *part, struct database *database,
                             const struct values *values, const char *share_min, struct varve_message *message)
{
    const char *domain = values->domain != NULL ? values->domain : selection_default_domain(database);
    struct call_tree_options options = {
        .domain = domain,
        .metric = tree_metric(values),
        .figure = values->count ? CALL_TREE_ALLOCATIONS : CALL_TREE_BYTES,
        .is_inverted = values->inverted,
        .all_frames = values->all,
        .top = values->top,
        .depth = values->depth,
    };
    *tree = (struct call_tree){0};
    share_min = values->share_min != NULL ? values->share_min : share_min;
    if (!read_share(share_min, &options.share_min)) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "--min-share: '%s' is no percentage between 0 and 100",
                                 share_min);
    }
    struct selection selection;
    int error = selection_make(&selection, database, domain, 0, message);
    if (is_of_part(values)) {
        const bool is_at = values->at != NULL;
        VARVE_THEN(error, call_tree_part_make(part, database, domain, values->pid, values->tid, values->from,
                                              is_at ? values->at : values->to, is_at ? "at" : "to", message));
        options.part = part;
    }
    VARVE_THEN(error, call_tree_load(tree, database, &options, message));
    return error;
}

static int answer_tree(struct command_context *context, struct database *database, const void *values_untyped,
                       struct varve_message *message)
{
    const struct values *values = values_untyped;
    struct call_tree tree;
    struct call_tree_part part;
    int error = command_tree_load(&tree, &part, database, values, "1", message);
    if (values->width > 0) {
        terminal_set_columns(values->width);
    }
    terminal_set_full_names(values->full_names);
    if (error == VARVE_OK && values->json) {
        json_print(call_tree_json(database, &tree), context->out);
    } else if (error == VARVE_OK) {
        struct report_loss loss;
        report_loss_load(&loss, database);
        if (report_has_remarks(&loss)) {
            report_loss_print(context->out, database, &loss);
        }
        terminal_fold();
        call_tree_print_text(context->out, database, &tree);
    }
    call_tree_free(&tree);
    return error;
}

/* ---- flamegraph ---- */

struct graph {
    struct database *database;
    const struct values *values;
    struct call_tree tree;
};

static int write_graph(const void *graph_untyped, FILE *out, struct varve_message *message)
{
    const struct graph *graph = graph_untyped;
    if (graph->values->folded) {
        flamegraph_folded(out, &graph->tree);
    } else {
        flamegraph_svg(out, graph->database, &graph->tree);
    }
    return database_error(graph->database, message);
}

static int answer_flamegraph(struct command_context *context, struct database *database, const void *values_untyped,
                             struct varve_message *message)
{
    const struct values *values = values_untyped;
    bool is_file = values->output != NULL && strcmp(values->output, STDOUT) != 0;
    struct graph graph = {.database = database, .values = values};
    if (values->output == NULL && !values->folded) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "-o FILE is required");
    }
    int error = VARVE_OK;
    if (is_file) {
        error = output_check(values->output, values->force, (const char *[]){database_path(database)}, 1, message);
    }
    if (error != VARVE_OK) {
        return error;
    }
    struct call_tree_part part;
    error = command_tree_load(&graph.tree, &part, database, values, values->folded ? "0.01" : "0.1", message);
    error = error == VARVE_OK ? database_error(database, message) : error;
    VARVE_THEN(error, is_file ? output_file(values->output, values->force, write_graph, &graph, message)
                              : write_graph(&graph, context->out, message));
    call_tree_free(&graph.tree);
    return error;
}

const struct command command_tree = {
    .name = "tree",
    .arguments = "DB",
    .summary = "who calls what allocates: a tree of callers, or inverted",
    .purpose =
        "Shows the call sites of a domain as a tree: each frame with the bytes and allocations of all that it calls, "
        "the largest first. Below a frame are its callees; with --inverted its callers, beginning at the lines that "
        "allocate. What a frame has is what its callees have, what was left out of them, and what it allocated "
        "itself. A frame that is all of its caller stands below it without indentation. Frames of allocators and "
        "interpreters, and those without a name, are folded into their callers.",
    .examples = "  varve tree trace.db\n"
                "  varve tree --metric leaked --inverted trace.db\n"
                "  varve tree --from 10s --to 20s --thread 4711 trace.db\n"
                "  varve tree --metric temporary --min-share 5 trace.db\n",
    .options = tree_options,
    .defaults = &defaults,
    .values_bytes = sizeof(defaults),
    .check = check_part,
    .answer = answer_tree,
};

/* A picture has room for any number of frames, and no levels. */
static const struct values flamegraph_defaults = {.depth = CALL_TREE_FRAMES_MAX, .top = INT64_MAX, .metric = -1};

const struct command command_flamegraph = {
    .name = "flamegraph",
    .arguments = "DB",
    .summary = "the same tree as a picture (SVG), or as folded stacks",
    .purpose =
        "Draws the tree of varve tree: a box for each frame, as wide as its share, callees below their callers; with "
        "--inverted callers below the lines that allocate. The SVG needs no other file; in a browser a click on a box "
        "zooms, and [search] marks functions. --folded writes the stacks for other tools instead.",
    .examples = "  varve flamegraph -o peak.svg trace.db\n"
                "  varve flamegraph --metric leaked -o leaks.svg trace.db\n"
                "  varve flamegraph --at 1.5s -o then.svg trace.db\n"
                "  varve flamegraph --folded trace.db | inferno-flamegraph > peak.svg\n",
    .options = flamegraph_options,
    .defaults = &flamegraph_defaults,
    .values_bytes = sizeof(flamegraph_defaults),
    .check = check_part,
    .answer = answer_flamegraph,
};
