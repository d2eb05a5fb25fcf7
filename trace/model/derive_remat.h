/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What rematerialization did: sums by operator and by storage, budgets, and who was in the way when an operator did not
 * get its memory. Memory grows with operators' names, storages that were evicted, recomputed or pinned, and failures;
 * not with events.
 */
#ifndef VARVE_TRACE_MODEL_DERIVE_REMAT_H
#define VARVE_TRACE_MODEL_DERIVE_REMAT_H

#include "base/hash_index.h"
#include "trace/model/event_groups.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct derive;
struct derive_process;
struct derive_step;
struct varve_message;

#define OPERATOR_NAME_BYTES 32U
#define EVICT_CAUSES 6U /* 0: one that is not in the list */
#define REMAT_WASTED 128U

/* A recomputation within so many runs of operators after the eviction makes that a wasted one. */
#define REMAT_WASTED_RUNS 16U

/* A row of `operator_stat`, and those of `eviction_stat` by cause. */
struct derive_operator {
    uint32_t process_id;
    uint32_t depth_max;
    uint16_t number; /* of its name in the process; 0: events that had none */
    char name[OPERATOR_NAME_BYTES + 1];
    uint64_t runs, run_ns, input_bytes, output_bytes;
    uint64_t remats, collateral, remat_ns, wasted;
    uint64_t evictions[EVICT_CAUSES], evicted_bytes[EVICT_CAUSES]; /* from VARVE_CAUSE_EVICT_RELEASED - 1 on */
};

/* A row of `remat_storage_stat`. */
struct derive_remat_storage {
    uint64_t number, size;
    uint64_t evictions, remats, collateral, remat_ns, wasted;
    uint64_t evict_run; /* runs of operators before its last eviction */
    uint32_t process_id;
    uint16_t maker; /* number of the operator's name */
    bool is_evicted, is_pinned;
};

/* A row of `remat_budget`. */
struct derive_budget {
    uint64_t seq, bytes;
    int64_t ts_ns;
    uint32_t process_id;
};

/* A row of `remat_failure_stat`. */
struct derive_remat_failure {
    uint64_t seq, op, needed, blocked;
    uint64_t budget; /* number of the row of remat_budget that was in force; 0: none */
    int64_t ts_ns;
    uint32_t process_id;
    uint16_t maker; /* number of the operator's name */
};

/* A row of `remat_blocked_stat`: storages made by one operator that could not be evicted for one cause. */
struct derive_blocked {
    uint64_t failure_seq, storages, bytes;
    uint16_t maker; /* number of the operator's name */
    uint8_t cause;
};

struct derive_remat {
    struct seqs events; /* rows of `remat_event`; tag: kind, and REMAT_WASTED */
    struct index index; /* process and number of a name → 1 + position in `operators` */
    struct derive_operator *operators;
    size_t operator_count, operator_capacity;
    struct derive_remat_storage *storages;
    size_t storage_count, storage_capacity;
    struct derive_budget *budgets;
    size_t budget_count, budget_capacity;
    struct derive_remat_failure *failures;
    size_t failure_count, failure_capacity;
    struct derive_blocked *blocked;
    size_t blocked_count, blocked_capacity;
};

/* Of a process. */
struct derive_remat_process {
    struct index storages; /* number → 1 + position of its row, of the last storage that had the number */
    struct index blocked;  /* operator and cause → 1 + position, of the last failure */
    uint64_t runs;         /* of operators, recomputations included */
    uint64_t budget;       /* number of the row in force; 0: none yet */
    uint64_t failure_seq;  /* of the last one; 0: none yet */
};

/// Take an event of that group; the event stays as it is.
int derive_remat(const struct derive_step *step, struct varve_message *message);
/// The process is over: what it has in memory for itself goes.
void derive_remat_end(struct derive_process *process);
int derive_remat_check(const struct derive *derive, struct varve_message *message);

struct derive_remat *derive_remat_open(void);        /* NULL: no memory */
void derive_remat_close(struct derive_remat *remat); /* NULL is allowed */

#endif
