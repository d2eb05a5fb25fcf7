/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a hold of the lock that may have changed anything: which way the next request goes. */
#include "alloc/core/allocator_state.h"

/* What core/cached_path.h leaves out does not happen. */
static bool is_usual(const struct varve_alloc *alloc)
{
    bool counts_searches = alloc->limit != 0 && alloc->policy->has_gc && alloc->config.garbage_collection_threshold > 0;
    return alloc->policy == &policy_pytorch && !alloc->can_expand && !alloc->has_divisions && !alloc->has_ages &&
           !counts_searches && alloc->allocated_limit == 0 && alloc->capture_count == 0 && alloc->pending_events == 0 &&
           alloc->deferred == NULL && alloc->counters.others.active[VARVE_ALLOC_STAT_ALL].current == 0 &&
           alloc->map.slots != NULL;
}

void alloc_unlock(struct varve_alloc *alloc)
{
    alloc->way = !is_usual(alloc) ? ALLOC_WAY_LONG : alloc->recorder == NULL ? ALLOC_WAY_SHORT : ALLOC_WAY_RECORDED;
    lock_release(&alloc->lock);
}
