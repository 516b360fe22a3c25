"""Media of a step: only what its chunks overlap, once, right row by row, and failing alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from firstlight.contract import InputContract, resolve_contract
from firstlight.core.plan import BatchPlan, Chunk
from firstlight.core.reason import Phase
from firstlight.core.span import Span
from firstlight.core.timing import Timings
from firstlight.engine.encoder import Encoder
from firstlight.engine.media_items import MediaItem, media_items, media_key
from firstlight.engine.merge import merge
from firstlight.engine.prompt import Prompt
from firstlight.errors import MediaError, SlotError
from firstlight.media import Artifact, decode_image
from firstlight.memory.encoder_cache import EncoderCache
from firstlight.models.loading import load_model
from tests.conftest import TinyCheckpoint
from tests.pictures import picture

WIDTH = 4
ROW = WIDTH * 4  # bytes


def image(seed: int, rows: int = 6, *, digest: str = "") -> Artifact:
    """A picture that the fake tower turns into rows ``100 * seed + k``."""
    tensors = {"seed": torch.tensor([seed]), "rows": torch.tensor([rows])}
    return Artifact(tensors, (8, 8), digest or f"sha256:{seed:064x}")


def row_values(seed: int, rows: int = 6) -> Tensor:
    return (100.0 * seed + torch.arange(rows)).repeat(WIDTH, 1).T


class Tower:
    """Encodes, and notes the seeds of every call; ``spoil`` may change one picture's rows."""

    dtype = torch.float32
    device = torch.device("cpu")

    def __init__(self, spoil: Callable[[int, Tensor], Tensor] = lambda seed, rows: rows) -> None:
        self.contract: InputContract = resolve_contract([], WIDTH)
        self.calls: list[list[int]] = []
        self._spoil = spoil

    def media_rows(self, artifacts: Sequence[Any]) -> list[Tensor]:
        seeds = [int(a.tensors["seed"]) for a in artifacts]
        self.calls.append(seeds)
        sizes = [int(a.tensors["rows"]) for a in artifacts]
        batch = torch.cat([row_values(s, n) for s, n in zip(seeds, sizes, strict=True)])
        parts = zip(seeds, torch.split(batch, sizes), strict=True)
        return [self._spoil(seed, part) for seed, part in parts]

    def text_rows(self, ids: Tensor) -> Tensor:
        return -1.0 - ids.float().repeat(WIDTH, 1).T


@dataclass(eq=False)
class Request:
    """What the encoder and the merge read of a sequence."""

    prompt: Prompt
    computed: int = 0
    media: dict[int, Tensor] = field(default_factory=dict)
    timings: Timings = field(default_factory=Timings)

    @property
    def needs(self) -> tuple[MediaItem, ...]:
        return media_items(self.prompt)

    @property
    def known(self) -> int:
        return len(self.prompt.ids)

    def ids(self, start: int, end: int) -> list[int]:
        return self.prompt.ids[start:end]


def request(*parts: int | Artifact) -> Request:
    """A prompt of texts, by their lengths, and pictures."""
    ids: list[int] = []
    spans: list[Span] = []
    artifacts: list[Artifact] = []
    for part in parts:
        n = part if isinstance(part, int) else int(part.tensors["rows"])
        if isinstance(part, Artifact):
            spans.append(Span(len(artifacts), len(ids), len(ids) + n))
            artifacts.append(part)
        ids += range(len(ids), len(ids) + n)
    return Request(Prompt(ids, tuple(spans), tuple(artifacts)))


def expected_rows(asked: Request) -> Tensor:
    """From the definition: row k of an item at its k-th place, text elsewhere."""
    rows = Tower().text_rows(torch.tensor(asked.prompt.ids))
    for span in asked.prompt.spans:
        seed = int(asked.prompt.artifacts[span.item].tensors["seed"])
        for k in range(len(span)):
            rows[span.start + k] = 100.0 * seed + span.row + k
    return rows


