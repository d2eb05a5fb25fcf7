/* SPDX-License-Identifier: Apache-2.0 */
/* Memory from the kernel for the structures of this folder: the allocator may be called below `malloc`. */
#ifndef VARVE_ALLOC_INDEX_BLOCK_PAGES_H
#define VARVE_ALLOC_INDEX_BLOCK_PAGES_H

#include <stdint.h>

/// Zeroed and page-aligned; NULL if there is none.
void *pages_map(uint64_t bytes);
void pages_unmap(void *pages, uint64_t bytes); /* NULL is allowed */

#endif
