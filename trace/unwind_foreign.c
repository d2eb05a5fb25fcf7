/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames that a 32-bit rule cannot express (a CFA in another register, hand-written code) are left to
 * libunwind. It is loaded when the first such frame is met, so that ordinary processes never carry it, and
 * the whole call runs as foreign code, since it may allocate. libunwind knows only the current state of the
 * thread, so it walks from here and what it finds below the frame in question is dropped.
 *
 * Called by native_stack.c. Without libunwind the stack simply ends there.
 */
#include "trace/unwind_internal.h"

#include <dlfcn.h>
#include <stdatomic.h>

/* Indexes of libunwind's x86-64 registers, and buffers larger than its context (968) and cursor (1016 bytes).
 */
enum { FOREIGN_RSP = 7, FOREIGN_RIP = 16, FOREIGN_BUFFER_WORDS = 256 };

enum foreign_state { FOREIGN_UNKNOWN = 0, FOREIGN_LOADING, FOREIGN_READY, FOREIGN_MISSING };

struct foreign_calls {
    int (*get_context)(void *context);
    int (*init_local)(void *cursor, void *context);
    int (*step)(void *cursor);
    int (*get_reg)(void *cursor, int number, uintptr_t *value);
    int (*is_signal_frame)(void *cursor);
};

/* For the whole process: written once, by the thread that moved the state to LOADING; a fork child keeps it.
 */
static struct foreign_calls calls;
static _Atomic int state;

static bool call_find(void *library, const char *name, void *call)
{
    void *symbol = dlsym(library, name);

    *(void **)call = symbol;
    return symbol != NULL;
}

static bool calls_find(void)
{
    void *library = dlopen("libunwind.so.8", RTLD_NOW | RTLD_LOCAL);

    return library != NULL && call_find(library, "_Ux86_64_getcontext", &calls.get_context) &&
           call_find(library, "_ULx86_64_init_local", &calls.init_local) &&
           call_find(library, "_ULx86_64_step", &calls.step) &&
           call_find(library, "_ULx86_64_get_reg", &calls.get_reg) &&
           call_find(library, "_ULx86_64_is_signal_frame", &calls.is_signal_frame);
}

/* Only the first thread loads it; others, and handlers that interrupt it, do without meanwhile. */
static bool foreign_load(void)
{
    int expected = FOREIGN_UNKNOWN;

    if (atomic_compare_exchange_strong(&state, &expected, FOREIGN_LOADING)) {
        atomic_store(&state, calls_find() ? FOREIGN_READY : FOREIGN_MISSING);
    }
    return atomic_load(&state) == FOREIGN_READY;
}

static bool cursor_at(void *cursor, uintptr_t *pc, uintptr_t *sp)
{
    return calls.get_reg(cursor, FOREIGN_RIP, pc) == 0 && calls.get_reg(cursor, FOREIGN_RSP, sp) == 0;
}

static unsigned foreign_walk(uintptr_t pc, uintptr_t sp, uint64_t *pcs, unsigned max)
{
    _Alignas(16) uint64_t context[FOREIGN_BUFFER_WORDS];
    _Alignas(16) uint64_t cursor[FOREIGN_BUFFER_WORDS];
    uintptr_t at_pc;
    uintptr_t at_sp;
    unsigned count = 0;

    if (calls.get_context(context) != 0 || calls.init_local(cursor, context) != 0) {
        return 0;
    }
    do {
        if (!cursor_at(cursor, &at_pc, &at_sp) || (count > 0 && at_pc == 0)) {
            break;
        }
        if (count > 0 || (at_pc == pc && at_sp == sp)) {
            pcs[count++] = at_pc;
        }
        if (count > 0 && count < max && calls.is_signal_frame(cursor) > 0 && calls.step(cursor) > 0 &&
            cursor_at(cursor, &at_pc, &at_sp)) {
            pcs[count++] = at_pc + 1; /* interrupted, not a return address */
        }
    } while (count < max && calls.step(cursor) > 0);
    return count;
}

unsigned unwind_foreign_capture(uintptr_t pc, uintptr_t sp, uint64_t *pcs, unsigned max)
{
    struct recorder_signals saved;
    unsigned count = 0;

    if (max == 0 || atomic_load(&state) == FOREIGN_MISSING) {
        return 0;
    }
    recorder_foreign_begin(&saved);
    if (foreign_load()) {
        count = foreign_walk(pc, sp, pcs, max);
    }
    recorder_foreign_end(&saved);
    return count;
}
