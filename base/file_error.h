/* SPDX-License-Identifier: Apache-2.0 */
/* errno of a file that could not be opened, made or written → code of varve. Threads: any. */
#ifndef VARVE_BASE_FILE_ERROR_H
#define VARVE_BASE_FILE_ERROR_H

#include "base/error.h"

#include <errno.h>

static inline int file_error(int reason)
{
    switch (reason) {
    case ENOENT:
    case ENOTDIR:
        return VARVE_ERROR_NOT_FOUND;
    case EACCES:
    case EPERM:
    case EROFS:
        return VARVE_ERROR_PERMISSION;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        return VARVE_ERROR_FULL;
    default:
        return VARVE_ERROR_IO;
    }
}

#endif
