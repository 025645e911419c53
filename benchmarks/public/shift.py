"""Digits and faces that are noisier, blurred or turned, and other pictures: what happens to each pool.

Five members (a complex intercept of the image) are trained on clean digits, or on faces and their age groups;
nothing is tuned. Their pools are scored on test images under noise, blur and rotation of five severities;
total entropy, mutual information and the spread of h among members tell patches of photographs from images
of the set, and wrong from right answers.

    python benchmarks/public/shift.py --out SCORES [--datasets digits mnist utkface] [--quick] [--write PAGE]
"""

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from _command import Source, Unit, arguments
from _study import cost, markdown, publish, run, span
from scipy.ndimage import gaussian_filter, rotate
from sklearn.datasets import load_sample_images
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

import deeptram as dt
from deeptram.ensemble.epistemic import split_uncertainty

SETS = {
    "digits": Source(range(5)),
    "mnist": Source(range(5), find=lambda data: [dt.datasets.load_mnist(data, part=part) for part in PARTS]),
    "utkface": Source(range(5), find=functools.partial(dt.datasets.load_utkface, images=False)),
}
PARTS = ("train", "test")
POOLS = ("linear", "log-linear", "transformation")
SEVERITIES = (0, 1, 2, 3, 4, 5)
METRICS = ("nll", "rps", "accuracy", "overconfidence")
SETTINGS: dict[str, Any] = {
    "members": 5,
    "hidden": [128, 128],
    "dropout": 0.2,
    "training": {
        "epochs": 100,
        "batch_size": 128,
        "learning_rate": 2e-3,
        "patience": 10,
        "weight_decay": 1e-4,
        "optimizer": "adamw",
        "validation": 0.1,
    },
    "mnist": [6000, 2000],
    "utkface": {
        "rows": [8000, 2000],
        "pixels": 32,
        "channels": [16, 32, 64],
        "dense": [128],
        "training": {"epochs": 25, "batch_size": 64, "learning_rate": 1e-3, "schedule": "cosine"},
        "augment": {"degrees": 10.0, "shift": 0.06, "zoom": 0.1, "flip": 0.5},
    },
    "noise": [0.1, 0.2, 0.3, 0.4, 0.5],
    "blur": [0.04, 0.06, 0.08, 0.1, 0.12],
    "rotation": [10, 20, 30, 45, 60],
    "rejected": [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9],
}


