/* SPDX-License-Identifier: Apache-2.0 */
/* A new script is a file here and a line below. */
#include "analysis/page/page_writer.h"

#include <stddef.h>

/* clang-format off */
#define SCRIPT_LIST(X) \
    X(format) X(data) X(dom) X(figure) X(timeline) X(live) X(spans) X(flame) X(blocks) X(ladder) X(tables) X(main)
/* clang-format on */

#define SCRIPT_EXTERN(name) extern const char page_##name##_js[];
SCRIPT_LIST(SCRIPT_EXTERN)
#undef SCRIPT_EXTERN

#define SCRIPT_ITEM(name) page_##name##_js,
const char *const page_scripts[] = {SCRIPT_LIST(SCRIPT_ITEM) NULL};
#undef SCRIPT_ITEM
