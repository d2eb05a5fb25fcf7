/* SPDX-License-Identifier: Apache-2.0 */
/* What the device says of a failure, in the text of the request's error. Used by whatever calls the device. */
#ifndef VARVE_ALLOC_CORE_OOM_MESSAGE_H
#define VARVE_ALLOC_CORE_OOM_MESSAGE_H

#include "alloc/alloc.h"

/// Set `message` to "`what`: " and what the device says of its last failure; returns `error`.
int device_message(const struct varve_alloc *alloc, int error, struct varve_message *message, const char *what, ...)
    __attribute__((format(printf, 4, 5)));

#endif
