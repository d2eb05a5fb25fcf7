/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CTF traces of the provider `varve`, read through babeltrace2.
 *
 *   folder ─► folder.c ─► reader.c ═ pipe ═ graph.c (in a process of its own, child.c)
 *            traces, damage       │                    └─ sink.c ─► fields.c, names.c
 *                                 └─► struct ctf_item ─► varve_rebuild_*, or whoever asks
 *
 * babeltrace2 ends its process (assertions) or never returns where a trace is damaged; so a process of its
 * own runs it, which also lets reading and rebuilding use two processors. As a plug-in of babeltrace2 the
 * same sink component calls varve_rebuild_* itself. Without babeltrace2 absent.c takes the place of what
 * needs it.
 */
#ifndef VARVE_ANALYSIS_IMPORT_CTF_CTF_H
#define VARVE_ANALYSIS_IMPORT_CTF_CTF_H

#include "trace/trace.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct progress;

/* ---- what a trace tells ---- */

enum ctf_item_kind {
    CTF_ITEM_NONE = 0,
    CTF_ITEM_RECORD,
    CTF_ITEM_PROCESS,
    CTF_ITEM_PROCESS_END,
    CTF_ITEM_THREAD,
    CTF_ITEM_THREAD_END,
    CTF_ITEM_CLOCK,
    CTF_ITEM_MODULE,
    CTF_ITEM_MODULE_GONE,
    CTF_ITEM_CODE,
    CTF_ITEM_CALLSITE,
    CTF_ITEM_META_TEXT,
    CTF_ITEM_META_INTEGER,
    /* about the reading: */
    CTF_ITEM_PACKET, /* a packet begins */
    CTF_ITEM_FAILED, /* babeltrace2 could not go on; parts[0] says why */
    CTF_ITEM_COUNTS, /* of all that was read; the last item */
    CTF_ITEM_KINDS,
};

#define CTF_PROVIDERS 8
#define CTF_PARTS 3

struct ctf_counts {
    uint64_t records, definitions; /* records, and what trace/sink.h tells besides */
    uint64_t statedump;            /* of a state dump */
    uint64_t unknown;              /* events of ours by names that are not known here */
    uint64_t foreign;              /* events of other providers */
    uint64_t clipped;              /* figures too large for their place */
    uint64_t discarded_events, discarded_packets;
    uint64_t uncounted; /* times that a loss was told without its size; 1 is in the sums for each */
    struct {
        char name[48];
        uint64_t events;
    } providers[CTF_PROVIDERS]; /* the foreign ones, as many as fit */
};

struct ctf_part {
    const void *data; /* of a text with the NUL */
    uint32_t bytes;
};

/* One thing. Texts and arrays are in `parts` and, once ctf_item_bind was called, in the structures too. */
struct ctf_item {
    enum ctf_item_kind kind;
    struct ctf_part parts[CTF_PARTS];
    union {
        struct {
            struct varve_mirror_origin origin;
            uint64_t ring_seq;
            struct varve_record record;
        } record;
        struct varve_mirror_process process;
        struct varve_mirror_process_end process_end;
        struct varve_mirror_thread thread;
        struct varve_mirror_thread_end thread_end;
        struct varve_mirror_clock clock;
        struct varve_mirror_module module;
        struct {
            uint32_t process;
            int32_t pid;
            uint32_t number;
        } module_gone;
        struct varve_mirror_code code;
        struct varve_mirror_callsite callsite;
        struct {
            uint64_t trace_id;
            int64_t value;
        } meta;
        struct ctf_counts counts;
    } of;
};

/// Gets one item, borrowed for the call. An error ends the reading.
typedef int ctf_take(void *context, const struct ctf_item *item);

/* ---- items.c ---- */

struct ctf_item_shape {
    unsigned texts, parts; /* parts[0 … texts) are texts, those up to `parts` arrays */
    size_t bytes;          /* of its structure */
};

const struct ctf_item_shape *ctf_item_shape(enum ctf_item_kind kind);
/// Let the structure of an item point to its parts.
void ctf_item_bind(struct ctf_item *item);
/// Pass an item on to a rebuild; those about the reading are passed over.
int ctf_item_rebuild(struct varve_rebuild *rebuild, const struct ctf_item *item);
/// What was counted as rows of `stats`.
int ctf_counts_rebuild(struct varve_rebuild *rebuild, const struct ctf_counts *counts);
void ctf_counts_add(struct ctf_counts *sum, const struct ctf_counts *counts);
/// Count events of a foreign provider; `name` may be that of an event (PROVIDER:EVENT).
void ctf_counts_foreign(struct ctf_counts *counts, const char *name, uint64_t events);

