"""Each loader on small stand-ins in the original layout, with every refusal, and on the real data."""

from __future__ import annotations

import gzip
import itertools

import numpy as np
import pandas as pd
import pytest

from deeptram import datasets
from deeptram._files import read_bytes
from deeptram.datasets import load_ham10000, load_melanoma, load_mnist, load_utkface
from deeptram.datasets.digits import parse_idx
from deeptram.datasets.image_studies import COUNTS, LEVELS, age_group
from deeptram.datasets.sources import FolderCollection, TarCollection
from deeptram.errors import FileFormatError, InvalidInputError, UnknownNameError

# --- MNIST -----------------------------------------------------------------------------------------


@pytest.fixture
def small_mnist(tmp_path, rng, make_idx):
    images, labels = rng.integers(0, 256, (7, 28, 28)), np.array([3, 1, 4, 1, 5, 9, 0])
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(make_idx(images)))
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(make_idx(labels))
    return tmp_path, images, labels


def test_mnist_gz_or_not(small_mnist):
    folder, images, labels = small_mnist
    data = load_mnist(folder, verify=False)
    np.testing.assert_array_equal(data.X["image"], images)
    assert data.codes.tolist() == labels.tolist()
    assert data.levels == tuple(range(10))


def test_mnist_refusals(small_mnist, make_idx):
    folder, images, _ = small_mnist
    with pytest.raises(FileFormatError, match=r"train-images.*gz must be the original \(SHA-256 ba891046"):
        load_mnist(folder)
    with pytest.raises(
        InvalidInputError, match=r"MNIST's t10k-images-idx3-ubyte must be in .*, got none of them"
    ):
        load_mnist(folder, part="test", verify=False)
    with pytest.raises(UnknownNameError, match="part must be one of 'train', 'test', got 'val'"):
        load_mnist(folder, part="val")
    (folder / "train-labels-idx1-ubyte").write_bytes(make_idx(np.arange(3)))
    with pytest.raises(FileFormatError, match=r"n labels 0\.\.9, got shapes \(7, 28, 28\) and \(3,\)"):
        load_mnist(folder, verify=False)
    whole = gzip.compress(make_idx(images))
    (folder / "train-images-idx3-ubyte.gz").write_bytes(whole[:500])
    with pytest.raises(FileFormatError, match=r"gz must be readable, got EOFError .*; get or make it again"):
        load_mnist(folder, verify=False)
    (folder / "train-images-idx3-ubyte.gz").write_bytes(b"no gzip")
    with pytest.raises(FileFormatError, match="must be readable, got BadGzipFile"):
        load_mnist(folder, verify=False)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "unsigned bytes, got nothing"),
        (b"\x00\x00\x0d\x01\x00\x00\x00\x01\x00", "unsigned bytes, got 00000d01"),
        (b"\x00\x00\x08\x09", "unsigned bytes, got 00000809"),
        (b"\x00\x00\x08\x03\x00\x00", "a header of 16 bytes, got 6"),
        (b"\x00\x00\x08\x01\x00\x00\x00\x03\x01\x02", r"must hold 3 values for the shape \(3,\), got 2"),
        (b"\x00\x00\x08\x01\x00\x00\x00\x01\x01\x02", r"must hold 1 values for the shape \(1,\), got 2"),
        (b"\x00\x00\x08\x03" + b"\xff" * 12, "must hold 79228162458924105385300197375 values"),
    ],
)
def test_idx_refusals(content, match):
    with pytest.raises(FileFormatError, match=match):
        parse_idx(content)


def test_gzip_bombs_stop_at_the_limit(tmp_path):
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(bytes(10_000)))
    with pytest.raises(FileFormatError, match="must hold at most 1000 bytes, got more"):
        read_bytes(tmp_path / "bomb.gz", limit=1000)


def test_idx_of_every_rank(rng, make_idx):
    for rank in (1, 2, 3, 4):
        array = rng.integers(0, 256, tuple(range(2, 2 + rank)))
        np.testing.assert_array_equal(parse_idx(make_idx(array)), array)


def test_real_mnist(data_dir):
    data = load_mnist(data_dir)
    assert data.X["image"].shape == (60_000, 28, 28)
    assert np.bincount(data.codes).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert len(load_mnist(data_dir / "mnist", part="test")) == 10_000


