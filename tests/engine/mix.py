"""Random mixes of requests, and what each of them gets alone in transformers.

A catalogue holds questions with transformers' own answers, which are made once. A mix draws
requests from it: who comes before which step, how long the answer may get, and who leaves early.
However they meet in the engine, every request must get the catalogue's ids.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image

from firstlight import LLM, SamplingParams
from firstlight.core.output import FinishReason
from firstlight.engine.sequence import Sequence as Request
from tests.cases.steps import letters
from tests.oracle import Reference, oracle_generate
from tests.pictures import picture

HEADS = (15, 16, 17, 33, 127, 128, 129, 300)
"""Tokens of the beginnings that questions share: around the ends of pages of 16 and of 128."""

SIZES = ((48, 32), (64, 48), (32, 96), (96, 64))
"""Width and height of the catalogue's pictures; the first size comes twice, with other pixels."""


AS_IN_TEMPLATES = {"<|image_pad|>": "<|vision_start|><|image_pad|><|vision_end|>"}
"""Placeholders that templates write with neighbours; without them transformers takes two pictures
side by side for one."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How large a catalogue is.

    Attributes:
        questions: at least, twins not counted.
        longest: tokens of a prompt at most.
        answer: tokens of an ordinary answer at most.
        long_answers: short questions whose answers may get ``long_answer`` tokens, so that running
            requests outgrow the pages that they were admitted with.
    """

    questions: int
    longest: int
    answer: int
    long_answers: int
    long_answer: int


SMALL = Scale(questions=9, longest=170, answer=10, long_answers=3, long_answer=48)
FULL = Scale(questions=36, longest=900, answer=24, long_answers=8, long_answer=280)


@dataclass(frozen=True, slots=True)
class Question:
    """A raw prompt, in which the model's placeholder stands for each picture."""

    text: str
    images: tuple[Image.Image, ...] = ()
    answer: int = 1
    """Tokens that transformers is asked for."""


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Questions of one model with transformers' answers."""

    path: Path
    questions: tuple[Question, ...]
    answers: tuple[Reference, ...]

    def request(self, llm: LLM, index: int, tokens: int) -> Request:
        """A new request for question ``index``: greedy, exactly ``tokens`` tokens."""
        question = self.questions[index]
        params = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)
        return llm.parts.admission.text(question.text, question.images, params)


def build_catalogue(llm: LLM, path: Path, scale: Scale, seed: int = 0) -> Catalogue:
    """Ask transformers all questions, one after another.

    Args:
        llm: any engine over ``path``; it turns texts into ids and nothing else.
    """
    questions = tuple(_questions(llm, scale, random.Random(seed)))
    answers = []
    for question in questions:
        params = SamplingParams(temperature=0, max_tokens=1)
        ids = llm.parts.admission.text(question.text, question.images, params).prompt.ids
        answers.append(oracle_generate(path, ids, question.images, question.answer))
    return Catalogue(path, questions, tuple(answers))


def _questions(llm: LLM, scale: Scale, rng: random.Random) -> list[Question]:
    """Texts of all lengths; pictures alone, repeated and side by side; twins; shared beginnings."""
    placeholder = llm.parts.model.adapter.placeholder
    mark = AS_IN_TEMPLATES.get(placeholder, placeholder)
    heads = [letters(n, seed=n) for n in HEADS if n < scale.longest]
    album = [picture(*SIZES[0], seed=1), *(picture(*s, seed=i) for i, s in enumerate(SIZES, 2))]
    lengths = [1, 2, scale.longest]
    lengths += [int(scale.longest ** rng.uniform(0.3, 1)) for _ in range(scale.questions - 3)]
    questions: list[Question] = []
    for i, length in enumerate(lengths):
        shown = rng.choices(album, k=rng.randint(1, 3)) if mark and i > 2 and i % 3 else []
        head = rng.choice(heads) if rng.random() < 0.6 else ""
        length -= sum(_places(llm, mark, image) for image in shown)
        text = (head + letters(max(length - len(head), 0), seed=i))[: max(length, 1)]
        questions.append(Question(_insert(text, mark, len(shown), rng), tuple(shown)))
    questions += [twin for q in questions if q.images for twin in _twins(q, album, mark, rng)]
    long = [
        Question(letters(5 + 11 * i, seed=100 + i), answer=scale.long_answer)
        for i in range(scale.long_answers)
    ]
    return [Question(q.text, q.images, scale.answer) for q in questions] + long


def _places(llm: LLM, mark: str, image: Image.Image) -> int:
    """Tokens that the picture's placeholder expands to."""
    return len(llm.parts.admission.text(mark, [image], SamplingParams()).prompt.ids)


