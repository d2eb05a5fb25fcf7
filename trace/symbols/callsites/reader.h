/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to trace/symbols/callsites */
/*
 * The state of one recording: the call-site files of its processes, and the tables that they are interned in.
 */
#ifndef VARVE_TRACE_SYMBOLS_CALLSITES_READER_H
#define VARVE_TRACE_SYMBOLS_CALLSITES_READER_H

#include "trace/symbols/callsites/callsites.h"
#include "trace/symbols/callsites/intern.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct callsites_mapped {
    uint64_t base, end, bias;
    uint32_t module; /* pair */
    uint32_t number; /* in the file */
};

struct callsites_process {
    char *path;
    int file;        /* -1: not open now */
    uint64_t offset; /* everything before was taken */
    bool is_ended;   /* nothing more is read: the process ended, or the file is damaged from offset on */
    uint32_t errors;
    uint64_t lost;    /* stacks that the process could not store */
    uint32_t unknown; /* call sites of events that the file does not hold */
    uint32_t gone;    /* … that it held when they were stored, and does not hold any more */
    struct callsites_map callsites, codes;
    struct callsites_mapped *mapped; /* live modules, by base; ranges never overlap */
    size_t mapped_count, mapped_capacity;
};

#define CALLSITES_STAT_UNKNOWN "callsites_unknown" /* by process */

struct callsites {
    struct callsites_process **processes; /* by process_id */
    size_t process_capacity;
    struct callsites_texts texts;
    struct callsites_pairs modules, codes;
    struct callsites_frames frames;
    struct callsites_stacks stacks;
    uint32_t committed; /* stacks up to this number have their origin in the store */
    unsigned open_files;
    bool has_new_unknown; /* since the last commit */
    uint8_t *buffer;
    callsites_listener *listener; /* NULL: nobody */
    void *listener_context;
};

#endif
