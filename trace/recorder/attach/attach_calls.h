/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `varve attach` calls in a program that runs already, into which it has loaded libvarve_preload.so
 * (collector/programs). Threads: one at a time.
 */
#ifndef VARVE_TRACE_RECORDER_ATTACH_ATTACH_CALLS_H
#define VARVE_TRACE_RECORDER_ATTACH_ATTACH_CALLS_H

/// Record this process into the recording directory, from now on. Hooks come into the entries of the loaded objects;
/// the C library and the program are not changed otherwise. Returns enum attach_answer (format/attach_format.h). The
/// recording before was ended and released.
__attribute__((visibility("default"))) int varve_preload_attach(const char *directory);
/// No hook is called any more, but those that threads are in. Returns ATTACH_DONE.
__attribute__((visibility("default"))) int varve_preload_detach(void);
/// After that, once no thread is inside the library: memory of the recording goes. Returns ATTACH_DONE.
__attribute__((visibility("default"))) int varve_preload_release(void);

#endif
