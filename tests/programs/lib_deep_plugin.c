/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library that needs lib_deep_pool, and whose calls are bound when they are first made. Whose malloc and free they
 * get depends on how it is opened: with RTLD_DEEPBIND those of the pool, else the C library's.
 */
#include <stdlib.h>
#include <unistd.h>

void *plugin_new(size_t bytes);
void plugin_delete(void *block);
long plugin_parent(void);

void *plugin_new(size_t bytes)
{
    return malloc(bytes);
}

void plugin_delete(void *block)
{
    free(block);
}

long plugin_parent(void)
{
    return getppid();
}
