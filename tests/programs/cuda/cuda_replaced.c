/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocates by cuMemAlloc and cuMemAllocManaged and looks at what it got; for the tests in which an allocator
 * serves the former. Prints the sizes that the driver gives its blocks,
 * and whether they can be shared.
 */
#include "programs/cuda/driver/scenario.h"

#include <dlfcn.h>

static void *find(void *library, const char *name)
{
    void *found = dlsym(library, name);
    if (found == NULL) {
        fprintf(stderr, "no %s\n", name);
        exit(2);
    }
    return found;
}

int main(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    uint64_t first = 0, second = 0, managed = 0, base = 0;
    void *primary = NULL;
    size_t bytes = 0;
    struct cuda_ipc_memory shared;
    struct api api = {0};
    void *found;
    if (library == NULL) {
        return 2;
    }
#define X(exported, symbol, version, flags, ...) \
    found = find(library, #exported);            \
    memcpy(&api.exported, &found, sizeof(found));
    CUDA_HOOK_LIST(X)
#undef X
#define X(name, parameters)       \
    found = find(library, #name); \
    memcpy(&api.name, &found, sizeof(found));
    CUDA_PLAIN_LIST(X)
#undef X
    EXPECT(0, api.cuInit(0));
    EXPECT(FAKE_NO_CONTEXT, api.cuMemAlloc_v2(&first, 500));
    EXPECT(0, api.cuDevicePrimaryCtxRetain(&primary, 0));
    EXPECT(0, api.cuCtxSetCurrent(primary));
    first = take(&api, 31000);
    second = take(&api, 32000);
    EXPECT(0, api.cuMemAllocManaged(&managed, 33000, 1));
    EXPECT(FAKE_OUT_OF_MEMORY, api.cuMemAlloc_v2(&base, (size_t)1 << 50));
    EXPECT(0, api.cuMemGetAddressRange_v2(&base, &bytes, second));
    printf("%d %zu", base == second, bytes);
    EXPECT(0, api.cuMemGetAddressRange_v2(&base, &bytes, managed));
    printf(" %zu %d", bytes, api.cuIpcGetMemHandle(&shared, second));
    printf(" %d\n", api.cuIpcGetMemHandle(&shared, managed));
    EXPECT(0, api.cuMemFree_v2(first));
    EXPECT(0, api.cuMemFree_v2(managed));
    EXPECT(FAKE_INVALID, api.cuMemFree_v2(0xdead40));
    EXPECT(0, api.cuDevicePrimaryCtxReset_v2(0));
    return 0;
}