class Rig:
    """Encoder, merge and the commit that a scheduler would do."""

    def __init__(self, tower: Tower | None = None, capacity_rows: int = 100) -> None:
        self.tower = tower or Tower()
        self.cache = EncoderCache(capacity_rows * ROW)
        ticks = iter(range(1_000_000))
        self.encoder: Encoder[Request] = Encoder(
            self.tower, self.cache, clock=lambda: float(next(ticks))
        )

    def step(self, *chunks: tuple[Request, int, int]) -> dict[Request, Tensor]:
        """Rows merged for each request that did not fail; failures are kept in ``failed``."""
        plan = BatchPlan(Phase.PREFILL, tuple(Chunk(r, a, b) for r, a, b in chunks))
        gathered = self.encoder.gather(plan)
        self.failed = dict(gathered.failed)
        kept = gathered.plan
        into = torch.full((sum(map(len, kept.chunks)), WIDTH), float("nan"))
        merge(into, cast(Any, kept.chunks), cast(Any, self.tower), self.tower.contract)
        merged = dict(
            zip(
                [chunk.request for chunk in kept.chunks],
                torch.split(into, [len(chunk) for chunk in kept.chunks]),
                strict=True,
            )
        )
        for chunk in kept.chunks:
            chunk.request.computed = chunk.end
        self.encoder.done(kept)
        return merged

    def whole(self, asked: Request, chunk: int) -> Tensor:
        """A prompt in chunks."""
        n = len(asked.prompt.ids)
        parts = [self.step((asked, at, min(at + chunk, n)))[asked] for at in range(0, n, chunk)]
        return torch.cat(parts)

    def assert_idle(self) -> None:
        usage = self.encoder.usage()
        assert (usage.requests, usage.cache.pinned) == (0, 0)
        assert self.encoder._held == {}


# -- what is encoded, and when -----------------------------------------------------------------


def test_a_picture_cut_at_any_row_keeps_its_rows_and_is_encoded_once() -> None:
    """Case H09: row k of the picture at its k-th place, wherever the chunk ends."""
    for end in range(1, 18):
        rig, asked = Rig(), request(3, image(1), 2, image(2), 1)
        first = rig.step((asked, 0, end))[asked]
        second = rig.step((asked, end, 18))[asked]
        assert torch.equal(torch.cat([first, second]), expected_rows(asked)), end
        assert sorted(seed for call in rig.tower.calls for seed in call) == [1, 2]
        rig.assert_idle()


@pytest.mark.parametrize("chunk", [1, 4, 5, 1000])
@pytest.mark.parametrize("capacity_rows", [0, 6, 100])
def test_rows_are_right_for_every_chunk_size_and_cache(chunk: int, capacity_rows: int) -> None:
    rig, asked = Rig(capacity_rows=capacity_rows), request(2, image(1), image(2), 3, image(1), 1)
    assert torch.equal(rig.whole(asked, chunk), expected_rows(asked))
    rig.assert_idle()


def test_interleaved_spans_of_one_picture_are_one_item() -> None:
    shown = image(1, 6)
    prompt = Prompt(list(range(12)), (Span(0, 2, 5), Span(0, 7, 10, row=3)), (shown,))
    rig, asked = Rig(), Request(prompt)
    assert torch.equal(rig.whole(asked, 4), expected_rows(asked))
    assert rig.tower.calls == [[1]]
    (item,) = asked.needs
    assert (item.rows, item.end, item.overlaps(5, 7), item.overlaps(5, 8)) == (6, 10, False, True)


def test_only_pictures_that_the_chunk_overlaps_are_encoded() -> None:
    """Reference §4.3: a chunk pays for its own items, not for all of the request."""
    rig, asked = Rig(), request(2, image(1), 2, image(2), 2, image(3))
    rig.step((asked, 0, 2))
    assert rig.tower.calls == []
    rig.step((asked, 2, 10))
    assert rig.tower.calls == [[1]]
    rig.step((asked, 10, 11))
    assert rig.tower.calls == [[1], [2]]
    assert set(asked.media) == {1}


def test_a_step_behind_all_pictures_encodes_nothing_and_holds_nothing() -> None:
    """A prefix hit that passed the picture, and every decode step."""
    rig, asked = Rig(), request(2, image(1), 4)
    rig.step((asked, 8, 12))
    assert rig.tower.calls == []
    rig.assert_idle()


def test_all_missing_pictures_of_a_step_go_into_one_call_each_once() -> None:
    """Reference §4.3: deduplicated by identity over all requests of the step."""
    rig = Rig()
    a, b, c = request(image(1), 2, image(2)), request(1, image(2)), request(image(1), image(3))
    merged = rig.step((a, 0, 14), (b, 0, 7), (c, 0, 12))
    assert rig.tower.calls == [[1, 2, 3]]
    for asked in (a, b, c):
        assert torch.equal(merged[asked], expected_rows(asked))


