/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to the files sites_*.c of the collector */
/*
 * What the files that read, intern and write call sites share. Everything that repeats is stored once and
 * named by a number from 1 (0 = none), because a recording has many more stacks than distinct frames:
 *
 *   text  ◄─ pair (module: path, build id; code object: function, file) ◄─ frame ◄─ site (numbers of frames)
 *
 * A site of depth 30 takes 120 bytes plus about 40, whatever its frames are called.
 */
#ifndef VARVE_TRACE_SYMBOLS_CALLSITES_CALLSITES_H
#define VARVE_TRACE_SYMBOLS_CALLSITES_CALLSITES_H

#include "trace/collect_internal.h"
#include "trace/format/callsite_file.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- intern.c: equal things get equal numbers ---- */

struct sites_slot {
    uint32_t value; /* 0: empty */
    uint32_t hash;
};

/* Open addressing; at most half full. slot_count is 0 or a power of two. */
struct sites_index {
    struct sites_slot *slots;
    uint32_t slot_count;
    uint32_t used;
};

/* Texts (and build ids, which are bytes), NUL-terminated, one after the other. */
struct sites_texts {
    char *bytes;
    size_t bytes_used, bytes_capacity;
    uint64_t *starts; /* of text n at [n - 1]; its end is where the next one starts */
    uint32_t count, capacity;
    struct sites_index index;
};

struct sites_pair {
    uint32_t first;  /* text: path of a module, function of a code object */
    uint32_t second; /* text: build id, file; 0 if there is none */
};

struct sites_pairs {
    struct sites_pair *pairs;
    uint32_t count, capacity;
    struct sites_index index;
};

struct sites_frame {
    uint64_t place;     /* native: return address in the module; Python: sites_python.line */
    uint32_t owner;     /* native: module, 0 if no module was there; Python: code object, 0 if unknown */
    uint32_t is_python; /* 0 or 1 */
};

struct sites_frames {
    struct sites_frame *frames;
    uint32_t count, capacity;
    struct sites_index index;
};

struct sites_stack {
    uint32_t start; /* in words[] */
    uint16_t native_count;
    uint16_t python_count;
    uint32_t process_id; /* where it was first seen: together the key of callsite_origin */
    uint32_t local;
};

struct sites_stacks {
    struct sites_stack *stacks;
    uint32_t count, capacity;
    uint32_t *words; /* frame numbers: native, then Python, each innermost first */
    size_t words_used, words_capacity;
    struct sites_index index;
};

/// Number of what is equal, a new one if nothing is; 0 without memory (or past 2^31 entries).
uint32_t sites_text_intern(struct sites_texts *texts, const void *bytes, size_t length);
uint32_t sites_pair_intern(struct sites_pairs *pairs, struct sites_pair pair);
uint32_t sites_frame_intern(struct sites_frames *frames, struct sites_frame frame);
/// `words`: native_count + python_count frame numbers. process_id and local are kept of the first one only.
uint32_t sites_stack_intern(struct sites_stacks *stacks, const struct sites_stack *stack,
                            const uint32_t *words);

/// Text of a number; "" for 0. Borrowed until the next text is interned.
const char *sites_text(const struct sites_texts *texts, uint32_t number, size_t *length_out);

/// Empty the index of the stacks and enter all of them again, in order of their numbers (equal ones: the
/// first).
bool sites_stacks_reindex(struct sites_stacks *stacks);

/* Sparse map of the numbers in a process' file to ours; reading a number that is not there gives 0. One above
 * SITES_NUMBER_MAX is taken for damage. */
#define SITES_MAP_PAGE 256U

struct sites_map {
    uint32_t **pages;
    size_t page_count;
};

static inline uint32_t sites_map_get(const struct sites_map *map, uint32_t number)
{
    size_t page = number / SITES_MAP_PAGE;

    return page < map->page_count && map->pages[page] ? map->pages[page][number % SITES_MAP_PAGE] : 0;
}

bool sites_map_set(struct sites_map *map, uint32_t number, uint32_t value);
void sites_map_free(struct sites_map *map);

/* ---- reader.c, resume.c: the state of one recording ---- */

