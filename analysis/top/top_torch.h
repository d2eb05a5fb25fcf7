/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PyTorch's memory in a process that `varve attach --torch` records: no event says anything of it before the end, but
 * the process leaves snapshots of it while somebody watches (trace/collector/programs/attach_torch.h).
 */
#ifndef VARVE_ANALYSIS_TOP_TOP_TORCH_H
#define VARVE_ANALYSIS_TOP_TOP_TORCH_H

#include <stdint.h>

struct database;
struct varve_watch;

/* All zero: nothing was seen yet. */
struct torch_now {
    char *rows;         /* of the snapshot, for figures_extend; NULL: none. Owner: this struct, by torch_now_free */
    int64_t written_ns; /* when that was made, as varve_watch_torch has it */
    uint64_t next_ns;   /* before that no other one is read */
};

/// The newest snapshot's rows into the tables of `figures`; one that can't be read is left out. It is read if it is
/// another one than before, and so often that this takes at most a tenth of the time.
void torch_now_add(struct torch_now *now, const struct varve_watch *watch, struct database *figures);
void torch_now_free(struct torch_now *now);

#endif
