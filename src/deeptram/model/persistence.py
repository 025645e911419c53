"""The file format of saved models: a folder with a JSON file and a file of tensors.

``deeptram.json`` holds everything that is not an array, ``tensors.safetensors``
the arrays; neither can hold code. The JSON file records the size, the SHA-256
and the shapes of the tensor file, and a SHA-256 of itself. A folder is written
under another name and renamed when it is complete. On reading, sizes and digests
are checked before an array is allocated; a folder of another schema, damaged or
changed, is refused. What the JSON file of a model may hold is declared in
``deeptram.estimators.saved_format``. Finished pieces of a longer work (:class:`FinishedWork`) are such
folders, too.

The digests protect against damage and careless editing. They are no signature:
somebody who can rewrite the folder can rewrite the digests, too, and gets other
numbers loaded, but nothing executed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from deeptram._files import file_sha256, give_usual_mode, json_sha256, parse_json, write_json
from deeptram._schema import LARGEST, agree
from deeptram.errors import FileFormatError, InvalidInputError

SCHEMA = 5
JSON_NAME, TENSOR_NAME = "deeptram.json", "tensors.safetensors"
_WORTH_SHARING = 4096  # bytes: weights that members share or tie, not small vectors that agree by chance
LARGEST_JSON, MOST_VALUES = 16 * 1024**2, 10**6  # a JSON value takes up to 100 bytes of memory

Tensors = dict[str, NDArray[Any]]
_DTYPES = {
    "F64": np.dtype(np.float64),
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "I64": np.dtype(np.int64),
    "I32": np.dtype(np.int32),
    "I16": np.dtype(np.int16),
    "I8": np.dtype(np.int8),
    "U8": np.dtype(np.uint8),
    "BOOL": np.dtype(np.bool_),
}


def write_folder(
    path: str | os.PathLike[str],
    content: Mapping[str, Any],
    tensors: Mapping[str, NDArray[Any]],
    *,
    overwrite: bool = False,
) -> Path:
    """Write JSON-able content and arrays as a folder, completely or not at all.

    Parameters
    ----------
    path : path
        The folder to create.
    content : dict
        JSON-able values; see :func:`plain`.
    tensors : dict of arrays
    overwrite : bool
        Replace a folder that holds a saved model. Any other folder or file is
        never touched.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = write_folder(Path(folder) / "m", {"kind": "note"}, {"x": np.arange(3.0)})
    ...     read_folder(path)[1]["x"]
    array([0., 1., 2.])
    """
    path = Path(path)
    check_target(path, overwrite)
    _write(path, content, tensors, replace=overwrite)
    return path


def _write(
    path: Path, content: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]], *, replace: bool
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.parent / f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp"
    temporary.mkdir()
    try:
        arrays = {name: np.asarray(value, order="C") for name, value in tensors.items()}
        file, same = temporary / TENSOR_NAME, _repeated(arrays)
        save_file({name: value for name, value in arrays.items() if name not in same}, file)
        give_usual_mode(file)
        record = {
            "schema": SCHEMA,
            **content,
            "tensors": {
                "bytes": file.stat().st_size,
                "sha256": file_sha256(file),
                "shapes": {name: list(value.shape) for name, value in arrays.items() if name not in same},
                **({"same": same} if same else {}),
            },
        }
        record["sha256"] = _digest(record)
        write_json(temporary / JSON_NAME, record)
        excess = _excess(temporary / JSON_NAME)
        if excess:
            raise InvalidInputError(
                f"a saved model must be described in a small file, got {excess}; use fewer columns or "
                "levels, or save the members one by one"
            )
        for written in (file, temporary):
            _flush(written)
        _put_in_place(temporary, path, replace)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def read_content(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the checked JSON part of a saved folder; no array is read.

    Parameters
    ----------
    path : path
        The folder.
    """
    path = Path(path)
    file = path / JSON_NAME
    if not file.is_file():
        raise FileFormatError(
            f"a saved model is a folder with {JSON_NAME} and {TENSOR_NAME}, got {str(path)!r} without them; "
            "pass the path that was given to save"
        )
    excess = _excess(file)
    if excess:
        raise _damaged(path, f"{JSON_NAME} has {excess}")
    try:
        content = parse_json(file.read_bytes())
        digest = _digest(content) if isinstance(content, dict) else None
    except (ValueError, RecursionError) as error:  # not JSON or not UTF-8, too many digits, too many brackets
        raise _damaged(path, f"{JSON_NAME} cannot be read") from error
    if not isinstance(content, dict) or "schema" not in content:
        raise _damaged(path, f"{JSON_NAME} is not that of a saved model")
    if content["schema"] != SCHEMA:
        raise FileFormatError(
            f"this deeptram reads models of schema {SCHEMA}, got schema {content['schema']!r} in "
            f"{str(path)!r}; load it with the version that wrote it, or fit the model again"
        )
    if content.get("sha256") != digest:
        raise _damaged(path, f"{JSON_NAME} was changed after it was written")
    return content


