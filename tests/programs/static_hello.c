/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Statically linked (by the prefix of its name): no recorder can be loaded into it. Allocates and says so.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    static const char text[] = "hello from a static program\n";
    volatile char *block = malloc(100);
    if (!block || write(STDOUT_FILENO, text, sizeof(text) - 1) < 0) {
        return 1;
    }
    if (argc > 1 && strcmp(argv[1], "wait") == 0) {
        pause();
    }
    *block = 1;
    free((void *)(size_t)block);
    return 0;
}
