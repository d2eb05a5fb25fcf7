/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The call-site file p<N>.sites of one process: a plain sequence of entries, each there before any record
 * refers to it. The writer has the file mapped and longer than what it holds: an entry is there when its
 * head is, which is written last, in one store of 8 bytes, at a multiple of 8. A reader stops at a head of
 * zeros (the writer has not come further, or was killed) or at the end.
 */
#ifndef VARVE_TRACE_FORMAT_CALLSITE_FORMAT_H
#define VARVE_TRACE_FORMAT_CALLSITE_FORMAT_H

#include <stdbool.h>
#include <stdint.h>

/*
 *   struct callsite_file_entry | payload of `bytes` bytes, a multiple of 8
 *
 *   LOST         struct callsite_file_loss: the first entry; its number grows where it is
 *   PADDING      anything
 *   MODULE       struct callsite_file_module, build id (build_id_bytes), path (path_bytes, no NUL), padding
 *   MODULE_GONE  struct callsite_file_gone
 *   CODE         struct callsite_file_code, function name (name_bytes), file name (file_bytes), padding
 *   NATIVE       struct callsite_file_nodes, uint64_t pc[]
 *   PYTHON       struct callsite_file_nodes, struct callsite_file_python python[]
 *   SITE         struct callsite_file_site
 *   STACK        struct callsite_file_stack, uint64_t pc[native_count], struct callsite_file_python
 *                python[python_count]
 *
 * Stacks are two trees of nodes, one of native and one of Python frames. A node is a frame below the frames of its
 * parent, which is outside of it; NATIVE and PYTHON hold a chain of new nodes, outermost first, each the parent of the
 * next. Both trees share their numbers, from 1 in order of the file. SITE is a stack as its innermost node of each
 * kind. STACK is a whole one without nodes, innermost frame first: what is not written by a recorder has it.
 *
 * A native pc is a return address: look up pc - 1.
 */

#define CALLSITE_FILE_DEPTH_MAX 320U /* frames of one kind in one stack, and the mark of a cut among them */
/* In callsite_file_python.line: the frame that entered the interpreter loop. */
#define CALLSITE_FILE_PYTHON_ENTRY 0x80000000U
/* Frames that are not kept, between the innermost and the outermost ones: this and how many they are, 0 if that is not
 * said, as a native pc, and as the line of code 0. */
#define CALLSITE_FILE_CUT 1U
#define CALLSITE_FILE_CUT_FRAMES_MAX 4094U /* no code is there */

static inline bool callsite_file_is_cut(uint64_t position)
{
    return position - CALLSITE_FILE_CUT <= CALLSITE_FILE_CUT_FRAMES_MAX;
}

enum callsite_file_tag {
    CALLSITE_FILE_TAG_MODULE = 1,
    CALLSITE_FILE_TAG_MODULE_GONE = 2,
    CALLSITE_FILE_TAG_CODE = 3,
    CALLSITE_FILE_TAG_STACK = 4,
    CALLSITE_FILE_TAG_PADDING = 5,
    CALLSITE_FILE_TAG_LOST = 6,
    CALLSITE_FILE_TAG_NATIVE = 7,
    CALLSITE_FILE_TAG_PYTHON = 8,
    CALLSITE_FILE_TAG_SITE = 9,
};

#define CALLSITE_FILE_FIRST_PAGE_BYTES 4096U /* holds the LOST entry */
#define CALLSITE_FILE_NUMBER_MAX (1U << 24)  /* of call sites, code objects and nodes of one process */
/* The number in records of all stacks for which a process had no room left; no entry defines it. */
#define CALLSITE_FILE_NOT_KEPT (CALLSITE_FILE_NUMBER_MAX + 1)

struct callsite_file_entry {
    uint32_t tag;
    uint32_t bytes;
};

struct callsite_file_loss {
    uint64_t stacks; /* captured and not stored: no disk space, no memory, or too many (CALLSITE_FILE_NOT_KEPT) */
};

struct callsite_file_module {
    uint64_t base; /* first mapped address */
    uint64_t end;
    uint64_t bias;   /* address in memory minus address in the ELF file */
    uint32_t number; /* from 0, in order of appearance; numbers are not reused */
    uint16_t build_id_bytes;
    uint16_t path_bytes;
};

struct callsite_file_gone {
    uint32_t number;
    uint32_t reserved;
};

/* A Python code object; `code` numbers them from 1. */
struct callsite_file_code {
    uint32_t code;
    uint32_t first_line;
    uint16_t name_bytes;
    uint16_t file_bytes;
    uint32_t reserved;
};

struct callsite_file_python {
    uint32_t code;
    uint32_t line; /* 0 if unknown; top bit CALLSITE_FILE_PYTHON_ENTRY */
};

struct callsite_file_nodes {
    uint32_t first;  /* number of the first node; the others follow */
    uint32_t parent; /* of the first one; 0: it is an outermost frame */
};

struct callsite_file_site {
    uint32_t callsite; /* as in callsite_file_stack */
    uint32_t native;   /* innermost node; 0: there is none */
    uint32_t python;
    uint32_t reserved;
};

struct callsite_file_stack {
    uint32_t callsite; /* numbers from 1, as in varve_record.callsite */
    uint16_t native_count;
    uint16_t python_count;
};

#endif
