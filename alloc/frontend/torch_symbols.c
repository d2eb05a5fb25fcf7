/* SPDX-License-Identifier: Apache-2.0 */
#include "alloc/frontend/torch_symbols.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

struct library_search {
    const char *name;
    char path[4096]; /* "": it is not loaded */
};

static int library_match(struct dl_phdr_info *info, size_t bytes, void *context)
{
    (void)bytes;
    struct library_search *search = context;
    if (info->dlpi_name == NULL) {
        return 0;
    }
    const char *slash = strrchr(info->dlpi_name, '/');
    if (strcmp(slash != NULL ? slash + 1 : info->dlpi_name, search->name) != 0) {
        return 0;
    }
    return snprintf(search->path, sizeof(search->path), "%s", info->dlpi_name) > 0;
}

void *torch_symbol_find(const char *library, const char *symbol)
{
    struct library_search search = {.name = library};
    dl_iterate_phdr(library_match, &search); /* holds a lock of the loader that dlopen takes after another */
    void *handle = search.path[0] != '\0' ? dlopen(search.path, RTLD_LAZY | RTLD_NOLOAD) : NULL;
    return handle != NULL ? dlsym(handle, symbol) : NULL;
}
