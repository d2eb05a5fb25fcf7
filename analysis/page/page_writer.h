/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON for a page, written as it is made: arrays of a million numbers never lie in memory. What it writes may stand
 * inside an element <script> of HTML. Names are in one table and written as their number there. One thread.
 */
#ifndef VARVE_ANALYSIS_PAGE_PAGE_WRITER_H
#define VARVE_ANALYSIS_PAGE_PAGE_WRITER_H

#include "analysis/base/key_map.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define PAGE_NAME_BYTES_MAX 1000 /* of a name in the page: what is longer is cut, and ends with an ellipsis */
#define PAGE_NAMES_MAX 200000    /* what comes after these has no name */

struct page_writer {
    FILE *out;
    bool needs_comma; /* before the next value or key */
    struct map name_numbers;
    char **names;
    size_t name_count, name_capacity;
};

void page_writer_init(struct page_writer *writer, FILE *out);
void page_writer_free(struct page_writer *writer);

/* In an object each value comes behind its key. */
void page_open(struct page_writer *writer, char bracket); /* '{' or '[' */
void page_close(struct page_writer *writer, char bracket);
void page_key(struct page_writer *writer, const char *key);
void page_integer(struct page_writer *writer, int64_t number);
void page_null(struct page_writer *writer);
void page_text(struct page_writer *writer, const char *text); /* NULL is null */
void page_bool(struct page_writer *writer, bool value);
/// The number of a name, -1 of NULL.
void page_name(struct page_writer *writer, const char *text);
/// All names so far, as an array.
void page_names(struct page_writer *writer);

/* A key and its value. */
void page_member_integer(struct page_writer *writer, const char *key, int64_t number);
void page_member_text(struct page_writer *writer, const char *key, const char *text);
void page_member_bool(struct page_writer *writer, const char *key, bool value);
/// An array of numbers, each as its difference to the one before: they are small, and short.
void page_member_deltas(struct page_writer *writer, const char *key, const int64_t *numbers, size_t count);

/// All of a text in HTML. Control characters but ends of lines, and what is no UTF-8, become U+FFFD.
void page_html(FILE *out, const char *text);

#endif
