/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One line of an operator log: a flat JSON object of texts, whole numbers and lists of either. Keys come in any order,
 * those that nobody here knows are skipped. It is strict where cJSON is not (README.md), and makes no object of the
 * heap. Called by dtr_log.c.
 */
#ifndef VARVE_ANALYSIS_DTR_LOG_LINE_H
#define VARVE_ANALYSIS_DTR_LOG_LINE_H

#include <stdbool.h>
#include <stddef.h>

/* X(key) */
#define LINE_KEY_LIST(X) \
    X(INSTRUCTION)       \
    X(NAME)              \
    X(MEMORY)            \
    X(ALIAS)             \
    X(ARGS)              \
    X(RESULT)            \
    X(TIME)              \
    X(MUTATE)            \
    X(DST)               \
    X(SRC)               \
    X(ANNOTATION)

enum line_key {
#define LINE_KEY_ENUM(key) LINE_KEY_##key,
    LINE_KEY_LIST(LINE_KEY_ENUM)
#undef LINE_KEY_ENUM
        LINE_KEY_LIMIT
};

enum line_kind {
    LINE_ABSENT,
    LINE_TEXT,
    LINE_INTEGER,
    LINE_TEXTS,
    LINE_INTEGERS,
    LINE_EMPTY, /* a list, of either */
};

/* Well-formed UTF-8 without NUL; of a whole number its digits as they are, with its sign. */
struct line_text {
    const char *bytes;
    size_t count;
};

struct line_value {
    enum line_kind kind;
    size_t first, count; /* of line.items */
};

/* Texts lie in the bytes that were scanned, or in `unescaped`, until the next scan. Begins zeroed. */
struct line {
    struct line_value values[LINE_KEY_LIMIT];
    struct line_text *items;
    size_t item_count, item_capacity;
    char *unescaped;
    size_t unescaped_count, unescaped_capacity;
    const char *reason; /* after a failure: static */
    size_t column;      /* where, in bytes from 1 */
};

const char *line_key_name(enum line_key key);
/// False: `reason` and `column` say why.
bool line_scan(struct line *line, const char *bytes, size_t count);
void line_free(struct line *line);

#endif
