/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to the files symbols*.c of the collector */
/*
 * What the files that look up symbols share. elfutils types appear by their struct tags, so that this header
 * does not need elfutils. A module is one ELF file, opened with its debug file; at most SYMBOLS_MODULES_MAX
 * are open at a time, and fewer if they are large, because the collector's memory is bounded.
 */
#ifndef VARVE_TRACE_SYMBOLS_SYMBOLS_H
#define VARVE_TRACE_SYMBOLS_SYMBOLS_H

#include "trace/collect_internal.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct Dwarf;
struct Dwfl;
struct Dwfl_Module;
struct symbols_unit;

#define SYMBOLS_MODULES_MAX 16U
#define SYMBOLS_ROOTS_MAX 4U
#define SYMBOLS_BUILD_ID_MAX 64U
/* Compressed debug sections are unpacked into memory as a whole: larger ones are left alone, and functions
 * get their names from the symbol table. */
#define SYMBOLS_UNPACKED_MAX (UINT64_C(128) << 20)

/* ---- range.c: address ranges that may overlap ---- */

struct symbols_range {
    uint64_t low, high;  /* [low, high) */
    uint64_t high_max;   /* largest high up to here, once sorted: ends the search backwards */
    uint32_t value;      /* the owner's */
    uint32_t preference; /* among equal ranges the largest wins */
};

struct symbols_ranges {
    struct symbols_range *ranges;
    size_t count, capacity;
};

/// Empty and reversed ranges are ignored; false without memory.
bool symbols_ranges_add(struct symbols_ranges *table, uint64_t low, uint64_t high, uint32_t value,
                        uint32_t preference);
void symbols_ranges_sort(struct symbols_ranges *table);
/// The range around `address` that begins last, of these the shortest; NULL if there is none.
const struct symbols_range *symbols_ranges_find(const struct symbols_ranges *table, uint64_t address);
void symbols_ranges_free(struct symbols_ranges *table);

/* ---- symbols.c ---- */

struct symbols_module {
    const struct symbols *symbols;
    char *path;
    uint8_t build_id[SYMBOLS_BUILD_ID_MAX];
    size_t build_id_bytes;
    uint64_t used;     /* counter of symbols at the last look-up */
    uint64_t bytes;    /* of its files */
    struct Dwfl *dwfl; /* NULL: no such file, or another one by now: nothing resolves */
    struct Dwfl_Module *handle;
    /* symbol table: values are numbers of dwfl_module_getsym_info */
    struct symbols_ranges sized, unsized;
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
    char *roots[SYMBOLS_ROOTS_MAX]; /* directories with debug files */
    unsigned root_count;
    struct symbols_module *modules[SYMBOLS_MODULES_MAX];
    uint64_t used;
    char *demangled; /* buffer of __cxa_demangle */
    size_t demangled_bytes;
};

/// Look for separate debug files below `directory` too, as below /usr/lib/debug.
int symbols_add_debug_root(struct symbols *symbols, const char *directory);

/// The name as its author wrote it; the same pointer if it is not mangled. Borrowed until the next call.
const char *symbols_demangle(struct symbols *symbols, const char *name);

/* ---- module.c: one ELF file ---- */

/// Open the file, its symbol table and its DWARF; leaves `dwfl` NULL if it cannot be used.
void symbols_module_open(struct symbols_module *module);
void symbols_module_close(struct symbols_module *module);

/// Name in the symbol table of what is at `address`; NULL if no symbol covers it.
const char *symbols_module_name(const struct symbols_module *module, uint64_t address);

/* ---- debugfile.c: where separate debug files are ---- */

/// The find_debuginfo callback of libdwfl; userdata is the symbols_module. Never uses the network.
int symbols_debugfile_find(struct Dwfl_Module *handle, void **userdata, const char *name, uint64_t base,
                           const char *file_name, const char *link_name, uint32_t link_crc,
                           char **found_name);

/// Bytes that the compressed debug sections of an ELF file take when unpacked.
uint64_t symbols_debugfile_unpacked(void *elf);

/* ---- dwarf.c: units, functions, inlined calls, lines ---- */

/// List the units of module->dwarf.
void symbols_dwarf_open(struct symbols_module *module);
void symbols_dwarf_close(struct symbols_module *module);

/// As symbols_resolve, from DWARF; false if it does not know the address. `fallback`: the symbol table's
/// name, for a place that has a line but no function (assembly) or only a plain name.
bool symbols_dwarf_resolve(struct symbols *symbols, struct symbols_module *module, uint64_t address,
                           const char *fallback,
                           void (*take)(void *context, const struct symbols_frame *frame), void *context);

#endif
