/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stacks of another process by libdwfl, which reads the registers of a thread that we trace and unwinds by .eh_frame,
 * for trace/collector/programs; and functions and sections that a file names, for own_allocators.c of trace/collector
 * too. No debug files: they take long to read, and a stopped thread waits.
 */
#include "trace/symbols/running_process.h"

#include <elfutils/libdwfl.h>
#include <fcntl.h>
#include <gelf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Larger tables are not looked at. */
#define SYMBOLS_BYTES_MAX (UINT64_C(256) << 20)
#define NAMES_BYTES_MAX (UINT64_C(64) << 20)

struct symbols_running {
    int32_t pid;
    Dwfl *dwfl; /* NULL: it could not be opened once more */
};

static int find_no_debug_file(Dwfl_Module *module, void **userdata, const char *name, Dwarf_Addr base,
                              const char *file_name, const char *link_name, GElf_Word link_crc, char **found_name)
{
    (void)module;
    (void)userdata;
    (void)name;
    (void)base;
    (void)file_name;
    (void)link_name;
    (void)link_crc;
    (void)found_name;
    return -1;
}

/* What the first unwinding would read while the thread waits. */
static int prepare_module(Dwfl_Module *module, void **userdata, const char *name, Dwarf_Addr start, void *argument)
{
    (void)userdata;
    (void)name;
    (void)start;
    (void)argument;
    Dwarf_Addr bias;
    GElf_Addr main_bias;
    if (dwfl_module_getelf(module, &main_bias) != NULL) {
        (void)dwfl_module_eh_cfi(module, &bias);
        (void)dwfl_module_getsymtab(module);
    }
    return DWARF_CB_OK;
}

static Dwfl *dwfl_of(int32_t pid)
{
    static const Dwfl_Callbacks callbacks = {
        .find_elf = dwfl_linux_proc_find_elf,
        .find_debuginfo = find_no_debug_file,
    };
    Dwfl *dwfl = dwfl_begin(&callbacks);
    if (dwfl == NULL || dwfl_linux_proc_report(dwfl, pid) != 0 || dwfl_report_end(dwfl, NULL, NULL) != 0 ||
        dwfl_linux_proc_attach(dwfl, pid, true) != 0) {
        dwfl_end(dwfl); /* NULL is allowed */
        return NULL;
    }
    dwfl_getmodules(dwfl, prepare_module, NULL, 0);
    return dwfl;
}

struct symbols_running *symbols_running_open(int32_t pid)
{
    struct symbols_running *running = calloc(1, sizeof(*running));
    if (running != NULL) {
        running->pid = pid;
        running->dwfl = dwfl_of(pid);
    }
    if (running != NULL && running->dwfl == NULL) {
        free(running);
        return NULL;
    }
    return running;
}

void symbols_running_close(struct symbols_running *running)
{
    if (running != NULL) {
        dwfl_end(running->dwfl); /* NULL is allowed */
        free(running);
    }
}

struct walk {
    struct symbols_running *running;
    bool (*take)(void *context, const struct symbols_running_frame *frame);
    void *context;
    unsigned frames;
};

static bool is_code(Elf *elf, uint64_t file_pc)
{
    size_t count = 0;
    bool is_one = false;
    if (elf == NULL || elf_getphdrnum(elf, &count) != 0) {
        return false;
    }
    for (size_t i = 0; i < count && !is_one; i++) {
        GElf_Phdr header;
        is_one = gelf_getphdr(elf, (int)i, &header) != NULL && header.p_type == PT_LOAD &&
                 (header.p_flags & PF_X) != 0 && file_pc - header.p_vaddr < header.p_memsz;
    }
    return is_one;
}

