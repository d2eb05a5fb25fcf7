# SPDX-License-Identifier: Apache-2.0
"""A naive model of rematerialization under a budget, as the published simulator of DTR (simrd) plays operator logs:
runtime V2 with eager eviction or with releases ignored, and runtime V1 with banishing. It is what `varve dtr` is
compared with, so it is written for reading: objects, lists and sets, Python's integers, and scores by Python's
division, which is rounded correctly at any magnitude.
"""

import math
import random

UNLIMITED = math.inf
FIGURES = ("status", "clock", "remat_compute", "model_compute", "max_memory", "evictions", "op_executions",
           "heuristic_evals", "heuristic_accesses")

# Name: cost, has size, has staleness.
HEURISTICS = {
    "dtr": ("neighbours", True, True), "dtr-eq": ("classes", True, True), "dtr-local": ("local", True, True),
    "dtr-union": ("union", True, True), "msps": ("ancestors", True, False), "size": ("none", True, False),
    "lru": None, "random": None,  # no quotients
    "ab-e": ("neighbours", False, False), "ab-e-size": ("neighbours", True, False),
    "ab-e-stale": ("neighbours", False, True),
    "ab-eq": ("classes", False, False), "ab-eq-size": ("classes", True, False), "ab-eq-stale": ("classes", False, True),
    "ab-local": ("local", False, False), "ab-local-size": ("local", True, False),
    "ab-local-stale": ("local", False, True), "ab-size-stale": ("none", True, True), "ab-stale": ("none", False, True),
}
FORWARD, BACKWARD = "children", "parents"  # the two directions of a walk


def needs_regions(heuristic):
    return HEURISTICS[heuristic] is not None and HEURISTICS[heuristic][0] in ("neighbours", "ancestors")


def needs_classes(heuristic):
    return HEURISTICS[heuristic] is not None and HEURISTICS[heuristic][0] == "classes"


class OutOfMemory(Exception):
    pass


class LimitReached(Exception):
    pass


class Impossible(Exception):
    """The simulator stops with a failed assertion here, or does what its hash tables decide: nothing is to be
    expected."""


# --- the log -------------------------------------------------------------------------------------------------------

class Value:
    """What a handle of the log stands for: one output of an operator. `tensor` is its object in the run that plays
    the log."""

    def __init__(self, storage_size):
        self.storage_size, self.handles, self.tensor = storage_size, 1, None


class Schedule:
    """The log as a list of steps: ("compute", cost, sizes, aliases, arguments, results), ("get" | "release" | "pin",
    value)."""

    def __init__(self, entries):
        self.steps, self.handles = [], {}
        entries = iter(entries)
        for entry in entries:
            if entry["INSTRUCTION"] == "ANNOTATE" and entry["ANNOTATION"] == "START":
                break
        for entry in entries:
            getattr(self, "read_" + entry["INSTRUCTION"].lower())(entry, entries)
        for value in self.handles.values():
            if value.handles > 0:
                self.steps.append(("pin", value))

    def compute(self, cost, sizes, aliases, arguments):
        results = [Value(size if alias < 0 else arguments[alias].storage_size) for size, alias in zip(sizes, aliases)]
        self.steps.append(("compute", cost, sizes, aliases, arguments, results))
        return results

    def release(self, value):
        value.handles -= 1
        self.steps.append(("release", value))

    def retain(self, value):
        value.handles += 1
        self.steps.append(("get", value))

    def read_annotate(self, entry, entries):
        pass

    def read_constant(self, entry, entries):
        size = int(next(entries)["MEMORY"])
        (value,) = self.compute(0, [size], [-1], [])
        self.steps.append(("pin", value))
        self.handles[entry["NAME"]] = value

    def read_call(self, entry, entries):
        sizes, aliases = [], []
        for _ in entry["RESULT"]:
            size, alias = int(next(entries)["MEMORY"]), int(next(entries)["ALIAS"])
            sizes.append(size if alias < 0 else 0)
            aliases.append(alias)
        results = self.compute(int(entry["TIME"]), sizes, aliases, [self.handles[name] for name in entry["ARGS"]])
        self.handles.update(zip(entry["RESULT"], results))

    def read_mutate(self, entry, entries):
        arguments = [self.handles[name] for name in entry["ARGS"]]
        sizes = [arguments[index].storage_size for index in entry["MUTATE"]]
        results = self.compute(int(entry["TIME"]), sizes, [-1] * len(sizes), arguments)
        for index, result in zip(entry["MUTATE"], results):
            old = self.handles[entry["ARGS"][index]]
            self.handles[entry["ARGS"][index]] = result
            self.release(old)

    def read_copy(self, entry, entries):
        self.handles[entry["DST"]] = self.handles[entry["SRC"]]
        self.retain(self.handles[entry["SRC"]])

    def read_copy_from(self, entry, entries):
        old = self.handles[entry["DST"]]
        self.handles[entry["DST"]] = self.handles[entry["SRC"]]
        self.release(old)
        self.retain(self.handles[entry["SRC"]])

    def read_release(self, entry, entries):
        if entry["NAME"] in self.handles:
            self.release(self.handles[entry["NAME"]])


