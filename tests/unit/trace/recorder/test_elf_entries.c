/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Entries of a library whose calls are bound when they are first made: what was not bound when it was replaced is not
 * bound after that either, which shows by a replacement of entries that hold an address that none has.
 * Costs: 1 s
 */
#include "trace/recorder/guest/elf_entries.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

#define NOWHERE ((uintptr_t)1)

static long parent_by_plugin(void *plugin)
{
    void *symbol = dlsym(plugin, "plugin_parent");
    long (*function)(void);
    memcpy(&function, &symbol, sizeof(function));
    return function();
}

static pid_t hook(void)
{
    return -4711;
}

static struct elf_replacement replacement(uintptr_t from)
{
    return (struct elf_replacement){.name = "getppid", .from = from, .to = (uintptr_t)hook};
}

TEST(test_what_is_not_bound)
{
    const struct elf_replacement of_bound = replacement((uintptr_t)dlsym(RTLD_DEFAULT, "getppid"));
    const struct elf_replacement of_unbound = replacement(NOWHERE);
    void *plugin = dlopen(VARVE_BUILD_DIR "/programs/lib_deep_plugin.so", RTLD_LAZY | RTLD_LOCAL);
    assert_non_null(plugin);
    for (unsigned round = 0; round < 3; round++) { /* none of them binds it */
        assert_true(elf_entries_replace(round < 2 ? &of_bound : &of_unbound, 1, false) > 0);
        assert_int_equal(parent_by_plugin(plugin), -4711);
        assert_true(elf_entries_restore(round < 2 ? &of_bound : &of_unbound, 1) > 0);
    }
    assert_int_equal(parent_by_plugin(plugin), getppid()); /* this does */
    elf_entries_replace(&of_unbound, 1, false);
    assert_int_equal(parent_by_plugin(plugin), getppid());
    assert_true(elf_entries_replace(&of_bound, 1, false) > 0);
    assert_int_equal(parent_by_plugin(plugin), -4711);
    elf_entries_restore(&of_bound, 1);
    assert_int_equal(parent_by_plugin(plugin), getppid());
    dlclose(plugin);
}
