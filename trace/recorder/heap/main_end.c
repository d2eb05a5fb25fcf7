/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When main is over. What it leaves behind must be distinguished from what destructors, exit handlers and interpreters
 * free later, so each of the ways out is met before those run:
 *
 *   exit(), by any thread    the hook
 *   main returns             the destructor of a thread-local variable of the main thread, which the C library runs
 *                            before exit handlers: no wrapper of main, which every stack would show
 *   a Python interpreter     tears down its modules inside main. Py_IsInitialized answers 0 from then on; it is asked
 *                            before each free by the main thread, since a free is what the teardown begins with
 *
 * A program that embeds an interpreter goes on after the interpreter's end: only where Py_RunMain or Py_Exit is on
 * the stack is that the end of the program. _exit, quick_exit and signals end a process without this event.
 */
#include "trace/recorder/heap/heap_hooks.h"
#include "base/syscall.h"
#include "trace/guest/elf_symbol.h"
#include "trace/guest/own_stack.h"
#include "trace/guest/guest_signals.h"
#include "trace/recorder/session.h"
#include "trace/stacks/native_stack.h"
#include "trace/emit.h"
#include "trace/record.h"

#define FRAMES_MAX 256U

bool main_end_is_watched;

static __thread bool is_main_thread __attribute__((tls_model("initial-exec")));

/* Found once by the main thread, which alone uses it. */
static struct {
    int (*is_initialized)(void);
    struct elf_range endings[2]; /* Py_RunMain, Py_Exit */
    bool was_initialized;
} python;

void main_end_emit(void)
{
    struct varve_record record = {0};
    if (preload_is_on && recorder_reentrant_depth == 0 && recorder_process_main_ends()) {
        record.dev_seq_kind_flags = varve_record_tag(0, VARVE_KIND_MAIN_END, 0);
        varve_emit(&record);
    }
}

/* ---- main returns ---- */

/* Not in every C library. `object`: some address in the library that the destructor is of, which then stays. */
extern int __cxa_thread_atexit_impl(void (*destructor)(void *), void *argument, void *object) __attribute__((weak));

/* A main thread that calls pthread_exit does not come here. */
static void main_returned(void *unused)
{
    (void)unused;
    main_end_emit();
}

void main_end_prepare(void)
{
    is_main_thread = recorder_sys_gettid() == recorder_sys_getpid();
    if (is_main_thread && __cxa_thread_atexit_impl != NULL) {
        __cxa_thread_atexit_impl(main_returned, NULL, &main_end_is_watched);
    }
}

/* ---- exit ---- */

/* Under another name in C: a function of that name would not return, and so stay on the stack of exit handlers. */
HOOK void exit_hook(int status) __asm__("exit");

void exit_hook(int status)
{
    if (hook_can_call()) {
        main_end_emit();
    }
    heap_real.exit(status);
}

/* ---- Python ---- */

void main_end_find_python(void)
{
    static const char *const names[] = {"Py_RunMain", "Py_Exit"};
    struct elf_object object;
    if (!is_main_thread || !elf_symbol_object("Py_RunMain", &object)) {
        return;
    }
    for (unsigned i = 0; i < 2; i++) {
        python.endings[i] = elf_symbol_range(&object, names[i]);
    }
    void *address = elf_symbol_in(&object, "Py_IsInitialized");
    __builtin_memcpy(&python.is_initialized, &address, sizeof(address));
    main_end_is_watched = address != NULL;
}

static bool is_ending(uint64_t pc)
{
    for (unsigned i = 0; i < 2; i++) {
        /* a return address behind a call that does not return may lie behind the function */
        if (pc - 1 - python.endings[i].start < python.endings[i].bytes) {
            return true;
        }
    }
    return false;
}

struct look {
    struct callsite_start start;
    bool is_ending;
};

/* On the recorder's stack. */
static void look_at_stack(void *argument)
{
    struct look *look = argument;
    uint64_t pcs[FRAMES_MAX];
    unsigned count = native_stack_capture(&look->start, pcs, FRAMES_MAX);
    for (unsigned i = 0; i < count && !look->is_ending; i++) {
        look->is_ending = is_ending(pcs[i]);
    }
}

void main_end_look(void)
{
    struct look look = {.start = hook_start(HOOK_FRAME())};
    int saved_errno = errno;
    if (!is_main_thread) {
        return;
    }
    bool is_initialized = python.is_initialized() != 0;
    if (is_initialized == python.was_initialized) {
        return;
    }
    python.was_initialized = is_initialized;
    if (is_initialized) {
        return;
    }
    __atomic_store_n(&main_end_is_watched, false, __ATOMIC_RELAXED);
    struct recorder_signals saved;
    recorder_signals_block(&saved);
    (void)recorder_on_stack(look_at_stack, &look);
    recorder_signals_restore(&saved);
    if (look.is_ending) {
        main_end_emit();
    }
    errno = saved_errno;
}
