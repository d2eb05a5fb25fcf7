/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes and unmaps the recorder's own memory of a thread, and switches to its stack and back. A thread
 * comes here for the first time inside malloc, and may come once more after its own end. Called around
 * everything that needs more than a few hundred bytes of stack.
 */
#include "trace/guest/own_stack.h"
#include "trace/guest/confinement.h"
#include "trace/guest/guest_memory.h"
#include "trace/guest/guest_signals.h"
#include "base/syscall.h"

#include <sys/mman.h>

/*
 * The memory of a thread:
 *
 *   low page that cannot be touched, but in a process of very many threads | stack, grows down | struct recorder_area
 *
 * A handler that runs while the recorder naps (recorder_off_stack) records events of its own, whose calls
 * begin on the stack where the interrupted ones have stopped.
 */

#define GUARD_BYTES 4096U
#define STACK_BYTES (128U << 10)
#define STACK_LEAST_BYTES (56U << 10) /* with less left, nothing is begun */
#define AREA_BYTES ((sizeof(struct recorder_area) + 4095U) & ~(size_t)4095U)
#define ALL_BYTES (GUARD_BYTES + STACK_BYTES + AREA_BYTES)

__thread struct recorder_area *recorder_area_current;

#define GUARDED_MOST 1000U /* of areas: each guard is a mapping more, and a process may have 65,530 */

static __thread bool thread_has_ended;
static uint32_t areas; /* of all threads; atomic */

static struct recorder_area *area_map(void)
{
    char *memory = recorder_map(ALL_BYTES);
    if (memory == NULL) {
        return NULL;
    }
    if (__atomic_add_fetch(&areas, 1, __ATOMIC_RELAXED) <= GUARDED_MOST &&
        recorder_sys_mprotect(memory, GUARD_BYTES, PROT_NONE) != 0) {
        __atomic_sub_fetch(&areas, 1, __ATOMIC_RELAXED);
        recorder_unmap(memory, ALL_BYTES);
        return NULL;
    }
    struct recorder_area *area = (struct recorder_area *)(memory + GUARD_BYTES + STACK_BYTES);
    area->low = (uintptr_t)memory + GUARD_BYTES;
    area->next = (uintptr_t)area;
    return area;
}

static void area_unmap(struct recorder_area *area)
{
    __atomic_sub_fetch(&areas, 1, __ATOMIC_RELAXED);
    recorder_unmap((char *)area->low - GUARD_BYTES, ALL_BYTES);
}

struct recorder_area *recorder_area_make(void)
{
    if (thread_has_ended) {
        return NULL;
    }
    struct recorder_signals signals;
    recorder_signals_block(&signals); /* a handler would make another one */
    if (recorder_area_current == NULL) {
        recorder_area_current = area_map();
    }
    recorder_signals_restore(&signals);
    return recorder_area_current;
}

void recorder_stack_thread_end(void)
{
    struct recorder_area *area = recorder_area_current;
    thread_has_ended = true;
    recorder_area_current = NULL;
    if (area != NULL) {
        area_unmap(area);
    }
}

/* Of a thread that has ended: one for this call. */
static bool on_temporary_stack(void (*function)(void *argument), void *argument)
{
    struct recorder_area *area = area_map();
    if (area == NULL) {
        return false;
    }
    area->is_taken = true;
    recorder_area_current = area;
    recorder_stack_call(function, argument, area->next, &area->program);
    recorder_area_current = NULL;
    area_unmap(area);
    return true;
}

bool recorder_on_stack(void (*function)(void *argument), void *argument)
{
    if (recorder_is_confined()) {
        return false; /* it can't keep handlers from running on this stack */
    }
    struct recorder_area *area = recorder_area_current != NULL ? recorder_area_current : recorder_area_make();
    if (area == NULL) {
        return thread_has_ended && on_temporary_stack(function, argument);
    }
    if (area->program != 0) {
        function(argument);
        return true;
    }
    if (area->next - area->low < STACK_LEAST_BYTES) {
        return false;
    }
    recorder_stack_call(function, argument, area->next, &area->program);
    area->program = 0;
    return true;
}

void recorder_off_stack(void (*function)(void *argument), void *argument)
{
    struct recorder_area *area = recorder_area_current;
    uintptr_t program = area != NULL ? area->program : 0;
    if (program == 0) {
        function(argument);
        return;
    }
    uintptr_t next = area->next;
    area->program = 0;
    recorder_stack_call(function, argument, program & ~(uintptr_t)15, &area->next);
    area->next = next;
    area->program = program;
}
