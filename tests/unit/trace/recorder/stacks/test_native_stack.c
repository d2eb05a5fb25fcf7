/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The native stack walk against the C library's backtrace(), frame for frame: with and without frame
 * pointers, through the C library, in random call trees (where the memo must not change the result), through
 * code that the rules cannot describe, and against stacks that make no sense. Signals and other stacks are
 * the matter of test_native_stack_places.c.
 * Program of its own: it stands in for functions of the product.
 * Costs: 1 s
 */
#include "support/native_stack_samples.h"
#include "support/random.h"

#include <dlfcn.h>
#include <string.h>
#include <sys/mman.h>

static void test_frame_pointers(void **state)
{
    (void)state;
    samples_begin();
    for (int depth = 0; depth < 100; depth++) {
        recurse(depth);
    }
    recurse(18);
    assert_true(sample.count >= 19);
    samples_expect(101);
}

static void test_no_frame_pointers(void **state)
{
    (void)state;
    samples_begin();
    for (int round = 0; round < 3; round++) {
        for (int depth = 0; depth < 60; depth++) {
            recurse_without(depth, round, depth);
        }
    }
    samples_expect(180);
}

static void test_realigned_and_big_frames(void **state)
{
    (void)state;
    samples_begin();
    for (int depth = 0; depth < 20; depth++) {
        recurse_realigned(depth, 16);
        recurse_big(depth);
    }
    samples_expect(40);
}

static void test_through_libc(void **state)
{
    (void)state;
    samples_begin();
    through_libc(64);
    samples_expect(64);
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
        switch (random_next(&random_state) % 5) {
        case 0:
            tree_a(depth - 1);
            break;
        case 1:
            tree_b(depth - 1);
            break;
        case 2:
            tree_c(depth - 1);
            break;
        case 3:
            tree_d(depth - 1);
            break;
        default:
            hook();
            break;
        }
    }
    KEEP_FRAME();
}

static void test_random_trees(void **state)
{
    (void)state;
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
    uint64_t whole[FRAMES_MAX];
    uint64_t *into = whole;
    unsigned count = 0;
    if (depth > 0) {
        recurse_and_cut(depth - 1);
        KEEP_FRAME();
        return;
    }
    uint64_t cut[FRAMES_MAX];
    struct callsite_start start;
    for (unsigned max = 0; max < 40; max++) {
        unsigned wanted = max == 0 ? FRAMES_MAX : max - 1;
        unsigned got = capture_cut(&start, into, wanted);
        if (max == 0) {
            count = got;
            assert_true(count > 30);
        } else {
            assert_int_equal(got, wanted < count ? wanted : count);
            /* The compiler may have made several calls of the one above, so [0] is not that of `whole`. */
            assert_true(got == 0 || cut[0] == start.pc);
            assert_memory_equal(cut + 1, whole + 1, got > 1 ? (got - 1) * sizeof(cut[0]) : 0);
        }
        into = cut;
    }
}

static void test_cut(void **state)
{
    (void)state;
    recurse_and_cut(30);
    recurse_and_cut(100);
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
static void test_unknown_frame(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        call_with_rbx_frame(hook_alone);
        assert_int_equal(sample.count, 1);
        assert_true(sample.ours[0] - (uintptr_t)call_with_rbx_frame < 64);
    }
}

static NOINLINE void call_directly(void (*function)(void))
{
    function();
    KEEP_FRAME();
}

/* backtrace() ends at such a frame; the walk takes it for one with a frame pointer and goes on. */
static void test_no_table(void **state)
{
    unsigned count = 0;
    (void)state;
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
static void test_objects(void **state)
{
    (void)state;
    object_expect((uintptr_t)test_objects);
    object_expect((uintptr_t)dladdr);
    void *library;
    object_expect((uintptr_t)&library);
    library = dlopen(VARVE_BUILD_DIR "/programs/lib_callback.so", RTLD_NOW);
    assert_non_null(library);
    void *function = dlsym(library, "lib_callback_call");
    assert_non_null(function);
    object_expect((uintptr_t)function);
    assert_true(loaded_object_is_at((uintptr_t)function));
    assert_int_equal(dlclose(library), 0);
    loaded_object_forget();
    object_expect((uintptr_t)function);
    object_expect((uintptr_t)dladdr);
}

/* ---- stacks that make no sense ---- */

/* Values that a broken stack may hold: near misses of the real ones, ends of mappings, nonsense. */
static uintptr_t nonsense(const struct callsite_start *real, const char *pages, uintptr_t code)
{
    switch (random_next(&random_state) % 10) {
    case 0:
        return random_next(&random_state) >> 16;
    case 1:
        return real->sp + (random_next(&random_state) % 4096) * 8;
    case 2:
        return real->sp - (random_next(&random_state) % 4096);
    case 3:
        return (uintptr_t)pages + 4096 - random_next(&random_state) % 64;
    case 4:
        return (uintptr_t)pages + (random_next(&random_state) % 512) * 8;
    case 5:
        return UINTPTR_MAX - random_next(&random_state) % 64;
    case 6:
        return real->fp + random_next(&random_state) % 3 * 8;
    case 7:
        return code + random_next(&random_state) % 4096;
    case 8:
        return 0;
    default:
        return real->pc + random_next(&random_state) % 64;
    }
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

static void test_garbage(void **state)
{
    char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    (void)state;
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

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(test_frame_pointers),
    cmocka_unit_test(test_no_frame_pointers),
    cmocka_unit_test(test_realigned_and_big_frames),
    cmocka_unit_test(test_through_libc),
    cmocka_unit_test(test_random_trees),
    cmocka_unit_test(test_cut),
#ifdef __x86_64__
    cmocka_unit_test(test_unknown_frame),
    cmocka_unit_test(test_no_table),
#endif
    cmocka_unit_test(test_objects),
    cmocka_unit_test(test_garbage),
};

TEST_CASES(cases)
