/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finding libcupti. It comes with the toolkit or with a Python wheel, and two copies in one process
 * collide: so a copy that is loaded already is used first, then whatever the loader finds by soname, then
 * the folders where toolkit and wheels put it, beginning with those of the CUDA libraries that this process
 * has loaded. VARVE_CUPTI_LIBRARY names a file and ends the search. Runs once, inside cuInit: nothing here
 * calls CUDA.
 */
#include "trace/recorder/cupti/cupti_recorder.h"
#include "trace/recorder/cupti/cupti_driver.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <glob.h>
#include <link.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES 1024U
#define OBJECTS_MAX 16U

static const char *const sonames[] = {"libcupti.so.13", "libcupti.so.12"};

#define SONAMES (sizeof(sonames) / sizeof(sonames[0]))

/* From the folder of a loaded CUDA library: its own; a toolkit's; of wheels, from nvidia/PART/lib and
 * torch/lib. */
static const char *const beside[] = {
    "",
    "/../extras/CUPTI/lib64",
    "/../../../extras/CUPTI/lib64",
    "/../../cu13/lib",
    "/../../cuda_cupti/lib",
    "/../../nvidia/cu13/lib",
    "/../../nvidia/cuda_cupti/lib",
};

/* A variable that names a folder, and a pattern below it. */
static const struct {
    const char *variable, *below;
} from_environment[] = {
    {"CUDA_HOME", "/extras/CUPTI/lib64"},
    {"CUDA_HOME", "/lib64"},
    {"CUDA_PATH", "/extras/CUPTI/lib64"},
    {"CUDA_PATH", "/lib64"},
    {"VIRTUAL_ENV", "/lib*/python3*/site-packages/nvidia/cu13/lib"},
    {"VIRTUAL_ENV", "/lib*/python3*/site-packages/nvidia/cuda_cupti/lib"},
    {"PYTHONHOME", "/lib*/python3*/site-packages/nvidia/*/lib"},
    {"CONDA_PREFIX", "/lib"},
    {"CONDA_PREFIX", "/lib/python3*/site-packages/nvidia/*/lib"},
};

static const char *const everywhere[] = {
    "/usr/local/cuda*/extras/CUPTI/lib64",
    "/usr/local/cuda*/lib64",
    "/usr/local/cuda*/lib",
    "/usr/local/cuda*/targets/*/lib",
};

/* ---- candidates ---- */

static void *open_at(const char *folder)
{
    char path[PATH_BYTES + 128];
    for (size_t i = 0; i < SONAMES; i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, sonames[i]);
        void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (library != NULL) {
            return library;
        }
    }
    return NULL;
}

static void *open_pattern(const char *pattern)
{
    glob_t found;
    void *library = NULL;
    if (glob(pattern, GLOB_ONLYDIR, NULL, &found) == 0) {
        for (size_t i = found.gl_pathc; i > 0 && library == NULL; i--) { /* newest first */
            library = open_at(found.gl_pathv[i - 1]);
        }
        globfree(&found);
    }
    return library;
}

static void *open_by_soname(int flags)
{
    void *library = NULL;
    for (size_t i = 0; i < SONAMES && library == NULL; i++) {
        library = dlopen(sonames[i], RTLD_NOW | RTLD_LOCAL | flags);
    }
    return library;
}

struct folders {
    unsigned count;
    char paths[OBJECTS_MAX][PATH_BYTES];
};

/* The loader's lock is held: only names are taken here. */
static int note_folder(struct dl_phdr_info *info, size_t bytes, void *context)
{
    static const char *const parts[] = {"/libcudart", "/libtorch", "/libc10", "/nvidia/",
                                        "/libcublas", "/libnvrtc", "/libnccl"};
    struct folders *folders = context;
    const char *end = strrchr(info->dlpi_name, '/');
    (void)bytes;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        size_t length = end != NULL ? (size_t)(end - info->dlpi_name) : PATH_BYTES;
        char *path = folders->paths[folders->count];
        if (length >= PATH_BYTES || strstr(info->dlpi_name, parts[i]) == NULL) {
            continue;
        }
        memcpy(path, info->dlpi_name, length);
        path[length] = '\0';
        for (unsigned j = 0; j < folders->count; j++) {
            if (strcmp(folders->paths[j], path) == 0) {
                return 0;
            }
        }
        return ++folders->count == OBJECTS_MAX;
    }
    return 0;
}

