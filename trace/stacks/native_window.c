/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which part of a stack a walk may read without a fault. On the thread's own stack everything from sp to
 * its top is there for as long as the thread lives, which is found out once, and again where it has grown; it is read
 * in place. Of other
 * stacks (signal stacks, coroutines) nothing lasting is known, so what lies there is copied by the kernel,
 * which answers with an error where a load would be a SIGSEGV. Neither /proc nor pthread_getattr_np, which
 * are slow or allocate. Called by native_stack.c.
 */
#include "trace/stacks/native_window.h"
#include "trace/guest/guest_memory.h"
#include "base/syscall.h"

#include <pthread.h>

#define PAGE_BYTES ((uintptr_t)4096)
#define MAIN_STACK_BYTES ((uintptr_t)64 << 20) /* Linux maps nothing else so close below the first stack */
#define PROBED_BYTES_MAX \
    ((uintptr_t)64 << 20) /* at once: a stack that grows further between two captures is read as
                                                  other stacks are, and so is what lies far away */

enum thread_kind { THREAD_UNKNOWN = 0, THREAD_MAIN, THREAD_OTHER };

/*
 * The thread's own stack. Thread-local, initial-exec since it is asked for in malloc hooks. A signal handler
 * may find it half written, so `high` is set last and `low` only ever falls afterwards.
 */
struct own_stack {
    uintptr_t low; /* [low, high) is mapped */
    uintptr_t high;
    enum thread_kind kind;
    uintptr_t other_low, other_high; /* mapped, but what lies at other_high is not: another stack is there, or none */
};

static _Thread_local struct own_stack own_stack __attribute__((tls_model("initial-exec")));

#ifdef __GLIBC__
/* Where the loader found sp when the program began. */
extern void *loader_stack_end __asm__("__libc_stack_end");

static uintptr_t main_stack_top(void)
{
    return (uintptr_t)loader_stack_end;
}
#else
static uintptr_t main_stack_top(void)
{
    return 0; /* read like any other stack */
}
#endif

/* Is all of it mapped? What is not is remembered, so that each page of another stack is asked about once. */
static bool pages_readable(struct own_stack *own, uintptr_t from, uintptr_t to)
{
    char byte;
    for (uintptr_t page = from; page < to; page += PAGE_BYTES) {
        const bool is_known = page >= own->other_low && page < own->other_high;
        if (is_known || !recorder_read_memory(&byte, page, sizeof(byte))) {
            own->other_high = is_known ? own->other_high : page;
            own->other_low = from;
            return false;
        }
    }
    return true;
}

static void own_stack_set(struct own_stack *own, uintptr_t low, uintptr_t high)
{
    own->low = low;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    own->high = high;
}

/* True if `sp` lies on this thread's own stack; then [low, high) covers it. */
static __attribute__((noinline, cold)) bool own_stack_find(struct own_stack *own, uintptr_t sp)
{
    const uintptr_t page = sp & ~(PAGE_BYTES - 1);
    if (own->kind == THREAD_UNKNOWN) {
        own->kind = recorder_sys_gettid() == recorder_sys_getpid() ? THREAD_MAIN : THREAD_OTHER;
    }
    /* The C library keeps the thread's descriptor at the top of its stack, whoever allocated that. */
    const uintptr_t top =
        (own->kind == THREAD_MAIN ? main_stack_top() : (uintptr_t)pthread_self()) & ~(uintptr_t)(sizeof(uintptr_t) - 1);
    uintptr_t low = own->kind == THREAD_MAIN ? top - MAIN_STACK_BYTES : top; /* below sp nothing is read */
    low = own->high == top ? own->low : low;
    if (sp >= top || (sp >= own->other_low && sp < own->other_high)) {
        return false;
    }
    if (sp < low && (low - page > PROBED_BYTES_MAX || !pages_readable(own, page, low))) {
        return false;
    }
    own_stack_set(own, page < low ? page : low, top);
    return true;
}

/* What lies from `from` on, as far as the page and the copy reach. */
static bool window_copy(struct stack_window *window, uintptr_t from)
{
    uintptr_t bytes = PAGE_BYTES - from % PAGE_BYTES;
    bytes = bytes < STACK_COPY_BYTES ? bytes : STACK_COPY_BYTES;
    window->own = false;
    window->floor = from;
    window->limit = from + bytes;
    window->moved = (uintptr_t)window->copy - from;
    return recorder_read_memory(window->copy, from, bytes);
}

bool stack_window_open(struct stack_window *window, uintptr_t sp, uintptr_t below)
{
    struct own_stack *own = &own_stack;
    if ((sp >= own->low && sp < own->high) || own_stack_find(own, sp)) {
        window->own = true;
        window->floor = sp - own->low > below ? sp - below : own->low;
        window->limit = own->high;
        window->moved = 0;
        return window->limit - sp >= sizeof(uintptr_t);
    }
    return window_copy(window, sp % PAGE_BYTES > below ? sp - below : sp & ~(PAGE_BYTES - 1));
}

UNWIND_UNSANITIZED bool stack_window_read(struct stack_window *window, uintptr_t address, uintptr_t *word)
{
    if (address % sizeof(uintptr_t) != 0) {
        return false;
    }
    if ((address < window->floor || address > window->limit - sizeof(uintptr_t)) &&
        (window->own || address < window->floor || !window_copy(window, address))) {
        return false;
    }
    *word = *(const uintptr_t *)(address + window->moved);
    return true;
}
