/* SPDX-License-Identifier: Apache-2.0 */
/* A recording that began when its program ran already (`varve attach`): what it can't know. */
#ifndef VARVE_ANALYSIS_QUERY_ATTACHED_NOTE_H
#define VARVE_ANALYSIS_QUERY_ATTACHED_NOTE_H

#include <stddef.h>

struct cJSON;
struct database;

/// In a sentence; "" for a recording from the program's start.
void report_attached_words(char *text, size_t bytes, struct database *database);
/// attached_pid and frees_unknown; nothing for a recording from the start.
void report_attached_json(struct cJSON *object, struct database *database);

#endif