/* ---- pipe.c: items from one process to another of the same program ---- */

struct ctf_pipe_end;

/// Owner: the caller, until ctf_pipe_end_free, which leaves the descriptor open. Ends the process without
/// memory.
struct ctf_pipe_end *ctf_pipe_end_new(int descriptor);
void ctf_pipe_end_free(struct ctf_pipe_end *end);
/// A ctf_take with the end as its context. VARVE_ERROR_IO: the other side is gone.
int ctf_pipe_put(void *context, const struct ctf_item *item);
/// Send what is still held back.
int ctf_pipe_flush(struct ctf_pipe_end *end);
/// The next item, valid until the next call. VARVE_ERROR_NOT_FOUND: none will come; VARVE_ERROR_BUSY: a
/// signal came first; VARVE_ERROR_CORRUPT: the other side sends nonsense; VARVE_ERROR_IO.
int ctf_pipe_get(struct ctf_pipe_end *end, const struct ctf_item **item_out);

/* ---- fields.c: events of babeltrace2 to items ---- */

struct bt_event;
struct ctf_classes;

/// What is known of event classes. Owner: the caller, until ctf_classes_free. NULL: no memory.
struct ctf_classes *ctf_classes_new(void);
void ctf_classes_free(struct ctf_classes *classes);
/// Turn one event into an item, if it is one of ours, and hand it to `take`; count it otherwise.
int ctf_event_take(struct ctf_classes *classes, const struct bt_event *event, ctf_take *take, void *context);
/// Add the events seen so far to `counts`.
void ctf_classes_count(const struct ctf_classes *classes, struct ctf_counts *counts);

/* ---- sink.c: the sink component class ---- */

struct bt_component_class_sink;
struct bt_self_component_sink;
struct bt_self_component_sink_configuration;
struct bt_value;

/* Initialize-method data of a component within this program: what the plug-in has parameters for. */
struct ctf_sink_target {
    ctf_take *take;
    void *context;
    struct ctf_classes *classes;
    struct ctf_counts counts; /* without those of `classes` */
    int error;                /* the first one of `take` */
};

/* Its methods. They return babeltrace2's own numbers, whose enumerations are as wide as int; so this header
 * needs none of babeltrace2's, which may not be there. */
int ctf_sink_initialize(struct bt_self_component_sink *self,
                        struct bt_self_component_sink_configuration *configuration,
                        const struct bt_value *parameters, void *target);
int ctf_sink_configured(struct bt_self_component_sink *self);
int ctf_sink_consume(struct bt_self_component_sink *self);
void ctf_sink_finalize(struct bt_self_component_sink *self);

/// Owner: the caller, by bt_component_class_sink_put_ref. NULL: no memory.
struct bt_component_class_sink *ctf_sink_class_new(void);

/* ---- graph.c ---- */

/// Version of babeltrace2, NULL if built without.
const char *ctf_version(void);
/// Read traces (folders with a file `metadata`) in the order of time. CTF_ITEM_COUNTS is the last item; a
/// CTF_ITEM_FAILED before it says that babeltrace2 could not go on. For a process of its own: it may never
/// come back. Errors: those of `take`.
int ctf_graph_run(char *const *folders, size_t count, ctf_take *take, void *context);

/* ---- child.c: ctf_graph_run in a process of its own ---- */

struct ctf_child {
    int pid;
    int descriptor; /* its items, to be got by ctf_pipe_get */
};

/// `folders` need not outlive the call. Errors: VARVE_ERROR_IO, with one line.
int ctf_child_start(char *const *folders, size_t count, struct ctf_child *child,
                    struct varve_message *message);
/// End it, whatever it does. Returns how it ended, as of waitpid.
int ctf_child_end(const struct ctf_child *child);

/* ---- folder.c: traces and their streams as files ---- */

struct ctf_range {
    uint64_t offset, bytes;
};

