/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The native stack walk against the C library's backtrace(), frame for frame: with and without frame pointers, through
 * the C library, in random call trees (where the memo must not change the result), through code that the rules cannot
 * describe, and against stacks that make no sense; and where a malloc hook may find itself: in signal handlers at
 * arbitrary instructions, on signal stacks, in threads, on coroutines, in fork children.
 * Program of its own: it stands in for functions of the product.
 * Costs: 2 s
 */
#include <cmocka.h>

#include "support/random.h"
#include "support/recorder_absent.h"
#include "trace/guest/elf_symbol.h"
#include "trace/guest/loaded_object.h"
#include "trace/guest/stack_ends.h"
#include "trace/stacks/native_stack.h"
#include "trace/stacks/native_walk.h"
#include "trace/stacks/native_window.h"

#if defined(__has_feature)
#if __has_feature(thread_sanitizer) && !defined(__SANITIZE_THREAD__)
#define __SANITIZE_THREAD__ 1 /* as gcc says it */
#endif
#endif

#include <alloca.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

/* ---- a stand-in for a malloc hook, which walks its stack twice and counts where the walks differ; the few functions
 * of the recorder that the walk calls are replaced ---- */

#define FRAMES_MAX 200
#define NOINLINE __attribute__((noinline, unused))
#if defined(__GNUC__) && !defined(__clang__)
#define NO_FRAME_POINTER __attribute__((noinline, unused, optimize("omit-frame-pointer")))
#else
#define NO_FRAME_POINTER __attribute__((noinline, unused))
#endif

/* Keeps the compiler from turning the calls before it into jumps. */
#define KEEP_FRAME() __asm__ volatile("" ::: "memory")

/* Code that is equal to no other: a call before it stays one of its own. */
#define UNLIKE_OTHERS(number) __asm__ volatile("" : : "i"(number) : "memory")

#define HOOK_START(start)                                            \
    do {                                                             \
        const uintptr_t *frame_of_hook = __builtin_frame_address(0); \
        (start).fp = frame_of_hook[0];                               \
        (start).pc = frame_of_hook[1];                               \
        (start).sp = (uintptr_t)(frame_of_hook + 2);                 \
    } while (0)

struct sample {
    uint64_t ours[FRAMES_MAX];
    unsigned count;
    void *theirs[FRAMES_MAX];
    int their_count;
    int their_first; /* where theirs has the caller of the hook */
};

static struct sample sample;
static volatile unsigned mismatches;
static volatile unsigned samples;
static volatile unsigned interrupted; /* frames that were interrupted by a signal */

static NOINLINE void sample_take(struct sample *to, const struct callsite_start *start)
{
    to->count = native_stack_capture(start, to->ours, FRAMES_MAX);
    to->their_count = backtrace(to->theirs, FRAMES_MAX);
    while (to->their_count > 0 && to->theirs[to->their_count - 1] == NULL) {
        to->their_count--;
    }
    to->their_first = 0;
    while (to->their_first < to->their_count && (uintptr_t)to->theirs[to->their_first] != start->pc) {
        to->their_first++;
    }
}

/* Equal, but that an interrupted instruction is reported one above. */
static bool sample_equal(const struct sample *of)
{
    int rest = of->their_count - of->their_first;
    bool equal = rest == (int)of->count;
    for (int i = 0; i < rest && i < (int)of->count; i++) {
        uint64_t theirs = (uintptr_t)of->theirs[of->their_first + i];
        if (of->ours[i] == theirs + 1) {
            interrupted++;
        } else if (of->ours[i] != theirs) {
            equal = false;
        }
    }
    return equal;
}

static void sample_print(const struct sample *of)
{
    for (int i = 0; i < (int)of->count || of->their_first + i < of->their_count; i++) {
        int at = of->their_first + i;
        print_message("%3d %16llx %16p\n", i, (unsigned long long)(i < (int)of->count ? of->ours[i] : 0),
                      at < of->their_count ? of->theirs[at] : NULL);
    }
}

/* What a malloc hook does. */
static NOINLINE void hook(void)
{
    struct callsite_start start;
    HOOK_START(start);
    sample_take(&sample, &start);
    samples++;
    if (!sample_equal(&sample)) {
        if (mismatches++ == 0) {
            sample_print(&sample);
        }
    }
    KEEP_FRAME();
}

