/* SPDX-License-Identifier: Apache-2.0 */
/* Symbols of PyTorch's libraries, which are in the process when PyTorch asks for memory, and are not linked to. */
#ifndef VARVE_ALLOC_FRONTEND_TORCH_SYMBOLS_H
#define VARVE_ALLOC_FRONTEND_TORCH_SYMBOLS_H

#ifdef __cplusplus
extern "C" {
#endif

/// The address of a symbol of a loaded library, or of one that it depends on; NULL: there is none. The library is named
/// by its file's name, wherever it is from and whoever may see its symbols. Threads: any.
void *torch_symbol_find(const char *library, const char *symbol);

#ifdef __cplusplus
}
#endif

#endif