def test_a_known_picture_is_not_encoded_again_for_another_request() -> None:
    rig = Rig()
    for _ in range(3):
        asked = request(1, image(1), 1)
        assert torch.equal(rig.whole(asked, 100), expected_rows(asked))
    usage = rig.encoder.usage()
    assert rig.tower.calls == [[1]]
    assert (usage.calls, usage.encoded, usage.cache.hits) == (1, 1, 2)


def test_a_picture_costs_its_rows_until_the_cache_has_them() -> None:
    rig, asked = Rig(), request(1, image(1))
    (need,) = asked.needs
    assert rig.encoder.cost(need) == 6
    rig.whole(asked, 100)
    assert rig.encoder.cost(need) == 0
    assert rig.encoder.usage().cache.hits == 0


def test_the_requests_that_waited_for_the_encoder_are_told_how_long() -> None:
    rig = Rig()
    waited, text = request(image(1)), request(4)
    rig.step((waited, 0, 6), (text, 0, 4))
    assert (waited.timings.encode_s, text.timings.encode_s) == (1.0, 0.0)
    again = request(image(1))
    rig.step((again, 0, 6))
    assert again.timings.encode_s == 0.0


# -- the cache's bounds ------------------------------------------------------------------------


def test_a_picture_shown_twice_stays_while_others_compete_for_its_place() -> None:
    """Case H11: a cache for one picture; the pin ends behind the second occurrence."""
    rig = Rig(capacity_rows=6)
    twice, other = request(image(1), 20, image(1), 2), request(2, image(2), 2)
    rig.step((twice, 0, 10))
    merged = rig.step((twice, 10, 20), (other, 0, 10))
    assert torch.equal(merged[other], expected_rows(other))
    assert rig.cache.usage().pinned == 1
    rest = rig.step((twice, 20, 34))[twice]
    assert torch.equal(rest, expected_rows(twice)[20:])
    assert rig.tower.calls == [[1], [2]]
    rig.assert_idle()


def test_an_item_that_the_cache_refuses_is_encoded_per_chunk_and_counted() -> None:
    """Reference §4.4: an oversized item must not be encoded again and again in silence."""
    rig, asked = Rig(capacity_rows=5), request(1, image(1), 1)
    assert torch.equal(rig.whole(asked, 3), expected_rows(asked))
    usage = rig.encoder.usage()
    assert len(rig.tower.calls) == 3
    assert (usage.encoded, usage.uncached, usage.reencoded) == (3, 3, 2)
    assert asked.media == {}
    rig.assert_idle()


def test_an_item_of_one_chunk_that_the_cache_refuses_counts_as_no_repetition() -> None:
    rig, asked = Rig(capacity_rows=0), request(1, image(1), 1)
    rig.whole(asked, 100)
    usage = rig.encoder.usage()
    assert (usage.uncached, usage.reencoded) == (1, 0)


def test_encoding_one_picture_evicts_no_other_that_the_step_has_found() -> None:
    rig = Rig(capacity_rows=6)
    rig.whole(request(image(1)), 100)
    a, b = request(image(2)), request(image(1))
    merged = rig.step((a, 0, 6), (b, 0, 6))
    assert torch.equal(merged[b], expected_rows(b))
    assert rig.tower.calls == [[1], [2]]


def test_rows_of_a_batch_do_not_keep_the_batch_alive() -> None:
    rig, asked = Rig(), request(image(1), image(2))
    rig.step((asked, 0, 8))
    (left,) = asked.media.values()
    assert left.untyped_storage().nbytes() == left.nbytes


def test_a_request_that_ends_early_gives_its_pins_back() -> None:
    """Case H12: an aborted request leaves counts as before it."""
    rig, asked = Rig(), request(1, image(1), 1, image(2))
    rig.step((asked, 0, 4))
    assert rig.cache.usage().pinned == 1
    rig.encoder.forget(asked)
    rig.encoder.forget(asked)
    assert asked.media == {}
    rig.assert_idle()


def test_a_preempted_request_gives_its_pins_back_and_comes_again() -> None:
    rig, asked, other = Rig(capacity_rows=6), request(1, image(1), 9), request(image(2))
    rig.step((asked, 0, 4))
    asked.computed = 0
    rig.step((other, 0, 6))
    assert rig.cache.has(media_key(image(2), 6), 6, WIDTH)
    assert torch.equal(rig.whole(asked, 4), expected_rows(asked))
    rig.assert_idle()


