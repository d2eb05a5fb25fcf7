# SPDX-License-Identifier: Apache-2.0
"""A trace of the provider `varve` as plain Python values, by what babeltrace2 prints of it, and the lists of kinds and
causes that it must agree with."""

import os
import re

import recording

EVENT_LIST = os.path.join(recording.ROOT, "trace", "event_list.h")


def listed(name):
    """{code: the strings or words after it} of one of the lists in event_list.h, read without a compiler."""
    with open(EVENT_LIST, encoding="utf-8") as stream:
        text = stream.read().split(f"#define {name}(X)")[1].split("/* clang-format on */")[0]
    return {int(code): rest for code, rest in re.findall(r"X\(\s*(\d+), (.*)", text)}


KINDS = {code: rest.split(",")[1].strip() for code, rest in listed("VARVE_EVENT_LIST").items()}
CAUSES = {code: rest.split('"')[1] for code, rest in listed("VARVE_CAUSE_LIST").items()}


class Enumerator:
    """A value of an enumeration; the label of one that has none is None."""

    def __init__(self, label, value):
        self.label, self.value = label, value

    def __eq__(self, other):
        return (self.label, self.value) == (other.label, other.value)

    def __repr__(self):
        return f"{self.label}={self.value}"


class Text:
    """The fields of an event as babeltrace2 prints them."""

    TOKEN = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|(-?(?:0x[0-9A-Fa-f]+|\d+))|([A-Za-z_]\w*)|(<unknown>)'
                       r'|([][{}(),=:]))')

    def __init__(self, text):
        self.tokens = [match.groups() for match in self.TOKEN.finditer(text)]
        self.at = 0

    def take(self, expected=None):
        string, number, word, unknown, sign = self.tokens[self.at]
        self.at += 1
        if expected is not None and sign != expected:
            raise ValueError(f"{expected} expected at {self.tokens[self.at - 1]}")
        if string is not None:
            return re.sub(r"\\(.)", r"\1", string)
        return int(number, 0) if number else word or unknown or sign

    def next_is(self, sign):
        return self.tokens[self.at][4] == sign

    def items(self, end, item):
        found = []
        while not self.next_is(end):
            found.append(item())
            if self.next_is(","):
                self.take()
        self.take(end)
        return found

    def field(self):
        name = self.take()
        self.take("=")
        return name, self.value()

    def element(self):
        self.take("[")
        self.take()
        self.take("]")
        self.take("=")
        return self.value()

    def value(self):
        if self.next_is("{"):
            self.take()
            return self.items("}", self.field)
        if self.next_is("["):
            self.take()
            return self.items("]", self.element)
        if self.next_is("("):
            self.take()
            label = self.take()
            self.take(":")
            _, number = self.field()
            self.take(")")
            return Enumerator(None if label == "<unknown>" else label, number)
        return self.take()


def read_trace(path):
    """[(name, [(field, value)])] of the events of the provider, in the order of the trace."""
    outcome = recording.run(["babeltrace2", "--no-delta", path])
    if outcome.returncode != 0 or outcome.err:
        raise AssertionError(f"babeltrace2: {outcome}")
    events = []
    for line in outcome.out.splitlines():
        match = re.search(r" varve:(\w+): \{ cpu_id = \d+ \}, (.*)$", line)
        if not match:
            raise AssertionError(f"not understood: {line}")
        events.append((match.group(1), Text(match.group(2)).value()))
    return events


def read_types(path):
    """{event: [(field, size in bits, is signed, base)]}, sequences by their elements, strings left out."""
    folder = next(folder for folder, _, files in os.walk(path) if "metadata" in files)
    outcome = recording.run(["babeltrace2", "--output-format=ctf-metadata", folder])
    types = {}
    for block in outcome.out.split("event {")[1:]:
        name = re.search(r'name = "varve:(\w+)"', block)
        fields = re.findall(r"integer \{ size = (\d+); align = \d+; signed = (\d); encoding = \w+; base = (\d+); \}"
                            r"(?: \{[^}]*\})? _(\w+)", block)
        if name:
            types[name.group(1)] = [(field, int(size), int(sign), int(base)) for size, sign, base, field in fields]
    return types
