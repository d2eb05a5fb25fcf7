/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server by the book: a master of root's forks workers, several at once, which become another user, allocate, in a
 * thread too, and end; then the next ones come. Prints the blocks that all of them together leaked.
 *
 * usage: workers ROUNDS AT_ONCE BLOCKS
 */
#include "programs/workload.h"

#include <grp.h>
#include <sys/wait.h>

#define NOBODY 65534

static long blocks;
static void *volatile kept;

__attribute__((noinline)) static void serve(void)
{
    kept = malloc(50);
}

static void *work(void *unused)
{
    (void)unused;
    for (long i = 0; i < blocks; i++) {
        serve();
    }
    return NULL;
}

static int be_worker(void)
{
    if (setgroups(0, NULL) != 0 || setgid(NOBODY) != 0 || setuid(NOBODY) != 0) {
        return 77;
    }
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, NULL) != 0) {
        return 1;
    }
    work(NULL);
    return pthread_join(thread, NULL);
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        return 2;
    }
    const long rounds = strtol(argv[1], NULL, 10), at_once = strtol(argv[2], NULL, 10);
    blocks = strtol(argv[3], NULL, 10);
    int worst = 0;
    for (long round = 0; round < rounds; round++) {
        for (long i = 0; i < at_once; i++) {
            if (fork() == 0) {
                _exit(be_worker());
            }
        }
        int status;
        while (wait(&status) > 0) {
            worst = status != 0 ? WEXITSTATUS(status) : worst;
        }
    }
    printf("%ld\n", rounds * at_once * blocks * 2);
    return worst;
}
