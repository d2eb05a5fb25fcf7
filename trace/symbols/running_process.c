/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stacks of another process by libdwfl, which reads the registers of a thread that we trace and unwinds by .eh_frame;
 * and exported functions of a file by its dynamic symbol table. No debug files: they take long to read, and a stopped
 * thread waits. Called by trace/collector/programs.
 */
#include "trace/symbols/running_process.h"

#include <elfutils/libdwfl.h>
#include <fcntl.h>
#include <gelf.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
    GElf_Off offset;
    GElf_Sym symbol;
    frame_out->function = dwfl_module_addrinfo(module, pc, &offset, &symbol, NULL, NULL, NULL);
    frame_out->function_pc = frame_out->function != NULL ? frame_out->file_pc - offset : 0;
    return true;
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

struct dynamic_symbols {
    int fd;
    Elf *elf;
    Elf_Data *data;
    size_t strings; /* its string table's section */
    size_t count;
};

static void dynamic_symbols_close(struct dynamic_symbols *symbols)
{
    if (symbols->elf != NULL) {
        elf_end(symbols->elf);
    }
    if (symbols->fd >= 0) {
        close(symbols->fd);
    }
}

static bool dynamic_symbols_open(struct dynamic_symbols *symbols, const char *path)
{
    *symbols = (struct dynamic_symbols){.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    elf_version(EV_CURRENT);
    symbols->elf = symbols->fd >= 0 ? elf_begin(symbols->fd, ELF_C_READ_MMAP, NULL) : NULL;
    Elf_Scn *section = NULL;
    while (symbols->elf != NULL && symbols->data == NULL && (section = elf_nextscn(symbols->elf, section)) != NULL) {
        GElf_Shdr header;
        if (gelf_getshdr(section, &header) && header.sh_type == SHT_DYNSYM && header.sh_entsize > 0) {
            symbols->data = elf_getdata(section, NULL);
            symbols->strings = header.sh_link;
            symbols->count = header.sh_size / header.sh_entsize;
        }
    }
    if (symbols->data == NULL) {
        dynamic_symbols_close(symbols);
    }
    return symbols->data != NULL;
}

/* The name of a function that is defined in the file, else NULL. */
static const char *running_process_function_at(const struct dynamic_symbols *symbols, size_t index, GElf_Sym *symbol)
{
    if (gelf_getsym(symbols->data, (int)index, symbol) == NULL || symbol->st_shndx == SHN_UNDEF ||
        GELF_ST_TYPE(symbol->st_info) != STT_FUNC) {
        return NULL;
    }
    return elf_strptr(symbols->elf, symbols->strings, symbol->st_name);
}

void symbols_file_functions(const char *path, const char *const *names, uint64_t *addresses)
{
    for (size_t i = 0; names[i] != NULL; i++) {
        addresses[i] = 0;
    }
    struct dynamic_symbols symbols;
    if (!dynamic_symbols_open(&symbols, path)) {
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
    dynamic_symbols_close(&symbols);
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
    struct dynamic_symbols symbols;
    if (!dynamic_symbols_open(&symbols, path)) {
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
    dynamic_symbols_close(&symbols);
    *start = before;
    *end = last;
    return last > 0;
}
