/* SPDX-License-Identifier: Apache-2.0 */
/* All formats, and the one that is none: a log of operators. */
#include "analysis/export/export.h"

#define FORMAT_ADDRESS(name, help) &export_format_##name,
const struct export_format *const export_formats[] = {EXPORT_FORMAT_LIST(FORMAT_ADDRESS) NULL};

/* Operators are recorded with the sizes of what they read and made, not with the tensors themselves. */
const struct export_format export_format_dtr = {
    .name = "dtr",
    .meaning = "Refused: no database says which tensors an operator read. Programs write logs for `varve dtr` "
               "themselves, by varve_runtime_new_log.",
    .refusal = "no trace database says which tensors an operator read, so none can become a DTR log; the program "
               "writes one itself, by varve_runtime_new_log",
};