# --- UTKFace ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["tar.gz", "tar", "folder", "itself"])
def test_utkface_layouts(tmp_path, faces, make_tar, kind):
    if kind.startswith("tar"):
        make_tar(
            tmp_path / f"UTKFace.{kind}", {f"UTKFace/{name}": content for name, content in faces.items()}
        )
    else:
        folder = tmp_path / "UTKFace" if kind == "folder" else tmp_path
        folder.mkdir(exist_ok=True)
        for name, content in faces.items():
            (folder / name).write_bytes(content)
    data = load_utkface(tmp_path, size=8, seed=4)
    assert data.X["image"].shape == (6, 8, 8, 3)
    assert [name.split("_")[0] for name in data.X["file"]] == ["116", "13", "26", "3", "45", "61"]
    assert data.info["rows"]["age"].tolist() == [116, 13, 26, 3, 45, 61]
    assert data.y.tolist() == ["61+", "13-19", "20-30", "0-3", "31-45", "61+"]
    assert data.X["gender"].tolist() == [0, 0, 1, 0, 1, 1]
    assert data.info["dropped"]["no race in the name"] == ["39_1_20170116174525125.jpg.chip.jpg"]
    assert np.abs(data.X["image"][[3, 5], 4, 4].astype(int) - [[0, 200, 0], [200, 0, 0]]).max() < 4
    table = load_utkface(tmp_path, images=False, seed=4)
    pd.testing.assert_frame_equal(table.table(), data.table())
    assert not np.array_equal(load_utkface(tmp_path, images=False, seed=5).X["x_1"], table.X["x_1"])


def test_age_groups_are_closed_on_the_left():
    ages = np.arange(117)
    groups = [
        list(map(int, group)) for _, group in itertools.groupby(ages, key=lambda age: int(age_group(age)))
    ]
    assert [(group[0], group[-1]) for group in groups] == [
        (0, 3), (4, 12), (13, 19), (20, 30), (31, 45), (46, 60), (61, 116),
    ]  # fmt: skip


def test_utkface_refusals(tmp_path, faces, make_tar, make_jpeg):
    with pytest.raises(InvalidInputError, match=r"UTKFace images must be in .* as UTKFace\.tar\.gz or"):
        load_utkface(tmp_path)
    make_tar(tmp_path / "UTKFace.tar", {**faces, "portrait.jpg": make_jpeg((1, 1, 1)), "200_7_0_1.jpg": b""})
    with pytest.raises(
        FileFormatError, match=r"must read age_gender_race.*, got 2 others: 200_7_0_1\.jpg, portrait"
    ):
        load_utkface(tmp_path)
    make_tar(tmp_path / "UTKFace.tar", {"39_1_20170116174525125.jpg": b""})
    with pytest.raises(FileFormatError, match="must hold UTKFace images, got none"):
        load_utkface(tmp_path)


def test_utkface_broken_images_are_skipped_only_if_asked(tmp_path, faces, make_tar):
    first = next(iter(faces))
    make_tar(tmp_path / "UTKFace.tar", {**faces, first: faces[first][:100]})
    with pytest.raises(FileFormatError, match="got 1 broken: 61_1_3_"):
        load_utkface(tmp_path, size=8)
    data = load_utkface(tmp_path, size=8, on_error="skip")
    assert len(data) == 5
    assert data.info["dropped"]["broken image"] == [first]
    assert data.info["rows"]["age"].tolist() == [116, 13, 26, 3, 45]
    assert data.X["image"][[4]].shape == (1, 8, 8, 3)


def test_real_utkface_table(data_dir):
    data = load_utkface(data_dir, images=False)
    assert len(data) == 23_705
    assert np.bincount(data.codes).tolist() == list(COUNTS)
    assert data.levels == LEVELS
    assert len(data.info["dropped"]["no race in the name"]) == 3


# --- melanoma --------------------------------------------------------------------------------------


@pytest.fixture
def melanoma(tmp_path):
    table = pd.DataFrame(
        {
            "image_name": ["I_1", "I_2", "I_3", "I_4"],
            "patient_id": ["P_1", "P_1", "P_2", "P_3"],
            "sex": ["male", "male", None, "female"],
            "age_approx": [45.0, 55.0, np.nan, 65.0],
            "anatom_site_general_challenge": ["torso", None, "torso", "head/neck"],
            "target": [0, 1, 0, 0],
        }
    )
    table.to_csv(tmp_path / "train.csv", index=False)
    return tmp_path, table


