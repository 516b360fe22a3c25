"""The files of ``deploy/`` fit the server that they start."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer

from firstlight.cli.layers import read_layers
from firstlight.cli.main import build_app
from firstlight.server.gate import OPEN_PATHS
from firstlight.server.settings import ServerSettings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNIT = (DEPLOY / "systemd" / "firstlight.service").read_text()
CONTAINER = (DEPLOY / "Containerfile").read_text()
PROXY = (DEPLOY / "nginx" / "firstlight.conf").read_text()
DEFAULTS = ServerSettings()
LONGEST_STOP = DEFAULTS.drain_seconds + DEFAULTS.body_seconds


def serve() -> tuple[Any, Any]:
    """The command ``serve``, and the whole command line."""
    root: Any = typer.main.get_command(build_app())
    return root.commands["serve"], root


def options() -> set[str]:
    """Every option of ``serve`` as it is typed."""
    return {name for parameter in serve()[0].params for name in parameter.opts}


def directives(text: str, name: str) -> list[str]:
    """The values of a directive in a unit file."""
    return re.findall(rf"^{name}=(.*)$", text, re.MULTILINE)


def instructions(name: str) -> list[str]:
    """The arguments of an instruction of the Containerfile."""
    joined = re.sub(r"\\\n\s*", " ", CONTAINER)
    return re.findall(rf"^{name} (.*)$", joined, re.MULTILINE)


def test_the_unit_types_options_that_there_are() -> None:
    (command,) = directives(UNIT, "ExecStart")
    program, verb, *words = shlex.split(command)
    assert (Path(program).name, verb) == ("firstlight", "serve")
    assert {word for word in words if word.startswith("-")} <= options()


def test_the_unit_waits_longer_than_requests_get_to_finish() -> None:
    (seconds,) = directives(UNIT, "TimeoutStopSec")
    assert int(seconds) > LONGEST_STOP


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("the unit file: systemd-analyze is not installed")
    unit = tmp_path / "firstlight.service"
    # Its program is not installed here; any other that is will do.
    unit.write_text(UNIT.replace("/opt/firstlight/bin/firstlight", sys.executable))
    command = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(unit)]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (told.returncode, told.stderr) == (0, "")


def test_the_example_of_a_configuration_has_keys_and_values_that_are_accepted() -> None:
    path = DEPLOY / "firstlight.yaml"
    layers = read_layers(*serve(), str(path), {})
    assert "max_waiting" in layers.values
    commented = re.findall(r"^# ([a-z-]+):", path.read_text(), re.MULTILINE)
    assert len(commented) > 3
    assert {f"--{name}" for name in commented} <= options()


def test_the_container_is_made_of_files_that_there_are() -> None:
    for arguments in instructions("COPY"):
        if "--from" not in arguments:
            *sources, _ = arguments.split()
            assert all((ROOT / source).exists() for source in sources)
    kept = set(re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE))
    copied = {s for a in instructions("COPY") if "--from" not in a for s in a.split()[:-1]}
    assert kept == copied


def test_what_the_package_is_built_of_is_in_the_container() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {"pyproject.toml", project["readme"], *project["license-files"], "src"}
    assert needed <= set((instructions("COPY")[0] + " " + instructions("COPY")[1]).split())
    (extras,) = re.findall(r'"\.\[([\w,]+)\]"', CONTAINER)
    assert set(extras.split(",")) <= project["optional-dependencies"].keys()


def test_the_container_runs_as_nobody_in_particular_and_starts_the_server() -> None:
    assert instructions("USER") == ["10001"]
    (entry,) = instructions("ENTRYPOINT")
    words = re.findall(r'"([^"]+)"', entry)
    assert words[:2] == ["firstlight", "serve"]
    assert {word for word in words if word.startswith("-")} <= options()
    assert instructions("EXPOSE") == [str(DEFAULTS.port)]
    assert instructions("ADD") == []


def test_the_container_asks_after_health_where_no_key_is_needed() -> None:
    (check,) = instructions("HEALTHCHECK")
    found = re.search(r"http://127\.0\.0\.1:(\d+)(/\w+)", check)
    assert found is not None
    assert (int(found[1]), found[2]) == (DEFAULTS.port, "/health")
    assert found[2] in OPEN_PATHS


def test_shell_lines_of_the_container_end_where_they_seem_to() -> None:
    """A comment or a blank line within an instruction is taken for its end by some builders."""
    for line, following in zip(
        CONTAINER.splitlines(), [*CONTAINER.splitlines()[1:], ""], strict=True
    ):
        if line.endswith("\\"):
            assert following.strip()
            assert not following.lstrip().startswith("#")


def test_the_proxy_lets_pass_what_the_server_takes_and_holds_no_stream_back() -> None:
    (size,) = re.findall(r"client_max_body_size (\d+)m;", PROXY)
    assert int(size) << 20 == DEFAULTS.max_body_bytes
    (seconds,) = re.findall(r"proxy_read_timeout (\d+)s;", PROXY)
    assert int(seconds) >= DEFAULTS.request_seconds
    assert "proxy_buffering off;" in PROXY
    assert f"127.0.0.1:{DEFAULTS.port}" in PROXY
    assert PROXY.count("{") == PROXY.count("}")
