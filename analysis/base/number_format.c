/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Figures and names for people: bytes with binary units, counts with separators, durations with the unit that
 * fits. Results are small structs by value, so that several fit into one printf without buffers or owners.
 * Texts of a database come from recorded programs: control characters never reach the terminal.
 */
#include "analysis/base/number_format.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/base/terminal.h"
#include "base/error.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SENTENCE_BYTES 2048

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
    double scaled = (double)bytes;
    double size = scaled < 0 ? -scaled : scaled;
    unsigned unit = 0;

    /* 1023.5 would print as 1024 of the smaller unit */
    while (size >= 1023.5 && unit + 1 < sizeof(units) / sizeof(units[0])) {
        size /= 1024;
        scaled /= 1024;
        unit++;
    }
    struct format_text result;
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
    struct format_text human = format_bytes(bytes);
    if (bytes > -1024 && bytes < 1024) {
        return human;
    }
    struct format_text result;
    snprintf(result.text, sizeof(result.text), "%.14s (%.30s)", human.text, format_count(bytes).text);
    return result;
}

struct format_text format_signed(int64_t change, struct format_text (*format)(int64_t number))
{
    struct format_text text;
    struct format_text size = format(change < 0 && change > INT64_MIN ? -change : change);
    const char *sign = change < 0 ? "-" : change > 0 ? "+" : "";
    snprintf(text.text, sizeof(text.text), "%s%.40s", sign, size.text);
    return text;
}

struct format_text format_duration(int64_t ns)
{
    static const struct {
        double ns;
        const char *name;
    } units[] = {{3.6e12, "h"}, {6e10, "min"}, {1e9, "s"}, {1e6, "ms"}, {1e3, "us"}};
    if (ns < 0) {
        return (struct format_text){"-"};
    }
    struct format_text result;
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
    if (whole <= 0) {
        return (struct format_text){"-"};
    }
    struct format_text result;
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
static size_t number_format_step(const char *text, bool *is_shown)
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
static size_t number_format_take(char *buffer, const char **text)
{
    bool is_shown;
    size_t length = number_format_step(*text, &is_shown);
    if (is_shown) {
        memcpy(buffer, *text, length);
    } else {
        buffer[0] = replacement(**text);
    }
    *text += length;
    return is_shown ? length : 1;
}

size_t format_utf8(char *to, const char *text, size_t bytes, bool keeps_nul)
{
    static const char wrong[] = "\xef\xbf\xbd";
    size_t used = 0;
    for (size_t i = 0; i < bytes;) {
        size_t length = text[i] != '\0' || keeps_nul ? varve_utf8_length(text + i, bytes - i) : 0;
        memcpy(to + used, length > 0 ? text + i : wrong, length > 0 ? length : sizeof(wrong) - 1);
        used += length > 0 ? length : sizeof(wrong) - 1;
        i += length > 0 ? length : 1;
    }
    return used;
}

const char *format_plural(int64_t count, const char *one, const char *many)
{
    return count == 1 ? one : many;
}

const char *format_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}

static bool is_plain(const char *word)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_@%+=:,./-";
    bool is = word[0] != '\0' && word[0] != '-';
    for (const char *at = word; is && *at != '\0'; at++) {
        is = (unsigned char)*at >= 0x80 || strchr(plain, *at) != NULL;
    }
    return is;
}

struct format_word format_shell(const char *word)
{
    struct format_word quoted;
    size_t used = 0;
    if (is_plain(word)) {
        snprintf(quoted.text, sizeof(quoted.text), "%s", word);
        return quoted;
    }
    quoted.text[used++] = '\'';
    for (; *word != '\0' && used + 6 < sizeof(quoted.text); word++) {
        if (*word == '\'') {
            memcpy(quoted.text + used, "'\\''", 4);
            used += 4;
        } else {
            quoted.text[used++] = *word;
        }
    }
    memcpy(quoted.text + used, "'", 2);
    return quoted;
}

