/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where functions begin that have no name: the unwind table knows. Of .eh_frame_hdr, which lists all functions in order
 * for whoever unwinds, the search table is read: pairs of distances from its own address, to a function and to the
 * function's entry in .eh_frame, which says how long that is. Linkers for 64-bit machines write it in one way; where it
 * is another, nothing is known. Called by symbols.c and dwarf.c.
 */
#include "trace/symbols/symbol_module.h"

#include <dwarf.h>
#include <elfutils/libdwfl.h>
#include <gelf.h>
#include <string.h>

#define HEAD_BYTES 12U
#define PAIR_BYTES 8U
#define ENTRY_BYTES 16U /* of an entry of .eh_frame, up to the length of its function */

static uint32_t start_word_at(const uint8_t *at)
{
    uint32_t word;
    memcpy(&word, at, sizeof(word));
    return word;
}

/* `address` and the signed distance there. */
static uint64_t start_pointer_at(const uint8_t *at, uint64_t address)
{
    return address + (uint64_t)(int64_t)(int32_t)start_word_at(at);
}

void symbols_starts_open(struct symbols_module *module)
{
    GElf_Addr bias = 0;
    Elf *elf = dwfl_module_getelf(module->handle, &bias);
    size_t count = 0, bytes = 0;
    const uint8_t *file = (const uint8_t *)elf_rawfile(elf, &bytes);
    module->starts = (struct symbols_starts){0};
    if (file == NULL || elf_getphdrnum(elf, &count) != 0) {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        GElf_Phdr header;
        if (gelf_getphdr(elf, (int)i, &header) == NULL || header.p_type != PT_GNU_EH_FRAME || header.p_offset > bytes ||
            bytes - header.p_offset < HEAD_BYTES) {
            continue;
        }
        const uint8_t *head = file + header.p_offset;
        const uint64_t pairs = (bytes - header.p_offset - HEAD_BYTES) / PAIR_BYTES;
        if (head[0] == 1 && head[1] == (DW_EH_PE_pcrel | DW_EH_PE_sdata4) && head[2] == DW_EH_PE_udata4 &&
            head[3] == (DW_EH_PE_datarel | DW_EH_PE_sdata4) && start_word_at(head + 8) <= pairs) {
            module->starts =
                (struct symbols_starts){file, bytes, header.p_offset, header.p_vaddr, start_word_at(head + 8)};
        }
    }
}

uint64_t symbols_function_start(const struct symbols_module *module, uint64_t address)
{
    const struct symbols_starts *starts = &module->starts;
    if (starts->count == 0) {
        return 0;
    }
    const uint8_t *table = starts->file + starts->offset + HEAD_BYTES;
    uint32_t low = 0, high = starts->count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (start_pointer_at(table + (size_t)middle * PAIR_BYTES, starts->address) <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == 0) {
        return 0;
    }
    const uint8_t *pair = table + (size_t)(low - 1) * PAIR_BYTES;
    const uint64_t start = start_pointer_at(pair, starts->address), entry = start_pointer_at(pair + 4, starts->address);
    const uint64_t at = entry - starts->address + starts->offset; /* both are in one segment */
    if (at > starts->bytes || starts->bytes - at < ENTRY_BYTES ||
        start_pointer_at(starts->file + at + 8, entry + 8) != start ||
        address - start >= start_word_at(starts->file + at + 12)) {
        return 0;
    }
    return start;
}
