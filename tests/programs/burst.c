/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One thread, N pairs of malloc and free as fast as they go: far more than any small ring holds.
 *
 *   burst N [SIZE]       prints {"pairs":N,"size":SIZE,"tid":T}
 */
#include "workload.h"

int main(int argc, char **argv)
{
    unsigned long count = argc > 1 ? strtoul(argv[1], NULL, 10) : 100000;
    size_t size = argc > 2 ? strtoul(argv[2], NULL, 10) : 48;
    for (unsigned long i = 0; i < count; i++) {
        free(take_block(size));
    }
    say("{\"pairs\":%lu,\"size\":%zu,\"tid\":%d}\n", count, size, thread_id());
    return 0;
}
