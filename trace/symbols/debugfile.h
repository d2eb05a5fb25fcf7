/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to trace/symbols */
/*
 * Where separate debug files are.
 */
#ifndef VARVE_TRACE_SYMBOLS_DEBUGFILE_H
#define VARVE_TRACE_SYMBOLS_DEBUGFILE_H

#include <stdint.h>

struct Dwfl_Module;

/// The find_debuginfo callback of libdwfl; userdata is the symbols_module. Never uses the network.
int symbols_debugfile_find(struct Dwfl_Module *handle, void **userdata, const char *name, uint64_t base,
                           const char *file_name, const char *link_name, uint32_t link_crc,
                           char **found_name);

/// Bytes that the compressed debug sections of an ELF file take when unpacked.
uint64_t symbols_debugfile_unpacked(void *elf);

#endif
