/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between the caller of varve_writer_event, whose thread derives, and the database: events go there in
 * batches, on a thread of their own, so that both have a processor. The store belongs to one of the two
 * threads at a time: to the queue's from writer_queue_add to writer_queue_drain.
 */
#ifndef VARVE_TRACE_IMPORT_DATABASE_QUEUE_H
#define VARVE_TRACE_IMPORT_DATABASE_QUEUE_H

#include "base/error.h"
#include "trace/model/model_event.h"

struct store;
struct writer_queue;

/// `store` is borrowed; NULL if there is no memory. The thread is made when the first batch is full; where
/// there can be none, the caller's does its work.
struct writer_queue *writer_queue_open(struct store *store);
/// Events that still wait are dropped. NULL is allowed.
void writer_queue_close(struct writer_queue *queue);
/// One more event (copied). The first error of any earlier one, which may be some thousand events back; then
/// nothing is stored any more.
int writer_queue_add(struct writer_queue *queue, const struct event *event, struct varve_message *message);
/// Wait until the thread leaves the store alone; events of a batch that is not full yet stay. Returns as
/// writer_queue_add does.
int writer_queue_drain(struct writer_queue *queue, struct varve_message *message);
/// Store what is left, and drain.
int writer_queue_flush(struct writer_queue *queue, struct varve_message *message);

#endif
