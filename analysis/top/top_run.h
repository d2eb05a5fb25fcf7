/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve top` at work: a recording is watched, and its newest figures are kept as a database in memory, from
 * which pages are made.
 */
#ifndef VARVE_ANALYSIS_TOP_TOP_RUN_H
#define VARVE_ANALYSIS_TOP_TOP_RUN_H

#include "analysis/top/top_page.h"
#include "analysis/top/top_torch.h"

#include <stdint.h>

struct database;
struct varve_message;
struct varve_watch;

/* All zero but for `watch`: nothing was seen yet. */
struct top {
    struct varve_watch *watch;
    struct database *figures; /* the newest; NULL: none yet. Owner: this struct, by top_close */
    int64_t number;           /* of their moment */
    int64_t seen;             /* moments since the watch began */
    int is_over;              /* no others will follow */
    struct torch_now torch;
};

/// Take figures that are newer than those before. Errors: what was read is none, or cannot be read.
int top_refresh(struct top *top, struct varve_message *message);
/// Wait until there are figures with rates, or the last ones. Errors: as top_refresh; VARVE_ERROR_BUSY: none came,
/// with the reason.
int top_wait(struct top *top, struct varve_message *message);
/// How the recording does, in a line.
void top_state(const struct top *top, char *text, size_t bytes);
/// On the terminal, until the user ends it. `*signal_out`: by this signal, which is due once more; 0: by a key.
/// `every_ns`: between two pictures. Errors: those of screen_begin and top_refresh.
int top_show(struct top *top, struct page *page, int64_t every_ns, int *signal_out, struct varve_message *message);
void top_close(struct top *top);

#endif
