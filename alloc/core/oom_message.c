/* SPDX-License-Identifier: Apache-2.0 */
/* Errors that may be the allocator's own get no reason of the device, which could be an older one. */
#include "alloc/core/allocator_emit.h"
#include "alloc/core/allocator_state.h"

#include <stdarg.h>
#include <stdio.h>

int device_message(const struct varve_alloc *alloc, int error, struct varve_message *message, const char *what, ...)
{
    struct varve_message reason = {""};
    if (message == NULL) {
        return error;
    }
    va_list arguments;
    va_start(arguments, what);
    struct varve_message text;
    vsnprintf(text.text, sizeof(text.text), what, arguments);
    va_end(arguments);
    if (error != VARVE_ERROR_NO_MEMORY && error != VARVE_ERROR_FULL) { /* those may be our own */
        alloc->device->ops->reason(alloc->device, &reason);
    }
    return varve_message_set(message, error, "%.200s: %s", text.text,
                             reason.text[0] != '\0' ? reason.text : varve_strerror(error));
}
