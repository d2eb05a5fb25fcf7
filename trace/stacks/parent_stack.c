/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Python frames of a thread that waits, published for the threads that work for it: PyTorch's backward pass
 * runs on threads of its own, which have no frames, or only those of Python that the pass itself calls (a graph
 * that torch.compile made), while the one that called backward() waits. One publishes at a time; a second one's
 * threads inherit the first one's frames. Who inherits copies and then looks whether they are still published: a
 * sequence lock. The wait keeps the code objects alive. Called by stacks/callsite_here.c.
 */
#include "trace/stacks/callsite_writer.h"
#include "trace/guest/guest_memory.h"
#include "trace/stacks/python_frame.h"
#include "trace/stacks/python_stack.h"
#include "trace/emit.h"

#include <stddef.h>
#include <string.h>

#define PUBLISHED_MAX 64U

struct published {
    uint32_t owner;   /* 0: none; 1: a thread of this process */
    uint32_t version; /* odd while frames are written or taken away */
    uint32_t count;
    const void *thread_code;
    struct python_frame frames[PUBLISHED_MAX];
};

static void *shared; /* struct published, in a wiped page: nothing is published in a fork child */
static _Thread_local __attribute__((tls_model("initial-exec"))) uint32_t publish_depth;
static _Thread_local __attribute__((tls_model("initial-exec"))) bool is_owner;

static void write_begin(struct published *published)
{
    __atomic_fetch_add(&published->version, 1, __ATOMIC_ACQ_REL);
    __atomic_thread_fence(__ATOMIC_RELEASE);
}

void varve_python_stack_publish(uint32_t skip, const void *thread_code)
{
    struct published *published;
    uint32_t nobody = 0;
    if (publish_depth++ > 0 || (published = recorder_map_wiped_once(&shared, sizeof(*published))) == NULL ||
        !__atomic_compare_exchange_n(&published->owner, &nobody, 1, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
        return;
    }
    is_owner = true;
    struct python_frame frames[PUBLISHED_MAX];
    unsigned count = python_stack_capture(frames, PUBLISHED_MAX);
    skip = skip < count ? skip : count;
    write_begin(published);
    memcpy(published->frames, frames + skip, (count - skip) * sizeof(frames[0]));
    __atomic_store_n(&published->count, count - skip, __ATOMIC_RELAXED);
    __atomic_store_n(&published->thread_code, thread_code, __ATOMIC_RELAXED);
    __atomic_fetch_add(&published->version, 1, __ATOMIC_RELEASE);
}

void varve_python_stack_withdraw(void)
{
    struct published *published = __atomic_load_n(&shared, __ATOMIC_ACQUIRE);
    if (publish_depth == 0 || --publish_depth > 0 || !is_owner) {
        return;
    }
    is_owner = false;
    write_begin(published);
    __atomic_store_n(&published->count, 0, __ATOMIC_RELAXED);
    __atomic_fetch_add(&published->version, 1, __ATOMIC_RELEASE);
    __atomic_store_n(&published->owner, 0, __ATOMIC_RELEASE);
}

bool parent_stack_is_lent(void)
{
    const struct published *published = __atomic_load_n(&shared, __ATOMIC_ACQUIRE);
    return published != NULL && !is_owner && __atomic_load_n(&published->owner, __ATOMIC_ACQUIRE) != 0;
}

unsigned parent_stack_inherit(struct python_frame *frames, unsigned count, unsigned max)
{
    if (!parent_stack_is_lent()) {
        return count;
    }
    const struct published *published = __atomic_load_n(&shared, __ATOMIC_ACQUIRE);
    const uint32_t version = __atomic_load_n(&published->version, __ATOMIC_ACQUIRE);
    unsigned lent = __atomic_load_n(&published->count, __ATOMIC_RELAXED);
    const void *thread_code = __atomic_load_n(&published->thread_code, __ATOMIC_RELAXED);
    if (version % 2 != 0 || lent > PUBLISHED_MAX || (count > 0 && frames[count - 1].code == thread_code)) {
        return count;
    }
    lent = lent < max - count ? lent : max - count;
    memcpy(frames + count, published->frames, lent * sizeof(frames[0]));
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return __atomic_load_n(&published->version, __ATOMIC_RELAXED) == version ? count + lent : count;
}
