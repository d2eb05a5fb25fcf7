/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PyTorch's recorder leaves actions out if it is asked to (skip_actions). Of a free that has only its request or only
 * its completion, the other one is put beside it. Called by the reader of snapshots.
 */
#ifndef VARVE_ANALYSIS_HISTORY_SKIPPED_EVENTS_H
#define VARVE_ANALYSIS_HISTORY_SKIPPED_EVENTS_H

#include "analysis/history/history.h"

/// history_device.inferred says of which actions all events are made here; their times and stacks are those of the
/// events that they stand beside.
void history_infer_skipped(struct history *history);
#define HISTORY_WORDS_BYTES 600

/// What of the history was inferred, or could not be read, in words without a full stop; "": nothing.
void history_inferred_words(const struct history *history, char *text, size_t bytes);

#endif
