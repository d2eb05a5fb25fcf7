/* SPDX-License-Identifier: Apache-2.0 */
/* An ELF file as it ran, held by a mapping: whatever becomes of its name, its contents stay. */
#ifndef VARVE_TRACE_SYMBOLS_ELF_IMAGE_H
#define VARVE_TRACE_SYMBOLS_ELF_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SYMBOLS_BUILD_ID_MAX 64U

struct symbols_image {
    const void *bytes; /* mapped; never read in place: the file may become shorter */
    size_t length;
    uint64_t device, inode;
    uint8_t build_id[SYMBOLS_BUILD_ID_MAX];
    size_t build_id_bytes; /* 0: it has none */
    int copy;              /* a descriptor of the contents, -1: not made yet */
};

/// Maps a file, and reads its build id. False: it is no ELF file of this machine's kind, or there is no memory. The
/// descriptor stays the caller's. Threads: any.
bool symbols_image_take(struct symbols_image *image, int file);
/// A descriptor of the contents, which the caller closes; -1: they are gone, or there is no memory for a copy. One
/// thread at a time.
int symbols_image_open(struct symbols_image *image);
/// Is it that very file, by whatever name?
bool symbols_image_is(const struct symbols_image *image, int file);
void symbols_image_drop(struct symbols_image *image);

#endif
