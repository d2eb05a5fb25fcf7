#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 10 s, full 60 s
# Only with an unsanitized command: a sanitized library does not load into a plain Python
"""What many ranks are asked that is odd: files and folders of any name, damaged ones, a scheduler that is not there;
sweeps of replays, with failures as rows."""

import os
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from python_packages import ROOT, needs  # noqa: E402
from python_ranks import STRAGGLER, RankCase  # noqa: E402
import recording  # noqa: E402
import varve  # noqa: E402

HISTORIES = os.path.join(ROOT, "tests", "conformance", "pytorch")


@needs("pandas", "pyarrow", "duckdb", "dask", "distributed")
class Odd(RankCase):
    def test_files_of_one_name(self):
        paths = []
        for folder, source in (("a", self.paths[0]), ("b", self.paths[STRAGGLER])):
            paths.append(os.path.join(self.folder, "same", folder, "trace.db"))
            os.makedirs(os.path.dirname(paths[-1]))
            shutil.copy(source, paths[-1])
        out = os.path.join(self.folder, "same", "runs")
        done = recording.run([sys.executable, "-m", "varve", "export", "-q", *paths, "-o", out])
        self.assertEqual(done.returncode, 0, done)
        self.assert_equal_answers(*(varve.dataset(paths, engine=engine) for engine in ("sqlite", "duckdb", "dask")),
                                  varve.dataset(out), varve.dataset(out, engine="dask"))
        self.assertEqual(set(varve.dataset(paths).peaks().run), {"a/trace", "b/trace"})
        self.assertEqual(varve.dataset(paths).callsites().traces.max(), 2)
        self.assertEqual(set(varve.dataset([paths[0], self.paths[1]]).peaks().run), {"trace", "rank001"})
        self.assertEqual(len(varve.dataset([paths[0], os.path.relpath(paths[0])]).paths), 1)

    def test_folders_above(self):
        """Their names are not the dataset's, whatever they are."""
        views = ["callsite_total_process", "total_process", "leak_line", "timeline_process"]
        out = os.path.join(self.folder, "run=other", "rank=7", "device=3", "it's [1] + é", "runs")
        varve.to_parquet(self.paths[0], out, views, run="rank000")
        varve.to_parquet(self.paths[1], out, views, run="a/b=c+%41")
        duckdb, dask = varve.dataset(out), varve.dataset(out, engine="dask")
        self.assert_equal_answers(duckdb, dask)
        self.assertEqual(set(duckdb.peaks().run), {"rank000", "a/b=c+%41"})
        one, expected = duckdb.peaks(), varve.dataset(self.paths[0]).peaks()
        self.assertEqual(one[one.run == "rank000"].reset_index(drop=True).to_json(), expected.to_json())

    def test_relative_paths(self):
        before = os.getcwd()
        self.addCleanup(os.chdir, before)
        os.chdir(self.folder)
        shutil.copy(os.path.join(HISTORIES, "synthetic_oom.pickle.xz"), "-x.pickle.xz")
        table = varve.sweep("-x.pickle.xz", varve=recording.VARVE)
        self.assertTrue(table.error.isna().all(), list(table.error))
        self.assertEqual(list(table.trace), [os.path.join(os.getcwd(), "-x.pickle.xz")])
        self.assertEqual(varve.dataset("rank000.db", engine="dask").paths, [os.path.join(os.getcwd(), "rank000.db")])
        self.assertEqual(varve.dataset("runs", engine="dask").directory, os.path.join(os.getcwd(), "runs"))

    def test_names_that_are_no_text(self):
        path = os.path.join(self.folder, os.fsdecode(b"h\xff#?% ;.db"))
        shutil.copy(self.paths[0], path)
        try:
            answers = [varve.dataset(path, engine=engine).peaks() for engine in ("sqlite", "duckdb", "dask")]
        finally:
            os.remove(path)
        self.assertEqual({run for answer in answers for run in answer.run}, {"h\\xff#?% ;"})

    def test_damaged_files(self):
        folder = os.path.join(self.folder, "damaged")
        place = os.path.join(folder, "view=total_process", "run=a", "rank=0", "device=-1")
        os.makedirs(place)

        def assert_refused(*words):
            for ask in (varve.dataset(folder).peaks, varve.dataset(folder, engine="dask").peaks,
                        lambda: varve.dataset(folder).sql("SELECT * FROM total_process")):
                with self.assertRaises(varve.TraceError) as caught:
                    ask()
                text = str(caught.exception)
                self.assertEqual([word for word in words if word not in text] + text.splitlines()[1:], [], text)

        assert_refused("no Parquet files")
        with open(os.path.join(place, "part-0.parquet"), "wb") as stream:
            stream.write(b"PAR1xxxx")
        assert_refused("part-0.parquet")
        varve.to_parquet(self.paths[1], folder, ["total_process"])
        with open(os.path.join(place, "part-0.parquet"), "wb") as stream:
            stream.write(b"PAR1" + bytes(100) + b"PAR1")
        assert_refused("part-0.parquet")
        shutil.rmtree(os.path.dirname(os.path.dirname(place)))
        varve.to_parquet(self.paths[0], folder, ["total_process"], format="arrow")
        assert_refused("Arrow file", "run=rank000")

    def test_no_scheduler(self):
        import dask
        address = "tcp://127.0.0.1:9"
        with dask.config.set({"distributed.comm.timeouts.connect": "1s"}):
            for ask in (varve.dataset(self.paths[:1], engine="dask", scheduler=address).peaks,
                        lambda: varve.sweep(self.paths[:1], varve=recording.VARVE, scheduler=address)):
                with self.assertRaisesRegex(varve.TraceError, address):
                    ask()

    def test_bad_input(self):
        other = os.path.join(self.folder, "other.txt")
        with open(other, "w", encoding="utf-8") as stream:
            stream.write("nothing")
        for make, word in ((lambda: varve.dataset(other), "not a trace"),
                           (lambda: varve.dataset(os.path.join(self.folder, "*.none")), "no such"),
                           (lambda: varve.dataset([]), "no traces"), (lambda: varve.dataset(self.folder), "view="),
                           (lambda: varve.dataset(self.paths, engine="spark"), "dask"),
                           (lambda: varve.dataset(self.parquet, engine="sqlite"), "databases"),
                           (lambda: varve.dataset(self.parquet).sql("SELECT nothing"), "nothing"),
                           (lambda: varve.dataset(self.parquet).timeline(0), "1 ns"),
                           (lambda: varve.dataset(self.parquet).stragglers("week"), "within")):
            with self.assertRaisesRegex(varve.TraceError, word):
                make()

    def test_sweep(self):
        import pandas
        histories = [os.path.join(HISTORIES, f"{name}.pickle.xz") for name in ("synthetic_oom", "multistream_record")]
        table = varve.sweep([*histories, self.paths[0]], ["pytorch", "first-fit", "nothing"],
                            [None, "max_split_size_mb:32"], varve=recording.VARVE)
        self.assertEqual(len(table), 3 * 3 * 2)
        failed = table[table.error.notna()]
        self.assertEqual(set(failed.policy[failed.trace.isin(histories)]), {"nothing"})
        self.assertEqual(len(failed), 2 * 2 + 3 * 2)  # a heap has no caching allocator
        self.assertTrue(failed.error.str.contains("nothing|no ").all(), list(failed.error))
        for _, row in table[table.error.isna()].iterrows():
            options = ["--conf", row.conf] if isinstance(row.conf, str) else []
            outcome = recording.varve("compare", "--json", "--policies", row.policy, *options, row.trace)
            told = recording.json_lines(outcome.out.strip("[]\n"))[0]
            self.assertEqual((row.peak_reserved, row.load_bytes, row.ooms),
                             (told["peak_reserved"], told["load_bytes"], told["ooms"]))
        again = varve.sweep(histories, ["pytorch"], varve=recording.VARVE)
        pandas.testing.assert_series_equal(again.peak_reserved,
                                           table[(table.policy == "pytorch") & table.conf.isna()].peak_reserved[:2],
                                           check_index=False)
        bound = varve.sweep(histories, command="bound", varve=recording.VARVE)
        self.assertTrue((bound.placement_bytes >= bound.bound_bytes).all())
        lost = varve.sweep(histories[:1], varve="/no/varve")
        self.assertIn("/no/varve", lost.error[0])


if __name__ == "__main__":
    recording.main()
