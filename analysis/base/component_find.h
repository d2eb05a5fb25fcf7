/* SPDX-License-Identifier: Apache-2.0 */
/* Where the libraries of this installation are that a recorded program loads. Called by record and doctor. */
#ifndef VARVE_ANALYSIS_BASE_COMPONENT_FIND_H
#define VARVE_ANALYSIS_BASE_COMPONENT_FIND_H

#include <stdbool.h>
#include <stddef.h>

/* What a recorded program loads of this installation. */
enum component {
    COMPONENT_PRELOAD,           /* libvarve_preload.so */
    COMPONENT_PROVIDER,          /* libvarve_lttng.so: absent if varve was built without LTTng */
    COMPONENT_CUPTI,             /* libvarve-cupti.so */
    COMPONENT_TORCH,             /* libvarve-torch.so */
    COMPONENT_REPLACE,           /* libvarve-replace.so */
    COMPONENT_PYTHON,            /* sitecustomize.py, in its folder */
    COMPONENT_BABELTRACE_PLUGIN, /* babeltrace-plugin-varve.so: absent if varve was built without babeltrace2 */
};

/// The folder of this program; false: there is no /proc, or it is too long.
bool component_folder(char *buffer, size_t buffer_bytes);
/// Path of a component; false if it is not there: then where it should be.
bool component_find(enum component component, char *buffer, size_t buffer_bytes);

#endif
