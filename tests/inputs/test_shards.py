"""Tar shards: rows, texts, batches from one shard at a time, training, and archives of doubtful origin."""

from __future__ import annotations

import io
import pickle
import tarfile

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.base import clone

import deeptram as dt
from deeptram._rows import take_rows
from deeptram.datasets.sources import TarCollection
from deeptram.errors import FileFormatError, InvalidInputError
from deeptram.inputs import TarImages, write_shards
from deeptram.inputs.batches import LazySource, shuffled_batches
from deeptram.inputs.images import ImageSource, decode_image
from deeptram.inputs.shards import MAX_FILE_BYTES

N = 24


def png(value):
    file = io.BytesIO()
    Image.new("L", (6, 5), value).save(file, "PNG")
    return file.getvalue()


def files(n=N):
    """Image k is of grey k, with its class beside it and a file that nobody asks for."""
    for k in range(n):
        yield f"s/{k:02d}.png", png(k)
        yield f"s/{k:02d}.cls", f"{k % 3}\n".encode()
        yield f"s/{k:02d}.json", b"{}"


@pytest.fixture
def folder(tmp_path):
    write_shards(files(), tmp_path / "shards", 4)
    return tmp_path / "shards"


@pytest.fixture
def images(folder):
    return TarImages(folder, 4, mode="L")


def greys(images):
    """The number that each row's image was made with, from its name."""
    return np.array([int(name[2:4]) for name in images.names])


def test_rows_are_the_images_of_all_shards(images):
    assert images.shape == (N, 4, 4)
    assert sorted(greys(images)) == list(range(N))
    assert repr(images) == "TarImages(n=24, shards=4, size=(4, 4), mode='L')"
    for rows in ([5, 5, 0, -1], np.array([7]), slice(3, 9), [], np.arange(N) % 2 == 0):
        expected = greys(images)[rows if not isinstance(rows, list) else np.array(rows, dtype=int)]
        np.testing.assert_array_equal(images[rows], np.tile(expected[:, None, None], (1, 4, 4)))
    with pytest.raises(InvalidInputError, match=r"rows of 'image' must lie in 0\.\.23, got 24"):
        images[[24]]


def test_texts_stand_beside_their_images(images):
    assert images.texts("cls").tolist() == [str(k % 3) for k in greys(images)]
    with pytest.raises(InvalidInputError, match=r"every image must have a file \.txt beside it .* got 24"):
        images.texts("txt")


def test_rows_by_name(images):
    rows = images.find(["07.png", "s/03.png"])
    assert images[rows][:, 0, 0].tolist() == [7, 3]
    with pytest.raises(
        InvalidInputError, match=r"must be those of one image .*, got 1 of none or several: 99"
    ):
        images.find(["07.png", "99.png"])


def test_samples_are_spread_at_random_and_by_the_seed(tmp_path):
    parts = [TarImages(write_shards(files(), tmp_path / str(k), 4, random_state=k % 2), 4) for k in range(3)]
    assert parts[0].names == parts[2].names != parts[1].names
    assert np.bincount(parts[0].row_blocks).min() >= 1
    assert greys(parts[0])[parts[0].row_blocks == 0].tolist() != list(range((parts[0].row_blocks == 0).sum()))
    with pytest.raises(InvalidInputError, match=r"must hold no shards yet, got shard-000000\.tar"):
        write_shards(files(), tmp_path / "0", 2)
    with pytest.raises(InvalidInputError, match="n_shards must be an integer of at most 500, got 501"):
        write_shards(files(), tmp_path / "many", 501)


def test_nothing_is_written_when_the_files_end_badly(tmp_path):
    def broken():
        yield from files(2)
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        write_shards(broken(), tmp_path / "shards", 2)
    assert not list((tmp_path / "shards").glob("*"))


def test_shards_travel_as_an_index(images, monkeypatch):
    copy = pickle.loads(pickle.dumps(images))
    np.testing.assert_array_equal(copy[[3, 1]], images[[3, 1]])
    assert len(pickle.dumps(images)) < 4000


# -- local shuffling -----------------------------------------------------------------------------------


