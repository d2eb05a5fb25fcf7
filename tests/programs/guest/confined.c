/* SPDX-License-Identifier: Apache-2.0 */
/*
 * confined HOW PAIRS: a program that confines itself as sandboxes do, then goes on allocating. Prints the
 * number of its malloc calls of 1234 bytes in a JSON line, written by the one system call that is left.
 *
 *   kill      a filter that kills for every call that malloc and printing do not need
 *   tsync     the same for all threads, two of which allocate meanwhile
 *   errno     a filter that refuses the calls of a recorder, without killing
 *   strict    seccomp's strict mode, which takes the time stamp counter away too
 *   tsc       prctl(PR_SET_TSC): reading the counter is a SIGSEGV
 *   thread    the filter in one thread, while the main thread allocates as well
 *   fork      the filter, then a fork child that allocates as many
 *   exec      the filter (which lets exec and the loader through), then this program again as `plain`
 *   late      the filter before the thread's first allocation of its own
 *   plain     none of it
 */
#include "programs/workload.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define ALLOWED_MAX 64

static unsigned long pairs;
static bool is_strict;
static int others_stop, ended;
static unsigned long others_count[2];

/* What malloc, free, write and the end of the program need; then what the ways above need besides. */
static const long always[] = {SYS_brk,        SYS_mmap, SYS_munmap, SYS_mremap, SYS_mprotect,        SYS_write,
                              SYS_exit_group, SYS_exit, SYS_futex,  SYS_rseq,   SYS_set_robust_list, SYS_getrandom,
                              SYS_sigaltstack};
static const long for_fork[] = {SYS_clone, SYS_wait4, SYS_gettid};
static const long for_exec[] = {SYS_execve,     SYS_openat,          SYS_read,       SYS_close,
                                SYS_pread64,    SYS_access,          SYS_newfstatat, SYS_fstat,
                                SYS_arch_prctl, SYS_set_tid_address, SYS_prlimit64};
static const long of_recorders[] = {SYS_openat,         SYS_pwrite64,         SYS_fallocate, SYS_ftruncate, SYS_writev,
                                    SYS_rt_sigprocmask, SYS_process_vm_readv, SYS_nanosleep, SYS_madvise};

static void allow(struct sock_filter *filter, unsigned *length, const long *calls, size_t count, uint32_t action)
{
    for (size_t i = 0; i < count; i++) {
        filter[(*length)++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)calls[i], 0, 1);
        filter[(*length)++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action);
    }
}

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void confine(const char *how, unsigned flags)
{
    struct sock_filter filter[2 * ALLOWED_MAX];
    struct sock_fprog program = {.filter = filter};
    unsigned length = 0;
    int is_errno = strcmp(how, "errno") == 0;
    filter[length++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    if (is_errno) {
        allow(filter, &length, of_recorders, COUNT(of_recorders), SECCOMP_RET_ERRNO | EPERM);
    } else {
        allow(filter, &length, always, COUNT(always), SECCOMP_RET_ALLOW);
        if (strcmp(how, "fork") == 0) {
            allow(filter, &length, for_fork, COUNT(for_fork), SECCOMP_RET_ALLOW);
        }
        if (strcmp(how, "exec") == 0) {
            allow(filter, &length, for_exec, COUNT(for_exec), SECCOMP_RET_ALLOW);
        }
    }
    filter[length++] =
        (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, is_errno ? SECCOMP_RET_ALLOW : SECCOMP_RET_KILL_PROCESS);
    program.len = (unsigned short)length;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1L, 0L, 0L, 0L) != 0 ||
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program) != 0) {
        give_up("confined: no seccomp here");
    }
}

static __attribute__((noinline)) void allocate(void)
{
    for (unsigned long i = 0; i < pairs; i++) {
        free(take_block(1234));
    }
}

