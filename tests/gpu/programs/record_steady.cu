/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory in rounds, until a file "quit" lies in the folder given: round N asks for 1,000,000 + N bytes. */
#include <cuda_runtime_api.h>

#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    char path[4096];
    unsigned rounds = 0;
    void *memory;
    snprintf(path, sizeof(path), "%s/quit", argc > 1 ? argv[1] : ".");
    if (cudaFree(NULL) != cudaSuccess) {
        return 2;
    }
    puts("ready");
    fflush(stdout);
    for (; access(path, F_OK) != 0; rounds++) {
        if (cudaMalloc(&memory, 1000000 + rounds) != cudaSuccess || cudaFree(memory) != cudaSuccess) {
            return 3;
        }
        usleep(500);
    }
    printf("rounds %u\n", rounds);
    return 0;
}
