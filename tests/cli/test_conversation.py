"""A conversation in the terminal keeps its turns, its attachments and its temper."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from tests.cli.fake_model import FakeModel

from firstlight.cli.conversation import Conversation
from firstlight.cli.main import main
from firstlight.cli.media_options import PictureWish
from firstlight.cli.session import Message
from firstlight.core.output import Completion
from firstlight.core.sampling_params import SamplingParams
from firstlight.errors import MediaError


class Talk:
    """A conversation with what it wrote and noted."""

    def __init__(self, model: FakeModel) -> None:
        self.model = model
        self.written: list[str] = []
        self.noted: list[str] = []
        self.conversation = Conversation(
            model, SamplingParams(), write=self.written.append, note=self.noted.append
        )

    def say(self, *lines: str) -> bool:
        return all([self.conversation.take(line) for line in lines])


@pytest.fixture
def picture(tmp_path: Path) -> str:
    path = tmp_path / "a.png"
    path.touch()
    return str(path)


def test_an_answer_is_streamed_and_followed_by_its_timing() -> None:
    talk = Talk(FakeModel("blue"))
    talk.say("which colour?")
    assert talk.written == ["bl", "ue", "\n"]
    assert talk.noted[-1].startswith("first token")


def test_pictures_are_asked_for_as_they_were_typed(picture: str) -> None:
    model = FakeModel("blue")
    wish = PictureWish("low", {"max_pixels": 4096})
    talk = Conversation(model, SamplingParams(), write=print, note=print, wish=wish, fetches=True)
    assert talk.take("/image https://example.org/a.png")
    assert talk.take(f"{picture} which colour?")
    url = {"type": "image", "image": "https://example.org/a.png", "detail": "low"}
    path = {"type": "image", "image": picture, "detail": "low"}
    text = {"type": "text", "text": "which colour?"}
    assert model.asked[0][-1]["content"] == [url, path, text]
    assert model.kwargs == [{"max_pixels": 4096}]


def test_earlier_turns_are_sent_again() -> None:
    talk = Talk(FakeModel("one", "two"))
    talk.say("first", "second")
    roles = [(turn["role"], turn["content"]) for turn in talk.model.asked[1]]
    assert roles[1] == ("assistant", "one")
    assert [role for role, _ in roles] == ["user", "assistant", "user"]


@pytest.mark.parametrize("attach", ["/image {}", "{}", "/image '{}'"])
def test_a_picture_waits_for_the_next_question_and_goes_with_it_once(
    picture: str, attach: str
) -> None:
    talk = Talk(FakeModel("one", "two"))
    talk.say(attach.format(picture), "what is it?", "and why?")
    image = {"type": "image", "image": picture}
    assert talk.model.asked[0][0]["content"] == [image, {"type": "text", "text": "what is it?"}]
    assert talk.model.asked[1][2]["content"] == [{"type": "text", "text": "and why?"}]


def test_a_picture_within_the_question_is_attached_to_it(picture: str) -> None:
    talk = Talk(FakeModel("one"))
    talk.say(f"{picture} what is it?")
    assert talk.model.asked[0][0]["content"] == [
        {"type": "image", "image": picture},
        {"type": "text", "text": "what is it?"},
    ]


def test_reset_forgets_turns_and_pictures(picture: str) -> None:
    talk = Talk(FakeModel("one", "two"))
    talk.say("first", picture, "/reset", "second")
    assert talk.model.asked[1] == [
        {"role": "user", "content": [{"type": "text", "text": "second"}]}
    ]


def test_reset_keeps_the_system_message(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = FakeModel("one", "two")
    monkeypatch.setattr("sys.stdin", io.StringIO("first\n/reset\nsecond\n"))
    assert main(["chat", "--system", "be brief"], open_model=model.open) == 0
    roles = [[turn["role"] for turn in asked] for asked in model.asked]
    assert roles == [["system", "user"]] * 2
    assert model.asked[1][0]["content"] == "be brief"


def test_an_error_that_nobody_foresaw_is_told_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("one?\ntwo?\n"))
    model = FakeModel(ZeroDivisionError("by zero"), "2")
    assert main(["chat"], open_model=model.open) == 0
    out, err = capsys.readouterr()
    assert out == "2\n"
    assert "error: ZeroDivisionError: by zero" in err
    assert [len(asked) for asked in model.asked] == [1, 1]


def test_debug_ends_a_conversation_with_such_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("one?\n"))
    with pytest.raises(ZeroDivisionError):
        main(["chat", "--debug"], open_model=FakeModel(ZeroDivisionError("by zero")).open)


def test_bytes_that_are_no_text_fail_their_question_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    typed = io.TextIOWrapper(io.BytesIO(b"one?\n\xff\xfe hi\ntwo?\n"), encoding="utf-8")
    monkeypatch.setattr("sys.stdin", typed)
    assert main(["chat"], open_model=FakeModel("1", "2").open) == 0
    out, err = capsys.readouterr()
    assert out == "1\n2\n"
    assert "error: the question is not valid Unicode" in err


def test_a_video_waits_for_the_next_question_and_goes_with_it_once(tmp_path: Path) -> None:
    talk = Talk(FakeModel("one", "two"))
    (tmp_path / "a.mp4").touch()
    talk.say(f"/video {tmp_path / 'a.mp4'}", "what happens?", "and why?")
    video = {"type": "video", "video": str(tmp_path / "a.mp4")}
    assert talk.model.asked[0][0]["content"] == [video, {"type": "text", "text": "what happens?"}]
    assert talk.model.asked[1][2]["content"] == [{"type": "text", "text": "and why?"}]


def test_a_video_that_is_not_there_is_told_as_one() -> None:
    talk = Talk(FakeModel())
    assert talk.say("/video none.mp4", "/video")
    assert talk.noted == ["error: there is no video none.mp4", "/video takes the path of a video"]


def test_image_without_a_path_says_what_it_takes() -> None:
    talk = Talk(FakeModel())
    assert talk.say("/image")
    assert talk.noted == ["/image takes the path of a picture"]


def test_a_question_that_fails_is_told_and_left_out_of_the_conversation() -> None:
    talk = Talk(FakeModel("one", MediaError("cannot read it"), "three"))
    assert talk.say("first", "second", "third")
    assert "error: cannot read it" in talk.noted
    texts = [turn["content"] for turn in talk.model.asked[2] if turn["role"] == "user"]
    assert texts == [[{"type": "text", "text": t}] for t in ("first", "third")]


@pytest.mark.parametrize("line", ["/image no/such.png", "/image", "/frob"])
def test_a_mistake_is_told_and_asks_the_model_nothing(line: str) -> None:
    talk = Talk(FakeModel())
    assert talk.say(line)
    assert len(talk.noted) == 1
    assert talk.model.asked == []


@pytest.mark.parametrize("line", ["/exit", "/quit"])
def test_exit_ends_it(line: str) -> None:
    assert not Talk(FakeModel()).say(line)


def test_an_interrupt_stops_the_answer_and_keeps_what_was_said() -> None:
    class Interrupted(FakeModel):
        def stream_chat(
            self,
            messages: Sequence[Message],
            sampling_params: SamplingParams,
            *,
            mm_processor_kwargs: Mapping[str, object] | None = None,
        ) -> Iterator[str | Completion]:
            yield "half an"
            raise KeyboardInterrupt

    talk = Talk(Interrupted())
    assert talk.say("tell me")
    assert talk.conversation.messages[-1] == {"role": "assistant", "content": "half an"}
    assert talk.noted == ["stopped"]


def test_lines_from_a_pipe_are_answered_until_it_ends(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("one?\n\ntwo?\n"))
    assert main(["chat"], open_model=FakeModel("1", "2").open) == 0
    assert capsys.readouterr().out == "1\n2\n"
