"""Downloads, from a server of the test's own: whole, cut short, wrong, gone half-way and back."""

from __future__ import annotations

import gzip
import hashlib
import logging
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from fedax.cli import invoke
from fedax.data import IID, load
from fedax.data.datasets import fetching, images, libsvm
from fedax.data.datasets.fetching import Published, find, present
from fedax.errors import FedaxError

BYTES = np.random.default_rng(0).integers(0, 256, 1_000_003, np.uint8).tobytes()


class Shelf(BaseHTTPRequestHandler):
    """Serves `server.files`; breaks off after `server.breaks` bytes of a body where that is set."""

    def do_GET(self):
        server = self.server
        body = server.files.get(self.path)
        if body is None:
            self.send_error(404)
            return
        first = 0
        if server.ranges and (asked := self.headers.get("Range")):
            first = int(asked.removeprefix("bytes=").removesuffix("-"))
            if first >= len(body):
                self.send_error(416)
                return
        self.send_response(206 if first else 200)
        self.send_header("Content-Length", str(len(body) - first))
        self.end_headers()
        sent = body[first:] if server.breaks is None else body[first : first + server.breaks]
        server.sent.append(len(sent))
        self.wfile.write(sent)

    def log_message(self, *_):
        pass


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """A server and an empty cache."""
    monkeypatch.delenv("FEDAX_DATA", raising=False)
    monkeypatch.delenv("FEDAX_OFFLINE", raising=False)
    monkeypatch.setenv("FEDAX_CACHE", str(tmp_path / "cache"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), Shelf)
    server.files, server.ranges, server.breaks, server.sent = {"/some/file.bin": BYTES}, True, None, []
    server.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def published(server, name="some/file.bin", content=BYTES, **changes):
    known = hashlib.sha256(content).hexdigest()
    return replace(Published(name, (f"{server.address}/{name}",), known, len(content)), **changes)


def left(tmp_path):
    """Every file of the cache."""
    return sorted(
        str(path.relative_to(tmp_path / "cache")) for path in (tmp_path / "cache").rglob("*") if path.is_file()
    )


def test_a_file_is_fetched_once_with_its_progress(shelf, tmp_path):
    file, told = published(shelf), []
    assert present(file) is None
    path = find(file, lambda *news: told.append(news))
    assert path == tmp_path / "cache" / "some" / "file.bin"
    assert path.read_bytes() == BYTES
    assert told[-1] == ("some/file.bin", len(BYTES), len(BYTES))
    assert [here for _, here, _ in told] == sorted(here for _, here, _ in told)
    assert find(file) == path
    assert shelf.sent == [len(BYTES)]
    assert left(tmp_path) == ["some/file.bin"]


def test_a_server_gone_half_way_is_continued_where_it_stopped(shelf, tmp_path):
    file = published(shelf)
    shelf.breaks = 400_000
    with pytest.raises(FedaxError, match=r"the connection broke off\): the next try goes on from byte \d+") as raised:
        find(file)
    assert left(tmp_path) == ["some/file.bin.part"]
    kept = (tmp_path / "cache" / "some" / "file.bin.part").stat().st_size
    assert 400_000 - fetching.CHUNK < kept <= 400_000
    assert f"from byte {kept}," in str(raised.value)
    assert present(file) is None
    shelf.breaks = None
    assert find(file).read_bytes() == BYTES
    assert shelf.sent == [400_000, len(BYTES) - kept]
    assert left(tmp_path) == ["some/file.bin"]


def test_a_server_without_ranges_starts_again(shelf, tmp_path):
    shelf.breaks, shelf.ranges = 1000, False
    with pytest.raises(FedaxError, match="broke off"):
        find(published(shelf))
    shelf.breaks = None
    assert find(published(shelf)).read_bytes() == BYTES
    assert shelf.sent == [1000, len(BYTES)]


def test_a_part_that_is_whole_already_is_taken(shelf, tmp_path):
    part = tmp_path / "cache" / "some" / "file.bin.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(BYTES)
    assert find(published(shelf)).read_bytes() == BYTES
    assert shelf.sent == []
    part.with_suffix("").unlink()
    part.write_bytes(BYTES + b"more")
    with pytest.raises(FedaxError, match="not the published file"):
        find(published(shelf))
    assert left(tmp_path) == []


