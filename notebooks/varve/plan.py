# SPDX-License-Identifier: Apache-2.0
"""Indices that are used again and again: checked once, and brought to a device once."""

from ctypes import byref

from . import indexing
from .library import EXCEPTIONS, INVALID, IndexPlan, call, library, make

_index_errors = {**EXCEPTIONS, INVALID: IndexError}


class Plan:
    """storage[key], or storage[key] = value, to be run as often as wanted, on any storages of the same shapes, types,
    strides and memory. Given back by close(), at the end of a `with` block or when the object goes.

        with varve.Plan(weights, (rows,)) as plan:
            out = varve.empty(plan.shape, weights.dtype, memory=weights.memory)
            plan.run(out, weights)
    """

    def __init__(self, storage, key, value=None):
        array, values = storage._array(), [] if value is None else [byref(value._array())]
        function = "varve_index_plan_get" if value is None else "varve_index_plan_set"
        self._plan = make(function, byref(array), *indexing.entries(key), *values, exceptions=_index_errors)
        self._memory = storage.memory  # stays as long as the plan
        self._opened = make("varve_storage_plan_open", library().varve_storage_memory(storage._handle), self._plan)

    # a name of the module may have gone when an object of an ending interpreter goes
    def close(self, _library=library):
        opened, plan = self.__dict__.pop("_opened", None), self.__dict__.pop("_plan", None)
        if opened is not None:
            _library().varve_storage_plan_close(opened)
        if plan is not None:
            _library().varve_index_plan_free(plan)

    __del__ = close

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def _given(self, name):
        try:
            return self.__dict__[name]
        except KeyError:
            raise ValueError("the plan is closed") from None

    def _described(self):
        return IndexPlan.from_address(self._given("_plan"))

    @property
    def shape(self):
        """Of what is picked, or put."""
        result = self._described().result
        return tuple(result.shape[:result.ndim])

    @property
    def bytes(self):
        """What a run reads and writes."""
        plan = self._described()
        return plan.read_bytes + plan.written_bytes

    def run(self, target, source, *, stream=0):
        """From the indexed storage to `target`, or from the value to the indexed one. On a device the work may go on
        behind the call; both storages must stay until it is done."""
        call("varve_storage_plan_run", self._given("_opened"), target._handle, source._handle, stream)