bool symbols_running_frame(struct symbols_running *running, uint64_t pc, struct symbols_running_frame *frame_out)
{
    Dwfl_Module *module = running->dwfl != NULL ? dwfl_addrmodule(running->dwfl, pc) : NULL;
    *frame_out = (struct symbols_running_frame){.pc = pc};
    if (module == NULL) {
        return false;
    }
    GElf_Addr bias = 0;
    Elf *elf = dwfl_module_getelf(module, &bias);
    frame_out->file_pc = pc - bias;
    frame_out->path = dwfl_module_info(module, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
    if (!is_code(elf, frame_out->file_pc)) {
        return false;
    }
    frame_out->symbols = dwfl_module_getsymtab(module); /* read by prepare_module */
    return true;
}

const char *symbols_running_function(struct symbols_running *running, const struct symbols_running_frame *frame,
                                     uint64_t *begin_out)
{
    Dwfl_Module *module = running->dwfl != NULL ? dwfl_addrmodule(running->dwfl, frame->pc) : NULL;
    GElf_Off offset = 0;
    GElf_Sym symbol;
    const char *name =
        module != NULL ? dwfl_module_addrinfo(module, frame->pc, &offset, &symbol, NULL, NULL, NULL) : NULL;
    *begin_out = name != NULL ? frame->file_pc - offset : 0;
    return name;
}

static int visit_frame(Dwfl_Frame *state, void *argument)
{
    struct walk *walk = argument;
    Dwarf_Addr pc;
    bool is_activation;
    if (!dwfl_frame_pc(state, &pc, &is_activation)) {
        return DWARF_CB_ABORT;
    }
    walk->frames++;
    struct symbols_running_frame frame;
    (void)symbols_running_frame(walk->running, is_activation ? pc : pc - 1, &frame);
    return walk->take(walk->context, &frame) ? DWARF_CB_OK : DWARF_CB_ABORT;
}

bool symbols_running_stack(struct symbols_running *running, int32_t tid,
                           bool (*take)(void *context, const struct symbols_running_frame *frame), void *context)
{
    struct walk walk = {.running = running, .take = take, .context = context};
    if (running->dwfl != NULL) {
        (void)dwfl_getthread_frames(running->dwfl, tid, visit_frame, &walk); /* an error ends the stack */
    }
    if (walk.frames == 0) { /* libdwfl still holds a thread that ended under its hands, and takes no other */
        dwfl_end(running->dwfl);
        running->dwfl = dwfl_of(running->pid);
    }
    return walk.frames > 0;
}

/* ---- one file ---- */

struct file_symbols {
    int fd;
    Elf *elf;
    Elf_Data *data;
    size_t strings; /* their string table's section */
    size_t count;
};

static void file_symbols_close(struct file_symbols *symbols)
{
    elf_end(symbols->elf); /* NULL is allowed */
    if (symbols->fd >= 0) {
        close(symbols->fd);
    }
}

/* Read by position, not mapped: the file is its user's, who may make it shorter meanwhile. */
static bool file_symbols_open(struct file_symbols *symbols, const char *path)
{
    struct stat status;
    *symbols = (struct file_symbols){.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)};
    elf_version(EV_CURRENT);
    if (symbols->fd >= 0 && fstat(symbols->fd, &status) == 0 && S_ISREG(status.st_mode)) {
        symbols->elf = elf_begin(symbols->fd, ELF_C_READ, NULL);
    }
    if (gelf_getclass(symbols->elf) != ELFCLASS64) {
        file_symbols_close(symbols);
        return false;
    }
    return true;
}

/* Names that libelf may read as a whole: those of a user's file. */
static bool file_symbols_names_fit(const struct file_symbols *symbols, size_t section)
{
    GElf_Shdr header;
    return gelf_getshdr(elf_getscn(symbols->elf, section), &header) != NULL && header.sh_size <= NAMES_BYTES_MAX &&
           (header.sh_flags & SHF_COMPRESSED) == 0;
}

/* The next table of this kind; false: there is none. */
static bool file_symbols_next(struct file_symbols *symbols, Elf_Scn **section, uint32_t kind)
{
    GElf_Shdr header;
    while ((*section = elf_nextscn(symbols->elf, *section)) != NULL) {
        if (gelf_getshdr(*section, &header) && header.sh_type == kind && header.sh_entsize > 0 &&
            header.sh_size <= SYMBOLS_BYTES_MAX && file_symbols_names_fit(symbols, header.sh_link) &&
            (symbols->data = elf_getdata(*section, NULL)) != NULL) {
            symbols->strings = header.sh_link;
            symbols->count = symbols->data->d_size / header.sh_entsize;
            return true;
        }
    }
    return false;
}

static bool exported_open(struct file_symbols *symbols, const char *path)
{
    Elf_Scn *section = NULL;
    if (!file_symbols_open(symbols, path)) {
        return false;
    }
    if (!file_symbols_next(symbols, &section, SHT_DYNSYM)) {
        file_symbols_close(symbols);
        return false;
    }
    return true;
}

