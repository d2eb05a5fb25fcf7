/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The native stack walk where a malloc hook may find itself: in signal handlers at arbitrary instructions, on
 * signal stacks, in threads, on coroutines, in fork children. Compared with backtrace(), frame for frame.
 * Program of its own: it stands in for functions of the product.
 * Costs: 1 s
 */
#include "support/native_stack_samples.h"

#if defined(__has_feature)
#if __has_feature(thread_sanitizer) && !defined(__SANITIZE_THREAD__)
#define __SANITIZE_THREAD__ 1 /* as gcc says it */
#endif
#endif

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

/* ---- signals ---- */

static void handle(int number)
{
    (void)number;
    hook();
}

static void handler_install(int number, int flags)
{
    struct sigaction action = {.sa_handler = handle, .sa_flags = flags};
    sigemptyset(&action.sa_mask);
    assert_int_equal(sigaction(number, &action, NULL), 0);
}

static NOINLINE int raise_deep(int depth)
{
    int result = depth == 0 ? raise(SIGUSR1) : raise_deep(depth - 1);
    KEEP_FRAME();
    return result;
}

TEST(test_signal)
{
    samples_begin();
    handler_install(SIGUSR1, 0);
    for (int depth = 0; depth < 20; depth++) {
        raise_deep(depth);
    }
    samples_expect(20);
    assert_int_equal(interrupted, 20);
}

TEST(test_signal_stack)
{
    size_t bytes = 65536;
    stack_t stack = {.ss_sp = malloc(bytes), .ss_size = bytes};
    stack_t none = {.ss_flags = SS_DISABLE};
    samples_begin();
    assert_int_equal(sigaltstack(&stack, NULL), 0);
    handler_install(SIGUSR1, SA_ONSTACK);
    for (int depth = 0; depth < 20; depth++) {
        raise_deep(depth);
        recurse(depth);
    }
    assert_int_equal(sigaltstack(&none, NULL), 0);
    free(stack.ss_sp);
    samples_expect(40);
    assert_int_equal(interrupted, 20);
}

static volatile double work_result;

static NOINLINE double work(unsigned seed)
{
    int values[32];
    double sum = 0;
    for (unsigned i = 0; i < 32; i++) {
        values[i] = (int)((seed + i) * 2654435761U >> 8);
    }
    char text[64];
    for (unsigned i = 0; i < 32; i++) {
        snprintf(text, sizeof(text), "%d %g", values[i], sqrt(values[i] & 1023));
        sum += strtod(text, NULL) + (double)strlen(text);
        for (unsigned j = i; j > 0 && values[j] < values[j - 1]; j--) {
            int swap = values[j];
            values[j] = values[j - 1];
            values[j - 1] = swap;
        }
    }
    return sum;
}

/* The timer hits arbitrary instructions: prologues, epilogues, PLT stubs, the C library's own code. */
TEST(test_signal_anywhere)
{
    struct itimerval every = {{0, 300}, {0, 300}};
    struct itimerval never = {{0, 0}, {0, 0}};
    samples_begin();
    handler_install(SIGALRM, SA_RESTART);
    setitimer(ITIMER_REAL, &every, NULL);
    for (unsigned i = 0; samples < 800 && i < 2000000; i++) {
        work_result += work(i);
    }
    setitimer(ITIMER_REAL, &never, NULL);
    samples_expect(800);
#ifndef __SANITIZE_THREAD__ /* it delivers signals when it suits it, by a plain call */
    assert_true(interrupted >= 800);
#endif
}

/* ---- other stacks ---- */

#define USER_STACK_BYTES ((size_t)2 << 20)

static void *thread_main(void *argument)
{
    recurse((int)(uintptr_t)argument);
    recurse_without((int)(uintptr_t)argument, 1, 2);
    recurse_realigned(3, 16);
    return NULL;
}

TEST(test_threads)
{
    void *stack = NULL;
    samples_begin();
    pthread_attr_t attributes;
    assert_int_equal(pthread_attr_init(&attributes), 0);
    assert_int_equal(posix_memalign(&stack, 4096, USER_STACK_BYTES), 0);
    for (uintptr_t i = 0; i < 20; i++) {
        if (i == 10) { /* the second half on a stack that the program allocated */
            assert_int_equal(pthread_attr_setstack(&attributes, stack, USER_STACK_BYTES), 0);
        }
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, &attributes, thread_main, (void *)i), 0);
        pthread_join(thread, NULL);
    }
    pthread_attr_destroy(&attributes);
    free(stack);
    samples_expect(60);
}

static ucontext_t back;
static ucontext_t coroutine;

static void coroutine_main(void)
{
    for (int depth = 0; depth < 30; depth++) {
        recurse(depth);
        recurse_without(depth, 1, 2);
        recurse_big(depth % 3);
        swapcontext(&coroutine, &back);
    }
}

static NOINLINE void coroutine_run(void)
{
    const size_t bytes = 131072;
    char *stack = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_true(stack != MAP_FAILED);
    assert_int_equal(getcontext(&coroutine), 0);
    coroutine.uc_stack.ss_sp = stack;
    coroutine.uc_stack.ss_size = bytes;
    coroutine.uc_link = &back;
    makecontext(&coroutine, coroutine_main, 0);
    for (int i = 0; i <= 30; i++) {
        recurse(i);
        swapcontext(&back, &coroutine);
    }
    munmap(stack, bytes);
}

TEST(test_coroutines)
{
    samples_begin();
    for (int round = 0; round < 3; round++) {
        coroutine_run();
    }
    samples_expect(3 * (30 * 3 + 31));
}

TEST(test_fork)
{
    int status = -1;
    recurse(5);
    pid_t child = fork();

    if (child == 0) {
        samples_begin();
        recurse(18);
        recurse_without(18, 1, 2);
        _exit(mismatches == 0 && samples == 2 ? 0 : 1);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* It loads its library now, not in a signal handler. */
static int load_backtrace(void **state)
{
    (void)state;
    void *frames[4];
    (void)backtrace(frames, 4);
    return 0;
}

TEST_FILE(load_backtrace, NULL)