@pytest.mark.parametrize("content", [BYTES[:-1], b"<html>moved</html>", b"", BYTES[:-1] + b"?"])
def test_what_is_not_the_published_file_is_deleted(shelf, tmp_path, content):
    shelf.files["/some/file.bin"] = content
    with pytest.raises(FedaxError, match=r"what came is not the published file, whose SHA-256 is [0-9a-f]{64}"):
        find(published(shelf))
    assert left(tmp_path) == []
    shelf.files["/some/file.bin"] = BYTES
    assert find(published(shelf)).read_bytes() == BYTES


def test_a_part_of_another_file_is_found_out_and_not_kept(shelf, tmp_path):
    part = tmp_path / "cache" / "some" / "file.bin.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"another file's beginning")
    with pytest.raises(FedaxError, match="not the published file"):
        find(published(shelf))
    assert left(tmp_path) == []
    assert find(published(shelf)).read_bytes() == BYTES


def test_without_a_hash_the_lines_are_counted_and_nothing_is_continued(shelf, tmp_path):
    text = b"+1 1:1\n-1 2:1\n" * 50
    shelf.files["/w8a/w8a"] = text
    file = published(shelf, "w8a/w8a", sha256=None, lines=100)
    shelf.breaks = 70
    with pytest.raises(FedaxError, match=r"broke off\): put the file at"):
        find(file)
    shelf.breaks = None
    shelf.files["/w8a/w8a"] = text[:-7]
    with pytest.raises(FedaxError, match="not the published file, of 100 lines"):
        find(file)
    assert left(tmp_path) == []
    shelf.files["/w8a/w8a"] = text
    assert find(file).read_bytes() == text
    assert shelf.sent == [70, len(text) - 7, len(text)]


def test_without_a_published_hash_the_first_download_is_pinned(shelf, tmp_path):
    text, other = b"+1 1:1\n-1 2:1\n" * 50, b"+1 1:1\n-1 3:1\n" * 50
    shelf.files["/w8a/w8a.t"] = text
    file = published(shelf, "w8a/w8a.t", sha256=None, lines=100)
    path = find(file)
    assert left(tmp_path) == ["w8a/w8a.t", "w8a/w8a.t.sha256"]
    pin = path.with_name("w8a.t.sha256")
    assert pin.read_text() == hashlib.sha256(text).hexdigest()
    path.write_bytes(other)
    with pytest.raises(FedaxError, match=r"w8a\.t is not what was downloaded: delete it"):
        find(file)
    path.unlink()
    shelf.files["/w8a/w8a.t"] = other
    with pytest.raises(FedaxError, match=r"of 100 lines, or not the one that came first, .*w8a\.t\.sha256"):
        find(file)
    assert left(tmp_path) == ["w8a/w8a.t.sha256"]
    shelf.files["/w8a/w8a.t"] = text
    assert find(file).read_bytes() == text
    pin.unlink()
    path.unlink()
    shelf.files["/w8a/w8a.t"] = other
    assert find(file).read_bytes() == other


