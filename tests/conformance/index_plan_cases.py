# SPDX-License-Identifier: Apache-2.0
"""Random arrays and index expressions, and what NumPy makes of them."""

import random

import numpy as np

from index_plan_library import BYTES, NUMPY, TYPES

BOOL = 9
BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
INTEGERS = (4, 5, 6, 7, 8)


def is_advanced(entries):
    return any(isinstance(entry, np.ndarray) and (entry.ndim > 0 or entry.dtype == np.bool_) for entry in entries)


def as_numpy(entries):
    """In an order that NumPy keeps, so that of equal indices the last one wins; always an array comes out."""
    entries = tuple(int(entry) if isinstance(entry, np.ndarray) and entry.ndim == 0 and entry.dtype != np.bool_ else
                    np.ascontiguousarray(entry) if isinstance(entry, np.ndarray) and entry.ndim > 0 else entry
                    for entry in entries)
    return entries if is_advanced(entries) or Ellipsis in entries else entries + (Ellipsis,)


def bits_of(numbers, dtype):
    """Whole numbers as elements of a type."""
    if TYPES[dtype] == "bf16":
        return (numbers.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    result = np.empty(numbers.shape, NUMPY[dtype])
    result[...] = numbers
    return result.view(BITS[BYTES[dtype]])


def shown(entries):
    return "[" + ", ".join(f"array({entry.tolist()}, {entry.dtype})" if isinstance(entry, np.ndarray) else repr(entry)
                           for entry in entries) + "]"


def model_view(view, whole, model):
    """The part of `model` that `view` is of `whole`."""
    if view.size == 0:
        return np.empty(view.shape, view.dtype)
    offset = view.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
    return np.ndarray(view.shape, view.dtype, model.data, offset, view.strides)


def is_unseen(ours, picked):
    """NumPy does not look at every value's shape if there is nothing to set."""
    return picked.size == 0 and "could not be broadcast to" in str(ours)


def assign(target, indices, value):
    try:
        target[indices] = value
    except TypeError:  # a mask that stands alone takes no value with two axes, but does beside an ellipsis
        target[indices + (Ellipsis,)] = value


class Maker:
    """Arrays and index expressions from one seed."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.bytes = np.random.default_rng(seed)

    def chance(self, share):
        return self.random.random() < share

    def bits(self, count, dtype):
        if dtype == BOOL:
            return self.bytes.integers(0, 2, count, dtype=np.uint8)
        return self.bytes.integers(0, 256, count * BYTES[dtype], dtype=np.uint8).view(BITS[BYTES[dtype]])

    def laid_out(self, shape, fill, may_expand=False):
        """An array of that shape inside a larger one, which is returned as well: in order, transposed, with gaps,
        backwards, expanded."""
        shape = list(shape)
        order = list(range(len(shape)))
        if self.chance(0.4):
            self.random.shuffle(order)
        steps = [1] * len(shape)
        if self.chance(0.5):
            steps = [self.random.choice((1, 1, 2, 3, -1, -2)) for _ in shape]
        before = [0] * len(shape) if self.chance(0.4) else [self.random.randrange(3) for _ in shape]
        expanded = [may_expand and self.chance(0.1) for _ in shape]
        outer = [1 if e else n * abs(step) + b for n, step, b, e in zip(shape, steps, before, expanded)]
        count = int(np.prod(outer)) if outer else 1
        whole = fill(count)
        inner = whole.reshape([outer[axis] for axis in order]).transpose(
            [order.index(axis) for axis in range(len(shape))])
        cut = tuple(slice(0, 1) if e else
                    slice(b, b + n * step, step) if step > 0 else
                    slice(b - step * n - 1, b - 1 if b > 0 else None, step) if n > 0 else slice(0, 0)
                    for n, step, b, e in zip(shape, steps, before, expanded))
        view = inner[cut + (Ellipsis,)]
        if any(expanded):
            view = np.lib.stride_tricks.as_strided(view, shape, [0 if e else s for s, e in zip(view.strides, expanded)])
        assert list(view.shape) == shape, (view.shape, shape)
        return view, whole

    def shape(self):
        if self.chance(0.05):
            return tuple(self.random.randrange(30, 300) for _ in range(self.random.randint(1, 2)))
        ndim = self.random.choice((0, 1, 1, 2, 2, 2, 3, 3, 3, 4, 5))
        low = 0 if self.chance(0.15) else 1
        return tuple(self.random.randint(low, 7 if ndim < 4 else 4) for _ in range(ndim))

    def value(self, shape, dtype, fill=None):
        """What may be assigned to elements of that shape, mostly."""
        shape = self.narrowed(shape)
        if self.chance(0.1):
            shape = [1] * self.random.randint(1, 2) + shape
        if self.chance(0.05):
            shape = shape + [self.random.randint(2, 3)]
        if len(shape) > 10:
            shape = []
        return self.laid_out(shape, fill or (lambda n: self.bits(n, dtype)), True)[0]

    # --- index expressions ---

    def bound(self, size):
        return None if self.chance(0.3) else self.random.randint(-size - 2, size + 2)

    def slice(self, size):
        if self.chance(0.25):
            return slice(None)
        step = self.random.choice((None, 1, 1, 2, 3, -1, -1, -2, -5, 100, -2**40))
        return slice(self.bound(size), self.bound(size), step)

    def narrowed(self, shape):
        """A shape that broadcasts to `shape`."""
        shape = [1 if self.chance(0.15) else n for n in shape]
        while shape and self.chance(0.15):
            shape.pop(0)
        return shape

    def integers(self, shape, size):
        kinds = [t for t in INTEGERS if t not in (7, 8) or size < 100]
        dtype = NUMPY[self.random.choice(kinds)]
        low = 0 if dtype == np.uint8 or self.chance(0.3) else -size
        if size == 0:
            shape = shape + [0] if not shape or 0 not in shape else shape
        return self.laid_out(shape, lambda n: self.bytes.integers(low, max(size, 1), n).astype(dtype))[0]

    def mask(self, shape, wanted):
        """About `wanted` elements are set, if there are so many."""
        total = int(np.prod(shape))
        flat = np.zeros(total, np.bool_)
        count = total if wanted is None and self.chance(0.2) else \
            self.random.randint(0, total) if wanted is None else min(wanted, total)
        flat[self.bytes.permutation(total)[:count]] = True
        view, _ = self.laid_out(shape, lambda n: np.zeros(n, np.bool_))
        view[...] = flat.reshape(shape)
        return view

    def expression(self, shape):
        entries, axis = [], 0
        advanced = self.chance(0.75)
        common = [self.random.randint(0 if self.chance(0.1) else 1, 4)
                  for _ in range(self.random.choice((1, 1, 1, 2, 2, 3)))]
        is_alone = self.chance(0.5)  # a mask, which then sets its own size
        had_ellipsis = False
        limit = len(shape) if self.chance(0.7) else self.random.randint(0, len(shape))
        while axis < limit or (len(entries) < 4 and self.chance(0.1)):
            kind = self.random.random()
            left = limit - axis
            if kind < 0.07:
                entries.append(None)
            elif kind < 0.14 and not had_ellipsis:
                had_ellipsis = True
                entries.append(Ellipsis)
                skipped = self.random.randint(0, max(left, 0))
                limit -= skipped
            elif advanced and kind < 0.16:
                entries.append(np.array(self.chance(0.8)))
            elif left <= 0:
                entries.append(None)
            elif kind < 0.3 and shape[axis] > 0:
                value = self.random.randint(-shape[axis], shape[axis] - 1)
                entries.append(np.array(value, self.random.choice((np.int64, np.int16))) if self.chance(0.1) else value)
                axis += 1
            elif advanced and kind < 0.65:
                entries.append([shape, common])  # which axis is known when the ellipsis is
                axis += 1
            elif advanced and kind < 0.75:
                taken = self.random.randint(1, min(left, 3))
                entries.append([shape, None if is_alone else common[-1:], taken])
                is_alone = False
                axis += taken
            else:
                entries.append(slice)
                axis += 1
        return self.filled(entries, shape)

    def filled(self, entries, shape):
        """Arrays, masks and slices for the axes that they are for."""
        taken = sum(entry[2] if isinstance(entry, list) and len(entry) == 3 else
                    0 if entry is None or entry is Ellipsis or
                    (isinstance(entry, np.ndarray) and entry.dtype == np.bool_) else 1 for entry in entries)
        axis, result = 0, []
        for entry in entries:
            if entry is Ellipsis:
                axis += len(shape) - taken
                result.append(entry)
            elif entry is slice:
                result.append(self.slice(shape[axis]))
                axis += 1
            elif isinstance(entry, list) and len(entry) == 3:
                wanted = None if entry[1] is None else 1 if self.chance(0.1) else entry[1][0]
                result.append(self.mask(shape[axis:axis + entry[2]], wanted))
                axis += entry[2]
            elif isinstance(entry, list):
                result.append(self.integers(self.narrowed(entry[1]), shape[axis]))
                axis += 1
            elif entry is None or isinstance(entry, np.ndarray) and entry.dtype == np.bool_:
                result.append(entry)
            else:
                size = shape[axis]
                result.append(entry if -size <= int(entry) < size else slice(None))
                axis += 1
        return tuple(result)

    def spoiled(self, entries, shape):
        """The same with something wrong in it, most of the time."""
        entries = list(entries)
        place = self.random.randrange(len(entries)) if entries else 0
        entry = entries[place] if entries else None
        kind = self.random.choice((0, 1, 2, 2, 5) if isinstance(entry, np.ndarray) and entry.dtype != np.bool_ else
                                  (3,) if isinstance(entry, np.ndarray) else
                                  (4,) if isinstance(entry, slice) else (0, 1, 5, 5))
        if kind == 0:
            entries += [self.random.choice((0, slice(None), np.array([0])))] * (len(shape) + 1)
        elif kind == 1:
            entries.insert(place, Ellipsis)
            entries.append(Ellipsis)
        elif kind == 2 and isinstance(entry, np.ndarray) and entry.size > 0 and entry.dtype != np.bool_:
            entry[tuple(self.random.randrange(n) for n in entry.shape)] = self.random.choice((100, -100, 127, -128)) \
                if entry.dtype != np.uint8 else 200
        elif kind == 3 and isinstance(entry, np.ndarray) and entry.ndim > 0:
            entries[place] = np.concatenate([entry, entry[:1]]) if entry.shape[0] else np.zeros(3, entry.dtype)
        elif kind == 4 and isinstance(entry, slice):
            entries[place] = slice(entry.start, entry.stop, 0)
        else:
            entries.insert(place, self.random.choice((50, -50, 7, -8, 2**62, -2**63)))
        return tuple(entries)