void format_unresolved(char *buffer, size_t buffer_bytes, const char *module)
{
    snprintf(buffer, buffer_bytes, "unresolved code in %.300s",
             module != NULL ? format_base_name(module) : "an unknown module");
}

size_t format_width(const char *text)
{
    size_t width = 0;
    bool is_shown;
    for (; *text != '\0'; text += number_format_step(text, &is_shown)) {
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
            text += number_format_step(text, &is_shown);
        }
        to = (size_t)snprintf(buffer, buffer_bytes, "…");
    }
    while (*text != '\0' && to + 4 < buffer_bytes) {
        to += number_format_take(buffer + to, &text);
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
        to += number_format_take(buffer + to, &text);
    }
    if (is_cut && to + sizeof(mark) <= buffer_bytes) {
        memcpy(buffer + to, mark, sizeof(mark) - 1);
        to += sizeof(mark) - 1;
    }
    buffer[to] = '\0';
}

static bool is_of_name(char character)
{
    return isalnum((unsigned char)character) || character == '_';
}

/* Bytes of an operator's name, "operator<<" or "operator()", at `text`; 0: it is none. */
static size_t operator_bytes(const char *name, const char *text)
{
    static const char word[] = "operator";
    size_t length = sizeof(word) - 1;
    if ((text > name && is_of_name(text[-1])) || strncmp(text, word, length) != 0) {
        return 0;
    }
    if (strncmp(text + length, "()", 2) == 0) {
        return length + 2;
    }
    return length + strspn(text + length, "<>=-");
}

/* Whether the bracket at `text` is opened by what it belongs to: arguments or those of a template. Others are part of
 * the name: <module>, <T as Trait>::f, (anonymous namespace)::f. */
static bool opens_arguments(const char *name, const char *text)
{
    bool follows = text > name && (is_of_name(text[-1]) || strchr(">=-)]", text[-1]) != NULL);
    return follows && text[1] != ')';
}

/* The name without what its brackets hold. Owner: the caller, by free. */
static char *without_arguments(const char *name)
{
    char *shorter = memory_resize(NULL, 3 * strlen(name) + 1);
    size_t depth = 0;
    char *to = shorter;
    for (const char *text = name; *text != '\0';) {
        size_t length = depth == 0 ? operator_bytes(name, text) : 0;
        if (length > 0) {
            memcpy(to, text, length);
            to += length;
            text += length;
            continue;
        }
        if ((*text == '<' || *text == '(') && (depth > 0 || opens_arguments(name, text))) {
            to += depth == 0 ? sprintf(to, "%c…", *text) : 0;
            depth++;
        } else if (depth > 0 && (*text == ')' || (*text == '>' && text[-1] != '-'))) {
            depth--;
            if (depth == 0) {
                *to++ = *text;
            }
        } else if (depth == 0) {
            *to++ = *text;
        }
        text++;
    }
    *to = '\0';
    return shorter;
}

void format_function(char *buffer, size_t buffer_bytes, const char *text, size_t columns)
{
    if (format_width(text) <= columns) {
        format_head(buffer, buffer_bytes, text, columns);
        return;
    }
    char *shorter = without_arguments(text);
    format_head(buffer, buffer_bytes, shorter, columns);
    free(shorter);
}

void format_print_function(FILE *out, const char *text, size_t columns)
{
    if (terminal_has_full_names()) {
        format_print_safe(out, text);
        return;
    }
    char cut[4 * TERMINAL_COLUMNS_MAX + 8];
    format_function(cut, sizeof(cut), text, columns);
    fputs(cut, out);
}

