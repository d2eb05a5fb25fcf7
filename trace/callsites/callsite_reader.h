/* SPDX-License-Identifier: Apache-2.0 */
/* The state of one recording: the call-site files of its processes, and the tables that they are interned in. */
#ifndef VARVE_TRACE_CALLSITES_CALLSITE_READER_H
#define VARVE_TRACE_CALLSITES_CALLSITE_READER_H

#include "base/hash_index.h"
#include "base/range_set.h"
#include "trace/callsites/callsite_intern.h"
#include "trace/callsites/callsite_pairs.h"
#include "trace/callsites/callsites.h"
#include "trace/format/callsite_format.h"
#include "trace/symbols/elf_image.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whole stacks out of a call-site file's nodes, for those who want each stack by itself. */

struct unroll_node {
    uint64_t frame;
    uint32_t parent;
};

/* The nodes of one file. All zero: none. */
struct unroll {
    struct unroll_node *nodes; /* of number n at [n] */
    size_t capacity;
};

/* An entry of tag STACK and its payload. */
struct unroll_stack {
    struct callsite_file_entry entry;
    struct callsite_file_stack stack; /* the payload begins here */
    uint64_t frames[2 * CALLSITE_FILE_DEPTH_MAX];
};

/// Take the nodes of a sound entry of tag NATIVE or PYTHON; false: no memory.
bool unroll_take(struct unroll *unroll, const struct callsite_file_entry *entry, const uint8_t *payload);
/// The stack of a sound entry of tag SITE; false if it names nodes that are not there, or more than a stack has.
bool unroll_site(const struct unroll *unroll, const uint8_t *payload, struct unroll_stack *out);
void unroll_free(struct unroll *unroll);

/* The files of programs and libraries as they ran: taken while the process lives, for what is named later. */

struct images_entry {
    struct symbols_image image;
    char *path; /* by which it was known then */
};

/* All zero: none. */
struct images {
    struct images_entry **entries; /* each stays where it is */
    size_t count, capacity;
};

/// Keep the file of that name, if it is one.
void images_keep(struct images *images, const char *path);
/// Keep the program that this process runs, under the name that the kernel has for it.
void images_keep_program(struct images *images, int32_t pid);
/// What was mapped at `base` and has this build id, or, without one, is called so; by its name, or as the process
/// (`pid`; 0: it is not known) has it. NULL: it is not to be found, but may still have its name; of one that has not
/// it is an image without contents. Borrowed until images_free.
struct symbols_image *images_find(struct images *images, const char *path, const uint8_t *build_id,
                                  size_t build_id_bytes, int32_t pid, uint64_t base);
void images_free(struct images *images);

struct callsites_module {
    uint64_t bias;
    uint32_t module;
    uint32_t number; /* in the file */
};

/* The recording's numbers of what a file numbers from 1. */
struct callsites_numbers {
    uint32_t *ours; /* of number n at [n]; 0: it is not there */
    size_t capacity;
    uint32_t count; /* taken, unknown ones not counted */
};

struct callsites_process {
    char *path;
    int file;        /* -1: not open now */
    uint64_t base;   /* where in it ours begins */
    uint64_t bytes;  /* of ours, at most; 0: all that follows */
    uint64_t offset; /* in ours: everything before was taken */
    bool is_ended;   /* nothing more is read: the process ended, or the file is damaged from offset on */
    uint32_t errors;
    uint64_t lost;    /* stacks that the process could not store */
    uint32_t unknown; /* call sites of events that the file does not hold */
    uint32_t gone;    /* … that it held when they were stored, and does not hold any more */
    struct callsites_numbers callsites, nodes;
    uint32_t not_kept;    /* ours, for CALLSITE_FILE_NOT_KEPT; 0: did not occur */
    struct index codes;   /* number in the file → ours */
    struct unroll unroll; /* for a listener */
    int32_t pid;          /* 0: it is not known, or not ours to look at */
    struct ranges mapped; /* id: number in modules[], from 1 */
    struct callsites_module *modules;
    size_t module_count, module_capacity;
};

/* Position of the native frame without a module that stands for stacks which are not kept. */
#define CALLSITES_POSITION_NOT_KEPT UINT64_MAX

#define CALLSITES_STAT_UNKNOWN "callsites_unknown" /* by process */
#define CALLSITES_STAT_JOINED "callsites_joined"

/* Where a stack was first seen: the key of callsite_origin. */
struct callsites_origin {
    uint32_t process_id;
    uint32_t local;
};

struct callsites_output;

struct callsites {
    struct callsites_process **processes; /* by process_id */
    size_t process_capacity;
    struct interned texts, frames;
    struct pairs modules; /* texts: path, build id or 0 */
    struct images images;
    struct symbols_image **image_of; /* of module n at [n - 1]: NULL, it is not held */
    size_t image_capacity;
    struct pairs codes;  /* texts: function, file */
    struct pairs nodes;  /* node outside of it or 0, which has a smaller number and the same kind of frame; frame */
    struct pairs stacks; /* innermost node of native, of Python frames, 0 if there is none; both 0: it is gone */
    struct callsites_origin *origins; /* of stack n at [n - 1] */
    size_t origin_capacity;
    uint32_t committed; /* stacks up to this number have their origin in the store */
    unsigned open_files;
    bool has_new_unknown;            /* since the last commit */
    struct callsites_output *output; /* NULL: nothing was written yet */
    void (*output_close)(struct callsites_output *output);
    uint8_t *buffer;
    callsites_listener *listener; /* NULL: nobody */
    void *listener_context;
};

static inline struct callsites_process *process_of(const struct callsites *callsites, uint32_t process_id)
{
    return process_id < callsites->process_capacity ? callsites->processes[process_id] : NULL;
}

static inline uint32_t numbers_find(const struct callsites_numbers *numbers, uint32_t number)
{
    return number < numbers->capacity ? numbers->ours[number] : 0;
}

/// Read on in the file of a process: to its end, or until it has call site `wanted`, if that is not 0.
void callsites_process_read(struct callsites *callsites, struct callsites_process *process, uint32_t process_id,
                            uint32_t wanted);
/// What the process had no room for, as one call site with one frame; 0 without memory.
uint32_t callsite_not_kept(struct callsites *callsites, struct callsites_process *process, uint32_t process_id);

#endif
