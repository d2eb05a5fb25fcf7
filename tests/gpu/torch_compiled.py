# SPDX-License-Identifier: Apache-2.0
"""A training under torch.compile, whose model and loop are in this file:

    torch_compiled.py [MODE]

MODE is torch.compile's. Prints the last loss."""

import sys

import torch


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.grow, self.shrink = torch.nn.LayerNorm(width), torch.nn.Linear(width, 4 * width), \
            torch.nn.Linear(4 * width, width)

    def forward(self, x):
        hidden = self.grow(self.norm(x))
        hidden = torch.nn.functional.gelu(hidden)
        return x + self.shrink(hidden)


class Model(torch.nn.Module):
    def __init__(self, width, blocks):
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block(width) for _ in range(blocks))
        self.head = torch.nn.Linear(width, 1000)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x).logsumexp(-1)


def main():
    torch.manual_seed(0)
    model = Model(1024, 6).to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    compiled = torch.compile(model, mode=sys.argv[1] if len(sys.argv) > 1 else None)
    for _ in range(12):
        loss = compiled(torch.randn(64, 256, 1024, device="cuda")).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(float(loss))


if __name__ == "__main__":
    main()