static void samples_begin(void)
{
    mismatches = samples = interrupted = 0;
}

static void samples_expect(unsigned least)
{
    assert_int_equal(mismatches, 0);
    assert_true(samples >= least);
}

/* ---- calls of many shapes ---- */

static NOINLINE int recurse(int depth)
{
    if (depth == 0) {
        hook();
        return 1;
    }
    int result = recurse(depth - 1) + depth;
    KEEP_FRAME();
    return result;
}

static NO_FRAME_POINTER int recurse_without(int depth, int a, int b)
{
    volatile int local[16] = {a, b};
    if (depth == 0) {
        hook();
        return 1;
    }
    int result = recurse_without(depth - 1, b, a + depth) + local[depth & 1];
    KEEP_FRAME();
    return result;
}

static NOINLINE int recurse_realigned(int depth, unsigned bytes)
{
    _Alignas(64) volatile char aligned[64];
    volatile char *variable = alloca(bytes);

    aligned[0] = 0;
    variable[0] = 0;
    if (depth == 0) {
        hook();
        return aligned[0];
    }
    int result = recurse_realigned(depth - 1, bytes + 24) + variable[0];
    KEEP_FRAME();
    return result;
}

static NOINLINE int recurse_big(int depth)
{
    volatile char big[20000];
    big[depth] = 0;
    if (depth == 0) {
        hook();
        return 0;
    }
    int result = recurse_big(depth - 1) + big[depth];
    KEEP_FRAME();
    return result;
}

static int compare_and_capture(const void *a, const void *b)
{
    hook();
    return *(const int *)a - *(const int *)b;
}

static void through_libc(unsigned count)
{
    int values[64] = {0};
    for (unsigned i = 0; i < count; i++) {
        values[i] = (int)((i * 7919U) % 101U);
    }
    qsort(values, count, sizeof(values[0]), compare_and_capture);
}

TEST(test_shapes)
{
    samples_begin();
    for (int depth = 0; depth < 100; depth++) {
        recurse(depth);
        for (int round = 0; round < 3; round++) {
            recurse_without(depth, round, depth);
        }
    }
    recurse(18);
    assert_true(sample.count >= 19);
    for (int depth = 0; depth < 20; depth++) {
        recurse_realigned(depth, 16);
        recurse_big(depth);
    }
    through_libc(64);
    samples_expect(101 + 300 + 40 + 64);
}

/* ---- random call trees: the memo never changes the result ---- */

static uint64_t random_state;

static void random_tree(int depth);

static NOINLINE void tree_a(int depth)
{
    random_tree(depth);
    KEEP_FRAME();
}

static NO_FRAME_POINTER void tree_b(int depth)
{
    volatile int local[9] = {depth};
    random_tree(local[0]);
    random_tree(local[0] - 1);
    KEEP_FRAME();
}

static NOINLINE void tree_c(int depth)
{
    volatile char *space = alloca(16 + random_next(&random_state) % 300);
    space[0] = 1;
    random_tree(depth);
    KEEP_FRAME();
}

static NO_FRAME_POINTER void tree_d(int depth)
{
    hook();
    random_tree(depth);
    hook();
    KEEP_FRAME();
}

static NOINLINE void random_tree(int depth)
{
    if (depth <= 0) {
        hook();
        return;
    }
    for (unsigned i = random_next(&random_state) % 3; i > 0; i--) {
        static void (*const volatile shapes[])(int) = {tree_a, tree_b, tree_c, tree_d, random_tree};
        unsigned shape = random_next(&random_state) % 5;
        shapes[shape](shape < 4 ? depth - 1 : 0); /* the last one is the hook at once */
    }
    KEEP_FRAME();
}

TEST(test_random_trees)
{
    samples_begin();
    random_state = 20240117;
    for (unsigned round = 0; round < 4000 && samples < 20000; round++) {
        random_tree(3 + (int)(random_next(&random_state) % 40));
        if (round % 100 == 99) {
            native_stack_forget();
        }
    }
    samples_expect(5000);
}

