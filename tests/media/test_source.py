"""Pictures are read from what a caller may name, and nothing else is."""

from __future__ import annotations

import base64
import os
import textwrap
from pathlib import Path

import pytest

from firstlight.errors import MediaError
from firstlight.media.brief import brief
from firstlight.media.fetch import Fetcher
from firstlight.media.policy import FetchPolicy
from firstlight.media.source import SourceLoader, is_web, load_image
from tests.media.files import encoded, noise
from tests.media.listener import listening, names, sends

DATA = encoded(noise(16, 16))
TEXT = base64.b64encode(DATA).decode()


def _url(payload: str, header: str = "data:image/png;base64") -> str:
    return f"{header},{payload}"


def test_paths_bytes_and_images_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a picture.png"
    path.write_bytes(DATA)
    image = noise()
    assert load_image(path) == load_image(str(path)) == load_image(DATA) == DATA
    assert load_image(bytearray(DATA)) == load_image(memoryview(DATA)) == DATA
    assert load_image(image) is image


@pytest.mark.parametrize(
    "url",
    [
        _url(TEXT),
        _url(TEXT.rstrip("=")),
        _url(base64.urlsafe_b64encode(DATA).decode()),
        _url("\n".join(textwrap.wrap(TEXT, 76))),
        _url("\r\n".join(textwrap.wrap(TEXT, 76))),
        " " + _url(TEXT) + "\n",
        _url(" " + TEXT),
        _url(TEXT, "data:image/png;charset=x;base64"),
        _url(TEXT, "DATA:IMAGE/PNG;BASE64"),
        _url(TEXT, "data:;base64"),
        _url(TEXT, "data:text/plain;base64"),
        _url(TEXT.replace("+", "%2B").replace("/", "%2F").replace("=", "%3D")),
    ],
)
def test_every_spelling_of_a_data_url_gives_the_same_bytes(url: str) -> None:
    assert load_image(url) == DATA


def test_the_test_picture_uses_both_special_characters() -> None:
    assert "+" in TEXT
    assert "/" in TEXT


@pytest.mark.parametrize(
    ("url", "defect"),
    [
        ("data:image/png,AAAA", "not base64"),
        ("data:,", "not base64"),
        ("data:;base64,", "no data"),
        ("data:image/png;base64", "no comma"),
        (_url(TEXT.replace("+", " ")), "space"),
        (_url(TEXT[:40] + "!*" + TEXT[40:]), "'!'"),
        (_url(TEXT[:41]), "cut off"),
        (_url(TEXT[:40] + "==" + TEXT[40:]), "'='"),
        (_url(TEXT[:40] + "é" + TEXT[40:]), "must not"),
    ],
)
def test_a_malformed_data_url_is_refused_by_its_defect(url: str, defect: str) -> None:
    with pytest.raises(MediaError, match=defect) as caught:
        load_image(url)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "url", ["http://a.example/a.png?t=1", "HTTPS://a.example/a.png?t=1", "https:/a.example/?t=1"]
)
def test_web_addresses_are_not_read_unless_a_domain_is_allowed(url: str) -> None:
    with pytest.raises(MediaError, match=r"no domain is allowed.*a path, bytes") as caught:
        load_image(url)
    assert "t=1" not in str(caught.value)


def test_a_refusal_of_a_server_names_the_setting_and_only_what_a_request_can_hold() -> None:
    loader = SourceLoader(FetchPolicy())
    for url, setting in (("http://a.example/a.png", "domains"), ("file:///a.png", "root")):
        with pytest.raises(MediaError, match=f"allowed_media_{setting} .*base64") as caught:
            loader.load(url)
        assert "PIL" not in str(caught.value)


def test_a_web_address_is_read_where_its_domain_is_allowed() -> None:
    policy = FetchPolicy(domains=(".example",), trusted_networks=("127.0.0.1",), ports=None)
    loader = SourceLoader(policy, Fetcher(policy, resolve=names({"a.example": "127.0.0.1"})))
    with listening(sends(DATA)) as server:
        assert loader.load(f" {server.url(host='A.example')}\n") == DATA


