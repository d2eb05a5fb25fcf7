/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens a library as "plain", "deep" (RTLD_DEEPBIND) or "namespace" (dlmopen) and allocates by it:
 *   blocks    100 blocks of 1009 bytes from there, freed here; of 1013 from here, freed there; of 1019 from here,
 *             grown there to 2027, freed here; 100 texts of 1031 bytes that the C library made for it, freed here;
 *             7 of 5003 that stay. Of a library with an allocator of its own ("own"), or another C library, all in it
 *   next      the library opens lib_bypass_next.so, which only its own search path leads to; 100 of 1033 come and go
 *   often N   opens and closes it N times, and allocates 10 of 1039 each time, which it frees
 *   kept N    opens N copies of it, "LIBRARY.0" and so on, and keeps them; 1 of 1039 each
 *   threads N N threads that do "often 20" at once
 *   lookup    what dlsym finds in the C library: 100 of 1049 come, and go by the program's own free
 *   wait      it says "ready" and waits for a line of input
 *   answers   what dlopen and dlerror say to what can't be opened, to RTLD_NOLOAD, and to the program's own search path
 * usage: bypass plain|deep|namespace|own LIBRARY STEP...
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT 100
#define KEPT 7

static const char *mode, *path;
static void *volatile kept;

struct library {
    void *handle;
    void *(*make)(size_t bytes);
    void (*drop)(void *memory);
    void *(*regrow)(void *memory, size_t bytes);
    char *(*print)(int width);
    void *(*next)(size_t bytes);
};

static void fail(const char *what)
{
    const char *error = dlerror();
    fprintf(stderr, "bypass: %s: %s\n", what, error != NULL ? error : "no error");
    exit(1);
}

static void *open_as(const char *file)
{
    return strcmp(mode, "namespace") == 0 ? dlmopen(LM_ID_NEWLM, file, RTLD_NOW)
                                          : dlopen(file, RTLD_NOW | (strcmp(mode, "plain") == 0 ? 0 : RTLD_DEEPBIND));
}

static struct library library_open(const char *file)
{
    struct library library = {.handle = open_as(file)};
    if (library.handle == NULL) {
        fail(file);
    }
    *(void **)&library.make = dlsym(library.handle, "lib_make");
    *(void **)&library.drop = dlsym(library.handle, "lib_drop");
    *(void **)&library.regrow = dlsym(library.handle, "lib_regrow");
    *(void **)&library.print = dlsym(library.handle, "lib_print");
    *(void **)&library.next = dlsym(library.handle, "lib_next");
    return library;
}

static void blocks(void)
{
    struct library library = library_open(path);
    const int is_apart = strcmp(mode, "namespace") == 0 || strcmp(mode, "own") == 0;
    void *(*make)(size_t) = is_apart ? library.make : malloc;
    void (*drop)(void *) = is_apart ? library.drop : free;
    for (int i = 0; i < COUNT; i++) {
        drop(library.make(1009));
        library.drop(make(1013));
        drop(library.regrow(make(1019), 2027));
        drop(library.print(1030));
    }
    for (int i = 0; i < KEPT; i++) {
        kept = library.make(5003);
    }
}

static void next(void)
{
    struct library library = library_open(path);
    for (int i = 0; i < COUNT; i++) {
        void *memory = library.next(1033);
        if (memory == NULL) {
            fail("next");
        }
        library.drop(memory);
    }
}

static void often(int rounds)
{
    for (int i = 0; i < rounds; i++) {
        struct library library = library_open(path);
        for (int k = 0; k < 10; k++) {
            library.drop(library.make(1039));
        }
        dlclose(library.handle);
    }
}

static void *often_in_thread(void *unused)
{
    often(20);
    return unused;
}

static void threads(int count)
{
    pthread_t thread[64];
    for (int i = 0; i < count; i++) {
        pthread_create(&thread[i], NULL, often_in_thread, NULL);
    }
    for (int i = 0; i < count; i++) {
        pthread_join(thread[i], NULL);
    }
}

static void keep(int copies)
{
    char file[4096];
    for (int i = 0; i < copies; i++) {
        snprintf(file, sizeof(file), "%s.%d", path, i);
        struct library library = library_open(file);
        library.drop(library.make(1039));
    }
}

static void lookup(void)
{
    void *c_library = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
    void *(*make)(size_t);
    *(void **)&make = dlsym(c_library, "malloc");
    for (int i = 0; i < COUNT; i++) {
        free(make(1049));
    }
}

static void say(const char *what, const void *handle)
{
    const char *error = dlerror();
    printf("%s: %s, %s\n", what, handle != NULL ? "opened" : "not opened", error != NULL ? error : "no error");
}

static void answers(void)
{
    dlerror();
    say("missing", open_as("/nonexistent/lib.so"));
    say("by name", open_as("lib_bypass_next.so")); /* not on our own path */
    say("not loaded", dlopen(path, RTLD_NOW | RTLD_NOLOAD | RTLD_DEEPBIND));
    void *handle = open_as(path);
    say("loaded", handle);
    if (strcmp(mode, "namespace") != 0) {
        say("is loaded", dlopen(path, RTLD_NOW | RTLD_NOLOAD | RTLD_DEEPBIND));
    }
    say("the program", dlopen(NULL, RTLD_NOW | RTLD_DEEPBIND));
    printf("a name: %s\n", dlsym(handle, "no_such_name") == NULL ? dlerror() : "found");
}

int main(int argc, char **argv)
{
    char line[16];
    if (argc < 4) {
        fprintf(stderr, "usage: bypass plain|deep|namespace|own LIBRARY STEP...\n");
        return 2;
    }
    mode = argv[1];
    path = argv[2];
    for (int i = 3; i < argc; i++) {
        const char *step = argv[i];
        if (strcmp(step, "blocks") == 0) {
            blocks();
        } else if (strcmp(step, "next") == 0) {
            next();
        } else if (strcmp(step, "lookup") == 0) {
            lookup();
        } else if (strcmp(step, "answers") == 0) {
            answers();
        } else if (strcmp(step, "wait") == 0) {
            puts("ready");
            fflush(stdout);
            (void)!fgets(line, sizeof(line), stdin);
        } else if (strcmp(step, "often") == 0 && i + 1 < argc) {
            often(atoi(argv[++i]));
        } else if (strcmp(step, "kept") == 0 && i + 1 < argc) {
            keep(atoi(argv[++i]));
        } else if (strcmp(step, "threads") == 0 && i + 1 < argc) {
            threads(atoi(argv[++i]));
        }
    }
    return 0;
}
