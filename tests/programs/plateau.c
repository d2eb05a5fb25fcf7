/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A large block that is held while nothing else happens, between two bursts of small ones.
 *
 *   plateau BYTES MILLISECONDS BURST
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void burst(long count)
{
    for (long i = 0; i < count; i++) {
        char *volatile block = malloc(100 + (size_t)(i % 50));
        free(block);
    }
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        return 2;
    }
    size_t bytes = strtoul(argv[1], NULL, 10);
    long held_ms = strtol(argv[2], NULL, 10);
    burst(strtol(argv[3], NULL, 10));
    char *block = malloc(bytes);
    if (block == NULL) {
        return 1;
    }
    memset(block, 1, bytes);
    nanosleep(&(struct timespec){.tv_sec = held_ms / 1000, .tv_nsec = held_ms % 1000 * 1000000}, NULL);
    free(block);
    burst(strtol(argv[3], NULL, 10));
    return 0;
}
