/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cases of a cmocka program, which have entered themselves before main, and the runs of one file's. Counts the
 * skipped ones, which cmocka itself reports as passed. It does not say which case is running: the setup of each is
 * replaced by one that does.
 */
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXIT_SKIPPED 77
#define CASES_MAX 2048
#define FILES_WITH_FIXTURE_MAX 256

struct entry {
    const char *file;
    int line;
    const struct CMUnitTest *cases;
    size_t count;
};

struct file_fixture {
    const char *file;
    CMFixtureFunction setup, teardown;
};

static struct entry entries[CASES_MAX];
static struct file_fixture fixtures[FILES_WITH_FIXTURE_MAX];
static size_t entry_count, fixture_count;

static struct {
    const struct CMUnitTest *cases;
    size_t begun; /* cases; the last one of them is running */
    size_t skipped;
} run;

void test_cases_enter(const char *file, int line, const struct CMUnitTest *cases, size_t count)
{
    if (entry_count == CASES_MAX) {
        abort();
    }
    entries[entry_count++] = (struct entry){file, line, cases, count};
}

void test_file_enter(const char *file, CMFixtureFunction setup, CMFixtureFunction teardown)
{
    if (fixture_count == FILES_WITH_FIXTURE_MAX) {
        abort();
    }
    fixtures[fixture_count++] = (struct file_fixture){file, setup, teardown};
}

uint64_t test_first_seed(uint64_t usual)
{
    const char *text = getenv("VARVE_TEST_SEED");
    uint64_t seed = text != NULL && *text != '\0' ? strtoull(text, NULL, 0) : usual;
    printf("seeds from %llu on (VARVE_TEST_SEED)\n", (unsigned long long)seed);
    return seed;
}

bool test_is_full(void)
{
    const char *text = getenv("VARVE_FULL");
    return text != NULL && *text != '\0';
}

int test_rounds(int quick, int full)
{
    const char *sanitizer = getenv("VARVE_SANITIZE");
    bool is_plain = sanitizer == NULL || strcmp(sanitizer, "none") == 0;
    int rounds = test_is_full() ? full : quick;
    return is_plain ? rounds : rounds / 10 > 0 ? rounds / 10 : 1;
}

static int case_begin(void **state)
{
    const struct CMUnitTest *begins = &run.cases[run.begun++];
    return begins->setup_func != NULL ? begins->setup_func(state) : 0;
}

__attribute__((format(printf, 2, 0))) static void skip_say(const char *what, const char *format, va_list arguments)
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

void skip_file(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    printf("skipped: ");
    vprintf(format, arguments);
    putchar('\n');
    va_end(arguments);
    exit(EXIT_SKIPPED);
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

/* Whether `file` is NAME.c, in whatever folder. */
static bool has_name(const char *file, const char *name)
{
    const char *base = strrchr(file, '/');
    size_t length = strlen(name);
    base = base != NULL ? base + 1 : file;
    return strncmp(base, name, length) == 0 && base[length] == '.';
}

static int compare_lines(const void *left, const void *right)
{
    const struct entry *a = left, *b = right;
    return a->line < b->line ? -1 : a->line > b->line;
}

static size_t collect(const char *name, struct CMUnitTest *cases)
{
    static struct entry found[CASES_MAX];
    size_t found_count = 0, count = 0;
    for (size_t i = 0; i < entry_count; i++) {
        if (has_name(entries[i].file, name)) {
            found[found_count++] = entries[i];
        }
    }
    qsort(found, found_count, sizeof(found[0]), compare_lines);
    for (size_t i = 0; i < found_count; i++) {
        for (size_t j = 0; j < found[i].count && count < CASES_MAX; j++) {
            cases[count++] = found[i].cases[j];
        }
    }
    return count;
}

int test_file_run(const char *name)
{
    static struct CMUnitTest cases[CASES_MAX], wrapped[CASES_MAX];
    size_t count = collect(name, cases);
    CMFixtureFunction setup = NULL, teardown = NULL;
    if (count == 0) {
        printf("%s: no such file of cases in this program\n", name);
        return 1;
    }
    for (size_t i = 0; i < fixture_count; i++) {
        if (has_name(fixtures[i].file, name)) {
            setup = fixtures[i].setup;
            teardown = fixtures[i].teardown;
        }
    }
    memcpy(wrapped, cases, sizeof(wrapped));
    for (size_t i = 0; i < count; i++) {
        wrapped[i].setup_func = case_begin;
    }
    run.cases = cases;
    run.begun = run.skipped = 0;
    int failed = _cmocka_run_group_tests(name, wrapped, count, setup, teardown);
    if (failed == 0 && run.begun < count) {
        printf("only %zu of %zu cases were run\n", run.begun, count);
        return 1;
    }
    return failed == 0 && run.skipped == count ? EXIT_SKIPPED : failed;
}

/* What a file has that brings no main of its own. */
__attribute__((weak)) int main(int argc, char **argv)
{
    int failed = 0, skipped = 0;
    for (int i = 1; i < argc; i++) {
        int status = test_file_run(argv[i]);
        skipped += status == EXIT_SKIPPED;
        failed += status != EXIT_SKIPPED ? status : 0;
    }
    for (size_t i = 0; argc < 2 && i < entry_count; i++) {
        for (size_t j = 0; j < entries[i].count; j++) {
            printf("%s:%d: %s\n", entries[i].file, entries[i].line, entries[i].cases[j].name);
        }
    }
    return failed == 0 && skipped > 0 && skipped == argc - 1 ? EXIT_SKIPPED : failed;
}