struct sites_mapped {
    uint64_t base, end, bias;
    uint32_t module; /* pair */
    uint32_t number; /* in the file */
};

struct sites_process {
    char *path;
    int file;        /* -1: not open now */
    uint64_t offset; /* everything before was taken */
    bool is_ended;   /* nothing more is read: the process ended, or the file is damaged from offset on */
    uint32_t errors;
    uint64_t lost;    /* stacks that the process could not store */
    uint32_t unknown; /* call sites of events that the file does not hold */
    uint32_t gone;    /* … that it held when they were stored, and does not hold any more */
    struct sites_map sites, codes;
    struct sites_mapped *mapped; /* live modules, by base; ranges never overlap */
    size_t mapped_count, mapped_capacity;
};

#define SITES_STAT_UNKNOWN "callsites_unknown" /* by process */

struct sites {
    struct sites_process **processes; /* by process_id */
    size_t process_capacity;
    struct sites_texts texts;
    struct sites_pairs modules, codes;
    struct sites_frames frames;
    struct sites_stacks stacks;
    uint32_t committed; /* stacks up to this number have their origin in the store */
    unsigned open_files;
    bool has_new_unknown; /* since the last commit */
    uint8_t *buffer;
    sites_listener *listener; /* NULL: nobody */
    void *listener_context;
};

/// Read what the file of a process holds now, or until it held site `wanted` (0: all).
void sites_process_read(struct sites *sites, struct sites_process *process, uint32_t process_id,
                        uint32_t wanted);

/* ---- entry.c: one entry of a file ---- */

/// Is the payload as long as its head says, and its tag known?
bool sites_entry_is_sound(const struct sites_entry *entry, const uint8_t *payload);
/// Take a complete entry; false if its sizes contradict each other or its tag is unknown.
bool sites_entry_take(struct sites *sites, struct sites_process *process, uint32_t process_id,
                      const struct sites_entry *entry, const uint8_t *payload);

/* ---- names.c: what a name tells ---- */

bool sites_name_is_allocation(const char *function); /* malloc and its kin, and wrappers around them */
bool sites_name_is_interpreter_loop(const char *function);
bool sites_path_is_interpreter(const char *module_path);
bool sites_path_is_recorder(const char *module_path);
bool sites_path_is_driver(const char *module_path); /* libcuda and what stands in front of it */
bool sites_path_is_torch(const char *module_path);  /* native code of PyTorch and the libraries below it */
bool sites_path_is_torch_python(const char *file);  /* Python code of PyTorch, or ours beside it */

/* ---- merge.c: native and Python frames into one stack ---- */

enum sites_role {
    SITES_ROLE_ALLOCATION = 1,  /* an allocation function or a wrapper of one */
    SITES_ROLE_LOOP = 2,        /* the interpreter loop */
    SITES_ROLE_INTERPRETER = 4, /* in the interpreter's own code */
    SITES_ROLE_RECORDER = 8,    /* in our own library */
    SITES_ROLE_PYTHON = 16,
    SITES_ROLE_UNNAMED = 32, /* native code without a symbol */
    SITES_ROLE_TORCH = 64,   /* PyTorch's own code, native or Python */
};

/* What stands for one frame number: the inlined functions there and the one that they were inlined into. */
struct sites_resolved {
    uint32_t start, count; /* in places[] */
};

struct sites_place {
    uint32_t symbol; /* row in the store */
    uint32_t roles;
};

struct sites_line {
    uint32_t symbol;
    uint32_t roles;
    int64_t pc; /* in the module; -1 for Python */
};

struct sites_lines {
    struct sites_line *lines;
    size_t count, capacity;
};

/// The stack as it is shown, innermost first, into `out` (emptied before); false without memory.
bool sites_merge(const struct sites_stack *stack, const uint32_t *words, const struct sites_frame *frames,
                 const struct sites_resolved *resolved, const struct sites_place *places,
                 struct sites_lines *out);

/// The symbol that stands for the whole stack: the innermost that is no allocation function; Python code
/// rather than the interpreter's own, or PyTorch's; 0 for an empty stack.
uint32_t sites_lines_symbol(const struct sites_lines *lines);

#endif
