"""Tests against a real API server, controller manager and scheduler with hollow nodes. No root is needed."""

from __future__ import annotations

import pytest
from tests.rack.fixtures import (  # noqa: F401  (fixtures and hooks)
    make_rack,
    namespace,
    prepare,
    pytest_runtest_makereport,
    shared_rack,
)

rack = shared_rack(domains=2, nodes=18, gpus=4)


def pytest_collection_finish(session: pytest.Session) -> None:
    wanted = any(item.get_closest_marker("cluster") for item in session.items)
    if wanted and not session.config.option.collectonly:
        prepare(session.config, real_nodes=False)
