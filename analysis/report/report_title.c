/* SPDX-License-Identifier: Apache-2.0 */
/* The title of a section: the only lines of a report that begin at the left. */
#include "analysis/report/report_title.h"

#include "analysis/base/number_format.h"
#include "analysis/base/terminal.h"

void report_rule_print(FILE *out, const char *title)
{
    fputc('\n', out);
    terminal_style(out, TERMINAL_TITLE);
    format_print_wrapped(out, title, 0);
    terminal_style(out, TERMINAL_PLAIN);
}
