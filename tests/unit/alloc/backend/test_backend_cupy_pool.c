/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The policy cupy-pool: what it cuts, what goes back when a request fails and when it does not; then every decision
 * of a random run against a plain model.
 * Costs: 1 s
 */
#include "support/alloc/pieces.h"

static const struct rig_case cases[] = {
    {"segments have the exact size, what is cut merges again, and each stream has an arena",
     {.policy = "cupy-pool"},
     "a=3M+1 reserved=3M+512 -a 3M>a a{a3M -512} -a a{-3146240} 100@9!a"},
    {"all free blocks go back for a request that fails, but a split chunk",
     {.policy = "cupy-pool", .sim.capacity_bytes = 60 * MIB},
     "a=20M b=20M@9 -a -b a=4M 30M reserved=50M x20M -a empty reserved=30M"},
    {"beyond the pool's own limit a request fails at once, and nothing is given back for it",
     {.policy = "cupy-pool:limit=30M"},
     "a=20M -a x31M x25M reserved=20M 10M@9 x1@9 1>a"},
};
TEST_PLAYS(test_cupy_pool, cases)

/* ---- at random ---- */

TEST_WITH(test_random, rig_setup, rig_teardown)
{
    pieces_compare(*state, &(struct pieces_rules){.policy = "cupy-pool", .unit = 512, .streams = 3}, 6000);
}
