"""Pictures on their way through an engine: what is made once, what each took, what is refused."""

from __future__ import annotations

import base64
import hashlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from firstlight import LLM, SamplingParams
from firstlight.core.timing import Outcome, PictureTiming
from firstlight.engine.pictures import fetch_policy
from firstlight.errors import ClosedError, ConfigError, MediaError
from firstlight.media import decode_image
from tests.conftest import TinyCheckpoint
from tests.engine.engines import tiny_llm, user
from tests.media.files import encoded, noise
from tests.media.listener import listening, sends
from tests.pictures import picture

PARAMS = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)
SHOWN = picture(48, 32, seed=1)
DECODE = "firstlight.media.image_maker.decode_image"


@pytest.fixture(scope="module")
def llm(tiny_checkpoint: TinyCheckpoint) -> Iterator[LLM]:
    with tiny_llm(tiny_checkpoint("qwen3_vl"), eager=True) as opened:
        yield opened


@pytest.fixture(autouse=True)
def nothing_is_left(request: pytest.FixtureRequest) -> None:
    """Each test begins with empty caches."""
    if "llm" in request.fixturenames:
        request.getfixturevalue("llm").flush_caches()


class Counts:
    """Calls of the decoder, the processor and the tower of one engine."""

    def __init__(self, llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
        self.decoded = self.processed = self.encoded = 0
        processor, adapter = llm.parts.model.image_processor, llm.parts.model.adapter
        assert processor is not None
        prepare, encode = processor.artifact, adapter.encode

        def decode(*args: Any, **options: Any) -> Any:
            self.decoded += 1
            return decode_image(*args, **options)

        def artifact(*args: Any, **options: Any) -> Any:
            self.processed += 1
            return prepare(*args, **options)

        def encoding(artifacts: Any) -> Any:
            self.encoded += len(artifacts)
            return encode(artifacts)

        monkeypatch.setattr(DECODE, decode)
        monkeypatch.setattr(processor, "artifact", artifact)
        monkeypatch.setattr(adapter, "encode", encoding)

    def all(self) -> tuple[int, int, int]:
        return self.decoded, self.processed, self.encoded


@pytest.fixture
def counts(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> Counts:
    return Counts(llm, monkeypatch)


def ask(llm: LLM, *images: object, detail: str = "auto", **options: Any) -> Any:
    """A question about pictures of one detail."""
    parts: list[dict[str, object]] = [
        {"type": "image", "image": image, "detail": detail} for image in images
    ]
    content = [*parts, {"type": "text", "text": "What is it?"}]
    return llm.chat([{"role": "user", "content": content}], PARAMS, **options)


def outcomes(timing: PictureTiming) -> tuple[Outcome, Outcome]:
    return timing.artifact, timing.encoder


# -- once --------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["bytes", "image", "path", "data URL"])
def test_a_picture_that_comes_again_costs_no_decoding_no_processor_and_no_encoder(
    source: str, llm: LLM, counts: Counts, tmp_path: Path
) -> None:
    data = encoded(SHOWN)
    path = tmp_path / "a.png"
    path.write_bytes(data)
    url = "data:image/png;base64," + base64.b64encode(data).decode()
    shown = {"bytes": data, "image": SHOWN, "path": str(path), "data URL": url}[source]
    first, second = (ask(llm, shown) for _ in range(2))
    assert counts.all() == (1, 1, 1)
    assert second.token_ids == first.token_ids
    assert outcomes(first.timings.pictures[0]) == (Outcome.MISS, Outcome.MISS)
    (again,) = second.timings.pictures
    assert outcomes(again) == (Outcome.HIT, Outcome.HIT)
    assert (again.decode_s, again.process_s, again.encode_s) == (0, 0, 0)


def test_one_picture_under_three_names_is_one(llm: LLM, counts: Counts, tmp_path: Path) -> None:
    data = encoded(SHOWN)
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(data)
    answer = ask(llm, data, tmp_path / "a.png", str(tmp_path / "b.png"))
    assert counts.all() == (1, 1, 1)
    first, *others = answer.timings.pictures
    assert outcomes(first) == (Outcome.MISS, Outcome.MISS)
    for other in others:
        assert outcomes(other) == (Outcome.JOINED, Outcome.JOINED)
        assert (other.decode_s, other.process_s, other.encode_s) == (0, 0, 0)


def test_another_picture_under_the_same_name_is_another(
    llm: LLM, counts: Counts, tmp_path: Path
) -> None:
    path = tmp_path / "a.png"
    answers = []
    for seed in (1, 2):
        path.write_bytes(encoded(picture(48, 32, seed=seed)))
        answers.append(ask(llm, path))
    assert counts.all() == (2, 2, 2)
    assert answers[1].token_ids == ask(llm, picture(48, 32, seed=2)).token_ids


def test_a_prefix_that_is_in_memory_needs_no_rows_of_its_pictures(
    tiny_checkpoint: TinyCheckpoint,
) -> None:
    with tiny_llm(tiny_checkpoint("qwen3_vl"), eager=True, prefix_cache=True) as own:
        first, second = (ask(own, SHOWN) for _ in range(2))
    assert outcomes(first.timings.pictures[0]) == (Outcome.MISS, Outcome.MISS)
    assert outcomes(second.timings.pictures[0]) == (Outcome.HIT, Outcome.SKIPPED)
    assert second.timings.pictures[0].as_dict()["encoder"] == "skipped"


def test_a_flush_forgets_artifacts_with_all_else(llm: LLM, counts: Counts) -> None:
    for _ in range(2):
        ask(llm, SHOWN)
        llm.flush_caches()
    assert counts.all() == (2, 2, 2)
    assert llm.inspect()["use"]["artifacts"]["entries"] == 0


def test_an_engine_that_keeps_no_artifacts_makes_them_anew(
    tiny_checkpoint: TinyCheckpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tiny_llm(tiny_checkpoint("qwen3_vl"), eager=True, artifact_cache_bytes=0) as own:
        counted = Counts(own, monkeypatch)
        answers = [ask(own, SHOWN) for _ in range(2)]
    assert (counted.decoded, counted.processed, counted.encoded) == (2, 2, 1)
    assert answers[0].token_ids == answers[1].token_ids


# -- timings -----------------------------------------------------------------------------------


def test_each_picture_tells_its_size_its_rows_and_its_seconds(llm: LLM) -> None:
    answer = ask(llm, encoded(SHOWN), picture(32, 64, seed=3))
    one, two = answer.timings.pictures
    assert (one.width, one.height, two.width, two.height) == (48, 32, 32, 64)
    assert (one.rows, two.rows) == (6, 8)
    assert one.rows + two.rows == answer.usage.image_tokens
    for shown in (one, two):
        assert min(shown.read_s, shown.decode_s, shown.process_s, shown.encode_s) > 0
    assert answer.timings.media_s >= max(one.process_s, two.process_s)


def test_the_json_form_has_milliseconds_by_stage() -> None:
    timing = PictureTiming(
        48, 32, 6, "low", {"size": {"longest_edge": 9}}, Outcome.HIT, read_s=0.0012345
    )
    assert timing.as_dict() == {
        "size": [48, 32],
        "rows": 6,
        "detail": "low",
        "options": {"size": {"longest_edge": 9}},
        "artifact": "hit",
        "encoder": "skipped",
        "ms": {"read": 1.234, "decode": 0.0, "process": 0.0, "encode": 0.0},
    }


def test_the_pictures_of_several_conversations_are_prepared_side_by_side(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two threads: neither decoder goes on before both have begun."""
    together = threading.Barrier(2, timeout=10)

    def decode(*args: Any, **options: Any) -> Any:
        together.wait()
        return decode_image(*args, **options)

    monkeypatch.setattr(DECODE, decode)
    turns = [user(picture(48, 32, seed=seed), "What is it?") for seed in (1, 2)]
    answers = llm.chat(turns, PARAMS)
    assert [len(answer.timings.pictures) for answer in answers] == [1, 1]


def test_a_picture_of_one_conversation_is_located_in_the_list(llm: LLM) -> None:
    bad = [{"role": "user", "content": [{"type": "image", "image": b"GIF89a"}]}]
    place = r"^conversations\[1\]: messages\[0\]\.content\[0\]\.image: "
    with pytest.raises(MediaError, match=place):
        llm.chat([user(SHOWN), bad], PARAMS)
    with pytest.raises(MediaError, match=r"^messages\[0\]\.content\[0\]\.image: "):
        llm.chat(bad, PARAMS)


# -- detail and options ------------------------------------------------------------------------


def test_an_original_picture_has_more_rows_and_is_another_artifact(
    llm: LLM, counts: Counts
) -> None:
    large = noise(200, 200)
    auto, original, again = (ask(llm, large, detail=d) for d in ("auto", "original", "auto"))
    assert auto.usage.image_tokens < original.usage.image_tokens == 144
    assert counts.all() == (2, 2, 2)
    assert again.token_ids == auto.token_ids
    (told,) = original.timings.pictures
    assert told.detail == "original"
    assert told.options == {"size": {"shortest_edge": 256, "longest_edge": 64 << 20}}
    assert auto.timings.pictures[0].options == {}


def test_a_detail_without_effect_is_reported_as_such_and_shares_the_artifact(
    tiny_checkpoint: TinyCheckpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tiny_llm(tiny_checkpoint("llava"), eager=True) as own:
        counted = Counts(own, monkeypatch)
        details = ("auto", "low", "high", "original")
        answers = [ask(own, SHOWN, detail=detail) for detail in details]
    assert counted.all() == (1, 1, 1)
    told = [answer.timings.pictures[0] for answer in answers]
    assert [(t.detail, t.options) for t in told] == [(detail, {}) for detail in details]


@pytest.mark.parametrize("family", ["llava_next", "internvl", "idefics3"])
def test_a_picture_of_low_detail_has_fewer_rows_and_an_answer(
    family: str, tiny_checkpoint: TinyCheckpoint
) -> None:
    with tiny_llm(tiny_checkpoint(family), eager=True) as own:
        auto, low = (ask(own, noise(150, 100), detail=d) for d in ("auto", "low"))
    assert 0 < low.usage.image_tokens < auto.usage.image_tokens
    assert low.error is None
    assert low.timings.pictures[0].options != {}


@pytest.mark.parametrize("call", ["chat", "stream_chat", "generate"])
def test_options_of_the_processor_are_honoured(call: str, llm: LLM) -> None:
    large = noise(128, 128)
    kwargs = {"max_pixels": 4096}
    if call == "chat":
        answer = ask(llm, large, mm_processor_kwargs=kwargs)
    elif call == "stream_chat":
        *_, answer = llm.stream_chat(user(large), PARAMS, mm_processor_kwargs=kwargs)
    else:
        prompt = llm.parts.model.adapter.placeholder
        answer = llm.generate(prompt, PARAMS, images=[large], mm_processor_kwargs=kwargs)
    assert answer.usage.image_tokens == 16  # of 64
    (told,) = answer.timings.pictures
    assert told.options == {"size": {"shortest_edge": 256, "longest_edge": 4096}}


@pytest.mark.parametrize("images", [[], [SHOWN]])
@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"do_resize": False}, "'do_resize', which no request may set; accepted: min_pixels, max"),
        ({"max_pixels": 10**12}, "accepted: an int from 256 to 67108864"),
        ("max_pixels", "mm_processor_kwargs is a str"),
    ],
)
def test_other_options_of_the_processor_are_refused_by_name(
    images: list[object], kwargs: Any, message: str, llm: LLM
) -> None:
    with pytest.raises(MediaError, match=message):
        ask(llm, *images, mm_processor_kwargs=kwargs)


def test_a_text_model_takes_no_options_of_a_processor(tiny_checkpoint: TinyCheckpoint) -> None:
    own = tiny_llm(tiny_checkpoint("llama"), eager=True)
    with pytest.raises(MediaError, match="mm_processor_kwargs is given, but llama takes text only"):
        own.chat(user("Hello"), PARAMS, mm_processor_kwargs={"max_pixels": 256})
    assert own.inspect()["use"]["artifacts"] is None
    own.close()


def test_options_that_a_video_would_not_follow_are_refused(llm: LLM) -> None:
    part = {"type": "video", "video": [SHOWN] * 4, "fps": 2}
    with pytest.raises(MediaError, match=r"content\[0\]\.video is a video; fps and num_frames"):
        llm.chat(
            [{"role": "user", "content": [part]}], PARAMS, mm_processor_kwargs={"max_pixels": 4096}
        )


# -- what may be read --------------------------------------------------------------------------


def web(url: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]


def test_nothing_is_fetched_unless_a_host_is_allowed(llm: LLM) -> None:
    with (
        listening(sends(encoded(SHOWN))) as server,
        pytest.raises(MediaError, match=r"image_url\.url: .*no domain is allowed"),
    ):
        llm.chat(web(server.url()), PARAMS)
    assert server.hits == 0


def test_a_picture_of_an_allowed_host_is_fetched_and_answered(
    tiny_checkpoint: TinyCheckpoint,
) -> None:
    data = encoded(SHOWN)
    with listening(sends(data)) as server:
        settings: dict[str, Any] = {
            "allowed_media_domains": ["127.0.0.1"],
            "trusted_media_networks": "127.0.0.0/8",
            "media_ports": str(server.port),
        }
        with tiny_llm(tiny_checkpoint("qwen3_vl"), eager=True, **settings) as own:
            fetched = own.chat(web(server.url("/a.png?token=secret")), PARAMS)
            given = own.chat(user(SHOWN), PARAMS)
            with pytest.raises(MediaError, match="none of allowed_media_domains"):
                own.chat(web("http://example.org/a.png"), PARAMS)
    assert server.hits == 1
    assert fetched.token_ids == given.token_ids
    assert fetched.timings.pictures[0].read_s > 0


def test_a_picture_that_cannot_be_fetched_is_told_by_its_host_alone(
    tiny_checkpoint: TinyCheckpoint, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    with listening(sends(b"", status=404)) as server:
        settings: dict[str, Any] = {
            "allow_any_media_host": True,
            "trusted_media_networks": "127.0.0.0/8",
            "media_ports": "any",
        }
        with tiny_llm(tiny_checkpoint("qwen3_vl"), eager=True, **settings) as own:
            with pytest.raises(MediaError, match="was answered with 404") as caught:
                own.chat(web(server.url("/private/a.png?token=secret")), PARAMS)
            given = own.chat(user(SHOWN), PARAMS)
    assert given.error is None
    for text in (str(caught.value), caplog.text):
        assert "secret" not in text
        assert "private" not in text


def test_paths_must_lie_in_the_allowed_folder_where_there_is_one(
    tiny_checkpoint: TinyCheckpoint, tmp_path: Path
) -> None:
    root, outside = tmp_path / "root", tmp_path / "b.png"
    root.mkdir()
    for path in (root / "a.png", outside):
        path.write_bytes(encoded(SHOWN))
    path = tiny_checkpoint("qwen3_vl")
    with tiny_llm(path, eager=True, allowed_media_root=str(root)) as own:
        assert ask(own, "a.png").error is None
        assert ask(own, (root / "a.png").as_uri()).error is None
        for name in (outside, outside.as_uri(), root / ".." / "b.png"):
            with pytest.raises(MediaError, match="no such picture among those that may be read"):
                ask(own, name)


def test_limits_of_pixels_and_bytes_hold(tiny_checkpoint: TinyCheckpoint) -> None:
    path = tiny_checkpoint("qwen3_vl")
    with tiny_llm(path, eager=True, max_image_pixels=1600, max_media_bytes=2000) as own:
        assert ask(own, encoded(picture(40, 40))).error is None
        with pytest.raises(MediaError, match="40 x 41 = 1640 pixels; at most 1600"):
            ask(own, picture(40, 41))
        with pytest.raises(MediaError, match="larger than 2000 bytes"):
            ask(own, encoded(noise(40, 40)))


def test_the_background_of_transparent_pictures_is_a_setting(
    tiny_checkpoint: TinyCheckpoint,
) -> None:
    clear = Image.new("RGBA", (48, 32), (9, 9, 9, 0))
    with tiny_llm(tiny_checkpoint("qwen3_vl"), eager=True, media_background="#0000ff") as own:
        blue = ask(own, Image.new("RGB", (48, 32), (0, 0, 255)))
        assert ask(own, clear).token_ids == blue.token_ids
        assert own.parts.pipeline is not None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"allowed_media_domains": "http://a.org"}, "allowed_media_domains holds 'http://a.org'"),
        ({"trusted_media_networks": "10.1.0.0/40"}, "trusted_media_networks holds '10.1.0.0/40'"),
        ({"allowed_media_root": "/no/such/folder"}, "allowed_media_root = '/no/such/folder' is no"),
        ({"media_background": "whitish"}, "media_background = 'whitish' is no colour"),
    ],
)
def test_a_wrong_setting_is_refused_by_its_name_before_a_model_is_loaded(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        LLM("no/such/model", **settings)


def test_a_server_reads_no_path_unless_a_folder_is_allowed(llm: LLM) -> None:
    policy = fetch_policy(llm.config, any_path=False)
    assert not policy.any_path
    assert policy.file_root is None


# -- hashes ------------------------------------------------------------------------------------


def hashed(data: bytes, digest: str) -> list[dict[str, Any]]:
    part = {"type": "image", "image": data, "content_hash": digest}
    return [{"role": "user", "content": [part]}]


def test_a_content_hash_is_checked_and_by_default_not_believed(llm: LLM) -> None:
    data, other = encoded(SHOWN), encoded(picture(48, 32, seed=2))
    digest = "sha256:" + hashlib.sha256(data).hexdigest()
    assert llm.chat(hashed(data, digest), PARAMS).error is None
    with pytest.raises(MediaError, match=r"content\[0\]\.image: .*not have the hash"):
        llm.chat(hashed(other, digest), PARAMS)


def test_a_trusted_content_hash_reads_nothing(tiny_checkpoint: TinyCheckpoint) -> None:
    data = encoded(SHOWN)
    digest = "sha256:" + hashlib.sha256(data).hexdigest()
    path = tiny_checkpoint("qwen3_vl")
    with tiny_llm(path, eager=True, trust_media_hashes=True) as own:
        first = own.chat(hashed(data, digest), PARAMS)
        second = own.chat(hashed(b"", digest), PARAMS)
    assert second.token_ids == first.token_ids
    assert second.timings.pictures[0].read_s == 0


# -- the end -----------------------------------------------------------------------------------


def media_threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("firstlight-")]


def test_a_closed_engine_ends_its_threads_and_answers_nothing(
    tiny_checkpoint: TinyCheckpoint,
) -> None:
    before = set(media_threads())
    with tiny_llm(tiny_checkpoint("qwen3_vl"), eager=True) as own:
        ask(own, encoded(SHOWN))
        threads = set(media_threads()) - before
        assert threads
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    own.close()
    for call in (own.chat, own.stream_chat):
        with pytest.raises(ClosedError, match="was closed"):
            call(user("Hello"), PARAMS)
    with pytest.raises(ClosedError, match="was closed"):
        own.generate("Hello", PARAMS)


def test_a_stream_that_runs_outlives_the_end(tiny_checkpoint: TinyCheckpoint) -> None:
    own = tiny_llm(tiny_checkpoint("qwen3_vl"), eager=True)
    whole = ask(own, SHOWN)
    stream = own.stream_chat([{"role": "user", "content": content()}], PARAMS)
    next(stream)
    own.close()
    *_, last = stream
    assert not isinstance(last, str)
    assert last.token_ids == whole.token_ids


def content() -> list[dict[str, object]]:
    return [
        {"type": "image", "image": encoded(SHOWN)},
        {"type": "text", "text": "What is it?"},
    ]
