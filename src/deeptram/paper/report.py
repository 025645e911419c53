"""From a run to one HTML file that opens without a network, its figures and tables, or to Markdown.

Both have the same tables. Published numbers stand beside ours wherever there are any for the data set;
whether they were made by the same protocol is said above the table. What the page says in whole sentences is
in ``templates/words.j2``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from deeptram._files import write_bytes
from deeptram.errors import FileFormatError
from deeptram.paper import RunFolder, storage
from deeptram.paper.config import EXACT_MODELS
from deeptram.paper.figures import FILE, FOLDED, SAID, save_figures, study_figures
from deeptram.paper.gallery import disagreement_table, gallery_panels, gallery_what_if
from deeptram.paper.protocols import (
    PAPER_DATASETS,
    is_same_protocol,
    published_coefficients,
    published_metrics,
)
from deeptram.paper.results import (
    calibration_sentences,
    guarantee_sentence,
    guarantee_summary,
    head_sentences,
    odds_by_split_table,
    odds_table,
    performance_table,
    sizes_table,
    weights_table,
)
from deeptram.paper.runner import duration
from deeptram.paper.views import CALIBRATION_METRICS, RunView, view_of_run
from deeptram.plots.report.page import (
    Cell,
    Facts,
    Page,
    PageFigure,
    Section,
    Sentences,
    TextTable,
    Words,
    made_by,
    page_figure,
)
from deeptram.plots.style import metric_label

REPORT = "report.html"
TITLES = {"mnist": "MNIST", "melanoma": "Melanoma (SIIM-ISIC 2020)", "utkface": "UTKFace"}
TITLES |= {"ham10000": "HAM10000", "digits": "Digits"}
LOSS_NAMES = {"nll": "negative log-likelihood", "rps": "ranked probability score"}
RECALIBRATED_WORDS = {
    "members": "every member recalibrated on the validation part before pooling",
    "pool": "every pool recalibrated on the validation part instead of its members",
}
DISAGREEMENT = (
    "What members disagree about, test part: standard deviation of h between members (all rows and "
    "thresholds), width of the band F_Z(h̄ ± 2 sd), and which share of the entropy is about who is right:"
)
BEGIN, END = "<!-- run: {name} -->", "<!-- end of run: {name} -->"


def build_report(
    path: str | os.PathLike[str],
    *,
    n_boot: int | None = None,
    level: float = 0.95,
    n_jobs: int = 1,
    figures: bool = True,
) -> Path:
    """Write ``report.html``, ``metrics.csv``, tables and figures of a run, finished or not.

    Parameters
    ----------
    path : path-like
        Folder of the run.
    n_boot : int, optional
        Bootstrap samples; by default the preset's.
    level : float
        Coverage of the intervals.
    n_jobs : int
        Models evaluated at the same time.
    figures : bool
        Whether to write the figures as files (PNG and PDF) too.

    Returns
    -------
    Path
        Of the page.
    """
    run, view, n_boot = view_of_run(path, n_boot=n_boot, level=level, n_jobs=n_jobs)
    target = run.path / REPORT
    page = _StudyPage(run, view, n_boot, level, run.path / storage.FIGURES if figures else None).page()
    write_bytes(target, page.html().encode())
    return target


class _StudyPage:
    """What the page of a run shows; figures are drawn, and written to a folder if one is given, at once."""

    def __init__(self, run: RunFolder, view: RunView, n_boot: int, level: float, files: Path | None) -> None:
        self.run, self.view, self.n_boot, self.level = run, view, n_boot, level
        self.figures: dict[tuple[str, str], PageFigure] = {}
        for loss in view.losses:
            figures = list(study_figures(view, loss))
            if files is not None:
                save_figures(figures, loss, files)
            for one in figures:
                if one.place != FILE:
                    caption = one.caption + f" {trained_with(view, loss)}."  # escaped like the rest
                    name, folded = f"{one.name}-{loss}", one.place == FOLDED
                    self.figures[one.name, loss] = page_figure(one.panels, name, caption, folded=folded)

    def page(self) -> Page:
        """Return the page."""
        study, view = self.view.study, self.view
        answers = [
            block
            for loss in view.losses
            for block in (
                Words(trained_with(view, loss), "h3"),
                Sentences(head_sentences(view, loss), "answer"),
            )
        ]
        reading = Words(how_to_read(view, self.n_boot, self.level), "soft")
        sections = [
            Section("results", "Results", [*answers, reading]),
            Section("performance", "Performance", self._performance()),
            Section("coefficients", "Coefficients", self._coefficients()),
            Section("calibration", "Calibration", self._calibration()),
            *self._guarantees(),
            Section("gallery", "Gallery", self._gallery()),
            Section("what-if", "What if", self._what_if()),
            Section("run", "What was run", [Facts(list(self._settings())), *self._drawn("history")]),
            Section("provenance", "Provenance", self._provenance()),
        ]
        lead = SAID.lead(study, len(view.splits))
        return Page(TITLES.get(study.dataset, study.dataset), lead, sections, list(self._notices()))

    def _drawn(self, *names: str) -> list[PageFigure]:
        keys = [(name, loss) for loss in self.view.losses for name in names]
        return [self.figures[key] for key in keys if key in self.figures]

    def _tables(self, make: Any, what: str) -> Iterator[Words | TextTable]:
        """Yield a table of each loss under its heading, where there is one."""
        for loss in self.view.losses:
            table = make(self.view, loss)
            if table is not None:
                words = trained_with(self.view, loss)
                heading = f"{what}, {words[0].lower()}{words[1:]}"
                yield Words(heading, "h3")
                yield replace(table, label=heading)

    def _notices(self) -> Iterator[str]:
        study, members = self.view.study, self.view.tables.members
        if not members["done"].all():
            yield SAID.unfinished(members["done"].sum(), len(members))
        if study.preset == "quick":
            yield SAID.quick(study)

    def _performance(self) -> list[Any]:
        protocol, levels = self.view.study.protocol, self.view.config["levels"]
        cutoff = "" if protocol.outcome == "binary" else SAID.cutoff(levels[protocol.cutoff])
        figures = self._drawn("differences", "differences-others", "performance", "relative", "sizes")
        return [*figures, Words(cutoff, "soft"), *self._tables(performance_table, "All numbers")]

    def _coefficients(self) -> list[Any]:
        tables = list(self._tables(odds_table, "Log odds-ratios"))
        note = Words(SAID.intervals("rps" in self.view.study.losses), "soft")
        return [SAID.coefficients(), *tables, *self._drawn("coefficients"), note] if tables else []

    def _calibration(self) -> list[Any]:
        words: list[Any] = []
        for loss in self.view.losses:
            said = calibration_sentences(self.view, loss)
            words += [Words(trained_with(self.view, loss), "h3"), Sentences(said)] if said else []
        figures = self._drawn("calibration", "calibration-metrics", "recalibrated", "recalibrated-pools")
        return [*words, *figures, Words(SAID.curves(), "soft")]

    def _guarantees(self) -> list[Section]:
        rows: list[list[str | Cell]] = []
        for row in guarantee_summary(self.view).to_dict("records"):
            look = "good" if row["held"] == row["checks"] else "bad"
            held = Cell(f"{row['held']} of {row['checks']}", look=look)
            excess = f"{row['worst_row']:.1e}" if row["worst_row"] > 0 else "none"
            claim = str(row["claim"]).replace("<=", "≤")
            rows.append([row["statement"], row["score"], row["method"], claim, held, excess])
        header = ["statement", "score", "pool", "claim", "held", "largest excess in a row"]
        said = SAID.guarantees(guarantee_sentence(self.view))
        weights = [Words(SAID.weights(), "soft"), *self._drawn("weights")]
        table = TextTable(header, rows, 4, label="Guarantees")
        return [
            Section("weights", "Weights", weights if rows else []),
            Section("guarantees", "Guarantees", [said, table] if rows else []),
        ]

    def _gallery(self) -> list[Any]:
        found = gallery_panels(self.run, self.view)
        if found is None:
            return []
        figures = [
            block
            for (name, about), grid in found[1].items()
            for block in (Words(about, "h3"), page_figure(grid, f"gallery-{name}", "", about=about))
        ]
        return [SAID.gallery(found[0]), *figures]

    def _what_if(self) -> list[Any]:
        made = gallery_what_if(self.run, self.view)
        return [] if made is None else [Words(SAID.what_if(made[0]), "soft"), made[1]]

    def _settings(self) -> Iterator[tuple[str, str]]:
        study, config, members = self.view.study, self.view.config, self.view.tables.members
        protocol, info = study.protocol, config["info"]
        source = f"{info.get('source', '')}; licence {info.get('licence', 'unknown')}"
        yield "Data", f"{TITLES.get(study.dataset, study.dataset)}, {config['n_rows']:,} rows; {source}"
        yield "Outcome", f"{protocol.outcome}: {' < '.join(config['levels'])}"
        yield "Models", SAID.models(study)
        yield "Losses", ", ".join(study.losses)
        yield "Splits", SAID.splits(protocol, self.view.splits)
        yield "Training", SAID.training(study)
        if study.changed:
            changed = ", ".join(f"{name} = {value}" for name, value in study.changed.items())
            yield "Changed", f"against the preset: {changed}"
        exact = [model for model in study.models if model in EXACT_MODELS]
        if exact:
            yield "Exact models", SAID.exact(exact)
        yield (
            "Members",
            f"{members['done'].sum()} of {len(members)} finished, {computing(self.view)} of computing",
        )

    def _provenance(self) -> list[Any]:
        study, config, members = self.view.study, self.view.config, self.view.tables.members
        facts = [
            ("Command", SAID.command(run_command(self.view))),
            ("Settings", SAID.settings(study.fingerprint)),
            ("Data", SAID.data(config["data"])),
            ("Seed", str(study.seed)),
            ("Versions", ", ".join(f"{name} {value}" for name, value in config["versions"].items())),
            ("Machine", SAID.machine(config["machine"])),
            made_by(),
        ]
        missing = members[~members["done"]].itertuples()
        texts = [f"{one.model}, {one.loss}, split {one.split}, member {one.member}" for one in missing]
        title = f"Members that are missing ({len(texts)})"
        folded = Sentences(texts, "folded", title) if texts else None
        return [Facts(facts), folded, Words(SAID.method(), "soft")]


# -- words of the page and of Markdown ----------------------------------------------------------------


def trained_with(view: RunView, loss: str) -> str:
    """Return the training loss in words; of a binary outcome the RPS is called the Brier score."""
    binary = view.study.protocol.outcome == "binary" and loss == "rps"
    return f"Trained with the {'Brier score' if binary else LOSS_NAMES[loss]}"


def computing(view: RunView) -> str:
    """Return how long all members took together."""
    return duration(float(view.tables.members["seconds"].fillna(0).sum()))


def run_command(view: RunView) -> str:
    """Return the command that makes the run again."""
    study = view.study
    words = ["deeptram reproduce", study.dataset, f"--preset {study.preset}"]
    words += [f"--{name.replace('_', '-')} {value}" for name, value in study.changed.items()]
    words.append(f"--models {' '.join(study.models)}")
    words.append(f"--losses {' '.join(study.losses)}")
    words.append(f"--splits {' '.join(map(str, study.splits))}")
    deep = any(model not in EXACT_MODELS for model in study.models)
    words += [*([f"--members {study.n_members}"] if deep else []), f"--seed {study.seed}", "--out RUN"]
    return " ".join(words)


def how_to_read(view: RunView, n_boot: int, level: float) -> str:
    """Return what intervals are, and which published numbers may be compared."""
    text = f"Means over the splits, with {100 * level:g} % intervals of {n_boot} paired bootstrap samples."
    study = view.study
    if study.dataset not in PAPER_DATASETS:
        return f"{text} Not in the paper: there are no published numbers."
    same = [model for model in study.models if is_same_protocol(study, model)]
    others = [model for model in study.models if model not in same]
    own = study.protocol.splitting == "paper"
    where = "the same splits" if own else "the six published splits (ours are others)"
    text += f" Published: mean over {where}, in brackets the smallest and largest of all six."
    if same and others:
        text += f" The protocol is the same for {', '.join(same)}; for {', '.join(others)} it is not."
    elif others:
        text += " The networks were trained in another way than the published ones."
    return text


# -- Markdown -----------------------------------------------------------------------------------------


def results_markdown(
    path: str | os.PathLike[str], *, n_boot: int | None = None, level: float = 0.95, n_jobs: int = 1
) -> str:
    """Return the results of a run, finished or not, as Markdown without a heading.

    Parameters
    ----------
    path : path-like
        Folder of the run.
    n_boot : int, optional
        Bootstrap samples; by default the preset's.
    level : float
        Coverage of the intervals.
    n_jobs : int
        Models evaluated at the same time.
    """
    run, view, n_boot = view_of_run(path, n_boot=n_boot, level=level, n_jobs=n_jobs)
    parts: list[str | TextTable | None] = [_what_was_run(view), how_to_read(view, n_boot, level)]
    for loss in view.losses:
        own, words = view.own_metric(loss), trained_with(view, loss)
        of_sizes = (
            f"{metric_label(own)} of ensembles of m members with equal weights: the mean over choices of m "
        )
        of_sizes += "members, and of the best m by validation loss (top-K):"
        parts += [f"{words}:", performance_table(view, loss), _agreement(view, loss)]
        calibration = performance_table(view, loss, CALIBRATION_METRICS)
        parts += ["Calibration in the large (ideal: 0) and calibration slope (ideal: 1):", calibration]
        for which, said in RECALIBRATED_WORDS.items():
            table = performance_table(view, loss, (own, "calibration_slope"), recalibrated=which)
            parts += [f"With {said}:", table] if table is not None else []
        said = words[0].lower() + words[1:]
        for title, table in (
            ("Tuned weights of the transformation ensembles:", weights_table(view, loss)),
            (of_sizes, sizes_table(view, loss)),
            (DISAGREEMENT, disagreement_table(run, view, loss)),
            (f"Log odds-ratios, {said}:", odds_table(view, loss)),
            ("Split by split:", odds_by_split_table(view, loss)),
        ):
            parts += [title, table] if table is not None else []
    parts.append(guarantee_sentence(view))
    texts = [part.markdown() if isinstance(part, TextTable) else part for part in parts if part]
    return "\n\n".join(texts) + "\n"


def replace_block(page: str, name: str, content: str) -> str:
    r"""Return the page with the block of a run replaced; a run that has none yet gets one at the end.

    Parameters
    ----------
    page : str
    name : str
        Of the run.
    content : str

    Examples
    --------
    >>> page = replace_block("# Results\n", "one", "1\n")
    >>> print(replace_block(page, "one", "2\n"))
    # Results
    <BLANKLINE>
    ## one
    <BLANKLINE>
    <!-- run: one -->
    <BLANKLINE>
    2
    <BLANKLINE>
    <!-- end of run: one -->
    <BLANKLINE>
    """
    begin, end = BEGIN.format(name=name), END.format(name=name)
    block = f"{begin}\n\n{content}\n{end}"
    if begin not in page:
        return f"{page.rstrip()}\n\n## {name}\n\n{block}\n"
    before, _, rest = page.partition(begin)
    if end not in rest:
        raise FileFormatError(
            f"a block that begins with {begin!r} must end with {end!r}, got no such line; write it below"
        )
    return before + block + rest.partition(end)[2]


def _what_was_run(view: RunView) -> str:
    study, members, machine = view.study, view.tables.members, view.config["machine"]
    done, versions = int(members["done"].sum()), view.config["versions"]
    changed = ", ".join(f"{name} {value}" for name, value in study.changed.items())
    finished = f"{done} members, all finished"
    state = finished if done == len(members) else f"{done} of {len(members)} members are finished"
    return (
        f"`{run_command(view)}`\n\n"
        f"Preset `{study.preset}`{f' (changed: {changed})' if changed else ''}, "
        f"split{'s' if len(view.splits) > 1 else ''} {', '.join(map(str, view.splits))} of 6; {state}, "
        f"{computing(view)} of computing in all ({machine['cpus']} processors, GPU: {machine['gpu']}; "
        f"deeptram {versions['deeptram']}, torch {versions['torch']}). Settings `{study.fingerprint}`, "
        f"data `{view.config['data']['table']}`."
    )


def _agreement(view: RunView, loss: str) -> str:
    """Return how far exact models are from the published ones, split by split, where splits are the same."""
    if view.study.protocol.splitting != "paper" or view.study.dataset not in PAPER_DATASETS:
        return ""
    keys, found = ["model", "loss", "split"], []
    for name, table, theirs in (
        ("test NLL", "metrics", published_metrics().query("metric == 'nll'")),
        ("log odds-ratio", "coefficients", published_coefficients()),
    ):
        ours = view.rows(table, loss, overall=False, method="single").dropna(subset="split")
        ours = ours[ours["metric"] == "nll"] if "metric" in ours else ours
        theirs = theirs[(theirs["dataset"] == view.study.dataset) & (theirs["weights"] == "equal")]
        ours = ours[[*keys, "estimate"]].astype({"split": int})
        both = ours.merge(theirs, on=keys, suffixes=("", "_published"))
        if len(both):
            found.append(f"{name} {(both['estimate'] - both['estimate_published']).abs().max():.1e}")
    words = "Largest difference of an exact model to the published one in any split"
    return f"{words}: {', '.join(found)}." if found else ""
