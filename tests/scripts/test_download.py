"""Downloads: servers that break off, cannot resume or send other content; and the use of given archives."""

import hashlib
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from urllib.request import Request

import pytest
from prepare import archives, download
from prepare.archives import Archive, locate
from prepare.console import InputError
from prepare.download import StaysSecure, fetch

CONTENT = bytes(range(256)) * 400
SHA256 = "sha256:" + hashlib.sha256(CONTENT).hexdigest()
SIZE = len(CONTENT)  # 102,400


@contextmanager
def server(sends=SIZE, ranges=True):
    """Serve CONTENT, at most ``sends`` bytes at a time. Yield the address and the Range headers of the requests."""
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


def test_an_interrupted_download_is_resumed(tmp_path):
    with server(sends=40000) as (url, asked):
        fetch(url, tmp_path / "corpus.tgz", SIZE, SHA256)
    assert (tmp_path / "corpus.tgz").read_bytes() == CONTENT
    assert asked == [None, "bytes=40000-", "bytes=80000-"]
    assert [path.name for path in tmp_path.iterdir()] == ["corpus.tgz"]


def test_a_partial_file_of_an_earlier_run_is_resumed(tmp_path):
    part = tmp_path / "corpus.tgz.part"
    part.write_bytes(CONTENT[:70000])
    with server() as (url, asked):
        fetch(url, tmp_path / "corpus.tgz")
        assert (tmp_path / "corpus.tgz").read_bytes() == CONTENT and asked == ["bytes=70000-"]
        part.write_bytes(CONTENT)  # killed between the last byte and the rename
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


def test_a_file_without_published_digest_is_recorded_first_and_compared_afterwards(tmp_path, capsys):
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
    for _ in range(2):  # downloaded again, then found
        with pytest.raises(
            InputError, match=rf"^{folder}/corpus.tgz: its sha256 is d9298a.*, but was a7937b.* when it was first used"
        ):
            locate([archive], [], mirror.as_uri(), folder)
    assert (folder / "SHA256SUMS").read_text() == line
    # Files with a published digest are not recorded, nor are files that the user gives.
    for known, given in ((SHA256, []), (None, [mirror / "corpus.tgz"])):
        (mirror / "corpus.tgz").write_bytes(CONTENT)
        locate([Archive("http://nowhere.invalid/corpus.tgz", digest=known)], given, mirror.as_uri(), tmp_path / "more")
    assert [path.name for path in (tmp_path / "more").iterdir()] == ["corpus.tgz"]


@pytest.mark.parametrize("digest", [SHA256, None])
@pytest.mark.parametrize("secure", [True, False])
def test_http_is_used_where_https_does_not_answer_and_a_digest_is_known(secure, digest, tmp_path, monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(archives, "answers", lambda url: asked.append(url) or secure)
    monkeypatch.setattr(archives, "fetch", lambda url, path, *known: asked.append(url) or path.write_text("x"))
    archive = Archive("http://nowhere.invalid/corpus.tgz", digest=digest)
    if not (secure or digest):
        with pytest.raises(InputError, match="^https://nowhere.invalid/corpus.tgz does not answer, and .*--archive$"):
            locate([archive], [], None, tmp_path)
        assert asked == ["https://nowhere.invalid/corpus.tgz"] and not [*tmp_path.iterdir()]
        return
    locate([archive], [], None, tmp_path)
    assert asked == ["https://nowhere.invalid/corpus.tgz", f"http{'s' if secure else ''}://nowhere.invalid/corpus.tgz"]
    assert ("does not answer; HTTP is used, and the sha256 is compared" in capsys.readouterr().out) is not secure


@pytest.mark.parametrize("name", ["enwik8", "glue", "iwslt14", "wmt14", "wmt18_tr_en"])
def test_no_recipe_uses_http_without_a_digest(name, tmp_path, monkeypatch):
    """All archives of all recipes, without a server for HTTPS: archives without a digest are refused."""
    recipe = import_module(f"prepare.{name}")
    values = [value for one in vars(recipe).values() for value in (one.values() if isinstance(one, dict) else [one])]
    values = [value for one in values for value in (one if isinstance(one, (list, tuple)) else [one])]
    found = [value for value in values if isinstance(value, Archive) and value.url.startswith("http:")]
    asked = []
    monkeypatch.setattr(archives, "answers", lambda url: False)
    monkeypatch.setattr(archives, "fetch", lambda url, path, *known: asked.append(url) or path.write_text("x"))
    for archive in found:
        try:
            locate([archive], [], None, tmp_path)
        except InputError as refusal:
            assert "checksum" in str(refusal) and archive.digest is None
    assert asked == [archive.url for archive in found if archive.digest]
    assert found or name == "glue"  # all its addresses are HTTPS


def test_no_redirection_leaves_https_without_a_digest(tmp_path, monkeypatch):
    redirect = StaysSecure().redirect_request
    request = Request("https://nowhere.invalid/corpus.tgz")
    with pytest.raises(
        InputError, match="^https://nowhere.invalid/corpus.tgz: .* to http://other.invalid/c, which is not"
    ):
        redirect(request, None, 302, "Found", {}, "http://other.invalid/c")
    assert redirect(request, None, 302, "Found", {}, "https://other.invalid/c").full_url == "https://other.invalid/c"
    handlers = []
    build = download.urllib.request.build_opener
    monkeypatch.setattr(download.urllib.request, "build_opener", lambda *these: handlers.append(these) or build(*these))
    for digest in (None, SHA256):
        with server() as (url, asked):
            fetch(url, tmp_path / f"{digest}", SIZE, digest)
    assert handlers == [(StaysSecure,), ()]


def test_a_server_answers_or_does_not():
    with server() as (url, asked):
        assert download.answers(url)  # status 501, because it does not support HEAD
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
    assert locate([first], [other], None, tmp_path)["first.tgz"] == other  # a single archive may have any name
    with pytest.raises(InputError, match="third.tgz: expected first.tgz, second.tgz, or a folder of them"):
        locate([first, second], [other], None, tmp_path)
    with pytest.raises(InputError, match="nowhere: there is no such file or folder"):
        locate([first], [tmp_path / "nowhere"], None, tmp_path)
