/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One ELF file, opened with its debug file. elfutils types appear by their struct tags, so that this header does not
 * need elfutils. At most SYMBOLS_MODULES_MAX are open at a time, and fewer if they are large, because
 * memory is bounded.
 */
#ifndef VARVE_TRACE_SYMBOLS_SYMBOL_MODULE_H
#define VARVE_TRACE_SYMBOLS_SYMBOL_MODULE_H

#include "trace/symbols/demangle.h"
#include "trace/symbols/elf_image.h"
#include "trace/symbols/symbol_range.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct Dwarf;
struct Dwfl;
struct Dwfl_Module;
struct symbols_unit;

#define SYMBOLS_MODULES_MAX 16U

/* The search table of the unwind table. All zero: there is none. */
struct symbols_starts {
    const uint8_t *file; /* as it is mapped */
    uint64_t bytes;
    uint64_t offset, address; /* of .eh_frame_hdr */
    uint32_t count;
};

struct symbols_module {
    const struct symbols *symbols;
    char *path;
    struct symbols_image *image; /* the file as it ran, NULL: not held; borrowed */
    uint8_t build_id[SYMBOLS_BUILD_ID_MAX];
    size_t build_id_bytes;
    uint64_t used;     /* counter of symbols at the last look-up */
    uint64_t bytes;    /* of its files */
    struct Dwfl *dwfl; /* NULL: no such file, or another one by now: nothing resolves */
    struct Dwfl_Module *handle;
    /* symbol table: values are numbers of dwfl_module_getsym_info */
    struct symbols_ranges sized, unsized;
    struct symbols_starts starts;
    /* DWARF; NULL if there is none */
    struct Dwarf *dwarf;
    uint64_t dwarf_bias;
    struct symbols_unit *units;
    size_t unit_count;
    size_t unit_capacity;
    struct symbols_ranges unit_ranges; /* values are places in units[] */
    size_t line_rows;                  /* line tables that libdw keeps until the module is closed */
};

struct symbols {
    char *debug_path; /* where separate debug files are, as libdwfl reads it */
    struct symbols_module *modules[SYMBOLS_MODULES_MAX];
    uint64_t used;
    struct symbols_demangler demangler;
};

/// Look for separate debug files below `directory` too, as below /usr/lib/debug.
int symbols_add_debug_root(struct symbols *symbols, const char *directory);

/// Open the file, or what is held of it, its symbol table and its DWARF; leaves `dwfl` NULL if it cannot be used.
void symbols_module_open(struct symbols_module *module);
void symbols_module_close(struct symbols_module *module);

/// Name in the symbol table of what is at `address`; NULL if no symbol covers it.
const char *symbols_module_name(const struct symbols_module *module, uint64_t address);

/// For symbols_function_start, once the file is open.
void symbols_starts_open(struct symbols_module *module);
/// Where the function around `address` begins, as the unwind table says; 0: it does not.
uint64_t symbols_function_start(const struct symbols_module *module, uint64_t address);

/* Units, functions, inlined calls, lines. */

struct symbols_frame;

/// List the units of module->dwarf.
void symbols_dwarf_open(struct symbols_module *module);
void symbols_dwarf_close(struct symbols_module *module);

/// As symbols_resolve, from DWARF; false if it does not know the address. `fallback`: the symbol table's
/// name, for a pc that has a line but no function (assembly) or only a plain name.
bool symbols_dwarf_resolve(struct symbols *symbols, struct symbols_module *module, uint64_t address,
                           const char *fallback, void (*take)(void *context, const struct symbols_frame *frame),
                           void *context);

#endif
