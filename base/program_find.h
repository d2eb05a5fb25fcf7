/* SPDX-License-Identifier: Apache-2.0 */
/* Programs that varve runs itself. */
#ifndef VARVE_BASE_PROGRAM_FIND_H
#define VARVE_BASE_PROGRAM_FIND_H

#include <stdbool.h>
#include <stddef.h>

/// Where PATH has the program `name`. False: nowhere, and `path` holds nothing of use.
bool program_find(const char *name, char *path, size_t path_bytes);

#endif
