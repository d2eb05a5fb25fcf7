/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One ELF file that a recorded process had mapped: opened through libdwfl, which also unpacks
 * .gnu_debugdata, checked by its build id, and its symbol table sorted once (libdwfl's own look-up reads all
 * symbols for each address). If the file is no longer what ran, what was held of it is read (elf_image.c); without
 * that nothing is resolved, because a wrong name is worse than none. Called by symbols.c.
 */
#include "trace/symbols/symbol_module.h"

#include "trace/symbols/symbol_range.h"

#include <elfutils/libdwfl.h>
#include <fcntl.h>
#include <gelf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Compressed debug sections are unpacked into memory as a whole: larger ones are left alone, and functions get their
 * names from the symbol table. */
#define UNPACKED_MAX (UINT64_C(128) << 20)

static int find_no_elf(Dwfl_Module *handle, void **userdata, const char *name, Dwarf_Addr base, char **file_name,
                       Elf **elf)
{
    (void)handle;
    (void)userdata;
    (void)name;
    (void)base;
    (void)file_name;
    (void)elf;
    return -1;
}

/* Bytes that the compressed debug sections of an ELF file take when unpacked. */
static uint64_t unpacked_bytes(Elf *elf)
{
    uint64_t bytes = 0;
    Elf_Scn *section = NULL;
    while ((section = elf_nextscn(elf, section)) != NULL) {
        GElf_Shdr header;
        GElf_Chdr packed;
        if (gelf_getshdr(section, &header) && (header.sh_flags & SHF_COMPRESSED) && !(header.sh_flags & SHF_ALLOC) &&
            gelf_getchdr(section, &packed)) {
            bytes += packed.ch_size;
        }
    }
    return bytes;
}

/* Is something there that is no file? Opening a pipe would wait for ever. */
static bool is_special(const char *directory, int directory_bytes, const char *below, const char *name)
{
    char path[4096];
    struct stat status;
    return snprintf(path, sizeof(path), "%.*s%s%s", directory_bytes, directory, below, name) < (int)sizeof(path) &&
           stat(path, &status) == 0 && !S_ISREG(status.st_mode);
}

/* What a module names as its debug file, wherever the module can say that it is. */
static bool link_is_special(const char *file_name, const char *link_name)
{
    const char *slash = strrchr(file_name, '/');
    int bytes = slash ? (int)(slash + 1 - file_name) : 0;
    return is_special("", 0, "", link_name) || is_special(file_name, bytes, "", link_name) ||
           is_special(file_name, bytes, ".debug/", link_name);
}

/* libdwfl's own search, by build id, debuglink and dwz's link; what is too large is not used. */
static int find_debug_file(Dwfl_Module *handle, void **userdata, const char *name, Dwarf_Addr base,
                           const char *file_name, const char *link_name, GElf_Word link_crc, char **found_name)
{
    struct symbols_module *module = *userdata;
    if (!module) {
        return -1;
    }
    if (link_name && link_is_special(file_name ? file_name : module->path, link_name)) {
        return -1;
    }
    int file = dwfl_standard_find_debuginfo(handle, userdata, name, base, file_name, link_name, link_crc, found_name);
    if (file < 0) {
        return file;
    }
    Elf *elf = elf_begin(file, ELF_C_READ_MMAP, NULL);
    struct stat status;
    if (fstat(file, &status) != 0 || !elf || unpacked_bytes(elf) > UNPACKED_MAX) {
        elf_end(elf);
        close(file);
        free(*found_name);
        *found_name = NULL;
        return -1;
    }
    elf_end(elf);
    module->bytes += (uint64_t)status.st_size;
    return file;
}

static char *debug_path; /* of the symbols whose module is being opened */

static const Dwfl_Callbacks callbacks = {
    .find_elf = find_no_elf, /* the file is handed over open */
    .find_debuginfo = find_debug_file,
    .debuginfo_path = &debug_path,
    .section_address = dwfl_offline_section_address,
};

static int open_regular(const char *path, uint64_t *bytes_out)
{
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (file < 0) {
        return -1;
    }
    struct stat status;
    if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) {
        close(file);
        return -1;
    }
    *bytes_out = (uint64_t)status.st_size;
    return file;
}

/* ---- symbol table ---- */

/* End of the executable section around `address`; 0 if there is none. */
static uint64_t code_section_end(Elf *elf, uint64_t bias, uint64_t address)
{
    Elf_Scn *section = NULL;
    while ((section = elf_nextscn(elf, section)) != NULL) {
        GElf_Shdr header;
        if (gelf_getshdr(section, &header) && (header.sh_flags & SHF_EXECINSTR) &&
            address - (header.sh_addr + bias) < header.sh_size) {
            return header.sh_addr + bias + header.sh_size;
        }
    }
    return 0;
}

/* Of several names for one address: global before weak before local, fewer underscores, functions. */
static uint32_t symbol_preference(const GElf_Sym *symbol, const char *name)
{
    unsigned bind = GELF_ST_BIND(symbol->st_info), underscores = (unsigned)strspn(name, "_");
    uint32_t preference = bind == STB_GLOBAL ? 2 : bind == STB_WEAK ? 1 : 0;
    preference = preference * 4 + (underscores < 3 ? 3 - underscores : 0);
    return preference * 2 + (GELF_ST_TYPE(symbol->st_info) != STT_NOTYPE);
}

