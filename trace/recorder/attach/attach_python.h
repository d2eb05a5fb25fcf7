/* SPDX-License-Identifier: Apache-2.0 */
/* What `varve attach --torch` runs in the interpreter of a program that runs already. */
#ifndef VARVE_TRACE_RECORDER_ATTACH_ATTACH_PYTHON_H
#define VARVE_TRACE_RECORDER_ATTACH_ATTACH_PYTHON_H

/// If the recording directory has a file of variables (format/attach_format.h) and this process an interpreter: a
/// thread of its own runs the Python file that they name, once the interpreter lets it. Threads: one that nothing is
/// recorded of, and that has no lock of the C library's.
void attach_python_begin(const char *directory);

#endif
