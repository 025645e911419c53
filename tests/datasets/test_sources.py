"""Folders, archives and the cache: order, refusals, damage, and what an interruption leaves behind."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest

from deeptram.datasets.sources import (
    FolderCollection,
    TarCollection,
    cache_folder,
    check_sha256,
    data_folder,
    decoded_images,
    first_existing,
    open_images,
)
from deeptram.errors import FileFormatError, InvalidInputError, UnknownNameError


@pytest.fixture
def files(make_jpeg) -> dict[str, bytes]:
    """Two images, not in order, and two files that are none."""
    images = {"d/b.jpg": make_jpeg((0, 200, 0)), "d/a.jpg": make_jpeg((200, 0, 0))}
    return {**images, "d/.a.jpg": b"x", "d/notes.txt": b"x"}


def as_folder(path: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    return path


@pytest.fixture(params=["folder", "tar", "tar.gz"])
def collection(request, tmp_path, files, make_tar):
    """The same images in a folder and in archives."""
    if request.param == "folder":
        return open_images(as_folder(tmp_path, files))
    return open_images(make_tar(tmp_path / f"x.{request.param}", files))


def test_names_and_contents(collection, files):
    assert collection.names() == ["a.jpg", "b.jpg"]
    assert dict(collection.contents({"b.jpg"})) == {"b.jpg": files["d/b.jpg"]}
    assert dict(collection.contents({"a.jpg", "b.jpg"})) == {
        "a.jpg": files["d/a.jpg"],
        "b.jpg": files["d/b.jpg"],
    }


def test_fingerprint_changes_with_the_files(collection):
    before = collection.fingerprint()
    assert collection.fingerprint() == before
    path = collection.path / "d" / "a.jpg" if collection.path.is_dir() else collection.path
    os.utime(path, ns=(1, 1))
    assert open_images(collection.path).fingerprint() != before


def test_images_are_decoded_once_in_the_wanted_order(collection, tmp_path, monkeypatch):
    steps = []
    cache = tmp_path / "cache"
    first = decoded_images(
        "toy", collection, ["b.jpg", "a.jpg"], (4, 6), cache=cache, progress=lambda *step: steps.append(step)
    )
    assert first.images.shape == (2, 4, 6, 3)
    assert np.abs(first.images[0].astype(int) - [0, 200, 0]).max() < 4
    assert np.abs(first.images[1].astype(int) - [200, 0, 0]).max() < 4
    assert steps == [(1, 2), (2, 2)]
    assert isinstance(first.images, np.memmap)
    assert not first.images.flags.writeable
    monkeypatch.setattr("deeptram.datasets.sources.decode_image", None)
    again = decoded_images("toy", collection, ["b.jpg", "a.jpg"], (4, 6), cache=cache)
    np.testing.assert_array_equal(again.images, first.images)
    with pytest.raises(TypeError):  # another size is another file: it has to be decoded
        decoded_images("toy", collection, ["b.jpg", "a.jpg"], 5, cache=cache)


def test_cache_is_private_to_the_names(collection, tmp_path):
    one = decoded_images("toy", collection, ["b.jpg", "a.jpg"], 4, cache=tmp_path / "c")
    two = decoded_images("toy", collection, ["a.jpg", "b.jpg"], 4, cache=tmp_path / "c")
    np.testing.assert_array_equal(one.images[0], two.images[1])


def test_damaged_cache_is_made_again(collection, tmp_path):
    arguments = ("toy", collection, ["a.jpg", "b.jpg"], 4)
    expected = np.array(decoded_images(*arguments, cache=tmp_path / "c").images)
    for damage in (b"", b"\x93NUMPY", b"x" * 40):
        (file,) = (tmp_path / "c").glob("*.npy")
        file.write_bytes(damage)
        np.testing.assert_array_equal(decoded_images(*arguments, cache=tmp_path / "c").images, expected)
    (file,) = (tmp_path / "c").glob("*.json")
    file.unlink()
    np.testing.assert_array_equal(decoded_images(*arguments, cache=tmp_path / "c").images, expected)


def test_interruption_leaves_nothing_behind(collection, tmp_path):
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        decoded_images("toy", collection, ["a.jpg", "b.jpg"], 4, cache=tmp_path / "c", progress=stop)
    assert list((tmp_path / "c").iterdir()) == []


def test_broken_images_are_named_or_reported(tmp_path, make_tar, files):
    broken = {**files, "d/c.jpg": b"no image", "d/e.jpg": files["d/a.jpg"][:200]}
    collection = open_images(make_tar(tmp_path / "x.tar", broken))
    wanted = ["e.jpg", "a.jpg", "c.jpg"]
    for _ in range(2):  # freshly decoded, then from the cache
        with pytest.raises(
            FileFormatError, match=r"got 2 broken: e\.jpg, c\.jpg; replace them, or pass on_error='skip'"
        ):
            decoded_images("toy", collection, wanted, 4, cache=tmp_path / "c")
    assert decoded_images("toy", collection, wanted, 4, cache=tmp_path / "c", on_error="skip").broken == (
        0,
        2,
    )
    with pytest.raises(UnknownNameError, match="on_error must be one of 'raise', 'skip', got 'ignore'"):
        decoded_images("toy", collection, wanted, 4, on_error="ignore")


def test_missing_images_are_named(collection):
    with pytest.raises(InvalidInputError, match=r"all 3 images must be in .*, got 2 missing: y\.jpg, z\.jpg"):
        decoded_images("toy", collection, ["a.jpg", "z.jpg", "y.jpg"], 4)


@pytest.mark.parametrize("name", ["../a.jpg", "/a.jpg", "d/../../a.jpg", "..\\a.jpg"])
def test_names_that_lead_out_of_an_archive_are_refused(tmp_path, name, make_tar):
    path = make_tar(tmp_path / "x.tar", {"d/a.jpg": b"1", name: b"2"})
    with pytest.raises(FileFormatError, match=r"must hold plain files in folders, got the member"):
        TarCollection(path).names()
    with pytest.raises(FileFormatError, match="must hold plain files in folders"):
        list(TarCollection(path).contents({"a.jpg"}))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_are_refused(tmp_path, kind):
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        member = tarfile.TarInfo("a.jpg")
        member.type, member.linkname = kind, "/etc/hostname"
        archive.addfile(member)
    with pytest.raises(FileFormatError, match=r"must hold plain files in folders, got the member 'a\.jpg'"):
        TarCollection(tmp_path / "x.tar").names()


def test_oversized_members_are_refused_before_they_are_read(tmp_path, monkeypatch, files):
    member = tarfile.TarInfo("huge.jpg")
    member.size = 2**40
    (tmp_path / "x.tar").write_bytes(member.tobuf() + bytes(1024))
    with pytest.raises(FileFormatError, match=r"at most 268435456 bytes, got 1099511627776 for 'huge\.jpg'"):
        TarCollection(tmp_path / "x.tar").names()
    monkeypatch.setattr("deeptram.inputs.shards.MAX_FILE_BYTES", 10)
    with pytest.raises(FileFormatError, match=r"at most 10 bytes, got \d+ for 'a.jpg'"):
        list(FolderCollection([as_folder(tmp_path / "f", files)]).contents({"a.jpg"}))


def test_too_many_members_are_refused(tmp_path, monkeypatch, make_tar, files):
    monkeypatch.setattr("deeptram.inputs.shards.MAX_MEMBERS", 1)
    with pytest.raises(FileFormatError, match="must hold at most 1 files, got more"):
        TarCollection(make_tar(tmp_path / "x.tar", files)).names()


def test_repeated_names_are_refused(tmp_path, make_tar):
    files = {"d/a.jpg": b"1", "e/a.jpg": b"2"}
    with pytest.raises(FileFormatError, match=r"must be unique, got 'a\.jpg' twice"):
        TarCollection(make_tar(tmp_path / "x.tar", files)).names()
    with pytest.raises(FileFormatError, match=r"must be unique, got 'a\.jpg' twice"):
        open_images(as_folder(tmp_path / "f", files))


def test_damaged_archives_are_named(tmp_path, rng, make_tar):
    noise = {f"d/{k}.jpg": rng.bytes(3000) for k in range(5)}
    whole = make_tar(tmp_path / "x.tar.gz", noise).read_bytes()
    for name, content in {"cut": whole[: len(whole) // 2], "text": b"no archive", "empty": b""}.items():
        path = tmp_path / f"{name}.tar.gz"
        path.write_bytes(content)
        with pytest.raises(
            FileFormatError, match=rf"{name}\.tar\.gz must be a readable tar archive, got .*; download"
        ):
            list(TarCollection(path).contents({"4.jpg"}))
    uncompressed = make_tar(tmp_path / "y.tar", noise).read_bytes()
    (tmp_path / "y.tar").write_bytes(uncompressed[:6000])
    with pytest.raises(FileFormatError, match=r"y\.tar must be a readable tar archive"):
        list(TarCollection(tmp_path / "y.tar").contents(set(map("{}.jpg".format, range(5)))))


def test_folders(tmp_path, monkeypatch):
    (tmp_path / "mnist").mkdir()
    assert data_folder(tmp_path, "mnist") == tmp_path / "mnist"
    assert data_folder(tmp_path / "mnist", "mnist") == tmp_path / "mnist"
    monkeypatch.setenv("DEEPTRAM_DATA", str(tmp_path))
    assert data_folder(None, "mnist") == tmp_path / "mnist"
    monkeypatch.delenv("DEEPTRAM_DATA")
    with pytest.raises(
        InvalidInputError, match="'mnist' needs a folder, got none; pass directory= or set DEEPTRAM"
    ):
        data_folder(None, "mnist")
    with pytest.raises(InvalidInputError, match=r"directory must be a folder, got .*nowhere"):
        data_folder(tmp_path / "nowhere", "mnist")
    with pytest.raises(
        InvalidInputError, match=r"the table must be in .* as a\.csv or b\.csv, got none of them"
    ):
        first_existing(tmp_path, ("a.csv", "b.csv"), "the table")


def test_cache_folder(tmp_path, monkeypatch):
    assert cache_folder(tmp_path) == tmp_path
    monkeypatch.setenv("DEEPTRAM_CACHE", str(tmp_path / "c"))
    assert cache_folder() == tmp_path / "c"
    monkeypatch.delenv("DEEPTRAM_CACHE")
    assert cache_folder() == Path.home() / ".cache" / "deeptram"


def test_checksum():
    check_sha256(b"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", "x")
    with pytest.raises(FileFormatError, match=r"x must be the original \(SHA-256 0{16}.*verify=False"):
        check_sha256(b"abc", "0" * 64, "x")


def test_nothing_is_extracted(tmp_path, make_tar, files):
    path = make_tar(tmp_path / "x.tar", files)
    list(TarCollection(path).contents({"a.jpg"}))
    assert [file.name for file in tmp_path.iterdir()] == ["x.tar"]
    assert io.BytesIO(files["d/a.jpg"]).read(2) == b"\xff\xd8"
