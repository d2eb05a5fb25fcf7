/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer target: any bytes as a configuration string. What is accepted is a configuration that an
 * allocator may be opened with, reads the same again and rounds sizes without a fault; what is refused
 * changes nothing and has a reason of one line.
 */
#include "fuzz/target.h"

#include "alloc/core/config_tokens.h"
#include "alloc/policy/rounding.h"

#include <stdlib.h>
#include <string.h>

static bool is_unchanged(const struct varve_alloc_config *config)
{
    const unsigned char *bytes = (const unsigned char *)config;
    for (size_t i = 0; i < sizeof(*config); i++) {
        if (bytes[i] != 0x5a) {
            return false;
        }
    }
    return true;
}

static void check_accepted(const struct varve_alloc_config *config, const char *text)
{
    check(strcmp(config->text, text) == 0 && varve_alloc_config_check(config, NULL) == VARVE_OK);
    struct varve_alloc_config again;
    check(varve_alloc_config_parse(config->text, &again, NULL) == VARVE_OK);
    check(again.max_split_size == config->max_split_size && again.memory_fraction == config->memory_fraction);
    check(memcmp(again.roundup_power2_divisions, config->roundup_power2_divisions,
                 sizeof(again.roundup_power2_divisions)) == 0);
    for (unsigned log2 = 0; log2 < 60; log2++) {
        uint64_t bytes = (UINT64_C(1) << log2) + log2 * 37;
        uint64_t rounded = rounding_block_size(config, bytes);
        check(rounded >= bytes && rounded % ROUNDING_MIN_BLOCK == 0);
        check(rounding_segment_size(config, rounded) >= rounded);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct varve_message message = {""};
    char *text = malloc(size + 1);
    check(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    struct varve_alloc_config config;
    memset(&config, 0x5a, sizeof(config));
    if (varve_alloc_config_parse(text, &config, &message) == VARVE_OK) {
        check_accepted(&config, text);
    } else {
        check(is_unchanged(&config));
        check(message.text[0] != '\0' && memchr(message.text, '\0', sizeof(message.text)) != NULL);
        check(strpbrk(message.text, "\r\n\033") == NULL);
    }
    free(text);
    return 0;
}
