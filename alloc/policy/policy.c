/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The policies by name, and their pure functions for callers that have no allocator.
 */
#include "alloc/policy/policy.h"
#include "alloc/policy/rounding.h"

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

uint64_t varve_alloc_block_size(const char *policy, const struct varve_alloc_config *config, uint64_t bytes)
{
    const struct alloc_policy *found = policy_find(policy);

    return found != NULL && bytes > 0 && bytes < ROUNDING_REQUEST_LIMIT ? found->block_size(config, bytes)
                                                                        : 0;
}

uint64_t varve_alloc_segment_size(const char *policy, const struct varve_alloc_config *config,
                                  uint64_t rounded)
{
    const struct alloc_policy *found = policy_find(policy);

    if (found == NULL || rounded == 0 || rounded > ROUNDING_REQUEST_LIMIT) {
        return 0;
    }
    return found->stream_ordered ? rounded : found->segment_size(config, rounded);
}
