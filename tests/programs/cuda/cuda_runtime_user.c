/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Uses the CUDA runtime library (the fake one, in tests): links it, or with the path of lib_cuda_plugin.so
 * opens that for itself alone.
 */
#include "programs/cuda/driver/runtime_calls.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    void *library;
    void *found;
    int (*run)(void);
    int failed;
    if (argc < 2) {
        failed = runtime_calls();
    } else {
        library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
        found = library != NULL ? dlsym(library, "plugin_run") : NULL;
        if (found == NULL) {
            fprintf(stderr, "%s\n", dlerror());
            return 2;
        }
        memcpy(&run, &found, sizeof(found));
        failed = run();
    }
    printf("%d\n", failed);
    return failed != 0;
}
