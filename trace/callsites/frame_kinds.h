/* SPDX-License-Identifier: Apache-2.0 */
/* What the name of a function or a file says about a frame. */
#ifndef VARVE_TRACE_CALLSITES_FRAME_KINDS_H
#define VARVE_TRACE_CALLSITES_FRAME_KINDS_H

#include <stdbool.h>
#include <stddef.h>

bool callsites_name_is_allocation(const char *function); /* the malloc family, and wrappers around them */
/// The name itself, behind the return type that the demangled name of a template's instance has.
const char *callsites_name_begin(const char *function);
bool callsites_name_is_interpreter_loop(const char *function);
bool callsites_name_is_backward(const char *function); /* a step of PyTorch's backward pass */
bool callsites_path_is_interpreter(const char *module_path);
bool callsites_path_is_recorder(const char *module_path);
bool callsites_path_is_driver(const char *module_path);  /* libcuda and what stands in front of it */
bool callsites_path_is_storage(const char *module_path); /* libvarve.so: allocator and storages */
bool callsites_path_is_torch(const char *module_path);   /* native code of PyTorch and the libraries below it */
bool callsites_path_is_storage_python(const char *file); /* the Python package over libvarve.so */
bool callsites_path_is_torch_python(const char *file);   /* Python code of PyTorch, or ours beside it */
bool callsites_path_is_compiled(const char *file);       /* Python code that torch.compile wrote */

/*
 * How near a frame is to the user's own code. The table of what is plumbing is plumbing.txt; trace/writer.h has the
 * interface, since who reads a database adds patterns of the user's. Here is what the writers of call sites share.
 */

/// The table as text, one pattern a line, ends with 0.
extern const char callsites_plumbing_txt[];

/// Does `text` match? A `*` in `pattern` stands for any characters, all else for itself.
bool plumbing_match(const char *pattern, const char *text);

#endif
