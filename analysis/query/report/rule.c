/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The title of a section, underlined by as many columns as it takes on a terminal.
 */
#include "analysis/query/report/rule.h"

#include "analysis/output/format.h"

#include <stddef.h>

void report_rule_print(FILE *out, const char *title)
{
    fprintf(out, "\n%s\n", title);
    for (size_t i = format_width(title); i > 0; i--) {
        fputc('-', out);
    }
    fputc('\n', out);
}