static void *open_beside_loaded(void)
{
    struct folders *folders = calloc(1, sizeof(*folders));
    if (folders == NULL) {
        return NULL;
    }
    dl_iterate_phdr(note_folder, folders);
    char folder[PATH_BYTES + 64];
    void *library = NULL;
    for (unsigned i = 0; i < folders->count; i++) {
        for (size_t j = 0; j < sizeof(beside) / sizeof(beside[0]) && library == NULL; j++) {
            snprintf(folder, sizeof(folder), "%s%s", folders->paths[i], beside[j]);
            library = open_at(folder);
        }
    }
    free(folders);
    return library;
}

static void *open_from_environment(void)
{
    char pattern[PATH_BYTES];
    void *library = NULL;
    for (size_t i = 0; i < sizeof(from_environment) / sizeof(from_environment[0]) && library == NULL; i++) {
        const char *value = getenv(from_environment[i].variable);
        if (value != NULL && value[0] == '/') {
            snprintf(pattern, sizeof(pattern), "%s%s", value, from_environment[i].below);
            library = open_pattern(pattern);
        }
    }
    return library;
}

/* The Python environments whose commands are on the way of PATH: a program in another language may share its
 * CUDA with them. */
static void *open_from_path(void)
{
    static const char *const parts[] = {"cu13", "cuda_cupti"};
    const char *at = getenv("PATH");
    char pattern[PATH_BYTES];
    void *library = NULL;
    while (at != NULL && *at != '\0' && library == NULL) {
        size_t length = strcspn(at, ":");
        for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]) && library == NULL; i++) {
            if (length > 4 && length < PATH_BYTES / 2 && strncmp(at + length - 4, "/bin", 4) == 0) {
                snprintf(pattern, sizeof(pattern), "%.*s/lib*/python3*/site-packages/nvidia/%s/lib", (int)length - 4,
                         at, parts[i]);
                library = open_pattern(pattern);
            }
        }
        at += length + (at[length] == ':');
    }
    return library;
}

static void *open_anywhere(void)
{
    void *library = open_by_soname(RTLD_NOLOAD);
    library = library != NULL ? library : open_by_soname(0);
    library = library != NULL ? library : open_beside_loaded();
    library = library != NULL ? library : open_from_environment();
    for (size_t i = 0; i < sizeof(everywhere) / sizeof(everywhere[0]) && library == NULL; i++) {
        library = open_pattern(everywhere[i]);
    }
    return library != NULL ? library : open_from_path();
}

/* ---- functions ---- */

/* False: a function that every use needs is missing. Activity is left out if one of its own is. */
static bool cupti_library_look_up(void *library, struct cupti_functions *functions, const char **missing_out)
{
    bool has_activity = true;
    void *symbol;
    *missing_out = NULL;
#define CUPTI_FUNCTION_FIND(field, name, necessity, parameters)                \
    symbol = dlsym(library, #name);                                            \
    memcpy(&functions->field, &symbol, sizeof(symbol)); /* no cast in ISO C */ \
    *missing_out = symbol == NULL && (necessity) == 1 ? #name : *missing_out;  \
    has_activity = has_activity && (symbol != NULL || (necessity) != 2);
    CUPTI_FUNCTION_LIST(CUPTI_FUNCTION_FIND)
#undef CUPTI_FUNCTION_FIND
    if (!has_activity) {
        functions->activity_enable = NULL;
    }
    return *missing_out == NULL;
}

/* varve_message_set is not exported by the recorder's library. */
static __attribute__((format(printf, 2, 3))) int not_found(struct varve_message *message, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message->text, sizeof(message->text), format, arguments);
    va_end(arguments);
    return VARVE_ERROR_NOT_FOUND;
}

int cupti_library_open(struct cupti_functions *functions, struct varve_message *message)
{
    const char *path = getenv("VARVE_CUPTI_LIBRARY");
    void *library;
    if (path != NULL && path[0] != '\0') {
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (library == NULL) {
            return not_found(message, "VARVE_CUPTI_LIBRARY cannot be opened (%.300s); let it name libcupti.so",
                             dlerror());
        }
    } else {
        library = open_anywhere();
    }
    if (library == NULL) {
        return not_found(message,
                         "neither %s nor %s is where the loader, this program's CUDA libraries, a Python "
                         "environment or /usr/local/cuda have it; let VARVE_CUPTI_LIBRARY name it, or record with "
                         "--cuda",
                         sonames[0], sonames[1]);
    }
    const char *missing;
    if (!cupti_library_look_up(library, functions, &missing)) {
        return not_found(message, "libcupti has no %s; let VARVE_CUPTI_LIBRARY name one of CUDA 11.2 or newer",
                         missing);
    }
    return VARVE_OK;
}
