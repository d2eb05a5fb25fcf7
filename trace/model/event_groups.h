/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which events are of a group, in a file of its own, so that no report has to look for a thousand of them among ten
 * million events of the heap.
 */
#ifndef VARVE_TRACE_MODEL_EVENT_GROUPS_H
#define VARVE_TRACE_MODEL_EVENT_GROUPS_H

#include <stdbool.h>
#include <stdint.h>

struct varve_message;

#define SEQS_BUFFERED 4096U

struct seqs {
    int fd;         /* tag in bits 0-7, seq above; -1: none yet */
    uint64_t count; /* in the file */
    uint32_t buffered;
    bool is_closed;   /* no more of them */
    uint64_t *buffer; /* SEQS_BUFFERED that come after those in the file */
};

void seqs_open(struct seqs *list);
void seqs_close(struct seqs *list);
/// Space for one more. The file is named after `path`, and gone when the list is. VARVE_ERROR_NO_MEMORY, FULL, IO.
int seqs_reserve(struct seqs *list, const char *path, const char *suffix, struct varve_message *message);
void seqs_add(struct seqs *list, uint64_t seq, unsigned tag);
int seqs_each(const struct seqs *list, int (*take)(void *context, uint64_t seq, unsigned tag), void *context,
              struct varve_message *message);

#endif
