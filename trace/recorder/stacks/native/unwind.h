/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to the half of trace/ that runs inside the workload */
/*
 * What the files of the native stack walk share:
 *
 *   stack.c ─► unwind_rules.c ─► unwind_table.c ─► recorder/guest/loaded_object.c (the dynamic loader)
 *       │                 └─► unwind_expression.c
 *       └─► window.c (what may be read)
 */
#ifndef VARVE_TRACE_RECORDER_STACKS_NATIVE_UNWIND_H
#define VARVE_TRACE_RECORDER_STACKS_NATIVE_UNWIND_H

#include "trace/recorder/recorder.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UNWIND_ADDRESS_LIMIT ((uintptr_t)1 << 47) /* user addresses on x86-64 with 4 page-table levels */

/* ---- recorder/guest/loaded_object.c: which object an address belongs to ---- */

struct loaded_object {
    uintptr_t start; /* first mapped address */
    uintptr_t end;
    uintptr_t bias;                    /* address in memory minus address in the ELF file */
    const unsigned char *eh_frame_hdr; /* NULL if there is none */
    const void *handle;                /* tells two objects at one address apart, never dereferenced */
    const char *name;                  /* the loader's own string, "" for the main program */
};

/// False if no object is there. `name` and the tables stay valid while a frame of the object is on a stack.
/// Threads: any; async-signal-safe; takes no lock.
bool loaded_object_find(uintptr_t address, struct loaded_object *object);

/// Is there one at all? Takes less of the stack. Threads: as loaded_object_find.
bool loaded_object_is_at(uintptr_t address);

/// The same by the loader's list of objects, as loaded_object_find does it with C libraries before
/// glibc 2.35.
bool loaded_object_find_listed(uintptr_t address, struct loaded_object *object);

/// An object may have been unloaded: read the list anew when it is next asked.
void loaded_object_forget(void);

/// Same object with the same contents, as far as it tells without reading memory of either.
bool loaded_object_equal(const struct loaded_object *a, const struct loaded_object *b);

/* ---- unwind_table.c: from an address to its frame description entry ---- */

struct unwind_reader {
    const unsigned char *at;
    const unsigned char *end;
    bool bad; /* something was read past the end, or has an unknown encoding */
};

/* What a frame description entry and its common information entry say. */
struct unwind_entry {
    uintptr_t start; /* of the code it covers */
    uint64_t code_alignment;
    int64_t data_alignment;
    uint64_t return_register;
    bool is_signal_frame;
    bool has_augmentation; /* the FDE holds data of a length of its own before its instructions */
    unsigned char pointer_encoding;
    struct unwind_reader common; /* call frame instructions of the two */
    struct unwind_reader special;
};

uint64_t unwind_read_fixed(struct unwind_reader *reader, unsigned bytes);
uint64_t unwind_read_uleb(struct unwind_reader *reader);
int64_t unwind_read_sleb(struct unwind_reader *reader);
uint64_t unwind_read_pointer(struct unwind_reader *reader, unsigned encoding, uintptr_t data_base);

/// False if the object has no table, the table does not cover `address`, or it is malformed.
bool unwind_entry_find(const struct loaded_object *object, uintptr_t address, struct unwind_entry *entry);

/* ---- unwind_expression.c ---- */

enum unwind_register { UNWIND_REGISTER_RBP = 6, UNWIND_REGISTER_RSP = 7, UNWIND_REGISTER_RIP = 16 };

enum unwind_base {
    UNWIND_BASE_NONE,
    UNWIND_BASE_RSP,
    UNWIND_BASE_RBP,
    UNWIND_BASE_AT_RSP, /* the word at a distance from where rsp points */
    UNWIND_BASE_AT_RBP,
};

struct unwind_term {
    enum unwind_base base;
    int64_t value; /* added to the register, or to the address of the word */
};

/// What `code` computes when executed at `address`; base UNWIND_BASE_NONE if that cannot be told.
struct unwind_term unwind_expression_evaluate(struct unwind_reader code, uintptr_t address);

/* ---- unwind_rules.c: how to leave one frame, in 32 bits ---- */

/* The canonical frame address (CFA) is what rsp will be in the caller; the return address lies just below. */
enum unwind_kind {
    UNWIND_NONE = 0,    /* no table: guess that rbp heads a frame */
    UNWIND_FRAME = 1,   /* CFA = rbp + 16, rbp saved at CFA - 16: the frame-pointer convention */
    UNWIND_RSP = 2,     /* CFA = rsp + 8 * offset */
    UNWIND_RBP = 3,     /* CFA = rbp + 8 * offset */
    UNWIND_DRAP = 4,    /* CFA = *(rbp - 8 * offset), rbp saved at rbp: a realigned stack */
    UNWIND_SIGNAL = 5,  /* the frame that the kernel made for a signal handler */
    UNWIND_END = 6,     /* outermost frame */
    UNWIND_UNKNOWN = 7, /* a table that these rules cannot express: the stack ends */
};

/* bits 0-2 kind, 3-10 where rbp is saved (CFA - 8 * slot; 0: not saved), 11-31 offset */
#define UNWIND_SLOT_MAX 255U
#define UNWIND_OFFSET_MAX ((1U << 21) - 1U)

static inline uint32_t unwind_rule(enum unwind_kind kind, uint32_t slot, uint32_t offset)
{
    return (uint32_t)kind | (slot << 3) | (offset << 11);
}

static inline enum unwind_kind unwind_rule_kind(uint32_t rule)
{
    return (enum unwind_kind)(rule & 7U);
}

static inline uintptr_t unwind_rule_slot_bytes(uint32_t rule)
{
    return rule & (UNWIND_SLOT_MAX << 3);
}

static inline uintptr_t unwind_rule_offset_bytes(uint32_t rule)
{
    return (uintptr_t)(rule >> 11) * 8U;
}

/// Rule for the instruction at `address` (one below a return address). Threads: any; reads tables of loaded
/// objects, takes microseconds and 2 KiB of stack: the caller caches it.
uint32_t unwind_rule_find(uintptr_t address);

/* ---- window.c: which part of a stack may be read ---- */

/* Reading what other functions keep on the stack looks like an error to the sanitizers. */
#define UNWIND_UNSANITIZED __attribute__((no_sanitize("address", "thread", "undefined")))

#define STACK_COPY_BYTES 1024U

/* Words in [floor, limit) may be read, each at its address + moved; limit - floor >= 8. */
struct stack_window {
    uintptr_t floor;
    uintptr_t limit;
    uintptr_t moved; /* 0 on the thread's own stack */
    void *copy;      /* STACK_COPY_BYTES, aligned; set by the caller, who owns it */
    bool own;        /* the thread's own stack, to its top: nothing beyond is ever read */
};

/// The window of a walk that stands at `sp`, and `below` bytes less where these are on the same page or known
/// to be mapped; false if not even the word at `sp` can be read.
/// Threads: any, each asks about its own stacks; async-signal-safe, as is stack_window_read.
bool stack_window_open(struct stack_window *window, uintptr_t sp, uintptr_t below);

/// The word at `address`; moves the window upwards if need be, never back. False if it cannot be read.
bool stack_window_read(struct stack_window *window, uintptr_t address, uintptr_t *word);

#endif