static NOINLINE unsigned capture_cut(struct callsite_start *start, uint64_t *pcs, unsigned max)
{
    HOOK_START(*start);
    unsigned count = native_stack_capture(start, pcs, max);
    KEEP_FRAME();
    return count;
}

static NOINLINE void recurse_and_cut(int depth)
{
    if (depth > 0) {
        recurse_and_cut(depth - 1);
        KEEP_FRAME();
        return;
    }
    uint64_t stacks[2][FRAMES_MAX];
    struct callsite_start start;
    unsigned count = 0;
    for (unsigned i = 0; i < 40; i++) {
        uint64_t *const cut = stacks[i > 0]; /* the first one is whole */
        unsigned wanted = i == 0 ? FRAMES_MAX : i - 1;
        unsigned got = capture_cut(&start, cut, wanted);
        count = i == 0 ? got : count;
        assert_true(count > 30);
        assert_int_equal(got, wanted < count ? wanted : count);
        /* The compiler may have made several calls of the one above, so [0] is not that of the whole one. */
        assert_true(got == 0 || cut[0] == start.pc);
        assert_memory_equal(cut + 1, stacks[0] + 1, got > 1 ? (got - 1) * sizeof(cut[0]) : 0);
    }
}

TEST(test_cut)
{
    recurse_and_cut(30);
    recurse_and_cut(100);
}

/* ---- deep stacks, of which the ends are kept ---- */

enum { DEEP_MAX = 30000, LEVELS = 5 };

static uint64_t deep_whole[DEEP_MAX], deep_ends[STACK_ENDS];
static unsigned deep_wrong, deep_checks, deep_most;
static uint64_t deep_seed;

/* Each frame that is kept is where it belongs, as a walk of the whole stack has it. */
static NOINLINE void deep_check(void)
{
    struct callsite_start start;
    HOOK_START(start);
    const unsigned ends = native_stack_ends(&start, deep_ends);
    const unsigned whole = native_stack_capture(&start, deep_whole, DEEP_MAX);
    deep_checks++;
    deep_most = whole > deep_most ? whole : deep_most;
    deep_wrong += ends != whole;
    for (unsigned i = 0; i < whole && ends == whole; i++) {
        if (i < STACK_INSIDE || i + STACK_OUTSIDE >= whole) {
            deep_wrong += deep_ends[stack_slot(i)] != deep_whole[i];
        }
    }
    KEEP_FRAME();
}

static void deep_a(unsigned down, unsigned level);
static void deep_b(unsigned down, unsigned level);
static void (*const volatile deeper[])(unsigned, unsigned) = {deep_a, deep_b, deep_a, deep_a};

/* Down by some frames, there a check and some turns to either side, each of which may go farther down. */
static NOINLINE void deep_turns(unsigned level)
{
    deep_check();
    for (unsigned i = 0; i < 3 && level > 0; i++) {
        const unsigned most = random_below(&deep_seed, 3) == 0 ? 5000 : 40;
        deeper[random_below(&deep_seed, 4)]((unsigned)random_below(&deep_seed, most), level - 1);
        deep_check();
    }
}

static NOINLINE void deep_a(unsigned down, unsigned level)
{
    if (down == 0) {
        deep_turns(level);
    } else {
        deeper[down % 4](down - 1, level);
    }
    if (down % 16 == 3) {
        deep_check(); /* on the way back */
    }
    KEEP_FRAME();
}

/* As large as two of the other one. */
static NO_FRAME_POINTER void deep_b(unsigned down, unsigned level)
{
    volatile uintptr_t local[16] = {down};
    if (down == 0) {
        deep_turns(level);
    } else {
        deeper[(down + local[3]) % 4](down - 1, level);
    }
    local[1] = level;
    KEEP_FRAME();
}

TEST(test_ends)
{
    deep_wrong = deep_checks = deep_most = 0;
    deep_seed = 7;
    for (volatile int i = 0; i < 4; i++) {
        deep_turns(LEVELS);
    }
    assert_int_equal(deep_wrong, 0);
    assert_true(deep_checks > 5000 && deep_most > 8000);
}

/* The same inner frames, at the same places, below others: frames outside of hundreds are told apart. */
static NOINLINE void deep_from(unsigned down, bool is_first)
{
    if (is_first) {
        deeper[0](down, 0);
        UNLIKE_OTHERS(1);
    } else {
        deeper[0](down, 0);
        UNLIKE_OTHERS(2);
    }
}

