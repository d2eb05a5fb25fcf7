/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The runtime's structure. Tensors of the planner have their elements in `values`; the planner's operators carry
 * a struct recipe.
 */
#ifndef VARVE_STORAGE_RUNTIME_RUNTIME_INTERNAL_H
#define VARVE_STORAGE_RUNTIME_RUNTIME_INTERNAL_H

#include "storage/runtime.h"
#include "storage/storage.h"

#include <stdio.h>

enum recipe_kind { RECIPE_CONSTANT, RECIPE_VIEW, RECIPE_OPERATOR };

struct recipe_output {
    enum varve_dtype dtype;
    struct varve_geometry geometry; /* contiguous; of a view as it is */
    uint64_t hash;                  /* of what it made first, if values are checked */
};

/* What an operator of the planner is; it goes with it. */
struct recipe {
    struct recipe *previous, *next; /* of the runtime's */
    enum recipe_kind kind;
    struct varve_recipe call;       /* name and arguments are copies behind it, `outputs` is not set */
    struct varve_storage *constant; /* with a reference */
    struct recipe_output *outputs;
    uint64_t signature; /* of name and types: what costs are kept by */
    uint16_t name;      /* number in traces; 0: none yet */
    bool is_ours;       /* of operators.h: takes what room it needs below the budget */
    bool has_hashes;
};

struct cost_entry {
    uint64_t signature, ns; /* ns 0: unused */
    unsigned samples;       /* the lower of two: the first one often loads a library */
};

struct varve_runtime {
    struct varve_memory *memory;
    struct varve_alloc *alloc;
    uint64_t stream, budget; /* budget 0: none */
    bool checks_values;
    struct varve_remat *remat;
    struct varve_storage **values; /* by the planner's tensor; NULL: not in memory. With a reference */
    uint32_t value_capacity;
    struct recipe *recipes;
    uint64_t tensors; /* handles */
    struct cost_entry *costs;
    size_t cost_count, cost_capacity; /* a power of two */
    bool is_in_function;              /* a program's function is running, and has its workspace only */
    bool has_exceeded;                /* it asked for more */
    uint64_t function_limit;          /* of allocated bytes while it runs */
    struct recipe *pending;           /* that the planner is being given; NULL: it has forgotten it again */
    char failed[64];                  /* name of the operator that did not get its memory; "": none */
    FILE *log;                        /* NULL: none */
    uint64_t log_names, log_number;   /* names given in it; which one it is */
};

struct varve_tensor {
    struct varve_runtime *runtime;
    uint32_t number;
    enum varve_dtype dtype;
    struct varve_geometry geometry;
    uint32_t borrowed;
    bool is_pinned;
    uint64_t log_name, log_number; /* name in the log of that number */
};

/* runtime.c */

/// The error of an operation of the planner's, with the operator's name where only the planner's number was known.
int runtime_result(struct varve_runtime *runtime, int error, struct varve_message *message);

/* runtime_tensor.c */

/// A handle of the planner's tensor, whose reference it takes. NULL: no memory.
struct varve_tensor *tensor_new(struct varve_runtime *runtime, uint32_t number, const struct recipe_output *output);

/* runtime_recipe.c */

/// `types`: outputs of the call. The constant and the view's geometry are set by the caller. NULL: no memory.
struct recipe *recipe_new(struct varve_runtime *runtime, const struct varve_recipe *call, enum recipe_kind kind);
void recipe_free(struct varve_runtime *runtime, struct recipe *recipe);
/// Bytes of the block that an output takes, or a constant has; 0 for views, and for memory that is not the allocator's.
uint64_t recipe_output_bytes(const struct varve_runtime *runtime, const struct recipe *recipe, unsigned output);
/// The planner's operator for the recipe; the recipe goes if it fails. Outputs are the planner's tensors.
int recipe_compute(struct varve_runtime *runtime, struct recipe *recipe, const uint32_t *inputs, uint32_t *outputs_out,
                   struct varve_message *message);
/// As varve_runtime_run, of an operator of operators.h.
int recipe_run(struct varve_runtime *runtime, const struct varve_recipe *call, bool is_ours,
               struct varve_tensor *const *inputs, struct varve_tensor **outputs, struct varve_message *message);

/* runtime_drive.c */

/// The planner's driver for the runtime.
void drive_init(struct varve_runtime *runtime, struct varve_remat_driver *driver_out);
/// Callbacks of the allocator: evict for a request that it can't serve.
uint64_t drive_on_miss(void *context, const struct varve_alloc_miss *miss);
uint64_t drive_on_last_resort(void *context, const struct varve_alloc_miss *miss);

/* runtime_emit.c */

void emit_event(struct varve_runtime *runtime, const struct varve_remat_event *event);

/* runtime_log.c: each does nothing without a log */

void log_constant(struct varve_tensor *tensor, uint64_t bytes);
void log_call(struct varve_runtime *runtime, const struct recipe *recipe, struct varve_tensor *const *inputs,
              struct varve_tensor *const *outputs, uint64_t cost_ns);
void log_copy(struct varve_tensor *copy, struct varve_tensor *of);
void log_assign(struct varve_tensor *tensor, struct varve_tensor *value);
void log_release(struct varve_tensor *tensor);
void log_pin(struct varve_tensor *tensor);
void log_close(struct varve_runtime *runtime);

#endif
