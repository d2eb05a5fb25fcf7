/* SPDX-License-Identifier: Apache-2.0 */
#include "alloc/frontend/torch_symbols.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

struct library_search {
    const char *name;
    void *handle;
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
    search->handle = dlopen(info->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
    return search->handle != NULL;
}

void *torch_symbol_find(const char *library, const char *symbol)
{
    struct library_search search = {library, NULL};
    dl_iterate_phdr(library_match, &search);
    return search.handle != NULL ? dlsym(search.handle, symbol) : NULL;
}
