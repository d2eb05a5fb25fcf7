/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A frame of a call tree in words that any file may hold: UTF-8 without control characters, whatever the recorded
 * program called it, and cut at FRAME_NAME_COLUMNS. Used by flamegraph.c and by exports.
 */
#ifndef VARVE_ANALYSIS_REPORT_FRAME_NAME_H
#define VARVE_ANALYSIS_REPORT_FRAME_NAME_H

struct call_tree_frame;

#define FRAME_NAME_COLUMNS 400
#define FRAME_NAME_BYTES (4 * FRAME_NAME_COLUMNS + 40)

/// The function; "[module]" where it is not known, "(no stack)" where there is no frame.
void frame_name(char text[FRAME_NAME_BYTES], const struct call_tree_frame *frame);
/// Where it is: "file:line", or the module; "" if nothing is known.
void frame_location(char text[FRAME_NAME_BYTES], const struct call_tree_frame *frame);

#endif
