/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CPython's random.seed(n) and random.randrange(n): the Mersenne Twister MT19937 with init_by_array, so that random
 * choices are those of the published simulator.
 *
 * Source: Matsumoto and Nishimura, ACM TOMACS 8 (1998), with the initialisation of 2002.
 */
#ifndef VARVE_STORAGE_REMAT_TWISTER_H
#define VARVE_STORAGE_REMAT_TWISTER_H

#include <stdint.h>

#define TWISTER_WORDS 624

struct twister {
    uint32_t state[TWISTER_WORDS];
    uint32_t next;
};

void twister_seed(struct twister *twister, uint64_t seed);
/// 0…limit - 1; limit is at least 1.
uint32_t twister_below(struct twister *twister, uint32_t limit);

#endif
