/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which loaded object an address belongs to, for the unwinder and for the modules of the call-site file.
 * dl_iterate_phdr takes the loader's lock, so asking it from a malloc hook can deadlock a correct program.
 * glibc 2.35 answers without a lock (_dl_find_object); with older libraries the loader's list is read as it
 * stands, by copies that fail where something has just been unloaded, and read again when it has grown or
 * after a dlclose.
 */
#include "trace/guest/loaded_object.h"
#include "trace/guest/guest_memory.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <string.h>
#include <sys/auxv.h>

#define OBJECTS_MAX 1024U
#define SEGMENTS_MAX 64U
#define PAGE_BYTES ((uintptr_t)4096)

/* What the list said. Written by whoever makes `version` odd, read by all while it is even. */
static struct {
    uint32_t version;
    bool is_stale;
    uint32_t count;
    uintptr_t last; /* the end of the list; 0: it was not read to its end */
    struct loaded_object objects[OBJECTS_MAX];
} list = {.is_stale = true};

bool loaded_object_equal(const struct loaded_object *a, const struct loaded_object *b)
{
    return a->start == b->start && a->end == b->end && a->bias == b->bias && a->eh_frame_hdr == b->eh_frame_hdr &&
           a->handle == b->handle;
}

void loaded_object_forget(void)
{
    __atomic_store_n(&list.is_stale, true, __ATOMIC_RELEASE);
}

/* Where the program headers of an object lie, and how many; 0 if that is unknown. One at a time is read:
 * the program's stack has no room for more. */
static unsigned headers_find(const struct link_map *map, uintptr_t *at)
{
    ElfW(Ehdr) file;
    if (map->l_prev == NULL) { /* the program itself, which may lie at an address of its own */
        *at = getauxval(AT_PHDR);
        return (unsigned)getauxval(AT_PHNUM);
    }
    if (!recorder_read_memory(&file, map->l_addr, sizeof(file)) || memcmp(file.e_ident, ELFMAG, SELFMAG) != 0 ||
        file.e_phentsize != sizeof(ElfW(Phdr))) {
        return 0;
    }
    *at = map->l_addr + file.e_phoff;
    return file.e_phnum < SEGMENTS_MAX ? file.e_phnum : SEGMENTS_MAX;
}

static bool object_describe(const struct link_map *map, uintptr_t handle, struct loaded_object *object)
{
    uintptr_t headers = 0;
    unsigned count = headers_find(map, &headers);
    ElfW(Phdr) header;
    *object = (struct loaded_object){
        .start = UINTPTR_MAX, .bias = map->l_addr, .handle = (const void *)handle, .name = map->l_name};
    for (unsigned i = 0; i < count; i++) {
        if (!recorder_read_memory(&header, headers + i * sizeof(header), sizeof(header))) {
            return false;
        }
        const uintptr_t at = map->l_addr + header.p_vaddr;

        if (header.p_type == PT_LOAD) {
            object->start = at < object->start ? at & ~(PAGE_BYTES - 1) : object->start;
            object->end = at + header.p_memsz > object->end ? at + header.p_memsz : object->end;
        } else if (header.p_type == PT_GNU_EH_FRAME) {
            object->eh_frame_hdr = (const unsigned char *)at;
        }
    }
    return object->start < object->end;
}

static void list_read(void)
{
    struct link_map map = {.l_next = _r_debug.r_map};
    list.count = 0;
    list.last = 0;
    while (map.l_next != NULL && list.count < OBJECTS_MAX) {
        const uintptr_t handle = (uintptr_t)map.l_next;
        if (!recorder_read_memory(&map, handle, sizeof(map))) {
            return; /* it changes at this moment */
        }
        list.last = handle;
        list.count += object_describe(&map, handle, &list.objects[list.count]);
    }
}

/* New objects come at the end. */
static bool list_has_grown(void)
{
    struct link_map map;
    return list.last == 0 || !recorder_read_memory(&map, list.last, sizeof(map)) || map.l_next != NULL;
}

static bool list_refresh(uint32_t version)
{
    if (version % 2 != 0 ||
        !__atomic_compare_exchange_n(&list.version, &version, version + 1, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
        return false; /* somebody does: this one does without */
    }
    __atomic_store_n(&list.is_stale, false, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    list_read();
    __atomic_store_n(&list.version, version + 2, __ATOMIC_RELEASE);
    return true;
}

bool loaded_object_find_listed(uintptr_t address, struct loaded_object *object)
{
    for (bool is_fresh = false;;) {
        const uint32_t version = __atomic_load_n(&list.version, __ATOMIC_ACQUIRE);
        bool is_found = false;
        if (version % 2 == 0 && !__atomic_load_n(&list.is_stale, __ATOMIC_ACQUIRE)) {
            for (uint32_t i = 0; i < list.count && !is_found; i++) {
                *object = list.objects[i];
                is_found = address >= object->start && address < object->end;
            }
            __atomic_thread_fence(__ATOMIC_ACQUIRE);
            is_found = is_found && __atomic_load_n(&list.version, __ATOMIC_RELAXED) == version;
        }
        if (is_found || is_fresh || (!__atomic_load_n(&list.is_stale, __ATOMIC_SEQ_CST) && !list_has_grown())) {
            return is_found;
        }
        if (!list_refresh(version)) {
            return false;
        }
        is_fresh = true;
    }
}

static __attribute__((noinline)) bool is_listed(uintptr_t address)
{
    struct loaded_object object;
    return loaded_object_find_listed(address, &object);
}

#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 35)

/* Weak: a library built here still loads where the C library is older. */
#pragma weak _dl_find_object

bool loaded_object_is_at(uintptr_t address)
{
    struct dl_find_object found;

    /* The address is only compared, never written to. */
    return _dl_find_object != NULL ? _dl_find_object((void *)address, &found) == 0 : is_listed(address);
}

bool loaded_object_find(uintptr_t address, struct loaded_object *object)
{
    if (_dl_find_object == NULL) {
        return loaded_object_find_listed(address, object);
    }
    struct dl_find_object found;
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

bool loaded_object_is_at(uintptr_t address)
{
    return is_listed(address);
}

bool loaded_object_find(uintptr_t address, struct loaded_object *object)
{
    return loaded_object_find_listed(address, object);
}

#endif
