/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Databases without a recording (varve_collect): written event by event, or rebuilt from a trace of the second sink.
 *
 * Functions may be called from any thread; sizes are bytes, times ns; functions return 0 or a negative enum
 * varve_error, with a reason in `message` (caller-owned, may be NULL), unless a comment says otherwise.
 */
#ifndef VARVE_TRACE_WRITER_H
#define VARVE_TRACE_WRITER_H

#include "base/error.h"
#include "trace/collect.h"
#include "trace/record.h"
#include "trace/sink.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* PRAGMA application_id ("VRVE") and user_version of a trace database; readers refuse others and newer ones.
 */
#define VARVE_DATABASE_APPLICATION_ID 0x56525645
#define VARVE_DATABASE_SCHEMA_VERSION 8

/* ---- Writing a trace database without a recording (varve_collect) ---- */

/* One thread at a time. Texts are borrowed for the call, NULL is NULL. Errors stick: after the first one
 * every call returns it (those that give a number: 0), and varve_writer_finish returns the reason. */
struct varve_writer;

struct varve_writer_process {
    int32_t pid;                           /* at least 1 */
    int32_t rank;                          /* < 0: none */
    const char *executable, *command_line; /* may be NULL */
};

struct varve_writer_symbol {
    const char *function, *file, *module; /* NULL if unknown */
    uint32_t line;                        /* 0 if unknown */
    bool is_python, is_inlined;
};

/// Nothing appears at `path` before varve_writer_finish succeeded. Errors: VARVE_ERROR_INVALID (it exists and
/// may not be replaced), NOT_FOUND (no such folder), PERMISSION, FULL, IO, DATABASE.
int varve_writer_open(const char *path, bool replace, struct varve_writer **writer_out, struct varve_message *message);

struct varve_plumbing;

/* What a writer without a database hands on: an answer that needs no tables. Any function may be NULL. */
struct varve_writer_output {
    /// A frame of a call site that follows; returns its number, equal symbols may have one. NULL: 1.
    uint32_t (*symbol)(void *context, const struct varve_writer_symbol *symbol);
    /// `symbol`: of the user's line, else of the innermost frame that allocates nothing; 0: it has no frames.
    void (*callsite)(void *context, uint32_t number, uint32_t symbol, bool is_hidden);
    /// The next event: what varve_writer_event was given.
    void (*event)(void *context, const struct varve_record *record, int64_t ts_ns);
    void *context;
};

/// A writer that makes nothing: call sites and events go to `output`, all else is dropped, and there are no processes
/// or threads. `plumbing`: says which frame is the user's, borrowed; NULL: the built-in table. To be ended by
/// varve_writer_abandon. Errors: VARVE_ERROR_NO_MEMORY.
int varve_writer_open_output(const struct varve_writer_output *output, const struct varve_plumbing *plumbing,
                             struct varve_writer **writer_out, struct varve_message *message);

int varve_writer_meta_text(struct varve_writer *writer, const char *key, const char *value);
int varve_writer_meta_integer(struct varve_writer *writer, const char *key, int64_t value);
/// The process of the events that follow; without it there is one of pid 1 and without a name. Each pid is one
/// process, described by the last call. The number of its first thread, 0 on an error.
uint32_t varve_writer_process(struct varve_writer *writer, const struct varve_writer_process *process);
/// A thread of that process, at most 65536 in all; the first one is that which came with it, unless it has had events
/// already. `name` may be NULL. Its number, for varve_writer_use_thread; 0 on an error.
uint32_t varve_writer_thread(struct varve_writer *writer, int32_t tid, const char *name);
/// The events that follow are of this thread, and of its process.
int varve_writer_use_thread(struct varve_writer *writer, uint32_t number);
/// A row of `stats` of source 'import': what was wrong with the source; a loss is in every report.
int varve_writer_stat(struct varve_writer *writer, const char *name, bool is_loss, uint64_t value);
/// total_bytes 0: unknown.
int varve_writer_device(struct varve_writer *writer, unsigned index, const char *name, uint64_t total_bytes);
/// What a stream number of records means.
int varve_writer_stream(struct varve_writer *writer, unsigned device, unsigned number, uint64_t handle);
/// What a pool number of records means; ids {0, 0}: the default pool. Without it bit 0 says whether the pool
/// is a small one, and bits 1 to 15 number the private pools, 0 the default one.
int varve_writer_pool(struct varve_writer *writer, unsigned device, unsigned number, uint64_t capture_id,
                      uint64_t user_id, bool is_small);
