/* SPDX-License-Identifier: Apache-2.0 */
/* Exceptions of torch_entry.cc and torch_methods.cc; for C there is nothing here. */
#ifndef VARVE_ALLOC_FRONTEND_TORCH_ERROR_H
#define VARVE_ALLOC_FRONTEND_TORCH_ERROR_H

#ifdef __cplusplus

#include <exception>

/// Throws c10::OutOfMemoryError, which Python sees as torch.OutOfMemoryError; std::runtime_error where
/// PyTorch is not in this process, or not as it is known here.
[[noreturn]] void torch_throw_out_of_memory(const char *text);

/// An observer of the thread's failing request has thrown it below frames of C: torch_throw_kept throws it once that
/// request is back in C++. The last one counts.
void torch_keep_exception(std::exception_ptr thrown);
void torch_throw_kept();

#endif

#endif
