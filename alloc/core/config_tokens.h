/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pieces of a configuration string, "name:value,name:[key:value,…]": ':', ',', '[' and ']' are a token
 * each, what stands between them is one more, white space is dropped wherever it stands. Each token remembers
 * where it began, so that errors can point at it. Called by config_text.c.
 */
#ifndef VARVE_ALLOC_CORE_CONFIG_TOKENS_H
#define VARVE_ALLOC_CORE_CONFIG_TOKENS_H

#include "alloc/alloc.h"

/* Longest string, without its end; also the largest possible number of tokens. */
#define CONFIG_TEXT_MAX (sizeof(((struct varve_alloc_config *)0)->text) - 1)

struct config_tokens {
    size_t count;
    struct {
        uint16_t start;    /* of its text in `text` */
        uint16_t position; /* of its first character in the string, from 1 */
    } tokens[CONFIG_TEXT_MAX];
    uint16_t end; /* position behind the string */
    /* Every token, ended by a zero byte. */
    char text[2 * CONFIG_TEXT_MAX];
};

/// `string` has at most CONFIG_TEXT_MAX characters. Cannot fail.
void config_tokens_split(struct config_tokens *tokens, const char *string);
/// Text of a token; "" behind the last one.
const char *config_tokens_text(const struct config_tokens *tokens, size_t at);
/// Position in the string; behind the last token, that of the string's end.
size_t config_tokens_position(const struct config_tokens *tokens, size_t at);
bool config_tokens_is(const struct config_tokens *tokens, size_t at, const char *text);
/// What an error says was found: the text in quotes, without control characters and cut to a bearable length.
void config_tokens_quote(const struct config_tokens *tokens, size_t at, char *buffer, size_t buffer_bytes);
/// The whole text is decimal digits and the number is below 2^64.
bool config_text_number(const char *text, uint64_t *number_out);
/// The whole text is a floating-point number, with a '.' in any locale; may be infinite or no number.
bool config_text_real(const char *text, double *real_out);
/// Number of letters to insert, remove or replace to make `a` of `b`.
size_t config_text_distance(const char *a, const char *b);

#endif
