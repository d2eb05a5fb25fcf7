/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Python frames of a thread that waits, lent to the threads that work for it: PyTorch's backward pass runs on
 * threads of its own, which have no frames, while the one that called backward() waits. One lender at a time:
 * a second one's threads get the first one's frames. A borrower copies and then looks whether the lender is
 * still there: a sequence lock. The lender's wait keeps the code objects alive. recorder/stacks/callsite.c calls this.
 */
#include "trace/recorder/stacks/python/parent_stack.h"
#include "trace/recorder/guest/memory.h"
#include "trace/recorder/stacks/python/frame.h"
#include "trace/recorder/stacks/python/stack.h"
#include "trace/trace.h"

#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#define LENT_MAX 64U

struct lent {
    _Atomic uint32_t lender;  /* 0: none; 1: a thread of this process */
    _Atomic uint32_t version; /* odd while frames are written or taken away */
    _Atomic uint32_t count;
    struct python_frame frames[LENT_MAX];
};

static void *shared; /* struct lent, in a wiped page: nothing is lent in a fork child */
static _Thread_local __attribute__((tls_model("initial-exec"))) uint32_t lend_depth;
static _Thread_local __attribute__((tls_model("initial-exec"))) bool is_lender;

static void write_begin(struct lent *lent)
{
    atomic_fetch_add_explicit(&lent->version, 1, memory_order_acq_rel);
    atomic_thread_fence(memory_order_release);
}

void varve_python_lend(uint32_t skip)
{
    struct python_frame frames[LENT_MAX];
    struct lent *lent;
    uint32_t nobody = 0;
    unsigned count;

    if (lend_depth++ > 0 || (lent = recorder_map_wiped_once(&shared, sizeof(*lent))) == NULL ||
        !atomic_compare_exchange_strong(&lent->lender, &nobody, 1)) {
        return;
    }
    is_lender = true;
    count = python_stack_capture(frames, LENT_MAX);
    skip = skip < count ? skip : count;
    write_begin(lent);
    memcpy(lent->frames, frames + skip, (count - skip) * sizeof(frames[0]));
    atomic_store_explicit(&lent->count, count - skip, memory_order_relaxed);
    atomic_fetch_add_explicit(&lent->version, 1, memory_order_release);
}

void varve_python_lend_end(void)
{
    struct lent *lent = __atomic_load_n(&shared, __ATOMIC_ACQUIRE);

    if (lend_depth == 0 || --lend_depth > 0 || !is_lender) {
        return;
    }
    is_lender = false;
    write_begin(lent);
    atomic_store_explicit(&lent->count, 0, memory_order_relaxed);
    atomic_fetch_add_explicit(&lent->version, 1, memory_order_release);
    atomic_store_explicit(&lent->lender, 0, memory_order_release);
}

unsigned python_stack_borrow(struct python_frame *frames, unsigned max)
{
    struct lent *lent = __atomic_load_n(&shared, __ATOMIC_ACQUIRE);
    uint32_t version;
    unsigned count;

    if (lent == NULL || atomic_load_explicit(&lent->lender, memory_order_acquire) == 0) {
        return 0;
    }
    version = atomic_load_explicit(&lent->version, memory_order_acquire);
    count = atomic_load_explicit(&lent->count, memory_order_relaxed);
    if (version % 2 != 0 || count > LENT_MAX) {
        return 0;
    }
    count = count < max ? count : max;
    memcpy(frames, lent->frames, count * sizeof(frames[0]));
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&lent->version, memory_order_relaxed) == version ? count : 0;
}
