/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/remat/tournament.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NOBODY UINT32_MAX
#define ROOT 1U
#define LEAVES_LEAST 64U
#define LEVELS_MOST 33

void tournament_free(struct remat_tournament *tournament)
{
    free(tournament->entries);
    free(tournament->nodes);
}

double tournament_priority(const struct tournament_entry *entry, double now)
{
    return entry->level + entry->rate * (now - entry->since);
}

double tournament_entered(const struct remat_tournament *tournament, uint32_t number, double now)
{
    return tournament_priority(&tournament->entries[number], now);
}

/* When `loser`, which has the lower priority now, overtakes; after `now` in any case. */
static double overtakes(const struct tournament_entry *winner, const struct tournament_entry *loser, double now)
{
    double lead = tournament_priority(winner, now) - tournament_priority(loser, now);
    double gain = loser->rate - winner->rate;
    double at = gain > 0 ? now + lead / gain : INFINITY;
    return at > now ? at : nextafter(now, INFINITY);
}

/* The better of the two below, and how long so. */
static void decide(struct remat_tournament *tournament, uint32_t number, double now)
{
    const struct tournament_node *left = &tournament->nodes[2 * number], *right = left + 1;
    struct tournament_node *node = &tournament->nodes[number];
    const struct tournament_node *best = left;
    node->until = left->until < right->until ? left->until : right->until;
    if (left->winner == NOBODY) {
        best = right;
    } else if (right->winner != NOBODY) {
        const struct tournament_entry *a = &tournament->entries[left->winner], *b = &tournament->entries[right->winner];
        bool is_right = tournament_priority(b, now) > tournament_priority(a, now);
        double until = is_right ? overtakes(b, a, now) : overtakes(a, b, now);
        best = is_right ? right : left;
        node->until = until < node->until ? until : node->until;
    }
    node->winner = best->winner;
}

static void decide_above(struct remat_tournament *tournament, uint32_t number, double now)
{
    for (uint32_t node = (tournament->leaves + number) / 2; node >= ROOT; node /= 2) {
        decide(tournament, node, now);
    }
}

/* Twice as many leaves: the old tree is the left half, so its nodes are found anew. */
static bool tournament_grow(struct remat_tournament *tournament, uint32_t number, double now)
{
    uint32_t leaves = tournament->leaves > 0 ? tournament->leaves : LEAVES_LEAST, old = tournament->leaves;
    while (leaves <= number) {
        leaves *= 2;
    }
    struct tournament_entry *entries = realloc(tournament->entries, leaves * sizeof(*entries));
    if (entries != NULL) {
        tournament->entries = entries;
    }
    struct tournament_node *nodes = malloc(2 * (size_t)leaves * sizeof(*nodes));
    if (entries == NULL || nodes == NULL) {
        free(nodes);
        return false;
    }
    for (uint32_t i = 0; i < 2 * leaves; i++) {
        nodes[i] = (struct tournament_node){.winner = NOBODY, .until = INFINITY};
    }
    if (old > 0) {
        memcpy(nodes + leaves, tournament->nodes + old, old * sizeof(*nodes));
    }
    free(tournament->nodes);
    tournament->nodes = nodes;
    tournament->leaves = leaves;
    for (uint32_t i = leaves - 1; i >= ROOT; i--) {
        decide(tournament, i, now);
    }
    return true;
}

bool tournament_set(struct remat_tournament *tournament, uint32_t number, const struct tournament_entry *entry,
                    double now)
{
    if (number >= tournament->leaves && !tournament_grow(tournament, number, now)) {
        return false;
    }
    tournament->entries[number] = *entry;
    tournament->nodes[tournament->leaves + number].winner = number;
    decide_above(tournament, number, now);
    return true;
}

void tournament_remove(struct remat_tournament *tournament, uint32_t number)
{
    uint32_t leaf = tournament->leaves + number;
    if (number >= tournament->leaves || tournament->nodes[leaf].winner == NOBODY) {
        return;
    }
    tournament->nodes[leaf].winner = NOBODY;
    /* Who wins above is decided when it is asked for. */
    for (uint32_t node = leaf / 2; node >= ROOT; node /= 2) {
        tournament->nodes[node].until = -INFINITY;
    }
}

/* Nodes whose time is over are decided anew, those below first. */
static void tournament_refresh(struct remat_tournament *tournament, double now)
{
    struct {
        uint32_t node;
        bool is_below_done;
    } stack[2 * LEVELS_MOST];
    unsigned depth = 0;
    stack[depth].node = ROOT;
    stack[depth++].is_below_done = false;
    while (depth > 0) {
        uint32_t node = stack[depth - 1].node;
        if (node >= tournament->leaves || tournament->nodes[node].until > now) {
            depth--;
        } else if (stack[depth - 1].is_below_done) {
            decide(tournament, node, now);
            depth--;
        } else {
            stack[depth - 1].is_below_done = true;
            stack[depth].node = 2 * node;
            stack[depth++].is_below_done = false;
            stack[depth].node = 2 * node + 1;
            stack[depth++].is_below_done = false;
        }
    }
}

uint32_t tournament_winner(struct remat_tournament *tournament, double now)
{
    if (tournament->leaves == 0) {
        return NOBODY;
    }
    tournament_refresh(tournament, now);
    return tournament->nodes[ROOT].winner;
}
