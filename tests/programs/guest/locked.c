/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Locks all its memory as an ordinary user, within a limit that it keeps to: what is there, a mapping beyond the end of
 * its file too, and what comes; then threads and large blocks. Prints how many calls failed.
 *
 * usage: locked MIB
 */
#include "programs/workload.h"

#include <sys/resource.h>

#define NOBODY 65534
#define BLOCK_BYTES 300000

static void *allocate(void *unused)
{
    void *volatile block = malloc(1000);
    (void)unused;
    free(block);
    return NULL;
}

static int in_threads(void)
{
    int failed = 0;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 65536);
    for (int i = 0; i < 4; i++) {
        pthread_t thread;
        if (pthread_create(&thread, &attributes, allocate, NULL) != 0) {
            failed++;
        } else {
            pthread_join(thread, NULL);
        }
    }
    return failed;
}

int main(int argc, char **argv)
{
    const rlim_t bytes = argc > 1 ? strtoul(argv[1], NULL, 10) << 20 : 0;
    const struct rlimit limit = {bytes, bytes};
    if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || (geteuid() == 0 && setuid(NOBODY) != 0)) {
        return 77;
    }
    const int file = memfd_create("short", 0);
    int failed = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) == MAP_FAILED;
    failed += mlockall(MCL_CURRENT | MCL_FUTURE) != 0;
    failed += in_threads();
    for (int i = 0; i < 3; i++) {
        failed += malloc(BLOCK_BYTES) == NULL;
    }
    printf("%d\n", failed);
    return failed != 0;
}
