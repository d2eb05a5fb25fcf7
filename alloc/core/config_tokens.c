/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cuts a configuration string into tokens and reads what may stand in one. The tokens live in one fixed
 * structure on the caller's stack: the string may come from the environment of a process that must not call
 * malloc yet. White space is dropped inside a token too, as PyTorch does, so "Tr ue" is True; positions still
 * count it. Called by config_text.c.
 */
#include "alloc/core/config_tokens.h"

#include <assert.h>
#include <errno.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Letters of a text that a distance looks at, and that an error shows. */
#define DISTANCE_LETTERS 63
#define QUOTE_LETTERS 60

static bool config_tokens_is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool config_tokens_is_mark(char c)
{
    return c == ':' || c == ',' || c == '[' || c == ']';
}

void config_tokens_split(struct config_tokens *tokens, const char *string)
{
    size_t length = strlen(string);
    assert(length <= CONFIG_TEXT_MAX);
    tokens->count = 0;
    tokens->end = (uint16_t)(length + 1);
    size_t used = 0;
    bool is_open = false; /* the last token may grow */
    for (size_t i = 0; i < length; i++) {
        if (config_tokens_is_space(string[i])) {
            continue;
        }
        if (!is_open || config_tokens_is_mark(string[i])) {
            if (is_open) {
                tokens->text[used++] = '\0';
            }
            tokens->tokens[tokens->count].start = (uint16_t)used;
            tokens->tokens[tokens->count].position = (uint16_t)(i + 1);
            tokens->count++;
        }
        tokens->text[used++] = string[i];
        is_open = !config_tokens_is_mark(string[i]);
        if (!is_open) {
            tokens->text[used++] = '\0';
        }
    }
    if (is_open) {
        tokens->text[used++] = '\0';
    }
    assert(used <= sizeof(tokens->text) && tokens->count <= length);
}

const char *config_tokens_text(const struct config_tokens *tokens, size_t at)
{
    return at < tokens->count ? tokens->text + tokens->tokens[at].start : "";
}

size_t config_tokens_position(const struct config_tokens *tokens, size_t at)
{
    return at < tokens->count ? tokens->tokens[at].position : tokens->end;
}

bool config_tokens_is(const struct config_tokens *tokens, size_t at, const char *text)
{
    return at < tokens->count && strcmp(config_tokens_text(tokens, at), text) == 0;
}

void config_tokens_quote(const struct config_tokens *tokens, size_t at, char *buffer, size_t buffer_bytes)
{
    const char *text = config_tokens_text(tokens, at);
    size_t length = strnlen(text, QUOTE_LETTERS);
    if (at >= tokens->count) {
        snprintf(buffer, buffer_bytes, "the end");
        return;
    }
    while (text[length] && length > 0 && ((unsigned char)text[length] & 0xc0) == 0x80) {
        length--; /* not in the middle of a character */
    }
    char shown[QUOTE_LETTERS + 1];
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i];
        shown[i] = c < ' ' || c == 0x7f ? '?' : text[i];
    }
    shown[length] = '\0';
    snprintf(buffer, buffer_bytes, "\"%s\"%s", shown, text[length] ? "..." : "");
}

bool config_text_number(const char *text, uint64_t *number_out)
{
    if (text[0] == '\0') {
        return false;
    }
    uint64_t number = 0;
    for (const char *c = text; *c; c++) {
        if (*c < '0' || *c > '9' || __builtin_mul_overflow(number, 10, &number) ||
            __builtin_add_overflow(number, (uint64_t)(*c - '0'), &number)) {
            return false;
        }
    }
    *number_out = number;
    return true;
}

bool config_text_real(const char *text, double *real_out)
{
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    int saved = errno;
    if (plain == (locale_t)0) {
        return false;
    }
    errno = 0;
    char *end;
    *real_out = strtod_l(text, &end, plain);
    bool is_real = end != text && *end == '\0' && errno == 0;
    errno = saved;
    freelocale(plain);
    return is_real;
}

size_t config_text_distance(const char *a, const char *b)
{
    size_t row[DISTANCE_LETTERS + 1]; /* distances of the part of `a` so far to each beginning of `b` */
    size_t a_length = strnlen(a, DISTANCE_LETTERS);
    size_t b_length = strnlen(b, DISTANCE_LETTERS);
    for (size_t j = 0; j <= b_length; j++) {
        row[j] = j;
    }
    for (size_t i = 1; i <= a_length; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            size_t best = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            if (best > row[j] + 1) {
                best = row[j] + 1;
            }
            if (best > row[j - 1] + 1) {
                best = row[j - 1] + 1;
            }
            row[j] = best;
        }
    }
    return row[b_length];
}
