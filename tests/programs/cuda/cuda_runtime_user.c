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
    int (*run)(void) = runtime_calls;
    if (argc >= 2) {
        void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
        void *found = library != NULL ? dlsym(library, "plugin_run") : NULL;
        if (found == NULL) {
            fprintf(stderr, "%s\n", dlerror());
            return 2;
        }
        memcpy(&run, &found, sizeof(found));
    }
    int failed = run();
    printf("%d\n", failed);
    return failed != 0;
}
