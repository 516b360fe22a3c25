"""The playground's files: what is served, that nothing is asked elsewhere, and that they fit
together with each other and with the API."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from firstlight.engine.build import Parts
from firstlight.server.graphs import graphs_report
from firstlight.server.routes.playground import FOLDER, POLICY, playground_assets
from firstlight.server.schemas.messages import AssistantMessage
from tests.conftest import TinyCheckpoint
from tests.server.asking import CHAT, body, data_url, error_of, streamed
from tests.server.running import KEYS, running, tiny_parts

ASSETS = playground_assets()
HTML = (FOLDER / "index.html").read_text(encoding="utf-8")
CSS = (FOLDER / "style.css").read_text(encoding="utf-8")
SCRIPTS = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.js")}
TEXTS = {"index.html": HTML, "style.css": CSS, **SCRIPTS}
IDS = set(re.findall(r'\bid="([^"]+)"', HTML))
NAMESPACE = "http://www.w3.org/2000/svg"


@pytest.mark.parametrize("path", ASSETS)
def test_each_file_is_served_with_its_type_and_a_strict_policy(
    http: httpx2.Client, path: str
) -> None:
    answer = http.get(path)
    assert (answer.status_code, answer.content) == (200, ASSETS[path].body)
    assert answer.headers["content-type"] == ASSETS[path].media_type
    assert answer.headers["content-security-policy"] == POLICY
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_the_policy_lets_the_page_ask_this_server_alone_and_run_no_inline_script() -> None:
    rules = dict(rule.split(" ", 1) for rule in POLICY.split("; "))
    assert rules["default-src"] == "'none'"
    sources = {
        source for name, given in rules.items() if "-src" in name for source in given.split()
    }
    assert sources == {"'none'", "'self'", "data:", "blob:"}
    assert rules["script-src"] == rules["connect-src"] == "'self'"


def test_a_file_that_did_not_change_is_not_sent_again(http: httpx2.Client) -> None:
    etag = http.get("/").headers["etag"]
    again = http.get("/", headers={"if-none-match": etag})
    assert (again.status_code, again.content) == (304, b"")
    assert http.get("/", headers={"if-none-match": '"another"'}).status_code == 200


def test_head_answers_without_a_body_and_other_methods_are_refused(http: httpx2.Client) -> None:
    assert http.head("/").status_code == 200
    refused = error_of(http.post("/", json={}))
    assert refused["code"] == "method_not_allowed"
    assert refused["message"].endswith("accepted: GET, HEAD")


def test_the_schema_of_the_api_does_not_have_the_page(http: httpx2.Client) -> None:
    assert not ASSETS.keys() & http.get("/openapi.json").json()["paths"].keys()


def test_the_page_needs_no_key_and_all_that_it_asks_does(parts: Parts) -> None:
    with running(parts, keys=KEYS) as server, server.client() as http:
        assert {http.get(path).status_code for path in ASSETS} == {200}
        for path in ("/v1/models", "/v1/graphs", "/playground/", "/playground/../v1/models"):
            assert http.get(path).status_code == 401
        assert http.post("/").status_code == 401


@pytest.mark.parametrize("name", TEXTS)
def test_nothing_refers_outside(name: str) -> None:
    addresses = re.findall(r"(?:[a-z]+:)?//[\w.]+\.\w+[^\s\"'`)]*", TEXTS[name])
    assert set(addresses) <= {NAMESPACE}
    assert not re.search(
        r"\b(eval|innerHTML|outerHTML|insertAdjacentHTML)\b|\son\w+=\"", TEXTS[name]
    )


def test_every_file_that_is_named_is_served() -> None:
    named = re.findall(r'(?:src|href)="([^"#]+)"', HTML)
    imported = [m for text in SCRIPTS.values() for m in re.findall(r'from "\./([^"]+)"', text)]
    assert {f"/{name}" for name in named} | {f"/playground/{m}" for m in imported} <= set(ASSETS)
    assert {f"{name}.js" for name in ("app",)} | set(imported) == set(SCRIPTS)


def test_every_import_is_exported() -> None:
    for name, text in SCRIPTS.items():
        for names, source in re.findall(r'import \{([^}]+)\} from "\./([^"]+)"', text):
            found = set(
                re.findall(
                    r"export (?:async )?(?:function\*? |const |class )(\w+)", SCRIPTS[source]
                )
            )
            assert {part.strip() for part in names.split(",")} <= found, (name, source)


def test_every_id_that_a_script_or_a_style_names_is_in_the_page() -> None:
    used = {i for text in SCRIPTS.values() for i in re.findall(r'byId\("([^"]+)"\)', text)}
    used |= {i for i in re.findall(r"^#([\w-]+)", CSS, re.MULTILINE)}
    used |= {i for i in re.findall(r'\b(?:for|aria-labelledby|aria-describedby)="([^"]+)"', HTML)}
    assert used
    assert used <= IDS
    assert len(IDS) == len(re.findall(r'\bid="', HTML))


def test_every_field_and_button_has_a_name() -> None:
    for tag in re.findall(r"<(?:input|textarea)\b[^>]*>", HTML):
        found = re.search(r'id="([^"]+)"', tag)
        assert found is not None
        labelled = f'for="{found[1]}"' in HTML or "aria-label=" in tag
        assert labelled or re.search(rf'<label[^>]*>[^<]+<input id="{found[1]}"', HTML), tag
    assert all(text.strip() for text in re.findall(r"<button\b[^>]*>([^<]*)</button>", HTML))


def test_every_field_that_the_page_reads_is_in_an_answer(
    http: httpx2.Client, tiny_checkpoint: TinyCheckpoint
) -> None:
    """Names with an underscore are the API's: the page's own are written in camel case."""
    asked = body("What?", data_url(), tokens=3) | {
        "timings": True,
        "stream_options": {"include_usage": True},
    }
    measured = tiny_parts(
        tiny_checkpoint("llama"), padding_cost="measured", prefill_buckets=(8,), decode_buckets=(1,)
    )
    answers = [
        *streamed(http, CHAT, asked)[:-1],
        graphs_report(measured),
        http.get("/v1/models").json(),
    ]
    known = {name for answer in answers for name in _names(answer)}
    known |= AssistantMessage.model_fields.keys()
    sent = {"image_url", "stream_options", "include_usage", "max_tokens"}
    for name, text in SCRIPTS.items():
        read = set(re.findall(r"\b[a-z]+(?:_[a-z]+)+\b", re.sub(r"//.*|/\*.*?\*/", "", text)))
        modules = {module.removesuffix(".js") for module in SCRIPTS}
        assert read - sent - modules - known - {"too_many_requests"} == set(), name


def _names(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
    for inner in value.values() if isinstance(value, dict) else value:
        if isinstance(inner, dict | list):
            yield from _names(inner)
