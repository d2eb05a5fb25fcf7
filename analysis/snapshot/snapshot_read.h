/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reader of PyTorch's snapshots: the dict that torch.cuda.memory._snapshot() returns, or, of old versions,
 * its list of segments. A sink of the pickle decoder that moves each item into the history as it comes.
 * history_read_pytorch (history/history_read.h) opens a file for it.
 */
#ifndef VARVE_ANALYSIS_SNAPSHOT_SNAPSHOT_READ_H
#define VARVE_ANALYSIS_SNAPSHOT_SNAPSHOT_READ_H

#include "analysis/history/history.h"
#include "analysis/base/input_stream.h"

struct progress;

/// The same as history_read_pytorch; takes the stream.
int history_read_pytorch_stream(struct input_stream *input, struct history **history_out, struct progress *progress,
                                struct varve_message *message);

#endif
