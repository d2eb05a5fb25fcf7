# SPDX-License-Identifier: Apache-2.0
"""Random operator logs in DTR's format, valid for the simulator: the handles that a line names are alive, and no
value is mutated twice (the simulator names what comes of it after the value). Beside these rules anything goes: views
of views, operators that take an argument twice or none, outputs without bytes or cost, constants in the middle,
handles that are never released.

A maker makes one log in one of the SHAPES. Where sizes and costs come from is drawn for each log: few numbers make
ties, numbers that are nearly multiples of each other make scores that differ by less than a double can tell.
"""

import json
import random

SHAPES = ("graph", "chain", "network", "recurrent", "tree")
NUMBERS = ("one", "few", "many", "huge", "near")
NUMBER_MAX = 2**40


class Value:
    def __init__(self, storage_size):
        self.storage_size, self.handles, self.is_mutated = storage_size, 1, False


class Maker:
    """`entries` is the log: a dictionary for each line. `live` are the handles that may be used, the youngest last."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.entries, self.live, self.names = [], {}, 0
        self.shape = self.random.choice(SHAPES)
        self.size_kind, self.cost_kind = self.random.choice(NUMBERS), self.random.choice(NUMBERS)
        self.near = 1 << self.random.randrange(20, 39)
        if self.maybe(0.15):
            self.size_kind = self.cost_kind = "near"
        self.operators = self.random.choice((20, 60, 60, 120, 200))
        self.view_share, self.noise = self.random.choice((0, 0.1, 0.4)), self.random.choice((0, 0.1, 0.4))
        self.zero_share = self.random.choice((0, 0.02, 0.2))
        self.views_join = self.maybe(0.3)  # views may have other arguments, too
        self.make()

    # ---- lines ----

    def line(self, instruction, **keys):
        self.entries.append({"INSTRUCTION": instruction, **keys})

    def new_name(self):
        self.names += 1
        return f"x{self.names}"

    def number(self, kind):
        draw = self.random.randrange
        if self.random.random() < self.zero_share:
            return 0
        if kind == "near":
            return draw(1, 4) * self.near + draw(-2, 3)
        return {"one": 1, "few": draw(1, 5), "many": draw(1, 100000), "huge": draw(1, NUMBER_MAX + 1)}[kind]

    def cost(self):
        return str(self.number(self.cost_kind))

    def add(self, name, value):
        self.live[name] = value

    def constant(self):
        name, value = self.new_name(), Value(self.number(self.size_kind))
        self.line("CONSTANT", NAME=name)
        self.line("MEMORY", NAME=name, MEMORY=str(value.storage_size))
        self.add(name, value)
        return name

    def call(self, arguments, outputs=1, view=None):
        """`view`: the argument that the first output is a view of. Others are drawn."""
        names, values = [self.new_name() for _ in range(outputs)], [self.live[name] for name in arguments]
        self.line("CALL", NAME="op", RESULT=names, ARGS=list(arguments), TIME=self.cost())
        for number, name in enumerate(names):
            alias = view if number == 0 else None
            if alias is None and self.may_be_view(arguments) and self.maybe(self.view_share / 2):
                alias = self.random.randrange(len(arguments))
            size = self.number(self.size_kind) if alias is None else values[alias].storage_size
            self.line("MEMORY", NAME=name, MEMORY=str(size))
            self.line("ALIAS", NAME=name, ALIAS=str(-1 if alias is None else alias))
            self.add(name, Value(size))
        return names

    def may_be_view(self, arguments):
        return bool(arguments) and (self.views_join or len(set(arguments)) == 1)

    def release(self, name):
        self.line("RELEASE", NAME=name)
        self.live.pop(name).handles -= 1

    def copy(self):
        source, name = self.pick(), self.new_name()
        self.line("COPY", DST=name, SRC=source)
        self.live[source].handles += 1
        self.add(name, self.live[source])
        return name

    def copy_from(self):
        source, name = self.pick(), self.pick()
        if self.live[source] is self.live[name] and self.live[name].handles < 2:
            return
        self.line("COPY_FROM", DST=name, SRC=source)
        self.live[name].handles -= 1
        self.live[source].handles += 1
        self.live[name] = self.live[source]

    def mutate(self):
        arguments = [self.pick() for _ in range(self.random.randrange(1, 4))]
        indices, seen = [], []
        for index in self.random.sample(range(len(arguments)), len(arguments)):
            value = self.live[arguments[index]]
            if not value.is_mutated and value not in seen and (not indices or self.random.random() < 0.3):
                indices.append(index)
                seen.append(value)
        if not indices:
            return
        self.line("MUTATE", NAME="op_", ARGS=arguments, MUTATE=indices, TIME=self.cost())
        for index in indices:
            old = self.live[arguments[index]]
            old.is_mutated = True
            old.handles -= 1
            self.live[arguments[index]] = Value(old.storage_size)

    # ---- choices ----

    def pick(self):
        """A live handle, mostly a young one."""
        names = list(self.live)
        reach = self.random.choice((2, 5, len(names)))
        return self.random.choice(names[-reach:])

    def picks(self, most):
        count = min(self.random.randrange(most + 1), len(self.live))
        return [self.pick() for _ in range(count)]

    def maybe(self, share):
        return self.random.random() < share

    def some_noise(self):
        """What may stand between any two operators."""
        while self.maybe(self.noise):
            if not self.live:
                self.constant()
            self.random.choice((
                self.copy, self.copy_from, self.mutate, self.constant, lambda: self.release(self.pick()),
                lambda: self.call(self.picks(3), self.random.randrange(1, 4)), lambda: self.call([self.pick()] * 2),
                lambda: self.call(list(self.live)[-8:]),  # equally stale from then on
                lambda: self.line("RELEASE", NAME="unknown")))()
        while self.maybe(self.view_share):
            if self.live:
                # old ones may be evicted
                base = self.pick() if self.maybe(0.5) else self.random.choice(list(self.live))
                self.call([base] + self.picks(1 if self.views_join else 0), view=0)

    # ---- shapes ----

    def make(self):
        if self.maybe(0.3):
            self.line("CONSTANT", NAME="x1")
            self.line("MEMORY", NAME="x1", MEMORY="5")
        self.line("ANNOTATE", ANNOTATION="START")
        for _ in range(self.random.randrange(4)):
            self.constant()
        getattr(self, "make_" + self.shape)()
        keep = self.random.choice((0, 0.1, 1))
        for name in self.random.sample(list(self.live), len(self.live)):
            if not self.maybe(keep):
                self.release(name)

    def make_graph(self):
        width = self.random.choice((3, 10, 40))
        for _ in range(self.operators):
            self.call(self.picks(4), self.random.choice((1, 1, 1, 2, 4)))
            self.some_noise()
            while len(self.live) > width:
                self.release(self.random.choice(list(self.live)))

    def make_chain(self):
        """Only the last value is held, but old ones are asked for again."""
        (last,) = self.call([])
        held = [last]
        for _ in range(self.operators):
            (last,) = self.call([self.random.choice(held[:2] + held[-1:])] + ([held[-1]] if self.maybe(0.3) else []))
            held.append(last)
            self.some_noise()
            held = [name for name in held if name in self.live]
            if not held:
                held = self.call([])
            if len(held) > 12 or self.maybe(0.2):
                self.release(held.pop(self.random.randrange(len(held))))
                held = held or self.call([])

    def make_network(self):
        """Forward, then backward in reverse order: what was held for it is released layer by layer."""
        layers, value = [], self.constant()
        for _ in range(self.operators // 3):
            weight = [self.constant()] if self.maybe(0.5) else []
            skip = [self.random.choice(layers)[-1][0]] if layers and self.maybe(0.2) else []
            skip = [name for name in skip if name in self.live]
            results = self.call([value] + weight + skip, self.random.choice((1, 1, 2)))
            layers.append(([value] + weight, results))
            value = results[0]
            self.some_noise()
            value = value if value in self.live else self.pick() if self.live else self.constant()
        self.line("ANNOTATE", ANNOTATION="BACKWARD")
        (gradient,) = self.call([])
        for inputs, results in reversed(layers):
            saved = [name for name in inputs + results[self.random.randrange(2):] if name in self.live]
            gradients = self.call(saved + [gradient], self.random.choice((1, 2)))
            for name in self.random.sample(results + [gradient], len(results) + 1):
                if name in self.live:
                    self.release(name)
            gradient = gradients[0]
            self.some_noise()
            if gradient not in self.live:
                (gradient,) = self.call([])

    def make_recurrent(self):
        """The same constants at every step; a state that goes through views; all states are asked for at the end."""
        weights, state, states = [self.constant() for _ in range(2)], self.constant(), []
        for _ in range(self.operators // 4):
            inside = self.call([name for name in [state] + weights if name in self.live], 2)
            (half,) = self.call([inside[0]], view=0)
            (state,) = self.call([half, inside[1], half])
            states.append(state)
            for name in self.random.sample(inside + [half], 3):
                if self.maybe(0.8):
                    self.release(name)
            self.some_noise()
            state = state if state in self.live else self.constant()
        for state in reversed(states):
            if state in self.live:
                self.call([state] + self.picks(1))
                if state in self.live:
                    self.release(state)

    def make_tree(self):
        """Leaves, and nodes of two or three; the children go once their parent is made, or stay for a second round."""
        level = [self.call([])[0] for _ in range(max(2, self.operators // 2))]
        stays = self.random.choice((0, 0.3, 1))
        while len(level) > 1:
            above = []
            while level:
                children = [level.pop(0) for _ in range(min(self.random.choice((2, 2, 3)), len(level)))]
                children = [name for name in children if name in self.live]
                above += self.call(children)
                for name in children:
                    if not self.maybe(stays):
                        self.release(name)
                self.some_noise()
            level = above
        for name in list(self.live):
            if name in self.live and self.maybe(0.5):
                self.call([name])
                self.release(name)


def linear_network(nodes):
    """The check of the literature: unit costs and sizes, forward, then backward with everything released once it is
    not needed."""
    maker = Maker.__new__(Maker)
    maker.entries, maker.live = [], {}

    def call(name, *arguments):
        maker.line("CALL", NAME="op", RESULT=[name], ARGS=list(arguments), TIME="1")
        maker.line("MEMORY", NAME=name, MEMORY="1")
        maker.line("ALIAS", NAME=name, ALIAS="-1")

    maker.line("ANNOTATE", ANNOTATION="START")
    for node in range(nodes):
        call(f"f{node}", *([f"f{node - 1}"] if node else []))
    maker.line("RELEASE", NAME=f"f{nodes - 1}")
    call(f"g{nodes - 1}")
    for node in range(nodes - 2, -1, -1):
        maker.line("RELEASE", NAME=f"f{node}")
        call(f"g{node}", *([f"f{node - 1}"] if node else []), f"g{node + 1}")
        maker.line("RELEASE", NAME=f"g{node + 1}")
    return maker.entries


def near_tie(seed):
    """(log, budget): one of two values must go, and rounding the score's divisor before the division would choose the
    other one."""
    draw = random.Random(seed).randrange
    while True:
        costs, sizes = [2**38 + draw(64) for _ in range(2)], [2**38 + draw(64) for _ in range(2)]
        staleness = draw(2**39, 2**40)
        exact = [cost / (size * staleness) for cost, size in zip(costs, sizes)]
        rounded = [cost / float(size * staleness) for cost, size in zip(costs, sizes)]
        if costs[0] != costs[1] and (exact[1] <= exact[0]) != (rounded[1] <= rounded[0]):
            break
    maker = Maker.__new__(Maker)
    maker.entries = []
    maker.line("ANNOTATE", ANNOTATION="START")
    for name, arguments, cost, size in (("a", [], costs[0], sizes[0]), ("b", [], costs[1], sizes[1]),
                                        ("c", ["a", "b"], staleness, 1), ("d", [], 1, 1)):
        maker.line("CALL", NAME="op", RESULT=[name], ARGS=arguments, TIME=str(cost))
        maker.line("MEMORY", NAME=name, MEMORY=str(size))
        maker.line("ALIAS", NAME=name, ALIAS="-1")
    return maker.entries, sum(sizes) + 1


def as_text(entries):
    return "".join(json.dumps(entry, sort_keys=True, separators=(",", ":")) + "\n" for entry in entries)
