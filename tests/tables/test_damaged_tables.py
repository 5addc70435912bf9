"""Damaged files of every format: one error that names the file, or honest records."""

import bz2
import gzip
import lzma
import tracemalloc
import warnings

import numpy as np
import pandas as pd
import pytest

from dpsample.tables import Schema, entries, read_table

SCHEMA = Schema(
    numeric={"a": (0.0, 1.0), "b": (0.0, 9.0)}, categorical={"c": ("x", "y")}
)
PACK = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


def whole(kind, folder):
    """Content of a good file."""
    rng = np.random.default_rng(1)
    if kind == "libsvm":
        return "\n".join(f"{i % 2} 1:{i / 30} 3:0.5" for i in range(30)).encode()
    frame = pd.DataFrame({"a": rng.uniform(size=30), "b": rng.integers(0, 9, 30)})
    frame = frame.assign(c=["x", "y"] * 15, y=[0, 1] * 15)
    if kind == "parquet":
        pytest.importorskip("pyarrow")
        return frame.to_parquet()
    return frame.to_csv(index=False, sep="\t" if kind == "tsv" else ",").encode()


def read(path, kind):
    if kind == "libsvm":
        return read_table(path, num_features=3)
    return read_table(path, target="y", bounds=SCHEMA)


def damaged(content, rng, turn):
    """Cut, flipped, overwritten, replaced by noise, or with something put in."""
    text, place = bytearray(content), int(rng.integers(len(content)))
    if turn == 0:
        return bytes(text[:place])
    if turn == 1:
        text[place] ^= 1 << int(rng.integers(8))
    elif turn == 2:
        text[place : place + 8] = rng.bytes(8)
    elif turn == 3:
        return rng.bytes(100)
    else:
        odd = [b"\x00", b"\xff\xfe", b'"', b"\n", b",", b"\r", b"1e999", b":", b"\xc3"]
        text[place:place] = odd[rng.integers(len(odd))]
    return bytes(text)


CASES = [(k, p) for k in ("csv", "tsv", "libsvm") for p in PACK] + [("parquet", "")]


@pytest.mark.parametrize(("kind", "pack"), CASES)
def test_a_damaged_file_is_refused_in_the_grammar_or_read(tmp_path, kind, pack):  # S6
    content = PACK[pack](whole(kind, tmp_path))
    path, rng = tmp_path / f"t.{kind}{pack}", np.random.default_rng(2)
    path.write_bytes(content)
    assert read(path, kind).num_records == 30
    for turn in range(40):
        path.write_bytes(damaged(content, rng, turn % 5))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of pandas, on odd dates in metadata
            try:
                data = read(path, kind)
            except ValueError as error:
                assert type(error) is ValueError, error
                assert " must be " in str(error) and ", got " in str(error), error
            else:
                assert np.isfinite(data.response).all()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("cut.parquet", b"PAR1 and no more"),
        ("noise.csv.gz", gzip.compress(b"a,y\n1,0\n", mtime=0)[:-9] + b"\xff" * 9),
        ("short.csv.xz", lzma.compress(b"a,y\n1,0\n")[:-4]),
        ("ragged.csv", b"a,y\n1,0\n1,2,3\n"),
        ("latin.csv", b"a,y\n1,0\n\xe9,1\n"),
        ("odd.libsvm", b"1 1:1\n1 1=1\n"),
        ("wide.libsvm", b"1 9:1\n"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_error_names_the_file(tmp_path, name, content):  # S6
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    (tmp_path / name).write_bytes(content)
    options = {"num_features": 3} if "libsvm" in name else {"target": "y"}
    with pytest.raises(ValueError, match=rf"must be .*{name}") as refusal:
        read_table(tmp_path / name, **options)
    assert type(refusal.value) is ValueError


@pytest.mark.parametrize(
    ("suffix", "quick"),
    [(".gz", {"compresslevel": 1}), (".bz2", {}), (".xz", {"preset": 0})],
)
def test_a_decompression_bomb_is_refused_before_it_fills_the_memory(
    tmp_path, suffix, quick
):
    path, mega = tmp_path / f"small.libsvm{suffix}", bytes(2**20)
    with entries.DECOMPRESS[suffix](path, "wb", **quick) as file:
        for _ in range(64):
            file.write(mega)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(entries, "LARGEST_FILE", 2**20)
        tracemalloc.start()
        with pytest.raises(ValueError, match="at most 1048576 bytes"):
            entries.content(path)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert most < 32 * 2**20
    assert len(entries.content(path)) == 64 * 2**20
