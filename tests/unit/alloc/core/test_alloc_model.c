/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The allocator against its naive model on random operations: runs of some thousand steps, each with
 * settings, sizes and habits of its own. Every run happens in a process of its own, so that a failed
 * assertion is a difference like any other. A difference is shrunk first (chunks of operations are dropped
 * while it remains, then single ones), then printed as a list of operations, and fails the test.
 *
 * Costs: 3 s
 */
#include "support/alloc/pair.h"
#include "support/alloc/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB UINT64_C(0x100000)
/* ---- running and shrinking ---- */

static void child_run(int file, const struct alloc_pair_setup *setup, const struct alloc_pair_op *ops, size_t count,
                      bool is_quiet)
{
    static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGSYS};
    struct alloc_pair_difference difference = {0};
    bool is_equal;

    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
        signal(signals[i], SIG_DFL); /* cmocka's handlers would go on with the tests in this process */
    }
    if (is_quiet) {
        int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);

        dup2(nowhere, STDERR_FILENO);
        close(nowhere);
    }
    is_equal = alloc_pair_run(setup, ops, count, &difference);
    if (!is_equal && write(file, &difference, sizeof(difference)) != (ssize_t)sizeof(difference)) {
        abort();
    }
    close(file);
    exit(0);
}

/* In a process of its own; false with the difference, of which a crash is one. */
static bool run_apart(const struct alloc_pair_setup *setup, const struct alloc_pair_op *ops, size_t count,
                      bool is_quiet, struct alloc_pair_difference *difference_out)
{
    int ends[2];
    int status = 0;
    ssize_t got;
    pid_t child;

    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    fflush(NULL);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        child_run(ends[1], setup, ops, count, is_quiet);
    }
    close(ends[1]);
    memset(difference_out, 0, sizeof(*difference_out));
    got = read(ends[0], difference_out, sizeof(*difference_out));
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (got == (ssize_t)sizeof(*difference_out)) {
        return false;
    }
    if (status != 0) {
        difference_out->step = count - 1;
        snprintf(difference_out->text, sizeof(difference_out->text), "the run ended with wait status %#x", status);
        return false;
    }
    return true;
}

/* Drop what is not needed for a difference; the number of operations left in `ops`. */
static size_t ops_shrink(const struct alloc_pair_setup *setup, struct alloc_pair_op *ops, size_t count,
                         struct alloc_pair_difference *difference)
{
    struct alloc_pair_op *trial = calloc(count, sizeof(*trial));
    struct alloc_pair_setup careful = *setup;
    struct alloc_pair_difference found;
    bool is_smaller = true;

    assert_non_null(trial);
    careful.check_every = 1;
    for (size_t chunk = count / 2; chunk > 0; chunk = is_smaller && chunk == 1 ? 1 : chunk / 2) {
        is_smaller = false;
        for (size_t start = 0; start < count;) {
            size_t end = start + chunk < count ? start + chunk : count;
            size_t left = count - (end - start);

            memcpy(trial, ops, start * sizeof(*ops));
            memcpy(trial + start, ops + end, (count - end) * sizeof(*ops));
            if (left == 0 || run_apart(&careful, trial, left, true, &found)) {
                start = end;
                continue;
            }
            *difference = found;
            is_smaller = true;
            count = found.step + 1 < left ? found.step + 1 : left;
            memcpy(ops, trial, count * sizeof(*ops));
        }
    }
    free(trial);
    return count;
}

static void difference_report(const struct alloc_pair_setup *setup, struct alloc_pair_op *ops, size_t count,
                              struct alloc_pair_difference *difference, uint64_t seed)
{
    char first[sizeof(difference->text)];

    memcpy(first, difference->text, sizeof(first));
    if (difference->step + 1 < count) {
        count = difference->step + 1;
    }
    count = ops_shrink(setup, ops, count, difference);
    fprintf(stderr, "seed %" PRIu64 ": %s\nafter %zu operations with ", seed, first, count);
    alloc_pair_print_setup(stderr, setup);
    for (size_t i = 0; i < count; i++) {
        fprintf(stderr, "%4zu ", i);
        alloc_pair_print_op(stderr, &ops[i]);
    }
    fail_msg("seed %" PRIu64 ", step %zu of %zu: %s", seed, difference->step, count, difference->text);
}

TEST(test_random_operations)
{
    uint64_t seed = test_first_seed(1);
    uint64_t steps = (uint64_t)test_rounds(200000, 200000);
    struct alloc_pair_op *ops = calloc(ALLOC_RANDOM_STEPS_MAX, sizeof(*ops));
    size_t count;

    assert_non_null(ops);
    for (uint64_t done = 0; done < steps; done += count, seed++) {
        struct alloc_pair_difference difference;
        struct alloc_pair_setup setup = {.capacity = 0};

        count = alloc_random_run(seed, &setup, ops);
        if (!run_apart(&setup, ops, count, false, &difference)) {
            difference_report(&setup, ops, count, &difference, seed);
        }
    }
    free(ops);
}

/* Too rare for chance: the memory of a pool that may go is unmapped while another pool is being allocated to.
 * The synchronisation with its stream completes what a pending block of a third pool waits for. */
TEST(test_unmap_synchronizes)
{
    static const struct alloc_pair_op ops[] = {
        {.kind = ALLOC_PAIR_BEGIN, .pick = 0},
        {.kind = ALLOC_PAIR_ALLOC, .bytes = 30 * MIB},
        {.kind = ALLOC_PAIR_END, .pick = 0},
        {.kind = ALLOC_PAIR_RELEASE, .pick = 0},
        {.kind = ALLOC_PAIR_FREE},
        {.kind = ALLOC_PAIR_ALLOC, .bytes = 1000, .stream = 1},
        {.kind = ALLOC_PAIR_ALLOC, .bytes = 2000, .stream = 1},
        {.kind = ALLOC_PAIR_RECORD_STREAM, .pick = 0, .stream = 0},
        {.kind = ALLOC_PAIR_RECORD_STREAM, .pick = 1, .stream = 2},
        {.kind = ALLOC_PAIR_FREE},
        {.kind = ALLOC_PAIR_FREE},
        {.kind = ALLOC_PAIR_BEGIN, .pick = 1},
        {.kind = ALLOC_PAIR_EMPTY_CACHE},
        {.kind = ALLOC_PAIR_END, .pick = 1},
        {.kind = ALLOC_PAIR_ALLOC, .bytes = 3000, .stream = 1},
    };
    struct alloc_pair_setup setup = {.capacity = 1000 * MIB, .check_every = 1};
    struct alloc_pair_difference difference;

    varve_alloc_config_init(&setup.config);
    setup.config.expandable_segments = true;
    if (!alloc_pair_run(&setup, ops, sizeof(ops) / sizeof(ops[0]), &difference)) {
        fail_msg("step %zu: %s", difference.step, difference.text);
    }
}
