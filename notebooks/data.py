#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the notebooks look at, made from this source tree: recordings of the programs in tests/programs, replays of the
histories in tests/conformance/pytorch, and operator logs of made-up training steps. A function returns the path of what
it names, in build/notebooks, and makes it first where it is missing or older than what it is made of.

usage: data.py        makes all of it, some 15 s
"""

import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys

TREE = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("VARVE_BUILD_DIR", TREE / "build"))
VARVE = pathlib.Path(os.environ.get("VARVE", BUILD / "varve"))
FOLDER = BUILD / "notebooks"
PROGRAMS = TREE / "tests" / "programs"
PYTORCH = TREE / "tests" / "conformance" / "pytorch"
# the one that has numpy in CI
PYTHON = "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else sys.executable


def is_made(path, *sources):
    return path.exists() and all(path.stat().st_mtime >= source.stat().st_mtime
                                 for source in (VARVE, pathlib.Path(__file__), *sources))


def varve(*arguments, command=VARVE, **environment):
    """Runs the command; CalledProcessError, after its message, where it fails."""
    subprocess.run([command, *arguments], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                   env={**os.environ, **environment})


def answer(*arguments, command=VARVE):
    """What `varve … --json` answers, as Python objects. CalledProcessError where it fails, with its
    message in `stderr`."""
    return json.loads(subprocess.run([command, *arguments, "--json"], check=True, stdin=subprocess.DEVNULL,
                                     capture_output=True).stdout)


# ---- recordings ----

def record(name, program, *arguments, options=(), **environment):
    path = FOLDER / name
    if not is_made(path, program):
        path.parent.mkdir(parents=True, exist_ok=True)
        varve("record", "--quiet", "--force", "-o", path, *options, "--", PYTHON, program, *arguments, **environment)
    return path


def demo():
    """The program of `./dev demo`: four threads, matrices and JSON."""
    return record("demo.db", PROGRAMS / "demo_numpy.py")


def service():
    """A service that leaks, with each object of Python's own allocator."""
    return record("service.db", PROGRAMS / "python" / "leaky_service.py", "dict", "1", options=["--python-allocators"])


def ranks(count=64):
    """The folder of a training's traces, one file a rank."""
    folder = FOLDER / f"ranks{count}"

    def record_rank(rank):
        record(f"{folder.name}/rank{rank:04}.db", PROGRAMS / "python" / "training_rank.py",
               options=["--heap", "--stacks", "python"], RANK=str(rank), WORLD_SIZE=str(count))

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(record_rank, range(count)))
    return folder


# ---- histories of PyTorch's allocator ----

def history(name):
    """A snapshot, as PyTorch wrote it."""
    return PYTORCH / f"{name}.pickle.xz"


def training(name="gpt2_train"):
    """A snapshot replayed: with the splits, merges and causes that it does not hold."""
    path = FOLDER / f"{name}.db"
    if not is_made(path, history(name)):
        FOLDER.mkdir(parents=True, exist_ok=True)
        varve("replay", "--force", "-o", path, history(name))
    return path


def command_with_policy(name, source):
    """A command `varve` that has one policy more, in C, called `name`: what a file in alloc/policy and a line in
    policy.h would make of this tree, made beside it from the objects of the build. CalledProcessError, after the
    compiler's messages."""
    folder = FOLDER / f"policy_{name}"
    (folder / "alloc" / "policy").mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.c").write_text(source, encoding="utf-8")
    header = (TREE / "alloc" / "policy" / "policy.h").read_text(encoding="utf-8")
    last = '    X(none, "none")\n'
    if header.count(last) != 1:
        raise ValueError("POLICY_LIST of alloc/policy/policy.h does not end as it did")
    with_entry = header.replace(last, f'{last.rstrip()} \\\n    X({name}, "{name}")\n')
    (folder / "alloc" / "policy" / "policy.h").write_text(with_entry, encoding="utf-8")  # found before the tree's
    objects = []
    alloc = TREE / "alloc"
    for file in (folder / f"{name}.c", alloc / "policy" / "policy.c", alloc / "core" / "allocator_open.c"):
        objects.append(folder / f"{file.stem}.o")
        subprocess.run(["cc", "-std=c11", "-O2", "-Wall", "-fvisibility=hidden", "-D_GNU_SOURCE", f"-I{folder}",
                        f"-I{TREE}", "-c", file, "-o", objects[-1]], check=True)
    link = subprocess.run(["ninja", "-C", BUILD, "-t", "commands", "-s", "varve"], check=True, capture_output=True,
                          text=True).stdout
    words = [word for word in link.replace(": && ", "").replace(" && :", "").split()
             if "varve_alloc_objects.dir" not in word]
    at = words.index("-o")
    made = folder / "varve"
    words[at:at + 2] = [*map(str, objects), "-o", str(made)]
    words.insert(words.index("storage/libvarve_remat.a") + 1, "alloc/libvarve_alloc.a")
    subprocess.run(words, cwd=BUILD, check=True)
    return made


# ---- operator logs ----

