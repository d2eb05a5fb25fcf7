/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For the tests of configuration strings: what must be accepted, and what must be refused for a certain
 * reason and without a trace. Included after cmocka.h.
 */
#ifndef VARVE_TESTS_SUPPORT_ALLOC_CONFIG_H
#define VARVE_TESTS_SUPPORT_ALLOC_CONFIG_H

#include <cmocka.h>

#include "alloc/alloc.h"
#include "alloc/config/tokens.h"

#include <string.h>

#define MIB (UINT64_C(1) << 20)

static inline struct varve_alloc_config parsed(const char *text)
{
    struct varve_alloc_config config;
    struct varve_message message = {""};
    memset(&config, 0xa5, sizeof(config));
    if (varve_alloc_config_parse(text, &config, &message) != VARVE_OK) {
        fail_msg("'%s' was refused: %s", text, message.text);
    }
    assert_string_equal(config.text, text);
    assert_int_equal(varve_alloc_config_check(&config, NULL), VARVE_OK);
    return config;
}

/* `text` is refused with exactly this reason, and the configuration keeps every byte. */
static inline void refused(const char *text, const char *reason)
{
    struct varve_alloc_config config, before;
    struct varve_message message = {""};
    memset(&config, 0x5a, sizeof(config));
    memcpy(&before, &config, sizeof(config));
    if (varve_alloc_config_parse(text, &config, &message) != VARVE_ERROR_INVALID) {
        fail_msg("'%s' was not refused", text);
    }
    assert_string_equal(message.text, reason);
    assert_memory_equal(&config, &before, sizeof(config));
    assert_int_equal(varve_alloc_config_parse(text, &config, NULL), VARVE_ERROR_INVALID);
}

#endif
