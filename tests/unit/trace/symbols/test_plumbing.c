/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which frame of a stack is the user's: patterns against a naive matcher, ranks by examples as compilers, demanglers
 * and Python write them, and bad patterns.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "tests/support/random.h"
#include "trace/symbols/callsites/plumbing.h"

#include <string.h>

/* By its definition: a star is nothing, or one character more. */
static bool naive_match(const char *pattern, const char *text)
{
    if (*pattern == '\0') {
        return *text == '\0';
    }
    if (*pattern == '*') {
        return naive_match(pattern + 1, text) || (*text != '\0' && naive_match(pattern, text + 1));
    }
    return *pattern == *text && naive_match(pattern + 1, text + 1);
}

static void random_text(uint64_t *random, const char *letters, char *text)
{
    const uint64_t length = random_next(random) % 9;
    for (uint64_t i = 0; i < length; i++) {
        text[i] = letters[random_next(random) % strlen(letters)];
    }
    text[length] = '\0';
}

TEST(test_match)
{
    uint64_t random = 1;
    unsigned matched = 0;
    for (unsigned i = 0; i < 200000; i++) {
        char pattern[16];
        random_text(&random, "ab**", pattern);
        char text[16];
        random_text(&random, "ab", text);
        if (plumbing_match(pattern, text) != naive_match(pattern, text)) {
            fail_msg("'%s' against '%s'", pattern, text);
        }
        matched += naive_match(pattern, text);
    }
    assert_in_range(matched, 1000, 199000); /* both answers were tried */
}

static enum varve_frame_rank rank(const struct varve_plumbing *plumbing, bool is_python, const char *function,
                                  const char *file, const char *module)
{
    const struct varve_writer_symbol symbol = {
        .function = function, .file = file, .module = module, .line = file != NULL ? 7 : 0, .is_python = is_python};
    return varve_plumbing_rank(plumbing, &symbol);
}

TEST(test_native)
{
    static const struct {
        const char *function, *file, *module;
        enum varve_frame_rank rank;
    } cases[] = {
        {"malloc", NULL, "/usr/lib/x86_64-linux-gnu/libc.so.6", VARVE_FRAME_PLUMBING},
        {"main", "main.c", "/opt/me/a.out", VARVE_FRAME_SOURCE},
        {"main", NULL, "/opt/me/a.out", VARVE_FRAME_NAMED},
        {NULL, NULL, "/usr/bin/git", VARVE_FRAME_UNNAMED},
        {NULL, NULL, NULL, VARVE_FRAME_PLUMBING},
        {NULL, NULL, "/usr/bin/python3.11", VARVE_FRAME_PLUMBING},
        {"Py_InitializeFromConfig", NULL, "/usr/bin/python3.11", VARVE_FRAME_RUNTIME},
        {"arena_map_get", "Objects/obmalloc.c", "/opt/me/lib/libpython3.13.so.1.0", VARVE_FRAME_RUNTIME},
        {"PyList_New", NULL, "/usr/bin/python3.11", VARVE_FRAME_PLUMBING},
        {"load", "ext.c", "/usr/lib/python3/dist-packages/ext.so", VARVE_FRAME_SOURCE},
        {"G1CollectedHeap::initialize()", NULL, "/usr/lib/jvm/java-17/lib/server/libjvm.so", VARVE_FRAME_RUNTIME},
        {"_IO_file_doallocate", "./libio/filedoalloc.c", "/usr/lib/libc.so.6", VARVE_FRAME_RUNTIME},
        {"clone3", NULL, "/usr/lib/libc.so.6", VARVE_FRAME_PLUMBING},
        {"Request::operator new(unsigned long)", "request.cc", "/opt/me/a.out", VARVE_FRAME_PLUMBING},
        {"Request::operator==(Request const&)", "request.cc", "/opt/me/a.out", VARVE_FRAME_SOURCE},
        {"htab_find_slot", NULL, "/usr/lib/libiberty.so", VARVE_FRAME_PLUMBING},
        {"OPENSSL_sk_push", NULL, "/usr/lib/libcrypto.so.3", VARVE_FRAME_PLUMBING},
        {"appendStringInfoString", NULL, "/usr/bin/postgres", VARVE_FRAME_PLUMBING},
        {"v8::internal::BackingStore::Allocate(int)", NULL, "/usr/bin/node", VARVE_FRAME_PLUMBING},
        {NULL, NULL, "/lib/x86_64-linux-gnu/libc.so.6", VARVE_FRAME_PLUMBING},
        {"zmalloc", "zmalloc.c", "/usr/bin/redis-server", VARVE_FRAME_PLUMBING},
        {"sdsnewlen", "sds.c", "/usr/bin/redis-server", VARVE_FRAME_SOURCE},
        {"g_malloc0", NULL, "/usr/lib/libglib-2.0.so.0", VARVE_FRAME_PLUMBING},
        {"operator new(unsigned long)", NULL, "/usr/lib/libstdc++.so.6", VARVE_FRAME_PLUMBING},
        {"std::vector<int, std::allocator<int> >::push_back(int const&)", "/usr/include/c++/12/bits/stl_vector.h",
         "/opt/me/a.out", VARVE_FRAME_PLUMBING},
        {"void std::vector<int>::_M_realloc_insert<int>(int)", NULL, "/opt/me/a.out", VARVE_FRAME_PLUMBING},
        {"cache::insert(std::string const&)", "cache.cc", "/opt/me/a.out", VARVE_FRAME_SOURCE},
        {"my::vec_grow()", "vec.cc", "/opt/me/a.out", VARVE_FRAME_SOURCE},
        {"alloc::vec::Vec<T>::push", "/rustc/90b35a6/library/alloc/src/vec/mod.rs", "/opt/me/app",
         VARVE_FRAME_PLUMBING},
        {"app::parse", "src/main.rs", "/opt/me/app", VARVE_FRAME_SOURCE},
        {"PyDataMem_UserNEW", NULL, "/usr/lib/python3/dist-packages/numpy/core/_multiarray_umath.so",
         VARVE_FRAME_PLUMBING},
        {"_PyEval_EvalFrameDefault", NULL, "/usr/bin/python3.11", VARVE_FRAME_PLUMBING},
        {"varve_storage_empty", "storage.c", "/opt/lib/libvarve.so.1", VARVE_FRAME_RUNTIME},
        {"__libc_start_main", NULL, "/opt/me/static", VARVE_FRAME_PLUMBING},
    };
    struct varve_plumbing *plumbing;
    assert_int_equal(varve_plumbing_open(&plumbing), VARVE_OK);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const enum varve_frame_rank got = rank(plumbing, false, cases[i].function, cases[i].file, cases[i].module);
        if (got != cases[i].rank) {
            fail_msg("%s: rank %d, not %d", cases[i].function != NULL ? cases[i].function : "(unnamed)", (int)got,
                     (int)cases[i].rank);
        }
    }
    varve_plumbing_close(plumbing);
}