def test_melanoma_table(melanoma):
    data = load_melanoma(melanoma[0])
    assert data.X["age"].tolist() == [-1.0, 0.0, 1.0]
    assert data.y.tolist() == ["benign", "malignant", "benign"]
    assert (data.info["age_mean"], data.info["age_sd"]) == (55.0, 10.0)
    assert data.info["dropped"] == {"no age": 1}
    assert "image" not in data.X
    with pytest.raises(InvalidInputError, match=r"melanoma images must be in .* as jpeg/train or"):
        load_melanoma(melanoma[0], images=True)


def test_melanoma_with_images(melanoma, make_jpeg):
    folder, _ = melanoma
    (folder / "jpeg" / "train").mkdir(parents=True)
    for k, name in enumerate(["I_4", "I_2", "I_1"]):
        (folder / "jpeg" / "train" / f"{name}.jpg").write_bytes(make_jpeg((80 * k, 0, 0)))
    data = load_melanoma(folder, size=(6, 8))
    assert data.X["image"].shape == (3, 6, 8, 3)
    np.testing.assert_allclose(data.X["image"][:, 3, 3, 0], [160, 80, 0], atol=3)
    assert "image" not in load_melanoma(folder, images=False).X
    (folder / "jpeg" / "train" / "I_2.jpg").unlink()
    with pytest.raises(InvalidInputError, match=r"all 3 images must be in .*, got 1 missing: I_2\.jpg"):
        load_melanoma(folder, size=(6, 8))


def test_melanoma_refusals(melanoma):
    folder, table = melanoma
    for change, match in (
        ({"target": 2}, r"target in .* must be 0 or 1, got other values"),
        (
            {"image_name": "I_1"},
            "image_name in .* must name each row once, got 3 repeated or missing: I_1, I_1",
        ),
    ):
        table.assign(**change).to_csv(folder / "train.csv", index=False)
        with pytest.raises(FileFormatError, match=match):
            load_melanoma(folder)
    table.drop(columns=["target", "sex"]).to_csv(folder / "train.csv", index=False)
    with pytest.raises(
        FileFormatError, match=r"must have the columns .*, got none named sex, target; download"
    ):
        load_melanoma(folder)
    (folder / "train.csv").write_bytes(b"")
    with pytest.raises(FileFormatError, match=r"train\.csv must be a CSV table, got EmptyDataError"):
        load_melanoma(folder)
    (folder / "train.csv").write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(FileFormatError, match=r"train\.csv must be a CSV table, got UnicodeDecodeError"):
        load_melanoma(folder)
    (folder / "train.csv").unlink()
    with pytest.raises(InvalidInputError, match=r"the melanoma table must be in .* as train\.csv, got none"):
        load_melanoma(folder)


def test_real_melanoma(data_dir):
    data = load_melanoma(data_dir)
    assert (len(data), data.codes.sum()) == (33_058, 584)
    assert data.X["age"].mean() == pytest.approx(0, abs=1e-12)
    assert data.X["age"].std(ddof=1) == pytest.approx(1, abs=1e-12)


# --- HAM10000 --------------------------------------------------------------------------------------


def test_ham10000_from_an_archive(ham):
    data = load_ham10000(ham, size=8)
    assert data.y.tolist() == ["melanoma", "melanoma", "other"]
    assert data.X["lesion_id"].tolist() == ["HAM_1", "HAM_1", "HAM_3"]
    assert data.X["age"].tolist() == [1.0, 0.0, -1.0]
    assert data.info["dropped"] == {"no age": 1}
    expected = [[0, 200, 0], [200, 0, 0], [90, 90, 90]]
    assert np.abs(data.X["image"][:, 4, 4].astype(int) - expected).max() < 4
    assert "image" not in load_ham10000(ham, images=False).X


