/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A log of operators, as DTR's prototype and what followed it write them: what a program called, with costs and sizes,
 * read into a schedule that a planner (storage/remat.h) plays. Tensors, operators and inputs have the numbers that a
 * planner gives when it plays the operators in order. The result is the caller's, by dtr_log_free; nothing in it
 * changes, so any thread may read it.
 *
 * Source: the log and its meaning are those of simrd, uwsampl/dtr-prototype (2021); docs/dtr.md says where this
 * reader is stricter.
 */
#ifndef VARVE_ANALYSIS_DTR_DTR_LOG_H
#define VARVE_ANALYSIS_DTR_DTR_LOG_H

#include "analysis/base/key_map.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DTR_ID_MAX ((UINT32_C(1) << 29) - 1)
#define DTR_SUM_MAX (UINT64_C(1) << 62)

/* X(name): what to do next, and what its id is */
enum dtr_event_kind {
    DTR_EVENT_COMPUTE, /* an operator; they come in the order of their numbers. Each output has one reference */
    DTR_EVENT_GET,     /* a tensor: one reference more. It need not become defined */
    DTR_EVENT_PIN, /* a tensor becomes defined, and its storage stays from then on; may come again for the same one */
    DTR_EVENT_RELEASE, /* a tensor: one reference less */
    DTR_EVENT_MARK,    /* a name: what the program wrote into the log (ANNOTATE) */
    DTR_EVENT_LIMIT,
};

struct dtr_event {
    uint32_t kind : 3;
    uint32_t id : 29;
};

struct dtr_op {
    uint64_t cost_ns;
    uint64_t line;                       /* in the log, from 1 */
    uint32_t name;                       /* dtr_log_name */
    uint32_t first_input, input_count;   /* of log.inputs */
    uint32_t first_output, output_count; /* tensors, at least one */
    bool is_constant;                    /* without inputs and cost, pinned at once */
    bool is_backward;                    /* behind the mark BACKWARD, or its name says so */
};

/* Lines that were played, by instruction; a log without ANNOTATE START is played whole. */
#define DTR_LOG_COUNT_LIST(X)                                                         \
    X(constants, "constants and parameters")                                          \
    X(calls, "calls of operators")                                                    \
    X(mutates, "operators that change inputs in place")                               \
    X(copies, "new handles of a tensor")                                              \
    X(copies_from, "handles moved to another tensor")                                 \
    X(pins, "tensors that the program pinned")                                        \
    X(releases, "handles released, or released that were made before ANNOTATE START") \
    X(unknown_releases, "of these: made before it, which changes nothing")

struct dtr_log {
    struct dtr_event *events;
    size_t event_count, end_event; /* from end_event on: the end condition, PIN of what has a handle left */
    struct dtr_op *ops;
    uint32_t *inputs; /* tensors */
    /* By tensor: bytes (0: a view), which input of its operator it is a view of (-1: none), bytes of its storage. */
    uint64_t *sizes;
    int32_t *aliases;
    uint64_t *storage_bytes;
    uint32_t op_count, input_count, tensor_count;
    struct name_table *names;
    uint64_t bytes, cost_ns; /* of all tensors, of all operators: at most DTR_SUM_MAX, inputs of one operator too */
    uint64_t lines;          /* of the file */
    bool has_start;
#define DTR_LOG_COUNT_FIELD(name, meaning) uint64_t name;
    DTR_LOG_COUNT_LIST(DTR_LOG_COUNT_FIELD)
#undef DTR_LOG_COUNT_FIELD
};

struct input_stream;
struct progress;

/// Read a log, plain or compressed. `progress`: NULL for none. Errors, each with the file, and of contents with the
/// line and what is wrong there: VARVE_ERROR_NOT_FOUND, PERMISSION, FORMAT, IO.
int dtr_log_read(const char *path, struct progress *progress, struct dtr_log **log_out, struct varve_message *message);
/// The same; takes the stream.
int dtr_log_read_stream(struct input_stream *input, struct progress *progress, struct dtr_log **log_out,
                        struct varve_message *message);
void dtr_log_free(struct dtr_log *log); /* NULL is allowed */
/// The text of an operator's name, or of a mark. Lives as long as the log.
const char *dtr_log_name(const struct dtr_log *log, uint32_t name);

/*
 * One line of an operator log: a flat JSON object of texts, whole numbers and lists of either. Keys come in any order,
 * those that nobody here knows are skipped. It is strict where cJSON is not (README.md), and makes no object of the
 * heap. Called by dtr_log.c.
 */

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

/*
 * Texts, each once, numbered from 0 in the order in which they came. Used by dtr_log.c for the names of
 * operators and of handles.
 */

#define NAME_TABLE_NONE UINT32_MAX

/* Begins zeroed. offsets[i + 1] - offsets[i] = bytes of name i, the NUL behind it included. */
struct name_table {
    struct map numbers; /* by hash */
    char *bytes;
    size_t *offsets;
    size_t byte_capacity, offset_capacity;
    uint32_t count;
};

/// NAME_TABLE_NONE: it is not there.
uint32_t name_table_find(const struct name_table *table, const char *bytes, size_t count);
/// Its number, old or new. `bytes` hold no NUL.
uint32_t name_table_add(struct name_table *table, const char *bytes, size_t count);
/// With a NUL at its end; until the next one is added.
const char *name_table_text(const struct name_table *table, uint32_t number);
void name_table_free(struct name_table *table);

/* What holds for every log that was read, walked by tests and fuzzers. */

/// Numbers are in range and follow each other, sums are right, and nothing is used that has no reference.
/// VARVE_ERROR_CORRUPT with the first thing that is wrong.
int dtr_log_check(const struct dtr_log *log, struct varve_message *message);

#endif
