/* SPDX-License-Identifier: Apache-2.0 */
/* The files of programs and libraries as they ran: taken while the process lives, for what is named later. */
#ifndef VARVE_TRACE_CALLSITES_CALLSITE_IMAGES_H
#define VARVE_TRACE_CALLSITES_CALLSITE_IMAGES_H

#include "trace/symbols/elf_image.h"

#include <stddef.h>
#include <stdint.h>

struct images_entry {
    struct symbols_image image;
    char *path; /* by which it was known then */
};

/* All zero: none. */
struct images {
    struct images_entry **entries; /* each stays where it is */
    size_t count, capacity;
};

/// Keep the file of that name, if it is one.
void images_keep(struct images *images, const char *path);
/// Keep the program that this process runs, under the name that the kernel has for it.
void images_keep_program(struct images *images, int32_t pid);
/// What was mapped at `base` and has this build id, or, without one, is called so; by its name, or as the process
/// (`pid`; 0: it is not known) has it. NULL: it is not to be found, but may still have its name; of one that has not
/// it is an image without contents. Borrowed until images_free.
struct symbols_image *images_find(struct images *images, const char *path, const uint8_t *build_id,
                                  size_t build_id_bytes, int32_t pid, uint64_t base);
void images_free(struct images *images);

#endif