def test_ham10000_from_two_folders(ham):
    contents = dict(
        TarCollection(ham / "HAM10000_images.tar.gz").contents({f"ISIC_{k}.jpg" for k in range(1, 5)})
    )
    expected = np.array(load_ham10000(ham, size=8).X["image"])
    (ham / "HAM10000_images.tar.gz").unlink()
    for k, (name, content) in enumerate(contents.items()):
        folder = ham / f"HAM10000_images_part_{k % 2 + 1}"
        folder.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    np.testing.assert_array_equal(load_ham10000(ham, size=8).X["image"], expected)


def test_ham10000_refusals(ham):
    (ham / "HAM10000_images.tar.gz").unlink()
    with pytest.raises(
        InvalidInputError, match=r"HAM10000 images must be in .* as HAM10000_images\.tar\.gz or"
    ):
        load_ham10000(ham)
    (ham / "HAM10000_metadata.csv").unlink()
    with pytest.raises(InvalidInputError, match="the HAM10000 table must be in"):
        load_ham10000(ham)


def test_real_ham10000_and_a_few_of_its_images(data_dir, tmp_path):
    data = load_ham10000(data_dir, images=False)
    assert (len(data), data.codes.sum()) == (9958, 1111)
    assert len(set(data.X["lesion_id"])) == 7418
    images = TarCollection(data_dir / "ham10000" / "HAM10000_images.tar.gz")
    few = dict(itertools.islice(images.contents({f"{name}.jpg" for name in data.X["image_id"]}), 30))
    for name, content in few.items():
        (tmp_path / name).write_bytes(content)
    decoded = datasets.sources.decoded_images(
        "few", FolderCollection([tmp_path]), sorted(few), 32, cache=tmp_path
    )
    assert decoded.broken == ()
    assert decoded.images.std() > 10


@pytest.mark.slow
@pytest.mark.parametrize(("load", "n"), [(load_utkface, 23_705), (load_ham10000, 9958)])
def test_all_real_images_can_be_decoded(data_dir, tmp_path, load, n):
    data = load(data_dir, size=32, cache=tmp_path)
    assert data.X["image"].shape == (n, 32, 32, 3)
    assert (data.X["image"].reshape(n, -1).max(axis=1) > 0).all()


# --- check -----------------------------------------------------------------------------------------


def test_check_says_what_is_missing_where(tmp_path, faces, make_tar, ham):
    root = tmp_path / "root"
    (root / "utkface").mkdir(parents=True)
    make_tar(root / "utkface" / "UTKFace.tar", faces)
    (root / "mnist").mkdir()
    (ham / "HAM10000_images.tar.gz").write_bytes(b"damaged")
    (root / "ham10000").symlink_to(ham)
    table = datasets.check(root).set_index("dataset")
    assert table["usable"].to_dict() == {
        "digits": True, "mnist": False, "melanoma": False, "utkface": True, "ham10000": False,
    }  # fmt: skip
    assert "MNIST's train-images-idx3-ubyte must be in" in table.loc["mnist", "note"]
    assert table.loc["melanoma", "note"].startswith(f"no folder {root / 'melanoma'}")
    assert table.loc["utkface", "note"].startswith("6 usable rows where the original has 23705")
    assert "HAM10000_images.tar.gz must be a readable tar archive" in table.loc["ham10000", "note"]
    with pytest.raises(InvalidInputError, match="directory must be a folder"):
        datasets.check(tmp_path / "nowhere")


def test_check_of_melanoma_with_and_without_images(melanoma, make_jpeg, tmp_path_factory):
    root = tmp_path_factory.mktemp("root")
    (root / "melanoma").symlink_to(melanoma[0])
    row = datasets.check(root).set_index("dataset").loc["melanoma"]
    assert (row["usable"], row["images"], row["rows"]) == (True, False, 3)
    assert "table only (SI, SI-LS): no images in" in row["note"]
    (melanoma[0] / "train").mkdir()
    (melanoma[0] / "train" / "I_1.jpg").write_bytes(make_jpeg((1, 1, 1)))
    row = datasets.check(root).set_index("dataset").loc["melanoma"]
    assert not row["usable"]
    assert "got 2 missing: I_2.jpg, I_4.jpg" in row["note"]


def test_check_of_the_real_data(data_dir):
    table = datasets.check(data_dir).set_index("dataset")
    expected = {"digits": 1797, "mnist": 60_000, "melanoma": 33_058, "utkface": 23_705, "ham10000": 9958}
    assert table["rows"].to_dict() == expected
    assert table["usable"].all()
