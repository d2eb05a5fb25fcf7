# SPDX-License-Identifier: Apache-2.0
"""One rank of a data-parallel training, made up of bytearrays: RANK says which of WORLD_SIZE, eight to a host. Every
rank has the same weights, and activations of its own batches. What a look over all ranks should find: one rank that
has the longest sequences, one that is slow, and one host whose ranks keep a batch in each step, at the line that is
marked."""

import os
import random
import time

STEPS, LAYERS = 30, 12
WEIGHT_BYTES, TOKEN_BYTES = 192 << 10, 512

rank = int(os.environ["RANK"])
ranks = int(os.environ["WORLD_SIZE"])
random.seed(rank)
has_long_sequences = rank == ranks * 37 // 64
is_slow = rank == ranks * 19 // 64
is_on_leaking_host = rank // 8 == ranks // 8 * 5 // 8
kept_batches = []


def make_weights():
    weights = []
    for _ in range(LAYERS):
        weights.append(bytearray(WEIGHT_BYTES))
    return weights


def read_batch():
    return bytearray(TOKEN_BYTES * (random.randrange(300, 420) if has_long_sequences else random.randrange(150, 260)))


def forward(batch):
    activations = []
    for _ in range(LAYERS):
        activations.append(bytearray(2 * len(batch)))
    return activations


def backward(activations):
    while activations:
        gradient = bytearray(WEIGHT_BYTES)
        activations.pop()
    return gradient


def keep_for_debugging(batch):
    kept_batches.append(bytes(batch))  # leak: batch


def main():
    weights = make_weights()
    for _ in range(STEPS):
        batch = read_batch()
        backward(forward(batch))
        if is_on_leaking_host:
            keep_for_debugging(batch)
        time.sleep(0.04 if is_slow else 0.002)
    return weights


main()
