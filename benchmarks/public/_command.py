"""The command line of the parts: which sets and splits there are, and one sentence for what cannot be done.

A part says where its sets come from (:class:`Source`); :func:`arguments` returns the units that are wanted.
What cannot be done ends with what was expected, what was given and what helps, on stderr, and exit code 2.
"""

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from deeptram.errors import DeeptramError


@dataclass(frozen=True)
class Unit:
    """One data set and one split."""

    dataset: str
    split: int

    def path(self, out: Path) -> Path:
        """Return where its scores are kept."""
        return out / f"{self.dataset}-{self.split}.json"


@dataclass(frozen=True)
class Source:
    """The splits of a set, its file below the data folder, and a name without spaces.

    A set of several files has ``find`` instead, which raises where they are not in the data folder. With
    neither the set ships in a package.
    """

    splits: range
    file: str = ""
    alias: str = ""
    find: Callable[[Path], object] | None = None

    @property
    def is_shipped(self) -> bool:
        """Whether it needs no data folder."""
        return not self.file and self.find is None

    def check(self, name: str, data: Path) -> None:
        """Refuse a data folder without the set."""
        if not (data / self.file).exists():
            refuse(
                f"{name} expects the file {self.file} in the data folder, got {data} without it; add the "
                "file, or choose other sets with --datasets"
            )
        try:
            if self.find is not None:
                self.find(data)
        except DeeptramError as error:
            refuse(
                f"{name} expects its files in the data folder, got {data} without them ({error}); add them, "
                "or choose other sets with --datasets"
            )


class Parser(argparse.ArgumentParser):
    """A parser that refuses in one line."""

    def error(self, message: str) -> NoReturn:
        """End with what argparse says, without the usage."""
        refuse(f"{message}; see --help")


def refuse(sentence: str) -> NoReturn:
    """End the script with one sentence on stderr and exit code 2."""
    print(f"{Path(sys.argv[0]).name}: {sentence}", file=sys.stderr)
    raise SystemExit(2)


def arguments(
    doc: str, sources: Mapping[str, Source], *, page_reads_data: bool = False
) -> argparse.Namespace:
    """Return what every part is asked for on the command line, and as ``units`` what that means.

    Data that are not there are refused before anything is computed; tables are written without them, unless
    the page of the part reads data, too.
    """
    wanted = _parser(doc, sources).parse_args()
    if wanted.n_jobs < 1:
        refuse(f"--n-jobs expects at least 1, got {wanted.n_jobs}; give the number of cores to use")
    wanted.units = units_of(sources, wanted.datasets, wanted.splits, quick=wanted.quick)
    wanted.data = _data_folder(wanted.data)
    if wanted.write is None or page_reads_data:
        _check_data(sources, list(dict.fromkeys(unit.dataset for unit in wanted.units)), wanted.data)
    return wanted


def _parser(doc: str, sources: Mapping[str, Source]) -> Parser:
    names = {source.alias or name: name for name, source in sources.items()}
    aliases = "".join(
        f"; {short} is '{name}' in the tables" for short, name in names.items() if short != name
    )

    def dataset(text: str) -> str:
        name = names.get(text, text)
        if name not in sources:
            raise argparse.ArgumentTypeError(f"expects {', '.join(names)}, got {text!r}")
        return name

    parser = Parser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data",
        type=Path,
        help="folder of the data, DEEPTRAM_DATA by default; sets that ship in packages need none",
    )
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        help="folder of the scores, one file per unit (one set, one split); units finished there, or in "
        "benchmarks/public/scores unless --fresh, are taken and not computed",
    )
    parser.add_argument(
        "--fresh",
        action="store_true",
        help="ignore the finished units of benchmarks/public/scores (those in --out are still taken)",
    )
    parser.add_argument(
        "--datasets",
        nargs="+",
        type=dataset,
        metavar="SET",
        help=f"all by default: {', '.join(names)}{aliases}",
    )
    parser.add_argument(
        "--splits",
        nargs="+",
        type=int,
        metavar="SPLIT",
        help=f"all by default: {_told(sources)}",
    )
    parser.add_argument(
        "--quick", action="store_true", help="two splits of every set: the first two it has (of --splits)"
    )
    parser.add_argument("--n-jobs", type=int, default=2, help="units at a time (default 2)")
    parser.add_argument(
        "--write",
        type=Path,
        metavar="PAGE",
        help="compute nothing; keep the scores of what is there in benchmarks/public/scores and put their "
        "tables between the marks of this part in PAGE",
    )
    return parser


def units_of(
    sources: Mapping[str, Source],
    datasets: Sequence[str] | None,
    splits: Sequence[int] | None,
    *,
    quick: bool = False,
) -> list[Unit]:
    """Return the units of the sets and splits (None: all), each once; only splits that a set has.

    A split that none of the sets has is refused, and so is a set that is named and has none of the splits.
    """
    chosen = {name: sources[name] for name in dict.fromkeys(datasets or sources)}
    there = sorted({split for source in chosen.values() for split in source.splits})
    asked = there if splits is None else list(dict.fromkeys(splits))
    for split in asked:
        if split not in there:
            refuse(f"--splits expects {_told(chosen)}, got {split}; leave it out")
    for name in datasets or ():
        if not set(asked) & set(sources[name].splits):
            refuse(
                f"--splits expects {_told({name: sources[name]})} for {name}, got "
                f"{', '.join(map(str, asked))}; add one of these, or leave {name} out of --datasets"
            )
    some = {
        name: [split for split in asked if split in source.splits][: 2 if quick else None]
        for name, source in chosen.items()
    }
    if splits is not None:
        _tell_left_out(chosen, asked)
    return [Unit(name, split) for split in asked for name in chosen if split in some[name]]


def _tell_left_out(chosen: Mapping[str, Source], asked: Sequence[int]) -> None:
    for name, source in chosen.items():
        absent = [str(split) for split in asked if split not in source.splits]
        if absent:
            print(f"{name} has no split {', '.join(absent)}: left out")


def _told(sources: Mapping[str, Source]) -> str:
    """Return the splits there are in words, with the sets where they differ."""
    names: dict[range, list[str]] = {}
    for name, source in sources.items():
        names.setdefault(source.splits, []).append(source.alias or name)
    words = {splits: f"{splits[0]} to {splits[-1]}" for splits in names}
    if len(names) == 1:
        return next(iter(words.values()))
    return ", ".join(f"{words[splits]} ({', '.join(own)})" for splits, own in names.items())


def _data_folder(given: Path | None) -> Path | None:
    """Return the folder of --data or DEEPTRAM_DATA, which has to be there."""
    set_to = os.environ.get("DEEPTRAM_DATA")
    data = given or (Path(set_to) if set_to else None)
    if data is not None and not data.is_dir():
        option = "DEEPTRAM_DATA" if given is None else "--data"
        refuse(f"{option} expects a folder that is there, got {data}; correct the path")
    return data


def _check_data(sources: Mapping[str, Source], names: Sequence[str], data: Path | None) -> None:
    """Refuse sets whose data are not there."""
    for name in names:
        if sources[name].is_shipped:
            continue
        if data is None:
            refuse(
                f"{name} expects the data folder in --data or DEEPTRAM_DATA, got neither; set one of them "
                f"(what it holds: docs/benchmarks_public.md){_shipped(sources)}"
            )
        sources[name].check(name, data)


def _shipped(sources: Mapping[str, Source]) -> str:
    names = [name for name, source in sources.items() if source.is_shipped]
    return f", or choose sets that need none with --datasets {' '.join(names)}" if names else ""
