/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the CUDA driver (the fake one, in tests) at run time, on the way that its argument names, and uses
 * everything of it that is recorded. `strange`: asks for what a recorder must not answer in the driver's
 * place. `replaced`: allocates by cuMemAlloc and cuMemAllocManaged and looks at what it got, where an allocator serves
 * the former; prints the sizes that the driver gives its blocks, and whether they can be shared.
 */
#include "programs/cuda/driver/scenario.h"

#include <dlfcn.h>

static void *library;
static cuda_type_cuGetProcAddress *address;
static cuda_type_cuGetProcAddress_v2 *address_v2;

static void *find(const char *way, const char *exported, const char *symbol, int version, unsigned flags)
{
    uint64_t own = (flags & CUDA_HOOK_PER_THREAD) != 0 ? CUDA_ADDRESS_PER_THREAD : 0;
    void *found = NULL;
    enum cuda_address_status status = 99; /* not set */
    if (strcmp(way, "address") == 0) {
        return address(symbol, &found, version, own) == 0 ? found : NULL;
    }
    if (strcmp(way, "address_v2") == 0) {
        return address_v2(symbol, &found, version, own, &status) == 0 && status == 0 ? found : NULL;
    }
    if (strcmp(way, "next") == 0) {
        return dlsym(RTLD_NEXT, exported);
    }
    return dlsym(strcmp(way, "default") == 0 ? RTLD_DEFAULT : library, exported);
}

static void set(void *field, void *found, const char *name)
{
    if (found == NULL) {
        fprintf(stderr, "%s was not found\n", name);
        exit(2);
    }
    memcpy(field, &found, sizeof(found));
}

static void fill(struct api *api, const char *way)
{
#define X(exported, symbol, version, flags, ...) \
    set(&api->exported, find(way, #exported, #symbol, version, flags), #exported);
    CUDA_HOOK_LIST(X)
#undef X
#define X(name, parameters) set(&api->name, dlsym(library, #name), #name);
    CUDA_PLAIN_LIST(X)
#undef X
}

static void wrong_if(bool is_wrong, const char *what)
{
    if (is_wrong) {
        fprintf(stderr, "%s\n", what);
        exit(3);
    }
}

/* Without a driver the answers are those of a process without a recorder. */
static void run_absent(void)
{
    wrong_if(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") != NULL || dlsym(RTLD_NEXT, "cuMemFree_v2") != NULL ||
                 dlsym(RTLD_DEFAULT, "cudaMalloc") != NULL || dlsym(dlopen(NULL, RTLD_LAZY), "cuCtxDestroy_v2") != NULL,
             "a driver was found where there is none");
    dlerror();
    dlsym(RTLD_DEFAULT, "cuMemAlloc_v2");
    const char *message = dlerror();
    wrong_if(message == NULL || strstr(message, "cuMemAlloc_v2") == NULL, "dlerror does not report what was not found");
    puts(message);
    wrong_if(dlerror() != NULL, "an error was reported twice");
}

static void run_strange(void)
{
    void *found = NULL;
    void *wanted = dlsym(library, "cuMemAlloc");
    enum cuda_address_status status = 99; /* not set */
    dlerror();
    wrong_if(dlsym(library, "cuMemAlloc_v2") == NULL || dlerror() != NULL, "an answer leaves an error behind");
    wrong_if(dlsym(library, "cuNothing") != NULL || dlerror() == NULL, "dlerror does not report of another name");
    wrong_if(address_v2("cuMemAlloc", &found, 2000, 0, &status) != 0 || found != wanted,
             "the first version of a function was replaced");
    wrong_if(address_v2("cuMemAlloc", &found, 14000, 0, &status) != 0 || found == dlsym(library, "cuMemAlloc_v2"),
             "a version of the future was replaced");
    wrong_if(address_v2("cuNothing", &found, 12000, 0, &status) != 500 || status != 1 || found != NULL,
             "what is not there was found");
    wrong_if(address_v2("cuCtxSynchronize", &found, 12080, 0, NULL) != 0 || found != dlsym(library, "cuCtxSynchronize"),
             "another version of cuCtxSynchronize");
    wrong_if(address_v2("cuCtxSynchronize", &found, 13000, 0, NULL) != 0 ||
                 found != dlsym(library, "cuCtxSynchronize_v2"),
             "not the version 2 of cuCtxSynchronize");
}

static void run_replaced(const struct api *api)
{
    uint64_t first = 0, second = 0, managed = 0, base = 0;
    void *primary = NULL;
    size_t bytes = 0;
    struct cuda_ipc_memory shared;
    EXPECT(0, api->cuInit(0));
    EXPECT(FAKE_NO_CONTEXT, api->cuMemAlloc_v2(&first, 500));
    EXPECT(0, api->cuDevicePrimaryCtxRetain(&primary, 0));
    EXPECT(0, api->cuCtxSetCurrent(primary));
    first = take(api, 31000);
    second = take(api, 32000);
    EXPECT(0, api->cuMemAllocManaged(&managed, 33000, 1));
    EXPECT(FAKE_OUT_OF_MEMORY, api->cuMemAlloc_v2(&base, (size_t)1 << 50));
    EXPECT(0, api->cuMemGetAddressRange_v2(&base, &bytes, second));
    printf("%d %zu", base == second, bytes);
    EXPECT(0, api->cuMemGetAddressRange_v2(&base, &bytes, managed));
    printf(" %zu %d", bytes, api->cuIpcGetMemHandle(&shared, second));
    printf(" %d\n", api->cuIpcGetMemHandle(&shared, managed));
    EXPECT(0, api->cuMemFree_v2(first));
    EXPECT(0, api->cuMemFree_v2(managed));
    EXPECT(FAKE_INVALID, api->cuMemFree_v2(0xdead40));
    EXPECT(0, api->cuDevicePrimaryCtxReset_v2(0));
}

int main(int argc, char **argv)
{
    const char *way = argc > 1 ? argv[1] : "handle";
    bool is_global = strcmp(way, "default") == 0 || strcmp(way, "next") == 0 || strcmp(way, "program") == 0;
    struct api api = {0};
    if (strcmp(way, "absent") == 0) {
        run_absent();
        return 0;
    }
    library = dlopen("libcuda.so.1", RTLD_NOW | (is_global ? RTLD_GLOBAL : RTLD_LOCAL));
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    set(&address, dlsym(library, "cuGetProcAddress"), "cuGetProcAddress");
    set(&address_v2, dlsym(library, "cuGetProcAddress_v2"), "cuGetProcAddress_v2");
    if (strcmp(way, "strange") == 0) {
        run_strange();
        return 0;
    }
    library = strcmp(way, "program") == 0 ? dlopen(NULL, RTLD_LAZY) : library;
    fill(&api, way);
    if (strcmp(way, "replaced") == 0) {
        run_replaced(&api);
    } else {
        scenario(&api, strcmp(way, "address_v2") == 0);
    }
    return 0;
}
