"""No code from strings: formulas, column names and stored formulas that try to run something.

Whatever a string holds, either a deeptram error is raised or it is a harmless
formula. That nothing was run is seen from outside: the interpreter's audit
events (a code object executed, a module imported, a process or file opened)
stay away while the string is handled, and a canary file is not made.
"""

from __future__ import annotations

import copy
import json
import os
import random
import re
import sys
import time
import warnings

import numpy as np
import pandas as pd
import pytest

import deeptram as dt
from deeptram.errors import DeeptramError, DeeptramWarning, FileFormatError
from deeptram.inputs import LinearEncoder
from deeptram.model import persistence

N = 60
WATCHED = (
    "exec",
    "import",
    "open",
    "os.",
    "subprocess.",
    "socket.",
    "pty.",
    "shutil.",
    "ctypes.",
    "pickle.",
    "code.",
)
RUN = "__import__('os').system('touch CANARY')"
OPEN = "open('CANARY', 'w')"
B = "`"

ATTACKS = [
    # backticks that hide the rest from a textual check
    f'C(x, levels=["{B}", {RUN}, "{B}"])',
    f"C(x, levels=['{B}', {RUN}, '{B}'])",
    f'C(x, levels=["{B}"]) + {{{RUN}}} + C(x, levels=["{B}"])',
    f"{B}x{B} + {{{RUN}}}",
    f"log({B}x{B} + {RUN})",
    f"bs(x, knots=[1, {B}2{B}, {RUN}])",
    f"log({B}x, {RUN}{B})",
    f"{B}{B}{B} + {{{RUN}}} + {B}",
    f'{{"{B}" + {RUN} + "{B}"}}',
    f"Q('{B}') + {{{RUN}}} + Q('{B}')",
    # comments
    f"log(x) # {RUN}",
    f"{{{RUN} # }}\n}}",
    f"log(x #{B}\n + {RUN} #{B}\n)",
    f"bs(x, # ' \n df={RUN})",
    # strings inside strings, prefixes, escapes
    f"I(f'{{{RUN}}}')",
    "np.where(x > 0, f'{" + RUN.replace("'", '"') + "}', 'b')",
    f"C(x, levels=[r'\\', {RUN}])",
    f"C(x, levels=['\\'', {RUN}, '\\''])",
    f"C(x, levels=['''{B}''', {RUN}])",
    f'C(x, levels=["""{B}""", {RUN}, """{B}"""])',
    f"C(x, levels=[b'a', {RUN}])",
    "C(x, levels=['\\x5f\\x5fimport\\x5f\\x5f'])",
    "C(x, '__FORMULAIC_STATE__')",
    'bs(x, knots="\\") or ' + RUN + ' or (\\"")',
    # Python that is more than an expression in columns
    f"(lambda: {RUN})()",
    f"I((lambda: {RUN})())",
    f"I([{RUN} for _ in x])",
    f"I({{{RUN} for _ in x}})",
    f"I(sum({RUN} for _ in x))",
    f"I((y := {RUN}))",
    f"I({RUN} if True else x)",
    f"I(x or {RUN})",
    f"I(x[{RUN}])",
    f"bs(x, *[{RUN}])",
    f"bs(x, **{{'df': {RUN}}})",
    f"bs(x, df={RUN})",
    f"poly({RUN}, 2)",
    f"I(await {RUN})",
    f"I((yield {RUN}))",
    f"I(not {RUN})",
    f"I(x < {RUN} < z)",
    f"I(x in [{RUN}])",
    f"I(x @ {RUN})",
    # names and attributes that lead out
    RUN,
    "{" + RUN + "}",
    "exec('" + RUN.replace("'", '"') + "')",
    "eval('" + RUN.replace("'", '"') + "')",
    f"compile({RUN!r}, '', 'eval')",
    OPEN,
    "x.to_csv('CANARY')",
    "I(x.tofile('CANARY'))",
    "x.__class__.__base__.__subclasses__()(x)",
    "I(().__class__.__mro__[1].__subclasses__())",
    "I(''.__class__.__mro__)",
    "np.__config__.show()",
    "np.load('CANARY')",
    "np.save('CANARY', x)",
    "np.savetxt('CANARY', x)",
    "np.fromfile('CANARY')",
    "np.memmap('CANARY', mode='w+', shape=10)",
    "np.vectorize(print)(x)",
    "np.frompyfunc(print, 1, 1)(x)",
    "np.lib.npyio.os.system('touch CANARY')",
    "np.log(x, out=z)",
    "np.log(x, z)",
    "np.where.__globals__",
    "log.__class__(x)",
    "bs.__globals__['sys'](x)",
    "bs.__wrapped__.__globals__(x)",
    "C.__globals__['__builtins__']['exec'](x)",
    "contr.__class__(x)",
    f"C(g, contr.custom({RUN}))",
    f"C(g, contr.treatment({RUN}))",
    f"C(g, contr.treatment(base={RUN}))",
    f"C(g, Treatment({RUN}))",
    f"C(g, contr.poly(scores=[{RUN}]))",
    f"C(g, contr.__subclasses__()[0]({RUN}))",
    f"C(g, {{'a': [{RUN}, 1]}})",
    f"C(g, {{{RUN}: [0, 1]}})",
    f"C(g, lambda *a: {RUN})",
    f"C(g, levels={RUN})",
    "Q(" + RUN + ")",
    f"Q('x', _context={RUN})",
    f"Q(variable={RUN})",
    "hashed(x, levels=3)",
    f"hashed(x, levels=3, hash_func=lambda v: {RUN})",
    "lag(x)",
    f"I({RUN})",
    f"scale(x, center={RUN})",
    f"center({RUN})",
    f"standardize(x, ddof={RUN})",
    f"bs(x, _state={{'knots': {RUN}}})",
    f"bs(x, _spec={RUN}, df=4)",
    f"bs(x, _context={RUN}, df=4)",
    f"bs(x, _metadata={RUN}, df=4)",
    "__FORMULAIC_CONTEXT__",
    "{__FORMULAIC_SPEC__}",
    "I(__FORMULAIC_STATE__)",
    f"__FORMULAIC_METADATA__.get({RUN})",
    "__formulaic_variables_available__",
    "I(__builtins__)",
    "I(__loader__)",
    "encode_contrasts(x)",
    # the two sides and stages of formulaic's own language: its parser evaluates functions of left-hand sides
    f"({RUN})(x) ~ z",
    f"log(x)({RUN}) ~ z",
    f"{{({RUN})(x)}} ~ z",
    f"Q({RUN}) ~ z",
    f"bs({RUN}) ~ z",
    f"[{RUN} ~ z] + x",
    f"[x ~ {{{RUN}}}]",
    f"x | {{{RUN}}}",
    "~ {" + RUN + "}",
    # unicode, line ends, odd spaces
    "__ｉmport__('os').system('touch CANARY')",
    "ｅｘｅｃ('import os')",
    "𝐞𝐯𝐚𝐥('1')",
    "{__imp\u00adort__('os').system('touch CANARY')}",
    f"log(x)\n+{{{RUN}}}",
    f"log(x)\r{{{RUN}}}",
    f"log(x)\u2028+{{{RUN}}}",
    f"log(x);{RUN}",
    f"{{x\n;{RUN}}}",
    f"log(x)\x00+{{{RUN}}}",
    f"log(x)\x0c+{{{RUN}}}",
    f"log(x) \\\n + {{{RUN}}}",
    f"log(\u00a0{RUN})",
    f"x{B}{RUN}{B}",
    f"x({RUN})",
    f"x{{{RUN}}}",
    f"%{RUN}% x",
    f"x %in% {{{RUN}}}",
    f"x ** ({RUN})",
    f"x ^ {{{RUN}}}",
    f"'{RUN}'",
    f'"{RUN}":x',
    f"x:{RUN}",
    f"1e9:{{{RUN}}}",
]


