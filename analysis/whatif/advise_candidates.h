/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings of PyTorch's allocator that are worth a try on a history: values of each option by the sizes of its
 * requests, and the strings that say them. Called by advise_search.c.
 */
#ifndef VARVE_ANALYSIS_WHATIF_ADVISE_CANDIDATES_H
#define VARVE_ANALYSIS_WHATIF_ADVISE_CANDIDATES_H

#include "analysis/history/history.h"

#include <stdbool.h>
#include <stddef.h>

#define CANDIDATE_TEXT_BYTES 1024
#define CANDIDATE_VALUES_MAX 8

/* The options that are tried. */
enum candidate_option {
    CANDIDATE_EXPANDABLE,
    CANDIDATE_MAX_SPLIT,
    CANDIDATE_ROUNDUP,
    CANDIDATE_GC,
    CANDIDATE_FRACTION,
    CANDIDATE_OPTIONS,
};

/* A value as the string has it; "": the option is left out. */
struct candidate_value {
    char text[CANDIDATE_TEXT_BYTES / 4];
};

/* One setting: a value of each option, and what else the program's own string has. */
struct candidate {
    struct candidate_value values[CANDIDATE_OPTIONS];
    char rest[CANDIDATE_TEXT_BYTES / 2];
};

/* Values of one option, without "". */
struct candidate_range {
    struct candidate_value values[CANDIDATE_VALUES_MAX];
    size_t count;
};

/// The setting that the history was recorded with. False: its string has what a candidate can't hold (too long, or
/// another version's words); `out` then has no `rest`.
bool candidate_of_history(const struct history *history, struct candidate *out);
/// Values of `option` that can change something. GC is a share of a limit: none without `has_limit`.
/// FRACTION has none here.
struct candidate_range candidate_range(const struct history *history, enum candidate_option option, bool has_limit);
/// In PyTorch's syntax; "" for its defaults.
void candidate_text(const struct candidate *candidate, char text[CANDIDATE_TEXT_BYTES]);
/// How many options it sets, those of `rest` not counted.
unsigned candidate_size(const struct candidate *candidate);

#endif