def load(name: str, data: Path, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return images in [0, 1] and digits or age groups for training and for testing."""
    if name == "digits":
        found = dt.datasets.load_digits()
        images, y = np.asarray(found.X["image"]), np.asarray(found.y).astype(int)
        train, test = train_test_split(np.arange(len(y)), test_size=0.4, random_state=seed, stratify=y)
        return images[train], y[train], images[test], y[test]
    if name == "utkface":
        first, second = SETTINGS["utkface"]["rows"]
        found = dt.datasets.load_utkface(data, size=SETTINGS["utkface"]["pixels"])
        rows = np.random.default_rng(seed).permutation(len(found.y))[: first + second]
        images = np.moveaxis(np.asarray(found.X["image"][rows]), 3, 1) / np.float32(255)
        y = found.y.cat.codes.to_numpy()[rows]
        return images[:first], y[:first], images[first:], y[first:]
    parts = []
    for part, n in zip(PARTS, SETTINGS["mnist"], strict=True):
        found = dt.datasets.load_mnist(data, part=part)
        rows = np.random.default_rng(seed).choice(len(found.y), n, replace=False)
        parts += [np.asarray(found.X["image"])[rows] / np.float32(255), np.asarray(found.y).astype(int)[rows]]
    return parts[0], parts[1], parts[2], parts[3]


def shifted(images: np.ndarray, shift: str, severity: int, seed: int) -> np.ndarray:
    """Return the images under a shift; severity 0 leaves them as they are."""
    if severity == 0:
        return images
    amount = SETTINGS[shift][severity - 1]
    if shift == "noise":
        noise = np.random.default_rng(seed).normal(0, amount, images.shape)
        return np.clip(images + noise, 0, 1).astype(np.float32)
    if shift == "blur":
        sigma = amount * images.shape[-1]
        return gaussian_filter(images, (*(0,) * (images.ndim - 2), sigma, sigma))
    turned = rotate(images, amount, axes=(-1, -2), reshape=False, order=1)
    return np.clip(turned, 0, 1).astype(np.float32)


def patches(like: np.ndarray, seed: int) -> np.ndarray:
    """Return patches of the two photographs that ship with scikit-learn, each from 0 to 1.

    They have the shape of some images: grey ``(n, H, W)``, or colours ``(n, 3, H, W)``.
    """
    generator, size, in_colour = np.random.default_rng(seed), like.shape[-1], like.ndim == 4
    photographs = [np.moveaxis(image, 2, 0) for image in load_sample_images().images]
    photographs = photographs if in_colour else [image.mean(axis=0) for image in photographs]
    found = []
    for number in range(len(like)):
        whole = photographs[number % len(photographs)]
        top, left = (generator.integers(length - size) for length in whole.shape[-2:])
        found.append(whole[..., top : top + size, left : left + size])
    patch = np.stack(found).astype(float)
    axes = tuple(range(1, patch.ndim))
    low, high = (edge(patch, axis=axes, keepdims=True) for edge in (np.min, np.max))
    return ((patch - low) / np.maximum(high - low, 1)).astype(np.float32)


def uncertainties(members: list[dt.Predictive]) -> dict[str, np.ndarray]:
    """Return per row: entropy of the mixture, its mutual information with the member, mean sd of h."""
    parts = split_uncertainty(members, np.full(len(members), 1 / len(members)))
    h = np.stack([np.asarray(member.trafo()) for member in members])
    return {
        "total entropy": parts["total"].to_numpy(),
        "mutual information": parts["epistemic"].to_numpy(),
        "spread of h": h.std(axis=0, ddof=1).mean(axis=-1),
    }


def scores_of(y: np.ndarray, pred: dt.Predictive) -> dict[str, float]:
    """Return the scores of one pool; overconfidence is the mean probability of the answer minus accuracy."""
    accuracy = float(dt.metrics.accuracy(y, pred))
    return {
        "nll": float(dt.scores.nll(y, pred)),
        "rps": float(dt.scores.rps(y, pred)),
        "accuracy": accuracy,
        "overconfidence": float(np.asarray(pred.pmf()).max(axis=1).mean()) - accuracy,
    }


def network(name: str) -> Any:
    """Return the network of a set: layers of 128 for digits, a convolutional one for faces."""
    if name == "utkface":
        faces = SETTINGS["utkface"]
        return dt.networks.CNN(channels=tuple(faces["channels"]), dense=tuple(faces["dense"]))
    return dt.networks.MLP(tuple(SETTINGS["hidden"]), dropout=SETTINGS["dropout"])


def training(name: str) -> dt.Training:
    """Return how the members of a set are trained."""
    if name == "utkface":
        faces = SETTINGS["utkface"]
        augment = dt.networks.RandomAffine(**faces["augment"])
        return dt.Training(**faces["training"], validation=0.1, augment=augment, progress=False)
    return dt.Training(**SETTINGS["training"], progress=False)


def score(unit: Unit, data: Path) -> list[dict[str, Any]]:
    """Return the scores of each pool under each shift, and what each uncertainty tells."""
    images, y, test, y_test = load(unit.dataset, data, unit.split)
    model = dt.Polr([dt.CI(network(unit.dataset), "image")], training=training(unit.dataset))
    ensemble = dt.Ensemble(model, SETTINGS["members"], random_state=unit.split).fit({"image": images}, y)
    rows: list[dict[str, Any]] = []
    clean = uncertainties(ensemble.predict_members({"image": test}))
    for shift in ("noise", "blur", "rotation"):
        for severity in SEVERITIES:
            members = ensemble.predict_members({"image": shifted(test, shift, severity, unit.split)})
            place = {"shift": shift, "severity": severity}
            single = [scores_of(y_test, member) for member in members]
            mean = {name: float(np.mean([one[name] for one in single])) for name in METRICS}
            rows.append({**place, "method": "average member", **mean})
            for pool in POOLS:
                rows.append({**place, "method": pool, **scores_of(y_test, dt.pool(members, method=pool))})
            if severity:
                rows += told(members, clean, y_test, place)
    other = uncertainties(ensemble.predict_members({"image": patches(test, unit.split)}))
    rows += [
        {"shift": "photographs", "severity": 0, "method": name, "auroc": detection(clean[name], other[name])}
        for name in clean
    ]
    return rows


def told(
    members: list[dt.Predictive], clean: dict[str, np.ndarray], y: np.ndarray, place: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return how well each uncertainty tells shifted from clean images, and wrong from right answers."""
    wrong = np.asarray(dt.pool(members, method="transformation").mode()) != y
    return [
        {
            **place,
            "method": name,
            "auroc": detection(clean[name], values),
            "auroc wrong": float(roc_auc_score(wrong, values)) if 0 < wrong.mean() < 1 else float("nan"),
            "kept accuracy": kept_accuracy(values, ~wrong),
        }
        for name, values in uncertainties(members).items()
    ]


def detection(usual: np.ndarray, other: np.ndarray) -> float:
    """Return the area under the ROC curve of telling other rows from usual ones."""
    labels = np.repeat([0, 1], [len(usual), len(other)])
    return float(roc_auc_score(labels, np.concatenate([usual, other])))


def kept_accuracy(uncertainty: np.ndarray, right: np.ndarray) -> list[float]:
    """Return the accuracy of the rows that are kept when the most uncertain share is rejected."""
    ordered = right[np.argsort(uncertainty, kind="stable")]
    kept = [max(1, round((1 - share) * len(ordered))) for share in SETTINGS["rejected"]]
    return [float(ordered[:n].mean()) for n in kept]


def page(table: pd.DataFrame) -> str:
    """Return the tables of the page."""
    pools, marks = ["average member", *POOLS], ["total entropy", "mutual information", "spread of h"]
    seeds = table.groupby("dataset")["split"].nunique()
    parts = [f"Means over {span(seeds)} seeds; the best pool in bold."]
    for metric, digits in (("nll", 3), ("rps", 4), ("accuracy", 3)):
        parts += [f"**{metric.upper() if digits != 3 or metric == 'nll' else metric.capitalize()}**"]
        parts += [
            markdown(by_severity(table, metric, pools, digits, np.max if metric == "accuracy" else np.min))
        ]
    nearest = functools.partial(min, key=abs)
    parts += ["**Overconfidence**: mean probability of the answer minus accuracy"]
    parts += [markdown(by_severity(table, "overconfidence", pools, 3, nearest))]
    parts += ["**AUROC of telling shifted images, and patches of photographs, from clean ones**"]
    parts += [markdown(by_severity(table, "auroc", marks, 3, np.max))]
    parts += ["**AUROC of telling wrong from right answers (transformation pool) on shifted images**"]
    parts += [markdown(by_severity(table, "auroc wrong", marks, 3, np.max))]
    parts += ["**Accuracy of what is kept when the most uncertain share is rejected** (severity 3)"]
    parts += [markdown(rejection(table, marks)), cost(table)]
    return "\n\n".join(parts)


def by_severity(table: pd.DataFrame, metric: str, methods: list[str], digits: int, best: Any) -> pd.DataFrame:
    """Return the means over seeds, one line per set, shift and severity, the best in bold."""
    some = table[table["method"].isin(methods) & table[metric].notna()]
    mean = (
        some.groupby(["dataset", "shift", "severity", "method"], sort=False)[metric].mean().unstack()[methods]
    )
    lines = {
        " ".join(map(str, place)): [
            f"**{value:.{digits}f}**" if value == best(row.to_list()) else f"{value:.{digits}f}"
            for value in row
        ]
        for place, row in mean.iterrows()
    }
    return pd.DataFrame.from_dict(lines, orient="index", columns=methods).rename_axis("set, shift, severity")


def rejection(table: pd.DataFrame, methods: list[str]) -> pd.DataFrame:
    """Return the accuracy of the rows that are kept, one line per set, shift and uncertainty."""
    some = table[table["method"].isin(methods) & (table["severity"] == 3)]
    lines = {
        " ".join(place): [f"{value:.3f}" for value in np.mean(rows["kept accuracy"].to_list(), axis=0)]
        for place, rows in some.groupby(["dataset", "shift", "method"], sort=False)
    }
    shares = [f"{share:.0%}" for share in SETTINGS["rejected"]]
    return pd.DataFrame.from_dict(lines, orient="index", columns=shares).rename_axis(
        "set, shift, rejected by"
    )


def figure(table: pd.DataFrame, path: Path) -> None:
    """Draw NLL and overconfidence of the pools against severity, and the rejection curves."""
    import matplotlib.pyplot as plt

    from deeptram.plots.style import looks, paper_style

    pools, marks = ["average", *POOLS], ["total entropy", "mutual information", "spread of h"]
    some = table.replace({"method": {"average member": "average"}})
    some = some[some["dataset"] == table["dataset"].iloc[-1]]
    with paper_style({"svg.hashsalt": "deeptram"}):
        drawn, axes = plt.subplots(3, 3, figsize=(8.4, 7.2), layout="constrained")
        for column, shift in enumerate(("noise", "blur", "rotation")):
            rows = some[some["shift"] == shift]
            for line, metric in enumerate(("nll", "overconfidence")):
                mean = rows.groupby(["severity", "method"])[metric].mean().unstack()
                if metric == "nll":
                    mean = mean.sub(mean["average"], axis=0)
                for name, look in looks(pools).items():
                    axes[line, column].plot(
                        mean.index, mean[name], color=look.color, marker=look.marker, label=name
                    )
                axes[line, column].set(
                    xlabel="severity", ylabel="NLL minus the average" if metric == "nll" else metric
                )
            for name, look in looks(marks).items():
                curves = rows[(rows["method"] == name) & (rows["severity"] == 3)]["kept accuracy"].to_list()
                axes[2, column].plot(
                    SETTINGS["rejected"],
                    np.mean(curves, axis=0),
                    color=look.color,
                    marker=look.marker,
                    label=name,
                )
            axes[2, column].set(xlabel="share rejected", ylabel="accuracy of the rest")
            axes[0, column].set_title(shift)
        axes[0, 0].legend()
        axes[2, 0].legend()
        drawn.savefig(path, metadata={"Date": None})


def main() -> None:
    """Run what is missing, and print or write the tables and the figure."""
    wanted = arguments(__doc__ or "", SETS)
    one = functools.partial(score, data=wanted.data)
    table = run("shift", one, wanted.units, SETTINGS, wanted)
    publish("shift", page(table), wanted.write)
    if wanted.write:
        path = wanted.write.parent / "assets" / "shift.svg"
        path.parent.mkdir(exist_ok=True)
        figure(table, path)


if __name__ == "__main__":
    main()
