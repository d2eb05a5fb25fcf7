/* SPDX-License-Identifier: Apache-2.0 */
/* Address in a module → function, file, line, inlined frames. */
#ifndef VARVE_TRACE_SYMBOLS_SYMBOLS_H
#define VARVE_TRACE_SYMBOLS_SYMBOLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct varve_message;

struct symbols;
struct symbols_image;

struct symbols_frame {
    const char *function; /* demangled; NULL if unknown; borrowed for the call */
    const char *file;
    uint32_t line;
    bool is_inlined;
    uint64_t start; /* of a function without a name: where it begins; 0: unknown */
};

int symbols_open(struct symbols **symbols_out, struct varve_message *message);
void symbols_close(struct symbols *symbols);

/// Calls `take` for each frame at `address` (of the ELF file), innermost first; at least once. Separate debug
/// files are found by build id or debuglink under /usr/lib/debug; a file whose build id differs is not used, but
/// `image`, which is what ran, as it is held; NULL: it is not. It stays the caller's, and where it is.
int symbols_resolve(struct symbols *symbols, const char *path, const uint8_t *build_id, size_t build_id_bytes,
                    struct symbols_image *image, uint64_t address,
                    void (*take)(void *context, const struct symbols_frame *frame), void *context);

#endif
