/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to alloc/ */
/*
 * A request failed: the whole accounting, and the text of the error. Where the device failed, the text has its
 * own reason. Called by alloc.c, and device_message by whatever calls the device.
 */
#ifndef VARVE_ALLOC_CORE_OOM_H
#define VARVE_ALLOC_CORE_OOM_H

#include "alloc/core/request.h"

void oom_account(struct varve_alloc *alloc, const struct request *request, struct varve_alloc_oom *oom);
int oom_message(const struct varve_alloc_oom *oom, struct varve_message *message);
/// Set `message` to "`what`: " and what the device says of its last failure; returns `error`.
int device_message(const struct varve_alloc *alloc, int error, struct varve_message *message,
                   const char *what, ...) __attribute__((format(printf, 4, 5)));

#endif
