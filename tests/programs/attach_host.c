/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program into which the recorder is loaded at an awkward moment. Its malloc is its own, and what the loader calls.
 * Standard input leads it: once it has said what it is at, it stays there until it gets a byte. SIGUSR1 ends the wait
 * of the main thread.
 *   gate HOW   the loader, when it allocates, has to wait; HOW is what the main thread does: forever (it sleeps),
 *              busily
 *   fault HOW  memory that the loader's allocation writes is closed each time, and opened by a handler of SIGSEGV
 *   vfork      the main thread has a vfork child
 *   waits      system calls that the kernel does not begin again: epoll_wait, semtimedop, sigtimedwait; says what they
 *              returned
 *   load FILE  the main thread is in dlopen, another one is idle
 */
#include "workload.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <sys/wait.h>

extern void *__libc_malloc(size_t size);

static volatile sig_atomic_t is_armed, has_ended, faults;
static char *closed_page;
static bool with_faults;

static void await_byte(void)
{
    char byte;
    while (read(STDIN_FILENO, &byte, 1) < 0 && errno == EINTR) {
    }
}

__attribute__((visibility("default"))) void *malloc(size_t size)
{
    if (is_armed && with_faults) {
        mprotect(closed_page, 4096, PROT_READ);
        *(volatile char *)closed_page = 1;
    } else if (is_armed) {
        is_armed = 0;
        say("inside\n");
        await_byte();
    }
    return __libc_malloc(size);
}

static void end_wait(int number)
{
    (void)number;
    has_ended = 1;
}

static void open_page(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)context;
    if (info->si_addr != closed_page) {
        _exit(123);
    }
    faults++;
    mprotect(closed_page, 4096, PROT_READ | PROT_WRITE);
}

/* Registers that only a whole state restored leaves as they are, with no system call. */
static bool wait_busily(void)
{
#ifdef __x86_64__
    const uint64_t expected[2] = {UINT64_C(0x0123456789abcdef), UINT64_C(0xfedcba9876543210)};
    uint64_t got[2] = {0, 0}, general = 0, red = 0;
    __asm__ volatile("movdqu %4, %%xmm9\n"
                     "movq $77, -96(%%rsp)\n" /* below the stack, where it may */
                     "movq $4711, %%r9\n"
                     "1: cmpl $0, %5\n"
                     "je 1b\n"
                     "movdqu %%xmm9, %0\n"
                     "movq %%r9, %1\n"
                     "movq %3, %2\n"
                     : "=m"(got), "=&r"(general), "=&r"(red)
                     : "i"(77), "m"(expected), "m"(has_ended)
                     : "xmm9", "r9", "memory", "cc");
    return memcmp(got, expected, sizeof(got)) == 0 && general == 4711 && red == 77;
#else
    while (!has_ended) {
    }
    return true;
#endif
}

static int wait_between(const char *how)
{
    bool is_well = true;
    is_armed = 1;
    say("ready\n");
    if (strcmp(how, "busily") == 0) {
        is_well = wait_busily();
    } else {
        const struct timespec time = {1000, 0};
        while (!has_ended && is_well) {
            is_well = nanosleep(&time, NULL) == 0 || has_ended;
        }
    }
    is_armed = 0;
    say("%s %d\n", is_well ? "well" : "ill", (int)faults);
    return !is_well;
}

static int vfork_once(void)
{
    int status = 0;
    say("ready\n");
    pid_t child = vfork();
    if (child == 0) {
        char byte;
        (void)syscall(SYS_read, STDIN_FILENO, &byte, 1);
        _exit(0);
    }
    waitpid(child, &status, 0);
    say("well\n");
    await_byte();
    return status;
}

static int wait_in_calls(void)
{
    const int epoll = epoll_create1(0), semaphores = semget(IPC_PRIVATE, 1, 0600);
    struct sembuf take = {.sem_op = -1};
    const struct timespec time = {0, 400000000};
    sigset_t set;
    bool is_well = true;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    say("ready\n");
    struct epoll_event event;
    while (!has_ended && is_well) {
        is_well = epoll_wait(epoll, &event, 1, 400) == 0 || has_ended;
        is_well = is_well && ((semtimedop(semaphores, &take, 1, &time) < 0 && errno == EAGAIN) || has_ended);
        is_well = is_well && ((sigtimedwait(&set, NULL, &time) < 0 && errno == EAGAIN) || has_ended);
    }
    semctl(semaphores, 0, IPC_RMID);
    say("%s\n", is_well ? "well" : "ill");
    return !is_well;
}

static void *stay_idle(void *nothing)
{
    for (;;) {
        usleep(1000);
    }
    return nothing;
}

static int load(const char *file)
{
    start_thread(stay_idle, NULL);
    if (dlopen(file, RTLD_NOW) == NULL) {
        give_up(dlerror());
    }
    say("loaded\n");
    await_byte();
    return 0;
}

int main(int count, char **arguments)
{
    const char *what = count > 1 ? arguments[1] : "", *how = count > 2 ? arguments[2] : "";
    struct sigaction action = {.sa_handler = end_wait};
    sigaction(SIGUSR1, &action, NULL);
    if (strcmp(what, "fault") == 0) {
        closed_page = map_unseen(NULL, 4096);
        with_faults = true;
        action.sa_sigaction = open_page;
        action.sa_flags = SA_SIGINFO;
        sigaction(SIGSEGV, &action, NULL);
    }
    if (strcmp(what, "vfork") == 0) {
        return vfork_once();
    }
    if (strcmp(what, "waits") == 0) {
        return wait_in_calls();
    }
    return strcmp(what, "load") == 0 ? load(how) : wait_between(how);
}