def test_fifty_pictures_through_a_cache_of_three() -> None:
    """Case H12: evictions end, and every answer is right."""
    rig = Rig(capacity_rows=18)
    for seed in range(50):
        asked = request(1, image(seed), 1)
        assert torch.equal(rig.whole(asked, 3), expected_rows(asked))
    usage = rig.encoder.usage()
    assert (usage.encoded, usage.cache.entries, usage.cache.evictions) == (50, 3, 47)


# -- what is wrong with one request ------------------------------------------------------------


def spoiling(seed: int, change: Callable[[Tensor], Tensor]) -> Tower:
    return Tower(lambda s, rows: change(rows) if s == seed else rows)


BAD: list[tuple[str, Callable[[Tensor], Tensor], str]] = [
    ("a row too few", lambda rows: rows[:-1], "5 rows, but the prompt holds 6 places"),
    ("a column too few", lambda rows: rows[:, :-1], "3 columns"),
    ("another dtype", lambda rows: rows.half(), r"torch\.float16, but .* torch\.float32"),
    ("three dimensions", lambda rows: rows[None], r"\(1, 6, 4\)"),
]


@pytest.mark.parametrize(("change", "message"), [b[1:] for b in BAD], ids=[b[0] for b in BAD])
def test_a_request_whose_picture_is_encoded_wrongly_fails_alone(
    change: Callable[[Tensor], Tensor], message: str
) -> None:
    """Case H13, reference §9 G1: three others are right, and nothing wrong is kept."""
    rig = Rig(spoiling(3, change))
    asked = [request(1, image(seed), 1) for seed in range(1, 5)]
    merged = rig.step(*((r, 0, 8) for r in asked))
    assert list(rig.failed) == [asked[2]]
    with pytest.raises(MediaError, match=message):
        raise rig.failed[asked[2]]
    for other in (asked[0], asked[1], asked[3]):
        assert torch.equal(merged[other], expected_rows(other))
    assert not rig.cache.has(media_key(image(3), 6), 6, WIDTH)
    assert rig.encoder.usage().failed == 1
    rig.assert_idle()


def test_a_failing_request_leaves_the_other_picture_of_it_usable() -> None:
    rig = Rig(spoiling(2, lambda rows: rows[1:]))
    broken = request(image(1), 1, image(2))
    assert rig.step((broken, 0, 13)) == {}
    with pytest.raises(MediaError, match=r"^picture 1: "):
        raise rig.failed[broken]
    assert (broken.media, rig.cache.usage().entries) == ({}, 1)
    rig.assert_idle()


def test_an_error_of_a_video_says_that_it_is_one() -> None:
    rig = Rig(spoiling(2, lambda rows: rows[1:]))
    broken = request(image(1), 1, image(2))
    artifacts = broken.prompt.artifacts
    video = replace(artifacts[1], modality="video")
    broken.prompt = replace(broken.prompt, artifacts=(artifacts[0], video))
    rig.step((broken, 0, 13))
    with pytest.raises(MediaError, match=r"^video 1: the video was encoded into \d+ rows"):
        raise rig.failed[broken]


@pytest.mark.parametrize("error", [MediaError, RuntimeError, AttributeError, ZeroDivisionError])
def test_an_adapter_that_raises_fails_the_request_and_not_the_step(
    error: type[Exception],
) -> None:
    def raising(seed: int, rows: Tensor) -> Tensor:
        if seed == 2:
            raise error("cannot encode this one")
        return rows

    rig = Rig(Tower(raising))
    fine, broken, decoding = request(image(1)), request(image(2)), request(8)
    merged = rig.step((fine, 0, 6), (broken, 0, 6), (decoding, 7, 8))
    assert set(merged) == {fine, decoding}
    assert "cannot encode this one" in str(rig.failed[broken])
    assert rig.tower.calls == [[1, 2], [1], [2]]


def test_what_is_left_of_a_batch_of_one_row_each_is_a_decode_batch() -> None:
    rig = Rig(spoiling(1, lambda rows: rows[1:]))
    broken, decoding = request(image(1)), request(8)
    plan = BatchPlan(Phase.PREFILL, (Chunk(decoding, 7, 8), Chunk(broken, 0, 6)))
    gathered = rig.encoder.gather(plan)
    assert gathered.plan == BatchPlan(Phase.DECODE, (plan.chunks[0],))


