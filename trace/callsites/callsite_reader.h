/* SPDX-License-Identifier: Apache-2.0 */
/* The state of one recording: the call-site files of its processes, and the tables that they are interned in. */
#ifndef VARVE_TRACE_CALLSITES_CALLSITE_READER_H
#define VARVE_TRACE_CALLSITES_CALLSITE_READER_H

#include "base/hash_index.h"
#include "base/range_set.h"
#include "trace/format/callsite_format.h"
#include "trace/callsites/callsites.h"
#include "trace/callsites/callsite_images.h"
#include "trace/callsites/callsite_intern.h"
#include "trace/callsites/callsite_pairs.h"
#include "trace/callsites/callsite_unroll.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

#endif
