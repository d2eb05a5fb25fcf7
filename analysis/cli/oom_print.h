/* SPDX-License-Identifier: Apache-2.0 */
/* The answers of the command `oom`, for people and for programs. */
#ifndef VARVE_ANALYSIS_CLI_OOM_PRINT_H
#define VARVE_ANALYSIS_CLI_OOM_PRINT_H

#include "analysis/cli/oom_scene.h"

#include <stdio.h>

/// The first `explained` requests with what would have served them, which is played now; the others by their causes.
void oom_print_text(FILE *out, struct oom_scene *scene, size_t explained);
void oom_print_json(FILE *out, struct oom_scene *scene, const char *path, size_t explained);

#endif
