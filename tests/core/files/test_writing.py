"""Files for their owner alone."""

import os
import stat

import pytest

from contextpilot_core.files import append_private, private_folder, write_private


@pytest.fixture(autouse=True, params=[0o022, 0])
def umask(request):
    before = os.umask(request.param)
    yield
    os.umask(before)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_folders_that_are_made_are_private_and_those_that_are_there_stay(tmp_path):
    (tmp_path / "open").mkdir(mode=0o755)
    before = mode(tmp_path / "open")
    private_folder(tmp_path / "open" / "a" / "b")
    assert mode(tmp_path / "open") == before
    assert mode(tmp_path / "open" / "a") == mode(tmp_path / "open" / "a" / "b") == 0o700
    private_folder(tmp_path / "open" / "a")
    (tmp_path / "file").touch()
    with pytest.raises(OSError):
        private_folder(tmp_path / "file" / "a")


def test_a_file_is_written_in_one_step_and_is_private(tmp_path):
    path = tmp_path / "a"
    path.write_text("before")
    path.chmod(0o644)
    write_private(path, b"after")
    assert (path.read_text(), mode(path)) == ("after", 0o600)
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_one(tmp_path):
    (tmp_path / "to").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "to" / "file")
    write_private(tmp_path / "link", b"x")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "to" / "file").read_bytes() == b"x"


def test_what_cannot_be_written_leaves_nothing(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):
        write_private(tmp_path / "folder", b"x")
    with pytest.raises(OSError):
        write_private(tmp_path / "absent" / "a", b"x")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_file_that_grows_is_private_from_its_beginning(tmp_path):
    for text in ("é", "b"):
        with append_private(tmp_path / "a") as file:
            file.write(text)
    assert ((tmp_path / "a").read_text("utf-8"), mode(tmp_path / "a")) == ("éb", 0o600)
