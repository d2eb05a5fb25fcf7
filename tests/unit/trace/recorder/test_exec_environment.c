/* SPDX-License-Identifier: Apache-2.0 */
/* Environments of programs that must not get the recorder: nothing else in them changes. */
#include "trace/recorder/exec_look.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const struct {
    const char *given, *left; /* of LD_PRELOAD; NULL: the variable is not there */
} lists[] = {
    {"/a/libvarve_preload.so", NULL},
    {"/a/libvarve_preload.so:", NULL},
    {":/a/libvarve_preload.so", NULL},
    {"/a/libvarve_preload.so:/b/user.so", "/b/user.so"},
    {"/b/user.so:/a/libvarve_preload.so", "/b/user.so"},
    {"/b/user.so /a/libvarve_preload.so c.so", "/b/user.so c.so"},
    {"/b/user.so::/a/libvarve_preload.so:/a/libvarve_preload.so:c.so", "/b/user.so::c.so"},
    {"libvarve_preload.so:/c/libvarve_preload.so:c.so", "c.so"},
    {"/libvarve_preload/user.so", "/libvarve_preload/user.so"},
    {"/b/notlibvarve_preload.so", "/b/notlibvarve_preload.so"},
    {"/b/user.so", "/b/user.so"},
};

/* The value of the entry, NULL if it is none of that variable. */
static const char *preload_of(const char *entry)
{
    return strncmp(entry, "LD_PRELOAD=", 11) == 0 ? entry + 11 : NULL;
}

TEST(test_lists)
{
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        char given[256] = "LD_PRELOAD=";
        strcat(given, lists[i].given);
        char before[sizeof(given)];
        memcpy(before, given, sizeof(given));
        char first[] = "A=libvarve_preload.so";
        char last[] = "LD_PRELOADED=/a/libvarve_preload.so";
        char *envp[] = {first, given, last, NULL};
        char **left = exec_environment_without(envp, test_malloc(exec_environment_bytes(envp)));
        assert_ptr_equal(left[0], envp[0]);
        const size_t kept = lists[i].left != NULL;
        if (kept) {
            assert_string_equal(preload_of(left[1]), lists[i].left);
        }
        assert_ptr_equal(left[1 + kept], envp[2]);
        assert_null(left[2 + kept]);
        assert_string_equal(given, before); /* which is the program's */
        test_free(left);
    }
}

TEST(test_nothing)
{
    char *envp[] = {NULL};
    for (unsigned i = 0; i < 2; i++) {
        char **left = exec_environment_without(i == 0 ? envp : NULL, test_malloc(exec_environment_bytes(envp)));
        assert_null(left[0]);
        test_free(left);
    }
}

TEST(test_recorder)
{
    char path[32] = "";
    char with[] = "LD_PRELOAD=/b/user.so /a/libvarve_preload.so:c.so";
    char without[] = "LD_PRELOAD=/b/user.so";
    char *envp[] = {with, NULL};
    assert_true(exec_environment_recorder(envp, path, sizeof(path)));
    assert_string_equal(path, "/a/libvarve_preload.so");
    assert_false(exec_environment_recorder(envp, path, sizeof("/a/libvarve_preload.so") - 1));
    assert_false(exec_environment_recorder(NULL, path, sizeof(path)));
    envp[0] = without;
    assert_false(exec_environment_recorder(envp, path, sizeof(path)));
}

TEST(test_order)
{
    static const struct {
        const char *list;
        enum exec_order order;
    } orders[] = {
        {"LD_PRELOAD=/a/libvarve_preload.so:/libasan.so/c.so", EXEC_ORDER_NONE},
        {"LD_PRELOAD=/a/libvarve_preload.so:/b/libasan.so.8", EXEC_ORDER_BEHIND},
        {"LD_PRELOAD=/b/libasan.so.8:/a/libvarve_preload.so", EXEC_ORDER_BEFORE},
        {"LD_PRELOAD=/a/libvarve_preload.so libclang_rt.asan-x86_64.so", EXEC_ORDER_BEHIND},
        {"OTHER=libasan.so", EXEC_ORDER_NONE},
    };
    for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++) {
        char entry[128];
        strcpy(entry, orders[i].list);
        char *envp[] = {entry, NULL};
        assert_int_equal(exec_environment_order(envp), orders[i].order);
    }
    assert_int_equal(exec_environment_order(NULL), EXEC_ORDER_NONE);
}
