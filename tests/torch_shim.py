# SPDX-License-Identifier: Apache-2.0
"""What the tests of the Python side of `varve record --torch` share: programs run with a torch that is none
(programs/fake_torch), and with the allocator of libvarve-torch.so on the host. What only the real PyTorch can show is
in tests/gpu."""

import json
import os
import sys
import textwrap

import recording

SHIM = os.path.join(recording.ROOT, "alloc", "frontend", "python")
FAKE = os.path.join(recording.ROOT, "tests", "programs", "fake_torch")
LIBRARY = os.environ.get("VARVE_TORCH_LIBRARY") or os.path.join(os.path.dirname(recording.VARVE), "libvarve-torch.so")
FAKE_LIBRARY = recording.program("torch_fake/libtorch_cuda.so")
OTHERS = ("VARVE_", "PYTHON", "PYTORCH_", "FAKE_", "LD_PRELOAD", "CUDA_")


class Shim(recording.Case):
    def setUp(self):
        super().setUp()
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith(OTHERS)}
        self.environment.update(PYTHONPATH=os.pathsep.join([SHIM, FAKE]), PYTHONDONTWRITEBYTECODE="1")

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(textwrap.dedent(text))
        return path

    def python(self, text, *arguments, status=0, **environment):
        """Run a program; its `result`, which it need not print itself, and its lines on stderr."""
        text = "import json, os, sys\nresult = {}\n" + textwrap.dedent(text) + \
            "\nprint(\"result:\", json.dumps(result), flush=True)\n"
        outcome = recording.run([sys.executable, self.write("program.py", text), *arguments], cwd=self.folder,
                                env={**self.environment, **environment})
        self.assertEqual(outcome.returncode, status, outcome)
        said = [line for line in outcome.out.splitlines() if line.startswith("result: ")]
        return (json.loads(said[-1].partition(" ")[2]) if said else None), outcome.err.splitlines()


class OnVarve(Shim):
    """VARVE_TORCH=allocate with the real library."""

    def setUp(self):
        super().setUp()
        if not os.path.exists(LIBRARY):
            self.skipTest(f"{LIBRARY} is not built")
        if recording.IS_SANITIZED:
            self.skipTest("a sanitized library does not load into a plain Python")
        self.environment.update(VARVE_TORCH="allocate", VARVE_TORCH_LIBRARY=LIBRARY, VARVE_TORCH_DEVICE="host",
                                FAKE_TORCH_LIBRARY=FAKE_LIBRARY)
