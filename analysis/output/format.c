/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Figures and names for people: bytes with binary units, counts with separators, durations with the unit that
 * fits. Results are small structs by value, so that several fit into one printf without buffers or owners.
 * Texts of a database come from recorded programs: control characters never reach the terminal.
 */
#include "analysis/output/format.h"

#include "analysis/base/memory.h"
#include "trace/trace.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define LINE_COLUMNS 98

struct format_text format_count(int64_t number)
{
    struct format_text result;
    char digits[32];
    size_t length = (size_t)snprintf(digits, sizeof(digits), "%" PRId64, number);
    size_t first = digits[0] == '-' ? 1 : 0;
    size_t to = 0;

    for (size_t from = 0; from < length; from++) {
        if (from > first && (length - from) % 3 == 0) {
            result.text[to++] = ',';
        }
        result.text[to++] = digits[from];
    }
    result.text[to] = '\0';
    return result;
}

struct format_text format_bytes(int64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    struct format_text result;
    double scaled = (double)bytes;
    double size = scaled < 0 ? -scaled : scaled;
    unsigned unit = 0;

    /* 1023.5 would print as 1024 of the smaller unit */
    while (size >= 1023.5 && unit + 1 < sizeof(units) / sizeof(units[0])) {
        size /= 1024;
        scaled /= 1024;
        unit++;
    }
    if (unit == 0) {
        snprintf(result.text, sizeof(result.text), "%" PRId64 " B", bytes);
    } else {
        snprintf(result.text, sizeof(result.text), "%.*f %s",
                 size < 9.995   ? 2
                 : size < 99.95 ? 1
                                : 0,
                 scaled, units[unit]);
    }
    return result;
}

struct format_text format_bytes_exact(int64_t bytes)
{
    struct format_text result;
    struct format_text human = format_bytes(bytes);

    if (bytes > -1024 && bytes < 1024) {
        return human;
    }
    snprintf(result.text, sizeof(result.text), "%.14s (%.30s)", human.text, format_count(bytes).text);
    return result;
}

struct format_text format_duration(int64_t ns)
{
    static const struct {
        double ns;
        const char *name;
    } units[] = {{3.6e12, "h"}, {6e10, "min"}, {1e9, "s"}, {1e6, "ms"}, {1e3, "us"}};
    struct format_text result;

    if (ns < 0) {
        return (struct format_text){"-"};
    }
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        double scaled = (double)ns / units[i].ns;

        if (scaled >= 0.9995) {
            snprintf(result.text, sizeof(result.text), "%.*f %s",
                     scaled < 9.995   ? 2
                     : scaled < 99.95 ? 1
                                      : 0,
                     scaled, units[i].name);
            return result;
        }
    }
    snprintf(result.text, sizeof(result.text), "%" PRId64 " ns", ns);
    return result;
}

struct format_text format_share(int64_t part, int64_t whole)
{
    struct format_text result;

    if (whole <= 0) {
        return (struct format_text){"-"};
    }
    snprintf(result.text, sizeof(result.text), "%.1f %%", 100.0 * (double)part / (double)whole);
    return result;
}

struct format_text format_time_utc(int64_t seconds)
{
    struct format_text result;
    time_t when = (time_t)seconds;
    struct tm parts;

    if (gmtime_r(&when, &parts) == NULL ||
        strftime(result.text, sizeof(result.text), "%Y-%m-%d %H:%M:%S UTC", &parts) == 0) {
        return (struct format_text){"-"};
    }
    return result;
}

/* Bytes of the next character, or of what is none; `*is_shown`: it goes to the terminal as it is. */
static size_t step(const char *text, bool *is_shown)
{
    size_t length = varve_utf8_shown(text, strnlen(text, 4));

    *is_shown = length > 0;
    return length > 0 ? length : 1;
}

static char replacement(char byte)
{
    return byte == '\n' || byte == '\t' || byte == '\r' ? ' ' : '?';
}

/* One character of at most 4 bytes; returns how many went into `buffer`, and moves `*text` behind it. */
static size_t take(char *buffer, const char **text)
{
    bool is_shown;
    size_t length = step(*text, &is_shown);

    if (is_shown) {
        memcpy(buffer, *text, length);
    } else {
        buffer[0] = replacement(**text);
    }
    *text += length;
    return is_shown ? length : 1;
}

size_t format_width(const char *text)
{
    size_t width = 0;
    bool is_shown;

    for (; *text != '\0'; text += step(text, &is_shown)) {
        width++;
    }
    return width;
}

void format_tail(char *buffer, size_t buffer_bytes, const char *text, size_t columns)
{
    size_t width = format_width(text);
    size_t to = 0;
    bool is_shown;

    if (width > columns && columns > 0) {
        for (size_t skip = width - columns + 1; skip > 0; skip--) {
            text += step(text, &is_shown);
        }
        to = (size_t)snprintf(buffer, buffer_bytes, "…");
    }
    while (*text != '\0' && to + 4 < buffer_bytes) {
        to += take(buffer + to, &text);
    }
    buffer[to] = '\0';
}

void format_head(char *buffer, size_t buffer_bytes, const char *text, size_t columns)
{
    static const char mark[] = "…";
    bool is_cut = format_width(text) > columns;
    size_t left = is_cut && columns > 0 ? columns - 1 : columns;
    size_t to = 0;

    for (; *text != '\0' && left > 0 && to + 4 + sizeof(mark) < buffer_bytes; left--) {
        to += take(buffer + to, &text);
    }
    if (is_cut && to + sizeof(mark) <= buffer_bytes) {
        memcpy(buffer + to, mark, sizeof(mark) - 1);
        to += sizeof(mark) - 1;
    }
    buffer[to] = '\0';
}

void format_print_safe(FILE *out, const char *text)
{
    while (*text != '\0') {
        char character[4] = "";

        fwrite(character, 1, take(character, &text), out);
    }
}

void format_print_wrapped(FILE *out, const char *text, size_t column)
{
    size_t at = column;

    while (*text != '\0') {
        size_t word = strcspn(text, " ");
        char piece[LINE_COLUMNS + 1];

        snprintf(piece, sizeof(piece), "%.*s", (int)word, text);
        if (at > column && at + 1 + format_width(piece) > LINE_COLUMNS) {
            fprintf(out, "\n%*s", (int)column, "");
            at = column;
        } else if (at > column) {
            fputc(' ', out);
            at++;
        }
        format_print_safe(out, piece);
        at += format_width(piece);
        text += word;
        text += strspn(text, " ");
    }
    fputc('\n', out);
}

void format_print_lines(FILE *out, const char *text)
{
    while (*text != '\0') {
        size_t line = strcspn(text, "\n");
        const char *end = text + line;

        while (text < end) {
            char character[4] = "";

            fwrite(character, 1, take(character, &text), out);
        }
        if (*text == '\n') {
            fputc(*text++, out);
        }
    }
}

char *hexadecimal(const char *bytes, size_t count)
{
    static const char digits[] = "0123456789abcdef";
    char *text = memory_resize(NULL, count * 2 + 1);

    for (size_t i = 0; i < count; i++) {
        text[2 * i] = digits[(unsigned char)bytes[i] >> 4];
        text[2 * i + 1] = digits[(unsigned char)bytes[i] & 15U];
    }
    text[2 * count] = '\0';
    return text;
}
