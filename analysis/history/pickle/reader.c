/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop of the pickle machine and its messages. Before each opcode the window holds RESERVE_BYTES, or all
 * that is left, so that the arguments of nearly all opcodes are contiguous and a shortage means a truncated
 * file. Called by history/pytorch/pytorch.c; pickle_opcodes holds what the opcodes do.
 */
#include "analysis/history/pickle/pickle.h"

#include "analysis/output/memory.h"
#include "analysis/output/progress.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RESERVE_BYTES 288 /* opcode, length and 256 bytes */

void pickle_init(struct pickle *pickle, struct input_stream *input, const struct pickle_sink *sink,
                 const char *const *words, struct progress *progress, struct varve_message *message)
{
    *pickle = (struct pickle){.input = input, .sink = sink, .progress = progress, .message = message};
    pickle->stack_capacity = 1024;
    pickle->stack = memory_resize(NULL, pickle->stack_capacity * sizeof(*pickle->stack));
    pickle->spare_dicts = pickle->spare_others = pickle->doomed = UINT32_MAX;
    for (uint32_t i = 0; words != NULL && words[i] != NULL; i++) {
        uint32_t number = pickle_text(pickle, words[i], strlen(words[i]));

        assert(number == i);
        (void)number;
    }
}

int pickle_fail(struct pickle *pickle, uint64_t offset, const char *format, ...)
{
    const char *path = input_stream_path(pickle->input);
    size_t length = strlen(path);
    char reason[300];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(reason, sizeof(reason), format, arguments);
    va_end(arguments);
    return varve_message_set(pickle->message, VARVE_ERROR_FORMAT, "%s%s: at byte %" PRIu64 ": %s",
                             length > 150 ? "…" : "", length > 150 ? path + length - 150 : path, offset,
                             reason);
}

int pickle_fail_truncated(struct pickle *pickle)
{
    return pickle_fail(pickle, pickle->offset, "the data end within %s", pickle_opcodes[pickle->opcode].name);
}

static int fail_opcode(struct pickle *pickle)
{
    if (pickle->offset == 0) {
        return pickle_fail(pickle, 0, "not a pickle (it begins with byte 0x%02x)", pickle->opcode);
    }
    return pickle_fail(pickle, pickle->offset, "0x%02x is no opcode of a pickle", pickle->opcode);
}

static int refill(struct pickle *pickle)
{
    struct input_stream *input = pickle->input;
    int error = input_stream_fill(input, RESERVE_BYTES, pickle->message);

    if (error == VARVE_OK && pickle->progress != NULL) {
        progress_step(pickle->progress, "reading the snapshot", input_stream_done(input),
                      input_stream_total(input));
    }
    if (error == VARVE_OK && input->next == input->end) {
        error = pickle_fail(pickle, input_stream_offset(input), "the data end without STOP");
    }
    return error;
}

static int check_end(struct pickle *pickle)
{
    int error = input_stream_fill(pickle->input, 1, pickle->message);

    if (error == VARVE_OK && pickle->input->next < pickle->input->end) {
        error = pickle_fail(pickle, input_stream_offset(pickle->input), "data follow STOP");
    }
    return error;
}

int pickle_run(struct pickle *pickle, struct pickle_value *root_out)
{
    struct input_stream *input = pickle->input;
    int error = VARVE_OK;

    while (error == VARVE_OK && !pickle->is_stopped) {
        const struct pickle_opcode *opcode;

        if (input->end - input->next < RESERVE_BYTES) {
            error = refill(pickle);
            if (error != VARVE_OK) {
                break;
            }
        }
        pickle->offset = input_stream_offset(input);
        pickle->opcode = *input->next++;
        opcode = &pickle_opcodes[pickle->opcode];
        error = opcode->run != NULL ? opcode->run(pickle) : fail_opcode(pickle);
    }
    if (error == VARVE_OK) {
        error = check_end(pickle);
    }
    if (error == VARVE_OK) {
        assert(pickle->height == 1);
        *root_out = pickle->stack[0];
    }
    return error;
}

void pickle_close(struct pickle *pickle)
{
    pickle_memory_close(pickle);
    free(pickle->stack);
    free(pickle->marks);
}
