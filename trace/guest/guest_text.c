/* SPDX-License-Identifier: Apache-2.0 */
/* Text without stdio, which allocates. Called by all files of the recorder. */
#include "trace/guest/guest_memory.h"

#include <stdarg.h>
#include <string.h>

static size_t append_number(char *buffer, size_t bytes, unsigned value)
{
    char digits[10];
    size_t count = 0;
    do {
        digits[count++] = (char)('0' + value % 10);
        value /= 10;
    } while (value != 0);
    size_t length = 0;
    while (count > 0 && length + 1 < bytes) {
        buffer[length++] = digits[--count];
    }
    return length;
}

void recorder_format(char *buffer, size_t bytes, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    size_t length = 0;
    for (; *format != '\0' && length + 1 < bytes; format++) {
        if (format[0] == '%' && format[1] == 's') {
            const char *text = va_arg(arguments, const char *);
            while (*text != '\0' && length + 1 < bytes) {
                buffer[length++] = *text++;
            }
            format++;
        } else if (format[0] == '%' && format[1] == 'u') {
            length += append_number(buffer + length, bytes - length, va_arg(arguments, unsigned));
            format++;
        } else {
            buffer[length++] = *format;
        }
    }
    va_end(arguments);
    buffer[length] = '\0';
}

const char *recorder_variable(char *const *envp, const char *name)
{
    size_t length = strlen(name);
    for (; envp != NULL && *envp != NULL; envp++) {
        if (strncmp(*envp, name, length) == 0 && (*envp)[length] == '=') {
            return *envp + length + 1;
        }
    }
    return NULL;
}

uint64_t recorder_number(const char *text)
{
    uint64_t number = 0;
    for (; *text >= '0' && *text <= '9'; text++) {
        number = number * 10 + (uint64_t)(*text - '0');
    }
    return number;
}
