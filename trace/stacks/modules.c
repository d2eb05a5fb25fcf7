/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loaded objects into the call-site file: an object is written when the first call site with a frame in it
 * is, so nothing is asked of the loader that needs its lock. Where one object replaced another at its
 * addresses, that is noticed: after dlclose all known ones are compared (modules_scan), and each new call
 * site compares those of its frames. Memory of an object is copied by the kernel, which notices when it is
 * gone. Called by callsite_here.c.
 */
#include "trace/stacks/callsite_writer.h"
#include "trace/guest/guest_memory.h"
#include "trace/guest/loaded_object.h"
#include "base/error.h"
#include "base/syscall.h"
#include "trace/format/callsite_format.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <sys/auxv.h>

#define SEGMENTS_MAX 64U /* and bytes of notes that are looked through: */
#define NOTES_MAX 4096U

struct module_known {
    struct loaded_object object;
    uintptr_t build_id_address;
    uint16_t build_id_bytes;
    bool is_gone;
    uint32_t number;
    unsigned char build_id[MODULE_BUILD_ID_MAX];
};

/* The objects in the file so far, a growing array. Guarded by callsite_here.c's lock. */
static struct {
    struct module_known *known;
    uint32_t count; /* gone ones are reused: no number follows from an index */
    uint32_t capacity;
    uint32_t next_number;
} modules;

/* ---- what an object says about itself ---- */

static const unsigned char *note_build_id(const unsigned char *at, size_t bytes, uint16_t *id_bytes)
{
    while (bytes >= sizeof(ElfW(Nhdr))) {
        ElfW(Nhdr) note;
        memcpy(&note, at, sizeof(note));
        size_t name = ((size_t)note.n_namesz + 3) & ~(size_t)3;
        size_t description = ((size_t)note.n_descsz + 3) & ~(size_t)3;

        if (name > bytes || description > bytes || sizeof(note) + name + description > bytes) {
            return NULL;
        }
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && memcmp(at + sizeof(note), "GNU", 4) == 0 &&
            note.n_descsz <= MODULE_BUILD_ID_MAX) {
            *id_bytes = (uint16_t)note.n_descsz;
            return at + sizeof(note) + name;
        }
        at += sizeof(note) + name + description;
        bytes -= sizeof(note) + name + description;
    }
    return NULL;
}

/* The headers of an object's segments as far as they are of interest, copied: a frame that was guessed may
 * name an object which another thread unloads now. */
static unsigned headers_read(const struct loaded_object *object, ElfW(Phdr) * headers)
{
    ElfW(Ehdr) file;
    if (object->end - object->start < sizeof(file) || !recorder_read_memory(&file, object->start, sizeof(file)) ||
        memcmp(file.e_ident, ELFMAG, SELFMAG) != 0 || file.e_phentsize != sizeof(*headers) ||
        file.e_phoff > object->end - object->start) {
        return 0;
    }
    unsigned count = file.e_phnum < SEGMENTS_MAX ? file.e_phnum : SEGMENTS_MAX;
    return count * sizeof(*headers) <= object->end - object->start - file.e_phoff &&
                   recorder_read_memory(headers, object->start + file.e_phoff, count * sizeof(*headers))
               ? count
               : 0;
}

static void describe_build_id(struct module_description *module)
{
    const struct loaded_object *object = &module->object;
    ElfW(Phdr) headers[SEGMENTS_MAX];
    const unsigned count = headers_read(object, headers);
    module->build_id_bytes = 0;
    module->build_id_address = 0;
    unsigned char notes[NOTES_MAX];
    for (unsigned i = 0; i < count && module->build_id_bytes == 0; i++) {
        const uintptr_t at = object->bias + headers[i].p_vaddr;
        const size_t bytes = headers[i].p_memsz < NOTES_MAX ? headers[i].p_memsz : NOTES_MAX;
        if (headers[i].p_type != PT_NOTE || at < object->start || at > object->end || bytes > object->end - at ||
            !recorder_read_memory(notes, at, bytes)) {
            continue;
        }
        const unsigned char *id = note_build_id(notes, bytes, &module->build_id_bytes);
        if (id != NULL) {
            memcpy(module->build_id, id, module->build_id_bytes);
            module->build_id_address = at + (uintptr_t)(id - notes);
        }
    }
}

static void path_set(struct module_description *module, const char *path, size_t bytes)
{
    module->path_bytes = (uint16_t)(bytes < MODULE_PATH_MAX ? bytes : MODULE_PATH_MAX);
    memcpy(module->path, path, module->path_bytes);
}

static void describe_path(struct module_description *module)
{
    const char *name = module->object.name;
    char link[MODULE_PATH_MAX];
    if (name == NULL || name[0] == '\0') {
        const size_t bytes = recorder_executable(link, sizeof(link));
        path_set(module, link, bytes);
        return;
    }
    if (name[0] != '/' && recorder_sys_getcwd(link, sizeof(link)) > 0 && link[0] == '/') {
        /* Loaded by a relative name: most likely relative to where the program still is. */
        char path[2 * MODULE_PATH_MAX];
        recorder_format(path, sizeof(path), "%s/%s", link, name);
        path_set(module, path, strlen(path));
        return;
    }
    path_set(module, name, strlen(name));
}

