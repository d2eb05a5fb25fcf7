/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Depth-first search on a skyline. A step takes a section in a valley (neighbours' floors are higher) and tries each
 * item that can lie on the floor there, then that none does. The items left fall apart into groups without a common
 * section, each searched alone. States that were shown to be hopeless are remembered, by 128 bits of hash, so that no
 * order of the same steps leads there twice; they are facts about the skyline and stay valid for searches in other
 * orders.
 *
 * Why "none lies there" says more than a floor one higher: were there a solution, then one in which each item lies on a
 * floor or on another item. What could have lain on this floor and does not, lies on an item left in its way, so not
 * below the lowest end that such an item can have.
 */
#ifndef VARVE_ANALYSIS_WHATIF_SKYLINE_SEARCH_H
#define VARVE_ANALYSIS_WHATIF_SKYLINE_SEARCH_H

#include "analysis/whatif/placement_clock.h"
#include "analysis/whatif/skyline.h"

enum skyline_choice {
    SKYLINE_FULLEST, /* the section with the fewest items to try; of those the one with most left */
    SKYLINE_FAILED,  /* the fewest items to try for each time that the section has failed before */
    SKYLINE_CHOICES
};

enum skyline_outcome { SKYLINE_FOUND, SKYLINE_NONE, SKYLINE_STOPPED };

struct skyline_memory; /* the hopeless states of one skyline */

struct skyline_order {
    enum skyline_choice choice;
    const double *rank; /* of each item: higher is tried earlier */
    uint64_t steps;     /* stop after so many */
    double end;         /* and then, of the clock */
    struct placement_clock *clock;
};

struct skyline_memory *skyline_memory_make(void);
void skyline_memory_free(struct skyline_memory *memory);
/// SKYLINE_FOUND: all items are placed. Otherwise the skyline is as it was.
enum skyline_outcome skyline_search(struct skyline *skyline, struct skyline_memory *memory,
                                    const struct skyline_order *order);

#endif
