/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the separate debug file of a module: by build id and by debuglink, below /usr/lib/debug and beside
 * the module, and the shared part that dwz split off. libdwfl's own search would do, but it asks debuginfod
 * servers when the environment names one; a recording must not send anything anywhere. A candidate counts
 * only if its build id is the module's, or, where there is none, if its checksum is the debuglink's. Called
 * by libdwfl for module.c.
 */
#include "trace/symbols/debugfile.h"

#include "trace/symbols/module.h"
#include "trace/trace.h"

#include <fcntl.h>
#include <gelf.h>
#include <elfutils/libdwelf.h>
#include <elfutils/libdwfl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct search {
    struct symbols_module *module;
    const unsigned char *build_id; /* of the module's file; NULL if it has none */
    size_t build_id_bytes;
    uint32_t crc;
    bool is_alternate; /* the shared part of dwz: libdw compares nothing, its name is all there is */
    char *path_out;
};

uint64_t symbols_debugfile_unpacked(void *elf)
{
    uint64_t bytes = 0;
    Elf_Scn *section = NULL;

    while ((section = elf_nextscn(elf, section)) != NULL) {
        GElf_Shdr header;
        GElf_Chdr packed;

        if (gelf_getshdr(section, &header) && (header.sh_flags & SHF_COMPRESSED) &&
            !(header.sh_flags & SHF_ALLOC) && gelf_getchdr(section, &packed))
            bytes += packed.ch_size;
    }
    return bytes;
}

/* CRC-32 of IEEE 802.3, as in .gnu_debuglink; four bits at a time. */
static bool file_crc(int file, uint32_t *crc_out)
{
    static const uint32_t table[16] = {
        0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
        0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c, 0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c,
    };
    uint8_t buffer[16384];
    uint32_t crc = 0xffffffffU;
    off_t offset = 0;
    ssize_t bytes;

    while ((bytes = pread(file, buffer, sizeof(buffer), offset)) > 0) {
        for (ssize_t i = 0; i < bytes; i++) {
            crc ^= buffer[i];
            crc = (crc >> 4) ^ table[crc & 15U];
            crc = (crc >> 4) ^ table[crc & 15U];
        }
        offset += bytes;
    }
    *crc_out = ~crc;
    return bytes == 0;
}

static bool is_acceptable(const struct search *search, int file)
{
    Elf *elf = elf_begin(file, ELF_C_READ_MMAP, NULL);
    const void *build_id = NULL;
    ssize_t build_id_bytes = elf && elf_kind(elf) == ELF_K_ELF ? dwelf_elf_gnu_build_id(elf, &build_id) : -1;
    bool result = build_id_bytes >= 0 && symbols_debugfile_unpacked(elf) <= SYMBOLS_UNPACKED_MAX;
    uint32_t crc;

    if (result && !search->is_alternate) {
        if (search->build_id)
            result = (size_t)build_id_bytes == search->build_id_bytes &&
                     memcmp(build_id, search->build_id, search->build_id_bytes) == 0;
        else
            result = file_crc(file, &crc) && crc == search->crc;
    }
    elf_end(elf);
    return result;
}

/* An open file, or -1. Takes `path`. */
static int try_path(struct search *search, char *path)
{
    struct stat status, own;
    int file;

    if (!path)
        return -1;
    file = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (file < 0 || fstat(file, &status) != 0 || !S_ISREG(status.st_mode) ||
        (stat(search->module->path, &own) == 0 && own.st_ino == status.st_ino &&
         own.st_dev == status.st_dev) ||
        !is_acceptable(search, file)) {
        if (file >= 0)
            close(file);
        free(path);
        return -1;
    }
    search->module->bytes += (uint64_t)status.st_size;
    search->path_out = path;
    return file;
}

__attribute__((format(printf, 1, 2))) static char *format_path(const char *format, ...)
{
    char *path = NULL;
    va_list arguments;

    va_start(arguments, format);
    if (vasprintf(&path, format, arguments) < 0)
        path = NULL;
    va_end(arguments);
    return path;
}

static int find_by_build_id(struct search *search)
{
    char hex[2 * SYMBOLS_BUILD_ID_MAX + 1];
    int file = -1;

    if (!search->build_id || search->build_id_bytes < 2 || search->build_id_bytes > SYMBOLS_BUILD_ID_MAX)
        return -1;
    for (size_t i = 0; i < search->build_id_bytes; i++)
        snprintf(hex + 2 * i, 3, "%02x", search->build_id[i]);
    for (unsigned i = 0; i < search->module->symbols->root_count && file < 0; i++)
        file = try_path(search, format_path("%s/.build-id/%.2s/%s.debug", search->module->symbols->roots[i],
                                            hex, hex + 2));
    return file;
}

static int find_by_link(struct search *search, const char *directory, const char *link_name)
{
    int file = try_path(search, format_path("%s/%s", directory, link_name));

    if (file < 0)
        file = try_path(search, format_path("%s/.debug/%s", directory, link_name));
    for (unsigned i = 0; i < search->module->symbols->root_count && file < 0; i++)
        file =
            try_path(search, format_path("%s%s/%s", search->module->symbols->roots[i], directory, link_name));
    return file;
}

/* dwz writes a path that is absolute, or relative to the debug file. */
static int find_alternate(struct search *search, const char *directory, const char *link_name)
{
    const char *below = strstr(link_name, ".dwz/");
    int file = link_name[0] == '/' ? try_path(search, strdup(link_name))
                                   : try_path(search, format_path("%s/%s", directory, link_name));

    for (unsigned i = 0; below && i < search->module->symbols->root_count && file < 0; i++)
        file = try_path(search, format_path("%s/%s", search->module->symbols->roots[i], below));
    return file;
}

int symbols_debugfile_find(struct Dwfl_Module *handle, void **userdata, const char *name, uint64_t base,
                           const char *file_name, const char *link_name, uint32_t link_crc, char **found_name)
{
    struct search search = {.module = *userdata, .crc = link_crc};
    GElf_Addr place;
    int bytes, file;
    char *directory, *slash;

    (void)name;
    (void)base;
    if (!search.module)
        return -1;
    bytes = dwfl_module_build_id(handle, &search.build_id, &place);
    search.build_id_bytes = bytes > 0 ? (size_t)bytes : 0;
    if (bytes <= 0)
        search.build_id = NULL;
    directory = strdup(file_name ? file_name : search.module->path);
    if (!directory)
        return -1;
    slash = strrchr(directory, '/');
    if (slash)
        *slash = '\0';
    search.is_alternate = link_name && link_crc == 0 && strstr(link_name, "dwz") != NULL;
    if (search.is_alternate) {
        file = find_alternate(&search, slash ? directory : ".", link_name);
    } else {
        file = find_by_build_id(&search);
        if (file < 0 && link_name)
            file = find_by_link(&search, slash ? directory : ".", link_name);
    }
    free(directory);
    if (file >= 0)
        *found_name = search.path_out;
    return file;
}
