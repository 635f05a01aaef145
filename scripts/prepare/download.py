"""Resumable downloads that are checked before they get their final name."""

import hashlib
import os
import time
import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path

from prepare.console import InputError, say

BLOCK = 1 << 20
PAUSE = 2  # seconds before a download that broke off is resumed


def fetch(url, target, size=None, digest=None):
    """Download ``url`` to ``target.part``, resuming an earlier download, and rename it to ``target``.

    Args:
        size: expected size in bytes, or None.
        digest: expected ``"sha256:..."`` or ``"md5:..."``, or None. Without a digest, redirections from HTTPS are refused.

    Raises:
        InputError: the address cannot be reached, the download does not progress, or size or digest differ.
    """
    part = Path(f"{target}.part")
    expected = f"{size:,} bytes" if size is not None else "size unknown"
    say(f"{target}: downloading {url} ({expected}, {digest or 'hash unknown'})")
    if part.exists():
        say(f"  resuming after {part.stat().st_size:,} bytes")
    total, opener = None, urllib.request.build_opener(*[] if digest else [StaysSecure])
    while True:
        before = part.stat().st_size if part.exists() else 0
        try:
            total = _continue(url, part, opener)
            break
        except (OSError, HTTPException) as error:
            after = part.stat().st_size if part.exists() else 0
            if after <= before:
                raise InputError(
                    f"{url}: {getattr(error, 'reason', error)} (run again to resume, or download it in another way and"
                    f" name the file with --archive)"
                ) from None
            time.sleep(PAUSE)
    try:
        check(part, size or total, digest, named=url)
    except InputError:
        part.unlink()
        raise
    part.rename(target)


class StaysSecure(urllib.request.HTTPRedirectHandler):
    """Redirect handler that refuses redirections from HTTPS to another protocol."""

    def redirect_request(self, req, fp, code, msg, headers, newurl):
        if req.type == "https" and not newurl.lower().startswith("https:"):
            raise InputError(
                f"{req.full_url}: its server redirects to {newurl}, which is not HTTPS, and no source states a checksum of the file; "
                "download it in another way and name the file by --archive"
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _continue(url, part, opener):
    """Append the missing bytes to ``part``. Return the total size from the server's headers, or None."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        response = opener.open(request, timeout=60)
    except urllib.error.HTTPError as error:
        if error.code != 416:
            raise
        # There are no bytes after those we have: the file is complete, or the server now has another file.
        total = (error.headers.get("Content-Range") or "").rpartition("/")[2]
        if total == str(have):
            return have
        part.unlink()
        return _continue(url, part, opener)
    with response:
        resumed = getattr(response, "status", None) == 206
        length = response.headers.get("Content-Length")
        total = None if length is None else int(length) + (have if resumed else 0)
        with open(part, "ab" if resumed else "wb", opener=_no_link) as file:
            while block := response.read(BLOCK):
                file.write(block)
    if total is not None and part.stat().st_size < total:
        raise OSError(f"broke off after {part.stat().st_size:,} of {total:,} bytes")
    return total


def _no_link(path, flags):
    """Opener for ``open`` that refuses links."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def answers(url):
    """Whether a server responds at ``url``, with any status."""
    try:
        urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=20).close()
    except urllib.error.HTTPError:
        return True
    except (OSError, HTTPException):
        return False
    return True


def check(path, size=None, digest=None, named=None):
    """Raise InputError unless ``path`` has this size and digest."""
    found = path.stat().st_size
    if size is not None and found != size:
        raise InputError(f"{named or path}: {found:,} bytes came, {size:,} were expected")
    if digest is not None:
        kind, _, expected = digest.partition(":")
        if (found := hash_of(path, kind)) != expected:
            raise InputError(f"{named or path}: its {kind} is {found}, expected {expected}")


def is_digest_of(path, digest):
    """Whether the file at ``path`` has this ``digest``."""
    kind, _, expected = digest.partition(":")
    return hash_of(path, kind) == expected


def hash_of(path, kind):
    """The digest of a file, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, kind).hexdigest()
