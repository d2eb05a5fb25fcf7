/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A runtime that computes under a budget: operators on tensors, whose memory is given up when there is too little and
 * recomputed when it is needed again (remat.h decides which). Part of storage.h.
 *
 * The budget is a hard cap on the bytes that the allocator has allocated, decided before each operator on the sizes
 * that the allocator rounds to; the allocator itself refuses what would exceed it. A tensor's elements never change:
 * what would write them makes another tensor. Operators must give the same outputs for the same inputs; `checks_values`
 * finds those that do not.
 *
 * A runtime and its tensors are used by one thread at a time. Functions return 0 or a negative enum varve_error with a
 * reason in `message` (caller-owned, may be NULL), which names the operator if it is about one, and change nothing when
 * they fail. Sizes are bytes, times ns.
 *
 * Source: Kirisame et al., Dynamic Tensor Rematerialization (ICLR 2021); the functions are those of its
 * prototype in PyTorch.
 */
#ifndef VARVE_STORAGE_RUNTIME_H
#define VARVE_STORAGE_RUNTIME_H

#include "storage/array.h"
#include "storage/operators.h"
#include "storage/remat.h"

#ifdef __cplusplus
extern "C" {
#endif

struct varve_memory;
struct varve_storage;
struct varve_runtime;
struct varve_tensor;

struct varve_runtime_options {
    struct varve_memory *memory; /* blocks of an allocator (varve_memory_open), borrowed; tensors are made in it */
    uint64_t stream;             /* of the memory's device, for all operators */
    uint64_t budget;             /* 0: none */
    const char *heuristic;       /* NULL: "dtr-eq" */
    enum varve_remat_search search;
    uint64_t seed;      /* of random choices of victims */
    bool checks_values; /* hash what operators make, and compare when it is made again: costs a look at every byte */
};

/// Owner: the caller, by varve_runtime_close. From now on the allocator has the budget as its limit of allocated bytes.
/// Errors: VARVE_ERROR_INVALID (memory without an allocator, heuristic), NO_MEMORY (the budget is below what is
/// allocated already), FULL.
int varve_runtime_open(const struct varve_runtime_options *options, struct varve_runtime **runtime_out,
                       struct varve_message *message);
/// Errors: VARVE_ERROR_BUSY while there are tensors.
int varve_runtime_close(struct varve_runtime *runtime, struct varve_message *message);

/* ---- Tensors ---- */

/// The storage's elements as a constant: they stay, unchanged by anybody, while any tensor may need them. The runtime
/// has a reference to the storage. Owner of the tensor: the caller, by varve_tensor_release, as of all tensors below.
int varve_runtime_checkpoint(struct varve_runtime *runtime, struct varve_storage *storage,
                             struct varve_tensor **tensor_out, struct varve_message *message);
/// The tensor's elements as a storage, with a reference of the caller's. They stay in memory from now on, as long as
/// the tensor lives.
int varve_tensor_decheckpoint(struct varve_tensor *tensor, struct varve_storage **storage_out,
                              struct varve_message *message);
/// One more handle of the same value.
int varve_tensor_copy(struct varve_tensor *tensor, struct varve_tensor **copy_out, struct varve_message *message);
/// The handle gets the value of another one; what it had is released.
int varve_tensor_assign(struct varve_tensor *tensor, struct varve_tensor *value, struct varve_message *message);
/// NULL is allowed.
void varve_tensor_release(struct varve_tensor *tensor);
/// The elements are in memory, and stay until varve_tensor_return; the storage is borrowed and only read. Counted.
int varve_tensor_borrow(struct varve_tensor *tensor, struct varve_storage **storage_out, struct varve_message *message);
void varve_tensor_return(struct varve_tensor *tensor);
/// The elements stay in memory from now on, and how they were made is forgotten, and with it what was only kept for
/// that: what a training does with its parameters after each step.
int varve_tensor_pin(struct varve_tensor *tensor, struct varve_message *message);
/// Evict it now. VARVE_ERROR_BUSY: it is pinned, borrowed, a constant, or evicted already.
int varve_tensor_evict(struct varve_tensor *tensor, struct varve_message *message);
bool varve_tensor_is_resident(const struct varve_tensor *tensor);
enum varve_dtype varve_tensor_dtype(const struct varve_tensor *tensor);
/// Shape and strides; the offset is from the beginning of its storage.
void varve_tensor_get_geometry(const struct varve_tensor *tensor, struct varve_geometry *geometry_out);
/// Other elements of the same storage; `geometry` as in varve_storage_view.
int varve_tensor_view(struct varve_tensor *tensor, const struct varve_geometry *geometry,
                      struct varve_tensor **view_out, struct varve_message *message);
int varve_tensor_transpose(struct varve_tensor *tensor, int axis, int other, struct varve_tensor **view_out,
                           struct varve_message *message);

/* ---- Operators ---- */

struct varve_tensor_type {
    enum varve_dtype dtype;
    unsigned ndim;
    const int64_t *shape;
};

#define VARVE_RECIPE_INPUTS_MAX 64
#define VARVE_RECIPE_OUTPUTS_MAX 16

/* How to make tensors from others. */
struct varve_recipe {
    const char *name; /* copied */
    /* Fill the outputs, contiguous storages, from the inputs, on the stream; on a device the work may go on behind the
     * call. Nothing else may be written, and nothing be read that changes: numbers that make it random belong to the
     * arguments. It may allocate workspace_bytes in all from the allocator for the time of the call, and calls nothing
     * of the runtime's. An error ends the operator. */
    int (*run)(const void *arguments, struct varve_storage *const *inputs, struct varve_storage *const *outputs,
               uint64_t stream, struct varve_message *message);
    const void *arguments; /* copied, aligned to 16 bytes; NULL for 0 bytes */
    size_t argument_bytes;
    const struct varve_tensor_type *outputs; /* copied */
    unsigned input_count, output_count;
    bool is_in_place; /* output 0 begins as a copy of input 0, which has its type and shape */
    uint64_t workspace_bytes;
    /* 0: measured when an operator of that name and these types runs first, for which a device is waited for */
    uint64_t cost_ns;
};

/// Make `outputs` (recipe->output_count of them) from `inputs`. Errors: the function's; VARVE_ERROR_NO_MEMORY (the
/// budget does not do; the message says which would), also for more workspace than declared; CORRUPT (an input was
/// recomputed, and is not what it was).
int varve_runtime_run(struct varve_runtime *runtime, const struct varve_recipe *recipe,
                      struct varve_tensor *const *inputs, struct varve_tensor **outputs, struct varve_message *message);

/* The operators of operators.h as recipes: varve_tensor_op_add(a, b, &out, message) and so on. Those without inputs get
 * runtime and type of the output first, and the rest as in operators.h. */
#define VARVE_TENSOR_OPERATOR_ARGUMENTS_BINARY struct varve_tensor *a, struct varve_tensor *b
#define VARVE_TENSOR_OPERATOR_ARGUMENTS_UNARY struct varve_tensor *a
#define VARVE_TENSOR_OPERATOR_ARGUMENTS_REDUCTION struct varve_tensor *a, int axis
#define VARVE_TENSOR_OPERATOR_ARGUMENTS_SETTER \
    struct varve_runtime *runtime, const struct varve_tensor_type *type, struct varve_scalar value
#define VARVE_TENSOR_OPERATOR_ARGUMENTS_SEQUENCE                                                    \
    struct varve_runtime *runtime, const struct varve_tensor_type *type, struct varve_scalar start, \
        struct varve_scalar step
#define VARVE_TENSOR_OPERATOR_ARGUMENTS_RANDOM                                                                       \
    struct varve_runtime *runtime, const struct varve_tensor_type *type, uint64_t seed, uint64_t sequence, double a, \
        double b

/// Errors: those of varve_storage_op_… and of varve_runtime_run. Reductions leave the axis out; all axes: shape ().
#define VARVE_TENSOR_OPERATOR_FUNCTION(code, NAME, name, KIND)                                    \
    int varve_tensor_op_##name(VARVE_TENSOR_OPERATOR_ARGUMENTS_##KIND, struct varve_tensor **out, \
                               struct varve_message *message);
