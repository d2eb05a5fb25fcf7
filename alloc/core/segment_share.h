/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of other processes and other devices (varve_alloc_ipc_*, varve_alloc_enable_peer). */
#ifndef VARVE_ALLOC_CORE_SEGMENT_SHARE_H
#define VARVE_ALLOC_CORE_SEGMENT_SHARE_H

#include "alloc/alloc.h"

void share_close(struct varve_alloc *alloc);

#endif
