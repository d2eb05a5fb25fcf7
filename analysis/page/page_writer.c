/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON inside of HTML: '<', '>' and '&' are written as escapes, so that no text can end its element; U+2028 and U+2029
 * too, and all that is not to be shown. A name is found again by its hash, and two of one hash by comparing.
 */
#include "analysis/page/page_writer.h"

#include "analysis/base/memory_or_exit.h"
#include "base/error.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define ELLIPSIS "\xe2\x80\xa6"

void page_writer_init(struct page_writer *writer, FILE *out)
{
    *writer = (struct page_writer){.out = out};
}

void page_writer_free(struct page_writer *writer)
{
    for (size_t i = 0; i < writer->name_count; i++) {
        free(writer->names[i]);
    }
    free(writer->names);
    map_free(&writer->name_numbers);
    *writer = (struct page_writer){0};
}

static void begin_value(struct page_writer *writer)
{
    if (writer->needs_comma) {
        fputc(',', writer->out);
    }
    writer->needs_comma = true;
}

void page_open(struct page_writer *writer, char bracket)
{
    begin_value(writer);
    fputc(bracket, writer->out);
    writer->needs_comma = false;
}

void page_close(struct page_writer *writer, char bracket)
{
    fputc(bracket, writer->out);
    writer->needs_comma = true;
}

void page_key(struct page_writer *writer, const char *key)
{
    begin_value(writer);
    fprintf(writer->out, "\"%s\":", key);
    writer->needs_comma = false;
}

void page_integer(struct page_writer *writer, int64_t number)
{
    begin_value(writer);
    fprintf(writer->out, "%" PRId64, number);
}

void page_null(struct page_writer *writer)
{
    begin_value(writer);
    fputs("null", writer->out);
}

void page_bool(struct page_writer *writer, bool value)
{
    begin_value(writer);
    fputs(value ? "true" : "false", writer->out);
}

/* Bytes of the character that `text` begins with, 0 if it must be written in another way. */
static size_t plain_bytes(const char *text, size_t bytes)
{
    size_t length = varve_utf8_shown(text, bytes);
    bool is_line_end =
        length == 3 && memcmp(text, "\xe2\x80", 2) == 0 && (text[2] == (char)0xa8 || text[2] == (char)0xa9);
    return is_line_end || (length == 1 && strchr("\"\\<>&", text[0]) != NULL) ? 0 : length;
}

/* `after` is what the text ends with; "" or an ellipsis. */
static void write_string(FILE *out, const char *text, size_t bytes, const char *after)
{
    fputc('"', out);
    for (size_t i = 0; i < bytes;) {
        size_t plain = plain_bytes(text + i, bytes - i);
        size_t length = varve_utf8_length(text + i, bytes - i);
        if (plain > 0) {
            fwrite(text + i, 1, plain, out);
        } else if (length == 3) {
            fprintf(out, "\\u20%02x", text[i + 2] == (char)0xa8 ? 0x28U : 0x29U);
        } else if (length > 0) {
            fprintf(out, "\\u%04x", (unsigned)(unsigned char)text[i + length - 1]);
        } else {
            fputs("\\ufffd", out);
        }
        i += length > 0 ? length : 1;
    }
    fprintf(out, "%s\"", after);
}

/* How much of a text is written: all of it, or as many whole characters as fit. */
static size_t page_writer_cut(const char *text)
{
    size_t bytes = strnlen(text, PAGE_NAME_BYTES_MAX + 1);
    if (bytes > PAGE_NAME_BYTES_MAX) {
        bytes = PAGE_NAME_BYTES_MAX;
        while (bytes > PAGE_NAME_BYTES_MAX - 4 && ((unsigned char)text[bytes] & 0xc0) == 0x80) {
            bytes--;
        }
    }
    return bytes;
}

void page_text(struct page_writer *writer, const char *text)
{
    if (text == NULL) {
        page_null(writer);
    } else {
        size_t bytes = page_writer_cut(text);
        begin_value(writer);
        write_string(writer->out, text, bytes, text[bytes] != '\0' ? ELLIPSIS : "");
    }
}

static int64_t name_number(struct page_writer *writer, const char *text)
{
    size_t bytes = strnlen(text, PAGE_NAME_BYTES_MAX + 1);
    uint64_t key = map_hash(text, bytes);
    uint64_t found;
    while ((found = map_find(&writer->name_numbers, key)) != MAP_NONE) {
        if (strncmp(writer->names[found], text, PAGE_NAME_BYTES_MAX + 1) == 0) {
            return (int64_t)found;
        }
        key++;
    }
    if (writer->name_count == PAGE_NAMES_MAX) {
        return -1;
    }
    map_put(&writer->name_numbers, key, writer->name_count);
    writer->names = memory_grow(writer->names, &writer->name_capacity, writer->name_count, sizeof(writer->names[0]));
    writer->names[writer->name_count] = memory_resize(NULL, bytes + 1);
    memcpy(writer->names[writer->name_count], text, bytes);
    writer->names[writer->name_count][bytes] = '\0';
    return (int64_t)writer->name_count++;
}

void page_name(struct page_writer *writer, const char *text)
{
    page_integer(writer, text != NULL ? name_number(writer, text) : -1);
}

void page_names(struct page_writer *writer)
{
    page_open(writer, '[');
    for (size_t i = 0; i < writer->name_count; i++) {
        page_text(writer, writer->names[i]);
    }
    page_close(writer, ']');
}

void page_member_integer(struct page_writer *writer, const char *key, int64_t number)
{
    page_key(writer, key);
    page_integer(writer, number);
}

void page_member_text(struct page_writer *writer, const char *key, const char *text)
{
    page_key(writer, key);
    page_text(writer, text);
}

void page_member_bool(struct page_writer *writer, const char *key, bool value)
{
    page_key(writer, key);
    page_bool(writer, value);
}

void page_member_deltas(struct page_writer *writer, const char *key, const int64_t *numbers, size_t count)
{
    page_key(writer, key);
    page_open(writer, '[');
    uint64_t before = 0;
    for (size_t i = 0; i < count; i++) {
        page_integer(writer, (int64_t)((uint64_t)numbers[i] - before));
        before = (uint64_t)numbers[i];
    }
    page_close(writer, ']');
}

void page_html(FILE *out, const char *text)
{
    size_t bytes = strlen(text);
    for (size_t i = 0; i < bytes;) {
        size_t plain = text[i] == '\n' ? 1 : plain_bytes(text + i, bytes - i);
        size_t length = varve_utf8_length(text + i, bytes - i);
        if (plain > 0) {
            fwrite(text + i, 1, plain, out);
        } else if (strchr("\"\\<>&", text[i]) != NULL) {
            fprintf(out, "&#%d;", text[i]);
        } else {
            fputs("\xef\xbf\xbd", out);
        }
        i += length > 0 ? length : 1;
    }
}