void format_path(char *buffer, size_t buffer_bytes, const char *text, size_t columns)
{
    const char *rest = text;
    size_t width = format_width(text);
    if (width <= columns) {
        format_head(buffer, buffer_bytes, text, columns);
        return;
    }
    bool is_shown;
    while (width + 1 > columns) {
        do {
            rest += number_format_step(rest, &is_shown);
            width--;
        } while (*rest != '\0' && *rest != '/');
        if (*rest == '\0') {
            format_tail(buffer, buffer_bytes, text, columns);
            return;
        }
    }
    snprintf(buffer, buffer_bytes, "…");
    format_head(buffer + strlen(buffer), buffer_bytes - strlen(buffer), rest, columns - 1);
}

void format_print_safe(FILE *out, const char *text)
{
    while (*text != '\0') {
        char character[4] = "";
        fwrite(character, 1, number_format_take(character, &text), out);
    }
}

void format_print_xml(FILE *out, const char *text)
{
    static const struct {
        const char *text, *entity;
    } entities[] = {{"<", "&lt;"},        {">", "&gt;"},         {"&", "&amp;"},
                    {"\"", "&quot;"},     {"\xef\xbf\xbe", "?"}, /* U+FFFE and U+FFFF are no characters of XML */
                    {"\xef\xbf\xbf", "?"}};
    while (*text != '\0') {
        char character[8] = "";
        const char *shown = character;
        number_format_take(character, &text);
        for (size_t i = 0; i < sizeof(entities) / sizeof(entities[0]); i++) {
            shown = strcmp(character, entities[i].text) == 0 ? entities[i].entity : shown;
        }
        fputs(shown, out);
    }
}

void format_print_wrapped(FILE *out, const char *text, size_t column)
{
    size_t columns = terminal_columns();
    size_t at = column;
    while (*text != '\0') {
        size_t word = strcspn(text, " ");
        if (strncmp(text + word, " %", 2) == 0) { /* not between a number and its unit */
            word += 1 + strcspn(text + word + 1, " ");
        }
        char whole[TERMINAL_COLUMNS_MAX + 1];
        snprintf(whole, sizeof(whole), "%.*s", word < sizeof(whole) ? (int)word : (int)sizeof(whole) - 1, text);
        char piece[TERMINAL_COLUMNS_MAX + 1];
        format_head(piece, sizeof(piece), whole, columns - column);
        if (at > column && at + 1 + format_width(piece) > columns) {
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

void format_wrap(FILE *out, size_t column, const char *format, ...)
{
    char text[SENTENCE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    format_print_wrapped(out, text, column);
}

void format_print_lines(FILE *out, const char *text)
{
    while (*text != '\0') {
        size_t line = strcspn(text, "\n");
        const char *end = text + line;
        while (text < end) {
            char character[4] = "";
            fwrite(character, 1, number_format_take(character, &text), out);
        }
        if (*text == '\n') {
            fputc(*text++, out);
        }
    }
}

void format_print_folded(FILE *out, const char *text, size_t column)
{
    while (*text != '\0') {
        size_t bytes = strcspn(text, "\n");
        char *line = memory_resize(NULL, bytes + 1);
        memcpy(line, text, bytes);
        line[bytes] = '\0';
        if (format_width(line) <= terminal_columns()) {
            format_print_safe(out, line);
            fputc('\n', out);
        } else {
            size_t indent = strspn(line, " ");
            size_t head = indent < column && bytes > column ? column : indent;
            fwrite(line, 1, head, out);
            format_print_wrapped(out, line + head, head);
        }
        free(line);
        text += bytes + (text[bytes] == '\n' ? 1 : 0);
    }
}

size_t format_utf8_point(char to[4], uint32_t point)
{
    size_t count = point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    static const uint32_t firsts[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = count; i-- > 1; point >>= 6) {
        to[i] = (char)(0x80 | (point & 0x3f));
    }
    to[0] = (char)(firsts[count] | point);
    return count;
}

int format_hexadecimal_digit(int letter)
{
    int lower = letter | 0x20; /* a digit stays as it is */
    return letter >= '0' && letter <= '9' ? letter - '0' : lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
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