class Watch:
    """Audit events seen while it is on; a hook cannot be removed, so there is one for the whole process."""

    def __init__(self) -> None:
        self.is_on = False
        self.seen: list[str] = []
        sys.addaudithook(self)

    def __call__(self, event: str, arguments: object) -> None:
        if self.is_on and event.startswith(WATCHED):
            self.seen.append(f"{event} {arguments!r}")


@pytest.fixture(scope="module")
def watch():
    return Watch()


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(1)
    return pd.DataFrame(
        {
            "x": rng.gamma(3.0, size=N),
            "z": rng.normal(size=N) + 3,
            "g": rng.choice(["u", "v"], N),
            "k": rng.integers(0, 4, N),
        }
    )


@pytest.fixture(scope="module")
def y():
    return np.random.default_rng(2).integers(0, 3, N)


def fit(term, string, X, y):
    rest = [] if term is dt.LS else [dt.LS("x")]
    dt.Polr([term(string), *rest]).fit(X, y)


def load(_, string, X, y):
    """Put the string wherever a stored formula has one."""
    state = LinearEncoder.fit(X, "C(k) + bs(x, df=4):g").to_dict()
    for kind in ("python", "lookup", "literal"):
        changed = copy.deepcopy(state)
        changed["formula"]["terms"] = [[[string, kind]]]
        changed["formula"].update(transform_state={}, factors=[], calls={})
        changed["formula"]["columns"] = changed["required_columns"] = ["x"]
        attempt(lambda changed=changed: LinearEncoder.from_dict(changed).transform(X))
    for place in ("transform_state", "calls"):
        changed = copy.deepcopy(state)
        _, stored = changed["formula"][place].popitem()
        changed["formula"][place][string] = stored
        attempt(lambda changed=changed: LinearEncoder.from_dict(changed).transform(X))
    changed = copy.deepcopy(state)
    changed["formula"]["calls"]["C(k)"].update(column=string, levels=[string, "b"])
    changed["formula"]["names"] = [string]
    LinearEncoder.from_dict(changed).transform(X)


