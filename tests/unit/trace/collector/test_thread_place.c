/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions of the C library in which no call may be made, whichever of their names its symbol table has first; and
 * some in which it may.
 * Costs: 1 s
 */
#include <stdbool.h>
#include <cmocka.h>

#include "trace/collector/programs/thread_look.h"
#include "trace/symbols/running_process.h"

#include <dlfcn.h>
#include <gnu/lib-names.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE_BYTES 4096

static struct target target;
static struct place_rules rules;
static struct symbols_running *running;
static char *stack; /* of nobody: no word of it is an address of code */

static unsigned place_in(const char *function)
{
    void *libc = dlopen(LIBC_SO, RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(libc);
    const uint64_t pc = (uintptr_t)dlsym(libc, function) + 2, sp = (uintptr_t)(stack + PAGE_BYTES - 64);
    dlclose(libc);
    assert_true(pc > 2);
    return place_asleep(&rules, running, target.pid, pc, sp);
}

TEST(functions)
{
    static const char *const unsafe[] = {"fork", "vfork", "newlocale", "freelocale", "setlocale", "dlopen", "exit"};
    static const char *const safe[] = {"nanosleep", "getpid", "read", "strlen"};
    struct varve_message message = {""};
    /* between pages that are closed, so that it is no part of a larger mapping */
    char *pages = mmap(NULL, 3 * (size_t)PAGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(pages != MAP_FAILED);
    stack = pages + PAGE_BYTES;
    assert_return_code(mprotect(stack, PAGE_BYTES, PROT_READ | PROT_WRITE), 0);
    const pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* also when a check has failed */
        pause();
        _exit(1);
    }
    assert_int_equal(target_open(&target, child, TARGET_TO_RECORD, &message), VARVE_OK);
    running = symbols_running_open(child);
    assert_non_null(running);
    place_rules_init(&rules, &target);
    for (size_t i = 0; i < sizeof(unsafe) / sizeof(unsafe[0]); i++) {
        assert_int_equal(place_in(unsafe[i]), PLACE_LOADER);
    }
    for (size_t i = 0; i < sizeof(safe) / sizeof(safe[0]); i++) {
        assert_int_equal(place_in(safe[i]), 0);
    }
    assert_int_equal(place_in("malloc"), PLACE_ALLOCATOR);
    symbols_running_close(running);
    free(rules.ranges);
    munmap(pages, 3 * (size_t)PAGE_BYTES);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

TEST_FILE(NULL, NULL)
