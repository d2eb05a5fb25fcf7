/* SPDX-License-Identifier: Apache-2.0 */
/* The title of a section of `varve report`. */
#ifndef VARVE_ANALYSIS_REPORT_REPORT_TITLE_H
#define VARVE_ANALYSIS_REPORT_REPORT_TITLE_H

#include <stdio.h>

/// An empty line, and `title` in bold where there is colour.
void report_rule_print(FILE *out, const char *title);

#endif
