"""Damaged files of every format: one error that names the file, or honest records."""

import bz2
import gzip
import io
import lzma
import tracemalloc
import warnings

import numpy as np
import pandas as pd
import pytest

from dpsample.tables import Schema, entries, read_table
from dpsample.tables.read import to_frame
from tests.support.tiers import one_in

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


@one_in(4)
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


@one_in(3)
@pytest.mark.parametrize(
    ("suffix", "quick"),
    [(".gz", {"compresslevel": 1}), (".bz2", {}), (".xz", {"preset": 0})],
)
def test_a_decompression_bomb_is_refused_before_it_fills_the_memory(
    tmp_path, suffix, quick
):
    path, mega = tmp_path / f"small.libsvm{suffix}", bytes(2**20)
    writer = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}[suffix]
    with writer(path, "wb", **quick) as file:
        for _ in range(64):
            file.write(mega)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(entries, "LARGEST_FILE", 2**20)
        tracemalloc.start()
        with pytest.raises(ValueError, match="at most 1048576 bytes"):
            entries.read_content(path)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert most < 32 * 2**20
    assert len(entries.read_content(path)) == 64 * 2**20


@one_in(3)
@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz"])
def test_no_stream_of_a_packed_file_is_lost(tmp_path, suffix):
    """Parallel packers and `cat` write one after the other."""
    path, parts = tmp_path / f"t.csv{suffix}", [b"a,y\n1,0\n", b"2,1\n" * 500_000]
    packed = [PACK[suffix](part) for part in parts]
    for padding in (b"", bytes(8), bytes(2**20 + 4)):
        path.write_bytes(packed[0] + packed[1] + padding)
        assert entries.read_content(path) == b"".join(parts)
    for whole in (packed[0] + b"X" + packed[1], packed[0] + packed[1][:-3], b"")[
        : 2 if suffix == ".gz" else 3
    ]:
        path.write_bytes(whole)
        with pytest.raises(ValueError, match="path must be an intact file"):
            entries.read_content(path)


RAGGED = {
    "short": "y,a,b\n1,2,3\n1,2\n",
    "long": "y,a,b\n1,2,3\n1,2,3,4\n",
    "blanks": "y a b\n1 2 3\n1  3\n",
    "quotes": 'y,a,b\n1,"2"2,3\n',
    "open": 'y,a,b\n1,2,3\n1,"2,3\n',
    "ends": "y,a,b\n1,2,3,\n",
}


@pytest.mark.parametrize("name", RAGGED)
def test_a_record_has_an_entry_for_each_column(tmp_path, name):
    (tmp_path / "t.csv").write_text(RAGGED[name])
    file = {"separator": " "} if name == "blanks" else {}
    ends = {"a": (0, 9), "b": (0, 9)}
    bounds = Schema(numeric=ends, missing={"a": 0, "b": 0}, file=file)
    with pytest.raises(ValueError, match=r"must be a CSV table, got t\.csv"):
        read_table(tmp_path / "t.csv", target="y", bounds=bounds)


def test_lines_of_blanks_are_no_records_but_in_a_single_column():
    for text in (
        "a,b\n1,2\n\t\n3,4",
        "a,b\n\n1,2\n   \n3,4\n\n",
        "\na,b\r1,2\r\r3,4",
        "a,b\r\n1,2\n3,4",
    ):
        frame = to_frame(text.encode(), "csv", None)
        assert frame.to_numpy().tolist() == [["1", "2"], ["3", "4"]]
    one = to_frame(b'a\n\n1\n\n""\n9\n\n\n', "csv", None)
    assert one["a"].tolist() == ["", "1", "", "", "9"]
    assert to_frame(b"a\n1\n   \n\n", "csv", None)["a"].tolist() == ["1"]
    runs = Schema(file={"separator": " "})
    assert to_frame(b"a\n1\n\n2\n\n", "csv", runs)["a"].tolist() == ["1", "", "2"]
    aligned = to_frame(b" a  b\n 1  2\n10 20\n", "csv", runs)
    assert aligned.to_numpy().tolist() == [["1", "2"], ["10", "20"]]


def test_an_index_without_a_name_is_no_feature(tmp_path):
    frame = pd.DataFrame({"a": [0.1, 0.2], "y": [1, 0]})
    frame.to_csv(tmp_path / "t.csv")
    with pytest.raises(ValueError, match="columns must be named"):
        read_table(tmp_path / "t.csv", target="y", row_bound=1.0, clip=True)
    bounds = Schema(numeric={"a": (0, 1)}, ignore=("Unnamed: 0",))
    data = read_table(tmp_path / "t.csv", target="y", bounds=bounds)
    assert data.feature_names == ("a",)


def test_headers_are_read_as_pandas_writes_them():
    for header in (",a", ",Unnamed: 0,a", ",Unnamed: 0,Unnamed: 0.1,a", ",,a"):
        content = f"{header}\n".encode()
        names = list(to_frame(content, "csv", None).columns)
        assert names == list(pd.read_csv(io.BytesIO(content)).columns)
    for encoding in ("utf-8", "utf-16-le", "gb18030"):
        marked = "\ufeffa,b\n1,2\n".encode(encoding)
        frame = to_frame(marked, "csv", Schema(file={"encoding": encoding}))
        assert list(frame.columns) == ["a", "b"]
    long = to_frame(b"a,b\n1," + b"x" * 200_000 + b"\n", "csv", None)
    assert len(long["b"][0]) == 200_000
    with pytest.raises(ValueError, match="line 2 must be of 3 entries, got 2"):
        to_frame(b"y,a,b\n1,2\n", "csv", None, optional="y")


def test_quoted_entries_between_blanks_are_entries():
    runs = Schema(file={"separator": " "})
    for text, expected in (
        ('a b y\n1 "" 1\n  2   ""  0  \n', [["1", "", "1"], ["2", "", "0"]]),
        ('a b y\n3 "x  z" 1\n', [["3", "x  z", "1"]]),
        ("a b y\n5'10\"   6'1\"   x\n", [["5'10\"", "6'1\"", "x"]]),
        ('a b y\n"x\n  b" 1 2\n3  4 5', [["x\n  b", "1", "2"], ["3", "4", "5"]]),
        ('a b y\n1 "say ""  ""." 2\n', [["1", 'say "  ".', "2"]]),
        ('a b\n"x   y\nz"   1 \n x"y  2\n', [["x   y\nz", "1"], ['x"y', "2"]]),
        ('a b\n1  "  \n\n  "\n', [["1", "  \n\n  "]]),
    ):
        frame = to_frame(text.encode(), "csv", runs)
        assert frame.to_numpy().tolist() == expected
    with pytest.raises(ValueError, match="line 2 must be of 3 entries"):
        to_frame(b'a b y\n5"  6"\n', "csv", runs)


def test_what_quotes_are_wrong_is_told_with_its_line():
    text = b'note,y\n"say ""hi"" , now",2\n'
    assert to_frame(text, "csv", None).iloc[0, 0] == 'say "hi" , now'
    for text, line in (
        (b'a,b\n1,"red"x\n', 2),
        (b'a,b\n1,"red" \n', 2),
        (b'a,b\n1,2\n1,"x\n1,2\n', 4),
    ):
        with pytest.raises(ValueError, match=rf"line {line} must be of entries"):
            to_frame(text, "csv", None)
