/* SPDX-License-Identifier: Apache-2.0 */
/* Where the fields of CPython's own structures lie, one row per minor version. */
#ifndef VARVE_TRACE_STACKS_PYTHON_LAYOUT_H
#define VARVE_TRACE_STACKS_PYTHON_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define PYTHON_OB_TYPE 8U  /* PyObject: reference count, type */
#define PYTHON_OB_SIZE 16U /* PyVarObject: number of items */
#define PYTHON_BYTES_DATA 32U

#define PYTHON_LENGTH_MAX (INT64_C(1) << 28) /* of names and tables that are believed */

#define PYTHON_UNICODE_LENGTH 16U
#define PYTHON_UNICODE_STATE 32U
#define PYTHON_UNICODE_COMPACT 0x20U
#define PYTHON_UNICODE_ASCII 0x40U

enum python_line_format {
    PYTHON_LINES_LNOTAB,    /* 3.9: pairs (bytecode delta, line delta) */
    PYTHON_LINES_RANGES,    /* 3.10: the same, the delta before its range, -128 for no line (PEP 626) */
    PYTHON_LINES_LOCATIONS, /* 3.11 and later: entries of variable length with columns (PEP 657) */
};

/// Offsets in bytes of the fields that are read, for one minor version; a 64-bit build with the GIL.
struct python_layout {
    unsigned minor;
    enum python_line_format lines;
    bool frames_are_objects; /* up to 3.10: PyFrameObject, one interpreter loop for each */
    bool state_per_thread;   /* 3.12 and later: the current thread state is NULL without the GIL */
    bool has_cframe;         /* 3.11 and 3.12: thread state -> C frame -> current frame */
    bool has_entry_flag;     /* 3.11; later a frame on the C stack lies behind the entry frame */
    uint8_t state_thread;
    uint8_t state_frame; /* frame, cframe or current_frame */
    uint8_t cframe_frame;
    uint8_t frame_code;
    uint8_t frame_previous;
    uint8_t frame_instruction; /* int f_lasti, or a pointer to a code unit */
    uint8_t frame_owner;
    uint8_t frame_entry;
    uint8_t frame_bytes; /* as much of a frame as is read */
    uint8_t lasti_unit;  /* bytes per step of f_lasti */
    uint8_t code_first_line;
    uint8_t code_filename;
    uint8_t code_name;
    uint8_t code_lines;
    uint8_t code_first_traceable;
    uint8_t code_bytecode; /* the array itself; up to 3.10 a pointer to a bytes object */
    uint8_t code_bytes;
    uint8_t ascii_data;   /* characters of a compact ASCII string */
    uint8_t compact_data; /* characters of another compact string */
};

/// Addresses of the type objects by which a pointer is recognised.
struct python_types {
    const void *code;
    const void *frame;
    const void *unicode;
    const void *bytes;
};

/* One field of a structure of the interpreter's, by its offset. */
static inline const char *python_pointer(const void *base, size_t offset)
{
    const char *value;
    memcpy(&value, (const char *)base + offset, sizeof(value));
    return value;
}

/* The code object of a frame: from 3.14 on the lowest bits of such references are tags (pycore_stackref.h). */
static inline const char *python_code(const void *frame, size_t offset)
{
    const char *tagged = python_pointer(frame, offset);
    return tagged - ((uintptr_t)tagged & 3U);
}

static inline int32_t python_int(const void *base, size_t offset)
{
    int32_t value;
    memcpy(&value, (const char *)base + offset, sizeof(value));
    return value;
}

static inline int64_t python_size(const void *base, size_t offset)
{
    int64_t value;
    memcpy(&value, (const char *)base + offset, sizeof(value));
    return value;
}

/// True for what may be the address of an object: aligned, in user space, not in the first pages.
static inline bool python_plausible(const void *pointer)
{
    uintptr_t value = (uintptr_t)pointer;
    return value % 8 == 0 && value >= 0x10000 && value < (UINT64_C(1) << 56);
}

/// Layout for the text of Py_GetVersion(), NULL if this version or build is not known.
const struct python_layout *python_layout_find(const char *version);

#endif
