/* SPDX-License-Identifier: Apache-2.0 */
/* A file of a command's answer, or a folder of files, which is there whole or not at all. */
#ifndef VARVE_ANALYSIS_BASE_OUTPUT_FILE_H
#define VARVE_ANALYSIS_BASE_OUTPUT_FILE_H

#include "base/error.h"

#include <stdbool.h>
#include <stdio.h>

/// Writes all of `subject`. Failures of `out` are found by the caller; others are the result, with their message.
typedef int output_writer(const void *subject, FILE *out, struct varve_message *message);

/// May the output of a command that reads `count` files be put at `path`? Errors: as varve_publish_check;
/// VARVE_ERROR_INVALID, it is one of those files, which would be lost.
int output_check(const char *path, bool may_replace, const char *const *inputs, int count,
                 struct varve_message *message);

/// `write` writes to a file beside `path`, which then moves there; without may_replace nothing is overwritten.
/// Errors: those of `write`, of varve_publish_folder_make and _move; VARVE_ERROR_IO.
int output_file(const char *path, bool may_replace, output_writer *write, const void *subject,
                struct varve_message *message);

/// The same of files, which it makes in `folder`.
typedef int output_folder_writer(const void *subject, const char *folder, struct varve_message *message);

/// A folder where nothing is yet: `write` fills one beside `path`, which then moves there. Errors: as of output_file.
int output_folder(const char *path, output_folder_writer *write, const void *subject, struct varve_message *message);

#endif