@pytest.mark.parametrize("url", ["ftp://a/b.png", "gopher://a/b.png", "s3://bucket/a?secret=b"])
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(MediaError, match="not accepted") as caught:
        load_image(url, FetchPolicy(any_path=True, any_host=True))
    assert "secret" not in str(caught.value)


def test_a_file_address_is_read_like_its_path(tmp_path: Path) -> None:
    path = tmp_path / "a picture.png"
    path.write_bytes(DATA)
    assert load_image(path.as_uri()) == DATA
    for url in ("file://host/a.png", "file:a.png"):
        with pytest.raises(MediaError, match="names no path of this machine"):
            load_image(url)


def spellings(path: Path) -> list[object]:
    """A path in every form in which a request can name it."""
    return [path, str(path), path.as_uri(), f"file://localhost{path}", f"FILE:{path}"]


def test_no_path_is_opened_unless_allowed(tmp_path: Path) -> None:
    path = tmp_path / "canary.png"
    path.write_bytes(DATA)
    messages = set()
    for name in (*spellings(path), str(tmp_path / "missing.png"), "/proc/self/environ", "a\0b"):
        with pytest.raises(MediaError) as caught:
            load_image(name, FetchPolicy())
        messages.add(str(caught.value))
    assert len(messages) == 1  # existing and missing files read alike


def test_with_a_folder_only_what_lies_in_it_is_read(tmp_path: Path) -> None:
    root = tmp_path / "media"
    root.mkdir()
    (root / "a.png").write_bytes(DATA)
    (tmp_path / "canary.png").write_bytes(b"secret")
    loader = SourceLoader(FetchPolicy(file_root=root))
    for name in (*spellings(root / "a.png"), "a.png", "./a.png"):
        assert loader.load(name) == DATA
    outside = [f"file://{root}/%2e%2e/canary.png", f"file://{root}/..%2fcanary.png"]
    outside += ["../canary.png", "file://host/a.png", "file:a.png", "missing.png", "a.png%00"]
    messages = set()
    for name in (*spellings(tmp_path / "canary.png"), *outside):
        with pytest.raises(MediaError) as caught:
            loader.load(name)
        messages.add(str(caught.value))
    assert len(messages) == 1


def test_missing_and_unreadable_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(MediaError, match=r"no such picture: '.*missing\.png'"):
        load_image(tmp_path / "missing.png")
    with pytest.raises(MediaError, match="no regular file"):
        load_image(tmp_path)
    with pytest.raises(MediaError, match="cannot be read"):
        load_image("a\0b.png")


def test_a_pipe_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.png"
    os.mkfifo(pipe)
    with pytest.raises(MediaError, match="no regular file"):
        load_image(pipe)


def test_too_many_bytes_are_refused_from_every_source(tmp_path: Path) -> None:
    path = tmp_path / "large.png"
    path.write_bytes(DATA)
    limit = len(DATA)
    for source in (DATA, path, _url(TEXT)):
        assert load_image(source, FetchPolicy(any_path=True, max_bytes=limit)) == DATA
        with pytest.raises(MediaError, match=f"larger than {limit - 1} bytes"):
            load_image(source, FetchPolicy(any_path=True, max_bytes=limit - 1))


@pytest.mark.parametrize("url", ["http://a.example/", " HTTPS://a.example/", "https:/a"])
def test_web_addresses_are_known_as_such(url: str) -> None:
    assert is_web(url)


@pytest.mark.parametrize("source", [_url(TEXT), "a.png", "file:///a", "httpx.png", b"http:", 3])
def test_everything_else_is_no_web_address(source: object) -> None:
    assert not is_web(source)


def test_other_types_are_refused_by_name() -> None:
    with pytest.raises(MediaError, match="cannot be a int"):
        load_image(3)


def test_messages_never_repeat_a_picture() -> None:
    assert brief(_url(TEXT)) == f"a data URL of {len(_url(TEXT))} characters"
    assert brief(DATA) == f"{len(DATA)} bytes"
    assert len(brief("x" * 10_000)) < 100
    assert (
        brief("https://user:secret@a.example/secret?secret#secret") == "an address at 'a.example'"
    )
    with pytest.raises(MediaError) as caught:
        load_image(TEXT)  # base64 without a header is read as a name
    assert len(str(caught.value)) < 200
