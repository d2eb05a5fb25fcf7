/* SPDX-License-Identifier: Apache-2.0 */
/* Call trees as exports want them: whole, with a note where there is nothing to show. */
#ifndef VARVE_ANALYSIS_EXPORT_EXPORT_TREES_H
#define VARVE_ANALYSIS_EXPORT_EXPORT_TREES_H

#include "analysis/report/call_tree.h"

struct export_request;
struct varve_message;

/// Nothing is left out but what no tree holds. Owner: the caller, by call_tree_free, also after an error.
int export_tree_load(struct call_tree *tree, const struct export_request *request, enum call_tree_metric metric,
                     enum call_tree_figure figure, struct varve_message *message);
/// Say in request->note that the domain has nothing, or that it has no stacks.
void export_note_stacks(const struct export_request *request, bool is_empty, bool has_stacks);

#endif
