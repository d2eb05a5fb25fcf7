/* SPDX-License-Identifier: Apache-2.0 */
/* What is embedded in each page: its style, its scripts in the order in which they run, and d3. */
#ifndef VARVE_ANALYSIS_PAGE_PAGE_ASSETS_H
#define VARVE_ANALYSIS_PAGE_PAGE_ASSETS_H

extern const char page_css[];
extern const char page_d3[];             /* empty: it was not there when varve was built */
extern const char page_d3_licence[];     /* its text */
extern const char *const page_scripts[]; /* ends with NULL */

#endif
