/* SPDX-License-Identifier: Apache-2.0 */
/* Between torch_entry.cc and torch_error.cc; for C there is nothing here. */
#ifndef VARVE_ALLOC_FRONTEND_TORCH_ERROR_H
#define VARVE_ALLOC_FRONTEND_TORCH_ERROR_H

#ifdef __cplusplus

/// Throws c10::OutOfMemoryError, which Python sees as torch.OutOfMemoryError; std::runtime_error where
/// PyTorch is not in this process, or not as it is known here.
[[noreturn]] void torch_throw_out_of_memory(const char *text);

#endif

#endif
