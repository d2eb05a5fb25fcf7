/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocates slowly but steadily, so that something can be done to the recording meanwhile: its directory
 * deleted, its disk filled, its collector killed.
 *
 *   rmdir_victim SECONDS [PAIRS PER MILLISECOND]     prints "started", at the end {"pairs":N}; exit status 7
 */
#include "workload.h"

int main(int argc, char **argv)
{
    double end = seconds_now() + (argc > 1 ? strtod(argv[1], NULL) : 1.0);
    unsigned long rate = argc > 2 ? strtoul(argv[2], NULL, 10) : 10;
    unsigned long pairs = 0;
    say("started\n");
    while (seconds_now() < end) {
        for (unsigned long i = 0; i < rate; i++) {
            free(take_block(1234));
            pairs++;
        }
        usleep(1000);
    }
    say("{\"pairs\":%lu}\n", pairs);
    return 7;
}
