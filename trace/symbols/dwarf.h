/* SPDX-License-Identifier: Apache-2.0 */
/* Units, functions, inlined calls, lines. */
#ifndef VARVE_TRACE_SYMBOLS_DWARF_H
#define VARVE_TRACE_SYMBOLS_DWARF_H

#include <stdbool.h>
#include <stdint.h>

struct symbols;
struct symbols_module;
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
