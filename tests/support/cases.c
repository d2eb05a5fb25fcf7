/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the cases of a cmocka program and counts the skipped ones, which cmocka itself reports as passed. It
 * does not say which case is running: the setup of each is replaced by one that does.
 */
#include <cmocka.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXIT_SKIPPED 77

static struct {
    const struct CMUnitTest *cases;
    size_t begun; /* cases; the last one of them is running */
    size_t skipped;
} run;

uint64_t test_first_seed(uint64_t usual)
{
    const char *text = getenv("VARVE_TEST_SEED");
    uint64_t seed = text != NULL && *text != '\0' ? strtoull(text, NULL, 0) : usual;

    printf("seeds from %llu on (VARVE_TEST_SEED)\n", (unsigned long long)seed);
    return seed;
}

int test_rounds(int usual)
{
    const char *sanitizer = getenv("VARVE_SANITIZE");
    bool is_plain = sanitizer == NULL || strcmp(sanitizer, "none") == 0;

    return is_plain ? usual : usual / 10 > 0 ? usual / 10 : 1;
}

static int case_begin(void **state)
{
    const struct CMUnitTest *begins = &run.cases[run.begun++];

    return begins->setup_func != NULL ? begins->setup_func(state) : 0;
}

__attribute__((format(printf, 2, 0))) static void skip_say(const char *what, const char *format,
                                                           va_list arguments)
{
    printf("skipped %s %s: ", what, run.cases[run.begun - 1].name);
    vprintf(format, arguments);
    putchar('\n');
    fflush(stdout);
}

void skip_part(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    skip_say("part of", format, arguments);
    va_end(arguments);
}

void test_case_skip(const char *file, int line, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    skip_say("case", format, arguments);
    va_end(arguments);
    run.skipped++;
    _skip(file, line);
    abort(); /* it does not return */
}

int test_cases_run(const char *name, const struct CMUnitTest *cases, size_t count, CMFixtureFunction setup,
                   CMFixtureFunction teardown)
{
    struct CMUnitTest *wrapped = malloc(count * sizeof(*wrapped));
    int failed;

    if (wrapped == NULL) {
        abort();
    }
    memcpy(wrapped, cases, count * sizeof(*wrapped));
    for (size_t i = 0; i < count; i++) {
        wrapped[i].setup_func = case_begin;
    }
    run.cases = cases;
    failed = _cmocka_run_group_tests(name, wrapped, count, setup, teardown);
    free(wrapped);
    if (failed == 0 && run.begun < count) {
        printf("only %zu of %zu cases were run\n", run.begun, count);
        return 1;
    }
    return failed == 0 && run.skipped == count ? EXIT_SKIPPED : failed;
}
