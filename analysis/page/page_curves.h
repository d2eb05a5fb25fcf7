/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the page draws over time: live bytes of each domain, resident memory, named phases, failures, and the ladder of
 * each caching allocator.
 */
#ifndef VARVE_ANALYSIS_PAGE_PAGE_CURVES_H
#define VARVE_ANALYSIS_PAGE_PAGE_CURVES_H

struct database;
struct page_writer;

void curves_write(struct database *database, struct page_writer *writer);
/// Reads every event; nothing where no allocator reserved anything.
void curves_ladder_write(struct database *database, struct page_writer *writer);

#endif