struct ctf_stream {
    char *name;
    uint64_t bytes;
    struct ctf_range *packets; /* whole ones; NULL if the layout is not known */
    size_t packet_count;
    struct ctf_range *cuts; /* packets of which only the beginning is there */
    size_t cut_count;
    uint64_t bad_bytes; /* outside of whole packets */
};

struct ctf_trace {
    char *path;
    struct ctf_stream *streams; /* empty files left out */
    size_t stream_count;
    bool is_known;      /* packets are laid out as LTTng-UST does, so `packets` of all streams are known */
    bool is_unreadable; /* the metadata is not whole */
    bool has_damage;    /* bad_bytes of a stream */
};

struct ctf_folder {
    struct ctf_trace *traces;
    size_t count;
    uint64_t packets; /* of all; 0 unless all are known */
};

/// Find all traces in a folder and look at their packets. Errors, with one line: VARVE_ERROR_NOT_FOUND,
/// PERMISSION, FORMAT (no trace in it), IO.
int ctf_folder_open(const char *path, struct ctf_folder *folder, struct varve_message *message);
void ctf_folder_close(struct ctf_folder *folder);

/* ---- copy.c: parts of traces under other names ---- */

struct ctf_copy;

/// A scratch folder; `near` is a path whose folder may be written to, NULL: the folder for temporary files.
int ctf_copy_new(const char *near, struct ctf_copy **copy_out, struct varve_message *message);
/// Remove it with all in it. NULL is allowed.
void ctf_copy_free(struct ctf_copy *copy);
/// Make a trace of one stream, of its packets from `first` on (all that is whole; without known packets: the
/// file); NULL: of the metadata alone. Only one at a time. Owner of the path: the copy.
int ctf_copy_stream(struct ctf_copy *copy, const struct ctf_trace *trace, const struct ctf_stream *stream,
                    size_t first, const char **path_out, struct varve_message *message);
/// Make a trace of the beginning of one packet, cuts[number] of `stream`, as if it had ended there.
int ctf_copy_cut(struct ctf_copy *copy, const struct ctf_trace *trace, const struct ctf_stream *stream,
                 size_t number, const char **path_out, struct varve_message *message);
/// Make a trace of all whole packets of `trace`. Stays until ctf_copy_free. Owner of the path: the caller.
int ctf_copy_trace(struct ctf_copy *copy, const struct ctf_trace *trace, char **path_out,
                   struct varve_message *message);

/* ---- reader.c ---- */

struct ctf_reading {
    struct ctf_counts counts;
    uint64_t streams, streams_damaged;
    uint64_t bytes_damaged;      /* outside of whole packets */
    struct varve_message damage; /* the first thing that was wrong, "" if nothing was */
    int signal_number;           /* that ended it, 0: none */
};

struct ctf_source {
    const char *folder;
    const char *near;          /* as of ctf_copy_new */
    struct progress *progress; /* may be NULL */
    ctf_take *take;
    void *context;
};

/// False, with one line, if this build has no babeltrace2.
bool ctf_is_possible(const char *folder, struct varve_message *message);
/// Read all that can be read. Records and definitions come at least once each, in the order of time unless
/// something is damaged (then a call site still comes after what it refers to). A damaged trace is no error:
/// `reading` tells. SIGINT, SIGTERM and SIGHUP end it: VARVE_ERROR_BUSY. Errors, with one line: those of
/// ctf_folder_open, FORMAT (nothing can be read), UNSUPPORTED; of `take`, without a line.
int ctf_read(const struct ctf_source *source, struct ctf_reading *reading, struct varve_message *message);

/* ---- import.c ---- */

struct ctf_import_result {
    struct varve_collect_result recording;
    struct ctf_reading reading;
};

/// A folder with CTF traces into a database. SIGINT, SIGTERM and SIGHUP while it reads end the process, after
/// nothing is left behind. Errors: those of ctf_read and of varve_rebuild_open.
int ctf_import(const char *folder, const char *database_path, bool replace, struct progress *progress,
               struct ctf_import_result *result, struct varve_message *message);

/// A varve_collect_numbers. Errors: those of ctf_read.
int ctf_each_number(const char *folder,
                    void (*take)(void *context, uint32_t process, uint32_t ring, uint64_t first,
                                 uint64_t last),
                    void *context, struct varve_message *message);

#ifdef __cplusplus
}
#endif

#endif
