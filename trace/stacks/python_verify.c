/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verifies, before any of it is trusted, that the interpreter in this process is laid out as python_layout.c says.
 * Every read goes through recorder_read_memory. All fields that a later walk uses are checked, each by a
 * property that a wrong offset can't have by chance: types by identity, the instruction by the code of its
 * frame, the thread by its id, the chain of frames by its end. Called by python_stack.c for its first frames.
 */
#include "trace/stacks/python_stack.h"
#include "trace/guest/guest_memory.h"
#include "trace/stacks/python_frame.h"
#include "trace/stacks/python_layout.h"

#include <pthread.h>
#include <stddef.h>

#define CHAIN_MAX 20000U  /* a deeper first stack is looked at another time */
#define TRACEABLE_SLACK 8 /* the interpreter's own shim (3 code units) says 4: never shown */

static bool unicode_is_good(const struct python_types *types, const void *object)
{
    char head[PYTHON_UNICODE_STATE + 8];
    if (!python_plausible(object) || !recorder_read_memory(head, (uintptr_t)object, sizeof(head))) {
        return false;
    }
    uint32_t state = (uint32_t)python_int(head, PYTHON_UNICODE_STATE);
    unsigned kind = (state >> 2) & 7U;
    int64_t length = python_size(head, PYTHON_UNICODE_LENGTH);
    return python_pointer(head, PYTHON_OB_TYPE) == types->unicode && (state & PYTHON_UNICODE_COMPACT) != 0 &&
           (kind == 1 || kind == 2 || kind == 4) && length >= 0 && length < PYTHON_LENGTH_MAX;
}

/* Length of a bytes object, -1 if it is none. */
static int64_t bytes_length(const struct python_types *types, const void *object)
{
    char head[PYTHON_BYTES_DATA];
    if (!python_plausible(object) || !recorder_read_memory(head, (uintptr_t)object, sizeof(head)) ||
        python_pointer(head, PYTHON_OB_TYPE) != types->bytes) {
        return -1;
    }
    int64_t length = python_size(head, PYTHON_OB_SIZE);
    return length < PYTHON_LENGTH_MAX ? length : -1;
}

/* The code object of one frame, and that the frame's instruction lies in it. */
static bool code_is_good(const struct python_layout *layout, const struct python_types *types, const char *frame)
{
    char code[256];
    const char *address = python_code(frame, layout->frame_code);
    if (!python_plausible(address) || !recorder_read_memory(code, (uintptr_t)address, layout->code_bytes) ||
        python_pointer(code, PYTHON_OB_TYPE) != types->code ||
        !unicode_is_good(types, python_pointer(code, layout->code_name)) ||
        !unicode_is_good(types, python_pointer(code, layout->code_filename)) ||
        bytes_length(types, python_pointer(code, layout->code_lines)) < 0 ||
        python_int(code, layout->code_first_line) < 0) {
        return false;
    }
    if (layout->frames_are_objects) {
        int64_t length = bytes_length(types, python_pointer(code, layout->code_bytecode));
        int64_t last = python_int(frame, layout->frame_instruction);
        return length >= 2 && last >= -1 && last * layout->lasti_unit < length;
    }
    int64_t units = python_size(code, PYTHON_OB_SIZE);
    int64_t first = python_int(code, layout->code_first_traceable);
    int64_t offset = python_pointer(frame, layout->frame_instruction) - (address + layout->code_bytecode);
    return units > 0 && units < PYTHON_LENGTH_MAX && first >= 0 && first <= units + TRACEABLE_SLACK &&
           offset % 2 == 0 && offset >= -2 && offset < 2 * units;
}

static bool frame_is_good(const struct python_layout *layout, const struct python_types *types, const char *frame)
{
    if (layout->frames_are_objects) {
        return python_pointer(frame, PYTHON_OB_TYPE) == types->frame && code_is_good(layout, types, frame);
    }
    uint8_t owner = (uint8_t)frame[layout->frame_owner];
    if (layout->has_entry_flag) {
        return owner < PYTHON_OWNER_INTERPRETER && (uint8_t)frame[layout->frame_entry] <= 1 &&
               code_is_good(layout, types, frame);
    }
    /* The entry frame on the C stack is only half written: the interpreter sets what it needs itself. */
    return owner == PYTHON_OWNER_INTERPRETER ||
           (owner < PYTHON_OWNER_INTERPRETER && code_is_good(layout, types, frame));
}

enum python_verdict python_verify_stack(const struct python_layout *layout, const struct python_types *types,
                                        const void *state, unsigned *frames)
{
    *frames = 0;
    char head[256];
    if (!python_plausible(state) || !recorder_read_memory(head, (uintptr_t)state, (size_t)layout->state_thread + 8) ||
        python_size(head, layout->state_thread) != (int64_t)pthread_self()) {
        return PYTHON_VERDICT_BAD;
    }
    const char *at = python_pointer(head, layout->state_frame);
    if (layout->has_cframe) {
        char cframe[16];
        if (!python_plausible(at) || !recorder_read_memory(cframe, (uintptr_t)at, sizeof(cframe))) {
            return PYTHON_VERDICT_BAD;
        }
        at = python_pointer(cframe, layout->cframe_frame);
    }
    bool entered = layout->frames_are_objects; /* the outermost frame was entered from C */
    for (; at != NULL; (*frames)++) {
        if (*frames == CHAIN_MAX) {
            return PYTHON_VERDICT_NO_FRAMES;
        }
        char frame[128];
        if (!python_plausible(at) || !recorder_read_memory(frame, (uintptr_t)at, layout->frame_bytes) ||
            !frame_is_good(layout, types, frame)) {
            return PYTHON_VERDICT_BAD;
        }
        if (layout->has_entry_flag) {
            entered = frame[layout->frame_entry] == 1;
        } else if (!layout->frames_are_objects) {
            entered = (uint8_t)frame[layout->frame_owner] == PYTHON_OWNER_INTERPRETER;
        }
        at = python_pointer(frame, layout->frame_previous);
    }
    if (*frames == 0) {
        return PYTHON_VERDICT_NO_FRAMES;
    }
    return entered ? PYTHON_VERDICT_GOOD : PYTHON_VERDICT_BAD;
}
