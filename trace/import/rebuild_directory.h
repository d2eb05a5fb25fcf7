/* SPDX-License-Identifier: Apache-2.0 */
/* The recording directory that a rebuild makes for the collector. One thread calls all of it. */
#ifndef VARVE_TRACE_IMPORT_REBUILD_DIRECTORY_H
#define VARVE_TRACE_IMPORT_REBUILD_DIRECTORY_H

#include <stdbool.h>

struct rebuild_process;
struct rebuild_ring;
struct varve_message;
struct varve_rebuild;

/// What the headers of all rings will say, in one go through the records.
int rebuild_rings_measure(const struct varve_rebuild *rebuild, struct varve_message *message);
/// The files of a ring under the names that the collector looks for. `may_spill`: else no descriptor is needed to read
/// it, and it takes four times the space.
int rebuild_ring_write(const struct varve_rebuild *rebuild, struct rebuild_ring *ring, bool may_spill,
                       struct varve_message *message);
/// Control page and call-site file.
int rebuild_process_write(const struct varve_rebuild *rebuild, const struct rebuild_process *process,
                          struct varve_message *message);

#endif
