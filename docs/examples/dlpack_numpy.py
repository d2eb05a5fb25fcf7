#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""DLPack to NumPy and back: one memory, whoever looks at it, and it goes when nobody does any more. PyTorch, CuPy and
JAX take and give storages by the same two functions."""

import numpy

import varve


def to_numpy():
    """A storage of varve's as an array."""
    storage = varve.full((3, 4), 0.5, "f32", name="shared")
    array = numpy.from_dlpack(storage)
    storage[1] = 7  # the array shows it
    print("NumPy sees a sum of", array.sum(), "at the same address:", array.ctypes.data == storage.data_ptr)
    storage.close()
    print("without the storage:", array[:, 0].tolist())
    del array
    return varve.live()


def from_numpy():
    """An array of NumPy's as a storage."""
    array = numpy.arange(12, dtype="f8").reshape(3, 4)
    storage = varve.from_dlpack(array[:, ::2])  # strides come along
    del array  # the storage keeps its memory
    with storage.T as turned:
        turned[1] = 0  # the second column
        print("strides", storage.strides, "and turned", turned.strides, "elements", storage.tolist())
    halves = storage.to("f16")  # a copy, of varve's own memory
    storage.close()
    print("as halves:", numpy.from_dlpack(halves).dtype, halves.tolist())
    halves.close()
    return varve.live()


if __name__ == "__main__":
    print("storages left:", to_numpy(), from_numpy())
