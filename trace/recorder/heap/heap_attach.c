/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The heap of a program that runs already. The library was loaded by dlopen, so no name leads to its hooks: they are
 * put where names are looked up (loading.c) and into the entries by which the program and its libraries call
 * (guest/elf_entries.c), and taken out again.
 */
#include "trace/recorder/heap/heap_hooks.h"
#include "trace/guest/elf_entries.h"
#include "trace/recorder/session.h"

#include <string.h>

static bool was_begun;

/* Code may come to lie where other code was. */
static const struct elf_replacement *unloading_row(void)
{
    const struct hook_table *table = hook_table();
    unsigned at = 0;
    while (at < table->count && strcmp(table->rows[at].name, "dlclose") != 0) {
        at++;
    }
    return at < table->count ? &table->rows[at] : NULL;
}

void heap_attach_begin(void)
{
    if (!was_begun) {
        was_begun = true;
        main_end_prepare();
    }
    main_end_find_python();
    heap_with_stacks = recorder_session()->stacks;
    loading_begin();
    elf_entries_replace(hook_table()->rows, hook_table()->count);
    /* Only now: an allocation that was recorded while some entry of free was still the program's own
     * would never end. */
    __atomic_store_n(&heap_state, HEAP_STATE_ON, __ATOMIC_RELEASE);
}

void heap_attach_watch_unloading(void)
{
    const struct elf_replacement *row = unloading_row();
    if (row != NULL) {
        elf_entries_replace(row, 1);
    }
}

void heap_attach_end(void)
{
    const bool was_on = __atomic_load_n(&heap_state, __ATOMIC_ACQUIRE) != HEAP_STATE_OFF;
    if (was_on) {
        loading_finish();
    }
    __atomic_store_n(&heap_state, HEAP_STATE_OFF, __ATOMIC_RELEASE);
    preload_is_on = false;
    __atomic_store_n(&main_end_is_watched, false, __ATOMIC_RELAXED);
    if (was_on) {
        loading_end();
    }
    elf_entries_restore(hook_table()->rows, hook_table()->count);
}
