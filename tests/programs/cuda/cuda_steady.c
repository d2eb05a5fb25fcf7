/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocates device memory (of the fake driver, in tests) until a file "quit" lies in the folder given: where there is
 * a file "go", which it removes, ROUNDS rounds; then it says so. In each: by the linked name, by a pointer that dlsym
 * has given, by one of cuGetProcAddress, and by one that is asked for anew; as many bytes as the way's number times
 * 1,000. Says at the end whether what it keeps of the driver is what it was. It has data that nobody reads, as CUDA's
 * libraries have.
 */
#include "programs/cuda/driver/fake.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROUNDS 50U
#define UNREAD_WORDS (1U << 20)
#define MASK UINT64_C(0x5555555555555555) /* what a word is hidden by */

struct pair {
    cuda_type_cuMemAlloc_v2 *alloc;
    cuda_type_cuMemFree_v2 *free;
};

static struct pair asked, told;
static __attribute__((used)) uint64_t unread[UNREAD_WORDS] = {1};

static uint64_t hidden(const struct pair *pair)
{
    uint64_t words[2];
    memcpy(words, pair, sizeof(words));
    return (words[0] * 3 + words[1]) ^ MASK;
}

static void ask(void *library, struct pair *pair)
{
    void *found[2] = {dlsym(library, "cuMemAlloc_v2"), dlsym(library, "cuMemFree_v2")};
    memcpy(pair, found, sizeof(found));
}

static void expect(bool is_well)
{
    if (!is_well) {
        fprintf(stderr, "the driver refuses a call\n");
        exit(3);
    }
}

static __attribute__((noinline)) void round_linked(size_t bytes) /* which asks the loader's table each time */
{
    uint64_t addr = 0;
    expect(cuMemAlloc_v2(&addr, bytes) == 0 && cuMemFree_v2(addr) == 0);
}

static void round_of(const struct pair *pair, size_t bytes)
{
    uint64_t addr = 0;
    expect(pair->alloc(&addr, bytes) == 0 && pair->free(addr) == 0);
}

int main(int argc, char **argv)
{
    void *primary = NULL, *library = dlopen("libcuda.so.1", RTLD_NOW);
    char quit[4096], go[4096];
    snprintf(quit, sizeof(quit), "%s/quit", argc > 1 ? argv[1] : ".");
    snprintf(go, sizeof(go), "%s/go", argc > 1 ? argv[1] : ".");
    cuda_type_cuGetProcAddress_v2 *address;
    enum cuda_address_status status;
    void *found = dlsym(library, "cuGetProcAddress_v2");
    memcpy(&address, &found, sizeof(found));
    if (cuInit(0) != 0 || cuDevicePrimaryCtxRetain(&primary, 0) != 0 || cuCtxSetCurrent(primary) != 0 ||
        address("cuMemAlloc", (void **)&told.alloc, 12000, 0, &status) != 0 ||
        address("cuMemFree", (void **)&told.free, 12000, 0, &status) != 0) {
        return 2;
    }
    ask(library, &asked);
    const uint64_t before[2] = {hidden(&asked), hidden(&told)};
    printf("ready\n");
    fflush(stdout);
    while (access(quit, F_OK) != 0) {
        const bool is_asked = unlink(go) == 0;
        for (unsigned i = 0; is_asked && i < ROUNDS; i++) {
            struct pair anew;
            ask(library, &anew);
            round_linked(1000);
            round_of(&asked, 2000);
            round_of(&told, 3000);
            round_of(&anew, 4000);
        }
        if (is_asked) {
            printf("done\n");
            fflush(stdout);
        }
        usleep(1000);
    }
    printf("%s\n", hidden(&asked) == before[0] && hidden(&told) == before[1] ? "unchanged" : "changed");
    return 0;
}
