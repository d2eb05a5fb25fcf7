/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a recording consists of besides its records, as plain structures: the second sink (LTTng) gets all of it, and
 * whoever reads a trace of that sink passes it to varve_rebuild_*, which makes the same database of it. Texts and
 * arrays are borrowed for the call. Numbers of processes, rings, modules, code objects and call sites are those of the
 * recording; `pid` keeps two recordings in one trace apart.
 */
#ifndef VARVE_TRACE_SINK_H
#define VARVE_TRACE_SINK_H

#include "trace/record.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Who emitted a record: a ring belongs to one thread; ring 0 of a process is shared by threads that ended. */
struct varve_sink_origin {
    uint32_t process, ring;
    int32_t pid, tid;
};

enum varve_sink_end_state {
    VARVE_SINK_END_RUNNING = 1,   /* also: ended without a word */
    VARVE_SINK_END_EXITED = 2,    /* reached its exit handlers or _exit */
    VARVE_SINK_END_EXECUTING = 3, /* became exec_path */
};

struct varve_sink_process {
    uint64_t trace_id;        /* of the recording: keeps two in one trace apart */
    uint32_t process, parent; /* parent: that forked it, 0 if unknown */
    int32_t pid, parent_pid;
    int32_t rank;        /* < 0: none */
    uint32_t clock_kind; /* enum varve_clock_kind */
    uint64_t start_ticks;
    uint64_t start_ticks_proc;             /* field 22 of /proc/pid/stat */
    const char *executable, *command_line; /* arguments separated by blanks */
};

struct varve_sink_process_end {
    uint32_t process;
    int32_t pid;
    uint32_t end; /* enum varve_sink_end_state */
    const char *exec_path;
};

struct varve_sink_thread {
    struct varve_sink_origin origin;
    uint64_t created_ticks;
    const char *name;
};

/* emitted = the last ring sequence number; of these `lost` were dropped by the workload itself. */
struct varve_sink_thread_end {
    struct varve_sink_origin origin;
    uint64_t emitted, lost, lost_bytes;
};

struct varve_sink_clock {
    uint64_t trace_id;
    uint64_t ticks;
    int64_t mono_ns, real_ns;
};

struct varve_sink_module {
    uint32_t process;
    int32_t pid;
    uint64_t base, end, bias;
    uint32_t number;
    uint32_t build_id_bytes;
    const uint8_t *build_id;
    const char *path;
};

/* A Python code object. */
struct varve_sink_code {
    uint32_t process;
    int32_t pid;
    uint32_t code, first_line;
    const char *function, *file;
};

/* Frames innermost first; a native pc is a return address, a line's top bit marks the frame that entered the
 * interpreter loop. */
struct varve_sink_callsite {
    uint32_t process;
    int32_t pid;
    uint32_t callsite;
    uint32_t native_count, python_count;
    const uint64_t *native;
    const uint32_t *codes, *lines;
};

enum varve_sink_item_kind {
    VARVE_SINK_ITEM_NONE = 0,
    VARVE_SINK_ITEM_RECORD,
    VARVE_SINK_ITEM_PROCESS,
    VARVE_SINK_ITEM_PROCESS_END,
    VARVE_SINK_ITEM_THREAD,
    VARVE_SINK_ITEM_THREAD_END,
    VARVE_SINK_ITEM_CLOCK,
    VARVE_SINK_ITEM_MODULE,
    VARVE_SINK_ITEM_MODULE_GONE,
    VARVE_SINK_ITEM_CODE,
    VARVE_SINK_ITEM_CALLSITE,
    VARVE_SINK_ITEM_META_TEXT,
    VARVE_SINK_ITEM_META_INTEGER,
};

/* Any of it. */
struct varve_sink_item {
    enum varve_sink_item_kind kind;
    union {
        struct {
            struct varve_sink_origin origin;
            uint64_t ring_seq;
            struct varve_record record;
        } record;
        struct varve_sink_process process;
        struct varve_sink_process_end process_end;
        struct varve_sink_thread thread;
        struct varve_sink_thread_end thread_end;
        struct varve_sink_clock clock;
        struct varve_sink_module module;
        struct {
            uint32_t process;
            int32_t pid;
            uint32_t number;
        } module_gone;
        struct varve_sink_code code;
        struct varve_sink_callsite callsite;
        struct {
            uint64_t trace_id;
            const char *key, *text; /* the value of META_TEXT */
            int64_t value;
        } meta;
    } of;
};

#ifdef __cplusplus
}
#endif

#endif
