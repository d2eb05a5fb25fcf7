/* SPDX-License-Identifier: Apache-2.0 */
/* What stands in for the exports to pprof and Perfetto where protobuf-c was not there when varve was built. */
#include "analysis/export/export.h"

#define MEANING "This varve was built without protobuf-c, which it needs."
#define REFUSAL \
    "varve was built without protobuf-c; apt install libprotobuf-c-dev protobuf-c-compiler, then build varve again"

const struct export_format export_format_pprof = {
    .name = "pprof", .meaning = MEANING, .refusal = REFUSAL, .takes_part = true};
const struct export_format export_format_perfetto = {
    .name = "perfetto", .meaning = MEANING, .refusal = REFUSAL, .takes_part = true, .takes_blocks = true};
