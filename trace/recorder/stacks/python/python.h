/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to the python_*.c files of the workload half of trace/, which use C11 atomics */
/*
 * What the files behind python_stack_capture share: where the fields of CPython's own structures lie
 * (layout.c), whether a thread's frames really look that way (verify.c), how names and line
 * tables are read (text.c), and memory that may not be there (memory.c). Nothing here
 * allocates, takes a lock or calls into the interpreter.
 */
#ifndef VARVE_TRACE_RECORDER_STACKS_PYTHON_PYTHON_H
#define VARVE_TRACE_RECORDER_STACKS_PYTHON_PYTHON_H

#include "trace/recorder/stacks/callsite.h"
#include "trace/recorder/recorder.h"

#include <stdatomic.h>
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

/* Values of _PyInterpreterFrame.owner. */
#define PYTHON_OWNER_GENERATOR 1U
#define PYTHON_OWNER_CSTACK 3U

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

/* ---- layout.c ---- */

/// Layout for the text of Py_GetVersion(), NULL if this version or build is not known.
const struct python_layout *python_layout_find(const char *version);

/* ---- stack.c ---- */

#define PYTHON_STACK_UNKNOWN (~0U)

/// Hash and number of the frames that python_stack_capture would give now, for far less than a walk: most of
/// them are still those of this thread's last call. PYTHON_STACK_UNKNOWN: not in this way (the layout is not
/// trusted yet, no memory, `max` above PYTHON_MEMO_FRAMES_MAX), capture them. Threads: any;
/// async-signal-safe.
unsigned python_stack_hash(struct callsite_hash *hash, unsigned max);

enum python_frame_kind {
    PYTHON_FRAME_SHOWN,
    PYTHON_FRAME_HIDDEN, /* its function has not begun yet */
    PYTHON_FRAME_MARK,   /* on the C stack: the shown frame before it entered the interpreter loop */
    PYTHON_FRAME_END,    /* there is none, or nothing that can be believed */
};

/// What lies at `at`; `frame` is filled if it is shown.
enum python_frame_kind python_frame_look(const struct python_layout *layout, const void *code_type,
                                         const char *at, struct python_frame *frame);

/* Add the next frame, outside-in. Two independent chains, and in each only the last of the three steps waits
 * for the frame before. */
static inline void python_hash_frame(struct callsite_hash *hash, const void *code, const void *name,
                                     const void *filename, uint64_t place)
{
    const uint64_t a = (uintptr_t)code;
    const uint64_t b = (uintptr_t)name;
    const uint64_t c = (uintptr_t)filename;
    const uint64_t low = callsite_mix(a ^ UINT64_C(0xa0761d6478bd642f), b ^ UINT64_C(0x8ebc6af09c88c6e3));
    const uint64_t high = callsite_mix(a ^ UINT64_C(0xe7037ed1a0b428db), b ^ UINT64_C(0x589965cc75374cc3));

    hash->low = callsite_mix(hash->low ^ low, callsite_mix(c ^ UINT64_C(0x1d8e4e27c47d124f),
                                                           place ^ UINT64_C(0xd6e8feb86659fd93)));
    hash->high = callsite_mix(hash->high ^ high, callsite_mix(c ^ UINT64_C(0xeb44accab455d165),
                                                              place ^ UINT64_C(0x9fb21c651e98df25)));
}

/* Where in its code object a frame stands, as one word. */
static inline uint64_t python_hash_place(uint32_t instruction, bool is_entry)
{
    return (uint64_t)instruction << 1 | is_entry;
}

/* Of captured frames. */
static inline struct callsite_hash python_hash_frames(const struct python_frame *frames, unsigned count)
{
    struct callsite_hash hash = {0};

    while (count-- > 0) {
        const struct python_frame *frame = &frames[count];

        python_hash_frame(&hash, frame->code, frame->name, frame->filename,
                          python_hash_place(frame->instruction, frame->is_entry));
    }
    return hash;
}

/* ---- memory.c ---- */

#define PYTHON_PAGE_BYTES 4096U
#define PYTHON_PAGE_SLOTS 4096U

extern _Atomic uintptr_t python_pages[PYTHON_PAGE_SLOTS];

/// True if all of it can be read; asks the kernel about pages that are not remembered.
bool python_memory_probe(const void *address, size_t bytes);

static inline bool python_page_known(uintptr_t address)
{
    uintptr_t page = address / PYTHON_PAGE_BYTES;
    return atomic_load_explicit(&python_pages[page % PYTHON_PAGE_SLOTS], memory_order_relaxed) == page;
}

/// True if `address` may be an object of at least `bytes` bytes, at most a page, and reading it does not
/// fault.
static inline bool python_readable(const void *address, size_t bytes)
{
    uintptr_t first = (uintptr_t)address;
    return python_plausible(address) && ((python_page_known(first) && python_page_known(first + bytes - 1)) ||
                                         python_memory_probe(address, bytes));
}

#define PYTHON_MEMO_FRAMES_MAX 64U /* deeper stacks are captured without a memo */

/// Hash and number of the frames from `at` outwards, at most `max`, by what is known of this thread's last
/// walk. PYTHON_STACK_UNKNOWN if there is no room. Threads: any; not reentrant: a handler must not come here
/// while its thread is in it.
unsigned python_memo_hash(const struct python_layout *layout, const void *code_type, const char *at,
                          unsigned max, struct callsite_hash *hash);

/* ---- verify.c ---- */

enum python_verdict {
    PYTHON_VERDICT_NO_FRAMES,
    PYTHON_VERDICT_GOOD,
    PYTHON_VERDICT_BAD,
};

/// Check the thread state and every frame of this thread against the layout, without trusting any pointer.
/// `*frames` is how many frames were looked at. They are the caller's own.
enum python_verdict python_verify_stack(const struct python_layout *layout, const struct python_types *types,
                                        const void *state, unsigned *frames);

/* ---- parent_stack.c ---- */

/// Frames that a waiting thread has lent (varve_python_lend); 0 if none has. Threads: any.
unsigned python_stack_borrow(struct python_frame *frames, unsigned max);

/* ---- text.c ---- */

/// A str object as UTF-8, cut between characters to fit, NUL-terminated; lone surrogates become U+FFFD.
/// False if the object is not a plain str.
bool python_text_copy(const struct python_layout *layout, const struct python_types *types,
                      const void *object, char *out, size_t out_bytes);

/// Line of the instruction at `offset` bytes (negative: not started) in a line table; 0 if it has none.
uint32_t python_line_find(enum python_line_format format, const uint8_t *table, size_t table_bytes,
                          int32_t first_line, int32_t offset);

#endif
