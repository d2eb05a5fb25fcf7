/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is right in a program and wrong for a guest that is careless in a hook. x86-64 only: needs code that
 * no rule of unwinding describes.
 *
 *   guest_races constructor LIBRARY   a constructor waits for a lock whose holder allocates
 *   guest_races iterate               so does a callback of dl_iterate_phdr
 *   guest_races protect               rbp points into memory that another thread protects and opens all the
 * time
 *
 * Ends with "done".
 */
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#define ALLOCATIONS 5000 /* the recorder looks for an interpreter every 1024 */
#define COROUTINE_BYTES ((size_t)32 << 10)
#define PAGE_BYTES ((size_t)4096)
#define PROTECTIONS 50000

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static sem_t has_begun;

void call_unknown_frame(void (*function)(void));
void call_with_rbp(void (*function)(void), uintptr_t rbp);

__asm__(".text\n"
        ".type call_unknown_frame, @function\n"
        "call_unknown_frame:\n"
        ".cfi_startproc\n"
        "push %rbx\n"
        ".cfi_def_cfa_offset 16\n"
        ".cfi_offset %rbx, -16\n"
        "mov %rsp, %rbx\n"
        ".cfi_def_cfa_register %rbx\n"
        "call *%rdi\n"
        "mov %rbx, %rsp\n"
        ".cfi_def_cfa_register %rsp\n"
        "pop %rbx\n"
        ".cfi_def_cfa_offset 8\n"
        "ret\n"
        ".cfi_endproc\n"
        ".size call_unknown_frame, . - call_unknown_frame\n"
        ".type call_with_rbp, @function\n"
        "call_with_rbp:\n"
        "push %rbp\n"
        "mov %rsi, %rbp\n"
        "call *%rdi\n"
        "pop %rbp\n"
        "ret\n"
        ".size call_with_rbp, . - call_with_rbp\n");

static void allocate(void)
{
    free(malloc(100));
}

/* ---- locks ---- */

/* With the loader's lock held. */
static void wait_for_lock(void)
{
    sem_post(&has_begun);
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
}

static void handle(int number)
{
    (void)number;
    wait_for_lock();
}

static int visit(struct dl_phdr_info *info, size_t bytes, void *unused)
{
    (void)info;
    (void)bytes;
    (void)unused;
    wait_for_lock();
    return 1;
}

static void *open_library(void *path)
{
    return dlopen(path, RTLD_NOW) != NULL ? path : NULL;
}

static void *iterate(void *unused)
{
    (void)dl_iterate_phdr(visit, NULL);
    return unused;
}

static void race_for_lock(void *(*other)(void *), void *argument)
{
    pthread_mutex_lock(&lock);
    pthread_t thread;
    if (pthread_create(&thread, NULL, other, argument) != 0) {
        exit(1);
    }
    while (sem_wait(&has_begun) != 0) {
    }
    for (int i = 0; i < ALLOCATIONS; i++) {
        call_unknown_frame(allocate);
    }
    pthread_mutex_unlock(&lock);
    pthread_join(thread, NULL);
}

/* ---- memory that goes ---- */

static volatile bool is_over;
static unsigned char *stack; /* of the coroutine; the page above is the one that goes */
static ucontext_t outside;
static ucontext_t inside;

static void *protect(void *unused)
{
    for (int i = 0; i < PROTECTIONS; i++) {
        mprotect(stack + COROUTINE_BYTES, PAGE_BYTES, i % 2 == 0 ? PROT_NONE : PROT_READ | PROT_WRITE);
    }
    is_over = true;
    return unused;
}

static void coroutine(void)
{
    while (!is_over) {
        call_with_rbp(allocate, (uintptr_t)stack + COROUTINE_BYTES + 64);
    }
}

static void race_for_memory(void)
{
    pthread_t thread;

    stack = mmap(NULL, COROUTINE_BYTES + PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack == MAP_FAILED || getcontext(&inside) != 0 || pthread_create(&thread, NULL, protect, NULL) != 0) {
        exit(1);
    }
    inside.uc_stack.ss_sp = stack;
    inside.uc_stack.ss_size = COROUTINE_BYTES;
    inside.uc_link = &outside;
    makecontext(&inside, coroutine, 0);
    swapcontext(&outside, &inside);
    pthread_join(thread, NULL);
}

int main(int argc, char **argv)
{
    sem_init(&has_begun, 0, 0);
    if (argc == 3 && strcmp(argv[1], "constructor") == 0) {
        signal(SIGUSR1, handle);
        race_for_lock(open_library, argv[2]);
    } else if (argc == 2 && strcmp(argv[1], "iterate") == 0) {
        race_for_lock(iterate, NULL);
    } else if (argc == 2 && strcmp(argv[1], "protect") == 0) {
        race_for_memory();
    } else {
        return 2;
    }
    puts("done");
    return 0;
}