def read_folder(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Tensors]:
    """Return content and arrays of a saved folder, after all checks.

    Parameters
    ----------
    path : path
        The folder.

    Raises
    ------
    FileFormatError
        If the folder is of another schema, incomplete, damaged or changed.
    """
    content = check_saved(path)
    path, recorded = Path(path), content["tensors"]
    try:
        with safe_open(path / TENSOR_NAME, framework="numpy") as source:
            _check_shapes(path, source, recorded["shapes"])
            tensors = {name: source.get_tensor(name) for name in recorded["shapes"]}
            tensors |= {name: tensors[first] for name, first in recorded.get("same", {}).items()}
    except SafetensorError as error:
        raise _damaged(path, f"{TENSOR_NAME} cannot be read") from error
    return content, tensors


def check_saved(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the checked JSON part of a saved folder whose arrays are as they were written; none is read.

    Parameters
    ----------
    path : path
        The folder.
    """
    path = Path(path)
    content = read_content(path)
    recorded = content.get("tensors")
    if not isinstance(recorded, dict) or not isinstance(recorded.get("shapes"), dict):
        raise _damaged(path, f"{JSON_NAME} does not say which tensors belong to it")
    same = recorded.get("same", {})
    if not isinstance(same, dict) or not all(one in recorded["shapes"] for one in map(str, same.values())):
        raise _damaged(path, f"{JSON_NAME} speaks of tensors that are not there")
    file = path / TENSOR_NAME
    if not file.is_file():
        raise _damaged(path, f"{TENSOR_NAME} is missing")
    if file.stat().st_size != recorded.get("bytes"):
        raise _damaged(path, f"{TENSOR_NAME} has {file.stat().st_size} bytes, not {recorded.get('bytes')}")
    if file_sha256(file) != recorded.get("sha256"):
        raise _damaged(path, f"the content of {TENSOR_NAME} was changed")
    with file.open("rb") as source:
        if int.from_bytes(source.read(8), "little") > LARGEST_JSON:
            raise _damaged(path, f"the header of {TENSOR_NAME} is longer than {LARGEST_JSON} bytes")
    return content


@dataclass(frozen=True)
class FinishedWork:
    """A folder of finished pieces of work, each there completely or not at all.

    A piece is a saved folder with a code, the hash of everything it depends on. One with another code, or
    that is not as it was written, does not count, and is replaced when the piece is saved again.

    Attributes
    ----------
    folder : Path

    Examples
    --------
    >>> import tempfile
    >>> work = FinishedWork(Path(tempfile.mkdtemp()))
    >>> work.save("first", "code", {"seconds": 2}, {"x": np.arange(3.0)})
    >>> work.load("first", "code")
    ({'seconds': 2}, {'x': array([0., 1., 2.])})
    >>> work.is_done("first", "another code")
    False
    """

    folder: Path

    def save(self, name: str, code: str, record: Any, tensors: Mapping[str, NDArray[Any]]) -> None:
        """Keep a finished piece: JSON-able values and arrays."""
        _write(self.folder / name, {"kind": "work", "code": code, "record": record}, tensors, replace=True)

    def load(self, name: str, code: str | None = None) -> tuple[Any, Tensors]:
        """Return what was saved, after all checks; ``FileFormatError`` where that is not there."""
        content, tensors = read_folder(self.folder / name)
        if code is not None:
            agree(f"{self.folder / name}: code", "that of this work", code, content.get("code"))
        return content.get("record"), tensors

    def is_done(self, name: str, code: str | None = None) -> bool:
        """Whether a piece (of that code) is there as it was written."""
        try:
            found = check_saved(self.folder / name).get("code")
        except (OSError, FileFormatError):
            return False
        return code is None or found == code


def check_arrays(expected: Mapping[str, tuple[tuple[int, ...], str]], got: Tensors) -> None:
    """Raise unless arrays have the names, shapes and types that are expected.

    Parameters
    ----------
    expected : dict of (shape, dtype)
    got : dict of arrays

    Examples
    --------
    >>> check_arrays({"beta": ((2,), "float64")}, {"beta": np.zeros(2)})
    """
    found = {name: (value.shape, value.dtype.name) for name, value in got.items()}
    for name in sorted({*expected, *found}):
        if expected.get(name) != found.get(name):
            wanted, given = (
                "none" if one is None else f"{one[1]} of shape {one[0]}"
                for one in (expected.get(name), found.get(name))
            )
            raise FileFormatError(
                f"{TENSOR_NAME}: {name} must be {wanted}, got {given}; load it with the network it was "
                "fitted with, or save it again"
            )


def check_values(name: str, value: NDArray[Any], largest: float = LARGEST) -> None:
    """Raise unless no number is missing or larger than allowed.

    Examples
    --------
    >>> check_values("mask", np.array([-np.inf]), np.inf)
    """
    if value.dtype.kind != "f" or not value.size:
        return
    if not (float(value.min()) >= -largest and float(value.max()) <= largest):
        raise FileFormatError(
            f"{TENSOR_NAME}: {name} must hold numbers from {-largest:g} to {largest:g}, got others; "
            "fit it again"
        )


def _repeated(arrays: Tensors) -> dict[str, str]:
    """Return large arrays that are equal to an earlier one, by name, with its name: they are stored once."""
    first: dict[tuple[str, str, tuple[int, ...]], str] = {}
    same = {}
    for name, value in arrays.items():
        if value.nbytes >= _WORTH_SHARING:
            key = (hashlib.sha256(value.data).hexdigest(), value.dtype.str, value.shape)
            if first.setdefault(key, name) != name:
                same[name] = first[key]
    return same


def check_target(path: Path, overwrite: bool) -> None:
    """Raise unless a folder can be saved at a path: nothing is there, or what may be replaced."""
    if not path.exists():
        return
    if not overwrite:
        raise InvalidInputError(
            f"a model is saved to a path that does not exist yet, got {str(path)!r}, which does; "
            "pass overwrite=True to replace it, or another path"
        )
    replaceable = path.is_dir() and ((path / JSON_NAME).is_file() or not any(path.iterdir()))
    if not replaceable:
        raise InvalidInputError(
            f"overwrite=True replaces saved models only, got {str(path)!r}, which is none; "
            "choose another path"
        )


def _put_in_place(temporary: Path, path: Path, replace: bool) -> None:
    """Rename a complete folder to its final name, moving an older one out of the way where it may be."""
    try:
        temporary.rename(path)
    except OSError:
        if not (replace and path.exists()):
            raise
        old = temporary.with_suffix(".old.tmp")
        path.rename(old)
        temporary.rename(path)
        shutil.rmtree(old, ignore_errors=True)


def _check_shapes(path: Path, source: Any, shapes: Mapping[str, Any]) -> None:
    if set(source.keys()) != set(shapes):
        raise _damaged(path, f"{TENSOR_NAME} holds other tensors than {JSON_NAME} says")
    for name, shape in shapes.items():
        part = source.get_slice(name)
        if list(part.get_shape()) != shape:
            raise _damaged(path, f"tensor {name!r} has shape {list(part.get_shape())}, not {shape}")
        if part.get_dtype() not in _DTYPES:
            raise _damaged(path, f"tensor {name!r} has the unknown type {part.get_dtype()!r}")


def _excess(file: Path) -> str | None:
    """Return what a JSON file has more of than it may, before it is parsed."""
    size = file.stat().st_size
    if size > LARGEST_JSON:
        return f"{size} bytes, more than {LARGEST_JSON}"
    data = file.read_bytes()
    values = sum(data.count(sign) for sign in (b",", b"[", b"{"))
    return f"{values} values, more than {MOST_VALUES}" if values > MOST_VALUES else None


def _digest(record: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a record without its own digest, independent of the order of keys."""
    return json_sha256({key: value for key, value in record.items() if key != "sha256"})


def _flush(path: Path) -> None:
    """Make sure that a file or folder is on the disk (where the system can do so for folders)."""
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _damaged(path: Path, reason: str) -> FileFormatError:
    return FileFormatError(
        f"a saved folder must be as it was written, got {str(path)!r} in which {reason}; "
        "copy it again, or delete it and make it again"
    )
