/* SPDX-License-Identifier: Apache-2.0 */
/* C only: shared by C tests */
/*
 * cmocka, as every test here gets it: stands before the system's header and adds cases that are found by themselves,
 * and that nothing is skipped in silence.
 *
 * A folder of tests is one program, NAME_OF_A_FILE… on its command line are the files whose cases run; without one it
 * lists them. A case says why it is skipped: skip("no clang here"), as of printf. Each one is reported on a line of
 * its own,
 *
 *   skipped case NAME: REASON
 *
 * and a file that skips all its cases ends with 77. skip_part("…") says of a case that goes on without something:
 * "skipped part of NAME: REASON". .ci/check_skips.py reads these lines.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include_next <cmocka.h> /* outside the guard: the next one may be this file again, by another path */

#ifndef VARVE_TEST_CMOCKA_H
#define VARVE_TEST_CMOCKA_H

#include <stdbool.h>

/// A case: TEST(test_name) { … }. Those of a file run in its order; the argument is cmocka's `void **state`.
#define TEST(name) TEST_WITH(name, NULL, NULL)
/// The same with functions of cmocka's that run before and after it.
#define TEST_WITH(name, setup, teardown)                                                   \
    static void name(void **state);                                                        \
    static const struct CMUnitTest name##_case[] = {{#name, name, setup, teardown, NULL}}; \
    TEST_ENTERS(name, __FILE__, __LINE__, name##_case, 1)                                  \
    static void name(__attribute__((unused)) void **state)
/// An array of struct CMUnitTest, where cases share functions. At the end of a file.
#define TEST_CASES(array) TEST_ENTERS(array, __FILE__, __LINE__, array, sizeof(array) / sizeof((array)[0]))
/// What runs before the first case of this file, and after its last one.
#define TEST_FILE(setup, teardown)                                  \
    __attribute__((constructor)) static void this_file_enters(void) \
    {                                                               \
        test_file_enter(__FILE__, setup, teardown);                 \
    }
#define TEST_ENTERS(name, file, line, cases, count)              \
    __attribute__((constructor)) static void name##_enters(void) \
    {                                                            \
        test_cases_enter(file, line, cases, count);              \
    }

void test_cases_enter(const char *file, int line, const struct CMUnitTest *cases, size_t count);
void test_file_enter(const char *file, CMFixtureFunction setup, CMFixtureFunction teardown);
/// The cases of the file of that name, "test_store": exit status 0, 77 if every case was skipped, else how many failed.
int test_file_run(const char *name);

/// Ends the running case, by longjmp as of an assertion.
void test_case_skip(const char *file, int line, const char *format, ...)
    __attribute__((noreturn, format(printf, 3, 4)));
void skip_part(const char *format, ...) __attribute__((format(printf, 1, 2)));
/// From the function before the first case of a file: none of them can run here. Ends the program with 77.
void skip_file(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/// First seed of a random test: VARVE_TEST_SEED, as a failed run names it, or the usual one. Printed.
uint64_t test_first_seed(uint64_t usual);
/// Whether inputs have their full size (`./dev test full`).
bool test_is_full(void);
/// How often a test repeats itself: `quick`, `full` where inputs have their full size, and under a sanitizer a tenth of
/// it, at least 1. What the repetitions find is the plain build's matter; each costs a sanitizer several times as much.
int test_rounds(int quick, int full);

/* cmocka's own names. NOLINTBEGIN(readability-identifier-naming) */
#undef skip
#define skip(...) test_case_skip(__FILE__, __LINE__, __VA_ARGS__)
/* NOLINTEND(readability-identifier-naming) */

#endif
