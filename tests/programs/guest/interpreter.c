/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program with something in it that looks like an interpreter of Python which no other object sees; its version is
 * that of INTERPRETER_VERSION. It allocates 10 blocks.
 */
#include <stdlib.h>

static void *volatile kept;

__attribute__((section(".PyRuntime"), used)) static int runtime = 1;

__attribute__((used)) static const char *version_get(void) __asm__("Py_GetVersion");

static const char *version_get(void)
{
    const char *version = getenv("INTERPRETER_VERSION");
    return version != NULL ? version : "0";
}

int main(void)
{
    for (int i = 0; i < 10; i++) {
        kept = malloc(1000);
    }
    return runtime - 1;
}
