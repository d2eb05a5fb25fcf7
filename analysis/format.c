/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Figures and names for people: bytes with binary units, counts with separators, durations with the unit that
 * fits. Results are small structs by value, so that several fit into one printf without buffers or owners.
 * Texts of a database come from recorded programs: control characters never reach the terminal.
 */
#include "analysis/analysis_internal.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

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

static bool is_continuation(char byte)
{
    return ((unsigned char)byte & 0xc0U) == 0x80U;
}

static char safe_byte(char byte)
{
    unsigned char code = (unsigned char)byte;

    if (byte == '\n' || byte == '\t' || byte == '\r') {
        return ' ';
    }
    return code < 0x20 || code == 0x7f ? '?' : byte;
}

size_t format_width(const char *text)
{
    size_t width = 0;

    for (; *text != '\0'; text++) {
        width += is_continuation(*text) ? 0 : 1;
    }
    return width;
}

void format_tail(char *buffer, size_t buffer_bytes, const char *text, size_t columns)
{
    size_t width = format_width(text);
    size_t to = 0;

    if (width > columns && columns > 0) {
        for (size_t skip = width - columns + 1; skip > 0; skip--) {
            do {
                text++;
            } while (is_continuation(*text));
        }
        to = (size_t)snprintf(buffer, buffer_bytes, "…");
    }
    for (; *text != '\0' && to + 1 < buffer_bytes; text++) {
        buffer[to++] = safe_byte(*text);
    }
    buffer[to] = '\0';
}

void format_head(char *buffer, size_t buffer_bytes, const char *text, size_t columns)
{
    static const char mark[] = "…";
    bool is_cut = format_width(text) > columns;
    size_t left = is_cut && columns > 0 ? columns - 1 : columns;
    size_t to = 0;

    for (; *text != '\0' && to + sizeof(mark) < buffer_bytes; text++) {
        if (!is_continuation(*text)) {
            if (left == 0) {
                break;
            }
            left--;
        }
        buffer[to++] = safe_byte(*text);
    }
    if (is_cut && to + sizeof(mark) <= buffer_bytes) {
        memcpy(buffer + to, mark, sizeof(mark) - 1);
        to += sizeof(mark) - 1;
    }
    buffer[to] = '\0';
}

void format_print_safe(FILE *out, const char *text)
{
    for (; *text != '\0'; text++) {
        fputc(safe_byte(*text), out);
    }
}
