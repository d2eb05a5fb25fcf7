/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The call-site file of this process image: entries are appended to mapped windows of it. Guarded by the
 * lock of callsite_here.c, whose holders are called writers here.
 */
#ifndef VARVE_TRACE_STACKS_CALLSITE_WRITER_H
#define VARVE_TRACE_STACKS_CALLSITE_WRITER_H

#include "trace/format/callsite_format.h"
#include "trace/guest/guest_memory.h"
#include "trace/guest/loaded_object.h"
#include "trace/guest/stack_hash.h"
#include "trace/stacks/python_frame.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct callsite_part {
    const void *data;
    size_t bytes;
};

#define CALLSITE_PARTS_MAX 3U
#define CALLSITE_ROOM_BYTES (16U << 10) /* there is this much before the lock is used to append */

/* A piece of the file, mapped; `bytes` is NULL if there is none. */
struct callsite_window {
    unsigned char *bytes;
    size_t size;
    uint64_t offset; /* in the file */
};

/// See callsite_grow_by. Before callsite_file_open, which it holds for. Threads: one, nobody appends.
struct session_growth;
void callsite_file_grow_by(struct session_growth *growth, const void *reserve, uint64_t offset);

/// Make `path` and its first window, forgetting the file before: this process' own if `is_again`, else its
/// parent's, which is not mapped here. Returns VARVE_OK or a negative varve_error. Threads: one, nobody
/// appends.
int callsite_file_open(const char *path, bool is_again);

/// Unmap this process' own, if there is one. Threads: one, nobody appends.
void callsite_file_close(void);

/// Append one entry of at most CALLSITE_PARTS_MAX parts, padded: all of it or nothing. It is in the file
/// afterwards. Returns VARVE_OK or VARVE_ERROR_FULL. Threads: writers.
int callsite_file_append(uint32_t tag, const struct callsite_part *parts, unsigned count);

/// Note in the file that a call site could not be stored. Threads: writers.
void callsite_file_lost(void);

/// Is there too little room to go on? Then `window` says where the next one begins. Threads: writers.
bool callsite_window_is_wanted(struct callsite_window *window);
/// Allocate and map it, if that is possible. Takes as long as the disk does. Threads: any, without the lock.
void callsite_window_open(struct callsite_window *window);
/// Go on in it, if it is there. `window` is then what is not needed any more, to be unmapped. Threads:
/// writers.
void callsite_window_install(struct callsite_window *window);
void callsite_window_unmap(const struct callsite_window *window);

/* Hash to number, read without a lock. */

#define CALLSITE_TABLE_SIZES 16U /* 2^10 slots to 2^25 */
#define CALLSITE_TABLE_CHUNKS 256U

struct callsite_table_entry;

/* All zero is an empty table. Owner: its user, who also orders the writers. */
struct callsite_table {
    /* pages; the low 12 bits hold the logarithm of the number of slots */
    _Alignas(CACHE_LINE_BYTES) uintptr_t slots;
    struct callsite_table_entry *chunks[CALLSITE_TABLE_CHUNKS];
    _Alignas(CACHE_LINE_BYTES) uint32_t count; /* of entries; writers only */
    uintptr_t outgrown[CALLSITE_TABLE_SIZES];  /* slots before them, whose addresses stay; writers only */
};

/// Number stored for `hash`, 0 if there is none (or not yet visible to this thread). Threads: any.
uint32_t callsite_table_find(const struct callsite_table *table, struct stack_hash hash);

/// Make room for one more entry. Returns VARVE_OK or VARVE_ERROR_NO_MEMORY. Threads: writers.
int callsite_table_reserve(struct callsite_table *table);

/// Store a number for a hash that is not in the table; callsite_table_reserve went before. Threads: writers.
void callsite_table_insert(struct callsite_table *table, struct stack_hash hash, uint32_t number);

/// Empty it and give its memory back. Threads: writers, while there are no readers.
void callsite_table_reset(struct callsite_table *table);

/*
 * Loaded objects into the call-site file. Guarded by the lock of callsite_here.c, whose holders are called
 * writers here.
 */

