"""Finished members on disk, so that a killed fit goes on where it was.

A checkpoint is a folder with ``checkpoint.json`` (root seed, and hashes of the
model, the training settings and the data) and one folder per finished member.
Each is written under another name and renamed; a member counts when its DONE
marker is there and carries the hash of its configuration.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deeptram._files import DONE, json_sha256, parse_json, read_done, write_done, write_json
from deeptram._schema import agree, fields, integer, mapping, text
from deeptram.ensemble.members import MemberFit
from deeptram.errors import FileFormatError, InvalidInputError
from deeptram.estimators.base import BaseTram
from deeptram.estimators.data_checks import fingerprint
from deeptram.estimators.persistence import parameters_to_record, rebuild, rebuilding
from deeptram.estimators.saved_format import SEED
from deeptram.fitting.deep.seeds import root_seed
from deeptram.fitting.deep.training import Training
from deeptram.model.persistence import JSON_NAME, plain, read_folder, write_folder
from deeptram.networks import Budget

SCHEMA = 1
INDEX = "checkpoint.json"
# Settings that change how training runs or looks, not what it computes.
_IRRELEVANT = ("progress", "device")
_INDEX = fields({"schema": integer(), "root_seed": SEED, "configuration": mapping(text)})


@dataclass(frozen=True)
class Configuration:
    """Hashes of everything a member depends on besides its seed.

    Attributes
    ----------
    model, training, data, validation : str
    """

    model: str
    training: str
    data: str
    validation: str

    @classmethod
    def of(cls, model: BaseTram, X: Any, y: Any, sample_weight: Any, validation: Any) -> Configuration:
        """Return the configuration of an ensemble's members.

        Parameters
        ----------
        model : BaseTram
            Unfitted.
        X, y, sample_weight, validation
            As given to ``fit``.
        """
        record = parameters_to_record(model)
        record["parameters"].pop("random_state")
        record["parameters"].pop("training")
        training = Training() if model.training is None else model.training
        settings = {key: value for key, value in training.to_dict().items() if key not in _IRRELEVANT}
        settings["augment"] = None if training.augment is None else repr(training.augment)
        held = validation if isinstance(validation, (float, int)) else None
        data = validation if isinstance(validation, (tuple, list)) else ()
        return cls(
            json_sha256(record),
            json_sha256(plain(settings)),
            fingerprint(X, y, sample_weight),
            json_sha256(held) + (fingerprint(*data) if data else ""),
        )

    def member_hash(self, seed: int) -> str:
        """Return the hash of one member's configuration."""
        return json_sha256([self.model, self.training, self.data, self.validation, seed])


class Checkpoint:
    """A folder of finished members of one configuration.

    Parameters
    ----------
    folder : path
        Created if it is not there.
    configuration : Configuration
        A folder of another configuration is refused.
    random_state : int or None
        With None, the root seed of an existing folder is taken over.
    """

    def __init__(
        self, folder: str | os.PathLike[str], configuration: Configuration, random_state: Any
    ) -> None:
        self.folder, self.configuration = Path(folder), configuration
        self.root = self._open(random_state)

    def _open(self, random_state: Any) -> int:
        index = self.folder / INDEX
        parts = dict(vars(self.configuration))
        if not index.is_file():
            self._check_new()
            root = root_seed(random_state)
            self.folder.mkdir(parents=True, exist_ok=True)
            write_json(index, {"schema": SCHEMA, "root_seed": root, "configuration": parts})
            return root
        try:
            found = parse_json(index.read_bytes())
            _INDEX(found, INDEX)
        except (ValueError, RecursionError) as error:
            raise FileFormatError(
                f"{INDEX} in {str(self.folder)!r} must be as it was written, got one that cannot be read "
                f"({error}); delete the folder to train again"
            ) from error
        stored, before, schema = found["root_seed"], found["configuration"], found["schema"]
        for leftover in self.folder.glob(".member-*"):  # of a fit that was killed while writing
            shutil.rmtree(leftover, ignore_errors=True)
        root = stored if random_state is None else root_seed(random_state)
        changed = [name for name, value in parts.items() if before.get(name) != value]
        changed += ["random_state"] * (root != stored) + ["schema"] * (schema != SCHEMA)
        if changed:
            raise InvalidInputError(
                f"checkpoint {str(self.folder)!r} must hold members of this configuration, got another "
                f"{' and '.join(changed)}; use another folder, or delete it to train again"
            )
        return root

    def _check_new(self) -> None:
        if self.folder.exists() and (not self.folder.is_dir() or any(self.folder.iterdir())):
            raise InvalidInputError(
                f"checkpoint must be a new or empty folder, or one made by an earlier fit, got "
                f"{str(self.folder)!r}; choose another folder"
            )

    def load(self, seeds: Mapping[int, int], template: BaseTram) -> dict[int, MemberFit]:
        """Return the finished members among the given numbers; unfinished or damaged ones are removed.

        Parameters
        ----------
        seeds : dict
            The seed of each member, by its number.
        template : BaseTram
            The prepared estimator that all members must fit.
        """
        found = {}
        for number, seed in seeds.items():
            folder = self._member_folder(number)
            if not folder.exists():
                continue
            try:
                found[number] = self._load(folder, seed, template)
            except (OSError, FileFormatError):
                shutil.rmtree(folder)
        return found

    def _load(self, folder: Path, seed: int, template: BaseTram) -> MemberFit:
        content, tensors = read_folder(folder)
        code = self.configuration.member_hash(seed)
        agree(f"{JSON_NAME}: configuration", "that of this fit", code, content.get("configuration"))
        done = read_done(folder) or {}
        agree(f"{DONE}: hash", "that of the configuration", code, done.get("hash"))
        member = MemberFit.from_record(content.get("member"), tensors)
        agree(f"{JSON_NAME}: member.seed", "that of this fit", seed, member.seed)
        with rebuilding(), Budget(member.weights):
            rebuild(template, member.model, member.weights)
            member.restore(template)
        return member

    def save(self, number: int, member: MemberFit) -> None:
        """Write a finished member: complete, or not at all."""
        record, tensors = member.to_record()
        code = self.configuration.member_hash(member.seed)
        content = {"kind": "member", "configuration": code, "member": record}
        folder = write_folder(self._member_folder(number), content, tensors, overwrite=True)
        write_done(folder, code)

    def _member_folder(self, number: int) -> Path:
        return self.folder / f"member-{number:04d}"
