/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who calls what when entries, and definitions, lead elsewhere: a library whose calls are bound when they are first
 * made, one that is opened afterwards, and dlsym.
 * Costs: 1 s
 */
#include "trace/guest/elf_entries.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

static void *plugin_open(int mode)
{
    void *plugin = dlopen(VARVE_BUILD_DIR "/programs/lib_deep_plugin.so", RTLD_LAZY | RTLD_LOCAL | mode);
    assert_non_null(plugin);
    return plugin;
}

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

static struct elf_replacement replacement(void)
{
    return (struct elf_replacement){
        .name = "getppid", .from = (uintptr_t)dlsym(RTLD_DEFAULT, "getppid"), .to = (uintptr_t)hook};
}

static void c_library(struct elf_object *object)
{
    assert_true(elf_symbol_object("__libc_start_main", object));
    object->may_go = false;
}

TEST(test_entries)
{
    const struct elf_replacement of = replacement();
    void *plugin = plugin_open(0);
    elf_entries_replace(&of, 1);
    assert_int_equal(parent_by_plugin(plugin), getppid()); /* its entry was not bound, and is now */
    elf_entries_restore(&of, 1);
    assert_true(elf_entries_replace(&of, 1) > 0);
    assert_int_equal(parent_by_plugin(plugin), -4711);
    assert_true(elf_entries_restore(&of, 1) > 0);
    assert_int_equal(parent_by_plugin(plugin), getppid());
    dlclose(plugin);
}

TEST(test_definitions)
{
    const struct elf_replacement of = replacement();
    const struct elf_replacement elsewhere = {.name = "getppid", .from = of.from + 1, .to = of.to};
    struct elf_object object;
    c_library(&object);
    for (unsigned round = 0; round < 3; round++) {
        assert_true(elf_definitions_replace(&object, &elsewhere, 1));
        assert_ptr_equal(dlsym(RTLD_DEFAULT, "getppid"), (void *)of.from);
        void *plugin = plugin_open(round == 1 ? RTLD_DEEPBIND : 0);
        assert_true(elf_definitions_replace(&object, &of, 1));
        assert_ptr_equal(dlsym(RTLD_DEFAULT, "getppid"), (void *)of.to);
        assert_int_equal(parent_by_plugin(plugin), -4711);
        assert_true(elf_definitions_restore(&object, &of, 1));
        assert_ptr_equal(dlsym(RTLD_DEFAULT, "getppid"), (void *)of.from);
        assert_int_equal(parent_by_plugin(plugin), -4711); /* what is bound stays so */
        assert_true(elf_entries_restore(&of, 1) > 0);
        assert_int_equal(parent_by_plugin(plugin), getppid());
        dlclose(plugin);
    }
}
