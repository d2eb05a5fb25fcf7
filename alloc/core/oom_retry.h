/* SPDX-License-Identifier: Apache-2.0 */
/* A request failed for want of memory: the whole accounting, and the text of the error. Called by allocator_open.c. */
#ifndef VARVE_ALLOC_CORE_OOM_RETRY_H
#define VARVE_ALLOC_CORE_OOM_RETRY_H

#include "alloc/core/allocator_state.h"

void oom_account(struct varve_alloc *alloc, const struct request *request, struct varve_alloc_oom *oom);
int oom_message(const struct varve_alloc_oom *oom, struct varve_message *message);

#endif
