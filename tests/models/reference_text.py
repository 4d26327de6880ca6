"""Writes what tests compare the demo model with, so that they need no Debian package:
`python -m tests.models.reference_text` -> tests/models/data/.

- held_out.txt: two chapters that the model has not seen
- words.txt: every word of the novels, in lower case, one a line
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.models.corpus import Chapter, Corpus, read_corpus

DATA = Path(__file__).parent / "data"
SAMPLE = (("Persuasion", 10), ("Pride And Prejudice", 50))

_WORD = re.compile(r"[a-z]+(?:'[a-z]+)?")


def words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def held_out_sample(corpus: Corpus) -> str:
    chapters: dict[tuple[str, int], Chapter] = {(c.novel, c.number): c for c in corpus.held_out}
    return "\n\n".join(chapters[key].text for key in SAMPLE) + "\n"


def main() -> None:
    deb = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    corpus = read_corpus(deb)
    known = {word for c in (*corpus.training, *corpus.held_out) for word in words(c.text)}
    DATA.mkdir(exist_ok=True)
    (DATA / "held_out.txt").write_text(held_out_sample(corpus), encoding="utf-8")
    (DATA / "words.txt").write_text("\n".join(sorted(known)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
