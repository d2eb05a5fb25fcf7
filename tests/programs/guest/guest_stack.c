/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much stack a call of the allocator takes: it is made on a stack of a known size that was painted
 * before, and what is not paint afterwards was used. Prints a line `PLACE CASE DEPTH USED THERE` for each, in
 * bytes; run alone and under the recorder, the difference is the recorder's. Below each stack lies more
 * paint, so one that is too small shows as a figure and not as a crash.
 *
 *   places  thread     of PTHREAD_STACK_MIN, to its very end
 *           signal     a handler on a stack of 8 KiB, called while nothing else goes on
 *           nested     the same, called at any time by a timer
 *           coroutine  16 KiB, of makecontext
 *           forked     the same, as the first thing in a fork child
 */
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define BELOW_BYTES ((size_t)64 << 10)
#define SIGNAL_BYTES ((size_t)8 << 10)
#define COROUTINE_BYTES ((size_t)16 << 10)
#define PAINT 0xa5
#define LOOP_CALLS 4000 /* more than the smallest ring holds by far */
#define NESTED_CALLS 100

struct stack {
    unsigned char *low; /* BELOW_BYTES of paint, then the stack */
    size_t bytes;
};

/* Pointers that the loader fills in: no call here binds a symbol, which takes stack of its own. */
static void *(*volatile call_malloc)(size_t) = malloc;
static void *(*volatile call_realloc)(void *, size_t) = realloc;
static void (*volatile call_free)(void *) = free;
static void *(*volatile call_mmap)(void *, size_t, int, int, int, off_t) = mmap;
static int (*volatile call_munmap)(void *, size_t) = munmap;

static void stack_open(struct stack *stack, size_t bytes)
{
    stack->bytes = bytes;
    stack->low = mmap(NULL, BELOW_BYTES + bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack->low == MAP_FAILED) {
        exit(1);
    }
    memset(stack->low, PAINT, BELOW_BYTES + bytes);
}

static size_t stack_used(const struct stack *stack)
{
    size_t at = 0;
    while (at < BELOW_BYTES + stack->bytes && stack->low[at] == PAINT) {
        at++;
    }
    return BELOW_BYTES + stack->bytes - at;
}

/* ---- cases ---- */

static void allocate(void)
{
    call_free(call_malloc(100));
}

static void reallocate(void)
{
    call_free(call_realloc(call_malloc(100), 5000));
}

static void map(void)
{
    call_munmap(call_mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096);
}

static void loop(void)
{
    for (volatile int i = 0; i < LOOP_CALLS; i++) {
        call_free(call_malloc(100));
    }
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {{"malloc", allocate}, {"realloc", reallocate}, {"mmap", map}, {"loop", loop}};

enum { CASE_COUNT = sizeof(cases) / sizeof(cases[0]) };

static __attribute__((noinline)) void dive(unsigned depth, void (*run)(void))
{
    if (depth > 1) {
        dive(depth - 1, run);
    } else {
        run();
    }
    __asm__ volatile("" ::: "memory");
}

static struct {
    unsigned depth;
    void (*run)(void);
} now;

static void work(void)
{
    dive(now.depth, now.run);
}

/* ---- places ---- */

static void *thread_main(void *unused)
{
    (void)unused;
    work();
    return NULL;
}

static void in_thread(const struct stack *stack)
{
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_t thread;
    if (pthread_attr_setstack(&attributes, stack->low + BELOW_BYTES, stack->bytes) != 0 ||
        pthread_create(&thread, &attributes, thread_main, NULL) != 0 || pthread_join(thread, NULL) != 0) {
        exit(1);
    }
}

static volatile sig_atomic_t handled;

static void handle(int number)
{
    (void)number;
    work();
    handled++;
}

static void handler_set(const struct stack *stack, int number)
{
    const stack_t alternate = {.ss_sp = stack->low + BELOW_BYTES, .ss_size = stack->bytes};
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_ONSTACK | SA_RESTART};
    if (sigaltstack(&alternate, NULL) != 0 || sigaction(number, &action, NULL) != 0) {
        exit(1);
    }
}

static void in_signal(const struct stack *stack)
{
    handler_set(stack, SIGUSR1);
    raise(SIGUSR1);
}

/* The program allocates all the time, so some of the signals come in the middle of a hook. */
static void in_nested(const struct stack *stack)
{
    const struct itimerval often = {{0, 200}, {0, 200}};
    const struct itimerval never = {{0, 0}, {0, 0}};
    handler_set(stack, SIGALRM);
    handled = 0;
    setitimer(ITIMER_REAL, &often, NULL);
    while (handled < NESTED_CALLS) {
        call_free(call_malloc(50));
    }
    setitimer(ITIMER_REAL, &never, NULL);
}

static ucontext_t outside;
static ucontext_t inside;

static void in_coroutine(const struct stack *stack)
{
    getcontext(&inside);
    inside.uc_stack.ss_sp = stack->low + BELOW_BYTES;
    inside.uc_stack.ss_size = stack->bytes;
    inside.uc_link = &outside;
    makecontext(&inside, work, 0);
    if (swapcontext(&outside, &inside) != 0) {
        exit(1);
    }
}

static void report(const char *place, const char *name, const struct stack *stack)
{
    printf("%s %s %u %zu %zu\n", place, name, now.depth, stack_used(stack), stack->bytes);
    fflush(stdout);
}

static void measure(const char *place, void (*enter)(const struct stack *), size_t bytes, unsigned which)
{
    struct stack stack;
    stack_open(&stack, bytes);
    now.run = cases[which].run;
    enter(&stack);
    report(place, cases[which].name, &stack);
    munmap(stack.low, BELOW_BYTES + bytes);
}

static void in_fork(unsigned which)
{
    pid_t child = fork();
    if (child == 0) {
        measure("forked", in_coroutine, COROUTINE_BYTES, which);
        _exit(0);
    }
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
        exit(1);
    }
}

int main(void)
{
    static const unsigned depths[] = {1, 65, 200};
    for (unsigned i = 0; i < sizeof(depths) / sizeof(depths[0]); i++) {
        now.depth = depths[i];
        for (unsigned which = 0; which < CASE_COUNT; which++) {
            measure("thread", in_thread, PTHREAD_STACK_MIN, which);
            measure("coroutine", in_coroutine, COROUTINE_BYTES, which);
            in_fork(which);
            if (now.depth <= 65) {
                measure("signal", in_signal, SIGNAL_BYTES, which);
            }
        }
        if (now.depth <= 65) {
            measure("nested", in_nested, SIGNAL_BYTES, 2); /* malloc may not be interrupted by itself */
        }
    }
    return 0;
}