#define MODULE_BUILD_ID_MAX 64U
#define MODULE_PATH_MAX 1024U

/* What the file holds about one object. */
struct module_description {
    struct loaded_object object;
    uintptr_t build_id_address; /* where it was read, 0 if there is none */
    uint16_t build_id_bytes;
    uint16_t path_bytes;
    unsigned char build_id[MODULE_BUILD_ID_MAX];
    char path[MODULE_PATH_MAX];
};

enum module_state {
    MODULE_KNOWN,
    MODULE_NEW,
    MODULE_CHANGED, /* another object used to be at its addresses */
};

/// Is this object in the file already? Threads: writers.
enum module_state module_lookup(const struct loaded_object *object);

/// Read what the file needs to know. Threads: any thread with a frame of the object on its stack, so that
/// nobody can unload it; not while holding the lock.
void module_describe(const struct loaded_object *object, struct module_description *module);

/// Write what was described, after entries for what it replaces. Returns as callsite_file_append.
/// Threads: writers.
int module_write(const struct module_description *module);

/// Forget all of it: a new file begins. Threads: writers.
void modules_forget(void);

/// Write MODULE_GONE for the objects in the call-site file that are not loaded any more; MODULE entries are
/// written with the first call site that needs them. Returns how many entries were written.
unsigned modules_scan(void);

/*
 * The stacks of this process image as a tree: a node is a frame below those of its parent. Two kinds of frames, native
 * and Python, each with a tree of its own. Guarded by the lock of callsite_here.c, whose holders are called writers
 * here.
 */

enum stack_kind { STACK_NATIVE, STACK_PYTHON, STACK_KINDS };

#define STACK_TREE_NODES_MAX (6U << 20)
#define STACK_TREE_CHUNK (1U << 16) /* nodes that are mapped together */

struct stack_tree_node;

/* The stack that a thread put last, outermost frame first: its next one mostly shares the outer frames. A key says what
 * a frame and all outside of it are, or the frame alone. */
struct stack_path {
    unsigned count;
    uint32_t nodes[CALLSITE_FILE_DEPTH_MAX];
    uint64_t keys[CALLSITE_FILE_DEPTH_MAX];
};

/* All zero is an empty tree. A node takes 12 bytes, and 5 to 22 in the table. */
struct stack_tree {
    struct stack_tree_node *chunks[STACK_TREE_NODES_MAX / STACK_TREE_CHUNK];
    uintptr_t slots; /* pages; the low 12 bits hold the logarithm of the number of slots */
    uint32_t count;  /* nodes */
};

/// The node of a stack whose outer frames are those that `path` has, and the inner ones `frames`, innermost first, as
/// words (a return address, or a struct callsite_file_python), with their keys, which may be the frames themselves: the
/// path has them too afterwards. Nodes that are new are appended to the call-site file first. `generation`: of the
/// loaded objects; nodes of an earlier one are not used again. Returns 0 if there is no room: in memory, in the file,
/// or by STACK_TREE_NODES_MAX. Threads: writers, a path is one thread's.
uint32_t stack_tree_put(struct stack_tree *tree, enum stack_kind kind, struct stack_path *path, const uint64_t *keys,
                        const uint64_t *frames, unsigned count, unsigned generation);

/// Begin to fetch what stack_tree_put will look at for the same stack. Threads: any.
void stack_tree_fetch(const struct stack_tree *tree, enum stack_kind kind, const struct stack_path *path,
                      const uint64_t *frames, unsigned count, unsigned generation);

/// Empty it and give its memory back. Threads: writers.
void stack_tree_reset(struct stack_tree *tree);

/* The Python stack of a waiting thread, inherited by the threads that work for it. */

/// May the calling thread inherit frames? Those who have published them do not. Threads: any.
bool parent_stack_is_lent(void);

/// Appends the frames that a waiting thread has published (varve_python_stack_publish) to the `count` of this thread's
/// own, innermost first, up to `max` in all. The number of all; `count` if nobody has published any, or these have a
/// beginning of their own. Threads: any.
unsigned parent_stack_inherit(struct python_frame *frames, unsigned count, unsigned max);

#endif
