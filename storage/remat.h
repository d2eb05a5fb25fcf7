/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dynamic tensor rematerialization: which storages to give up under a budget, and what to run again to have them back.
 * Part of storage.h. Nothing here touches elements: a planner plays operators by their costs and sizes alone, or drives
 * whoever owns the memory through its driver.
 *
 * Source: Kirisame et al., Dynamic Tensor Rematerialization (ICLR 2021). With the options of varve_remat_options_init
 * and the search `scan` every decision is that of the published simulator (simrd, runtime V2 with eager eviction), as
 * integers; with dealloc VARVE_REMAT_BANISH that of its runtime V1.
 *
 * Words: an operator makes its outputs from its inputs. An output is a tensor: a storage of its own, or a view of one
 * of the inputs'. A storage is resident or evicted, and evicted as a whole; then none of its tensors is defined.
 * Whoever needs one gets it recomputed, by the operator that made it. Storages, tensors and operators are numbered from
 * 0 as they are made.
 *
 * One planner is used by one thread at a time. Sizes are bytes, costs ns, times sums of costs. Functions return 0 or a
 * negative enum varve_error with a reason in `message` (caller-owned, may be NULL).
 */
#ifndef VARVE_STORAGE_REMAT_H
#define VARVE_STORAGE_REMAT_H

#include "alloc/alloc.h"

