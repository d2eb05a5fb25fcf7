/* SPDX-License-Identifier: Apache-2.0 */
/* Names and field descriptions of events, made from the lists in event_list.h. */
#ifndef VARVE_TRACE_EVENT_NAMES_H
#define VARVE_TRACE_EVENT_NAMES_H

struct event_kind_info {
    const char *name;
    const char *group;
    const char *addr, *size, *requested, *arg; /* "" if the kind does not use the field */
    const char *meaning;
};

const struct event_kind_info *event_kind_info(unsigned kind); /* NULL if there is no such kind */
const char *event_cause_text(unsigned cause);                 /* NULL if there is no such cause */

#endif
