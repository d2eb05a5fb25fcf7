/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call tree as a flame graph: folded stacks for other tools, and an SVG that needs nothing else; its script (zoom and
 * search) may be missing. Called by cli/command_tree.c.
 */
#ifndef VARVE_ANALYSIS_REPORT_FLAMEGRAPH_H
#define VARVE_ANALYSIS_REPORT_FLAMEGRAPH_H

#include <stdio.h>

struct call_tree;
struct database;

/// A line for each node with a figure of its own: the frames from the root on with ';' between them, a space, the
/// figure. What was left out below a node is in a frame "(smaller)": the sum of all lines is the root's.
void flamegraph_folded(FILE *out, const struct call_tree *tree);
void flamegraph_svg(FILE *out, struct database *database, const struct call_tree *tree);

#endif
