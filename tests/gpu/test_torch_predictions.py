#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 1 s
"""What a replay of a recorded training predicts, and what the training does: under the settings that `varve advise`
names, and under the limit that `varve frontier` finds. With expandable segments, which leave nothing to where the
driver puts memory, the figures must be equal; where a program frees in another order in each run, or asks for less
when it is refused, that is shown. Every run must come out of its own replay decision for decision."""

import json
import os
import pickle
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from torch_support import HERE, PYTHON, GpuCase, figure, recording  # noqa: E402

PROGRAM = os.path.join(HERE, "torch_trainings.py")
PEAKS = ("reserved_bytes.all.peak", "allocated_bytes.all.peak")
STEP = 2 << 20


def requests(path):
    """Sizes of allocs, and which of them each free is of."""
    with open(path, "rb") as stream:
        events = pickle.load(stream)["device_traces"][0]
    live, made, count = {}, [], 0
    for event in events:
        if event["action"] == "alloc":
            live[event["addr"]] = count
            count += 1
            made.append(event["size"])
        elif event["action"] == "free_requested":
            made.append(-1 - live[event["addr"]])
    return made


class Predictions(GpuCase):
    def training(self, model, name, conf="", limit=None):
        out = self.file(f"{model}.{name}")
        more = ["--limit", str(limit)] if limit else []
        outcome = recording.run([PYTHON, PROGRAM, model, out, *more], cwd=self.folder,
                                env={**self.environment, "PYTORCH_ALLOC_CONF": conf})
        self.assertEqual(outcome.returncode, 0, outcome)
        with open(out + ".json", encoding="utf-8") as stream:
            answer = json.load(stream)
        options = ["--memory-limit", limit] if limit else []
        verified = self.json("replay", "--verify", *options, out + ".pickle")
        self.assertEqual(verified["mismatches"], 0)
        self.assertEqual([verified["stats"][key] for key in PEAKS], [answer["memory_stats"][key] for key in PEAKS])
        return out + ".pickle", answer

    def json(self, *arguments):
        outcome = recording.varve(*map(str, arguments), "--json")
        self.assertEqual(outcome.returncode, 0, outcome)
        return json.loads(outcome.out)

    def compare(self, model):
        recorded, _ = self.training(model, "default")
        settings = self.json("advise", recorded)["settings"]
        self.assertTrue(settings)
        for number, setting in enumerate(settings):
            path, answer = self.training(model, f"advised{number}", setting["conf"])
            measured = answer["memory_stats"][PEAKS[0]]
            are_same = requests(path) == requests(recorded)
            figure("prediction", model=model, conf=setting["conf"], predicted=setting["peak_reserved"],
                   measured=measured, requests_are_same=are_same)
            if are_same and "expandable_segments:True" in setting["conf"]:
                self.assertEqual(setting["peak_reserved"], measured)
            self.assertLess(abs(setting["peak_reserved"] - measured), 0.02 * measured)

    def test_gpt2(self):
        self.compare("gpt2")

    def test_resnet50(self):
        self.compare("resnet50")

    def test_vit(self):
        self.compare("vit")

    def test_frontier(self):
        conf = "expandable_segments:True"
        recorded, _ = self.training("gpt2", "default")
        limit = self.json("frontier", "--conf", conf, recorded)["frontier_bytes"]
        _, passes = self.training("gpt2", "passes", conf, limit)
        _, fails = self.training("gpt2", "fails", conf, limit - STEP)
        figure("frontier", conf=conf, limit=limit, passes=passes["failed"] is None, fails=fails["failed"])
        self.assertIsNone(passes["failed"])
        self.assertIsNotNone(fails["failed"])


if __name__ == "__main__":
    recording.main()
