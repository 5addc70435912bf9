"""Files that are written: tested beforehand, whole or not at all."""

import os
import stat
import tempfile
import threading

import pytest

from dpsample.core import files
from tests.support.ctrl_c import moments


@pytest.fixture
def sealed():
    """A folder that takes no files, with a file that may only be read."""
    if not hasattr(os, "geteuid"):
        pytest.skip("no users here")
    with tempfile.TemporaryDirectory() as name:  # others may not enter pytest's own
        folder = files.Path(name)
        (folder / "open").mkdir()
        (folder / "open" / "old").write_text("old")
        (folder / "open" / "old").chmod(0o444)
        (folder / "open").chmod(0o777)
        folder.chmod(0o555)
        before = os.geteuid()
        if before == 0:  # root may write anything: become somebody else
            os.seteuid(65534)
        yield folder
        os.seteuid(before)
        folder.chmod(0o755)


def test_nobody_reads_half_a_file(tmp_path):  # S7
    path = tmp_path / "file"
    contents = [bytes([65 + k]) * 300_000 for k in range(4)]
    files.write(path, contents[0])
    seen, done = set(), threading.Event()

    def read():
        while not done.is_set():
            seen.add(path.read_bytes())

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(10):
        for content in contents:
            files.write(path, content)
    done.set()
    reader.join()
    assert seen and seen <= set(contents)


def test_ctrl_c_at_any_moment_leaves_one_whole_file(tmp_path):
    path, number = tmp_path / "kept", 0
    path.write_bytes(b"old")

    def write():
        files.check_output("output", path)
        files.write(path, b"new")

    for number in moments(write, "core/files.py"):  # noqa: B007
        assert os.listdir(tmp_path) == ["kept"]
        assert path.read_bytes() in (b"old", b"new")
    assert number > 20


def test_an_error_in_the_block_leaves_no_file(tmp_path):
    with pytest.raises(KeyboardInterrupt), files.replacing(tmp_path / "x.nc") as draft:
        assert draft.parent == tmp_path and draft.suffix == ".nc"
        draft.write_bytes(b"half")
        raise KeyboardInterrupt
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(os.name != "posix", reason="modes of POSIX")
def test_an_error_names_the_file_that_was_asked_for(tmp_path):
    place = tmp_path / "missing" / "answer.json"
    with pytest.raises(FileNotFoundError) as error:
        files.write(place, b"{}")
    assert error.value.filename == str(place)


def test_modes_and_links_survive(tmp_path):
    path, link = tmp_path / "file", tmp_path / "link"
    path.write_bytes(b"old")
    path.chmod(0o600)
    link.symlink_to(path)
    files.write(link, b"new")
    assert link.is_symlink() and path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = os.umask(0o027)
    try:
        files.write(tmp_path / "fresh", b"")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "fresh").stat().st_mode) == 0o640


@pytest.mark.skipif(not os.path.exists("/dev/fd"), reason="no device files")
def test_devices_and_pipes_are_written_and_stay():
    source, sink = os.pipe()
    path = f"/dev/fd/{sink}"
    files.check_output("output", files.Path(path))
    files.write(path, b"content")
    os.close(sink)
    with os.fdopen(source, "rb") as file:
        assert file.read() == b"content"
    files.write("/dev/null", b"x")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_a_good_output_is_left_as_it_is(tmp_path):
    path = tmp_path / "file"
    files.check_output("output", path)
    assert os.listdir(tmp_path) == []
    path.write_bytes(b"old")
    before = path.stat()
    files.check_output("output", path)
    after = path.stat()
    assert os.listdir(tmp_path) == ["file"]
    assert path.read_bytes() == b"old" and after.st_mtime_ns == before.st_mtime_ns


def test_outputs_that_would_fail_are_refused(tmp_path):  # S7
    (tmp_path / "file").write_text("")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    for name, message in {
        "no/x": "a file in an existing folder",
        "file/x": "a file in an existing folder",
        "": "a file, got the folder",
        "circle": "can be written",
        "n" * 300: "can be written",
    }.items():
        with pytest.raises(ValueError, match=f"^output must be .*{message}"):
            files.check_output("output", tmp_path / name)


@pytest.mark.parametrize("name", ["new", "open/old"])
def test_read_only_outputs_are_refused(sealed, name):  # S7
    with pytest.raises(ValueError, match="can be written, got .*Permission denied"):
        files.check_output("output", sealed / name)


@pytest.mark.skipif(os.name != "posix", reason="modes of POSIX")
def test_private_files_are_their_owners_whoever_could_read_before(tmp_path):  # P4
    path, before = tmp_path / "f", os.umask(0)
    try:
        files.write(path, b"draws", is_private=True)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        path.chmod(0o664)
        files.write(path, b"draws", is_private=True)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        path.chmod(0o400)  # no looser than it was
        files.write(path, b"draws", is_private=True)
        assert stat.S_IMODE(path.stat().st_mode) == 0o400
        files.write(tmp_path / "page", b"for all")
        assert stat.S_IMODE((tmp_path / "page").stat().st_mode) == 0o666
    finally:
        os.umask(before)
