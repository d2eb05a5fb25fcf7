/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/report/frame_name.h"

#include "analysis/base/number_format.h"
#include "analysis/report/call_tree.h"

#include <inttypes.h>
#include <stdio.h>

#define CUT_BYTES (4 * FRAME_NAME_COLUMNS + 8)

void frame_name(char text[FRAME_NAME_BYTES], const struct call_tree_frame *frame)
{
    char module[CUT_BYTES];
    if (frame->is_missing) {
        snprintf(text, FRAME_NAME_BYTES, "(no stack)");
    } else if (frame->function != NULL) {
        format_head(text, CUT_BYTES, frame->function, FRAME_NAME_COLUMNS);
    } else {
        format_head(module, sizeof(module), frame->module != NULL ? format_base_name(frame->module) : "unresolved",
                    FRAME_NAME_COLUMNS);
        snprintf(text, FRAME_NAME_BYTES, "[%s]", module);
    }
}

void frame_location(char text[FRAME_NAME_BYTES], const struct call_tree_frame *frame)
{
    text[0] = '\0';
    char path[CUT_BYTES];
    if (frame->file != NULL) {
        format_tail(path, sizeof(path), frame->file, FRAME_NAME_COLUMNS);
        snprintf(text, FRAME_NAME_BYTES, frame->line > 0 ? "%s:%" PRId64 : "%s", path, frame->line);
    } else if (frame->module != NULL && frame->function != NULL) {
        format_tail(path, sizeof(path), format_base_name(frame->module), FRAME_NAME_COLUMNS);
        snprintf(text, FRAME_NAME_BYTES, "%s", path);
    }
}
