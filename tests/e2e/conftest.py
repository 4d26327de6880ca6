"""Tests with real kubelets and containers. They need root, and install the Debian packages they miss."""

from __future__ import annotations

import pytest
from tests.rack import images
from tests.rack.fixtures import (  # noqa: F401  (fixtures and hooks)
    make_rack,
    namespace,
    prepare,
    pytest_runtest_makereport,
    shared_rack,
)

rack = shared_rack(lambda: [images.base()], domains=2, nodes=18, gpus=4, real={0: 1, 1: 1})


def pytest_collection_finish(session: pytest.Session) -> None:
    wanted = any(item.get_closest_marker("e2e") for item in session.items)
    if wanted and not session.config.option.collectonly:
        prepare(session.config, real_nodes=True)
