/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which loaded object an address belongs to, for the unwinder and for the module entries of the call-site
 * file. The hard part is the loader's lock: dl_iterate_phdr takes it, a program may run its own callbacks
 * under it, and a malloc hook may be called with any lock of the program held, so asking the loader from
 * there can deadlock a program that was correct. glibc 2.35 answers without a lock (_dl_find_object); only
 * older libraries are asked through dl_iterate_phdr.
 */
#include "trace/unwind_internal.h"

#include <dlfcn.h>
#include <link.h>

bool loaded_object_equal(const struct loaded_object *a, const struct loaded_object *b)
{
    return a->start == b->start && a->end == b->end && a->bias == b->bias &&
           a->eh_frame_hdr == b->eh_frame_hdr && a->handle == b->handle;
}

struct object_search {
    uintptr_t address;
    struct loaded_object *object;
};

static int object_match(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct object_search *search = argument;
    uintptr_t start = UINTPTR_MAX;
    uintptr_t end = 0;
    const unsigned char *eh_frame_hdr = NULL;

    (void)size;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        uintptr_t at = info->dlpi_addr + header->p_vaddr;

        if (header->p_type == PT_LOAD) {
            start = at < start ? at : start;
            end = at + header->p_memsz > end ? at + header->p_memsz : end;
        } else if (header->p_type == PT_GNU_EH_FRAME) {
            eh_frame_hdr = (const unsigned char *)at;
        }
    }
    if (search->address < start || search->address >= end) {
        return 0;
    }
    *search->object = (struct loaded_object){
        .start = start & ~(uintptr_t)4095,
        .end = end,
        .bias = info->dlpi_addr,
        .eh_frame_hdr = eh_frame_hdr,
        .handle = info->dlpi_phdr,
        .name = info->dlpi_name,
    };
    return 1;
}

static bool object_find_locked(uintptr_t address, struct loaded_object *object)
{
    struct object_search search = {.address = address, .object = object};

    return dl_iterate_phdr(object_match, &search) != 0;
}

static __attribute__((noinline)) bool object_is_at_locked(uintptr_t address)
{
    struct loaded_object object;

    return object_find_locked(address, &object);
}

#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 35)

/* Weak: a library built here still loads where the C library is older. */
#pragma weak _dl_find_object

bool loaded_object_is_lock_free(void)
{
    return _dl_find_object != NULL;
}

bool loaded_object_is_at(uintptr_t address)
{
    struct dl_find_object found;

    return _dl_find_object != NULL ? _dl_find_object((void *)address, &found) == 0
                                   : object_is_at_locked(address);
}

bool loaded_object_find(uintptr_t address, struct loaded_object *object)
{
    struct dl_find_object found;

    if (_dl_find_object == NULL) {
        return object_find_locked(address, object);
    }
    /* The address is only compared, never written to. */
    if (_dl_find_object((void *)address, &found) != 0) {
        return false;
    }
    *object = (struct loaded_object){
        .start = (uintptr_t)found.dlfo_map_start,
        .end = (uintptr_t)found.dlfo_map_end,
        .bias = found.dlfo_link_map->l_addr,
        .eh_frame_hdr = found.dlfo_eh_frame,
        .handle = found.dlfo_link_map,
        .name = found.dlfo_link_map->l_name,
    };
    return true;
}

#else

bool loaded_object_is_lock_free(void)
{
    return false;
}

bool loaded_object_find(uintptr_t address, struct loaded_object *object)
{
    return object_find_locked(address, object);
}

bool loaded_object_is_at(uintptr_t address)
{
    return object_is_at_locked(address);
}

#endif
