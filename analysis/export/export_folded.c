/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/export/export.h"

#include "analysis/query/database.h"
#include "analysis/report/flamegraph.h"
#include "base/error.h"

static int export_folded(const void *request_untyped, FILE *out, struct varve_message *message)
{
    const struct export_request *request = request_untyped;
    struct call_tree tree;
    int error = export_tree_load(&tree, request, (enum call_tree_metric)request->metric, CALL_TREE_BYTES, message);
    if (error == VARVE_OK) {
        flamegraph_folded(out, &tree);
        error = database_error(request->database, message);
    }
    call_tree_free(&tree);
    return error;
}

const struct export_format export_format_folded = {
    .name = "folded",
    .meaning = "Stacks of one metric, a line each, as `flamegraph --folded --min-share 0` has them. Frames are those "
               "of `tree`, without plumbing.",
    .write = export_folded,
    .takes_part = true,
    .wants_domain = true,
    .takes_metric = true,
};
