/* SPDX-License-Identifier: Apache-2.0 */
/* A call tree as indented text and as JSON. Called by cli/command_tree.c. */
#ifndef VARVE_ANALYSIS_REPORT_TREE_PRINT_H
#define VARVE_ANALYSIS_REPORT_TREE_PRINT_H

#include <stdio.h>

struct call_tree;
struct cJSON;
struct database;

/// Domain, metric and totals in a line, without its end; of a peak its moment too.
void call_tree_print_title(FILE *out, struct database *database, const struct call_tree *tree);
void call_tree_print_text(FILE *out, struct database *database, const struct call_tree *tree);
struct cJSON *call_tree_json(struct database *database, const struct call_tree *tree);

#endif
