"""Of the file system only what the policy opens is read, and the rest cannot be told apart."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from firstlight.errors import ConfigError, MediaError
from firstlight.media.files import MediaRoot, path_of_file_url, read_file

DATA = b"the bytes of a picture"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with pictures; beside it lies a canary."""
    folder = tmp_path / "media"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.png").write_bytes(DATA)
    (folder / "sub" / "b c.png").write_bytes(DATA)
    (tmp_path / "canary.png").write_bytes(b"secret")
    return folder


@pytest.mark.parametrize(
    "name", ["a.png", "./a.png", "sub/../a.png", "sub/b c.png", "sub//b c.png", "sub/./b c.png"]
)
def test_a_file_in_the_folder_is_read_by_every_name(name: str, root: Path) -> None:
    assert MediaRoot(root).read(name, 100) == DATA
    assert MediaRoot(root).read(str(root / name), 100) == DATA


def test_links_are_followed_inside_the_folder(root: Path) -> None:
    (root / "link.png").symlink_to(root / "sub" / "b c.png")
    (root / "folder").symlink_to("sub")
    assert MediaRoot(root).read("link.png", 100) == DATA
    assert MediaRoot(root).read("folder/b c.png", 100) == DATA


def test_the_folder_itself_may_be_a_link(root: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(root)
    assert MediaRoot(tmp_path / "alias").read("a.png", 100) == DATA
    assert MediaRoot(tmp_path / "alias").read(str(tmp_path / "alias" / "a.png"), 100) == DATA


def refused(root: Path) -> list[str]:
    """Names of what is outside, or is there but no regular file, or is not there at all."""
    outside = root.parent / "canary.png"
    (root / "out.png").symlink_to(outside)
    (root / "up").symlink_to(root.parent)
    (root / "loop").symlink_to(root / "loop")
    (root / "dangling").symlink_to(root / "nothing")
    os.mkfifo(root / "pipe")
    (root.parent / "media-too").mkdir()
    (root.parent / "media-too" / "a.png").write_bytes(b"secret")
    names = [str(outside), "../canary.png", "sub/../../canary.png", "out.png", "up/canary.png"]
    names += ["loop", "dangling", "pipe", "sub", ".", "", "missing.png", "a.png/x"]
    names += ["../media-too/a.png", str(root) + "-too/a.png", "/proc/self/environ", "/dev/zero"]
    names += ["a\0b", "\0", "\\\\?\\a.png", "~/a.png", "x" * 5000, "\ud800", "/"]
    return names


def test_everything_else_has_one_message_and_is_not_opened(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, media = refused(root), MediaRoot(root)
    opened: list[tuple[str, int | None]] = []
    system = os.open

    def record(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        opened.append((path, dir_fd))
        return system(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", record)
    messages = set()
    for name in names:
        with pytest.raises(MediaError) as caught:
            media.read(name, 100)
        messages.add(str(caught.value))
    assert messages == {"there is no such picture among those that may be read"}
    # From the folder down, one plain name at a time.
    assert {path for path, fd in opened if fd is None} <= {os.path.realpath(root)}
    assert {path for path, fd in opened if fd is not None} == {"pipe", "sub"}


@pytest.fixture
def opens() -> Iterator[list[str]]:
    """All paths that the interpreter opens during the test, by whatever function."""
    seen: list[str] = []
    active = True

    def hook(event: str, args: tuple[object, ...]) -> None:
        if active and event == "open":
            seen.append(str(args[0]))

    sys.addaudithook(hook)  # cannot be taken away again, so it falls silent instead
    yield seen
    active = False


def test_no_function_opens_anything_outside(root: Path, opens: list[str]) -> None:
    names, media = refused(root), MediaRoot(root)
    opens.clear()
    for name in names:
        with pytest.raises(MediaError):
            media.read(name, 100)
    paths = {path for path in opens if not path.isdecimal()}  # numbers are open files already
    assert paths == {os.path.realpath(root), "pipe", "sub"}


def test_a_link_that_appears_after_the_check_leads_nowhere(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between resolving and opening, somebody swaps a folder for a link to the outside."""
    (root.parent / "b c.png").write_bytes(b"secret")
    media, resolve = MediaRoot(root), os.path.realpath

    def then_swap(path: str, *, strict: bool = False) -> str:
        found = resolve(path, strict=strict)
        (root / "sub").rename(root / "sub.old")
        (root / "sub").symlink_to(root.parent)
        return found

    monkeypatch.setattr(os.path, "realpath", then_swap)
    with pytest.raises(MediaError, match="no such picture"):
        media.read("sub/b c.png", 100)


def test_a_picture_in_the_folder_may_have_as_many_bytes_as_are_accepted(root: Path) -> None:
    assert MediaRoot(root).read("a.png", len(DATA)) == DATA
    with pytest.raises(MediaError, match=f"larger than {len(DATA) - 1} bytes"):
        MediaRoot(root).read("a.png", len(DATA) - 1)


def test_an_unreadable_file_reads_like_a_missing_one(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*args: object, **kwargs: object) -> int:
        raise PermissionError(13, "Permission denied")

    media = MediaRoot(root)
    monkeypatch.setattr(os, "open", denied)  # permissions themselves do not bind every user
    with pytest.raises(MediaError, match="no such picture"):
        media.read("a.png", 100)


def test_a_folder_that_is_not_there_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is no folder"):
        MediaRoot(tmp_path / "missing")


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("file:///a/b.png", "/a/b.png"),
        ("FILE:///a/b.png", "/a/b.png"),
        ("file:/a/b.png", "/a/b.png"),
        ("file://localhost/a/b.png", "/a/b.png"),
        ("file://LOCALHOST/a", "/a"),
        ("file:///a%20b/%2e%2e/%2E%2E/c.png", "/a b/../../c.png"),
        ("file:///a%2e%2e%2fb", "/a../b"),
        ("file:///a%252e", "/a%2e"),
        ("file:///a%00b", "/a\0b"),
        ("file:///%ff", "/\udcff"),
        ("file:////a", "//a"),
        ("file:a.png", None),
        ("file://host/a.png", None),
        ("file://", None),
        ("file:", None),
    ],
)
def test_a_file_url_names_a_path_of_this_machine_or_none(url: str, path: str | None) -> None:
    assert path_of_file_url(url) == path


def test_a_path_of_its_user_is_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(root))
    assert read_file(root / "a.png", 100) == read_file(Path("~/a.png"), 100) == DATA