/* Without what the C library does at the end of a thread, which the filter does not allow. */
static __attribute__((noreturn)) void thread_end(void)
{
    __atomic_fetch_add(&ended, 1, __ATOMIC_RELEASE);
    syscall(SYS_exit, 0);
    __builtin_unreachable();
}

static void wait_for_ends(int count)
{
    while (__atomic_load_n(&ended, __ATOMIC_ACQUIRE) < count) {
    }
}

static void *other_thread(void *count)
{
    unsigned long *done = count;
    while (!__atomic_load_n(&others_stop, __ATOMIC_ACQUIRE)) {
        free(take_block(1234));
        __atomic_fetch_add(done, 1, __ATOMIC_RELEASE);
    }
    thread_end();
}

static void *confined_thread(void *how)
{
    confine(how, 0);
    allocate();
    thread_end();
}

/* No stdio: it may ask the kernel things. Strict mode knows exit only, not that of the group. */
static __attribute__((noreturn)) void emit(unsigned long count)
{
    char line[64];
    int length = snprintf(line, sizeof(line), "{\"pairs\":%lu}\n", count);
    ssize_t written = write(STDOUT_FILENO, line, (size_t)length);
    syscall(is_strict ? SYS_exit : SYS_exit_group, written == length ? 0 : 1);
    __builtin_unreachable();
}

static unsigned long with_threads(const char *how)
{
    if (strcmp(how, "thread") == 0) {
        start_thread(confined_thread, (void *)(uintptr_t) "kill");
        allocate();
        wait_for_ends(1);
        return 2 * pairs;
    }
    for (int i = 0; i < 2; i++) {
        start_thread(other_thread, &others_count[i]);
    }
    while (__atomic_load_n(&others_count[0], __ATOMIC_ACQUIRE) < 100 ||
           __atomic_load_n(&others_count[1], __ATOMIC_ACQUIRE) < 100) {
    }
    confine("kill", SECCOMP_FILTER_FLAG_TSYNC);
    allocate();
    __atomic_store_n(&others_stop, 1, __ATOMIC_RELEASE);
    wait_for_ends(2);
    return pairs + others_count[0] + others_count[1];
}

static unsigned long with_child(void)
{
    int status = 1;
    confine("fork", 0);
    allocate();
    pid_t child = fork();
    if (child == 0) {
        allocate();
        syscall(SYS_exit_group, 0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
        give_up("confined: the child failed");
    }
    return 2 * pairs;
}

static void give_up_rights(const char *how)
{
    if (strcmp(how, "kill") == 0 || strcmp(how, "errno") == 0 || strcmp(how, "late") == 0) {
        confine(how, 0);
    } else if (strcmp(how, "strict") == 0) {
        is_strict = true;
        prctl(PR_SET_SECCOMP, (long)SECCOMP_MODE_STRICT, 0L, 0L, 0L);
    } else if (strcmp(how, "tsc") == 0) {
        prctl(PR_SET_TSC, (long)PR_TSC_SIGSEGV, 0L, 0L, 0L);
    }
}

int main(int argc, char *argv[])
{
    const char *how = argc > 1 ? argv[1] : "plain";
    int is_late = strcmp(how, "late") == 0;
    pairs = argc > 2 ? strtoul(argv[2], NULL, 10) : 1000;
    if (strcmp(how, "tsync") == 0 || strcmp(how, "thread") == 0) {
        emit(with_threads(how));
    }
    if (strcmp(how, "fork") == 0) {
        emit(with_child());
    }
    if (strcmp(how, "exec") == 0) {
        char *const again[] = {argv[0], (char *)(uintptr_t) "plain", argv[2], NULL};
        confine(how, 0);
        execv(argv[0], again);
        give_up("confined: no exec");
    }
    for (volatile int round = is_late ? 1 : 0; round < 2; round++) { /* one call site for both rounds */
        if (round == 1) {
            give_up_rights(how);
        }
        allocate();
    }
    emit(is_late ? pairs : 2 * pairs);
}
