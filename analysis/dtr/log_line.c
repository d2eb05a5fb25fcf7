/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON (RFC 8259) without what these lines never have: objects within objects, lists within lists, fractions, true,
 * false, null. A text without escapes stays where it is; others are copied once.
 */
#include "analysis/dtr/dtr_log.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/base/number_format.h"
#include "base/error.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct scan {
    struct line *line;
    const char *begin, *next, *end;
};

static const struct line_text keys[LINE_KEY_LIMIT] = {
#define LINE_KEY_TEXT(key) {#key, sizeof(#key) - 1},
    LINE_KEY_LIST(LINE_KEY_TEXT)
#undef LINE_KEY_TEXT
};

const char *line_key_name(enum line_key key)
{
    return keys[key].bytes;
}

static bool log_line_fail(struct scan *scan, const char *reason)
{
    scan->line->reason = scan->next == scan->end ? "the line ends in the middle"
                         : *scan->next == '\0'   ? "a NUL byte"
                                                 : reason;
    scan->line->column = (size_t)(scan->next - scan->begin) + 1;
    return false;
}

static bool is_next(const struct scan *scan, char byte)
{
    return scan->next < scan->end && *scan->next == byte;
}

static bool is_digit_next(const struct scan *scan)
{
    return scan->next < scan->end && *scan->next >= '0' && *scan->next <= '9';
}

static void skip_space(struct scan *scan)
{
    while (is_next(scan, ' ') || is_next(scan, '\t') || is_next(scan, '\r')) {
        scan->next++;
    }
}

/* ---- texts ---- */

static void log_line_put(struct scan *scan, uint32_t byte)
{
    scan->line->unescaped[scan->line->unescaped_count++] = (char)byte;
}

/* Behind the u of an escape. */
static bool scan_hexadecimal(struct scan *scan, uint32_t *unit_out)
{
    *unit_out = 0;
    for (int i = 0; i < 4; i++, scan->next++) {
        int digit = scan->next < scan->end ? format_hexadecimal_digit(*scan->next) : -1;
        if (digit < 0) {
            return log_line_fail(scan, "\\u wants four hexadecimal digits");
        }
        *unit_out = *unit_out << 4 | (uint32_t)digit;
    }
    return true;
}

static bool scan_unicode_escape(struct scan *scan)
{
    uint32_t point;
    if (!scan_hexadecimal(scan, &point)) {
        return false;
    }
    uint32_t low;
    if (point >= 0xd800 && point < 0xdc00 && is_next(scan, '\\')) {
        scan->next++;
        if (!is_next(scan, 'u')) {
            return log_line_fail(scan, "half of a surrogate pair");
        }
        scan->next++;
        if (!scan_hexadecimal(scan, &low)) {
            return false;
        }
        if (low < 0xdc00 || low > 0xdfff) {
            return log_line_fail(scan, "half of a surrogate pair");
        }
        point = 0x10000 + ((point - 0xd800) << 10) + (low - 0xdc00);
    }
    if (point >= 0xd800 && point < 0xe000) {
        return log_line_fail(scan, "half of a surrogate pair");
    }
    if (point == 0) {
        return log_line_fail(scan, "a NUL character");
    }
    scan->line->unescaped_count += format_utf8_point(scan->line->unescaped + scan->line->unescaped_count, point);
    return true;
}

static bool scan_escape(struct scan *scan)
{
    static const char escapes[] = "\"\\/bfnrt";
    static const char meant[] = "\"\\/\b\f\n\r\t";
    scan->next++;
    if (is_next(scan, 'u')) {
        scan->next++;
        return scan_unicode_escape(scan);
    }
    const char *escape = scan->next < scan->end && *scan->next != '\0' ? strchr(escapes, *scan->next) : NULL;
    if (escape == NULL) {
        return log_line_fail(scan, "no such escape");
    }
    log_line_put(scan, (unsigned char)meant[escape - escapes]);
    scan->next++;
    return true;
}

/* A text with escapes, or beyond ASCII: `next` is at the first of these. What is unescaped is never longer than the
 * line, so the room for it does not move while it is scanned. */
static bool scan_text_slowly(struct scan *scan, const char *begin, struct line_text *text_out)
{
    struct line *line = scan->line;
    size_t room = (size_t)(scan->end - scan->begin);
    size_t first = line->unescaped_count;
    if (first == 0 && line->unescaped_capacity < room) {
        line->unescaped_capacity = room;
        line->unescaped = memory_resize(line->unescaped, room);
    }
    for (const char *next = begin; next < scan->next; next++) {
        log_line_put(scan, (unsigned char)*next);
    }
    while (!is_next(scan, '"')) {
        size_t length = varve_utf8_length(scan->next, (size_t)(scan->end - scan->next));
        if (is_next(scan, '\\')) {
            if (!scan_escape(scan)) {
                return false;
            }
            continue;
        }
        if (length == 0) {
            return log_line_fail(scan, "no UTF-8");
        }
        if ((unsigned char)*scan->next < ' ') {
            return log_line_fail(scan, "a control character in a text");
        }
        for (; length > 0; length--, scan->next++) {
            log_line_put(scan, (unsigned char)*scan->next);
        }
    }
    scan->next++;
    *text_out = (struct line_text){line->unescaped + first, line->unescaped_count - first};
    return true;
}

