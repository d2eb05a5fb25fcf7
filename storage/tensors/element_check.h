/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is asked of arrays before their elements are touched: known types, a target whose elements have addresses of
 * their own, and whether two arrays share memory.
 */
#ifndef VARVE_STORAGE_TENSORS_ELEMENT_CHECK_H
#define VARVE_STORAGE_TENSORS_ELEMENT_CHECK_H

#include "storage/array.h"

/// Errors: VARVE_ERROR_INVALID (no such type, too many axes, a negative size, no data but elements).
int elements_check_source(const struct varve_array *source, struct varve_message *message);
/// The same, and: no two elements at one address. Sorted by stride, each axis must step over all that the axes before
/// it reach; geometries made by varve_geometry_… without expanding satisfy that. Some that interleave axes without
/// sharing an address do not, and are refused as well.
int elements_check_target(const struct varve_array *target, struct varve_message *message);
/// May the two share a byte? True also for arrays that lie between each other's elements.
bool elements_overlap(const struct varve_array *array, const struct varve_array *other);

#endif
