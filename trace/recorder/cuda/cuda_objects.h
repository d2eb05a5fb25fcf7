/* SPDX-License-Identifier: Apache-2.0 */
/* Questions to the dynamic loader, asked between recorder_reentrant_begin and _end. Threads: any. */
#ifndef VARVE_TRACE_RECORDER_CUDA_CUDA_OBJECTS_H
#define VARVE_TRACE_RECORDER_CUDA_CUDA_OBJECTS_H

/// What dlsym(RTLD_DEFAULT, name) will say to the code at `caller`, if that is certain; else NULL.
void *cuda_objects_default(const char *name, const void *caller);
/// The same of RTLD_NEXT.
void *cuda_objects_next(const char *name, const void *caller);

/// A symbol of the driver library; NULL: no such symbol, or no such library is loaded.
void *cuda_objects_driver_symbol(const char *name);
/// Keep the object that holds `address` loaded from now on: pointers to its functions will be kept.
void cuda_objects_hold(const void *address);
/// A symbol as the next object behind us defines it, for all programs alike.
void *cuda_objects_behind_us(const char *name);
/// A symbol of a loaded library, which stays loaded from then on; `name` NULL is not allowed.
void *cuda_objects_symbol_of(const char *library, const char *name);
/// A symbol as the object that holds `caller` sees it among its own libraries.
void *cuda_objects_symbol_for(const void *caller, const char *name);

#endif