static bool scan_text(struct scan *scan, struct line_text *text_out)
{
    if (!is_next(scan, '"')) {
        return log_line_fail(scan, "a text in quotes is missing");
    }
    const char *begin = ++scan->next;
    while (scan->next < scan->end && *scan->next != '"' && *scan->next != '\\' &&
           (unsigned char)(*scan->next - ' ') < 0x80 - ' ') {
        scan->next++;
    }
    if (!is_next(scan, '"')) {
        return scan_text_slowly(scan, begin, text_out);
    }
    *text_out = (struct line_text){begin, (size_t)(scan->next - begin)};
    scan->next++;
    return true;
}

/* ---- values ---- */

static bool scan_integer(struct scan *scan, struct line_text *text_out)
{
    const char *begin = scan->next;
    scan->next += is_next(scan, '-') ? 1 : 0;
    const char *digits = scan->next;
    if (!is_digit_next(scan)) {
        return log_line_fail(scan, "a text, a whole number or a list of them is missing");
    }
    while (is_digit_next(scan)) {
        scan->next++;
    }
    if (*digits == '0' && scan->next - digits > 1) {
        scan->next = digits;
        return log_line_fail(scan, "a number that begins with 0");
    }
    *text_out = (struct line_text){begin, (size_t)(scan->next - begin)};
    return true;
}

/* A text or a whole number, at the end of the line's items. */
static bool scan_item(struct scan *scan, enum line_kind *kind_out)
{
    struct line *line = scan->line;
    line->items = memory_grow(line->items, &line->item_capacity, line->item_count, sizeof(*line->items));
    *kind_out = is_next(scan, '"') ? LINE_TEXT : LINE_INTEGER;
    if (*kind_out == LINE_TEXT ? !scan_text(scan, &line->items[line->item_count])
                               : !scan_integer(scan, &line->items[line->item_count])) {
        return false;
    }
    line->item_count++;
    return true;
}

static bool scan_list(struct scan *scan, enum line_kind *kind_out)
{
    scan->next++;
    skip_space(scan);
    if (is_next(scan, ']')) {
        scan->next++;
        *kind_out = LINE_EMPTY;
        return true;
    }
    enum line_kind first = LINE_ABSENT;
    for (;;) {
        enum line_kind kind;
        if (!scan_item(scan, &kind)) {
            return false;
        }
        if (first != LINE_ABSENT && kind != first) {
            return log_line_fail(scan, "texts and numbers in one list");
        }
        first = kind;
        skip_space(scan);
        if (is_next(scan, ']')) {
            break;
        }
        if (!is_next(scan, ',')) {
            return log_line_fail(scan, "',' or ']' is missing");
        }
        scan->next++;
        skip_space(scan);
    }
    scan->next++;
    *kind_out = first == LINE_TEXT ? LINE_TEXTS : LINE_INTEGERS;
    return true;
}

static bool scan_value(struct scan *scan, struct line_value *value_out)
{
    value_out->first = scan->line->item_count;
    if (is_next(scan, '[') ? !scan_list(scan, &value_out->kind) : !scan_item(scan, &value_out->kind)) {
        return false;
    }
    value_out->count = scan->line->item_count - value_out->first;
    return true;
}

static enum line_key log_line_key_of(struct line_text text)
{
    for (size_t i = 0; i < LINE_KEY_LIMIT; i++) {
        if (keys[i].count == text.count && memcmp(keys[i].bytes, text.bytes, text.count) == 0) {
            return (enum line_key)i;
        }
    }
    return LINE_KEY_LIMIT;
}

static bool scan_member(struct scan *scan)
{
    struct line_value value = {.kind = LINE_ABSENT};
    const char *begin = scan->next;
    struct line_text text;
    if (!scan_text(scan, &text)) {
        return false;
    }
    enum line_key key = log_line_key_of(text);
    if (key != LINE_KEY_LIMIT && scan->line->values[key].kind != LINE_ABSENT) {
        scan->next = begin;
        return log_line_fail(scan, "a key for the second time");
    }
    skip_space(scan);
    if (!is_next(scan, ':')) {
        return log_line_fail(scan, "':' is missing");
    }
    scan->next++;
    skip_space(scan);
    if (!scan_value(scan, &value)) {
        return false;
    }
    if (key != LINE_KEY_LIMIT) {
        scan->line->values[key] = value;
    }
    return true;
}

bool line_scan(struct line *line, const char *bytes, size_t count)
{
    struct scan scan = {.line = line, .begin = bytes, .next = bytes, .end = bytes + count};
    memset(line->values, 0, sizeof(line->values));
    line->item_count = line->unescaped_count = 0;
    skip_space(&scan);
    if (!is_next(&scan, '{')) {
        return log_line_fail(&scan, "'{' is missing");
    }
    do {
        scan.next++;
        skip_space(&scan);
        if (!scan_member(&scan)) {
            return false;
        }
        skip_space(&scan);
    } while (is_next(&scan, ','));
    if (!is_next(&scan, '}')) {
        return log_line_fail(&scan, "',' or '}' is missing");
    }
    scan.next++;
    skip_space(&scan);
    return scan.next == scan.end || log_line_fail(&scan, "something follows the object");
}

void line_free(struct line *line)
{
    free(line->items);
    free(line->unescaped);
    *line = (struct line){0};
}
