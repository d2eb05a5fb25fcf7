/* SPDX-License-Identifier: Apache-2.0 */
/* C only: shared by C tests */
/*
 * cmocka, as every test here gets it: stands before the system's header and adds that nothing is skipped in
 * silence. A case says why it is skipped: skip("no clang here"), as of printf. Each one is reported on a line of
 * its own,
 *
 *   skipped case NAME: REASON
 *
 * and a program that skips all its cases exits with 77. skip_part("…") says of a case that goes on without
 * something: "skipped part of NAME: REASON". A program that can't run at all prints "skipped: REASON" and
 * exits with 77 itself. .ci/check_skips.py reads these lines.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include_next <cmocka.h> /* outside the guard: the next one may be this file again, by another path */

#ifndef VARVE_TEST_CMOCKA_H
#define VARVE_TEST_CMOCKA_H

/// Ends the running case, by longjmp as of an assertion.
void test_case_skip(const char *file, int line, const char *format, ...)
    __attribute__((noreturn, format(printf, 3, 4)));
void skip_part(const char *format, ...) __attribute__((format(printf, 1, 2)));
/// Exit status of main: 0, 77 if every case was skipped, else the number of those that failed, 1 at least.
int test_cases_run(const char *name, const struct CMUnitTest *cases, size_t count, CMFixtureFunction setup,
                   CMFixtureFunction teardown);

/// First seed of a random test: VARVE_TEST_SEED, as a failed run names it, or the usual one. Printed.
uint64_t test_first_seed(uint64_t usual);

/// How often a long test repeats itself: `usual`, under a sanitizer a tenth of it, at least 1. What the repetitions find
/// is the plain build's matter; each of them costs a sanitizer several times as much.
int test_rounds(int usual);

/* cmocka's own names. NOLINTBEGIN(readability-identifier-naming) */
#undef skip
#define skip(...) test_case_skip(__FILE__, __LINE__, __VA_ARGS__)

#undef cmocka_run_group_tests
#define cmocka_run_group_tests(cases, setup, teardown) \
    cmocka_run_group_tests_name(#cases, cases, setup, teardown)
#undef cmocka_run_group_tests_name
#define cmocka_run_group_tests_name(name, cases, setup, teardown) \
    test_cases_run(name, cases, sizeof(cases) / sizeof((cases)[0]), setup, teardown)
/* NOLINTEND(readability-identifier-naming) */

#endif
