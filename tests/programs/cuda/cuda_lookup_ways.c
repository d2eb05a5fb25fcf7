/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the CUDA driver (the fake one, in tests) at run time, on the way that its argument names, and uses
 * everything of it that is recorded. `strange`: asks for what a recorder must not answer in the driver's
 * place.
 */
#include "programs/cuda/driver/scenario.h"

#include <dlfcn.h>

static void *library;
static cuda_type_cuGetProcAddress *address;
static cuda_type_cuGetProcAddress_v2 *address_v2;

typedef void *find_function(const char *exported, const char *symbol, int version, unsigned flags);

static void *by_handle(const char *exported, const char *symbol, int version, unsigned flags)
{
    (void)symbol;
    (void)version;
    (void)flags;
    return dlsym(library, exported);
}

static void *by_default(const char *exported, const char *symbol, int version, unsigned flags)
{
    (void)symbol;
    (void)version;
    (void)flags;
    return dlsym(RTLD_DEFAULT, exported);
}

static void *by_next(const char *exported, const char *symbol, int version, unsigned flags)
{
    (void)symbol;
    (void)version;
    (void)flags;
    return dlsym(RTLD_NEXT, exported);
}

static void *by_address(const char *exported, const char *symbol, int version, unsigned flags)
{
    void *found = NULL;
    (void)exported;
    return address(symbol, &found, version, flags != 0 ? CUDA_ADDRESS_PER_THREAD : 0) == 0 ? found : NULL;
}

static void *by_address_v2(const char *exported, const char *symbol, int version, unsigned flags)
{
    void *found = NULL;
    int status = -1;
    (void)exported;
    return address_v2(symbol, &found, version, (flags & CUDA_HOOK_PER_THREAD) != 0 ? CUDA_ADDRESS_PER_THREAD : 0,
                      &status) == 0 &&
                   status == 0
               ? found
               : NULL;
}

static void set(void *field, void *found, const char *name)
{
    if (found == NULL) {
        fprintf(stderr, "%s was not found\n", name);
        exit(2);
    }
    memcpy(field, &found, sizeof(found));
}

static void fill(struct api *api, find_function *find)
{
#define X(exported, symbol, version, flags, ...) \
    set(&api->exported, find(#exported, #symbol, version, flags), #exported);
    CUDA_HOOK_LIST(X)
#undef X
#define X(name, parameters) set(&api->name, dlsym(library, #name), #name);
    CUDA_PLAIN_LIST(X)
#undef X
}

static void wrong(const char *what)
{
    fprintf(stderr, "%s\n", what);
    exit(3);
}

/* Without a driver the answers are those of a process without a recorder. */
static void run_absent(void)
{
    if (dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") != NULL || dlsym(RTLD_NEXT, "cuMemFree_v2") != NULL ||
        dlsym(RTLD_DEFAULT, "cudaMalloc") != NULL || dlsym(dlopen(NULL, RTLD_LAZY), "cuCtxDestroy_v2") != NULL) {
        wrong("a driver was found where there is none");
    }
    dlerror();
    dlsym(RTLD_DEFAULT, "cuMemAlloc_v2");
    const char *message = dlerror();
    if (message == NULL || strstr(message, "cuMemAlloc_v2") == NULL) {
        wrong("dlerror does not report what was not found");
    }
    puts(message);
    if (dlerror() != NULL) {
        wrong("an error was reported twice");
    }
}

static void run_strange(void)
{
    void *found = NULL;
    void *wanted = dlsym(library, "cuMemAlloc");
    int status = -1;
    dlerror();
    if (dlsym(library, "cuMemAlloc_v2") == NULL || dlerror() != NULL) {
        wrong("an answer leaves an error behind");
    }
    if (dlsym(library, "cuNothing") != NULL || dlerror() == NULL) {
        wrong("dlerror does not report of another name");
    }
    if (address_v2("cuMemAlloc", &found, 2000, 0, &status) != 0 || found != wanted) {
        wrong("the first version of a function was replaced");
    }
    if (address_v2("cuMemAlloc", &found, 14000, 0, &status) != 0 || found == dlsym(library, "cuMemAlloc_v2")) {
        wrong("a version of the future was replaced");
    }
    if (address_v2("cuNothing", &found, 12000, 0, &status) != 500 || status != 1 || found != NULL) {
        wrong("what is not there was found");
    }
    if (address_v2("cuCtxSynchronize", &found, 12080, 0, NULL) != 0 || found != dlsym(library, "cuCtxSynchronize")) {
        wrong("another version of cuCtxSynchronize");
    }
    if (address_v2("cuCtxSynchronize", &found, 13000, 0, NULL) != 0 || found != dlsym(library, "cuCtxSynchronize_v2")) {
        wrong("not the version 2 of cuCtxSynchronize");
    }
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
    if (strcmp(way, "default") == 0) {
        fill(&api, by_default);
    } else if (strcmp(way, "next") == 0) {
        fill(&api, by_next);
    } else if (strcmp(way, "address") == 0) {
        fill(&api, by_address);
    } else if (strcmp(way, "address_v2") == 0) {
        fill(&api, by_address_v2);
    } else {
        library = strcmp(way, "program") == 0 ? dlopen(NULL, RTLD_LAZY) : library;
        fill(&api, by_handle);
    }
    scenario(&api, strcmp(way, "address_v2") == 0);
    return 0;
}
