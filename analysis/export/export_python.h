/* SPDX-License-Identifier: Apache-2.0 */
/* Formats that the Python package writes, since pyarrow has them: the package is run as a program. */
#ifndef VARVE_ANALYSIS_EXPORT_EXPORT_PYTHON_H
#define VARVE_ANALYSIS_EXPORT_EXPORT_PYTHON_H

#include <stdbool.h>
#include <stdint.h>

struct varve_message;

struct python_export {
    const char *database;
    const char *format;    /* parquet, arrow */
    const char *directory; /* other runs may be there already */
    bool force;            /* replace a run of the same name */
    int64_t timeout_ns;    /* of computing, for a batch of rows; 0: none */
};

/// `python3 -m varve export`, by the interpreter that VARVE_PYTHON3 names, that of build/venv beside this program, or
/// the python3 in PATH; with the package of the source tree that this program was built in, else an installed one.
/// Waits for its end. Errors: VARVE_ERROR_UNSUPPORTED (no Python, or without the package or pyarrow),
/// VARVE_ERROR_FORMAT with the reason that it gave.
int export_by_python(const struct python_export *request, struct varve_message *message);

#endif
