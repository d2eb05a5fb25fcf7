/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of the small tables. Text pointers are borrowed for the call, NULL is SQL NULL. Inside the open transaction. */
#ifndef VARVE_TRACE_STORE_SMALL_TABLES_H
#define VARVE_TRACE_STORE_SMALL_TABLES_H

#include <stdbool.h>
#include <stdint.h>

struct store_ring_position;
struct varve_message;

struct store;

int store_meta_text(struct store *store, const char *key, const char *value);
int store_meta_integer(struct store *store, const char *key, int64_t value);

struct store_process {
    uint32_t id, parent_id;
    int32_t pid, parent_pid, rank;
    const char *executable, *command_line, *end_cause, *exec_path;
    int64_t start_ns, end_ns; /* end_ns < 0: NULL */
    int exit_status;          /* < 0: NULL */
    uint64_t unattached, unattached_bytes;
    uint64_t peak_rss_bytes; /* 0: NULL */
};

struct store_thread {
    uint32_t id, process_id, ring;
    int32_t pid, tid;
    const char *name;
    int64_t start_ns, end_ns; /* end_ns < 0: NULL */
    uint64_t emitted, stored, spilled, lost, lost_bytes, uncommitted, unreadable;
    const char *damage; /* 'missing', 'cut', 'damaged'; NULL: none */
};

/* The accounts of all rings and processes, as the tables have them. */
struct store_sums {
    uint64_t emitted, stored, spilled, lost, lost_bytes, uncommitted, unreadable;
    uint64_t damaged; /* rings whose contents are not known for sure */
    uint64_t threads, processes;
    uint64_t images; /* of processes: a new one with each program that is executed */
    uint64_t unattached, unattached_bytes;
};

int store_process(struct store *store, const struct store_process *row); /* insert or replace */
/// Resident memory of a process (0: of all together) at a moment, and the most since the row before.
int store_rss(struct store *store, uint32_t process_id, int64_t ts_ns, uint64_t bytes, uint64_t bytes_max);
int store_thread(struct store *store, const struct store_thread *row); /* insert or replace */
/// Nothing more can be read of a ring: its row says what of it had been stored, and why that is all.
int store_thread_gone(struct store *store, const struct store_ring_position *position, const char *damage,
                      int64_t end_ns);
int store_stat(struct store *store, const char *name, int64_t idx, const char *severity, const char *source,
               int64_t value);
/// Add to the number of times that a program ran and could not be recorded.
int store_unrecorded(struct store *store, const char *path, const char *reason, int64_t count);
/// Forget those that failed to run after all; `total_out`: how many ran.
int store_unrecorded_finish(struct store *store, int64_t *total_out);
int store_clock_anchor(struct store *store, uint64_t ticks, int64_t mono_ns, int64_t real_ns);

/* What the numbers in allocators' events mean. */
int store_device(struct store *store, unsigned device, const char *name, uint64_t total_bytes);
int store_stream(struct store *store, uint32_t process_id, unsigned device, unsigned number, uint64_t handle);
int store_pool(struct store *store, uint32_t process_id, unsigned device, unsigned number, uint64_t capture_id,
               uint64_t user_id, bool is_small);

struct store_symbol {
    const char *function, *file, *module; /* NULL if unknown */
    uint32_t line;                        /* 0 if unknown */
    uint32_t rank;                        /* enum varve_frame_rank; of equal symbols that of the first */
    bool is_python, is_inlined;
};

int store_module(struct store *store, uint32_t id, const char *path, const char *build_id_hex);
/// Returns the symbol's row (equal symbols get one row), 0 on failure.
uint32_t store_symbol(struct store *store, const struct store_symbol *symbol);
/// There are no nodes, call sites, symbols and modules yet, or no more: an end that was interrupted is repeated whole.
int store_callsites_begin(struct store *store, struct varve_message *message);
/// The same of symbols and modules alone.
int store_symbols_begin(struct store *store, struct varve_message *message);
/// Room for some hundred thousand rows before the next commit, and for as many events.
bool store_has_room(const struct store *store);
/// A frame, called from `parent_id` (0: from nowhere), which must be smaller than `id`: else VARVE_ERROR_INVALID. Ids
/// grow. Equal frames of equal callers should be one node; stack_nodes.h finds them. pc < 0: NULL. Millions of nodes
/// and call sites may come: they are committed on the way, with what is pending, and the last ones by store_commit.
int store_stack_node(struct store *store, uint32_t id, uint32_t parent_id, uint32_t symbol_id, int64_t pc);
/// Ids grow. `node_id`: the innermost of its `depth` frames, 0: it has none. Symbols 0: NULL.
int store_callsite(struct store *store, uint32_t id, uint32_t node_id, uint32_t depth, uint32_t symbol_id,
                   uint32_t user_symbol_id);
/// Call sites from `callsite_id` on, `count` of them, are those of the process from `callsite` on.
int store_callsite_origin(struct store *store, uint32_t callsite_id, uint32_t process_id, uint32_t callsite,
                          uint32_t count);

#endif