def column(_, string, X, y):
    """Let the string be the header of a column."""
    named = X.rename(columns={"z": string})
    encoder, design = LinearEncoder.fit_transform(named, [*named.columns, "bs(x, df=4)"])
    np.testing.assert_array_equal(design[:, 1], X["z"])
    assert encoder.names[1] == string
    again = LinearEncoder.from_dict(json.loads(json.dumps(encoder.to_dict())))
    np.testing.assert_array_equal(again.transform(named), design)


def attempt(run):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeeptramWarning)
            run()
    except DeeptramError as error:
        return error
    return None


ROUTES = {"LS": (fit, dt.LS), "Scale": (fit, dt.Scale), "Varying": (fit, dt.Varying)}
ROUTES |= {"stored": (load, None), "column": (column, None)}


def test_there_are_enough_attacks():
    assert len(set(ATTACKS)) == len(ATTACKS) >= 60


def test_the_watch_sees_what_it_should(watch, tmp_path):
    watch.is_on, watch.seen = True, []
    eval(compile("__import__('os').getcwd()", "", "eval"))
    (tmp_path / "a").write_text("a")
    watch.is_on = False
    assert any(event.startswith("exec ") for event in watch.seen)
    assert any(event.startswith("open ") for event in watch.seen)


@pytest.mark.parametrize("route", ROUTES)
def test_nothing_is_run(route, watch, X, y, tmp_path, monkeypatch):
    function, term = ROUTES[route]
    monkeypatch.chdir(tmp_path)
    attempt(lambda: function(term, "bs(x, df=4) + C(g) + log(z)", X, y))  # everything is imported now
    attempt(lambda: function(term, "bs(x, df=", X, y))
    accepted = []
    for attack in ATTACKS:
        watch.seen, watch.is_on = [], True
        try:
            error = attempt(lambda attack=attack: function(term, attack, X, y))
        finally:
            watch.is_on = False
        assert not watch.seen, (attack, watch.seen[:3])
        assert not os.listdir(tmp_path), attack
        if error is None:
            accepted.append(attack)
    if route in ("LS", "Scale", "Varying"):
        assert not accepted
    elif route == "column":
        assert accepted == ATTACKS  # a name is a name, whatever it holds


