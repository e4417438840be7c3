"""Files are whole or not there; what is no file, a link or a pipe, is not replaced by one."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from fedax.whole_files import write_whole


def test_a_link_stays_a_link_to_the_file_that_is_written(tmp_path):
    (tmp_path / "there").mkdir()
    file, link = tmp_path / "there" / "a.txt", tmp_path / "link.txt"
    link.symlink_to(file)
    for content in (b"one", b"two"):  # the file is missing at first
        write_whole(link, content)
        assert link.is_symlink()
        assert file.read_bytes() == content
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["a.txt"]


def test_a_pipe_is_written_to_and_one_that_nobody_reads_is_an_error(tmp_path):
    pipe, found = tmp_path / "pipe", []
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="No such device or address"):
        write_whole(pipe, b"x")
    content = os.urandom(300_000)  # more than a pipe holds
    both = os.open(pipe, os.O_RDWR)  # a reader, and a writer: it never comes to an end

    def read() -> None:
        with os.fdopen(both, "rb") as file:
            found.append(file.read(len(content)))

    thread = threading.Thread(target=read)
    thread.start()
    write_whole(pipe, content)
    thread.join(10)
    assert found == [content]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_device_that_takes_nothing_is_an_error_and_stays_a_device(tmp_path):
    link = tmp_path / "full.csv"
    link.symlink_to("/dev/full")
    with pytest.raises(OSError, match=r"No space left on device: .*full\.csv"):
        write_whole(link, b"x")
    assert link.is_symlink()
    assert stat.S_ISCHR(link.stat().st_mode)
