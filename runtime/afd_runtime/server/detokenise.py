"""Tokens -> text, piece by piece, and never half a character.

A token may end inside a UTF-8 character; decoding it then yields U+FFFD where the character will be.
Text is settled once nothing to come can change it: all but the last three U+FFFD at its very end,
because an unfinished character has at most three bytes and each reads as one U+FFFD.

    tokens   [ .. | clean ..... read ]       only this window is decoded again, not the whole answer
    text            known ... settled ?

`clean` is the last token border that was also a character border. The window starts one such border
back, so that a decoder that treats its first token differently (a leading space) does so equally in
both decodings that are compared.
"""

from __future__ import annotations

from collections.abc import Callable

UNFINISHED = "�"
MOST_UNFINISHED = 3


class Detokeniser:
    def __init__(self, decode: Callable[[list[int]], str]) -> None:
        self._decode = decode
        self._window: list[int] = []
        self._told = 0
        """Characters of the window's text that were given out."""

    def push(self, tokens: list[int]) -> str:
        """The text that these tokens settle."""
        before = len(self._window)
        self._window += tokens
        text = self._decode(self._window)
        settled = len(text)
        while settled and text[settled - 1] == UNFINISHED and len(text) - settled < MOST_UNFINISHED:
            settled -= 1
        piece = text[self._told : settled]
        self._told = max(self._told, settled)
        if settled == len(text) and before:
            self._slide(before)
        return piece

    def _slide(self, border: int) -> None:
        """Forget what is before `border`, if the text is clean there as well."""
        rest = self._window[border:]
        if not rest:
            return
        kept = self._decode(rest)
        if kept and not kept.startswith(UNFINISHED):
            self._window, self._told = rest, len(kept)

    def finish(self) -> str:
        """What was held back: no more tokens will come."""
        piece = self._decode(self._window)[self._told :]
        self._window, self._told = [], 0
        return piece