def test_batches_come_from_one_shard_after_the_other(images, monkeypatch):
    blocks = LazySource(ImageSource(images)).row_blocks
    rows = torch.arange(N).repeat(2, 1)

    def epoch(seed):
        return shuffled_batches(rows, 3, [torch.Generator().manual_seed(seed + m) for m in (0, 1)], blocks)

    first, again, other = (torch.cat(epoch(seed), dim=1) for seed in (1, 1, 5))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    for order in (*first, *other):
        assert sorted(order.tolist()) == list(range(N))
        visited = blocks[order]
        assert (visited[1:] != visited[:-1]).sum() == 3  # four shards, each visited once
    own = [order[blocks[order] == 0].tolist() for order in (*first, *other)]
    assert len(set(map(tuple, own))) > 1  # and shuffled inside
    assert len({tuple(dict.fromkeys(blocks[order].tolist())) for order in (*first, *other)}) > 1


def test_every_order_of_rows_is_as_likely_as_any_other():
    blocks, generator = torch.tensor([0, 0, 1, 1]), torch.Generator().manual_seed(0)
    rows = torch.arange(4)[None]
    found = [
        tuple(torch.cat(shuffled_batches(rows, 4, [generator], blocks), 1)[0].tolist()) for _ in range(1600)
    ]
    counts = np.array([found.count(one) for one in set(found)])
    assert len(counts) == 8  # 2 orders of shards, 2 of the rows of each
    assert ((counts - 200) ** 2 / 200).sum() < 24.3  # chi-squared with 7 degrees of freedom, p = 0.001


def test_some_rows_keep_their_shards(images):
    rows = [3, 20, 5]
    source = LazySource(ImageSource(take_rows(images, rows)))
    assert source.row_blocks.tolist() == images.row_blocks[rows].tolist()

    class Wrong:
        shape, row_blocks = (2, 4, 4), [0.5, 1.0]

        def __getitem__(self, rows):
            return np.zeros((len(rows), 4, 4))

    with pytest.raises(InvalidInputError, match=r"row_blocks of an entry must be one integer .* got float64"):
        LazySource(ImageSource(Wrong()))


@pytest.mark.parametrize("workers", [0, 2])
def test_training_opens_one_shard_at_a_time_and_learns_as_from_memory(folder, images, monkeypatch, workers):
    y, pixels, read, opened = images.texts("cls").astype(int), images[:], TarImages.__getitem__, []

    def noted(self, rows):
        if len(rows) == 3:  # a batch
            opened.append(len(set(self.row_blocks[rows])))
        return read(self, rows)

    class InMemory(TarImages):
        """The same batches, from an array."""

        def __getitem__(self, rows):
            return pixels[rows]

    training = dt.Training(epochs=2, batch_size=3, progress=False, workers=workers)
    model = dt.Polr([dt.CS(dt.networks.CNN(channels=(2,)), "image")], training=training)
    ensemble = dt.Ensemble(model, 2, random_state=1, strategy="sequential")
    expected = clone(ensemble).fit({"image": InMemory(folder, 4, mode="L")}, y)
    monkeypatch.setattr(TarImages, "__getitem__", noted)
    found = ensemble.fit({"image": images}, y)
    if not workers:  # worker processes note for themselves
        assert len(opened) == 2 * 2 * N // 3  # members, epochs, batches
        assert sum(opened) <= len(opened) + 2 * 2 * 3  # a second shard only where one ends
    prob = found.predict_proba({"image": images})
    np.testing.assert_array_equal(prob, expected.predict_proba({"image": pixels}))


# -- untrusted files -----------------------------------------------------------------------------------


def archive(path, *members):
    """Write members (TarInfo or name, content) as they are."""
    with tarfile.open(path, "w") as tar:
        for member, content in members:
            info = member if isinstance(member, tarfile.TarInfo) else tarfile.TarInfo(member)
            info.size = len(content) if info.type in (tarfile.REGTYPE, tarfile.GNUTYPE_SPARSE) else 0
            tar.addfile(info, io.BytesIO(content))
    return path


