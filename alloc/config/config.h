/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to alloc/ */
/*
 * Configurations: varve_alloc_config_* of alloc.h, and the check of one that was not parsed.
 */
#ifndef VARVE_ALLOC_CONFIG_CONFIG_H
#define VARVE_ALLOC_CONFIG_CONFIG_H

#include "alloc/alloc.h"

/// Every field is one that a string could have given: VARVE_ERROR_INVALID.
int config_check(const struct varve_alloc_config *config, struct varve_message *message);

#endif
