# SPDX-License-Identifier: Apache-2.0
"""`varve record --torch` puts this folder in front of PYTHONPATH, so that every Python of the program runs this file at
its start. It waits for the program's own `import torch`, lets the package varve_torch act then, and hands over to the
sitecustomize that would have run without it. A program without torch pays one comparison per import. `varve attach
--torch` has its recorder run it in a Python that runs already.

Nothing here may fail the program: what goes wrong is one line on stderr. The syntax is that of all Pythons, since a
program may start an old one, in which only the handing over happens.
"""

import os
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))
MODES = ("allocate", "observe", "profiler")


def say(error):
    try:
        text = " ".join(("%s: %s" % (type(error).__name__, error)).split())
        sys.stderr.write("varve: PyTorch runs as if --torch were not there: %s\n" % text)
    except Exception:  # no stderr, or one that refuses: there is nowhere left to write
        pass


class TorchFinder(object):
    """First in sys.meta_path until torch is there: finds it by the other finders and acts when it has been executed."""

    is_varve_torch = True

    def __init__(self):
        self.is_searching = False

    def find_spec(self, name, path=None, target=None):
        if name != "torch" or self.is_searching:
            return None
        self.is_searching = True
        try:
            return self.find_torch(name, path, target)
        finally:
            self.is_searching = False

    def find_torch(self, name, path, target):
        for finder in list(sys.meta_path):
            find_spec = getattr(finder, "find_spec", None)
            spec = find_spec(name, path, target) if find_spec and finder is not self else None
            if spec is not None:
                try:
                    self.follow(spec.loader)
                except Exception as error:
                    say(error)
                return spec
        return None

    def follow(self, loader):
        """The loader itself stays, others ask it for sources and resources: only this one call is another."""
        execute = loader.exec_module

        def exec_module(module):
            del loader.exec_module
            execute(module)
            self.torch_is_there(module)

        loader.exec_module = exec_module

    def torch_is_there(self, torch):
        try:
            sys.meta_path.remove(self)
            import_package().start(torch)
        except Exception as error:
            say(error)


def import_package():
    """varve_torch from beside this file, whatever the program has made of sys.path."""
    import importlib.machinery
    import importlib.util

    if "varve_torch" not in sys.modules:
        spec = importlib.machinery.PathFinder.find_spec("varve_torch", [FOLDER])
        if spec is None:
            raise ImportError("no package varve_torch in " + FOLDER)
        sys.modules["varve_torch"] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(sys.modules["varve_torch"])
        except BaseException:
            del sys.modules["varve_torch"]
            raise
    return sys.modules["varve_torch"]


def wait_for_torch():
    is_waiting = any(getattr(finder, "is_varve_torch", False) for finder in sys.meta_path)
    if os.environ.get("VARVE_TORCH") in MODES and sys.version_info >= (3, 8) and not is_waiting:
        sys.meta_path.insert(0, TorchFinder())


def hand_over():
    """Run the sitecustomize behind this one under its own name; its errors go to the interpreter, as ever."""
    mine = sys.modules.pop(__name__, None)
    positions = [index for index, path in enumerate(sys.path) if os.path.abspath(path) == FOLDER]
    for index in reversed(positions):
        del sys.path[index]
    try:
        __import__("sitecustomize")
    except ImportError as error:
        sys.modules[__name__] = mine
        if getattr(error, "name", "sitecustomize") != "sitecustomize":
            raise
    finally:
        if positions and FOLDER not in sys.path:
            sys.path.insert(min(positions[0], len(sys.path)), FOLDER)


if __name__ == "sitecustomize":
    try:
        wait_for_torch()
    except Exception as problem:
        say(problem)
    hand_over()
elif __name__ == "varve_attach":
    try:
        import_package()
        from varve_torch import attached

        attached.run(SESSION, VARIABLES)  # noqa: F821
    except Exception as problem:
        with open(os.path.join(SESSION, "torch.answer"), "w") as stream:  # noqa: F821
            stream.write("failed: %s: %s" % (type(problem).__name__, problem))
