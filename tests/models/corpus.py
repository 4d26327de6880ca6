"""The text the demo model learns from: the six novels of Jane Austen (1811-1818, public domain), as
Debian's package `r-cran-janeaustenr` ships them. Reads the package's files, no R needed.

    Rdata.rdb   = record, record, ...        one per novel
    record      = 4 bytes big-endian size + a zlib stream of that many bytes
    stream      = R's XDR serialization of a character vector, one string per printed line

R's format: "R Internals", section "Serialization Formats" (version 3).
"""

from __future__ import annotations

import re
import struct
import subprocess
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "r-cran-janeaustenr"
VERSION = "1.0.0-1"
DATA = Path("usr/lib/R/site-library/janeaustenr/data/Rdata.rdb")

HELD_OUT_EVERY = 20
"""One chapter in so many is kept from training (about 5 % of the text)."""

_STRSXP, _CHARSXP = 16, 9
_CHAPTER = re.compile(r"\s*chapter\s+[0-9ivxl]+\.?\s*", re.IGNORECASE)
_NOT_PROSE = re.compile(
    r"\s*(volume\s+[ivx]+|finis\.?|the end\.?|[\s*]+|\[.*\]|\[end volume.*)\s*", re.IGNORECASE
)
_EDITORS_NOTE = "A NOTE ON THE TEXT"


@dataclass(frozen=True)
class Chapter:
    """A chapter as paragraphs, each one line of text. `number` counts through the novel from 1."""

    novel: str
    number: int
    paragraphs: tuple[str, ...]

    @property
    def text(self) -> str:
        return "\n\n".join(self.paragraphs)


@dataclass(frozen=True)
class Corpus:
    training: tuple[Chapter, ...]
    held_out: tuple[Chapter, ...]


def read_corpus(deb: Path | None = None) -> Corpus:
    """Chapters of all novels, split. Downloads the package with apt when no `.deb` is given.

    Raises ValueError when the package's data is not in the expected format.
    """
    with tempfile.TemporaryDirectory(prefix="afd-corpus-") as scratch:
        if deb is None:
            subprocess.run(["apt-get", "download", "-q", f"{PACKAGE}={VERSION}"], cwd=scratch, check=True)
            deb = next(Path(scratch).glob("*.deb"))
        subprocess.run(["dpkg-deb", "-x", str(deb), scratch], check=True)
        archive = (Path(scratch) / DATA).read_bytes()
    chapters = [chapter for lines in _novels(archive) for chapter in split_chapters(lines)]
    return Corpus(
        training=tuple(c for c in chapters if not is_held_out(c)),
        held_out=tuple(c for c in chapters if is_held_out(c)),
    )


def is_held_out(chapter: Chapter) -> bool:
    return chapter.number % HELD_OUT_EVERY == HELD_OUT_EVERY // 2


def split_chapters(lines: list[str]) -> Iterator[Chapter]:
    """Chapters of one novel from its printed lines; the first line is the title, what precedes the
    first chapter and what an editor added after the last one is left out."""
    novel, chapters, paragraph = lines[0].strip().title(), [], list[str]()
    current: list[str] | None = None
    for line in (*lines, ""):
        if line.strip() == _EDITORS_NOTE:
            break
        if _CHAPTER.fullmatch(line):
            current = []
            chapters.append(current)
        elif line.strip() and not _NOT_PROSE.fullmatch(line):
            paragraph.append(line)
            continue
        if current is not None and paragraph:
            current.append(plain(" ".join(paragraph)))
        paragraph = []
    for number, paragraphs in enumerate(chapters, start=1):
        yield Chapter(novel, number, tuple(paragraphs))


def plain(text: str) -> str:
    """One line without the marks of plain-text typesetting: _italics_, double hyphens, wide gaps."""
    return re.sub(r"\s+", " ", text.replace("_", "").replace("--", "—")).strip()


def _novels(archive: bytes) -> Iterator[list[str]]:
    while archive:
        stream = zlib.decompressobj()
        record = stream.decompress(archive[4:])
        archive = stream.unused_data
        if len(record) < 14 or record[:2] != b"X\n":
            raise ValueError(f"{PACKAGE}: a record of {DATA.name} is not R's XDR serialization")
        yield _character_vector(record)


def _character_vector(record: bytes) -> list[str]:
    (encoding_bytes,) = struct.unpack_from(">i", record, 14)
    at = 18 + encoding_bytes
    kind, count = struct.unpack_from(">Ii", record, at)
    if kind & 0xFF != _STRSXP:
        raise ValueError(f"{PACKAGE}: expected a character vector in {DATA.name}, got R type {kind & 0xFF}")
    at += 8
    strings = []
    for _ in range(count):
        kind, size = struct.unpack_from(">Ii", record, at)
        if kind & 0xFF != _CHARSXP or size < 0:
            raise ValueError(f"{PACKAGE}: expected a string in {DATA.name}, got R type {kind & 0xFF}")
        strings.append(record[at + 8 : at + 8 + size].decode())
        at += 8 + size
    return strings
