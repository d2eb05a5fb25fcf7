/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines that have bytes in the heap and in Python's own memory: each, and together, where objects that are in both
 * count once (view line_together). Words and keys of them in every answer.
 */
#ifndef VARVE_ANALYSIS_QUERY_LINE_TOGETHER_H
#define VARVE_ANALYSIS_QUERY_LINE_TOGETHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cJSON;
struct cursor;
struct database;
struct together_lines;

/* A line's. */
struct together {
    int64_t bytes;                    /* -1: it is in one of the two only */
    int64_t heap_bytes, python_bytes; /* -1: none */
};

#define TOGETHER_NONE ((struct together){-1, -1, -1})

enum together_of {
    TOGETHER_ALLOCATED, /* in all */
    TOGETHER_LIVE,      /* live at the end */
    TOGETHER_PEAK,      /* of either domain at its own peak */
    TOGETHER_OF_COUNT,
};

/// line_total, which groups all call sites, becomes a table of this connection, on which line_together rests, too: for
/// who asks more than once.
void together_prepare(struct database *database);
/// Are there objects of Python's?
bool together_is_there(struct database *database);
/// Three columns of a row: heap, python, together.
struct together together_read(struct cursor *cursor, int column);
/// NULL if there is no such line. Owner: the caller, by together_free.
struct together_lines *together_load(struct database *database);
void together_free(struct together_lines *lines);
/// Of the line of a symbol (0: no stack was recorded); TOGETHER_NONE if one of the two is 0. `lines` may be NULL.
struct together together_of_line(const struct together_lines *lines, int64_t symbol_id, enum together_of of);
/// " (heap 9.20 KiB, python 91.4 KiB)"; empty of TOGETHER_NONE.
void together_words(char *text, size_t bytes, const struct together *together);
/// heap_bytes, python_bytes, together_bytes: members of an entry.
void together_json(struct cJSON *object, const struct together *together);

#endif