def special(name, kind, target=""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


@pytest.mark.parametrize(
    "member",
    [
        "../a.png",
        "/etc/a.png",
        "a\\..\\..\\b.png",
        special("a.png", tarfile.SYMTYPE, "/etc/passwd"),
        special("a.png", tarfile.LNKTYPE, "b.png"),
        special("a.png", tarfile.CHRTYPE),
    ],
    ids=["up", "root", "backslash", "symlink", "hardlink", "device"],
)
def test_only_plain_files_inside_the_archive(tmp_path, member):
    path = archive(tmp_path / "x.tar", ("ok.png", png(1)), (member, b""))
    with pytest.raises(FileFormatError, match="must hold plain files in folders, got the member"):
        TarImages(path, 4)


def test_sizes_are_checked_before_anything_is_read(tmp_path):
    info = tarfile.TarInfo("a.png")
    info.size = MAX_FILE_BYTES + 1
    (tmp_path / "x.tar").write_bytes(info.tobuf())
    with pytest.raises(
        FileFormatError, match=f"at most {MAX_FILE_BYTES} bytes, got {MAX_FILE_BYTES + 1} for 'a.png'"
    ):
        TarImages(tmp_path / "x.tar", 4)
    path = archive(tmp_path / "y.tar", ("a.png", png(1)), ("a.cls", b"1" * 2**21))
    with pytest.raises(FileFormatError, match=r"at most 1048576 bytes, got 2097152 for 'a\.cls'"):
        TarImages(path, 4).texts("cls")
    path = archive(tmp_path / "z.tar", ("a.png", png(1)), ("a.cls", b"\xff"))
    with pytest.raises(FileFormatError, match=r"must be UTF-8, got other bytes in 'a\.cls'"):
        TarImages(path, 4).texts("cls")
    with pytest.raises(FileFormatError, match="must have at most 20 pixels, got 30"):
        TarImages(path, 4, max_pixels=20)[[0]]


def test_damage_is_named(tmp_path):
    path = archive(tmp_path / "x.tar", ("a.png", png(1)), ("broken.png", b"no image"), ("c.png", png(3)))
    images = TarImages(path, 4)
    assert images[[2, 0]][:, 0, 0, 0].tolist() == [3, 1]
    with pytest.raises(
        FileFormatError, match=r"image broken\.png in .*x\.tar must be readable, got Unidentified"
    ):
        images[[0, 1]]
    whole = path.read_bytes()
    path.write_bytes(whole[:1024] + b"?" * 512 + whole[1536:])  # the second header
    with pytest.raises(FileFormatError, match="got a damaged header at byte 1024; download it again"):
        TarImages(path, 4)
    with pytest.raises(FileFormatError, match="got a damaged header at byte 1024"):
        TarCollection(path).names()
    path.write_bytes(whole[:1700])
    with pytest.raises(FileFormatError, match="must be a readable tar archive, got ReadError"):
        TarImages(path, 4)


def test_shards_that_change_or_vanish_are_noticed(tmp_path):
    path = archive(tmp_path / "x.tar", ("a.png", png(1)), ("b.png", png(2)))
    images = TarImages(path, 4)
    archive(path, ("b.png", png(2)), ("a.png", png(1)))  # as long as before
    with pytest.raises(FileFormatError, match=r"must stay as it was .* another file where 'a\.png' was"):
        images[[0]]
    path.unlink()
    with pytest.raises(FileFormatError, match=r"x\.tar must be readable, got FileNotFoundError"):
        images[[0]]


def test_places_without_shards(tmp_path):
    for nothing in (tmp_path, tmp_path / "none.tar", []):
        with pytest.raises(
            InvalidInputError, match=r"shards must be a folder with \*\.tar files, or archives"
        ):
            TarImages(nothing, 4)
    with tarfile.open(tmp_path / "x.tar", "w:gz"):
        pass
    with pytest.raises(FileFormatError, match=r"must not be compressed, .* unpack it \(gunzip\)"):
        TarImages(tmp_path / "x.tar", 4)
    with pytest.raises(InvalidInputError, match="at least one row, got none"):
        ImageSource(TarImages(archive(tmp_path / "y.tar", ("a.txt", b"")), 4))


def test_faces_in_shards_are_those_of_the_archive(data_dir, tmp_path):
    path = data_dir / "utkface" / "UTKFace.tar.gz"
    if not path.is_file():
        pytest.skip("there is no UTKFace.tar.gz in DEEPTRAM_DATA")
    collection = TarCollection(path)
    faces = dict(collection.contents(collection.names()[::40]))
    write_shards(faces.items(), tmp_path, 5)
    images = TarImages(tmp_path, 16)
    assert sorted(images.names) == sorted(faces)
    found = images[images.find(list(faces))]
    np.testing.assert_array_equal(found, [decode_image(content, 16) for content in faces.values()])
    ages = np.array([int(name.partition("_")[0]) for name in images.names])
    means = [ages[images.row_blocks == k].mean() for k in range(5)]
    assert np.ptp(means) < 15  # shards are samples, though names are sorted by age
