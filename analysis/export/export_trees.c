/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/export/export.h"

#include "analysis/query/database.h"
#include "base/error.h"

void export_note_stacks(const struct export_request *request, bool is_empty, bool has_stacks)
{
    if (is_empty) {
        varve_message_set(request->note, VARVE_OK, "%s: nothing of domain %s: the file has no stacks",
                          database_path(request->database), request->domain);
    } else if (!has_stacks) {
        varve_message_set(request->note, VARVE_OK, "%s: no call site of domain %s has a stack: they were not recorded",
                          database_path(request->database), request->domain);
    }
}

int export_tree_load(struct call_tree *tree, const struct export_request *request, enum call_tree_metric metric,
                     enum call_tree_figure figure, struct varve_message *message)
{
    struct call_tree_options options = {
        .domain = request->domain,
        .process_id = request->process_id,
        .metric = metric,
        .figure = figure,
        .top = INT64_MAX,
        .depth = CALL_TREE_FRAMES_MAX,
    };
    int error = call_tree_load(tree, request->database, &options, message);
    error = error == VARVE_OK ? database_error(request->database, message) : error;
    if (error == VARVE_OK && metric == (enum call_tree_metric)request->metric) {
        export_note_stacks(request, tree->nodes[0].total[CALL_TREE_ALLOCATIONS] == 0, tree->has_stacks);
    }
    return error;
}