void module_describe(const struct loaded_object *object, struct module_description *module)
{
    module->object = *object;
    describe_build_id(module);
    describe_path(module);
}

/* ---- the file ---- */

static int append_gone(struct module_known *known)
{
    struct callsite_file_gone gone = {.number = known->number};
    struct callsite_part part = {&gone, sizeof(gone)};
    int error = callsite_file_append(CALLSITE_FILE_TAG_MODULE_GONE, &part, 1);
    if (error == VARVE_OK) {
        known->is_gone = true;
    }
    return error;
}

static bool overlaps(const struct loaded_object *a, const struct loaded_object *b)
{
    return a->start < b->end && b->start < a->end;
}

enum module_state module_lookup(const struct loaded_object *object)
{
    /* The kernel's own object needs no file. */
    if (object->start == getauxval(AT_SYSINFO_EHDR)) {
        return MODULE_KNOWN;
    }
    enum module_state state = MODULE_NEW;
    for (uint32_t i = 0; i < modules.count; i++) {
        const struct module_known *known = &modules.known[i];
        if (!known->is_gone && overlaps(&known->object, object)) {
            if (loaded_object_equal(&known->object, object)) {
                return MODULE_KNOWN;
            }
            state = MODULE_CHANGED;
        }
    }
    return state;
}

static struct module_known *module_slot(void)
{
    for (uint32_t i = 0; i < modules.count; i++) {
        if (modules.known[i].is_gone) {
            return &modules.known[i];
        }
    }
    if (modules.count == modules.capacity) {
        uint32_t capacity = modules.capacity == 0 ? 32 : modules.capacity * 2;
        struct module_known *known = recorder_map(capacity * sizeof(*known));
        if (known == NULL) {
            return NULL;
        }
        if (modules.known != NULL) {
            memcpy(known, modules.known, modules.count * sizeof(*known));
            recorder_unmap(modules.known, modules.capacity * sizeof(*known));
        }
        modules.known = known;
        modules.capacity = capacity;
    }
    modules.known[modules.count].is_gone = true;
    return &modules.known[modules.count++];
}

int module_write(const struct module_description *module)
{
    const struct loaded_object *object = &module->object;
    struct callsite_file_module entry = {
        .base = object->start,
        .end = object->end,
        .bias = object->bias,
        .number = modules.next_number,
        .build_id_bytes = module->build_id_bytes,
        .path_bytes = module->path_bytes,
    };
    struct callsite_part parts[] = {
        {&entry, sizeof(entry)}, {module->build_id, module->build_id_bytes}, {module->path, module->path_bytes}};
    for (uint32_t i = 0; i < modules.count; i++) {
        struct module_known *known = &modules.known[i];
        if (!known->is_gone && overlaps(&known->object, object) && append_gone(known) != VARVE_OK) {
            return VARVE_ERROR_IO;
        }
    }
    struct module_known *slot = module_slot();

    if (slot == NULL) {
        return VARVE_ERROR_NO_MEMORY;
    }
    int error = callsite_file_append(CALLSITE_FILE_TAG_MODULE, parts, 3);

    if (error != VARVE_OK) {
        return error;
    }
    *slot = (struct module_known){.object = *object,
                                  .build_id_address = module->build_id_address,
                                  .build_id_bytes = module->build_id_bytes,
                                  .number = modules.next_number++};
    memcpy(slot->build_id, module->build_id, module->build_id_bytes);
    return VARVE_OK;
}

/* ---- after dlclose ---- */

/* Compares the build id in memory, which the kernel reads: another thread may be unloading the object. */
static bool build_id_differs(const struct module_known *known)
{
    unsigned char now[MODULE_BUILD_ID_MAX];
    return known->build_id_bytes > 0 && recorder_read_memory(now, known->build_id_address, known->build_id_bytes) &&
           memcmp(now, known->build_id, known->build_id_bytes) != 0;
}

unsigned modules_scan(void)
{
    unsigned written = 0;
    for (uint32_t i = 0; i < modules.count; i++) {
        struct module_known *known = &modules.known[i];
        if (known->is_gone) {
            continue;
        }
        struct loaded_object now;
        if (loaded_object_find(known->object.start, &now) && loaded_object_equal(&known->object, &now) &&
            !build_id_differs(known)) {
            continue;
        }
        written += append_gone(known) == VARVE_OK ? 1 : 0;
    }
    return written;
}

void modules_forget(void)
{
    if (modules.known != NULL) {
        recorder_unmap(modules.known, modules.capacity * sizeof(*modules.known));
    }
    memset(&modules, 0, sizeof(modules));
}
