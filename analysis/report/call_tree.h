/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The call sites of a domain as one tree: callers above what they call, or, inverted, callees above who calls them.
 * Frames of one function, line and module below one caller are one node; plumbing, unnamed and repeated frames are
 * folded into their caller, and marks of left-out frames are one frame, however many they stand for. `varve tree` and
 * `varve flamegraph` print it.
 */
#ifndef VARVE_ANALYSIS_REPORT_CALL_TREE_H
#define VARVE_ANALYSIS_REPORT_CALL_TREE_H

#include "analysis/base/key_map.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct database;
struct varve_message;

#define CALL_TREE_FRAMES_MAX 1024   /* of a path: deeper frames count as left out */
#define CALL_TREE_SHARE_ONE 1000000 /* the whole, as a share */

enum call_tree_metric {
    CALL_TREE_PEAK,      /* live at the peak of the domain */
    CALL_TREE_ALLOCATED, /* in all */
    CALL_TREE_LEAKED,    /* never freed */
    CALL_TREE_TEMPORARY, /* freed before their thread allocated again: these have no bytes */
    CALL_TREE_METRICS,
};

enum call_tree_figure {
    CALL_TREE_BYTES,
    CALL_TREE_ALLOCATIONS,
    CALL_TREE_FIGURES,
};

struct call_tree_source;
struct call_tree_callsite;

/* The stacks of a database, which all of its trees with the same frames begin with. */
struct call_tree_stacks {
    uint32_t *keys;    /* by id of a symbol: the smallest id of those with equal words; 0: there is no such symbol */
    bool *is_plumbing; /* likewise */
    bool *is_importer; /* likewise: a frame of Python's import system */
    bool *is_import;   /* by stack_node.id: it, or one of its callers, is such a frame */
    size_t symbol_limit;
    uint32_t mark, mark_count; /* of left-out frames: their key, and how many there are; 0: none, or all_frames */
    struct call_tree_source *sources;
    size_t source_count, source_capacity;
    struct map numbers; /* of sources, by caller and key */
    uint32_t *nodes;    /* source of a stack node, by its id */
    int64_t node_limit;
    bool all_frames;
    /* Of the domain and process that were asked for last, by all metrics. NULL: none yet. Owned. */
    char *domain;
    int64_t process_id;
    bool is_part;
    struct call_tree_callsite *callsites;
    size_t callsite_count, callsite_capacity;
    int64_t sums[CALL_TREE_METRICS][CALL_TREE_FIGURES];
    bool is_wrong[CALL_TREE_METRICS]; /* it has figures that can't be */
    /* The tree of them whose figures the sources have: what is copied out may differ. */
    enum call_tree_metric metric;
    bool is_inverted, has_stacks;
};

/* Part of a recording. Its figures are those of its allocations: at the peak, live at to_ns; allocated, and freed at
 * once, between the two; left, allocated between the two and live at to_ns. */
struct call_tree_part {
    int64_t tid;            /* 0: all threads */
    int64_t pid;            /* 0: all processes */
    int64_t from_ns, to_ns; /* later than, until; -1: from the beginning; as of the whole recording: the peak of the
                               domain, and for what was left the moment of varve leaks */
};

struct call_tree_options {
    struct call_tree_stacks *stacks; /* of the same database and `all_frames`, for several trees; NULL: they are read */
    const char *domain;
    int64_t process_id;                /* 0: all processes; of one, what it had at the peak of all of them together */
    const struct call_tree_part *part; /* NULL: the whole recording; process_id is 0 where there is one */
    enum call_tree_metric metric;
    enum call_tree_figure figure; /* by which nodes are ordered and left out */
    bool is_inverted;
    bool all_frames;   /* plumbing too */
    int64_t share_min; /* of the whole, in millionths: what has less is left out */
    int64_t top;       /* children of a node; the rest is left out */
    int64_t depth;     /* levels; a frame without siblings is on the level of its caller */
    size_t nodes_max;  /* a tree that has more ends unfinished, good for its count alone; 0: none does */
};

