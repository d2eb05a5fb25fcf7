/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Record against event: every record of the allocator that PyTorch's history has too must be the event at the
 * cursor, in action, address, size and stream, and moves the cursor on; and at the end segment against segment.
 * Here are also the addresses that the simulated device gives to segments: those that the history has next.
 */
#ifndef VARVE_ANALYSIS_REPLAY_REPLAY_COMPARE_H
#define VARVE_ANALYSIS_REPLAY_REPLAY_COMPARE_H

#include "analysis/replay/replay_session.h"

/// varve_alloc_recorder.record
void replay_compare_record(void *context, const struct varve_record *record);
/// varve_sim_address: segments and reservations lie where the history has them.
int replay_segment_addr(void *context, uint64_t bytes, uint64_t stream,
                        const struct varve_device_reservation *reservation, uint64_t *addr_out);
int replay_reservation_addr(void *context, uint64_t bytes, uint64_t stream,
                            const struct varve_device_reservation *reservation, uint64_t *addr_out);
/// varve_sim_options.grant: none where the history was refused; how full the device was, it does not say.
int replay_grant(void *context);
/// The event at the cursor did not come; instead … The first call counts.
void replay_differs(struct replay *replay, const char *format, ...) __attribute__((format(printf, 2, 3)));
void replay_event_text(const struct replay *replay, size_t index, char *buffer, size_t bytes);

/// Compare the allocator's segments with the history's; the first difference in `result`.
int replay_final(struct replay *replay, struct replay_result *result);

#endif
