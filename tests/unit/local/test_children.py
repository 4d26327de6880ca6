"""Children that do not live: started again, and given up while the unit has never served."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from afd_runtime.local.children import GIVE_UP_AFTER, ChildFailedError, Children
from afd_runtime.local.layout import Process

ROOT = Path(__file__).resolve().parents[3]
ENVIRONMENT = {"PYTHONPATH": f"{ROOT}/operator:{ROOT}/runtime"}


async def checked_for_ever(children: Children) -> None:
    while True:
        children.check()
        await asyncio.sleep(0.02)


async def test_a_process_that_cannot_start_is_given_up_by_name() -> None:
    children = Children([Process("gateway", ("no-such-command",), ENVIRONMENT)])
    children.start()
    try:
        with pytest.raises(ChildFailedError, match=f"gateway ended {GIVE_UP_AFTER} times"):
            await checked_for_ever(children)
    finally:
        await children.end()
