/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON as the pickle that would hold the same: each value goes to the decoder as it comes, so that a sink sees both
 * alike. Objects are dicts, arrays are lists. Called by the sink's owner in place of pickle_run.
 */
#ifndef VARVE_ANALYSIS_SNAPSHOT_JSON_DECODER_H
#define VARVE_ANALYSIS_SNAPSHOT_JSON_DECODER_H

#include "analysis/snapshot/pickle_decoder.h"

/// The one value that the decoder's stream holds, in UTF-8, with NaN and Infinity as Python writes them. What a pickle
/// does not keep, is not kept here. `*root_out` stays valid until pickle_close. Errors: those of pickle_run.
int pickle_run_json(struct pickle *pickle, struct pickle_value *root_out);

#endif
