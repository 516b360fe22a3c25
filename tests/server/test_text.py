"""Stop strings, characters of several tokens, log probabilities (cases H26, H27, H28)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from firstlight.engine.build import Parts
from tests.server.asking import CHAT, TEXT, body, data_url, joined, streamed, text_of
from tests.server.scripted import characters, script

STOPS = [
    (["XYZ"], "abc"),
    (["cX"], "ab"),
    (["Z", "XYZ"], "abc"),
    (["zzz", "abcXYZdefg"], None),
    (["é🫠"], None),
]


@pytest.mark.parametrize(("stop", "expected"), STOPS)
@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_a_stop_string_over_several_tokens_ends_the_text_before_it(
    path: str,
    stop: list[str],
    expected: str | None,
    http: httpx2.Client,
    parts: Parts,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """H26"""
    text = "abcXYZdef"
    tokens = characters(parts, text)
    script(monkeypatch, {1: tokens})
    asked = _asked(path, seed=1, stop=stop, max_tokens=len(tokens))
    whole = http.post(path, json=asked).json()
    chunks = streamed(http, path, asked)
    assert text_of(whole) == joined(chunks) == (text if expected is None else expected)
    ends = {c["finish_reason"] for chunk in chunks[:-1] for c in chunk["choices"]} - {None}
    assert ends == {whole["choices"][0]["finish_reason"]}
    assert ends == ({"length"} if expected is None else {"stop"})


def test_a_stop_string_of_characters_in_several_tokens_is_found(
    http: httpx2.Client, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H26, over byte tokens."""
    tokens = characters(parts, "aé🫠b")
    assert len(tokens) > 4
    script(monkeypatch, {1: tokens})
    asked = body(tokens=len(tokens), seed=1, stop="é🫠")
    assert text_of(http.post(CHAT, json=asked).json()) == joined(streamed(http, CHAT, asked)) == "a"


WORDS = "é🫠龜👨‍👩‍👧 "


def test_characters_of_several_tokens_are_whole_in_every_frame_and_beside_each_other(
    http: httpx2.Client, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H27: two requests at once, each with characters of its own."""
    texts = {1: WORDS, 2: WORDS[::-1]}
    ids = {seed: characters(parts, text) for seed, text in texts.items()}
    script(monkeypatch, ids)
    with ThreadPoolExecutor(2) as pool:
        asked = [body(tokens=len(ids[seed]), seed=seed) for seed in (1, 2)]
        answers = list(pool.map(lambda a: streamed(http, CHAT, a), asked))
    for (_, text), chunks in zip(sorted(texts.items()), answers, strict=True):
        assert joined(chunks) == text
        assert "\ufffd" not in joined(chunks)


@pytest.mark.parametrize("cut", range(1, 8))
def test_an_answer_cut_inside_a_character_is_what_decoding_all_of_it_gives(
    cut: int, http: httpx2.Client, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H27"""
    ids = characters(parts, WORDS)[:cut]
    script(monkeypatch, {1: ids})
    asked = body(tokens=cut, seed=1)
    expected = parts.model.tokenizer.decode(ids, clean_up_tokenization_spaces=False)
    chunks = streamed(http, CHAT, asked)
    assert joined(chunks) == text_of(http.post(CHAT, json=asked).json()) == expected


@pytest.mark.parametrize("top", [None, 0, 1, 20])
@pytest.mark.parametrize("fields", [{}, {"top_p": 0.01}, {"top_k": 1}, {"min_tokens": 3}])
def test_every_token_has_its_own_log_probability(
    top: int | None, fields: dict[str, Any], http: httpx2.Client
) -> None:
    """H28"""
    asked = body(tokens=4, logprobs=True, top_logprobs=top, temperature=1.0, seed=3) | fields
    whole = http.post(CHAT, json=asked).json()
    entries = whole["choices"][0]["logprobs"]["content"]
    assert len(entries) == 4
    for entry in entries:
        rivals = [rival["logprob"] for rival in entry["top_logprobs"]]
        assert len(rivals) == (top or 0)
        assert rivals == sorted(rivals, reverse=True)
        assert -9999 <= entry["logprob"] <= 0
    raw = b"".join(bytes(entry["bytes"]) for entry in entries)
    assert raw.decode("utf-8", "replace").rstrip("\ufffd") == text_of(whole).rstrip("\ufffd")
    chunks = streamed(http, CHAT, asked)
    own = [c["logprobs"] for chunk in chunks[:-1] for c in chunk["choices"]]
    assert [e for piece in own if piece for e in piece["content"]] == entries


def test_log_probabilities_are_those_of_the_request_alone(http: httpx2.Client) -> None:
    """H28: whatever runs beside it, and however long that is."""
    parts_of = [["Hi"], [data_url(64, 64), "What is it?"], ["word " * 60]]
    asked = [body(*p, tokens=6, logprobs=True, top_logprobs=2) for p in parts_of]
    alone = [http.post(CHAT, json=a).json() for a in asked]
    with ThreadPoolExecutor(3) as pool:
        beside = list(pool.map(lambda a: http.post(CHAT, json=a).json(), asked))
    for one, other in zip(alone, beside, strict=True):
        for a, b in zip(_entries(one), _entries(other), strict=True):
            assert a["token"] == b["token"]
            assert a["logprob"] == pytest.approx(b["logprob"], abs=1e-4)


def test_completions_have_openais_older_form_of_log_probabilities(http: httpx2.Client) -> None:
    answer = http.post(TEXT, json={"prompt": "Hello", "logprobs": 2, "max_tokens": 4}).json()
    logprobs = answer["choices"][0]["logprobs"]
    assert {len(values) for values in logprobs.values()} == {4}
    assert all(len(rivals) == 2 for rivals in logprobs["top_logprobs"])
    assert logprobs["text_offset"][0] == 0


def _entries(answer: dict[str, Any]) -> list[dict[str, Any]]:
    return list(answer["choices"][0]["logprobs"]["content"])


def _asked(path: str, **fields: Any) -> dict[str, Any]:
    if path == CHAT:
        return body(tokens=None) | fields
    return {"prompt": "Hello", "temperature": 0, "ignore_eos": True} | fields