def test_the_users_own_file_is_checked_by_its_rows_not_by_a_hash_beside_it(shelf, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDAX_DATA", str(tmp_path / "own"))
    own = tmp_path / "own" / "w8a" / "w8a"
    own.parent.mkdir(parents=True)
    own.write_bytes(b"+1 1:1\n")
    own.with_name("w8a.sha256").write_text("another")
    assert find(published(shelf, "w8a/w8a", sha256=None, lines=1)) == own
    with pytest.raises(FedaxError, match=r"w8a has 1 rows: w8a/w8a as published has 49749"):
        libsvm.w8a("train")


def test_the_next_address_is_asked(shelf):
    right = f"{shelf.address}/some/file.bin"
    file = published(shelf, addresses=(f"{shelf.address}/gone", "http://127.0.0.1:9/closed", right))
    assert find(file).read_bytes() == BYTES


def test_every_address_that_failed_is_named(shelf, tmp_path):
    file = published(shelf, addresses=(f"{shelf.address}/gone", "http://127.0.0.1:9/closed"))
    with pytest.raises(FedaxError) as raised:
        find(file)
    said = str(raised.value)
    assert f"{shelf.address}/gone: the server says 404 Not Found" in said
    assert "http://127.0.0.1:9/closed: no connection" in said
    assert f"put the file at {tmp_path / 'cache' / 'some' / 'file.bin'}, or below FEDAX_DATA" in said
    assert "\n" not in said


def test_offline_one_sentence_says_what_to_put_where(shelf, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDAX_OFFLINE", "1")
    with pytest.raises(FedaxError) as raised:
        load("mnist")
    place = tmp_path / "cache" / "mnist" / "train-images-idx3-ubyte.gz"
    assert f"FEDAX_OFFLINE is set: put the file at {place}, or below FEDAX_DATA" in str(raised.value)
    with pytest.raises(FedaxError, match=r"haxby2001_sub1_slice.npz is missing and cannot be downloaded: put the file"):
        load("haxby")
    monkeypatch.setenv("FEDAX_DATA", str(tmp_path / "mine"))
    (tmp_path / "mine" / "some").mkdir(parents=True)
    mine = tmp_path / "mine" / "some" / "file.bin.gz"
    mine.write_bytes(b"my own, packed in another way")
    assert find(published(shelf)) == mine
    assert shelf.sent == []


def test_the_data_directory_comes_before_the_cache(shelf, tmp_path, monkeypatch):
    cached = find(published(shelf))
    monkeypatch.setenv("FEDAX_DATA", str(tmp_path / "mine"))
    assert find(published(shelf)) == cached
    (tmp_path / "mine" / "some").mkdir(parents=True)
    (tmp_path / "mine" / "some" / "file.bin").write_bytes(b"mine")
    assert find(published(shelf)).read_bytes() == b"mine"


def test_a_cache_that_cannot_be_written_is_named(shelf, tmp_path):
    (tmp_path / "cache").write_text("a file where the directory should be")
    with pytest.raises(FedaxError, match=r"some/file.bin cannot be written to .*cache/some: "):
        find(published(shelf))


def test_two_that_want_the_same_file_fetch_it_once(shelf):
    found = []
    threads = [threading.Thread(target=lambda: found.append(find(published(shelf)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert shelf.sent == [len(BYTES)]


def test_a_long_download_is_logged_once(shelf, monkeypatch, caplog):
    monkeypatch.setattr(fetching, "SLOW", -1)
    with caplog.at_level(logging.WARNING, "fedax"):
        find(published(shelf))
    assert [record.getMessage() for record in caplog.records] == ["downloading some/file.bin: 0 of 1 MB so far"]


def test_mnist_from_its_publisher_to_a_federation(shelf, monkeypatch, capsys):
    files = []
    for file in images.MNIST:
        count = 60 if "train" in file.name else 20
        labels = "labels" in file.name
        values = np.arange(count) % 10 if labels else np.arange(count * 784) % 251
        shape = (count,) if labels else (count, 28, 28)
        header = bytes([0, 0, 8, len(shape)]) + np.array(shape, ">u4").tobytes()
        content = gzip.compress(header + values.astype(np.uint8).tobytes())
        shelf.files[f"/{file.name}"] = content
        files.append(published(shelf, file.name, content))
    monkeypatch.setattr(images, "MNIST", tuple(files))
    federation = load("mnist", partition=IID(4), test="official")
    assert federation.train.count.tolist() == [15] * 4
    assert federation.test.count.tolist() == [20] * 4
    assert len(shelf.sent) == 4
    shelf.files.clear()
    assert load("mnist", partition=IID(2)).rows == 60


def test_the_command_fetches_and_says_where(shelf, tmp_path, monkeypatch, capsys):
    content = b"+1 1:1\n" * 10
    shelf.files["/a9a/a9a"] = content
    files = (published(shelf, "a9a/a9a", content),)
    from fedax.data import DATASETS

    monkeypatch.setitem(DATASETS, "a9a", replace(DATASETS["a9a"], files=files))
    assert invoke(["data", "fetch", "a9a"]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "cache" / "a9a" / "a9a")
    shelf.files["/a9a/a9a"] = b"other"
    (tmp_path / "cache" / "a9a" / "a9a").unlink()
    assert invoke(["data", "fetch", "a9a"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: a9a/a9a cannot be downloaded (")
    assert error.count("\n") == 1
    assert invoke(["data", "fetch", "a9b"]) == 2
    assert "did you mean 'a9a'" in capsys.readouterr().err


def test_every_published_file_has_a_hash_or_its_lines():
    from fedax.data import DATASETS

    for dataset in DATASETS.values():
        for file in dataset.files:
            assert file.name.startswith(("mnist/", "qmnist/")) or file.name.startswith(f"{dataset.name}/")
            assert not file.addresses or (len(file.sha256 or "") == 64) != bool(file.lines)
    assert libsvm.W8A[0].lines == DATASETS["w8a"].rows
    assert libsvm.W8A[1].lines == DATASETS["w8a"].test_rows