TEST(test_python)
{
    static const struct {
        const char *file;
        enum varve_frame_rank rank;
    } cases[] = {
        {"/opt/me/train.py", VARVE_FRAME_USER},
        {"train.py", VARVE_FRAME_USER},
        {"/tmp/ipykernel_12/3.py", VARVE_FRAME_USER},
        {"<string>", VARVE_FRAME_GENERATED},
        {"<ipython-input-3-abc>", VARVE_FRAME_GENERATED},
        {"<frozen importlib._bootstrap>", VARVE_FRAME_PLUMBING},
        {"<frozen runpy>", VARVE_FRAME_LIBRARY},
        {"/usr/lib/python3.11/json/decoder.py", VARVE_FRAME_LIBRARY},
        {"/usr/lib/python3/dist-packages/numpy/core/numeric.py", VARVE_FRAME_LIBRARY},
        {"/opt/me/venv/lib/python3.12/site-packages/flask/app.py", VARVE_FRAME_LIBRARY},
        {"/opt/me/miniconda3/lib/python3.10/threading.py", VARVE_FRAME_LIBRARY},
        {NULL, VARVE_FRAME_LIBRARY},
    };
    struct varve_plumbing *plumbing;
    assert_int_equal(varve_plumbing_open(&plumbing), VARVE_OK);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (rank(plumbing, true, "f", cases[i].file, NULL) != cases[i].rank) {
            fail_msg("%s: rank %d", cases[i].file != NULL ? cases[i].file : "(no file)",
                     (int)rank(plumbing, true, "f", cases[i].file, NULL));
        }
    }
    varve_plumbing_close(plumbing);
}

TEST(test_patterns_of_users)
{
    struct varve_message message = {0};
    struct varve_plumbing *plumbing;
    assert_int_equal(varve_plumbing_open(&plumbing), VARVE_OK);
    assert_int_equal(rank(plumbing, false, "arena_get", "arena.c", "/a"), VARVE_FRAME_SOURCE);
    assert_int_equal(varve_plumbing_add(plumbing, "arena_*", &message), VARVE_OK);
    assert_int_equal(rank(plumbing, false, "arena_get", "arena.c", "/a"), VARVE_FRAME_PLUMBING);
    assert_int_equal(varve_plumbing_add(plumbing, "*/third_party/*", &message), VARVE_OK);
    assert_int_equal(rank(plumbing, false, "f", "/src/third_party/x.c", "/a"), VARVE_FRAME_PLUMBING);
    assert_int_equal(rank(plumbing, false, "f", "/src/x.c", "/opt/third_party/a.so"), VARVE_FRAME_RUNTIME);
    assert_int_equal(rank(plumbing, true, "f", "/src/third_party/x.py", NULL), VARVE_FRAME_PLUMBING);
    assert_int_equal(
        varve_plumbing_add_lines(plumbing, "# mine\n\n  library:/opt/framework/* \r\nfunction:helper\n", &message),
        VARVE_OK);
    assert_int_equal(rank(plumbing, true, "f", "/opt/framework/a.py", NULL), VARVE_FRAME_LIBRARY);
    assert_int_equal(rank(plumbing, true, "helper", "/me/a.py", NULL), VARVE_FRAME_PLUMBING);
    assert_int_equal(varve_plumbing_add(plumbing, "", &message), VARVE_ERROR_INVALID);
    assert_int_equal(varve_plumbing_add(plumbing, "module:", &message), VARVE_ERROR_INVALID);
    assert_non_null(strstr(message.text, "'module:'"));
    assert_int_equal(varve_plumbing_add_lines(plumbing, "a\nfile:\n", &message), VARVE_ERROR_INVALID);
    assert_non_null(strstr(message.text, "line 2"));
    varve_plumbing_close(plumbing);
}
