/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loaded objects as the CUDA recorder needs to know them: which of them is the driver, what a symbol is to
 * this or that caller. Our own symbols cannot be found by dlsym (recorder/exports.map), so the answers are
 * those of a process without us. What is found stays loaded: its functions are kept.
 */
#include "trace/recorder/cuda/cuda_call.h"
#include "trace/guest/elf_symbol.h"
#include "trace/recorder/heap/heap_hooks.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

#define DRIVER_LIBRARY "libcuda.so.1"

/* Only the driver has these; a library that stands in front of it has no reason to define them. */
static const char *const only_drivers[] = {"cudbgApiInit", "cudbgReportDriverApiError", "cuDriverGetVersion"};

/* Handles are never closed. A lost race opens one twice. */
static void *driver_handle;
static void *global_handle;

static const struct link_map *object_of(const void *address)
{
    Dl_info info;
    struct link_map *map = NULL;
    return dladdr1(address, &info, (void **)&map, RTLD_DL_LINKMAP) != 0 ? map : NULL;
}

static bool cuda_objects_is_named(const void *address, const char *prefix)
{
    const struct link_map *map = object_of(address);
    if (map == NULL) {
        return false;
    }
    const char *slash = strrchr(map->l_name, '/');
    return strncmp(slash != NULL ? slash + 1 : map->l_name, prefix, strlen(prefix)) == 0;
}

bool cuda_is_driver_code(const void *address)
{
    return cuda_objects_is_named(address, "libcuda.so");
}

bool cuda_is_runtime_code(const void *address)
{
    return cuda_objects_is_named(address, "libcudart.so");
}

static void *cuda_objects_open_loaded(const char *name)
{
    return dlopen(name, RTLD_NOLOAD | RTLD_LAZY);
}

/* What everybody sees, and the libraries that were opened for everybody. */
static void *global(void)
{
    void *handle = __atomic_load_n(&global_handle, __ATOMIC_ACQUIRE);
    if (handle == NULL) {
        handle = cuda_objects_open_loaded(NULL);
        __atomic_store_n(&global_handle, handle, __ATOMIC_RELEASE);
    }
    return handle;
}

static void *global_symbol(const char *name)
{
    void *handle = global();
    return handle != NULL ? cuda_dlsym_real(handle, name) : NULL;
}

void cuda_objects_hold(const void *address)
{
    const struct link_map *map = object_of(address);
    if (map == NULL || map->l_name[0] == '\0') {
        return;
    }
    void *handle = cuda_objects_open_loaded(map->l_name);
    if (cuda_is_driver_code(address) && handle != NULL) {
        __atomic_store_n(&driver_handle, handle, __ATOMIC_RELEASE);
    }
}

void *cuda_objects_driver_symbol(const char *name)
{
    void *handle = __atomic_load_n(&driver_handle, __ATOMIC_ACQUIRE);
    if (handle == NULL) {
        handle = cuda_objects_open_loaded(DRIVER_LIBRARY);
        __atomic_store_n(&driver_handle, handle, __ATOMIC_RELEASE);
    }
    return handle != NULL ? cuda_dlsym_real(handle, name) : NULL;
}

void *cuda_objects_behind_us(const char *name)
{
    return cuda_dlsym_real(RTLD_NEXT, name);
}

void *cuda_objects_symbol_of(const char *library, const char *name)
{
    void *handle = cuda_objects_open_loaded(library);
    return handle != NULL ? cuda_dlsym_real(handle, name) : NULL;
}

void *cuda_objects_symbol_for(const void *caller, const char *name)
{
    const struct link_map *map = object_of(caller);
    void *handle = map != NULL ? cuda_objects_open_loaded(map->l_name[0] != '\0' ? map->l_name : NULL) : NULL;
    if (handle == NULL) {
        return NULL;
    }
    void *found = cuda_dlsym_real(handle, name);
    if (heap_real.dlclose != NULL) {
        heap_real.dlclose(handle);
    }
    return found;
}

/* All code looks at what is global first, and then among the libraries of its own group. */
void *cuda_objects_default(const char *name, const void *caller)
{
    void *found = global_symbol(name);
    return found != NULL ? found : cuda_objects_symbol_for(caller, name);
}

/* ---- RTLD_NEXT ---- */

struct walk {
    const char *name;
    uintptr_t caller;
    bool is_behind; /* the caller's object was passed */
    void *found;
};

static bool cuda_objects_is_inside(const struct dl_phdr_info *info, uintptr_t address)
{
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        if (header->p_type == PT_LOAD && address - (info->dlpi_addr + header->p_vaddr) < header->p_memsz) {
            return true;
        }
    }
    return false;
}

static int visit(struct dl_phdr_info *info, size_t bytes, void *context)
{
    struct walk *walk = context;
    (void)bytes;
    if (cuda_objects_is_inside(info, walk->caller)) {
        walk->is_behind = true;
        return 0;
    }
    struct elf_object object;
    if (walk->is_behind && !cuda_objects_is_inside(info, (uintptr_t)&driver_handle) && /* ours do not count */
        elf_symbol_tables(info, &object)) {
        walk->found = elf_symbol_in(&object, walk->name);
    }
    return walk->found != NULL;
}

static bool is_driver_global(void)
{
    for (size_t i = 0; i < sizeof(only_drivers) / sizeof(only_drivers[0]); i++) {
        void *found = global_symbol(only_drivers[i]);
        if (found != NULL && cuda_is_driver_code(found)) {
            return true;
        }
    }
    return false;
}

/* The next one in the order of loading, which for global libraries is the order of look-up. */
void *cuda_objects_next(const char *name, const void *caller)
{
    struct walk walk = {.name = name, .caller = (uintptr_t)caller};
    if (!is_driver_global()) {
        return NULL;
    }
    elf_each_object(visit, &walk);
    return walk.found;
}
