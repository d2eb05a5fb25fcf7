/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which names are allocation functions, which the interpreter's, which our own: by examples of both kinds, as
 * compilers, C++ demanglers and Python builds write them.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "trace/sites_reader_internal.h"

static void test_allocation_functions(void **state)
{
    static const char *const names[] = {
        "malloc",
        "calloc",
        "realloc",
        "reallocarray",
        "posix_memalign",
        "aligned_alloc",
        "memalign",
        "valloc",
        "pvalloc",
        "strdup",
        "strndup",
        "__strdup",
        "operator new(unsigned long)",
        "operator new[](unsigned long, std::align_val_t)",
        "mmap",
        "mmap64",
        "mremap",
        "g_malloc",
        "g_malloc0_n",
        "g_try_realloc",
        "xmalloc",
        "xrealloc",
        "xcalloc",
        "xstrdup",
        "PyMem_RawMalloc",
        "PyMem_Malloc",
        "PyObject_Malloc",
        "_PyObject_GC_Alloc",
        "_PyMem_RawMalloc",
        "xmalloc.part.0",
        "malloc.cold",
        "std::allocator<int>::allocate(unsigned long, void const*)",
        "std::allocator_traits<std::allocator<int> >::allocate(std::allocator<int>&, unsigned long)",
        "__gnu_cxx::new_allocator<char>::allocate(unsigned long)",
        "std::__new_allocator<char>::allocate(unsigned long, void const*)",
        "strdup@@GLIBC_2.2.5",
        "__GI___strdup",
        "std::_Vector_base<int, std::allocator<int> >::_M_allocate(unsigned long)",
        "std::__cxx11::basic_string<char>::_M_create(unsigned long&, unsigned long)",
        "node* std::_Rb_tree<int>::_M_create_node<int const&>(int const&)"};

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        if (!sites_name_is_allocation(names[i]))
            fail_msg("%s is an allocation function", names[i]);
    }
}

static void test_other_functions(void **state)
{
    static const char *const names[] = {"main",
                                        "mallocate",
                                        "mallo",
                                        "malloc_info",
                                        "my_malloc",
                                        "",
                                        "operator new_thing()",
                                        "PyObject_Call",
                                        "std::allocator<int>::deallocate(int*, unsigned long)",
                                        "std::vector<int>::push_back(int const&)",
                                        "zmalloc",
                                        "a",
                                        "xm"};

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        if (sites_name_is_allocation(names[i]))
            fail_msg("%s is no allocation function", names[i]);
    }
}

static void test_interpreter_and_recorder(void **state)
{
    (void)state;
    assert_true(sites_name_is_interpreter_loop("_PyEval_EvalFrameDefault"));
    assert_true(sites_name_is_interpreter_loop("_PyEval_EvalFrameDefault.constprop.0"));
    assert_true(sites_name_is_interpreter_loop("_PyEval_EvalFrameDefault.cold"));
    assert_false(sites_name_is_interpreter_loop("_PyEval_EvalFrame"));
    assert_false(sites_name_is_interpreter_loop("PyEval_EvalCode"));
    assert_true(sites_path_is_interpreter("/usr/bin/python3.11"));
    assert_true(sites_path_is_interpreter("python3"));
    assert_true(sites_path_is_interpreter("/x/libpython3.12.so.1.0"));
    assert_false(sites_path_is_interpreter("/usr/lib/python3/dist-packages/x.so"));
    assert_false(sites_path_is_interpreter("/usr/bin/python-helper"));
    assert_true(sites_path_is_recorder("/a/libvarve_preload.so"));
    assert_true(sites_path_is_recorder("libvarve_trace.so.0"));
    assert_false(sites_path_is_recorder("/a/libvarve_preload.so/libc.so.6"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_allocation_functions),
        cmocka_unit_test(test_other_functions),
        cmocka_unit_test(test_interpreter_and_recorder),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