def test_a_saved_model_whose_digest_fits(X, y, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    dt.Polr([dt.LS("C(k) + x")]).fit(X, y).save(tmp_path / "model")
    file = tmp_path / "model" / persistence.JSON_NAME
    whole = file.read_text()
    assert whole.count('"C(k)"') == 2  # its term and its levels
    dt.load(tmp_path / "model").predict(X)
    for attack in (ATTACKS[0], RUN, "C(k, levels=[0, 1, 2, 3, 4])"):
        content = json.loads(whole.replace('"C(k)"', json.dumps(attack.replace("C(x,", "C(k,"))))
        content["sha256"] = persistence._digest(content)
        file.write_text(json.dumps(content))
        with pytest.raises(FileFormatError):
            dt.load(tmp_path / "model").predict(X)
    assert not (tmp_path / "CANARY").exists()


def test_the_command_line(X, y, tmp_path, monkeypatch):
    from click.testing import CliRunner

    from deeptram.cli.main import app

    monkeypatch.chdir(tmp_path)
    hostile = f"{B} + {{{RUN}}} + {B}"
    X.rename(columns={"z": hostile}).assign(y=y).to_csv("table.csv", index=False)
    outputs = []
    for linear in ("x + bs(k, degree=1)", ATTACKS[0], RUN, f"{B}{hostile}{B}"):
        command = [
            "fit",
            "--data",
            "table.csv",
            "--outcome",
            "y",
            "--type",
            "ordinal",
            "--levels",
            "0",
            "1",
            "2",
        ]
        result = CliRunner().invoke(app, [*command, "--linear", linear, "--out", f"model{len(outputs)}"])
        outputs.append((result.exit_code, " ".join(result.output.split())))
        assert not (tmp_path / "CANARY").exists()
    assert outputs[0][0] == 0, outputs[0]
    assert all(code == 2 and "formulas may call only" in said for code, said in outputs[1:]), outputs[1:]


EXHAUSTING = [
    ("bs(z, df=1000000)", "df of bs must be a whole number from 1 to 1000"),
    ("poly(z, 1000000)", "degree of poly must be a whole number from 0 to 100"),
    ("(x+z)**20", r"must expand to fewer terms, got 1048576 or more"),
    ("(x+z)**1000000000", r"a power in a formula must be at most 20, got 1000000000"),
    ("x**99999999", r"a power in a formula must be at most 20"),
    ("C(x, {'a': [1]*100000000})", "where a number, a string or a list"),
    ("(" * 100_000 + "x" + ")" * 100_000, "a formula may be nested at most 50 deep"),
    ("[" * 100 + "x" + "]" * 100, "a formula may be nested at most 50 deep"),
    ("I(" * 3_000 + "x" + ")" * 3_000, "may be nested at most 100 deep|too many nested parentheses"),
    ("I(" + "-" * 15_000 + "x)", "may be nested at most 100 deep"),
    ("I(x" + "+x" * 8_000 + ")", "may be nested at most 100 deep"),
    ("I(x" + "**9" * 60 + ")", "infinity"),
    ("I(9**9**9**9 + x)", "infinity"),
    ("I(" + "9" * 5_000 + " + x)", "got the constant|syntax error"),
    ("x:" * 300_000, "a formula must have at most 500000 characters, got 600000"),
    ("log(" + "x" * 30_000 + ")", "a piece of a formula must have at most 20000 characters"),
    ("*".join(f"I(x + {i})" for i in range(20)), "must expand to fewer terms"),
    (
        ":".join(f"I(x + {i})" for i in range(20)),
        "a term of a formula may multiply at most 8 columns, got 20",
    ),
    ("+".join(f"I(x + {i})" for i in range(9_000)), "must expand to fewer terms"),
    ("+" * 100_000 + "x", "unknown operator"),
    ("bs(x, df=1000):bs(z, df=1000)", "must give at most 10000 columns for 60 rows, got 1000000"),
    ("poly(x, 100)*poly(z, 100)*bs(k, df=50)", "must give at most 10000 columns"),
    ("C(x)", "as many levels as rows"),
    ("bs(x, knots=[" + "1," * 5_000 + "])", "knots of bs must be a list of at most 1000"),
]


@pytest.mark.parametrize(("formula", "match"), EXHAUSTING, ids=[f[:20] for f, _ in EXHAUSTING])
def test_formulas_that_would_exhaust_the_machine_are_refused_at_once(formula, match, X):
    start = time.process_time()
    with pytest.raises(DeeptramError, match=match) as caught:
        LinearEncoder.fit(X, formula)
    assert time.process_time() - start < 2.0
    assert len(str(caught.value)) < 1500


ACCEPTED = [
    "x + z",
    "x * g + k",
    "bs(x, df=4) * g",
    "poly(z, 2):g + scale(x)",
    "C(k, Sum) + np.log(x + 1)",
    "C(k, levels=[0, 1, 2, 3]) + `x`",
    "C(g, Treatment('v')) * center(z)",
    "C(k, {'a': [1, 0, 0, -1]}) + I(x ** 2)",
    "np.where(g == 'u', x, 0) + {x > 2}",
    "(x + z + g)**2 - x:z",
    "cr(x, df=4) + Q('z') + standardize(k)",
    ". - k + exp(-x)",
]
ALPHABET = [
    *"`'\"\\(){}[]#:;,.~|%^*+-/=<>&@!?_ \n\r\t\x00é２",
    "lambda ",
    "__",
    "import",
    "os",
    "np.",
    "x",
    "g",
    "1",
]
ALPHABET += [
    RUN,
    "contr.",
    "C(",
    "Q('",
    "f'",
    "**",
    ":=",
    "for ",
    " in ",
    " if ",
    " else ",
    "e9",
    "'''",
    "df=",
]


WORDS = [
    "x",
    "z",
    "g",
    "k",
    "0",
    "1",
    "2",
    "3",
    "7",
    "99",
    "1000",
    "2.5",
    "None",
    "True",
    "'u'",
    "'x'",
    "log",
    "np",
]
WORDS += [
    "bs",
    "cr",
    "cc",
    "poly",
    "scale",
    "C",
    "Q",
    "I",
    "df",
    "degree",
    "knots",
    "levels",
    "raw",
    "center",
]
WORDS += [
    "Sum",
    "Poly",
    "Helmert",
    "contr.sum",
    "contr.poly",
    "sqrt",
    "where",
    "+",
    "*",
    ":",
    "/",
    "-",
    "**",
    "^",
]


def mutant(source: random.Random) -> str:
    """Change words (most are still formulas then) or characters (most are not)."""
    text = source.choice(ACCEPTED)
    by_word = source.random() < 0.6
    for _ in range(source.choice([1, 1, 1, 2, 3, 4])):
        parts = re.findall(r"\w+|\s+|.", text) if by_word else list(text)
        i, j = sorted(source.randrange(len(parts) + 1) for _ in range(2))
        new = source.choice(WORDS if by_word else ALPHABET)
        how = source.choice([0, 0, 0, 1, 2, 3, 4])
        if how == 0:
            parts[i : i + 1] = [new]
        elif how == 1:
            parts[i:i] = [new]
        elif how == 2:
            del parts[i : i + 1]
        elif how == 3:
            parts[i:] = parts[j:] + parts[i:j]
        else:
            parts[i:] = [source.choice(" +*:"), source.choice(ACCEPTED)]
        text = "".join(parts)
    return text


def test_mutants_of_accepted_formulas(watch, X, tmp_path, monkeypatch):
    """DEEPTRAM_MUTANTS sets how many; each is refused by a deeptram error or encoded, saved and loaded."""
    monkeypatch.chdir(tmp_path)
    for formula in [*ACCEPTED, "x +"]:
        attempt(lambda formula=formula: LinearEncoder.fit(X, formula).transform(X))
    source = random.Random(9)
    refused = 0
    total = int(os.environ.get("DEEPTRAM_MUTANTS", "3000"))
    for _ in range(total):
        formula = mutant(source)
        watch.seen, watch.is_on = [], True
        try:
            encoder, design = LinearEncoder.fit_transform(X, formula)
            again = LinearEncoder.from_dict(json.loads(json.dumps(encoder.to_dict())))
            np.testing.assert_array_equal(again.transform(X), design, err_msg=repr(formula))
            assert np.isfinite(design).all()
        except DeeptramError:
            refused += 1
        except BaseException as error:
            raise AssertionError(f"{formula!r} ended in {error!r}") from error
        finally:
            watch.is_on = False
        assert not watch.seen, (formula, watch.seen[:3])
    assert not os.listdir(tmp_path)
    assert 0.3 * total < refused < 0.95 * total