/* The name of a function that is defined in the file, else NULL. */
static const char *running_process_function_at(const struct file_symbols *symbols, size_t index, GElf_Sym *symbol)
{
    if (gelf_getsym(symbols->data, (int)index, symbol) == NULL || symbol->st_shndx == SHN_UNDEF ||
        GELF_ST_TYPE(symbol->st_info) != STT_FUNC) {
        return NULL;
    }
    return elf_strptr(symbols->elf, symbols->strings, symbol->st_name);
}

void symbols_file_each_function(const char *path, void (*take)(void *context, const char *function), void *context)
{
    static const uint32_t kinds[] = {SHT_SYMTAB, SHT_DYNSYM};
    struct file_symbols symbols;
    if (!file_symbols_open(&symbols, path)) {
        return;
    }
    for (size_t kind = 0; kind < sizeof(kinds) / sizeof(kinds[0]); kind++) {
        Elf_Scn *section = NULL;
        while (file_symbols_next(&symbols, &section, kinds[kind])) {
            GElf_Sym symbol;
            for (size_t i = 0; i < symbols.count; i++) {
                const char *function = running_process_function_at(&symbols, i, &symbol);
                if (function != NULL) {
                    take(context, function);
                }
            }
        }
    }
    file_symbols_close(&symbols);
}

bool symbols_file_has_section(const char *path, const char *name)
{
    struct file_symbols symbols;
    if (!file_symbols_open(&symbols, path)) {
        return false;
    }
    size_t names = 0;
    bool has = false;
    GElf_Shdr header;
    Elf_Scn *section = elf_getshdrstrndx(symbols.elf, &names) == 0 && file_symbols_names_fit(&symbols, names)
                           ? elf_nextscn(symbols.elf, NULL)
                           : NULL;
    for (; section != NULL && !has; section = elf_nextscn(symbols.elf, section)) {
        const char *found =
            gelf_getshdr(section, &header) != NULL ? elf_strptr(symbols.elf, names, header.sh_name) : NULL;
        has = found != NULL && strcmp(found, name) == 0;
    }
    file_symbols_close(&symbols);
    return has;
}

void symbols_file_functions(const char *path, const char *const *names, uint64_t *addresses)
{
    for (size_t i = 0; names[i] != NULL; i++) {
        addresses[i] = 0;
    }
    struct file_symbols symbols;
    if (!exported_open(&symbols, path)) {
        return;
    }
    GElf_Sym symbol;
    for (size_t i = 0; i < symbols.count; i++) {
        const char *found = running_process_function_at(&symbols, i, &symbol);
        for (size_t j = 0; found != NULL && names[j] != NULL; j++) {
            if (addresses[j] == 0 && strcmp(found, names[j]) == 0) {
                addresses[j] = symbol.st_value;
            }
        }
    }
    file_symbols_close(&symbols);
}

uint64_t symbols_file_function(const char *path, const char *name)
{
    const char *const names[] = {name, NULL};
    uint64_t address = 0;
    symbols_file_functions(path, names, &address);
    return address;
}

static bool running_process_is_among(const char *name, const char *const *names)
{
    while (*names != NULL && strcmp(*names, name) != 0) {
        names++;
    }
    return *names != NULL;
}

bool symbols_file_span(const char *path, const char *const *names, uint64_t *start, uint64_t *end)
{
    struct file_symbols symbols;
    if (!exported_open(&symbols, path)) {
        return false;
    }
    uint64_t first = UINT64_MAX, last = 0;
    GElf_Sym symbol;
    for (size_t i = 0; i < symbols.count; i++) {
        const char *found = running_process_function_at(&symbols, i, &symbol);
        if (found != NULL && running_process_is_among(found, names)) {
            first = symbol.st_value < first ? symbol.st_value : first;
            last = symbol.st_value + symbol.st_size > last ? symbol.st_value + symbol.st_size : last;
        }
    }
    uint64_t before = 0;
    for (size_t i = 0; i < symbols.count; i++) {
        const uint64_t its_end =
            running_process_function_at(&symbols, i, &symbol) != NULL ? symbol.st_value + symbol.st_size : 0;
        before = its_end <= first && its_end > before ? its_end : before;
    }
    file_symbols_close(&symbols);
    *start = before;
    *end = last;
    return last > 0;
}