/* A symbol without a size (assembly) reaches to the next symbol, in its own section. */
static void bound_unsized(struct symbols_module *module)
{
    const struct symbols_ranges *sized = &module->sized;
    symbols_ranges_sort(&module->unsized);
    size_t at = 0;
    for (size_t i = 0; i < module->unsized.count; i++) {
        struct symbols_range *range = &module->unsized.ranges[i];
        while (at < sized->count && sized->ranges[at].low <= range->low) {
            at++;
        }
        if (at < sized->count && sized->ranges[at].low < range->high) {
            range->high = sized->ranges[at].low;
        }
        for (size_t next = i + 1; next < module->unsized.count; next++) {
            if (module->unsized.ranges[next].low == range->low) {
                continue;
            }
            if (module->unsized.ranges[next].low < range->high) {
                range->high = module->unsized.ranges[next].low;
            }
            break;
        }
    }
    symbols_ranges_sort(&module->unsized);
}

static void load_symbols(struct symbols_module *module)
{
    int count = dwfl_module_getsymtab(module->handle);
    GElf_Addr bias = 0;
    Elf *elf = dwfl_module_getelf(module->handle, &bias);
    for (int i = 0; i < count; i++) {
        GElf_Sym symbol;
        GElf_Addr address = 0;
        GElf_Word section = SHN_UNDEF;
        const char *name = dwfl_module_getsym_info(module->handle, i, &symbol, &address, &section, NULL, NULL);
        if (!name || name[0] == '\0' || section == SHN_UNDEF || section == SHN_ABS || section == SHN_COMMON) {
            continue;
        }
        unsigned type = GELF_ST_TYPE(symbol.st_info);
        if (type != STT_FUNC && type != STT_GNU_IFUNC && type != STT_NOTYPE) {
            continue;
        }
        if (symbol.st_size && (type != STT_NOTYPE || code_section_end(elf, bias, address))) {
            symbols_ranges_add(&module->sized, address, address + symbol.st_size, (uint32_t)i,
                               symbol_preference(&symbol, name));
        } else if (symbol.st_size == 0) {
            symbols_ranges_add(&module->unsized, address, code_section_end(elf, bias, address), (uint32_t)i,
                               symbol_preference(&symbol, name));
        }
    }
    symbols_ranges_sort(&module->sized);
    bound_unsized(module);
}

const char *symbols_module_name(const struct symbols_module *module, uint64_t address)
{
    const struct symbols_range *range = symbols_ranges_find(&module->sized, address);
    if (!range) {
        range = symbols_ranges_find(&module->unsized, address);
    }
    if (!range) {
        return NULL;
    }
    GElf_Sym symbol;
    GElf_Addr start;
    return dwfl_module_getsym_info(module->handle, (int)range->value, &symbol, &start, NULL, NULL, NULL);
}

/* ---- open and close ---- */

/* A build id that was not recorded cannot differ. */
static bool is_what_ran(const struct symbols_module *module)
{
    if (module->build_id_bytes == 0) {
        return true; /* open_named has looked */
    }
    const unsigned char *bits = NULL;
    GElf_Addr address;
    int bytes = dwfl_module_build_id(module->handle, &bits, &address);
    return bytes > 0 && (size_t)bytes == module->build_id_bytes && memcmp(bits, module->build_id, (size_t)bytes) == 0;
}

static void close_file(struct symbols_module *module)
{
    if (module->dwfl) {
        dwfl_end(module->dwfl);
    }
    module->dwfl = NULL;
    module->handle = NULL;
}

/* The file that has the name now; -1: none, or another one than what is held, and no build id could tell. */
static int open_named(struct symbols_module *module)
{
    int file = open_regular(module->path, &module->bytes);
    if (file >= 0 && module->build_id_bytes == 0 && module->image && !symbols_image_is(module->image, file)) {
        close(file);
        return -1;
    }
    return file;
}

/* True if it is what ran. Takes the descriptor. */
static bool report_file(struct symbols_module *module, int file)
{
    if (file < 0) {
        return false;
    }
    debug_path = module->symbols->debug_path;
    module->dwfl = dwfl_begin(&callbacks);
    if (!module->dwfl) {
        close(file);
        return false;
    }
    /* Base 0: addresses are those of the file. libdwfl owns the descriptor from here on, if it takes it. */
    dwfl_report_begin(module->dwfl);
    module->handle = dwfl_report_elf(module->dwfl, module->path, module->path, file, 0, true);
    dwfl_report_end(module->dwfl, NULL, NULL);
    if (!module->handle) {
        close(file);
    }
    GElf_Addr bias = 0;
    if (!module->handle || !dwfl_module_getelf(module->handle, &bias) || bias != 0 || !is_what_ran(module)) {
        close_file(module);
        return false;
    }
    return true;
}

void symbols_module_open(struct symbols_module *module)
{
    if (!report_file(module, open_named(module))) {
        if (!module->image || !report_file(module, symbols_image_open(module->image))) {
            return;
        }
        module->bytes = module->image->length;
    }
    void **userdata = NULL;
    GElf_Addr bias = 0;
    dwfl_module_info(module->handle, &userdata, NULL, NULL, NULL, NULL, NULL, NULL);
    *userdata = module;
    if (unpacked_bytes(dwfl_module_getelf(module->handle, &bias)) <= UNPACKED_MAX) {
        module->dwarf = dwfl_module_getdwarf(module->handle, &module->dwarf_bias);
        symbols_dwarf_open(module);
    }
    load_symbols(module);
    symbols_starts_open(module);
}

void symbols_module_close(struct symbols_module *module)
{
    symbols_dwarf_close(module);
    symbols_ranges_free(&module->sized);
    symbols_ranges_free(&module->unsized);
    module->starts = (struct symbols_starts){0};
    close_file(module);
    module->bytes = 0;
}
