/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Our own definitions are found by their names in our own table of symbols: in C these names would be the program's.
 * What is a hook here and no function of struct heap_real is what the object of another function calls so.
 */
#include "trace/recorder/heap/heap_hooks.h"
#include "trace/guest/elf_symbol.h"
#include "trace/guest/loaded_object.h"

#include <link.h>

#define ROWS_MAX 96U

static struct elf_replacement rows[ROWS_MAX];
static struct hook_table table = {.rows = rows};

static void hook_table_row_add(const char *name, const void *real, const void *hook)
{
    if (real != NULL && hook != NULL && real != hook && table.count < ROWS_MAX) {
        rows[table.count++] = (struct elf_replacement){.name = name, .from = (uintptr_t)real, .to = (uintptr_t)hook};
    }
}

/* What is called `name` in the object that `function` is of. */
static const void *beside(const void *function, const char *name)
{
    struct loaded_object at;
    struct elf_object object;
    return function != NULL && loaded_object_find((uintptr_t)function, &at) &&
                   elf_symbol_object_at((const void *)at.start, &object)
               ? elf_symbol_in(&object, name)
               : NULL;
}

static bool own_object(struct elf_object *own)
{
    const struct link_map *map = _r_debug.r_map;
    while (map != NULL && map->l_ld != _DYNAMIC) {
        map = map->l_next;
    }
    return map != NULL && elf_symbol_tables_of_map(map, own);
}

#define ROW_ADD(name, result, parameters)                   \
    __builtin_memcpy(&real, &heap_real.name, sizeof(real)); \
    hook_table_row_add(#name, real, elf_symbol_in(&own, #name));

#define ROW_ADD_BESIDE(name, function)                          \
    __builtin_memcpy(&real, &heap_real.function, sizeof(real)); \
    hook_table_row_add(#name, beside(real, #name), elf_symbol_in(&own, #name));

const struct hook_table *hook_table(void)
{
    struct elf_object own;
    const void *real;
    const char *name;
    void *found;
    unsigned at = 0;
    if (table.count > 0 || !own_object(&own)) {
        return &table;
    }
    HEAP_ALLOCATOR_REQUIRED_LIST(ROW_ADD)
    HEAP_ALLOCATOR_OPTIONAL_LIST(ROW_ADD)
    ROW_ADD_BESIDE(reallocarray, realloc)
    ROW_ADD_BESIDE(cfree, free)
    while (heap_cxx_each_recorded(&at, &name, &found)) {
        hook_table_row_add(name, found, elf_symbol_in(&own, name));
    }
    table.allocator_count = table.count;
    HEAP_SYSTEM_REQUIRED_LIST(ROW_ADD)
    HEAP_SYSTEM_OPTIONAL_LIST(ROW_ADD)
    ROW_ADD_BESIDE(mmap64, mmap)
    ROW_ADD_BESIDE(_Exit, _exit)
    ROW_ADD_BESIDE(execl, execv)
    ROW_ADD_BESIDE(execlp, execvp)
    ROW_ADD_BESIDE(execle, execve)
    return &table;
}
