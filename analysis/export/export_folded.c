/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/export/export.h"

#include "analysis/query/database.h"
#include "analysis/report/flamegraph.h"
#include "base/error.h"

int export_folded(const void *request_untyped, FILE *out, struct varve_message *message)
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
