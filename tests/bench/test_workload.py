"""What is in the requests of a load."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import pytest
from PIL import Image

from firstlight.bench.settings import LoadSettings
from firstlight.bench.words import Texts
from firstlight.bench.workload import Prompt, Workload, make_workload

FIELDS = {"model": "m", "stream": True}


def made(**settings: Any) -> Workload:
    own = LoadSettings.from_options({"num_requests": 6, "image_size": "16x24"} | settings)
    return make_workload(own, Texts(1.5), FIELDS)


def content(prompt: Prompt) -> list[dict[str, Any]]:
    (message,) = json.loads(prompt.body())["messages"]
    assert message["role"] == "user"
    return list(message["content"])


def urls(prompts: list[Prompt]) -> list[str]:
    parts = [part for prompt in prompts for part in content(prompt)]
    return [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]


def test_every_request_has_the_fields_its_limit_and_its_text_last() -> None:
    for prompt in made(images=1).prompts:
        body = json.loads(prompt.body())
        assert body["model"] == "m"
        assert body["max_tokens"] == prompt.max_tokens == 64
        assert [part["type"] for part in content(prompt)] == ["image_url", "text"]


def test_texts_have_as_many_words_as_their_tokens_need() -> None:
    counts = {len(content(p)[0]["text"].split()) for p in made(input_tokens="150").prompts}
    assert counts == {100}


def test_lengths_of_a_span_are_all_within_it_and_differ() -> None:
    prompts = made(num_requests=50, output_tokens="5:9", input_tokens="15:30").prompts
    assert {p.max_tokens for p in prompts} == {5, 6, 7, 8, 9}
    words = {len(content(p)[0]["text"].split()) for p in prompts}
    assert min(words) >= 10
    assert max(words) <= 20
    assert len(words) > 5


def test_no_text_is_asked_twice() -> None:
    work = made(num_requests=40, warmup=10)
    texts = [content(p)[0]["text"] for p in (*work.prompts, *work.warmup)]
    assert len(set(texts)) == 50


def test_pictures_are_jpeg_files_of_the_wanted_sizes() -> None:
    work = made(num_requests=12, images=1, image_size="16x24,32x8")
    sizes = set()
    for url in urls(work.prompts):
        head, _, data = url.partition(",")
        assert head == "data:image/jpeg;base64"
        sizes.add(Image.open(io.BytesIO(base64.b64decode(data))).size)
    assert sizes == {(16, 24), (32, 8)}


def test_without_a_limit_no_picture_comes_twice() -> None:
    work = made(images=2, warmup=2)
    assert len(set(urls([*work.prompts, *work.warmup]))) == 16
    assert (work.pictures, work.distinct) == (12, 12)


def test_as_many_different_pictures_as_asked_for_come_about_as_often() -> None:
    work = made(images=2, distinct_images=4)
    shown = urls(work.prompts)
    assert sorted(shown.count(url) for url in set(shown)) == [3, 3, 3, 3]
    assert (work.pictures, work.distinct) == (12, 4)


def test_more_different_pictures_than_there_are_is_all_different() -> None:
    assert made(images=1, distinct_images=99).distinct == 6


def test_equal_settings_make_equal_requests_and_another_seed_makes_others() -> None:
    first, again, other = (made(images=1, seed=seed).prompts for seed in (1, 1, 2))
    assert [p.body() for p in first] == [p.body() for p in again]
    assert not {p.body() for p in first} & {p.body() for p in other}


def test_what_a_text_holds_cannot_break_out_of_the_body() -> None:
    settings = LoadSettings.from_options({"num_requests": 1})
    (prompt,) = make_workload(settings, Texts(1.0), {"model": 'a"}],"'}).prompts
    assert json.loads(prompt.body())["model"] == 'a"}],"'


@pytest.mark.parametrize("tokens", ["1", 1])
def test_a_text_has_at_least_a_word(tokens: object) -> None:
    assert content(made(input_tokens=tokens).prompts[0])[0]["text"]


def test_pictures_that_come_again_do_so_in_no_pattern() -> None:
    shown = urls(made(num_requests=16, images=1, distinct_images=4).prompts)
    assert any(shown[i] != shown[i % 4] for i in range(16))
