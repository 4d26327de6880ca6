"""Pytest fixtures around racks. `tests/cluster` and `tests/e2e` import them in their conftest.py.

    rack           one rack for the whole session, which tests share and must not break
    namespace      a namespace of its own for each test
    make_rack      racks of a test's own, to break: `make_rack(domains=3, nodes=2)`

A machine that cannot hold a rack skips these tests with the reason; under CI=true that is a failure. A
failed test prints nodes, pods, events and logs of its racks.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.rack import Rack, binaries, host, images, rack
from tests.rack.images import Image

SHARED = "rack"
LIVE_RACKS = pytest.StashKey[list[Rack]]()

MakeRack = Callable[..., Rack]


def unable(reason: str) -> None:
    """Skip with the reason; under CI fail with it, so that a green run has run everything."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI must not skip: {reason}", pytrace=False)
    pytest.skip(reason)


def prepare(config: pytest.Config, *, real_nodes: bool) -> None:
    """Install and build what is missing, visibly and outside any test's time limit."""
    capture = config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        if host.problem(real_nodes=real_nodes) is None:
            host.prepare(real_nodes=real_nodes)
            binaries.ensure()
            if real_nodes:
                images.base()


def shared_rack(with_images: Callable[[], list[Image]] = list, **spec: Any) -> Callable[..., Iterator[Rack]]:
    """The `rack` fixture of a folder of tests: session-wide, of the given size, with these images."""

    @pytest.fixture(scope="session", name=SHARED)
    def fixture(request: pytest.FixtureRequest) -> Iterator[Rack]:
        trouble = host.problem(real_nodes=bool(spec.get("real")))
        if trouble:
            unable(trouble)
        with rack(images=with_images(), **spec) as found:
            yield found

    return fixture


@pytest.fixture
def namespace(rack: Rack, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of the shared rack for one test: named after it, deleted afterwards."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")[:40].strip("-")
    name = rack.namespace(f"{words}-{uuid.uuid4().hex[:6]}")
    yield name
    rack.core.delete_namespace(name)


@pytest.fixture
def make_rack(request: pytest.FixtureRequest) -> Iterator[MakeRack]:
    """Racks of the test's own."""
    with ExitStack() as stack:

        def make(**spec: Any) -> Rack:
            trouble = host.problem(real_nodes=bool(spec.get("real")))
            if trouble:
                unable(trouble)
            found = stack.enter_context(rack(**spec))
            request.node.stash.setdefault(LIVE_RACKS, []).append(found)
            return found

        yield make


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    report = yield
    if report.when == "call" and report.failed:
        racks = list(item.stash.get(LIVE_RACKS, []))
        arguments = getattr(item, "funcargs", {})
        if isinstance(arguments.get(SHARED), Rack):
            racks.append(arguments[SHARED])
        for found in racks:
            state = found.describe(arguments.get("namespace"))
            report.sections.append((f"rack {found.claim.number}", state))
    return report
