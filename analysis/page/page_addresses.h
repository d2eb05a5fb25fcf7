/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory as addresses over time, for each process and device whose allocations need most: segments and the largest
 * allocations as rectangles, exactly; all others as how full each cell of a raster was. Addresses without memory are
 * left out: what is used of the address space lies in bands, one above the other.
 */
#ifndef VARVE_ANALYSIS_PAGE_PAGE_ADDRESSES_H
#define VARVE_ANALYSIS_PAGE_PAGE_ADDRESSES_H

#include <stddef.h>
#include <stdint.h>

struct database;
struct page_allocation;
struct page_writer;

#define ADDRESS_MAPS_MAX 6
#define ADDRESS_MAP_BLOCKS_MAX 10000 /* that are shown exactly: the largest by size times lifetime */
#define ADDRESS_MAP_COLUMNS 400      /* of the raster: time */
#define ADDRESS_MAP_LINES 200        /* addresses */

struct address_map;

struct address_maps {
    struct address_map *maps;
    size_t count;
    int64_t end_ns;
};

/// Which maps there are: by peak, of the domains that are memory.
void address_maps_init(struct address_maps *maps, struct database *database);
/// Page_allocation_visitors of two passes: the first finds the bands, the second fills them.
void address_maps_find(void *maps, const struct page_allocation *allocation);
void address_maps_fill(void *maps, const struct page_allocation *allocation);
/// Between the two.
void address_maps_settle(struct address_maps *maps, struct database *database);
void address_maps_write(struct address_maps *maps, struct database *database, struct page_writer *writer);
void address_maps_free(struct address_maps *maps);

#endif
