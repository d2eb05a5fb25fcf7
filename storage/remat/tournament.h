/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A kinetic tournament: of many priorities that are affine in time, which is the highest now? Leaves are storages; a
 * node knows the winner below it and until when it wins. A change costs O(log n); a question costs what has changed its
 * winner since the last one.
 *
 * Source: Basch, Guibas, Hershberger, Data Structures for Mobile Data (SODA 1997).
 */
#ifndef VARVE_STORAGE_REMAT_TOURNAMENT_H
#define VARVE_STORAGE_REMAT_TOURNAMENT_H

#include <stdbool.h>
#include <stdint.h>

/* Priority at a time: level + rate * (time - since). */
struct tournament_entry {
    double level, rate, since;
};

struct tournament_node {
    uint32_t winner; /* UINT32_MAX: nobody below */
    double until;    /* nobody else below wins before */
};

struct remat_tournament {
    struct tournament_entry *entries;
    struct tournament_node *nodes; /* 1 is the root, node n's are 2n and 2n + 1, leaf i is leaves + i */
    uint32_t leaves;               /* a power of two; 0: none yet */
};

void tournament_free(struct remat_tournament *tournament);
/// False: no memory.
bool tournament_set(struct remat_tournament *tournament, uint32_t number, const struct tournament_entry *entry,
                    double now);
/// Without effect if it is not in it.
void tournament_remove(struct remat_tournament *tournament, uint32_t number);
/// UINT32_MAX: it is empty. Times never go back.
uint32_t tournament_winner(struct remat_tournament *tournament, double now);
double tournament_priority(const struct tournament_entry *entry, double now);
/// Priority of the entry as it was set.
double tournament_entered(const struct remat_tournament *tournament, uint32_t number, double now);

#endif
