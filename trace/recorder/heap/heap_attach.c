/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The heap of a program that runs already. The library was loaded by dlopen, so no name leads to its hooks: they are
 * put where names are looked up (loading.c) and into the entries by which the program and its libraries call
 * (attach/attach_calls.c), and taken out again.
 */
#include "trace/recorder/heap/heap_hooks.h"
#include "trace/guest/elf_entries.h"
#include "trace/recorder/session.h"

#include <stdbool.h>
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

unsigned heap_attach_rows(bool is_wanted, struct elf_replacement *rows, unsigned room)
{
    const struct hook_table *table = hook_table();
    const struct elf_replacement *from = is_wanted ? table->rows : unloading_row();
    const unsigned count = is_wanted ? table->count : from != NULL;
    if (count > 0 && count <= room) {
        memcpy(rows, from, count * sizeof(*rows));
    }
    return count <= room ? count : 0;
}

void heap_attach_prepare(void)
{
    if (!was_begun) {
        was_begun = true;
        main_end_prepare();
    }
    main_end_find_python();
    heap_with_stacks = recorder_session()->stacks;
    loading_begin();
}

void heap_attach_begin(void)
{
    __atomic_store_n(&heap_state, HEAP_STATE_ON, __ATOMIC_RELEASE);
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
}
