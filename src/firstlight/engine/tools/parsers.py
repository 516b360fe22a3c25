"""How the families write calls, and readers of each."""

from __future__ import annotations

from typing import Final

from firstlight.engine.tools.pieces import (
    Arguments,
    CallBegin,
    Content,
    Piece,
    beginning_of,
)
from firstlight.engine.tools.scanner import CallScanner

_SEPARATORS: Final = " \t\n\r,;"


class CallReader:
    """What the readers share: content, calls, and text held back until it is clear what it is.

    Blanks between content and a call, and between calls, belong to neither. What looked like a call
    and is none is content, as it stands.

    Args:
        several: whether there may be more than one call; if not, all behind the first is dropped.
    """

    def __init__(self, several: bool = True) -> None:
        self._several = several
        self._over = False
        self._buffer = ""
        self._final = False
        self._pieces: list[Piece] = []
        self._blanks = ""
        self._calls = 0
        self._scanner: CallScanner | None = None
        self._prefix = ""  # what stood before the scanner's text
        self._sent: int | None = None  # characters of the arguments, None before the name

    def push(self, text: str) -> list[Piece]:
        """What is certain with this text."""
        self._buffer = "" if self._over else self._buffer + text
        return self._drain()

    def finish(self) -> list[Piece]:
        """What is left; no more text will come."""
        self._final = True
        pieces = self._drain()
        if self._scanner is not None:
            self._give_up()
            pieces += self._taken()
        if self._buffer or (self._blanks and not self._calls):
            self._content(self._buffer, keep_blanks=not self._calls)
            pieces += self._taken()
        return pieces

    def _drain(self) -> list[Piece]:
        while self._call() if self._scanner is not None else self._between():
            pass
        return self._taken()

    def _taken(self) -> list[Piece]:
        pieces, self._pieces = self._pieces, []
        return pieces

    def _between(self) -> bool:
        """One step outside of calls; whether there is more to do."""
        raise NotImplementedError

    def _content(self, text: str, *, keep_blanks: bool = False) -> None:
        text = self._blanks + text
        kept = text if keep_blanks else text.rstrip()
        self._blanks = text[len(kept) :]
        if kept:
            self._pieces.append(Content(kept))

    def _begin(self, prefix: str = "", name: str | None = None) -> None:
        self._scanner, self._prefix, self._sent = CallScanner(name), prefix, None

    def _call(self) -> bool:
        scanner = self._scanner
        assert scanner is not None
        self._buffer = self._buffer[scanner.push(self._buffer) :]
        if scanner.name is not None and self._sent is None and not scanner.broken:
            self._pieces.append(CallBegin(self._calls, scanner.name))
            self._sent, self._blanks = 0, ""
            self._calls += 1
        if self._sent is not None and len(scanner.arguments) > self._sent:
            new = scanner.arguments[self._sent :]
            self._pieces.append(Arguments(self._calls - 1, new))
            self._sent += len(new)
        if scanner.broken or (scanner.done and self._sent is None):
            self._give_up()
            return True
        if scanner.done:
            if not scanner.arguments:  # a function without any may be called without them
                self._pieces.append(Arguments(self._calls - 1, "{}"))
            self._scanner = None
            if not self._several:
                self._over, self._buffer = True, ""
        return scanner.done and bool(self._buffer)

    def _give_up(self) -> None:
        scanner, self._scanner = self._scanner, None
        assert scanner is not None
        if self._sent is None:
            self._content(self._prefix + scanner.raw)

    def _until(self, marker: str) -> bool:
        """Pass content on up to a marker, which is dropped; whether it was there."""
        at = self._buffer.find(marker)
        if at >= 0:
            self._content(self._buffer[:at])
            self._buffer = self._buffer[at + len(marker) :]
            return True
        held = 0 if self._final else beginning_of(marker, self._buffer)
        cut = len(self._buffer) - held
        self._content(self._buffer[:cut])
        self._buffer = self._buffer[cut:]
        return False


