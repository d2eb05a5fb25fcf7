/* SPDX-License-Identifier: Apache-2.0 */
/* What may change while an allocator runs: its limit, its settings, its recorder, its callbacks and observers. */
#ifndef VARVE_ALLOC_CORE_ALLOCATOR_SETTINGS_H
#define VARVE_ALLOC_CORE_ALLOCATOR_SETTINGS_H

#include "alloc/alloc.h"

/// Record the settings that are in force, so that a trace explains the decisions after them.
void settings_emit(struct varve_alloc *alloc);
/// Take over settings, which were checked, and what follows from them.
void settings_apply(struct varve_alloc *alloc, const struct varve_alloc_config *config);
/// Bytes of a fraction of the device's memory, at least 1; 0: no limit.
uint64_t settings_limit(const struct varve_alloc *alloc, double fraction);

#endif
