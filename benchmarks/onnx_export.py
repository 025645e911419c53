"""How fast an exported ensemble predicts in onnxruntime, against the ensemble itself.

``python benchmarks/onnx_export.py``: a CI-LS ensemble of five convolutional networks, one file, 100,000 rows
of 16 x 16 images, the same number of threads for both; in onnxruntime in blocks of 8,192 rows (deeptram
chooses its own). The smallest of three runs each, and the largest difference of probabilities.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch

import deeptram as dt

ROWS, BLOCK, RUNS = 100_000, 8192, 3


def fastest(predict: Callable[[], Any]) -> tuple[float, Any]:
    """Return the smallest of some times, and what was predicted."""
    times = []
    for _ in range(RUNS):
        started = time.perf_counter()
        found = predict()
        times.append(time.perf_counter() - started)
    return min(times), found


def main() -> None:
    """Train a little, export, predict both ways."""
    rng = np.random.default_rng(0)
    images = rng.random((ROWS, 1, 16, 16)).astype(np.float32)
    columns = {"a": rng.normal(size=ROWS), "b": rng.normal(size=ROWS)}
    X = {"image": images, **columns}
    few = {name: values[:500] for name, values in X.items()}
    y = np.digitize(few["a"] + rng.logistic(size=500), [-1.0, 0.0, 1.0])
    network = dt.networks.CNN((16, 32), dense=(64,))
    model = dt.Polr(
        [dt.CI(network, "image"), dt.LS("a", "b")], training=dt.Training(epochs=2, progress=False)
    )
    ensemble = dt.Ensemble(model, 5, random_state=1).fit(few, y)
    with tempfile.TemporaryDirectory() as folder:
        path = dt.export(ensemble, Path(folder) / "ensemble.onnx")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        feed = {one.name: X[one.name] for one in session.get_inputs()}

        def in_onnxruntime() -> np.ndarray:
            blocks = [slice(start, start + BLOCK) for start in range(0, ROWS, BLOCK)]
            return np.concatenate(
                [
                    session.run(None, {name: values[rows] for name, values in feed.items()})[0]
                    for rows in blocks
                ]
            )

        theirs, found = fastest(in_onnxruntime)
        ours, expected = fastest(lambda: ensemble.predict_proba(X))
    print(f"{ROWS} rows, {torch.get_num_threads()} threads, one graph of {len(ensemble.members_)} members")
    print(f"deeptram {ours:.2f} s, onnxruntime {theirs:.2f} s: {ours / theirs:.2f} times as fast")
    print(f"largest difference {np.abs(found - expected).max():.1e}")


if __name__ == "__main__":
    main()