class HermesReader(CallReader):
    """``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``, as Hermes and Qwen write it."""

    BEGIN: Final = "<tool_call>"
    END: Final = "</tool_call>"

    def __init__(self, several: bool = True) -> None:
        super().__init__(several)
        self._after = False

    def _between(self) -> bool:
        if self._after:
            rest = self._buffer.lstrip()
            if not self._final and (not rest or self.END.startswith(rest)) and rest != self.END:
                return False
            self._after = False
            self._buffer = rest.removeprefix(self.END)
        if not self._until(self.BEGIN):
            return False
        self._begin(self.BEGIN)
        self._after = True
        return True

    def _give_up(self) -> None:
        super()._give_up()
        self._after = False


class LlamaReader(CallReader):
    """``{"name": ..., "parameters": {...}}`` as the whole answer, several behind one another."""

    TAG: Final = "<|python_tag|>"

    def __init__(self, several: bool = True) -> None:
        super().__init__(several)
        self._plain = False

    def _between(self) -> bool:
        if self._plain:
            self._content(self._buffer)
            self._buffer = ""
            return False
        separators = _SEPARATORS if self._calls else _SEPARATORS[:4]
        rest = self._buffer.lstrip(separators)
        if not self._final and self.TAG.startswith(rest) and rest != self.TAG:
            return False
        if rest.removeprefix(self.TAG).lstrip().startswith("{"):
            self._buffer = rest.removeprefix(self.TAG).lstrip()
            self._begin()
            return True
        if rest == self.TAG and not self._final:
            return False
        self._plain = bool(self._buffer)
        return self._plain

    def _give_up(self) -> None:
        super()._give_up()
        self._plain = True


class MistralReader(CallReader):
    """``[TOOL_CALLS]`` and a list of ``{"name": ..., "arguments": {...}}``; or, of newer models,
    ``[TOOL_CALLS]name[ARGS]{...}`` for each call."""

    BEGIN: Final = "[TOOL_CALLS]"
    ARGUMENTS: Final = "[ARGS]"
    CALL_ID: Final = "[CALL_ID]"

    def __init__(self, several: bool = True) -> None:
        super().__init__(several)
        self._inside = self._listed = False
        self._passed = ""  # read since the last call; content, if no call comes

    def _between(self) -> bool:
        if not self._inside:
            self._inside = self._until(self.BEGIN)
            self._passed = self.BEGIN
            return self._inside
        rest = self._buffer.lstrip(_SEPARATORS)
        self._pass(len(self._buffer) - len(rest))
        if not self._buffer:
            if self._final:
                self._leave()
            return False
        if self._listed:
            return self._next_of_list()
        if self._buffer.startswith("["):
            return self._open_list()
        if self._buffer.startswith("{"):
            self._begin()
            return True
        return self._named()

    def _pass(self, n: int) -> None:
        self._passed += self._buffer[:n]
        self._buffer = self._buffer[n:]

    def _leave(self) -> None:
        """Where no call came, all that was passed over is text."""
        if not self._calls:
            self._content(self._passed)
        self._inside = self._listed = False

    def _begin(self, prefix: str = "", name: str | None = None) -> None:
        super()._begin(self._passed + prefix, name)
        self._passed = ""

    def _open_list(self) -> bool:
        for marker in (self.BEGIN, self.ARGUMENTS, self.CALL_ID):
            if marker.startswith(self._buffer) and marker != self._buffer and not self._final:
                return False
        if self._buffer.startswith(self.BEGIN):
            self._pass(len(self.BEGIN))
        else:
            self._listed = True
            self._pass(1)
        return True

    def _next_of_list(self) -> bool:
        if self._buffer.startswith("{"):
            self._begin()
        else:
            self._pass(int(self._buffer.startswith("]")))
            self._leave()
        return True

    def _named(self) -> bool:
        """A function's name is what stands before its arguments."""
        at = self._buffer.find("{")
        if at < 0:
            if self._final:
                self._content(self._passed)
            return False
        head, self._buffer = self._buffer[:at], self._buffer[at:]
        name = head.split(self.ARGUMENTS)[0].split(self.CALL_ID)[0].strip()
        self._begin(head, name)
        return True

    def _give_up(self) -> None:
        super()._give_up()
        self._inside = self._listed = False
