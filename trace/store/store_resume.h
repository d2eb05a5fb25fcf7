/* SPDX-License-Identifier: Apache-2.0 */
/* What a collector reads back when it continues the recording of another one that was killed. */
#ifndef VARVE_TRACE_STORE_STORE_RESUME_H
#define VARVE_TRACE_STORE_STORE_RESUME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct store_sums;
struct varve_message;

struct store;
struct store_ring_position;
struct event;

/// For STORE_RESUME: hand back every event in order of seq (to feed derive_event again, and derive_hold where its
/// allocation holds it), as far as the log can be read, the ring positions, the anchors, the meta values.
int store_each_event(struct store *store, int (*take)(void *context, struct event *event, bool is_held), void *context,
                     struct varve_message *message);
int store_each_ring_position(struct store *store, int (*take)(void *context, const struct store_ring_position *),
                             void *context, struct varve_message *message);
int store_each_clock_anchor(struct store *store,
                            int (*take)(void *context, uint64_t ticks, int64_t mono_ns, int64_t real_ns), void *context,
                            struct varve_message *message);
/// The processes whose rows are complete, by number; parent_id 0: none, or unknown.
int store_each_ended_process(struct store *store, int (*take)(void *context, uint32_t process_id, uint32_t parent_id),
                             void *context, struct varve_message *message);
int store_each_callsite_origin(struct store *store,
                               int (*take)(void *context, uint32_t callsite_id, uint32_t process_id, uint32_t callsite,
                                           uint32_t count),
                               void *context, struct varve_message *message);
/// Over all rows of process and thread, those of the open transaction too.
int store_sum(struct store *store, struct store_sums *sums_out, struct varve_message *message);
/// Rows of view data_loss.
int store_count_losses(struct store *store, uint64_t *count_out, struct varve_message *message);
/// The figures of one name, as store_stat took them.
int store_each_stat(struct store *store, const char *name, int (*take)(void *context, int64_t idx, int64_t value),
                    void *context, struct varve_message *message);

int store_meta_get_integer(struct store *store, const char *key, int64_t *value_out); /* VARVE_ERROR_NOT_FOUND */
/// "" if there is none.
int store_meta_get_text(struct store *store, const char *key, char *text, size_t bytes);

/// The recording that a complete database is of; nothing is changed. Errors: VARVE_ERROR_NOT_FOUND (no
/// complete trace database is at `path`).
int store_peek_trace(const char *path, int64_t *trace_id_out);
/// The figures that a recovery says of its recording, from the database at `path`; the rest of `result` is
/// left alone. Errors: VARVE_ERROR_NOT_FOUND (it can't be read).
struct varve_collect_result;
int store_peek_result(const char *path, struct varve_collect_result *result);

#endif
