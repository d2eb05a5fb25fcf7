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

#endif