def test_equal_digests_of_different_pictures_are_told_apart() -> None:
    """Case H14: by the number of rows, and where that is equal by the tensors themselves."""
    rig, same = Rig(), "sha256:" + "0" * 64
    for shown in (image(1, 6, digest=same), image(1, 5, digest=same), image(2, 6, digest=same)):
        asked = request(1, shown, 1)
        assert torch.equal(rig.whole(asked, 100), expected_rows(asked))
    assert rig.tower.calls == [[1], [1], [2]]


def test_equal_keys_of_other_rows_in_one_step_are_two_pictures() -> None:
    """Reference §9 G2: one hash with two row counts is not merged into one item."""
    rig, same = Rig(), "sha256:" + "0" * 64
    a = request(image(1, 6, digest=same))
    b = request(image(1, 4, digest=same))
    merged = rig.step((a, 0, 6), (b, 0, 4))
    assert torch.equal(merged[a], expected_rows(a))
    assert torch.equal(merged[b], expected_rows(b))
    assert rig.tower.calls == [[1, 1]]


def test_a_cached_entry_of_wrong_length_is_encoded_again() -> None:
    """Reference §9 G1: it is evicted, not served and not an error."""
    rig, shown = Rig(), image(1)
    rig.cache.put(media_key(shown, 6), torch.zeros(5, WIDTH))
    asked = request(1, shown, 1)
    assert torch.equal(rig.whole(asked, 100), expected_rows(asked))
    assert rig.tower.calls == [[1]]


def test_the_merge_writes_nothing_where_rows_do_not_fit() -> None:
    tower, asked = Tower(), request(2, image(1), 2)
    chunks = cast(Any, (Chunk(asked, 0, 10),))
    for wrong in (row_values(1)[:-1], row_values(1)[:, :-1], row_values(1).half()):
        asked.media = {0: wrong}
        into = torch.full((10, WIDTH), 7.5)
        with pytest.raises(SlotError, match="picture 0 has rows"):
            merge(into, chunks, cast(Any, tower), tower.contract)
        assert bool((into == 7.5).all())


def test_the_merge_writes_nothing_where_text_rows_have_another_dtype() -> None:
    tower, asked = Tower(), request(2, image(1), 2)
    asked.media = {0: row_values(1).bfloat16()}
    into = torch.full((10, WIDTH), 7.5, dtype=torch.bfloat16)
    with pytest.raises(SlotError, match=r"text_rows gives .* torch\.float32"):
        merge(into, cast(Any, (Chunk(asked, 0, 10),)), cast(Any, tower), tower.contract)
    assert bool((into == 7.5).all())


# -- a model's own tower -----------------------------------------------------------------------


@pytest.mark.parametrize("family", ["qwen3_vl", "llava", "idefics3"])
def test_a_real_tower_gives_each_request_the_rows_it_gets_alone(
    family: str, tiny_checkpoint: TinyCheckpoint
) -> None:
    model = load_model(tiny_checkpoint(family), dtype="float32")
    adapter, processor = model.adapter, model.image_processor
    assert processor is not None
    shown = [processor.artifact(decode_image(picture(48, 32, seed))) for seed in (1, 2)]
    alone = [adapter.media_rows([artifact])[0] for artifact in shown]
    sizes = [len(rows) for rows in alone]
    prompts = []
    for order in ((0, 1), (1, 0)):
        spans = (
            Span(0, 1, 1 + sizes[order[0]]),
            Span(1, 1 + sizes[order[0]], 1 + sum(sizes)),
        )
        ids = list(range(1 + sum(sizes)))
        prompts.append(Request(Prompt(ids, spans, tuple(shown[i] for i in order))))
    width = adapter.contract.input_embeds_hidden_size
    cache = EncoderCache(sum(sizes) * width * 4)
    encoder: Encoder[Request] = Encoder(adapter, cache, clock=lambda: 0.0)
    chunks = tuple(Chunk(asked, 0, len(asked.prompt.ids)) for asked in prompts)
    gathered = encoder.gather(BatchPlan(Phase.PREFILL, chunks))
    assert gathered.failed == ()
    for asked, order in zip(prompts, ((0, 1), (1, 0)), strict=True):
        for item, which in enumerate(order):
            torch.testing.assert_close(asked.media[item], alone[which], rtol=1e-5, atol=1e-5)
    assert (encoder.usage().encoded, cache.usage().entries) == (2, 2)
