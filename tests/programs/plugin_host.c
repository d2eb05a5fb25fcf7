/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A C program that opens C++ libraries for nobody else, as Python opens its extensions: runs plugin_run of
 * each in a round, closes the library, and begins again. usage: plugin_host ROUNDS LIBRARY...
 * With WAIT in the environment it says "ready" and waits for a line of input before, and for another one after.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void wait_for_line(const char *said)
{
    if (getenv("WAIT") != NULL) {
        puts(said);
        fflush(stdout);
        while (getchar() != '\n' && !feof(stdin)) {
        }
    }
}

int main(int argc, char **argv)
{
    int rounds = argc > 2 ? atoi(argv[1]) : 0;
    wait_for_line("ready");
    for (int round = 0; round < rounds; round++) {
        for (int i = 2; i < argc; i++) {
            void *library = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
            void *symbol = library != NULL ? dlsym(library, "plugin_run") : NULL;
            int (*run)(void);
            if (symbol == NULL) {
                fprintf(stderr, "plugin_host: %s\n", dlerror());
                return 1;
            }
            memcpy(&run, &symbol, sizeof(run));
            if (run() != 0) {
                return 2;
            }
            dlclose(library);
        }
    }
    wait_for_line("done");
    return 0;
}