class TrainingStep:
    """Writes DTR's format: a forward pass by calls of `operator`, then the backward pass that follows from it. Times
    are what a GPU of 400 Tflop/s and 2 TB/s would take, in ns."""

    def __init__(self):
        self.lines, self.tape, self.sizes = [], [], {}
        self.line("ANNOTATE", ANNOTATION="START")

    def line(self, instruction, **keys):
        self.lines.append(json.dumps({"INSTRUCTION": instruction, **keys}, sort_keys=True, separators=(",", ":")))

    def constant(self, size):
        name = f"x{len(self.sizes)}"
        self.sizes[name] = size
        self.line("CONSTANT", NAME=name)
        self.line("MEMORY", NAME=name, MEMORY=str(size))
        return name

    def call(self, name, arguments, sizes, flops):
        results = [f"x{len(self.sizes) + number}" for number in range(len(sizes))]
        self.sizes.update(zip(results, sizes))
        moved = sum(sizes) + sum(self.sizes[argument] for argument in arguments)
        self.line("CALL", NAME=name, ARGS=arguments, RESULT=results,
                  TIME=str(int(4000 + max(flops / 400e12, moved / 2e12) * 1e9)))
        for result in results:
            self.line("MEMORY", NAME=result, MEMORY=str(self.sizes[result]))
            self.line("ALIAS", NAME=result, ALIAS="-1")
        return results

    def operator(self, name, inputs, size, flops=0, weight=0):
        weights = [self.constant(weight)] if weight else []
        (output,) = self.call(name, inputs + weights, [size], flops)
        self.tape.append((name, inputs, weights, output, flops))
        return output

    def backward(self):
        """An operator's backward takes its inputs and the gradient of its output; then the output is not needed any
        more. Gradients of weights stay, for the optimizer."""
        self.line("ANNOTATE", ANNOTATION="BACKWARD")
        gradients = {self.tape[-1][3]: self.call("loss_backward", [self.tape[-1][3]], [self.sizes[self.tape[-1][3]]],
                                                 0)[0]}
        made = {entry[3] for entry in self.tape}
        for name, inputs, weights, output, flops in reversed(self.tape):
            self.line("RELEASE", NAME=output)
            gradient, wanted = gradients.pop(output), [value for value in inputs if value in made]
            new = self.call(f"{name}_backward", inputs + weights + [gradient],
                            [self.sizes[value] for value in wanted + weights], 2 * flops)
            self.line("RELEASE", NAME=gradient)
            for value, part in zip(wanted, new):
                if value in gradients:
                    (total,) = self.call("add", [gradients[value], part], [self.sizes[value]], 0)
                    self.line("RELEASE", NAME=gradients[value])
                    self.line("RELEASE", NAME=part)
                    part = total
                gradients[value] = part

    def write(self, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(self.lines) + "\n", encoding="ascii")
        return path


def transformer_log(layers=12, batch=8, length=1024, width=768, heads=12):
    """A decoder's step in half precision, with attention as separate operators: a few of them have most
    of the bytes."""
    step, token, tokens = TrainingStep(), 2 * width, batch * length
    value = step.operator("embed", [step.constant(8 * tokens)], tokens * token, weight=50257 * token)
    for _ in range(layers):
        normed = step.operator("layer_norm", [value], tokens * token)
        qkv = step.operator("qkv", [normed], 3 * tokens * token, 6 * tokens * width**2, 3 * width * token)
        scores = step.operator("scores", [qkv], 2 * batch * heads * length**2, 2 * batch * length**2 * width)
        weights = step.operator("softmax", [scores], 2 * batch * heads * length**2)
        context = step.operator("context", [weights, qkv], tokens * token, 2 * batch * length**2 * width)
        projected = step.operator("project", [context], tokens * token, 2 * tokens * width**2, width * token)
        value = step.operator("add", [value, projected], tokens * token)
        normed = step.operator("layer_norm", [value], tokens * token)
        hidden = step.operator("up", [normed], 4 * tokens * token, 8 * tokens * width**2, 4 * width * token)
        active = step.operator("gelu", [hidden], 4 * tokens * token)
        down = step.operator("down", [active], tokens * token, 8 * tokens * width**2, 4 * width * token)
        value = step.operator("add", [value, down], tokens * token)
    step.backward()
    return step.write(FOLDER / "transformer.log")


def resnet_log(batch=64):
    """ResNet-50 in half precision: sizes fall from stage to stage, and an operator's cost has little to do
    with its size."""
    step = TrainingStep()

    def convolve(value, side, inputs, outputs, kernel):
        flops = 2 * batch * side**2 * inputs * outputs * kernel**2
        made = step.operator("conv", [value], 2 * batch * side**2 * outputs, flops, 2 * inputs * outputs * kernel**2)
        return step.operator("batch_norm", [made], 2 * batch * side**2 * outputs)

    def relu(value):
        return step.operator("relu", [value], step.sizes[value])

    value, inputs = relu(convolve(step.constant(2 * batch * 3 * 224**2), 112, 3, 64, 7)), 64
    value = step.operator("max_pool", [value], 2 * batch * 64 * 56**2)
    for side, width, blocks in ((56, 64, 3), (28, 128, 4), (14, 256, 6), (7, 512, 3)):
        for block in range(blocks):
            skip = convolve(value, side, inputs, 4 * width, 1) if block == 0 else value
            inner = relu(convolve(value, side, inputs, width, 1))
            inner = relu(convolve(inner, side, width, width, 3))
            inner = convolve(inner, side, width, 4 * width, 1)
            value, inputs = relu(step.operator("add", [inner, skip], step.sizes[inner])), 4 * width
    step.backward()
    return step.write(FOLDER / "resnet50.log")


def main():
    if not VARVE.exists():
        sys.exit(f"data.py: {VARVE} is missing; ./dev build makes it")
    for make in (demo, service, training, lambda: training("resnet50_train_stacks"), transformer_log, resnet_log,
                 ranks):
        print(make())


if __name__ == "__main__":
    main()
