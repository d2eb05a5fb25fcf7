/* SPDX-License-Identifier: Apache-2.0 */
/* Gives blocks of 52,017 bytes back by every function that this process has for it; prints how many blocks
 * there were. */
#include <stdio.h>
#include <stdlib.h>

void cfree(void *memory) __attribute__((weak));
void free_sized(void *memory, size_t size) __attribute__((weak));
void free_aligned_sized(void *memory, size_t alignment, size_t size) __attribute__((weak));

int main(void)
{
    int count = 0;
    if (cfree != NULL) {
        cfree(malloc(52017));
        count++;
    }
    if (free_sized != NULL) {
        free_sized(malloc(52017), 52017);
        count++;
    }
    if (free_aligned_sized != NULL) {
        void *memory = NULL;
        if (posix_memalign(&memory, 64, 52017) != 0) {
            return 1;
        }
        free_aligned_sized(memory, 64, 52017);
        count++;
    }
    printf("{\"blocks\":%d}\n", count);
    return 0;
}