VARVE_OPERATOR_LIST(VARVE_TENSOR_OPERATOR_FUNCTION)
#undef VARVE_TENSOR_OPERATOR_FUNCTION

/* ---- Settings and figures ---- */

/// 0: none. Evicts until it holds. VARVE_ERROR_NO_MEMORY: what can't be evicted takes more; the message says how much,
/// and the budget stays what it was.
int varve_runtime_set_memory_budget(struct varve_runtime *runtime, uint64_t bytes, struct varve_message *message);
/// Look at some 2 sqrt(n) of n candidates at random, instead of all.
void varve_runtime_toggle_sampling(struct varve_runtime *runtime, bool is_on);
/// Leave storages below 1 % of the mean size alone.
void varve_runtime_ignore_small(struct varve_runtime *runtime, bool is_on);
/// All sums begin at 0 again.
void varve_runtime_reset_profile(struct varve_runtime *runtime);

struct varve_runtime_times {
    uint64_t base_ns;   /* operators of the program, as their costs say */
    uint64_t remat_ns;  /* recomputations, likewise */
    uint64_t search_ns; /* looking for victims and evicting them */
    uint64_t cost_ns;   /* of this: scores */
};

void varve_runtime_get_times(const struct varve_runtime *runtime, struct varve_runtime_times *times_out);
void varve_runtime_get_counters(const struct varve_runtime *runtime, struct varve_remat_counters *counters_out);
/// Structures of the runtime, and its planner's. VARVE_ERROR_CORRUPT.
int varve_runtime_check(struct varve_runtime *runtime, struct varve_message *message);

/* ---- DTR logs, which `varve dtr` plays ---- */

/// From now on every operator, handle and release is a line in a new file; a log before it ends. NULL: no new one.
/// Errors: VARVE_ERROR_PERMISSION, IO.
int varve_runtime_new_log(struct varve_runtime *runtime, const char *path, struct varve_message *message);
/// ANNOTATE: "START" is where players begin, "BACKWARD" where the backward pass does. Nothing without a log.
void varve_runtime_annotate_log(struct varve_runtime *runtime, const char *text);

#ifdef __cplusplus
}
#endif

#endif