# --- what the simulator knows of the program -----------------------------------------------------------------------

class Operator:
    def __init__(self, cost, sizes):
        self.cost, self.total_size = cost, sum(sizes)


class Storage:
    def __init__(self, size):
        self.size, self.cost, self.tensors = size, 0, []
        self.is_resident = self.is_pinned = self.is_banished = False
        self.locks = self.references = 0
        self.last_access = -math.inf
        self.regions = {FORWARD: Region(), BACKWARD: Region()}
        self.node = Node(0)  # of the union-find; None while it is resident
        self.waiting = set()  # V1: tensors that are not defined and were made of this

    def sum_costs(self):
        self.cost = sum({tensor.op: tensor.op.cost for tensor in self.tensors}.values())


class Tensor:
    def __init__(self, op, size, storage, parents):
        self.op, self.size, self.storage, self.parents = op, size, storage, list(parents)
        self.siblings, self.children, self.is_defined = [], [], False
        storage.tensors.append(self)
        storage.references += 1
        storage.sum_costs()


class Region:
    """The evicted storages that can be reached from a storage in one direction, and the resident ones at their edge.
    The cost is that of the moment when each came in."""

    def __init__(self):
        self.clear()

    def clear(self):
        self.inside, self.edge, self.cost = set(), set(), 0


class Node:
    def __init__(self, value):
        self.value, self.parent = value, None


