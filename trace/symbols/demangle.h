/* SPDX-License-Identifier: Apache-2.0 */
/* Names of the linker → names as their authors wrote them: of C++ and of both schemes of Rust. */
#ifndef VARVE_TRACE_SYMBOLS_DEMANGLE_H
#define VARVE_TRACE_SYMBOLS_DEMANGLE_H

#include <stdbool.h>
#include <stddef.h>

/* Zero at first. One thread at a time. */
struct symbols_demangler {
    char *text; /* the last name; ends with 0 */
    size_t length, capacity;
};

/// Is it a name that a compiler made? It may still be none that can be read.
bool symbols_is_mangled(const char *name);
/// The name as its author wrote it, without what link-time optimisation put behind it; the same pointer if there is
/// nothing to do or it cannot be read. Borrowed until the next call.
const char *symbols_demangle(struct symbols_demangler *demangler, const char *name);
void symbols_demangler_free(struct symbols_demangler *demangler);

#endif