def _insert(text: str, mark: str, times: int, rng: random.Random) -> str:
    """``text`` with placeholders at random places."""
    cuts = sorted(rng.randint(0, len(text)) for _ in range(times))
    parts = [text[a:b] for a, b in itertools.pairwise([0, *cuts, len(text)])]
    return mark.join(parts)


def _twins(
    question: Question, album: list[Image.Image], mark: str, rng: random.Random
) -> list[Question]:
    """What a cache could take for the question: other pixels, pictures swapped, another ending."""
    first, *others = question.images
    same_size = [p for p in album if p.size == first.size and p is not first]
    kinds = [Question(question.text + letters(3, seed=7), question.images)]
    if same_size:
        kinds.append(Question(question.text, (same_size[0], *others)))
    if others and others[-1] is not first:
        # Places of different pictures differ in number: the text moves along.
        kinds.append(Question(question.text, (*reversed(others), first)))
    return [rng.choice(kinds)]


@dataclass(frozen=True, slots=True)
class Visit:
    """One request of a mix.

    Attributes:
        question: index in the catalogue.
        arrival: step before which it is added.
        tokens: of its answer.
        leaves: step before which its caller goes away; None for one that stays.
    """

    question: int
    arrival: int
    tokens: int
    leaves: int | None = None


def random_mix(
    catalogue: Catalogue, seed: int, requests: int = 40, growing: float = 0.0
) -> list[Visit]:
    """Requests in bursts and at random steps, every sixth or so aborted on its way.

    The longest prompt comes first and again last; two with long answers leave for certain.

    Args:
        growing: how many of them, beside chance, get one of the longest answers.
    """
    rng = random.Random(seed)
    most = max(question.answer for question in catalogue.questions)
    long = [i for i, question in enumerate(catalogue.questions) if question.answer == most]
    visits, step = [], 0
    for _ in range(requests):
        if rng.random() < 0.4:
            step += rng.randint(1, 6)
        grows = rng.random() < growing
        question = rng.choice(long) if grows else rng.randrange(len(catalogue.questions))
        longest = len(catalogue.answers[question].greedy_ids)
        tokens = rng.randint(1, longest) if not grows and rng.random() < 0.5 else longest
        leaves = step + rng.randint(0, 30) if rng.random() < 0.16 else None
        visits.append(Visit(question, step, tokens, leaves))
    prompts = [len(answer.prompt_ids) for answer in catalogue.answers]
    longest = prompts.index(max(prompts))
    for i in (0, -1):
        visits[i] = Visit(longest, visits[i].arrival, 1)
    for i, after in ((requests // 3, 0), (requests // 2, 4)):
        arrival = visits[i].arrival
        visits[i] = Visit(rng.choice(long), arrival, most // 2, arrival + after)
    return visits


@dataclass(slots=True)
class Played:
    """What became of a mix: the requests in its order, and those that were aborted in time."""

    requests: list[Request] = field(default_factory=list)
    aborted: set[int] = field(default_factory=set)


def play(
    llm: LLM,
    catalogue: Catalogue,
    mix: Sequence[Visit],
    after_step: Callable[[Played], None] = lambda played: None,
) -> Played:
    """Run a mix to its end through :class:`~firstlight.engine.engine.Engine`'s own methods."""
    engine = llm.parts.engine
    played = Played([catalogue.request(llm, v.question, v.tokens) for v in mix])
    pending = list(zip(mix, played.requests, strict=True))
    for step in itertools.count():
        for visit, request in pending:
            if visit.arrival == step:
                engine.add(request)
        for i, (visit, request) in enumerate(pending):
            if visit.leaves == step and request.finish is None:
                engine.abort(request)
                played.aborted.add(i)
        busy = engine.step()
        after_step(played)
        last = max(max(v.arrival, v.leaves or 0) for v in mix)
        if not busy and step >= last:
            return played
    raise AssertionError("unreachable")


def assert_answers(catalogue: Catalogue, mix: Sequence[Visit], played: Played) -> None:
    """Every request has the catalogue's ids, up to the first step that transformers leaves unclear.

    Those that were aborted have a beginning of them.
    """
    compared = total = 0
    for i, (visit, request) in enumerate(zip(mix, played.requests, strict=True)):
        expected = catalogue.answers[visit.question]
        assert request.error is None, request.error
        if i not in played.aborted:
            assert request.finish is FinishReason.LENGTH
            assert len(request.output_ids) == visit.tokens
        n = min(len(request.output_ids), expected.decided())
        same = tuple(request.output_ids[:n]) == expected.greedy_ids[:n]
        assert same, (
            f"request {i}, question {visit.question}: {request.output_ids[:n]} "
            f"is not {list(expected.greedy_ids[:n])}"
        )
        compared += n
        total += len(request.output_ids)
    assert compared > 0.8 * total, f"only {compared} of {total} steps are clear; choose a new seed"
    assert played.aborted, "nobody left; choose another seed"
