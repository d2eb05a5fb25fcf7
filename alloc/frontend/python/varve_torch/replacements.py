# SPDX-License-Identifier: Apache-2.0
"""Attributes of PyTorch's modules that are replaced, and put back."""


class Replacements:
    def __init__(self):
        self.made = []  # (owner, name, what was there, what is there now), in the order of their making

    def set(self, owner, name, value):
        self.made.append((owner, name, getattr(owner, name), value))
        setattr(owner, name, value)

    def undo(self):
        """What somebody else has replaced since stays, and goes on calling ours."""
        while self.made:
            owner, name, original, value = self.made.pop()
            if getattr(owner, name, None) is value:
                setattr(owner, name, original)
