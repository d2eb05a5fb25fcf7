/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A decoder of pickles (protocols 2 to 5) that makes values and runs nothing, for files whose lists are larger
 * than memory should be. A sink looks at each container when it is filled for the first time; of those that it
 * knows by their position on the stack it takes the items as they come, and they are gone afterwards. All other
 * containers are kept as long as the stack, another container or the memo refers to them. One thread.
 */
#ifndef VARVE_ANALYSIS_SNAPSHOT_PICKLE_DECODER_H
#define VARVE_ANALYSIS_SNAPSHOT_PICKLE_DECODER_H

#include "analysis/base/input_stream.h"
#include "analysis/snapshot/pickle_memory.h"

struct pickle;

/* Both are called before the items leave the stack. */
struct pickle_sink {
    void *context;
    /* Role of a list, or of a dict at the bottom, that is filled for the first time and is, or will be, at
     * stack[position]. */
    uint8_t (*role)(void *context, struct pickle *pickle, size_t position, struct pickle_object *container);
    /* Items for a container with a role of the sink's. They are released when this returns. */
    int (*take)(void *context, struct pickle *pickle, struct pickle_object *container, const struct pickle_value *items,
                size_t count);
};

struct pickle {
    struct input_stream *input;
    const struct pickle_sink *sink;
    struct progress *progress;
    struct varve_message *message;
    uint64_t offset;      /* of the opcode at work */
    unsigned char opcode; /* the one at work */
    bool is_stopped;
    bool is_refused;    /* an opcode that makes Python run code */
    bool may_have_more; /* data may follow STOP: the caller's to set */

    struct pickle_value *stack;
    size_t height, stack_capacity;
    uint32_t *marks; /* heights */
    size_t mark_count, mark_capacity;

    struct pickle_memory memory;
};

/// Everything is borrowed. `words`: texts that get the numbers 0, 1, … (ends with NULL).
void pickle_init(struct pickle *pickle, struct input_stream *input, const struct pickle_sink *sink,
                 const char *const *words, struct progress *progress, struct varve_message *message);
/// Run to STOP. `*root_out` stays valid until pickle_close. Errors: VARVE_ERROR_FORMAT, or what input and
/// sink return.
int pickle_run(struct pickle *pickle, struct pickle_value *root_out);
void pickle_close(struct pickle *pickle);
/// For a decoder of another notation, instead of pickle_run: one opcode without an argument in the stream, and a value.
/// `offset`: where in the stream it is, for messages. Errors: as above.
int pickle_step(struct pickle *pickle, uint64_t offset, unsigned char opcode);
int pickle_push(struct pickle *pickle, uint64_t offset, enum pickle_type type, uint64_t bits);
/// VARVE_ERROR_FORMAT with "PATH: at byte OFFSET: reason".
int pickle_fail(struct pickle *pickle, uint64_t offset, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
