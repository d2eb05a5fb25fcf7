/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The policies by name. A new one is a file policy_NAME.c and one entry of POLICY_LIST in
 * core/allocator.h. Called when an allocator opens, and by commands that list what there is.
 */
#include "alloc/core/allocator.h"

#include <string.h>

#define POLICY_ADDRESS(code, text) &policy_##code,
#define POLICY_NAME(code, text) text,

static const struct alloc_policy *const policy_table[] = {POLICY_LIST(POLICY_ADDRESS) NULL};

const struct alloc_policy *policy_find(const char *name)
{
    for (size_t i = 0; policy_table[i] != NULL; i++) {
        if (name == NULL || strcmp(policy_table[i]->name, name) == 0) {
            return policy_table[i];
        }
    }
    return NULL;
}

const char *const *varve_alloc_policies(void)
{
    static const char *const names[] = {POLICY_LIST(POLICY_NAME) NULL};

    return names;
}