/// A number for varve_writer_callsite; equal symbols have one.
uint32_t varve_writer_symbol(struct varve_writer *writer, const struct varve_writer_symbol *symbol);
/// `symbols`: the frames, innermost first. A number for varve_record.callsite, from 1 on in turn; equal frames have
/// one, where there is a database.
uint32_t varve_writer_callsite(struct varve_writer *writer, const uint32_t *symbols, uint32_t depth);
/// The next event, copied: its number is one more than that of the one before. `ticks` of the record is not
/// looked at; ts_ns is since the trace began. Ids become rows: of `allocation` (ALLOC, FREE_REQUESTED,
/// FREE_COMPLETED, RECORD_STREAM), of `segment` (SEGMENT_*, SPLIT, MERGE), found by address; where `arg` is a
/// segment id, 0 means unknown.
int varve_writer_event(struct varve_writer *writer, const struct varve_record *record, int64_t ts_ns);
uint64_t varve_writer_events(const struct varve_writer *writer);
/// Derived tables, indexes; then the file moves to its place. Ends the writer, after an error too; then
/// nothing is left behind.
int varve_writer_finish(struct varve_writer *writer, varve_collect_progress progress, void *context,
                        struct varve_message *message);
/// End without a database; nothing is left behind. NULL is allowed.
void varve_writer_abandon(struct varve_writer *writer);

/* ---- Which frame of a stack is the user's (varve_collect) ---- */

/* From the outermost frame of a stack inwards, a frame becomes the user's line unless that has a larger rank already:
 * so the innermost frame of the largest rank is. None above VARVE_FRAME_PLUMBING: the stack has no user's line. */
enum varve_frame_rank {
    VARVE_FRAME_PLUMBING = 0, /* allocation functions, their wrappers; what has neither name nor module */
    VARVE_FRAME_RUNTIME,      /* a native function of a run-time library or an interpreter */
    VARVE_FRAME_UNNAMED,      /* native code without a symbol */
    VARVE_FRAME_NAMED,        /* a native function */
    VARVE_FRAME_SOURCE,       /* a native function whose source line is known; Python code that runs other code */
    VARVE_FRAME_LIBRARY,      /* a line of Python's own library, or of an installed package */
    VARVE_FRAME_GENERATED,    /* Python code that is in no file: exec, -c */
    VARVE_FRAME_USER,         /* another line of Python */
};

/* struct varve_plumbing is the table of patterns. One thread at a time adds to it; any number may ask. */

/// The built-in table; owner: the caller, by varve_plumbing_close. Errors: VARVE_ERROR_NO_MEMORY.
int varve_plumbing_open(struct varve_plumbing **plumbing_out);
void varve_plumbing_close(struct varve_plumbing *plumbing);
/// One more pattern: `function:`, `file:`, `module:`, `library:`, `framework:` or `user:` and a text in which * stands
/// for any characters; without such a word it is of functions, with a slash in it of files and modules. Copied. Errors:
/// VARVE_ERROR_INVALID (it is empty), NO_MEMORY.
int varve_plumbing_add(struct varve_plumbing *plumbing, const char *pattern, struct varve_message *message);
/// The same, whose kind stands by itself: function, file, module, library, framework or user.
int varve_plumbing_add_kind(struct varve_plumbing *plumbing, const char *kind, const char *pattern,
                            struct varve_message *message);
/// A line a pattern; spaces around it, empty lines and lines that begin with # are passed over. Errors as above, with
/// the line's number.
int varve_plumbing_add_lines(struct varve_plumbing *plumbing, const char *text, struct varve_message *message);
enum varve_frame_rank varve_plumbing_rank(const struct varve_plumbing *plumbing,
                                          const struct varve_writer_symbol *symbol);

/* ---- Rebuilding a recording from a trace of its second sink (varve_collect) ---- */

/* One thread at a time. Errors stick, as in a writer. Nothing appears at the target before
 * varve_rebuild_finish succeeded; until then everything lies in a folder beside it. */
struct varve_rebuild;

/// Errors: those of varve_writer_open.
int varve_rebuild_open(const char *path, bool replace, struct varve_rebuild **rebuild_out,
                       struct varve_message *message);
/// What the sink got, record or other; an item of kind NONE is nothing. In any order and more than once, but a call
/// site comes after the modules and code objects of its frames.
/// Records, with their flag SINKED or without, are put in the order of their ring's numbers; of equal numbers the first
/// is taken, missing ones become a `lost` event and a row of `stats`. Rings and processes that nobody describes are
/// made up from `origin`. Of all others the last one counts, of modules, code objects and call sites the first. Of two
/// recordings in one trace the one whose trace_id comes first is taken, and records of processes that belong to the
/// other are left out.
int varve_rebuild_item(struct varve_rebuild *rebuild, const struct varve_sink_item *item);
/// A row of `stats` of source 'lttng': what the sink itself says of its losses. Equal names are added up.
int varve_rebuild_stat(struct varve_rebuild *rebuild, const char *name, bool is_loss, uint64_t value);
/// Events taken so far.
uint64_t varve_rebuild_events(const struct varve_rebuild *rebuild);
/// Order, derive, store; then the database moves to its place. Ends the rebuild, after an error too.
/// VARVE_ERROR_FORMAT: there was nothing in it, neither an event nor a word of a recording.
int varve_rebuild_finish(struct varve_rebuild *rebuild, varve_collect_progress progress, void *context,
                         struct varve_collect_result *result, struct varve_message *message);
void varve_rebuild_abandon(struct varve_rebuild *rebuild); /* NULL is allowed */

#ifdef __cplusplus
}
#endif

#endif