TEST(test_ends_of_another_caller)
{
    deep_wrong = deep_checks = 0;
    for (volatile unsigned i = 0; i < 100; i++) {
        deep_from(4000 + i / 2 * 4 % 40, i % 2 == 0);
    }
    assert_int_equal(deep_wrong, 0);
    assert_true(deep_checks > 100);
}

/* A stack far larger than most, whose growth is met now and then. */
static NOINLINE void deep_and_large(unsigned down)
{
    volatile char local[16 << 10];
    local[down] = 1;
    if (down % 200 == 0) {
        deep_check();
    }
    if (down > 0) {
        deep_and_large(down - 1);
    }
    (void)local[0];
}

static void *run_deep_and_large(void *unused)
{
    (void)unused;
    deep_and_large(8000);
    return NULL;
}

TEST(test_ends_of_a_large_stack)
{
    pthread_attr_t attributes;
    pthread_t thread;
    deep_wrong = deep_checks = deep_most = 0;
    assert_int_equal(pthread_attr_init(&attributes), 0);
    assert_int_equal(pthread_attr_setstacksize(&attributes, (size_t)256 << 20), 0);
    assert_int_equal(pthread_create(&thread, &attributes, run_deep_and_large, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    pthread_attr_destroy(&attributes);
    assert_int_equal(deep_wrong, 0);
    assert_int_equal(deep_checks, 41);
    assert_true(deep_most > 8000);
}

/* ---- code that rules cannot describe ---- */

#ifdef __x86_64__
void call_with_rbx_frame(void (*function)(void));
void call_without_table(void (*function)(void));

__asm__(".text\n"
        ".type call_with_rbx_frame, @function\n"
        "call_with_rbx_frame:\n"
        ".cfi_startproc\n"
        "push %rbx\n"
        ".cfi_def_cfa_offset 16\n"
        ".cfi_offset %rbx, -16\n"
        "mov %rsp, %rbx\n"
        ".cfi_def_cfa_register %rbx\n"
        "sub $80, %rsp\n"
        "and $-64, %rsp\n"
        "call *%rdi\n"
        "mov %rbx, %rsp\n"
        ".cfi_def_cfa_register %rsp\n"
        "pop %rbx\n"
        ".cfi_def_cfa_offset 8\n"
        "ret\n"
        ".cfi_endproc\n"
        ".size call_with_rbx_frame, . - call_with_rbx_frame\n"
        ".type call_without_table, @function\n"
        "call_without_table:\n"
        "push %rbp\n"
        "mov %rsp, %rbp\n"
        "sub $32, %rsp\n"
        "call *%rdi\n"
        "leave\n"
        "ret\n"
        ".size call_without_table, . - call_without_table\n");

static NOINLINE void hook_alone(void)
{
    struct callsite_start start;
    HOOK_START(start);
    sample.count = native_stack_capture(&start, sample.ours, FRAMES_MAX);
    KEEP_FRAME();
}

/* Its table wants a register that the walk does not follow: the stack ends with it, and nothing is guessed.
 */
TEST(test_unknown_frame)
{
    for (int i = 0; i < 3; i++) {
        call_with_rbx_frame(hook_alone);
        assert_int_equal(sample.count, 1);
        assert_true(sample.ours[0] - (uintptr_t)call_with_rbx_frame < 64);
    }
}

/* ---- rules out of tables ---- */

enum { FUNCTION_BYTES = 120 };

/* The search goes on where the last one has stopped, if that was in the same function and not behind: in what order
 * addresses are asked for makes no difference. */
TEST(test_rules_in_any_order)
{
    void (*const functions[])(void) = {(void (*)(void))qsort, (void (*)(void))snprintf, (void (*)(void))recurse_big,
                                       (void (*)(void))tree_b};
    uint32_t forward[FUNCTION_BYTES];
    unsigned changes = 0;
    for (size_t k = 0; k < sizeof(functions) / sizeof(functions[0]); k++) {
        const uintptr_t begin = (uintptr_t)functions[k], other = (uintptr_t)functions[(k + 1) % 4];
        for (unsigned i = 0; i < FUNCTION_BYTES; i++) {
            forward[i] = unwind_rule_find(begin + i);
            changes += i > 0 && forward[i] != forward[i - 1];
        }
        for (unsigned i = FUNCTION_BYTES; i-- > 0;) {
            assert_int_equal(unwind_rule_find(begin + i), forward[i]);
        }
        for (unsigned i = 0; i < FUNCTION_BYTES; i += 7) {
            (void)unwind_rule_find(other + i);
            assert_int_equal(unwind_rule_find(begin + i), forward[i]);
        }
    }
    assert_true(changes >= 8);
}

static NOINLINE void call_directly(void (*function)(void))
{
    function();
    KEEP_FRAME();
}

/* backtrace() ends at such a frame; the walk takes it for one with a frame pointer and goes on. */
TEST(test_no_table)
{
    unsigned count = 0;
    uint64_t with_table[FRAMES_MAX];
    for (int round = 0; round < 2; round++) {
        void (*call)(void (*)(void)) = round == 0 ? call_directly : call_without_table;
        call(hook_alone);
        if (round == 0) {
            count = sample.count;
            memcpy(with_table, sample.ours, sizeof(with_table));
        }
    }
    assert_true(count > 4);
    assert_int_equal(sample.count, count);
    assert_memory_equal(sample.ours + 2, with_table + 2, (count - 2) * sizeof(with_table[0]));
}

/* ---- code without tables, at the cost of code with tables ---- */

static unsigned detours;
static void (*detour)(void (*function)(void)); /* call_without_table, or a copy of it */

static NOINLINE void hook_behind_detours(void)
{
    if (detours > 0) {
        detours--;
        detour(hook_behind_detours);
    } else {
        hook_alone();
    }
    KEEP_FRAME();
}

/* How many frames there are is known, and that each other one is without a table. */
static NOINLINE bool detours_are_right(unsigned count, unsigned without)
{
    detours = count;
    hook_behind_detours();
    bool is_right = sample.count == without + 2 * count;
    for (unsigned i = 1; i < 2 * count && is_right; i += 2) {
        is_right = sample.ours[i] - (uintptr_t)detour < 64;
    }
    return is_right;
}

/* After a first walk, which learns the rules, a system call ends the process. */
static NOINLINE void detours_in_silence(unsigned without)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    const struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};
    bool is_right = true;
    for (volatile unsigned i = 0; i < 1000; i++) {
        is_right = is_right && detours_are_right(3 + i * 7 % 10, without);
        if (i == 0) {
            is_right = is_right && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
                       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
        }
    }
    syscall(SYS_exit_group, is_right ? 0 : 1); /* before _exit() the address sanitizer asks for the signal stack */
}