struct call_tree_frame {
    uint32_t symbol;                /* row of table symbol; the same in every tree of a database; 0: no frame */
    char *function, *file, *module; /* NULL: unknown */
    int64_t line;                   /* 0: unknown */
    bool is_python;
    bool is_missing; /* no frame at all: the call sites have no stack */
};

/* total = own + left_out + the totals of its children, figure by figure. */
struct call_tree_node {
    uint32_t parent; /* index, always smaller */
    uint32_t frame;  /* index into frames */
    uint32_t depth;  /* frames from the root on: 1 of its children */
    uint32_t level;  /* as `depth` of the options counts them */
    uint32_t children, children_left_out;
    int64_t total[CALL_TREE_FIGURES];
    int64_t own[CALL_TREE_FIGURES];      /* inverted: of stacks that begin here */
    int64_t left_out[CALL_TREE_FIGURES]; /* of children that are not in the tree */
};

struct call_tree {
    struct call_tree_options options;
    struct call_tree_node *nodes; /* callers first, the largest child first; node 0 is the root and no frame */
    size_t count;
    struct call_tree_frame *frames;
    size_t frame_count;
    bool has_stacks; /* any call site of the domain has frames */
};

extern const char *const call_tree_metric_names[]; /* of the option and in JSON; ends with NULL */

/// Reading them takes longest of a tree. Owner: the caller, until call_tree_stacks_free.
void call_tree_stacks_load(struct call_tree_stacks *stacks, struct database *database, bool all_frames);
void call_tree_stacks_free(struct call_tree_stacks *stacks);
/// Where trees have a call site of that stack_node.id and user's line (symbol.id; 0: it has none), as a number.
/// Inverted trees begin with the user's line, from which it goes outwards. Callers have smaller numbers; 0 is the root.
uint32_t call_tree_source(struct call_tree_stacks *stacks, int64_t node, int64_t user_symbol, bool is_inverted);
/// Was a stack_node.id's memory allocated while Python imported a module?
bool call_tree_is_import(const struct call_tree_stacks *stacks, int64_t node);
/// The number of the caller; `*symbol_out`: symbol.id of the frame itself, 0: a call site without a stack.
uint32_t call_tree_source_caller(const struct call_tree_stacks *stacks, uint32_t source, uint32_t *symbol_out);
struct cursor;
/// Of a symbol, 0: of call sites without a stack. `symbols`: of sql_symbol. Owner: the caller, by call_tree_frame_free.
void call_tree_frame_read(const struct call_tree_stacks *stacks, struct cursor *symbols, uint32_t symbol,
                          struct call_tree_frame *frame);
void call_tree_frame_free(struct call_tree_frame *frame);
/// Reading ends early on an error of the database: database_error. Errors: VARVE_ERROR_FORMAT (figures that can't be).
/// Owner: the caller, until call_tree_free, also after an error.
int call_tree_load(struct call_tree *tree, struct database *database, const struct call_tree_options *options,
                   struct varve_message *message);
void call_tree_free(struct call_tree *tree);
/// "at the peak", "allocated", …
const char *call_tree_words(enum call_tree_metric metric);
/// The part of --pid, --thread, --from and --to; NULL and 0: not given. `to_option`: what the last is called. Errors:
/// VARVE_ERROR_INVALID (no moment, or the second is before the first), NOT_FOUND (no such process, thread or event, or
/// the recording was over by then), UNSUPPORTED (its allocations were not kept).
int call_tree_part_make(struct call_tree_part *part, struct database *database, const char *domain, int64_t pid,
                        int64_t tid, const char *from, const char *to, const char *to_option,
                        struct varve_message *message);
/// Nodes of all subtrees that are not in the tree, and what they have.
size_t call_tree_left_out(const struct call_tree *tree, int64_t figures[CALL_TREE_FIGURES]);

#endif
