"""What a file of options holds, in each of its forms."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstlight.cli.config_file import read_config
from firstlight.errors import ConfigError

YAML = """\
# a comment
max-context: 512
proof: off
names: [a, 1]
wish: {max_pixels: 4, deep: [1, 2]}
empty:
"""
TOML = """\
# a comment
max-context = 512
proof = "off"
names = ["a", 1]
wish = { max_pixels = 4, deep = [1, 2] }
"""
JSON = """{
\t"max-context": 512,
\t"proof": "off",
\t"names": ["a", 1],
\t"wish": {"max_pixels": 4, "deep": [1, 2]},
\t"empty": null
}"""


@pytest.mark.parametrize(
    ("suffix", "text"), [("yaml", YAML), ("yml", YAML), ("toml", TOML), ("json", JSON)]
)
def test_all_forms_say_the_same_with_the_line_of_each_key(
    suffix: str, text: str, tmp_path: Path
) -> None:
    path = tmp_path / f"a.{suffix}"
    path.write_text(text)
    entries = {entry.key: (entry.value, entry.where) for entry in read_config(path)}
    assert entries["max-context"] == ("512", f"{path}:2")
    assert entries["proof"] == ("off", f"{path}:3")
    assert entries["names"] == (["a", "1"], f"{path}:4")
    assert entries["wish"] == ('{"max_pixels": 4, "deep": [1, 2]}', f"{path}:5")
    assert entries.get("empty", (None,))[0] is None


@pytest.mark.parametrize("text", ["a = 1\n[wish]\nb = 2", "a = 1\nwish.b = 2"])
def test_the_line_of_a_nested_key_is_its_first(text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text(text)
    entries = {entry.key: (entry.value, entry.where) for entry in read_config(path)}
    assert entries["wish"] == ('{"b": 2}', f"{path}:2")


def test_truth_is_a_text_that_an_option_takes(tmp_path: Path) -> None:
    for suffix, text in (("yaml", "eager: true"), ("toml", "eager = true")):
        path = tmp_path / f"a.{suffix}"
        path.write_text(text)
        assert [entry.value for entry in read_config(path)] == ["true"]


def test_an_empty_file_gives_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("# nothing\n")
    assert read_config(path) == []


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.ini", "", "accepted: a file .yaml, .yml, .toml, .json"),
        ("a.yaml", "- a\n", "holds no mapping of options"),
        ("a.yaml", "a: [\n", "a.yaml: "),
        ("a.yaml", "port: 1\nport: 2\n", "a.yaml:2: the key 'port' stands there twice"),
        ("a.yaml", "a: [[1]]\n", "not further lists"),
        ("a.yaml", "a: !!python/object/new:os.system [x]\n", None),
        ("a.json", "[]", "holds no object"),
        ("a.json", '{"a": 1, "a": 2}', "the key 'a' stands there twice"),
        ("a.json", '{"a": [[1]]}', "not further lists"),
        ("a.toml", "a = \n", "a.toml: "),
    ],
)
def test_what_is_no_file_of_options_is_refused_by_its_place(
    name: str, text: str, message: str | None, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_text(text)
    if message is None:  # a tag is never acted upon
        assert [entry.value for entry in read_config(path)] == [["x"]]
        return
    with pytest.raises(ConfigError) as caught:
        read_config(path)
    assert message in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml cannot be read"):
        read_config(tmp_path / "none.yaml")
