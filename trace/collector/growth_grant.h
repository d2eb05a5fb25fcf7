/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for rings and call-site files of programs that can't open or enlarge files any more. */
#ifndef VARVE_TRACE_COLLECTOR_GROWTH_GRANT_H
#define VARVE_TRACE_COLLECTOR_GROWTH_GRANT_H

struct collector;

/// Give what producers have asked for (struct session_growth), or refuse it, and keep slots of the reserve ready. In
/// each round: nothing is done where nothing is wanted.
void collect_grants(struct collector *collector);

#endif
