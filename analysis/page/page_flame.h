/* SPDX-License-Identifier: Apache-2.0 */
/* Call trees of each domain by each metric, for the flame graph of the page. */
#ifndef VARVE_ANALYSIS_PAGE_PAGE_FLAME_H
#define VARVE_ANALYSIS_PAGE_PAGE_FLAME_H

struct database;
struct page_writer;
struct varve_message;

/// Errors: those of call_tree_load. What is below FLAME_NODES_MAX nodes is whole; larger trees leave out their smallest
/// parts, and say so.
int flame_write(struct database *database, struct page_writer *writer, struct varve_message *message);

#endif
