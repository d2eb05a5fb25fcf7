/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that allocates nothing at all: it must leave no row and no file behind. Argument: its exit
 * status.
 */
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    static const char text[] = "no allocation here\n";
    if (write(STDOUT_FILENO, text, sizeof(text) - 1) != (ssize_t)(sizeof(text) - 1)) {
        _exit(1);
    }
    _exit(argc > 1 ? atoi(argv[1]) : 0);
}