static void expect_silence(void)
{
    detours = 0;
    hook_behind_detours();
    const unsigned without = sample.count;
    pid_t child = fork();
    if (child == 0) {
        detours_in_silence(without + 2); /* two callers more */
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

TEST(test_no_table_in_silence)
{
    detour = call_without_table;
    expect_silence();
}

static void *code_made(void)
{
    void *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    memcpy(memory, (const void *)(uintptr_t)call_without_table, 16);
    assert_int_equal(mprotect(memory, 4096, PROT_READ | PROT_EXEC), 0);
    return memory;
}

/* Code that was made at run time. */
TEST(test_no_object_in_silence)
{
    void *memory = code_made();
    *(void **)&detour = memory;
    expect_silence();
    munmap(memory, 4096);
}
/* ---- the same in threads, on stacks that the kernel copies, and below frames that a signal has interrupted ---- */

static bool detours_were_right;

static NOINLINE void detours_here(void)
{
    detours = 0;
    hook_behind_detours();
    const unsigned without = sample.count;
    detours_were_right = without > 0;
    for (volatile unsigned i = 1; i < 20; i++) {
        detours_were_right = detours_are_right(i, without + 1) && detours_were_right; /* a caller more */
    }
}

static void *detours_in_thread(void *unused)
{
    detours_here();
    return unused;
}

static ucontext_t detours_back, detours_apart;

static void detours_on_coroutine(void)
{
    static _Alignas(16) char stack[1U << 16];
    assert_int_equal(getcontext(&detours_apart), 0);
    detours_apart.uc_stack.ss_sp = stack;
    detours_apart.uc_stack.ss_size = sizeof(stack);
    detours_apart.uc_link = &detours_back;
    makecontext(&detours_apart, detours_here, 0);
    assert_int_equal(swapcontext(&detours_back, &detours_apart), 0);
}

#ifndef __SANITIZE_THREAD__ /* it delivers signals when it suits it */
static void detours_handle(int number)
{
    (void)number;
    detours_here();
}

static void detours_in_handlers(void)
{
    static _Alignas(16) char stack[1U << 16];
    const stack_t own = {.ss_sp = stack, .ss_size = sizeof(stack)};
    stack_t before;
    assert_int_equal(sigaltstack(&own, &before), 0);
    for (unsigned i = 0; i < 2; i++) {
        struct sigaction action = {.sa_handler = detours_handle, .sa_flags = i == 0 ? 0 : SA_ONSTACK};
        detours_were_right = false;
        assert_int_equal(sigaction(SIGUSR2, &action, NULL), 0);
        assert_int_equal(raise(SIGUSR2), 0);
        assert_true(detours_were_right);
    }
    assert_int_equal(signal(SIGUSR2, SIG_DFL) == SIG_ERR, 0);
    assert_int_equal(sigaltstack(&before, NULL), 0);
}
#endif

static void expect_detours_anywhere(void)
{
    pthread_t thread;
    detours_were_right = false;
    assert_int_equal(pthread_create(&thread, NULL, detours_in_thread, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(detours_were_right);
    detours_were_right = false;
    detours_on_coroutine();
    assert_true(detours_were_right);
#ifndef __SANITIZE_THREAD__
    detours_in_handlers();
#endif
}

/* In an object, and made at run time. */
TEST(test_no_table_anywhere)
{
    detour = call_without_table;
    expect_detours_anywhere();
    void *memory = code_made();
    *(void **)&detour = memory;
    expect_detours_anywhere();
    munmap(memory, 4096);
}

/* ---- the cache of rules ---- */

static unsigned rules_kept(const uintptr_t *addresses, unsigned count)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < count; i++) {
        kept += rule_cached(addresses[i]) != 0;
    }
    return kept;
}

/* Addresses that share a set do not drive each other out, and one too many drives out one other. */
TEST(test_rules_share_a_set)
{
    struct loaded_object object;
    assert_true(loaded_object_find((uintptr_t)qsort, &object));
    uintptr_t addresses[RULE_WAYS + 1] = {object.start};
    unsigned count = 1;
    for (uintptr_t at = object.start + 1; at < object.end && count <= RULE_WAYS; at++) {
        if (rule_set(at) == rule_set(object.start)) {
            addresses[count++] = at;
        }
    }
    assert_int_equal(count, RULE_WAYS + 1);
    native_stack_forget();
    for (unsigned i = 0; i < RULE_WAYS; i++) {
        assert_int_equal(rule_cached(addresses[i]), 0);
        assert_int_not_equal(rule_fill(addresses[i]), 0);
        assert_int_equal(rules_kept(addresses, i + 1), i + 1);
    }
    (void)rule_fill(addresses[RULE_WAYS]);
    assert_int_not_equal(rule_cached(addresses[RULE_WAYS]), 0);
    assert_int_equal(rules_kept(addresses, RULE_WAYS), RULE_WAYS - 1);
}
#endif

/* ---- loaded objects ---- */

static void object_expect(uintptr_t address)
{
    struct loaded_object reported = {0};
    struct loaded_object listed = {0};
    const bool is_there = loaded_object_find(address, &reported);
    assert_int_equal(loaded_object_find_listed(address, &listed), is_there);
    assert_int_equal(loaded_object_is_at(address), is_there);
    if (is_there) {
        assert_true(loaded_object_equal(&reported, &listed));
        assert_string_equal(reported.name, listed.name);
    }
}

/* The loader's list says what _dl_find_object does, before and after libraries come and go. */
TEST(test_objects)
{
    object_expect((uintptr_t)object_expect);
    object_expect((uintptr_t)dladdr);
    void *library;
    object_expect((uintptr_t)&library);
    struct elf_list_end without_library = {NULL, 0};
    assert_false(elf_list_end_is(&without_library));
    elf_list_end_note(&without_library);
    assert_true(elf_list_end_is(&without_library));
    static const char path[] = VARVE_BUILD_DIR "/programs/lib_callback.so";
    library = dlopen(path, RTLD_NOW);
    assert_non_null(library);
    void *function = dlsym(library, "lib_callback_call");
    assert_non_null(function);
    object_expect((uintptr_t)function);
    assert_true(loaded_object_is_at((uintptr_t)function));
    struct elf_list_end with_library;
    elf_list_end_note(&with_library);
    assert_true(elf_list_end_is(&with_library));
    assert_false(elf_list_end_is(&without_library));
    assert_int_equal(dlclose(library), 0);
    /* under ThreadSanitizer it stays */
    assert_int_equal(elf_list_end_is(&with_library), dlopen(path, RTLD_NOW | RTLD_NOLOAD) != NULL);
    loaded_object_forget();
    object_expect((uintptr_t)function);
    object_expect((uintptr_t)dladdr);
}

/* ---- stacks that make no sense ---- */

/* Values that a broken stack may hold: near misses of the real ones, ends of mappings, nonsense. */
static uintptr_t nonsense(const struct callsite_start *real, const char *pages, uintptr_t code)
{
    const uint64_t draw = random_next(&random_state), below = draw % 4096;
    const uintptr_t values[] = {0,
                                draw >> 16,
                                real->sp + below * 8,
                                real->sp - below,
                                (uintptr_t)pages + 4096 - below % 64,
                                (uintptr_t)pages + below % 512 * 8,
                                UINTPTR_MAX - below % 64,
                                real->fp + below % 3 * 8,
                                code + below,
                                real->pc + below % 64};
    return values[random_next(&random_state) % 10];
}

static NOINLINE void garbage(unsigned rounds, char *pages)
{
    struct callsite_start real;
    const uintptr_t code = (uintptr_t)&recurse;
    const uintptr_t libc_code = (uintptr_t)dladdr;
    HOOK_START(real);
    uint64_t pcs[FRAMES_MAX];
    for (unsigned round = 0; round < rounds; round++) {
        struct callsite_start start = real;
        for (unsigned i = 0; i < 512; i++) {
            ((uintptr_t *)(void *)pages)[i] = nonsense(&real, pages, random_next(&random_state) % 2 ? code : libc_code);
        }
        if (random_next(&random_state) % 4 != 0) {
            start.sp = random_next(&random_state) % 2 ? (uintptr_t)pages + (random_next(&random_state) % 512) * 8
                                                      : nonsense(&real, pages, code);
        }
        if (random_next(&random_state) % 4 != 0) {
            start.fp = nonsense(&real, pages, code);
        }
        if (random_next(&random_state) % 2 != 0) {
            start.pc = nonsense(&real, pages, random_next(&random_state) % 2 ? code : libc_code);
        }
        unsigned count = native_stack_capture(&start, pcs, FRAMES_MAX);

        assert_true(count >= 1 && count <= FRAMES_MAX);
        assert_int_equal(pcs[0], start.pc);
    }
}

TEST(test_garbage)
{
    char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(pages != MAP_FAILED);
    assert_int_equal(mprotect(pages + 4096, 4096, PROT_NONE), 0);
    random_state = 7;
    garbage(20000, pages);
    munmap(pages, 8192);
    /* What the nonsense taught the caches does not hurt a real walk. */
    samples_begin();
    recurse(18);
    samples_expect(1);
}

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
    size_t bytes = 65536;
    stack_t stack = {.ss_sp = malloc(bytes), .ss_size = bytes};
    stack_t none = {.ss_flags = SS_DISABLE};
    assert_int_equal(sigaltstack(&stack, NULL), 0);
    for (int round = 0; round < 2; round++) {
        samples_begin();
        handler_install(SIGUSR1, round == 0 ? 0 : SA_ONSTACK);
        for (int depth = 0; depth < 20; depth++) {
            raise_deep(depth);
            recurse(depth);
        }
        samples_expect(40);
        assert_int_equal(interrupted, 20);
    }
    assert_int_equal(sigaltstack(&none, NULL), 0);
    free(stack.ss_sp);
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
