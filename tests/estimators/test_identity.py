"""How code is known again: in all files of a user, in every process, whatever it refers to."""

from __future__ import annotations

import functools
import importlib
import json
import subprocess
import sys
import textwrap
import time
import types

import numpy as np
import pytest
import torch

from deeptram.estimators.identity import identity

LAYERS = """
import augs_of_test
import numpy as np

SCALE = 2
CACHE = {}

def act(x):
    return SCALE * x

def other(x):
    return x

class Base:
    def forward(self, x):
        return act(x)

class Block(Base):
    def __init__(self, n):
        self.n = n

    @staticmethod
    def start(x):
        return x + 1

    @classmethod
    def make(cls, n):
        return cls(n + 1)

    @property
    def half(self):
        return self.n / 2

BLOCK = Block(3)
ROUNDED = __import__("functools").partial(round, ndigits=1)
SMALL = __import__("functools").partial(act, 1)
"""
AUGS = """
import functools
import layers_of_test

def deep(x):
    return x + 1

def jitter(x):
    return deep(x) + len(layers_of_test.other("a"))

@functools.lru_cache
def cached(x):
    return x + 5
"""
MAIN = """
import augs_of_test as augs
import layers_of_test
import numpy as np
from layers_of_test import BLOCK, CACHE, SMALL, Block, act

USES = {
    "name": lambda x: act(x),
    "class": lambda x: Block(3).forward(x),
    "module": lambda x: augs.jitter(x),
    "constant": lambda x: x * layers_of_test.SCALE,
    "chain": lambda x: augs.layers_of_test.act(x),
    "comprehension": lambda x: [act(one) for one in x],
    "nested": lambda x: (lambda y: augs.jitter(y))(x),
    "object": lambda x: BLOCK.forward(x),
    "partial": lambda x: SMALL(),
    "cached": lambda x: augs.cached(x),
    "getattr": lambda x: getattr(augs, "jit" + "ter")(x),
    "default": lambda x, f=act: f(x),
    "cache": lambda x: CACHE.setdefault(x, 1),
    "installed": lambda x: np.exp(x),
}

def local(x):
    from augs_of_test import jitter
    return jitter(x)

def local_module(x):
    import layers_of_test
    return layers_of_test.act(x)

class Held:
    def __init__(self, module):
        self.module = module

USES["local"], USES["local module"], USES["held"] = local, local_module, Held(augs)
"""
FILES = {"layers_of_test": LAYERS, "augs_of_test": AUGS, "main_of_test": MAIN}
ACT = {"name", "class", "chain", "comprehension", "object", "partial", "default", "local module"}
CLASS = {"class", "object"}
JITTER = {"module", "nested", "getattr", "local", "held"}
CHANGES = {
    "body": ("layers_of_test", "return SCALE * x", "return SCALE + x", ACT),
    "constant": ("layers_of_test", "SCALE = 2", "SCALE = 3", ACT | {"constant"}),
    "called": ("augs_of_test", "return x + 1", "return x + 2", JITTER),
    "called far away": ("layers_of_test", "return x\n", "return [x]\n", JITTER),
    "lru_cache": ("augs_of_test", "x + 5", "x + 6", {"cached"}),
    "static method": ("layers_of_test", "return x + 1", "return x + 2", CLASS),
    "class method": ("layers_of_test", "cls(n + 1)", "cls(n + 2)", CLASS),
    "property": ("layers_of_test", "self.n / 2", "self.n / 3", CLASS),
    "state": ("layers_of_test", "Block(3)", "Block(4)", {"object"}),
    "comment": ("layers_of_test", "def act", "# moves the lines\n\n\ndef act", set()),
    "filled": ("layers_of_test", "CACHE = {}", "CACHE = {1: 2}", set()),
}
# Whole files or modules count where it cannot be told what is used of them.
WHOLE_FILE = {"local": set(FILES) - {"main_of_test"}, "local module": {"layers_of_test", "augs_of_test"}}
WHOLE_FILE |= {"held": {"augs_of_test"}, "getattr": {"augs_of_test"}}


