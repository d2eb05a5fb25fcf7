/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The policies by name. A new one is a file policy_NAME.c and one line here.
 */
#include "alloc/allocator_internal.h"

#include <string.h>

const struct alloc_policy *const policy_table[] = {&policy_pytorch, &policy_first_fit, NULL};

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
    static const char *const names[] = {"pytorch", "first-fit", NULL};

    return names;
}
