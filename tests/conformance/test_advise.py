#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 9 s, full 35 s
# Runs threads: plays.
"""varve advise beside varve replay and varve frontier, on recordings of PyTorch's allocator.

figures   each setting that is advised has the figures that a replay with that line has, and is better than what was
recorded own       where a history is followed, the first column is what PyTorch's statistics say needs     as
--memory-limit of a replay it serves every request causes    together they are what is lost capacity  fits exactly
where a replay on such a device has no failure; what would have to go is at least what is too much known
expandable segments are advised for gpt2_train, with the peak that PyTorch had under them, and max_split_size_mb is
not; nothing
          is, where they were set already
"""

from pytorch_recordings import Case, NAMES, SMALL, expected_of, path_of, recording

QUICK = (*SMALL[:2], "resnet50_train_stacks")
REPLAYED = SMALL[1:2] if recording.IS_SANITIZED else recording.sample(NAMES, *QUICK)
MIB = 1 << 20
SAME = ("peak_reserved", "peak_allocated", "device_calls", "retries", "ooms")


def room_of(answer):
    """The limit and the device that all settings of an answer were played under."""
    options = []
    for key in ("memory_limit", "capacity"):
        if answer[key] is not None and (key != "capacity" or answer.get("fits_with_settings", True)):
            options += ["--" + key.replace("_", "-"), answer[key]]
    return options


class Advise(Case):
    def ask(self, command, name, *options):
        return self.answer(command, *options, path_of(name))

    def check_settings(self, name, answer):
        for setting in answer["settings"]:
            with self.subTest(name, conf=setting["conf"]):
                alone = self.ask("replay", name, "--conf", setting["conf"], *room_of(answer))
                self.assertEqual({key: setting[key] for key in SAME}, {key: alone[key] for key in SAME})
                self.assertEqual(setting["lost"], sum(setting["causes"].values()))
                own = answer["own"]
                if setting["ooms"] == own["ooms"]:
                    self.assertTrue(setting["peak_reserved"] < own["peak_reserved"] or
                                    setting["device_ns"] < own["device_ns"])
                    self.assertLessEqual(setting["peak_reserved"], own["peak_reserved"])
                else:
                    self.assertLess(setting["ooms"], own["ooms"])
                if setting["reason"] == "without_expandable_segments":
                    self.assertNotIn("expandable_segments", setting["conf"])
                if setting["reason"] == "without_more_time":
                    self.assertLessEqual(setting["device_ns"], own["device_ns"])

    def test_figures_are_those_of_replays(self):
        for name in REPLAYED:
            answer = self.ask("advise", name)
            self.check_settings(name, answer)
            for setting in answer["settings"]:
                limited = self.ask("replay", name, "--conf", setting["conf"], "--memory-limit", setting["needs"])
                self.assertEqual(limited["ooms"], 0)
                self.assertGreaterEqual(setting["needs"], answer["load_bytes"])

    def test_own_is_what_was_recorded(self):
        for name in REPLAYED:
            expected = expected_of(name)
            if expected is None:
                continue
            with self.subTest(name):
                limit = ["--memory-limit", expected["memory_limit"]] if expected["memory_limit"] else []
                own, stats = self.ask("advise", name, *limit)["own"], expected["memory_stats"]
                self.assertEqual(own["peak_reserved"], stats["reserved_bytes.all.peak"])
                self.assertEqual(own["peak_allocated"], stats["allocated_bytes.all.peak"])
                self.assertEqual(own["device_calls"], stats["num_device_alloc"] + stats["num_device_free"])
                self.assertEqual((own["retries"], own["ooms"]), (stats["num_alloc_retries"], stats["num_ooms"]))

    def test_what_is_known(self):
        answer = self.ask("advise", "gpt2_train")
        self.assertEqual(answer["recorded"]["peak_reserved"], 19624 * MIB)
        best = answer["settings"][0]
        self.assertEqual((best["conf"], best["peak_reserved"]), ("expandable_segments:True", 15124 * MIB))
        for setting in answer["settings"]:
            self.assertNotIn("max_split_size_mb", setting["conf"])  # more than twice as much reserved
        nothing = self.ask("advise", "gpt2_train_expandable")
        self.assertEqual((nothing["own"]["conf"], nothing["settings"]), ("expandable_segments:True", []))
        text = self.varve("advise", path_of("gpt2_train_expandable")).out
        self.assertEqual(text.count("nothing helps"), 1)
        self.assertNotIn("export", text)

    def test_capacity(self):
        for name, capacities in {"gpt2_train": (24 << 30, 15500 * MIB, 14 << 30)
                                 if recording.IS_FULL else (15500 * MIB,), "resnet50_train_stacks": (5 << 30,),
                                 "multistream_record": (80 * MIB, 40 * MIB)}.items():
            for capacity in () if recording.IS_SANITIZED and name not in REPLAYED else capacities:
                with self.subTest(name, capacity=capacity):
                    answer = self.ask("advise", name, "--capacity", capacity)
                    alone = self.ask("replay", name, "--conf", answer["own"]["conf"], "--capacity", capacity)
                    self.assertEqual(answer["fits"], alone["ooms"] == 0)
                    self.check_settings(name, answer)
                    if answer["fits_with_settings"]:
                        self.assertIn(0, [setting["ooms"] for setting in [answer["own"], *answer["settings"]]])
                        self.assertEqual(answer["must_go"], [])
                    else:
                        best = min([answer["own"], *answer["settings"]], key=lambda setting: setting["needs"])
                        self.assertEqual(answer["missing"], best["needs"] - capacity)
                        gone = [site["bytes"] for site in answer["must_go"]]
                        self.assertEqual(gone, sorted(gone, reverse=True))
                        self.assertGreaterEqual(sum(gone), answer["load_bytes"] - capacity)

    def test_call_sites(self):
        sites = self.ask("advise", "resnet50_train_stacks", "--capacity", 3 << 30)["must_go"]
        self.assertGreater(len(sites), 1)
        for site in sites:
            self.assertTrue(site["user"]["file"].endswith(".py"))
            self.assertNotIn("/torch/", site["user"]["file"])


if __name__ == "__main__":
    recording.main()