@pytest.fixture
def identities(tmp_path, monkeypatch):
    """Return a function that writes the files, imports them and returns identities of all uses."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def imported(**sources):
        for name, source in {**FILES, **sources}.items():
            (tmp_path / f"{name}.py").write_text(source)
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        uses = importlib.import_module("main_of_test").USES
        return {name: identity(use) for name, use in uses.items()}

    yield imported
    for name in FILES:
        sys.modules.pop(name, None)


@pytest.mark.parametrize("change", CHANGES)
def test_code_in_other_files_of_the_user_counts(identities, change):
    file, before, after, expected = CHANGES[change]
    assert before in FILES[file]
    one, other = identities(), identities(**{file: FILES[file].replace(before, after)})
    changed = {name for name in one if one[name] != other[name]}
    whole = {name for name, files in WHOLE_FILE.items() if file in files}
    assert expected - changed == set()
    assert changed - expected - whole == set()
    if change == "comment":
        assert changed == set()


def test_which_name_stands_for_which_thing_counts(identities):
    both = "[lambda x: (layers_of_test.act(x), layers_of_test.other(x)), lambda x: (act(x), other(x))]"
    straight = MAIN.replace("lambda x: act(x)", both).replace("Block, act", "Block, act, other")
    swapped = straight.replace("Block, act, other", "Block, act as other, other as act")
    assert identities(main_of_test=straight)["name"] != identities(main_of_test=swapped)["name"]


def test_all_processes_agree(identities, tmp_path):
    here = identities()
    script = "import json, main_of_test as m; from deeptram.estimators.identity import identity as i;"
    script += "print(json.dumps({name: i(use) for name, use in m.USES.items()}))"
    for seed in ("1", "2"):
        environment = {"PYTHONPATH": f"{tmp_path}:{':'.join(filter(None, sys.path))}", "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment
        )
        assert json.loads(done.stdout) == here


def defined(name, source):
    """Return the module of a text, as one of the user's."""
    module = types.ModuleType(name)
    exec(textwrap.dedent(source), vars(module))
    return module


def test_many_functions_that_call_each_other_take_no_time():
    calls = ", ".join(f"f{i}(x)" for i in range(30))
    source = "\n".join(f"def f{i}(x):\n    return {i}, {calls}" for i in range(30))
    start = time.perf_counter()
    one, same = (identity(defined("many", source).f0) for _ in range(2))
    other = identity(defined("many", source.replace("return 29,", "return -29,")).f0)
    assert one == same != other
    assert time.perf_counter() - start < 20


def test_long_chains_are_followed_to_their_end():
    source = "\n".join(f"def f{i}(x):\n    return f{i + 1}(x)" for i in range(1000))
    ends = ("\ndef f1000(x):\n    return x", "\ndef f1000(x):\n    return -x")
    one, other = (identity(defined("chain", source + end).f0) for end in ends)
    assert one != other


def test_nested_and_circular_objects_end():
    def nest(depth, core):
        return functools.reduce(lambda inner, _: [inner], range(depth), core)

    assert identity(nest(2000, 1)) == identity(nest(2000, 1)) != identity(nest(2000, 2))
    circle = [[]]
    functools.reduce(lambda inner, _: inner.append([]) or inner[-1], range(500), circle[0]).append(circle)
    assert identity(circle)


def test_addresses_do_not_count():
    one, same = ({object(): 1} for _ in range(2))
    assert identity(one) == identity(same)
    held = [identity(lambda one=one: len(one)) for one in (one, same)]
    assert held[0] == held[1]


def test_a_cell_that_is_still_empty():
    def outer():
        def inner():
            return late

        found = identity(inner)
        late = 1
        return found

    assert len(outer()) == 64


def test_installed_modules_count_by_name():
    held = [identity(types.SimpleNamespace(module=module)) for module in (np, torch, json, np)]
    assert held[0] == held[3]
    assert len(set(held)) == 3


def test_a_file_named_like_one_of_python_is_the_users(tmp_path, monkeypatch):
    found = []
    for body in ("x + 1", "x + 2"):
        module = defined("this", f"def f(x):\n    return {body}")
        module.__file__ = str(tmp_path / "this.py")
        monkeypatch.setitem(sys.modules, "this", module)
        found.append(identity(module.f))
    assert found[0] != found[1]


def test_where_a_class_is_defined_may_be_left_out():
    source = "class Net:\n    def forward(self, x):\n        return x"
    here, there = defined("here", source).Net, defined("there", source).Net
    assert identity(here) != identity(there)
    assert identity(here, places=False) == identity(there, places=False)
    other = defined("here", source.replace("return x", "return -x")).Net
    assert identity(here, places=False) != identity(other, places=False)
