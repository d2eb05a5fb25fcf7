/* SPDX-License-Identifier: Apache-2.0 */
/* The policies by name, their options, and their pure functions for callers that have no allocator. */
#include "alloc/policy/policy.h"
#include "alloc/policy/rounding.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POLICY_ADDRESS(code, text) &policy_##code,
#define POLICY_NAME(code, text) text,

static const struct alloc_policy *const policy_table[] = {POLICY_LIST(POLICY_ADDRESS) NULL};

const struct alloc_policy *policy_find(const char *text)
{
    size_t length = text != NULL ? strcspn(text, ":") : 0;
    for (size_t i = 0; policy_table[i] != NULL; i++) {
        const char *name = policy_table[i]->name;
        if (text == NULL || (strlen(name) == length && memcmp(name, text, length) == 0)) {
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

const char *varve_alloc_policy_meaning(const char *policy)
{
    const struct alloc_policy *found = policy_find(policy);
    return found != NULL ? found->meaning : NULL;
}

/* ---- options ---- */

static const struct varve_alloc_policy_option *options_of(const struct alloc_policy *policy)
{
    static const struct varve_alloc_policy_option none[] = {{0}};
    return policy->backend != NULL && policy->backend->options != NULL ? policy->backend->options : none;
}

static int refuse_option(const struct alloc_policy *policy, const char *option, size_t length,
                         struct varve_message *message)
{
    const struct varve_alloc_policy_option *options = options_of(policy);
    char list[200] = "";
    size_t used = 0;
    for (size_t i = 0; options[i].name != NULL && used < sizeof(list); i++) {
        used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s (%" PRIu64 ")", i > 0 ? ", " : "",
                                 options[i].name, options[i].initial);
    }
    return options[0].name == NULL
               ? varve_message_set(message, VARVE_ERROR_INVALID, "policy %s has no options, and none '%.*s'",
                                   policy->name, (int)length, option)
               : varve_message_set(message, VARVE_ERROR_INVALID, "policy %s has no option '%.*s'; it has: %s",
                                   policy->name, (int)length, option, list);
}

/* A number, of bytes with a suffix. False: it is none. */
static bool policy_parse_value(const struct varve_alloc_policy_option *option, const char *text, const char *end,
                               uint64_t *value_out)
{
    static const char suffixes[] = "KMGT";
    if (*text < '0' || *text > '9') {
        return false;
    }
    char *stop;
    uint64_t value = strtoull(text, &stop, 10);
    if (option->is_bytes && stop < end) {
        const char *suffix = strchr(suffixes, *stop);
        unsigned shift = suffix != NULL ? 10 * ((unsigned)(suffix - suffixes) + 1) : 0;
        if (suffix == NULL || value > UINT64_MAX >> shift) {
            return false;
        }
        value <<= shift;
        stop++;
    }
    *value_out = value;
    return stop == end && value >= option->least && value <= option->most;
}

static int policy_parse_option(const struct alloc_policy *policy, const char *text, size_t length,
                               uint64_t values[POLICY_OPTIONS_MAX], struct varve_message *message)
{
    const struct varve_alloc_policy_option *options = options_of(policy);
    const char *equals = memchr(text, '=', length);
    size_t name_length = equals != NULL ? (size_t)(equals - text) : length;
    for (size_t i = 0; options[i].name != NULL; i++) {
        if (strlen(options[i].name) != name_length || memcmp(options[i].name, text, name_length) != 0) {
            continue;
        }
        if (equals != NULL && policy_parse_value(&options[i], equals + 1, text + length, &values[i])) {
            return VARVE_OK;
        }
        return varve_message_set(message, VARVE_ERROR_INVALID,
                                 "policy %s: '%.*s': %s=%s%" PRIu64 " to %" PRIu64 " is possible (%s)", policy->name,
                                 (int)length, text, options[i].name, options[i].is_bytes ? "BYTES, " : "",
                                 options[i].least, options[i].most, options[i].meaning);
    }
    return refuse_option(policy, text, name_length, message);
}

int policy_values(const struct alloc_policy *policy, const char *text, uint64_t values[POLICY_OPTIONS_MAX],
                  struct varve_message *message)
{
    const struct varve_alloc_policy_option *options = options_of(policy);
    for (size_t i = 0; options[i].name != NULL; i++) {
        values[i] = options[i].initial;
    }
    text = text != NULL ? strchr(text, ':') : NULL;
    int error = VARVE_OK;
    while (error == VARVE_OK && text != NULL) {
        size_t length = strcspn(++text, ":");
        error = policy_parse_option(policy, text, length, values, message);
        text = text[length] == ':' ? text + length : NULL;
    }
    return error;
}

const struct varve_alloc_policy_option *varve_alloc_policy_options(const char *policy)
{
    const struct alloc_policy *found = policy_find(policy);
    return found != NULL ? options_of(found) : NULL;
}

/* ---- sizes ---- */

uint64_t varve_alloc_block_size(const char *policy, const struct varve_alloc_config *config, uint64_t bytes)
{
    const struct alloc_policy *found = policy_find(policy);
    return found != NULL && bytes > 0 && bytes < ROUNDING_REQUEST_LIMIT ? found->block_size(config, bytes) : 0;
}

uint64_t varve_alloc_segment_size(const char *policy, const struct varve_alloc_config *config, uint64_t rounded)
{
    const struct alloc_policy *found = policy_find(policy);
    return found != NULL && rounded > 0 && rounded <= ROUNDING_REQUEST_LIMIT ? found->segment_size(config, rounded) : 0;
}
