/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that gives itself limits, and allocates under them: in a new thread, in a fork child, in a new
 * thread of that. Prints the pairs that all of them made, and whether a signal is pending that was not sent.
 *
 * usage: limited HOW VALUE PAIRS
 *     file BYTES   RLIMIT_FSIZE, with SIGXFSZ at its default
 *     sent BYTES   the same, with one SIGXFSZ of the program's own pending: it must stay so
 *     files COUNT  RLIMIT_NOFILE; all descriptors below it are in use
 *     space BYTES  RLIMIT_AS, so much above what is mapped
 *     root 0       chroot into an empty folder
 *     user UID     setuid
 */
#include "programs/workload.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define STACK_BYTES 65536U

static long pairs;
static long *made; /* shared with children; atomic */
static char stacks[4][STACK_BYTES] __attribute__((aligned(4096)));

static void *allocate(void *unused)
{
    (void)unused;
    for (long i = 0; i < pairs; i++) {
        char *memory = malloc(1234);
        if (memory != NULL) {
            memory[0] = 1;
            free(memory);
            __atomic_fetch_add(made, 1, __ATOMIC_RELAXED);
        }
    }
    return NULL;
}

static void allocate_in_thread(char *stack)
{
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, stack, STACK_BYTES);
    pthread_t thread;
    if (pthread_create(&thread, &attributes, allocate, NULL) == 0) {
        pthread_join(thread, NULL);
    }
}

static int limit(int resource, rlim_t value)
{
    struct rlimit both = {value, value};
    return setrlimit(resource, &both);
}

static rlim_t mapped_bytes(void)
{
    char text[64] = "";
    int fd = open("/proc/self/statm", O_RDONLY);
    if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0) {
        return 0;
    }
    close(fd);
    return strtoul(text, NULL, 10) * (rlim_t)sysconf(_SC_PAGESIZE);
}

static int confine(const char *how, long value)
{
    sigset_t signals;
    if (strcmp(how, "sent") == 0) {
        sigemptyset(&signals);
        sigaddset(&signals, SIGXFSZ);
        if (sigprocmask(SIG_BLOCK, &signals, NULL) != 0 || raise(SIGXFSZ) != 0) {
            return -1;
        }
    }
    if (strcmp(how, "file") == 0 || strcmp(how, "sent") == 0) {
        return limit(RLIMIT_FSIZE, (rlim_t)value);
    }
    if (strcmp(how, "files") == 0) {
        while (dup(0) >= 0 && dup(0) < value - 1) {
        }
        return limit(RLIMIT_NOFILE, (rlim_t)value);
    }
    if (strcmp(how, "space") == 0) {
        return limit(RLIMIT_AS, mapped_bytes() + (rlim_t)value);
    }
    if (strcmp(how, "root") == 0) {
        return chroot("/proc/self/fdinfo") == 0 ? chdir("/") : -1;
    }
    return strcmp(how, "user") == 0 ? setuid((uid_t)value) : -1;
}

int main(int argc, char **argv)
{
    int status = 0;
    if (argc < 4) {
        return 2;
    }
    pairs = strtol(argv[3], NULL, 10);
    made = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    allocate(NULL);
    if (made == MAP_FAILED || confine(argv[1], strtol(argv[2], NULL, 10)) != 0) {
        perror(argv[1]);
        return 77;
    }
    allocate_in_thread(stacks[0]);
    pid_t child = fork();
    if (child == 0) {
        allocate(NULL);
        allocate_in_thread(stacks[1]);
        _exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child) {
        return 1;
    }
    allocate(NULL);
    sigset_t pending;
    sigpending(&pending);
    printf("{\"pairs\":%ld,\"pending\":%s,\"child\":%d}\n", *made, sigismember(&pending, SIGXFSZ) ? "true" : "false",
           status);
    return 0;
}
