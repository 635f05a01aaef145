"""Downloads: from a server that breaks off, that cannot resume, that sends something else; and which archives are taken."""

import hashlib
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from prepare import archives, download
from prepare.archives import Archive, locate
from prepare.console import InputError
from prepare.download import fetch

CONTENT = bytes(range(256)) * 400
SHA256 = "sha256:" + hashlib.sha256(CONTENT).hexdigest()
SIZE = len(CONTENT)  # 102,400


@contextmanager
def server(sends=SIZE, ranges=True):
    """Serve CONTENT, at most ``sends`` bytes a time; yield its address and the Range headers of the requests."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.headers.get("Range"))
            start = int(asked[-1].removeprefix("bytes=").removesuffix("-")) if asked[-1] and ranges else 0
            if start >= SIZE:
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{SIZE}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(SIZE - start))
            if start:
                self.send_header("Content-Range", f"bytes {start}-{SIZE - 1}/{SIZE}")
            self.end_headers()
            self.wfile.write(CONTENT[start : start + sends])

        def log_message(self, *words):
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{http.server_port}/corpus.tgz", asked
    finally:
        http.shutdown()
        thread.join()
        http.server_close()


@pytest.fixture(autouse=True)
def without_pause(monkeypatch):
    monkeypatch.setattr(download, "PAUSE", 0)


def test_what_breaks_off_is_resumed(tmp_path):
    with server(sends=40000) as (url, asked):
        fetch(url, tmp_path / "corpus.tgz", SIZE, SHA256)
    assert (tmp_path / "corpus.tgz").read_bytes() == CONTENT
    assert asked == [None, "bytes=40000-", "bytes=80000-"]
    assert [path.name for path in tmp_path.iterdir()] == ["corpus.tgz"]


def test_what_an_earlier_run_left_is_resumed(tmp_path):
    part = tmp_path / "corpus.tgz.part"
    part.write_bytes(CONTENT[:70000])
    with server() as (url, asked):
        fetch(url, tmp_path / "corpus.tgz")
        assert (tmp_path / "corpus.tgz").read_bytes() == CONTENT and asked == ["bytes=70000-"]
        part.write_bytes(CONTENT)  # killed between the last byte and the change of name
        fetch(url, tmp_path / "corpus.tgz")
        assert (tmp_path / "corpus.tgz").read_bytes() == CONTENT and asked[1:] == [f"bytes={SIZE}-"]
        part.write_bytes(CONTENT + b"x")  # of another file
        fetch(url, tmp_path / "corpus.tgz")
        assert (tmp_path / "corpus.tgz").read_bytes() == CONTENT and asked[2:] == [f"bytes={SIZE + 1}-", None]


def test_a_server_without_ranges_starts_afresh(tmp_path):
    (tmp_path / "corpus.tgz.part").write_bytes(b"another beginning")
    with server(ranges=False) as (url, asked):
        fetch(url, tmp_path / "corpus.tgz", SIZE, SHA256)
    assert (tmp_path / "corpus.tgz").read_bytes() == CONTENT


def test_another_file_never_bears_the_name(tmp_path):
    target = tmp_path / "corpus.tgz"
    with server() as (url, asked):
        with pytest.raises(InputError, match=f"{url}: 102,400 bytes came, 102,401 were expected"):
            fetch(url, target, SIZE + 1)
        with pytest.raises(InputError, match=f"{url}: its md5 is .*, expected 00"):
            fetch(url, target, SIZE, "md5:00")
    assert not list(tmp_path.iterdir())
    with server(sends=0) as (url, asked):
        with pytest.raises(InputError, match="broke off after 0 of 102,400 bytes.*run again to resume"):
            fetch(url, target)
    with pytest.raises(InputError, match="nothing.tgz: .*--archive"):
        fetch((tmp_path / "nothing.tgz").as_uri(), target)
    assert not target.exists()


@pytest.mark.parametrize("kind", ["sha256", "md5"])
def test_a_file_given_is_compared_with_the_public_one_and_taken(kind, tmp_path, capsys):
    (given := tmp_path / "corpus.tgz").write_bytes(CONTENT)
    digest = hashlib.new(kind, CONTENT).hexdigest()
    for known, said in (
        ({"size": SIZE, "digest": f"{kind}:{digest}"}, f"is the public archive, by its {kind}"),
        ({"digest": f"{kind}:00"}, f"is not the public archive, by its {kind}"),
        ({"size": SIZE + 1, "digest": f"{kind}:00"}, "has 102,400 bytes, the public archive has 102,401"),
        ({"copy_size": SIZE + 1}, "has 102,400 bytes, the public archive has 102,401"),
    ):
        archive = Archive("http://nowhere.invalid/corpus.tgz", **known)
        assert locate([archive], [given], None, tmp_path / "archives") == {"corpus.tgz": given}
        assert capsys.readouterr().out == f"note: {given} {said}\n"
    locate([Archive("http://nowhere.invalid/corpus.tgz", copy_size=SIZE)], [given], None, tmp_path / "archives")
    assert capsys.readouterr().out == ""


def test_another_size_than_that_of_a_copy_elsewhere_is_only_mentioned(tmp_path, capsys):
    (mirror := tmp_path / "mirror").mkdir()
    (mirror / "corpus.tgz").write_text("12345")
    archive = Archive("http://nowhere.invalid/corpus.tgz", copy_size=6)
    assert locate([archive], [], mirror.as_uri(), tmp_path)["corpus.tgz"].read_text() == "12345"
    assert f"note: {tmp_path}/corpus.tgz has 5 bytes, the public archive has 6\n" in capsys.readouterr().out


def test_what_no_source_vouches_for_is_noted_the_first_time_and_compared_afterwards(tmp_path, capsys):
    (mirror := tmp_path / "mirror").mkdir()
    (mirror / "corpus.tgz").write_bytes(b"first")
    archive, folder = Archive("http://nowhere.invalid/corpus.tgz"), tmp_path / "archives"
    locate([archive], [], mirror.as_uri(), folder)
    # sha256 of the five bytes "first", by sha256sum
    line = "a7937b64b8caa58f03721bb6bacf5c78cb235febe0e70b1b84cd99541461a08e  corpus.tgz\n"
    assert (
        folder / "SHA256SUMS"
    ).read_text() == line and f"note: sha256 of corpus.tgz is {line[:64]}, noted in" in capsys.readouterr().out
    locate([archive], [], mirror.as_uri(), folder)
    assert "note" not in capsys.readouterr().out
    (folder / "corpus.tgz").unlink()
    (mirror / "corpus.tgz").write_bytes(b"other")
    for _ in range(2):  # downloaded anew, then found there
        with pytest.raises(
            InputError, match=rf"^{folder}/corpus.tgz: its sha256 is d9298a.*, but was a7937b.* when it was first used"
        ):
            locate([archive], [], mirror.as_uri(), folder)
    assert (folder / "SHA256SUMS").read_text() == line
    # What a source vouches for is noted nowhere, and what is given is the user's affair.
    for known, given in ((SHA256, []), (None, [mirror / "corpus.tgz"])):
        (mirror / "corpus.tgz").write_bytes(CONTENT)
        locate([Archive("http://nowhere.invalid/corpus.tgz", digest=known)], given, mirror.as_uri(), tmp_path / "more")
    assert [path.name for path in (tmp_path / "more").iterdir()] == ["corpus.tgz"]


@pytest.mark.parametrize("secure", [True, False])
def test_a_public_address_is_asked_over_https_first(secure, tmp_path, monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(archives, "answers", lambda url: asked.append(url) or secure)
    monkeypatch.setattr(archives, "fetch", lambda url, path, *known: asked.append(url) or path.write_text("x"))
    locate([Archive("http://nowhere.invalid/corpus.tgz", digest=SHA256)], [], None, tmp_path)
    assert asked == ["https://nowhere.invalid/corpus.tgz", f"http{'s' if secure else ''}://nowhere.invalid/corpus.tgz"]
    assert ("does not answer; HTTP is used" in capsys.readouterr().out) is not secure


def test_a_server_answers_or_does_not():
    with server() as (url, asked):
        assert download.answers(url)  # with 501, as it knows no HEAD
        assert not download.answers(url.replace("http:", "https:"))
    assert not download.answers(url)


def test_a_planted_link_is_not_written_to(tmp_path):
    (precious := tmp_path / "precious").write_text("precious")
    (tmp_path / "corpus.tgz.part").symlink_to(precious)
    with server(ranges=False) as (url, asked), pytest.raises(InputError, match="Too many levels of symbolic links"):
        fetch(url, tmp_path / "corpus.tgz")
    assert precious.read_text() == "precious"


def test_archives_given_are_not_downloaded(tmp_path):
    first, second = Archive("http://nowhere.invalid/a/first.tgz", size=5), Archive("http://nowhere.invalid/second.tgz")
    mirror, given = tmp_path / "mirror", tmp_path / "given"
    for folder in (mirror, given):
        folder.mkdir()
    (given / "first.tgz").write_text("12345")
    (mirror / "second.tgz").write_text("67")
    paths = locate([first, second], [given], mirror.as_uri(), tmp_path / "archives")
    assert paths == {"first.tgz": given / "first.tgz", "second.tgz": tmp_path / "archives" / "second.tgz"}
    assert paths["second.tgz"].read_text() == "67"
    (other := tmp_path / "third.tgz").write_text("x")
    assert locate([first], [other], None, tmp_path)["first.tgz"] == other  # the only one may have any name
    with pytest.raises(InputError, match="third.tgz: expected first.tgz, second.tgz, or a folder of them"):
        locate([first, second], [other], None, tmp_path)
    with pytest.raises(InputError, match="nowhere: there is no such file or folder"):
        locate([first], [tmp_path / "nowhere"], None, tmp_path)
