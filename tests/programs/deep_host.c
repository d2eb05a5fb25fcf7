/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens lib_deep_plugin.so, of its own folder, with RTLD_DEEPBIND ("deep") or without ("plain"). "begun": it
 * allocates a block by it before it says that it is ready; "fresh": it calls nothing of it. With each line of input
 * it allocates 10 blocks of 31 bytes by the plug-in, frees all, and says what the pool knows of them: given, taken,
 * strange. usage: deep_host deep|plain begun|fresh
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *(*allocate)(size_t bytes);
static void (*release)(void *block);
static unsigned (*given)(void), (*taken)(void), (*strange)(void);

static void *open_plugin(const char *program, int mode)
{
    char path[4096];
    const char *slash = strrchr(program, '/');
    snprintf(path, sizeof(path), "%.*s/lib_deep_plugin.so", (int)(slash - program), program);
    void *plugin = dlopen(path, RTLD_LAZY | RTLD_LOCAL | mode);
    if (plugin != NULL) {
        *(void **)&allocate = dlsym(plugin, "plugin_new");
        *(void **)&release = dlsym(plugin, "plugin_delete");
        *(void **)&given = dlsym(plugin, "deep_pool_given");
        *(void **)&taken = dlsym(plugin, "deep_pool_taken");
        *(void **)&strange = dlsym(plugin, "deep_pool_strange");
    }
    return plugin;
}

int main(int argc, char **argv)
{
    void *blocks[10], *first = NULL;
    if (argc != 3 || strchr(argv[0], '/') == NULL ||
        open_plugin(argv[0], strcmp(argv[1], "deep") == 0 ? RTLD_DEEPBIND : 0) == NULL) {
        fprintf(stderr, "deep_host: %s\n", argc == 3 ? dlerror() : "usage: deep_host deep|plain begun|fresh");
        return 1;
    }
    if (strcmp(argv[2], "begun") == 0) {
        first = allocate(100);
    }
    puts("ready");
    fflush(stdout);
    char line[16];
    while (fgets(line, sizeof(line), stdin) != NULL) {
        for (unsigned i = 0; i < 10; i++) {
            blocks[i] = allocate(31);
        }
        for (unsigned i = 0; i < 10; i++) {
            release(blocks[i]);
        }
        if (first != NULL) {
            release(first);
            first = NULL;
        }
        printf("%u %u %u\n", given(), taken(), strange());
        fflush(stdout);
    }
    return 0;
}