class Run:
    """One play of a schedule. `figures` is what it came to."""

    def __init__(self, heuristic, budget, dealloc="eager", remat_limit=UNLIMITED, seed=0):
        self.heuristic, self.budget, self.dealloc, self.remat_limit = heuristic, budget, dealloc, remat_limit
        self.random = random.Random(seed)
        self.has_regions, self.has_classes = needs_regions(heuristic), needs_classes(heuristic)
        self.clock, self.memory, self.pool = 1, 0, []
        self.remat_compute = self.model_compute = self.max_memory = 0
        self.evictions = self.executions = self.evals = self.accesses = 0

    def play(self, schedule):
        status = "ok"
        try:
            for step in schedule.steps:
                if step[0] == "compute":
                    _, cost, sizes, aliases, arguments, results = step
                    tensors = self.compute(cost, sizes, aliases, [value.tensor for value in arguments])
                    for value, tensor in zip(results, tensors):
                        value.tensor = tensor
                else:
                    getattr(self, step[0])(step[1].tensor)
        except OutOfMemory:
            status = "oom"
        except LimitReached:
            status = "thrash"
        self.figures = dict(zip(FIGURES, (status, self.clock, self.remat_compute, self.model_compute, self.max_memory,
                                          self.evictions, self.executions, self.evals, self.accesses)))
        return self.figures

    # ---- what the program does ----

    def compute(self, cost, sizes, aliases, inputs):
        op, outputs = Operator(cost, sizes), []
        for size, alias in zip(sizes, aliases):
            storage = Storage(size) if alias < 0 else inputs[alias].storage
            outputs.append(Tensor(op, size, storage, inputs))
        for tensor in outputs:
            tensor.siblings = [other for other in outputs if other is not tensor]
        for tensor in inputs:
            tensor.children += outputs
        if self.dealloc == "banish":
            for output in outputs:
                for tensor in inputs:
                    if tensor.storage is not output.storage:
                        tensor.storage.waiting.add(output)
        self.materialize(outputs[0], is_model=True)
        for tensor in outputs:
            tensor.storage.last_access = self.clock
        return outputs

    def get(self, tensor):
        if tensor.storage.references <= 0:
            raise Impossible("a reference to what nobody has")
        tensor.storage.references += 1

    def release(self, tensor):
        storage = tensor.storage
        if storage.references <= 0:
            raise Impossible("released once more than it was got")
        storage.references -= 1
        if storage.references == 0:
            if self.dealloc == "banish":
                self.try_to_banish(storage)
            elif self.dealloc == "eager" and storage.is_resident and not storage.is_pinned:
                self.evict(storage)

    def pin(self, tensor):
        if not tensor.is_defined:
            self.materialize(tensor, is_model=False)
        self.pin_storage(tensor.storage)

    # ---- locks ----

    def lock(self, storage):
        if not storage.is_resident or storage.is_banished:
            raise Impossible("a lock of what is not there")
        if storage.locks == 0:
            self.pool.remove(storage)
        storage.locks += 1

    def unlock(self, storage):
        if storage.locks <= 0 or not storage.is_resident:
            raise Impossible("unlocked once more than it was locked")
        storage.locks -= 1
        if storage.locks == 0:
            self.pool.append(storage)

    def pin_storage(self, storage):
        if not storage.is_resident:
            raise Impossible("a pin of what is not there")
        if not storage.is_pinned:
            self.lock(storage)
            storage.is_pinned = True

    # ---- running operators ----

    def materialize(self, tensor, is_model):
        """One generator for each operator that waits for another, the innermost last; they yield the tensor that they
        wait for."""
        waiting = [self.steps_of(tensor, is_model)]
        while waiting:
            needed = next(waiting[-1], None)
            if needed is None:
                waiting.pop()
            else:
                waiting.append(self.steps_of(needed, False))

    def steps_of(self, tensor, is_model):
        if tensor.storage.is_banished or (self.dealloc != "banish" and tensor.is_defined):
            raise Impossible("a run for what is gone for good, or there")
        for parent in tensor.parents:
            if self.dealloc != "banish" or parent.storage.references > 0:
                parent.storage.last_access = self.clock
        missing = [parent for parent in tensor.parents if not parent.is_defined]
        for parent in tensor.parents:
            if parent.is_defined:
                self.lock(parent.storage)
        for parent in missing:
            if not parent.is_defined:
                yield parent
            self.lock(parent.storage)
        while self.memory + tensor.op.total_size > self.budget:
            if not self.pool:
                raise OutOfMemory
            self.evict(self.victim())
        undefined = [one for one in tensor.siblings + [tensor] if not one.is_defined]
        self.execute(tensor, is_model)
        if self.dealloc == "banish":
            self.let_go(tensor, undefined)
        else:
            for parent in tensor.parents:
                self.unlock(parent.storage)
        if self.remat_compute > self.remat_limit:
            raise LimitReached

    def execute(self, tensor, is_model):
        if not all(parent.is_defined for parent in tensor.parents):
            raise Impossible("a run without its inputs")
        op, outputs = tensor.op, tensor.siblings + [tensor]
        duplicates = [one for one in tensor.siblings if one.is_defined]
        fresh = [one.storage for one in outputs if not one.storage.is_resident]
        self.executions += 1
        self.clock += op.cost
        if is_model:
            self.model_compute += op.cost
        else:
            self.remat_compute += op.cost
        self.memory += op.total_size
        self.max_memory = max(self.max_memory, self.memory)
        for one in outputs:
            one.storage.is_resident = one.is_defined = True
        self.memory -= sum(one.size for one in duplicates)
        self.pool += fresh
        if self.has_regions:
            self.rebuild_around(fresh)
        if self.has_classes:
            for storage in fresh:
                self.root_of(storage.node)  # the simulator looks for it twice: to read it and to write it
                self.root_of(storage.node).value -= storage.cost
                storage.node = None

    # ---- eviction ----

    def evict(self, storage):
        if storage.locks or not storage.is_resident:
            raise Impossible("an eviction of what is locked or gone")
        self.evictions += 1
        storage.is_resident = False
        self.memory -= storage.size
        if storage in self.pool:  # V1 evicts what it has just unlocked by force
            self.pool.remove(storage)
        for tensor in storage.tensors:
            tensor.is_defined = False
            if self.dealloc == "banish":
                for parent in tensor.parents:
                    if parent.storage is not storage:
                        parent.storage.waiting.add(tensor)
        if self.has_regions:
            self.absorb_into_neighbours(storage)
        if self.has_classes:
            self.join_classes(storage)

    def victim(self):
        if self.heuristic == "random":
            self.evals += 1
            self.accesses += 1
            return self.pool[self.random.randrange(len(self.pool))]
        best, best_score = None, math.inf
        for storage in self.pool:
            self.evals += 1
            self.accesses += 1
            score = self.score(storage)
            if score <= best_score:
                best, best_score = storage, score
            if score == 0:
                break
        return best

    def score(self, storage):
        if self.heuristic == "lru":
            return storage.last_access
        kind, has_size, has_staleness = HEURISTICS[self.heuristic]
        last_access = storage.last_access
        if kind == "union":
            around = self.walk(storage, FORWARD).inside | self.walk(storage, BACKWARD).inside
            cost = storage.cost + sum(other.cost for other in around)
            last_access = max([last_access] + [other.last_access for other in around])
        else:
            cost = {"none": lambda _: 1, "local": lambda one: one.cost, "classes": self.cost_with_classes,
                    "ancestors": lambda one: one.cost + one.regions[BACKWARD].cost,
                    "neighbours": lambda one: one.cost + one.regions[FORWARD].cost + one.regions[BACKWARD].cost
                    }[kind](storage)
        if not has_size and not has_staleness:
            return cost
        divisor = (storage.size if has_size else 1) * (self.clock - last_access if has_staleness else 1)
        return cost / divisor if divisor > 0 else math.inf

    # ---- regions ----

    def walk(self, base, direction):
        region, left = Region(), [base]
        while left:
            for tensor in left.pop().tensors:
                for neighbour in getattr(tensor, direction):
                    self.accesses += 1
                    storage = neighbour.storage
                    if storage.is_resident:
                        if storage is not base:
                            region.edge.add(storage)
                    elif storage not in region.inside:
                        region.inside.add(storage)
                        region.cost += storage.cost
                        left.append(storage)
        return region

    def rebuild(self, storage, direction):
        if not storage.is_resident:
            raise Impossible("a region of what is evicted")
        storage.regions[direction] = self.walk(storage, direction)

    def rebuild_around(self, fresh):
        needed, needing = set(), set()
        for storage in fresh:
            self.rebuild(storage, FORWARD)
            self.rebuild(storage, BACKWARD)
            needed |= storage.regions[BACKWARD].edge
            needing |= storage.regions[FORWARD].edge
        for storage in needed:
            self.rebuild(storage, FORWARD)
        for storage in needing:
            self.rebuild(storage, BACKWARD)

    def absorb_into_neighbours(self, storage):
        for neighbour in storage.regions[BACKWARD].edge:
            self.absorb(neighbour, storage, FORWARD)
        for neighbour in storage.regions[FORWARD].edge:
            self.absorb(neighbour, storage, BACKWARD)
        storage.regions[FORWARD].clear()
        storage.regions[BACKWARD].clear()

    def absorb(self, neighbour, storage, direction):
        region, absorbed = neighbour.regions[direction], storage.regions[direction]
        if storage not in region.edge:  # a view that brought in another input: it leads to no rebuild
            raise Impossible("a region does not know its neighbour")
        if neighbour is storage:  # such a view can make a circle, too
            raise Impossible("a region absorbs itself: what others absorb then depends on the order of a hash table")
        region.edge.remove(storage)
        region.edge |= absorbed.edge
        entering = absorbed.inside - region.inside | {storage}
        self.accesses += len(entering)
        region.cost += sum(one.cost for one in entering)
        region.inside |= entering

    # ---- classes ----

    def root_of(self, node):
        path = [node]
        while path[-1].parent:
            path.append(path[-1].parent)
        self.accesses += len(path)
        for one in path[:-1]:
            one.parent = path[-1]
        return path[-1]

    def evicted_neighbours(self, storage):
        """Each once, in the order in which they are met. (The simulator's own order is that of addresses.)"""
        met = {}
        for tensor in storage.tensors:
            for neighbour in tensor.parents + tensor.children:
                self.accesses += 1
                if not neighbour.storage.is_resident and neighbour.storage is not storage:
                    met[neighbour.storage] = True
        return list(met)

    def join_classes(self, storage):
        storage.node = Node(storage.cost)
        for neighbour in self.evicted_neighbours(storage):
            joined, root = self.root_of(neighbour.node), self.root_of(storage.node)
            if joined is not root:
                joined.parent = root
                root.value += joined.value

    def cost_with_classes(self, storage):
        roots = {self.root_of(neighbour.node) for neighbour in self.evicted_neighbours(storage)}
        return storage.cost + sum(root.value for root in roots)

    # ---- banishing (V1) ----

    def let_go(self, tensor, undefined):
        """Of the inputs after a run. Banishing one takes it out of the list that is being walked, so that the next is
        passed over: it stays locked for ever. That is how the simulator has it."""
        at = 0
        while at < len(tensor.parents):
            storage = tensor.parents[at].storage
            self.unlock(storage)
            storage.waiting -= {one for one in undefined if one.storage is not storage}
            self.try_to_banish(storage)
            at += 1

    def try_to_banish(self, storage):
        if storage.references > 0 or storage.waiting:
            return
        if storage.is_resident:
            storage.locks = 0
            self.evict(storage)
        for tensor in storage.tensors:
            for parent in tensor.parents:
                if parent.storage is not storage:
                    parent.storage.waiting.discard(tensor)
                    self.detach(parent.children, tensor)
            for child in list(tensor.children):
                if child.storage is not storage:
                    self.detach(child.parents, tensor)
                    self.pin_storage(child.storage)
        storage.is_banished = True

    @staticmethod
    def detach(links, tensor):
        if tensor not in links:
            raise Impossible("banished twice")
        links.remove(tensor)


# --- the whole -----------------------------------------------------------------------------------------------------

def baseline(schedule):
    """The figures of V1 without a budget: its max_memory is the peak of reference, its model_compute the limits'
    unit."""
    return Run("lru", UNLIMITED, "banish").play(schedule)


def play(schedule, heuristic, budget, dealloc="eager", remat_limit=1.0, seed=0):
    """`budget` and `remat_limit` (times the baseline's cost): None is unlimited."""
    limit = UNLIMITED if remat_limit is None else remat_limit * baseline(schedule)["model_compute"]
    return Run(heuristic, UNLIMITED if budget is None else budget, dealloc, limit, seed).play(schedule)
