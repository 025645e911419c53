"""``save``: a fitted model as a folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


class SavingMixin:
    """Writing a fitted model to disk; ``deeptram.load`` reads it."""

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Save the fitted model as a folder of JSON and safetensors; ``dt.load(path)`` reads it.

        Nothing in the folder can run code. Training data are not saved, only
        their hash. Networks are saved by name and weights: see
        ``deeptram.networks.register`` for your own.

        Parameters
        ----------
        path : path
            The folder to create; it is complete or not there at all.
        overwrite : bool
            Replace a model saved there before.

        Returns
        -------
        Path
        """
        from deeptram._files import versions
        from deeptram.estimators.persistence import model_to_record
        from deeptram.model.persistence import write_folder

        estimator: Any = self
        record, tensors = model_to_record(estimator)
        content = {"kind": "model", "versions": versions(), "model": record}
        return write_folder(path, content, tensors, overwrite=overwrite)
