/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of the CUDA API's memory, and the indexes that find them:
 *
 *   address ──► block row ──► scratch row        (DEV_ALLOC and others)
 *   handle ───► block row ──► scratch row        (physical memory; imported: no scratch row)
 *   mapping ──► the same block row
 *
 * Each process has two of these indexes: one for the CUDA recorder (domains device, pinned, managed), one for what
 * CUPTI reports beside it (domain cupti), so that the two can be compared.
 */
#ifndef VARVE_TRACE_MODEL_DEVICE_ROWS_H
#define VARVE_TRACE_MODEL_DEVICE_ROWS_H

#include "base/hash_index.h"
#include "base/range_set.h"
#include "trace/model/allocation_scratch.h"
#include "trace/model/domain.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The events of the CUDA API. Apart from derive_*.c because most recordings need none of it.
 *
 * Invariants (derive_api_check), for every process that has not ended and each slot:
 *   block rows in the indexes that have a scratch row = rows of the slot with free_seq 0 = its total
 *   of physical memory: maps = its mappings; refs + maps > 0; it has a name, or refs = 0
 */

struct derive;
struct derive_process;
struct derive_step;
struct derive_thread;
struct event;
struct varve_message;

int derive_api(struct derive_step *step, struct varve_message *message);
bool derive_api_is_out_of_order(const struct derive *derive, const struct derive_process *process,
                                const struct event *event);
void derive_api_end(struct derive_process *process); /* it has ended: its indexes go */
void derive_api_free(struct derive_process *process);
void derive_api_thread_free(struct derive_thread *thread);
int derive_api_check(const struct derive *derive, uint32_t process_id, struct varve_message *message);

/* What an index holds are numbers of block rows. */
struct api_index {
    struct index live;
    struct index handles; /* the names of physical memory */
    struct ranges mappings;
};

struct derive_api {
    struct api_index sides[2]; /* [1]: events of a duplicate source */
    uint16_t *slots;           /* that the process has used */
    size_t slot_count, slot_capacity;
    uint64_t touched[SLOT_LIMIT / 64 + 1]; /* bits of slots: changed by the event under way */
};

/* A mapping that a call ended. */
struct api_undone {
    struct range range; /* id: its block row */
    bool was_named;     /* it had a handle until then */
};

/* The last free of a thread, which its next event may take back; kind 0: there is nothing to take back. */
struct api_undo {
    uint64_t seq;
    uint64_t addr;
    uint64_t block; /* of an address or a handle; 0: it was unknown */
    uint16_t stream;
    uint8_t kind, cause, device;
    bool was_named;
    struct api_undone *mappings; /* of an unmapping */
    size_t count, capacity;
};

struct derive_api_thread {
    uint64_t last_id[2]; /* opened by its last event that opens or closes; by side */
    struct api_undo undo[2];
};

/* One event on its way. */
struct api_step {
    struct derive_step *step;
    struct derive_api *api;
    struct api_index *index;
    struct api_undo *undo;
};

/// This slot becomes the step's, without an update of its peak at the end of the event.
void api_slot_enter_untouched(const struct api_step *step, unsigned slot);
/// The slot of the event's device in this domain is used from now on, and becomes the step's. Errors:
/// NO_MEMORY.
int api_slot_use(const struct api_step *step, unsigned domain, struct varve_message *message);
/// The event is over.
void api_update_peaks(const struct api_step *step);
/// The slot of the row that belongs to a block row.
unsigned api_slot_of(const struct derive *derive, const struct scratch_block *block);
/// The domain that an event's memory belongs to; 0: nothing is counted of it.
unsigned api_domain_of(const struct event *event);
/// An allocation, and not another process' memory.
bool api_makes_row(const struct event *event);
/// Does a reset of this context (0: of all of them) end it?
bool api_is_of(const struct scratch_block *block, unsigned device, unsigned context);
/// A new block row, with a scratch row in `domain` unless that is 0. Returns its number.
uint64_t api_open(const struct api_step *step, unsigned domain, uint64_t addr);
/// The scratch row of a block row ends at this event, if there is one and it is open.
void api_close(const struct api_step *step, uint64_t number, bool is_free);
/// Undo that. False: it was not event `seq` that ended it, and nothing has changed.
bool api_reopen(const struct api_step *step, uint64_t number, uint64_t seq);
/// The event becomes one about this block row; of a failure, only if that has a row: it is counted where the
/// event says that it is, and must say the same when it comes back from a database.
void api_describe(const struct api_step *step, uint64_t number);
void api_describe_row(const struct api_step *step, uint64_t number);

/* Physical memory of a device and its mappings. */

bool vmm_reserve(const struct api_step *step); /* false without memory */
void vmm_create(const struct api_step *step);
void vmm_map(const struct api_step *step);
void vmm_unmap(const struct api_step *step);
void vmm_release(const struct api_step *step);
/// The thread's last free has failed: what it ended is there again.
void vmm_take_back(const struct api_step *step);
/// All that is the device's: a reset; `context` 0: of all contexts.
void vmm_reset(const struct api_step *step, unsigned device, unsigned context);
bool vmm_is_out_of_order(const struct derive *derive, const struct api_index *index, const struct event *event);

#endif
