/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which addresses are taken at which points in time, for a placement that is made one buffer after another: the lowest
 * gap that is free during the whole life of a buffer, in about log² of the points.
 *
 * A tree of halves over the points. Each node has two sets of ranges of addresses: `whole`, taken during all of the
 * node's points by buffers whose lives end at no smaller node, and `any`, taken at some of its points. A life is a few
 * nodes; what is taken during it is `any` of these and `whole` of all above them. Neighbouring ranges grow together,
 * and so do those whose gap no buffer to come fits into: sets stay short, even for lives that meet all others.
 */
#ifndef VARVE_ANALYSIS_WHATIF_PLACEMENT_OCCUPIED_H
#define VARVE_ANALYSIS_WHATIF_PLACEMENT_OCCUPIED_H

#include <stdint.h>

struct occupied;

/// Nothing taken, for points below `points`. Owner: the caller, by occupied_free.
struct occupied *occupied_new(uint32_t points);
void occupied_free(struct occupied *occupied); /* NULL is allowed */
void occupied_clear(struct occupied *occupied);
/// The lowest offset at which `size` bytes are free at all points in [first, end), first < end.
uint64_t occupied_first_fit(struct occupied *occupied, uint32_t first, uint32_t end, uint64_t size);
/// Take them. No buffer below `size_min` bytes is asked for any more.
void occupied_add(struct occupied *occupied, uint32_t first, uint32_t end, uint64_t offset, uint64_t size,
                  uint64_t size_min);

#endif
