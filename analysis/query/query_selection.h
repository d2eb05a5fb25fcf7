/* SPDX-License-Identifier: Apache-2.0 */
/* What leaks, peak and timeline are asked about: a domain (--domain), a process (--pid), a device. */
#ifndef VARVE_ANALYSIS_QUERY_QUERY_SELECTION_H
#define VARVE_ANALYSIS_QUERY_QUERY_SELECTION_H

#include <stdbool.h>
#include <stdint.h>

struct database;
struct report_total;
struct varve_message;

#define DOMAIN_HELP                                                                                             \
    "heap (the malloc family; default, if there is any), mmap, python (its own objects); of GPU runs block (a " \
    "caching allocator; the next default), device (the CUDA API), pinned, managed, address_space (reserved)"

/* What leaks, peak and timeline are asked about. */
struct selection {
    const char *domain;
    int64_t pid;        /* 0: all processes together */
    int64_t process_id; /* 0: all processes together */
    int64_t device;     /* where most was live at a time */
    int64_t devices;    /* there are in the domain; 0: nothing was allocated */
};

/// Checks the two against the database; a pid that names several process images gives the one with the larger
/// peak. Errors: VARVE_ERROR_NOT_FOUND, with one line that lists what there is.
/// The domain that is meant where none was named: heap, or, of a trace without it, what there is instead. Static.
const char *selection_default_domain(struct database *database);
int selection_make(struct selection *selection, struct database *database, const char *domain, int64_t pid,
                   struct varve_message *message);
/// VARVE_ERROR_NOT_FOUND, with a line: no process of this pid was recorded.
int selection_check_pid(struct database *database, int64_t pid, struct varve_message *message);
/// Ask about this device instead. VARVE_ERROR_NOT_FOUND: the domain has nothing there.
int selection_device(struct selection *selection, struct database *database, int64_t device,
                     struct varve_message *message);
/// The row of total that the selection is about; false if there is none (nothing was allocated).
bool selection_total(const struct selection *selection, struct database *database, struct report_total *total);
/// The same of all devices: bytes and allocations, live and at the peak of each, added up. The moment is that
/// of selection->device.
bool selection_sum(const struct selection *selection, struct database *database, struct report_total *total);

#endif
