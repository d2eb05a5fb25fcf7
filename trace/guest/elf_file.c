/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file is mapped for the time of the look. The kernel keeps others from writing to it while it runs; what it says
 * is checked all the same.
 */
#include "trace/guest/elf_symbol.h"
#include "trace/guest/guest_memory.h"
#include "base/syscall.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

struct file {
    const char *content;
    size_t bytes;
    const ElfW(Shdr) * sections;
    unsigned section_count;
};

static const void *part(const struct file *file, uint64_t offset, uint64_t bytes)
{
    return offset <= file->bytes && bytes <= file->bytes - offset ? file->content + offset : NULL;
}

/* A section that is in the file as a whole. */
static const void *content_of(const struct file *file, const ElfW(Shdr) * section)
{
    return section->sh_type != SHT_NOBITS ? part(file, section->sh_offset, section->sh_size) : NULL;
}

static bool sections_find(struct file *file)
{
    const ElfW(Ehdr) *header = part(file, 0, sizeof(*header));
    if (header == NULL || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 || header->e_shentsize != sizeof(ElfW(Shdr)) ||
        header->e_shoff % _Alignof(ElfW(Shdr)) != 0 || header->e_shstrndx >= header->e_shnum) {
        return false;
    }
    file->section_count = header->e_shnum;
    file->sections = part(file, header->e_shoff, header->e_shnum * sizeof(ElfW(Shdr)));
    return file->sections != NULL;
}

/* A text in a table of texts, or "". */
static const char *text_at(const struct file *file, const ElfW(Shdr) * table, uint64_t at)
{
    const char *texts = content_of(file, table);
    return texts != NULL && at < table->sh_size && texts[table->sh_size - 1] == '\0' ? texts + at : "";
}

static bool elf_file_has_section(const struct file *file, const char *name)
{
    const ElfW(Ehdr) *header = (const void *)file->content;
    for (unsigned i = 0; i < file->section_count; i++) {
        if (strcmp(text_at(file, &file->sections[header->e_shstrndx], file->sections[i].sh_name), name) == 0) {
            return true;
        }
    }
    return false;
}

static void table_search(const struct file *file, const ElfW(Shdr) * table, const char *const *names, unsigned count,
                         void **addresses)
{
    const ElfW(Sym) *symbols = content_of(file, table);
    if (symbols == NULL || table->sh_offset % _Alignof(ElfW(Sym)) != 0 || table->sh_link >= file->section_count) {
        return;
    }
    const ElfW(Shdr) *texts = &file->sections[table->sh_link];
    for (size_t at = 0; at < table->sh_size / sizeof(*symbols); at++) {
        const unsigned type = ELF64_ST_TYPE(symbols[at].st_info);
        if ((type != STT_FUNC && type != STT_OBJECT) || symbols[at].st_shndx == SHN_UNDEF) {
            continue;
        }
        const char *name = text_at(file, texts, symbols[at].st_name);
        for (unsigned i = 0; i < count; i++) {
            if (name[0] == names[i][0] && strcmp(name, names[i]) == 0) {
                addresses[i] = (void *)(_r_debug.r_map->l_addr + symbols[at].st_value);
            }
        }
    }
}

/* The program comes first in the loader's list. */
static bool elf_file_search(struct file *file, const char *section, const char *const *names, unsigned count,
                            void **addresses)
{
    bool is_found = false;
    if (_r_debug.r_map == NULL || !sections_find(file) || !elf_file_has_section(file, section)) {
        return false;
    }
    for (unsigned i = 0; i < file->section_count; i++) {
        if (file->sections[i].sh_type == SHT_SYMTAB) {
            table_search(file, &file->sections[i], names, count, addresses);
            is_found = true;
        }
    }
    return is_found;
}

bool elf_file_symbols(const char *section, const char *const *names, unsigned count, void **addresses_out)
{
    struct file file = {0};
    bool is_found = false;
    memset(addresses_out, 0, count * sizeof(addresses_out[0]));
    const int fd = recorder_sys_open("/proc/self/exe", O_RDONLY, 0);
    if (fd < 0) {
        return false;
    }
    const long bytes = recorder_sys_lseek(fd, 0, SEEK_END);
    if (bytes > 0) {
        file.bytes = (size_t)bytes;
        file.content = recorder_map_file_read(fd, file.bytes);
    }
    recorder_sys_close(fd);
    if (file.content != NULL) {
        is_found = elf_file_search(&file, section, names, count, addresses_out);
        recorder_unmap((void *)(uintptr_t)file.content, file.bytes);
    }
    return is_found;
}
