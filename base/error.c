/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts of the error codes, from the one list in error.h, and the reason that goes with a failure. Everybody
 * calls it, the recorder inside a workload too: nothing here allocates or takes a lock.
 */
#include "base/error.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

const char *varve_strerror(int error)
{
    switch (error) {
    case VARVE_OK:
        return "success";
#define VARVE_ERROR_CASE(number, name, text) \
    case VARVE_ERROR_##name:                 \
        return text;
        VARVE_ERROR_LIST(VARVE_ERROR_CASE)
#undef VARVE_ERROR_CASE
    default:
        return "unknown error";
    }
}

/* Unicode 15, table 3-7. */
size_t varve_utf8_length(const char *text, size_t bytes)
{
    const unsigned char *from = (const unsigned char *)text;
    unsigned char lead = bytes > 0 ? from[0] : 0xff;
    size_t length = lead < 0x80 ? 1 : lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
    if (length == 0 || length > bytes) {
        return 0;
    }
    for (size_t i = 1; i < length; i++) {
        if ((from[i] & 0xc0U) != 0x80U) {
            return 0;
        }
    }
    if ((lead == 0xe0 && from[1] < 0xa0) || (lead == 0xed && from[1] > 0x9f) || (lead == 0xf0 && from[1] < 0x90) ||
        (lead == 0xf4 && from[1] > 0x8f)) {
        return 0;
    }
    return length;
}

size_t varve_utf8_shown(const char *text, size_t bytes)
{
    size_t length = varve_utf8_length(text, bytes);
    unsigned char first = length > 0 ? (unsigned char)text[0] : 0;
    return (length == 1 && (first < 0x20 || first == 0x7f)) ||
                   (length == 2 && first == 0xc2 && (unsigned char)text[1] < 0xa0)
               ? 0
               : length;
}

/* The promise is one line that can be shown, and a path or an SQL error may contain any byte. What was cut in
 * the middle of a character ends before it. */
static void make_shown(char *text, bool is_cut)
{
    size_t bytes = strlen(text);
    for (size_t i = 0; i < bytes;) {
        size_t length = varve_utf8_shown(text + i, bytes - i);
        if (length == 0 && is_cut && bytes - i < 4 && (unsigned char)text[i] >= 0xc2) {
            text[i] = '\0';
            return;
        }
        if (length == 0) {
            text[i] = text[i] == '\n' || text[i] == '\r' || text[i] == '\t' ? ' ' : '?';
        }
        i += length > 0 ? length : 1;
    }
}

int varve_message_set(struct varve_message *message, int error, const char *format, ...)
{
    if (message == NULL) {
        return error;
    }
    va_list arguments;
    va_start(arguments, format);
    int wanted = vsnprintf(message->text, sizeof(message->text), format, arguments);
    va_end(arguments);
    make_shown(message->text, wanted >= (int)sizeof(message->text));
    return error;
}