#ifdef __cplusplus
extern "C" {
#endif

#define VARVE_REMAT_NONE UINT32_MAX
#define VARVE_REMAT_UNLIMITED UINT64_MAX

/* ---- Heuristics: the storage with the lowest score is evicted ---- */

/* Which costs a score has. */
enum varve_remat_cost {
    VARVE_REMAT_COST_NONE,  /* 1 */
    VARVE_REMAT_COST_LOCAL, /* of the operators that made the storage and its views */
    /* and of the classes of evicted storages that it touches (union-find; classes never split) */
    VARVE_REMAT_COST_CLASSES,
    /* and of the evicted storages that need it, and that it needs, counted for each direction */
    VARVE_REMAT_COST_NEIGHBOURS,
    VARVE_REMAT_COST_ANCESTORS, /* and of the evicted storages that it needs */
    VARVE_REMAT_COST_UNION,     /* and of the evicted neighbours, each once; staleness is the youngest's of them all */
};

enum varve_remat_score {
    VARVE_REMAT_SCORE_QUOTIENT,    /* cost / (size * staleness), each factor if it is wanted */
    VARVE_REMAT_SCORE_LAST_ACCESS, /* the time of the last access */
    VARVE_REMAT_SCORE_RANDOM,      /* nothing is scored */
};

struct varve_remat_heuristic {
    const char *name;
    enum varve_remat_score score;
    enum varve_remat_cost cost;
    bool has_size, has_staleness;
    /* size includes the free bytes on both sides of the block (MegEngine); wants a driver that knows */
    bool has_free_neighbours;
    bool is_window; /* evict the cheapest run of neighbouring blocks that together with what is free among them would
                               * serve the request (Coop); wants a driver that knows */
    const char *summary;
};

/// All of them, the name of the last NULL. Static.
const struct varve_remat_heuristic *varve_remat_heuristics(void);
/// NULL: no such heuristic.
const struct varve_remat_heuristic *varve_remat_heuristic_find(const char *name);

/* ---- Options ---- */

/* What the release of a storage's last reference does. */
enum varve_remat_dealloc {
    VARVE_REMAT_DEALLOC_EAGER,  /* it is evicted at once, and may be recomputed for others */
    VARVE_REMAT_DEALLOC_IGNORE, /* nothing */
    /* it goes for good once no evicted storage needs it; what was made of it stays from then on */
    VARVE_REMAT_DEALLOC_BANISH,
};

enum varve_remat_search {
    VARVE_REMAT_SEARCH_SCAN,    /* all candidates; of equals the last */
    VARVE_REMAT_SEARCH_SAMPLE,  /* some 2 * sqrt(n) of n, at random */
    VARVE_REMAT_SEARCH_KINETIC, /* a tournament over the scores as functions of time: O(log n) for a change; what other
                                 * evictions did to a class's cost may be noticed late */
};

enum varve_remat_cause { /* of an eviction, or of what can't be evicted */
                         VARVE_REMAT_CAUSE_NONE,
                         VARVE_REMAT_CAUSE_RELEASED,   /* its last reference was released */
                         VARVE_REMAT_CAUSE_BUDGET,     /* an operator needed room below the budget */
                         VARVE_REMAT_CAUSE_ALLOCATOR,  /* the allocator had no such block */
                         VARVE_REMAT_CAUSE_REQUESTED,  /* the program said so */
                         VARVE_REMAT_CAUSE_BANISHED,   /* VARVE_REMAT_DEALLOC_BANISH */
                         VARVE_REMAT_CAUSE_DIRECT,     /* of a recomputation: this storage was needed */
                         VARVE_REMAT_CAUSE_COLLATERAL, /* its operator made it beside the one that was needed */
                         VARVE_REMAT_CAUSE_PINNED,     /* the program pinned it */
                         VARVE_REMAT_CAUSE_INPUT,      /* an operator that is waiting needs it */
};

/* What happened, as it happens. */
enum varve_remat_event_kind {
    VARVE_REMAT_EVENT_OP,    /* an operator of the program ran: op, bytes of its outputs, cost */
    VARVE_REMAT_EVENT_EVICT, /* storage, bytes, score, cause */
    /* storage, bytes, cause, depth (1: needed by the program's operator), cost (0 if collateral) */
    VARVE_REMAT_EVENT_REMAT,
    VARVE_REMAT_EVENT_PIN, /* storage, bytes */
    VARVE_REMAT_EVENT_UNPIN,
    VARVE_REMAT_EVENT_BUDGET,  /* bytes: the new budget */
    VARVE_REMAT_EVENT_FAILED,  /* op, bytes it needs, cost: bytes that can't be evicted */
    VARVE_REMAT_EVENT_BLOCKED, /* after a failure, for each storage that can't be evicted: storage, bytes, cause */
};

struct varve_remat_event {
    enum varve_remat_event_kind kind;
    enum varve_remat_cause cause;
    uint32_t op, storage; /* VARVE_REMAT_NONE where there is none; of a storage the operator that made it */
    uint32_t depth;
    uint64_t bytes, cost_ns, input_bytes;
    double score;  /* NaN: it had none */
    uint64_t time; /* the planner's clock */
};

struct varve_remat;

/* One run of an operator. */
struct varve_remat_run {
    uint32_t op;
    const uint32_t *inputs,
        *outputs; /* tensors; all inputs are defined. Output VARVE_REMAT_NONE: forgotten, but made all the same */
    unsigned input_count, output_count;
    bool is_remat;
    uint64_t cost_ns; /* in: as given or last measured; out: what it took */
};

/* A piece of an allocator's memory. */
struct varve_remat_piece {
    uint64_t bytes;
    uint32_t storage; /* VARVE_REMAT_NONE: free, or used by somebody else */
    bool is_free;
    bool begins_segment; /* it does not continue the piece before it */
};

/* Whoever owns the memory. NULL functions do nothing. */
struct varve_remat_driver {
    void *context;
    /* Run the operator. Outputs whose storage is resident already are made a second time, and what is made of them is
     * dropped at the end, unless the first was evicted meanwhile. Room was made for bytes_needed; where that does not
     * do, call varve_remat_make_room, which may evict such an output; else nothing but questions. An error ends the
     * operation: nothing is defined. */
    int (*run)(void *context, struct varve_remat_run *run, struct varve_message *message);
    /* The storage's memory goes. */
    void (*evict)(void *context, uint32_t storage);
    /* The planner forgets the storage, evicted or not; its number may be given to another. */
    void (*forget)(void *context, uint32_t storage);
    /* The planner forgets a view, whose storage stays: the tensor's number may be given to another. */
    void (*forget_view)(void *context, uint32_t tensor);
    /* The planner forgets an operator; what it was given as `user`. */
    void (*forget_op)(void *context, void *user);
    /* Bytes that count against the budget now, and that the operator's outputs will take. NULL: sums of sizes. */
    uint64_t (*bytes_used)(void *context);
    uint64_t (*bytes_needed)(void *context, uint32_t op);
    /* Free bytes beside the storage's block. */
    uint64_t (*free_neighbours)(void *context, uint32_t storage);
    /* What the allocator has, in the order of addresses, for a request of `bytes`; the array lives
     * until the next call. */
    size_t (*layout)(void *context, uint64_t bytes, const struct varve_remat_piece **pieces_out);
    void (*event)(void *context, const struct varve_remat_event *event);
};

struct varve_remat_options {
    const struct varve_remat_heuristic *heuristic; /* `dtr` */
    enum varve_remat_dealloc dealloc;              /* EAGER */
    enum varve_remat_search search;                /* SCAN */
    uint64_t budget;                               /* VARVE_REMAT_UNLIMITED */
    uint64_t remat_limit_ns;                       /* stop when recomputation has cost more; VARVE_REMAT_UNLIMITED */
    uint64_t seed;                                 /* of SAMPLE and `random` */
    /* forget what nobody can need any more; fail at once where pinned bytes leave no room; failures leave the planner
     * as it was. Not as the simulator does, which never goes on after a failure */
    bool is_live;
    bool ignores_small; /* storages below 1 % of the mean size of all are never evicted */
    struct varve_remat_driver driver;
};

void varve_remat_options_init(struct varve_remat_options *options);

/* ---- Playing operators ---- */

/// Owner of the planner: the caller, by varve_remat_close. Errors: VARVE_ERROR_INVALID (a heuristic that its driver or
/// search can't serve), NO_MEMORY.
int varve_remat_open(const struct varve_remat_options *options, struct varve_remat **remat_out,
                     struct varve_message *message);
void varve_remat_close(struct varve_remat *remat);

struct varve_remat_op {
    const uint32_t *inputs;             /* tensors, may repeat */
    const uint64_t *sizes;              /* of each output; 0 for views */
    const int32_t *aliases;             /* of each output: which of the inputs it is a view of, or -1 */
    unsigned input_count, output_count; /* at least one output */
    /* with a driver its first run says. Sums stay below 2^61 of costs times outputs, and 2^62 of sizes */
    uint64_t cost_ns;
    void *user; /* the driver's, see varve_remat_user */
};

/// An operator of the program: inputs become resident, room is made, it runs. Each output is a new tensor with one
/// reference, the caller's; `outputs_out` has room for output_count. Without is_live tensors are numbered from 0 on in
/// the order of their making.
/// Errors: VARVE_ERROR_INVALID (no such input, no output, sums beyond their limits), NO_MEMORY (nothing is left to
/// evict), FULL (the limit of recomputation, or a clock of 2^62), the driver's. Without is_live the planner can only be
/// closed after any but INVALID.
int varve_remat_compute(struct varve_remat *remat, const struct varve_remat_op *op, uint32_t *outputs_out,
                        struct varve_message *message);
/// One more reference.
void varve_remat_retain(struct varve_remat *remat, uint32_t tensor);
/// One less, and what the dealloc policy says.
void varve_remat_release(struct varve_remat *remat, uint32_t tensor);
/// The tensor becomes defined. Errors: as of compute.
int varve_remat_materialize(struct varve_remat *remat, uint32_t tensor, struct varve_message *message);
/// Keep the tensor's storage, which is resident, from eviction. Nothing happens if it is pinned already.
void varve_remat_pin(struct varve_remat *remat, uint32_t tensor);
/// The opposite. Nothing happens if it is not pinned.
void varve_remat_unpin(struct varve_remat *remat, uint32_t tensor);
/// Evict the tensor's storage. VARVE_ERROR_BUSY: it is pinned, in use, or evicted already.
int varve_remat_evict(struct varve_remat *remat, uint32_t tensor, struct varve_message *message);
/// Keep a tensor's storage where it is until varve_remat_unlock; counted. It must be resident.
void varve_remat_lock(struct varve_remat *remat, uint32_t tensor);
void varve_remat_unlock(struct varve_remat *remat, uint32_t tensor);
/// With is_live: how the tensor, which is defined, was made is forgotten, also how its storage was, and that is pinned:
/// from now on it is a constant.
void varve_remat_drop_recipe(struct varve_remat *remat, uint32_t tensor);
/// For drivers, while they run an operator: evict once more for a request of `bytes`. Returns the bytes that went, 0
/// if nothing could.
uint64_t varve_remat_make_room(struct varve_remat *remat, uint64_t bytes);

void varve_remat_set_budget(struct varve_remat *remat, uint64_t bytes);
void varve_remat_set_search(struct varve_remat *remat, enum varve_remat_search search);
void varve_remat_set_ignores_small(struct varve_remat *remat, bool is_on);

/* ---- Questions ---- */

bool varve_remat_is_defined(const struct varve_remat *remat, uint32_t tensor);
uint32_t varve_remat_storage(const struct varve_remat *remat, uint32_t tensor);
/// Is the number that of a tensor now?
bool varve_remat_is_tensor(const struct varve_remat *remat, uint32_t number);
/// The tensors of a storage in the order of their making: the first is the root, the others are views.
/// VARVE_REMAT_NONE at the end.
uint32_t varve_remat_first_tensor(const struct varve_remat *remat, uint32_t storage);
uint32_t varve_remat_next_tensor(const struct varve_remat *remat, uint32_t tensor);
/// Bytes of the tensor's storage.
uint64_t varve_remat_storage_bytes(const struct varve_remat *remat, uint32_t tensor);
/// Cost of the operator that made the tensor, as given or as its first run said; 0: it has none any more.
uint64_t varve_remat_cost(const struct varve_remat *remat, uint32_t tensor);
/// What the operator was given as `user`.
void *varve_remat_user(const struct varve_remat *remat, uint32_t op);

/* X(name, meaning): sums since the planner was opened, or reset. */
#define VARVE_REMAT_COUNTER_LIST(X)                                                             \
    X(operators, "operators of the program that ran")                                           \
    X(executions, "runs of operators, recomputations included")                                 \
    X(model_compute_ns, "cost of the program's operators")                                      \
    X(remat_compute_ns, "cost of recomputations")                                               \
    X(evictions, "storages evicted")                                                            \
    X(evictions_released, "of these: released by the program")                                  \
    X(evictions_budget, "of these: for room below the budget")                                  \
    X(evictions_allocator, "of these: for a block that the allocator did not have")             \
    X(evictions_requested, "of these: as the program said")                                     \
    X(evictions_banished, "of these: banished")                                                 \
    X(evicted_bytes, "bytes of evicted storages")                                               \
    X(remats_direct, "runs of operators for a tensor that was needed again")                    \
    X(remats_collateral, "other storages that became resident by these")                        \
    X(duplicates, "resident outputs that an operator made a second time")                       \
    X(duplicate_bytes, "bytes of these")                                                        \
    X(wasted_evictions, "evictions whose storage was recomputed within the next 16 runs")       \
    X(wasted_bytes, "bytes evicted that the request did not need: what was left over after it") \
    X(heuristic_evals, "scores computed")                                                       \
    X(heuristic_accesses, "scores, and tensors, classes and storages looked at for them")       \
    X(searches, "searches for a victim")                                                        \
    X(search_ns, "time in searches and evictions; measured with is_live alone")                 \
    X(score_ns, "of this: until the victim was found")                                          \
    X(failures, "operators that did not get their memory")

struct varve_remat_counters {
#define VARVE_REMAT_COUNTER_FIELD(name, meaning) uint64_t name;
    VARVE_REMAT_COUNTER_LIST(VARVE_REMAT_COUNTER_FIELD)
#undef VARVE_REMAT_COUNTER_FIELD
    /* states and maxima */
    uint64_t clock;                          /* 1 and the costs of all runs */
    uint64_t used_bytes, max_used_bytes;     /* of resident storages, as bytes_used counts them */
    uint64_t pinned_bytes, locked_bytes_max; /* pinned now; pinned or inputs of waiting operators at most */
    uint64_t depth_max;                      /* recomputations that waited for each other */
    uint64_t storages, candidates;           /* known now, and of these evictable */
    uint64_t metadata_bytes;                 /* what the planner itself takes */
    uint64_t bottleneck_bytes;               /* the largest sum of an operator's outputs and inputs */
};

void varve_remat_get_counters(const struct varve_remat *remat, struct varve_remat_counters *counters_out);
void varve_remat_reset_counters(struct varve_remat *remat);
/// Walk every structure and sum. VARVE_ERROR_CORRUPT with the first thing that is wrong.
int varve_remat_check(struct varve_remat *remat, struct varve_message *message);

/* ---- Events as records of a trace: any thread, no errors ---- */

/// `name`: number of the name of the operator that the event is about, or that made its storage; 0: it has none. The
/// caller sets `callsite`, and `addr` and `device` where it knows them.
void varve_remat_event_record(const struct varve_remat_event *event, uint16_t name, struct varve_record *record_out);
/// What such a number means, from 1 on: before the first record that has it. Of longer names the first 32 bytes.
void varve_remat_name_record(uint16_t number, const char *name, struct varve_record *record_out);

/* ---- Storages as blocks of an allocator ----
 *
 * A driver without elements: every resident storage is a block, so a log can be played against an allocator's rounding,
 * fragmentation and limits. Storages without bytes have no block. */

struct varve_remat_blocks;

/// The allocator is borrowed, and nobody else uses it meanwhile. Owner: the caller, by varve_remat_blocks_close.
int varve_remat_blocks_open(struct varve_alloc *alloc, struct varve_remat_blocks **blocks_out,
                            struct varve_message *message);
/// Its blocks are freed. The planner is closed before, the allocator afterwards.
void varve_remat_blocks_close(struct varve_remat_blocks *blocks);
/// Everything of a driver but `event`, for a planner that is about to be opened.
void varve_remat_blocks_drive(struct varve_remat_blocks *blocks, struct varve_remat_driver *driver_out);
/// The planner that was opened with it, before its first operator. Requests that the allocator can't serve, or that
/// would exceed its limit of allocated bytes, evict then. VARVE_ERROR_FULL: the allocator has no room for
/// another callback.
int varve_remat_blocks_attach(struct varve_remat_blocks *blocks, struct varve_remat *remat,
                              struct varve_message *message);

#ifdef __cplusplus
}
#endif

#endif
