"""One client: it asks over and over, leaves at times, and at times asks for nonsense."""

from __future__ import annotations

import asyncio
import codecs
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from random import Random
from typing import Any

import httpx2
from tools.load import impolite
from tools.load.answer import Answer, CutError, StreamedAnswer, ToldError, whole_answer
from tools.load.asked import Asked
from tools.load.bad import Bad
from tools.load.compare import Spread
from tools.load.tally import Tally, Trouble

LEAVES, BAD, SLOW = 0.10, 0.05, 0.05
_PAUSE_S, _PAUSES = 0.1, 20
_AWAY_S = 0.25


class RefusedError(Exception):
    """An answer with an error's status."""

    def __init__(self, status: int, error: Mapping[str, Any]) -> None:
        super().__init__(f"{status}: {error}")
        self.code = error.get("code")


@dataclass(frozen=True, slots=True)
class Work:
    """What all clients share.

    Attributes:
        asked: the requests, each with its lone answer.
        deadline_s: what takes longer than this counts as hung.
    """

    url: str
    asked: Sequence[tuple[Asked, Answer]]
    bad: Sequence[Bad]
    tally: Tally
    spread: Spread
    deadline_s: float


class Client:
    """Asks until it is told to stop.

    Args:
        seed: of its choices.
    """

    def __init__(self, work: Work, seed: int) -> None:
        self._work = work
        self._draw = Random(seed)

    async def run(self, go_on: Callable[[], bool]) -> None:
        """Ask, one request after another."""
        work = self._work
        async with self.connected() as http:
            while go_on():
                asked, alone = self._draw.choice(work.asked)
                kind = self._draw.random()
                if kind < BAD:
                    await self.ask_badly(http, self._draw.choice(work.bad))
                elif kind < BAD + LEAVES:
                    await self._noted(asked.kind, self._leave(http, asked))
                else:
                    await self.ask(http, asked, alone)

    def connected(self) -> httpx2.AsyncClient:
        """Its connections."""
        work = self._work
        return httpx2.AsyncClient(base_url=work.url, timeout=work.deadline_s, verify=False)

    async def ask(self, http: httpx2.AsyncClient, asked: Asked, alone: Answer) -> None:
        """One request, whose answer is compared with the one that it gets alone."""
        await self._noted(asked.kind, self._ask(http, asked, alone))

    async def ask_badly(self, http: httpx2.AsyncClient, bad: Bad) -> None:
        """One wrong request, whose error is compared with what it is to be told."""
        await self._noted(bad.kind, self._refused(http, bad))

    async def _noted(self, what: str, doing: Any) -> None:
        """Do it, and write down what became of it."""
        work, began = self._work, time.monotonic()
        kind, detail, code = "fine", "", None
        work.tally.in_flight += 1
        try:
            async with asyncio.timeout(work.deadline_s):
                fine = await doing
        except TimeoutError:
            kind, detail = "hung", f"nothing for {work.deadline_s:g} s"
        except CutError as error:
            kind, detail = "cut", str(error)
        except RefusedError as error:
            kind, detail, code = "told", str(error), error.code
        except ToldError as error:
            kind, detail, code = "told", str(error), error.error.get("code")
        except (httpx2.TransportError, OSError) as error:
            kind, detail = "broken", f"{type(error).__name__}: {error}"
        except (ValueError, KeyError, IndexError, AssertionError, TypeError) as error:
            kind, detail = "wrong", f"not in the form of an answer: {error!r}"
        else:
            if isinstance(fine, str):
                work.tally.fine[fine] += 1
            else:
                kind, detail = fine
        finally:
            work.tally.in_flight -= 1
        if kind != "fine":
            trouble = Trouble(kind, what, detail, began, time.monotonic(), code)
            work.tally.troubles.append(trouble)
            if kind in ("broken", "told"):  # do not hammer a server that is away
                await asyncio.sleep(_AWAY_S)

    async def _ask(
        self, http: httpx2.AsyncClient, asked: Asked, alone: Answer
    ) -> str | tuple[str, str]:
        began = time.monotonic()
        how = "whole"
        if self._draw.random() < 0.4:
            response = await http.post(asked.path, json=asked.body)
            _check_status(response)
            got = whole_answer(asked.path, response.json())
        else:
            how = "read slowly" if self._draw.random() < SLOW / 0.6 else "streamed"
            got = await self._streamed(http, asked, slowly=how == "read slowly")
        difference = self._work.spread.difference(alone, got)
        if difference is not None:
            return "wrong", f"{how}, {difference}"
        self._work.tally.seconds.append(time.monotonic() - began)
        self._work.tally.kinds[asked.kind] += 1
        return how

    async def _streamed(self, http: httpx2.AsyncClient, asked: Asked, *, slowly: bool) -> Answer:
        gathered = StreamedAnswer(asked.path, asked.choices)
        async with AsyncExitStack() as stack:
            if slowly:
                http = await stack.enter_async_context(impolite.small_reader(self._work.url))
            response = await stack.enter_async_context(
                http.stream("POST", asked.path, json=_in_pieces(asked, self._draw))
            )
            await _check_stream(response)
            pauses = _PAUSES if slowly else 0
            async for frame in frames(response):
                gathered.take(frame)
                if pauses:
                    pauses -= 1
                    await asyncio.sleep(self._draw.random() * _PAUSE_S)
        return gathered.answer()

    async def _leave(self, http: httpx2.AsyncClient, asked: Asked) -> str:
        """Before the body is sent, before the answer, or in the middle of it."""
        how = self._draw.randrange(3)
        if how == 0:
            await impolite.send_half(self._work.url, asked.path, json.dumps(asked.body).encode())
        elif how == 1:
            asking = asyncio.ensure_future(http.post(asked.path, json=asked.body))
            await asyncio.wait([asking], timeout=self._draw.random() * 0.3)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        else:
            stay = self._draw.randrange(1, 8)
            async with http.stream(
                "POST", asked.path, json=_in_pieces(asked, self._draw)
            ) as response:
                await _check_stream(response)
                async for _ in frames(response):
                    stay -= 1
                    if not stay:
                        break
        return "left"

    async def _refused(self, http: httpx2.AsyncClient, bad: Bad) -> str | tuple[str, str]:
        if bad.announced is not None:
            status, text = await impolite.announce(self._work.url, bad.path, bad.announced)
        else:
            headers = {"Content-Type": bad.content_type}
            response = await http.post(bad.path, content=bad.body, headers=headers)
            status, text = response.status_code, response.text
        error = json.loads(text).get("error", {})
        if status == 503:
            raise RefusedError(status, error)
        wrong = bad.wrong(status, error)
        return "refused as it should be" if wrong is None else ("not refused", wrong)


def _in_pieces(asked: Asked, draw: Random) -> dict[str, Any]:
    body = asked.body | {"stream": True}
    if "input" not in body and draw.random() < 0.7:
        body["stream_options"] = {"include_usage": True}
    return body


def _check_status(response: httpx2.Response) -> None:
    if response.status_code != 200:
        raise RefusedError(response.status_code, response.json().get("error", {}))


async def _check_stream(response: httpx2.Response) -> None:
    if response.status_code != 200:
        await response.aread()
        _check_status(response)


async def frames(response: httpx2.Response) -> AsyncIterator[str]:
    """The events of a stream, strictly UTF-8.

    Raises:
        CutError: the stream ended inside an event.
        httpx2.RemoteProtocolError: the connection did.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("strict")
    text = ""
    async for chunk in response.aiter_bytes():
        text += decoder.decode(chunk)
        while (end := text.find("\n\n")) >= 0:
            yield text[:end]
            text = text[end + 2 :]
    if text or decoder.decode(b"", final=True):
        raise CutError(f"the stream ended inside an event: {text[:200]!r}")
