"""Each rule has two judges, CEL at the API server and Python in the operator. They agree on every object."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import celpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from tests.unit.api.specs import BAD, FULL, GOOD, MINIMAL, WORKLOAD, patched, scaling

from afd_operator.api.base import ApiModel
from afd_operator.api.placement import Requirement
from afd_operator.api.pod_template import (
    RESERVED_MOUNTS,
    EnvVar,
    Resources,
    TemplateMetadata,
    TemplateSpec,
    Toleration,
    Volume,
    VolumeMount,
)
from afd_operator.api.policies import Bounds, RestartBudget
from afd_operator.api.rules import Rule
from afd_operator.api.schema import structural
from afd_operator.api.serving import Model, Slo
from afd_operator.api.shape import Ratio, SmBudget
from afd_operator.api.spec import AFDDeploymentSpec

small = st.integers(1, 5)
mode = st.sampled_from(["Fixed", "Auto"])
key = st.sampled_from(
    [
        "nvidia.com/gpu.clique",
        "kubernetes.io/hostname",
        "team",
        "afd.dev/unit",
        "app.kubernetes.io/managed-by",
    ]
)
labels = st.dictionaries(key, st.just("x"), max_size=3)
duration = st.from_regex(r"\A[0-9]{1,3}(ms|s|m|h)\Z")


def some(**fields: SearchStrategy[Any]) -> SearchStrategy[dict[str, Any]]:
    """An object with any part of these fields."""
    return st.fixed_dictionaries({}, optional=fields)


def model(source: str) -> dict[str, Any]:
    return {"id": "a", "source": source}


def mounting(volumes: list[str]) -> list[dict[str, Any]]:
    return [{"name": "worker", "volumeMounts": [mount(f"/{i}", name) for i, name in enumerate(volumes)]}]


def mount(path: str, volume: str = "a") -> dict[str, Any]:
    return {"name": volume, "mountPath": path}


ratio = some(mode=mode, attention=small, expert=small, prefill=st.integers(0, 5))
WORLDS: dict[type[ApiModel], SearchStrategy[dict[str, Any]]] = {
    Model: st.from_regex(r"\A(pvc|hf)://([a-zA-Z-]{1,3}|/x)(/[a.]{1,3}){0,3}/?\Z").map(model),
    Slo: some(ttft=duration, tpot=duration),
    Ratio: ratio,
    SmBudget: some(mode=mode, boundary=small.map(lambda n: 2 * n), decode=small.map(lambda n: 2 * n)),
    Bounds: st.fixed_dictionaries({"min": small, "max": small}),
    RestartBudget: some(window=duration),
    Requirement: st.fixed_dictionaries(
        {"key": key, "operator": st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"])},
        optional={"values": st.lists(st.just("x"), max_size=1)},
    ),
    EnvVar: st.fixed_dictionaries(
        {"name": st.sampled_from(["AFD_X", "AFD_DTYPE", "AFD_DTYPE_", "AFD", "afd_x", "X_AFD_"])}
    ),
    Volume: st.fixed_dictionaries({"name": st.sampled_from(["afd-x", "afd", "x-afd-x"])}),
    VolumeMount: st.sampled_from([*RESERVED_MOUNTS, "/etc", "/", "/cache"]).flatmap(
        lambda root: st.sampled_from(["", "/", "s", "/x"]).map(lambda end: mount(root + end))
    ),
    Resources: some(
        requests=st.dictionaries(st.sampled_from(["cpu", "nvidia.com/gpu"]), st.just(1)),
        limits=st.dictionaries(st.sampled_from(["cpu", "nvidia.com/gpu"]), st.just(1)),
    ),
    Toleration: some(
        key=st.sampled_from(["", "a"]), value=st.sampled_from(["", "b"]),
        operator=st.sampled_from(["Equal", "Exists"]), effect=st.sampled_from(["NoSchedule", "NoExecute"]),
        tolerationSeconds=st.integers(0, 9),
    ),
    TemplateMetadata: some(labels=labels, annotations=labels),
    TemplateSpec: some(
        nodeSelector=labels,
        volumes=st.lists(st.sampled_from(["a", "b"]), unique=True).map(
            lambda names: [{"name": name} for name in names]
        ),
        containers=st.lists(st.sampled_from(["a", "b"]), max_size=2).map(mounting),
    ),
    AFDDeploymentSpec: st.builds(
        lambda *parts: patched({k: v for part in parts for k, v in part.items()})["spec"],
        some(ratio=ratio, placement=some(topologyKey=key), workload=st.just(WORKLOAD)),
        some(model=st.sampled_from([1, 1099, 1100, 8192]).map(lambda n: {"contextLength": n})),
        some(scaling=st.builds(lambda least, most: scaling(least, most)["scaling"], small, small)),
        some(runtime=labels.map(lambda found: {"podTemplate": {"spec": {"nodeSelector": found}}})),
    ),
}  # fmt: skip
"""A world of objects for every model that has rules: legal in type and bounds, mixed in all else."""


def models(kind: type[ApiModel] = ApiModel) -> Iterator[type[ApiModel]]:
    for child in kind.__subclasses__():
        if child.__module__.startswith("afd_operator."):
            yield child
            yield from models(child)


ENVIRONMENT = celpy.Environment()


@cache
def program(cel: str) -> celpy.Runner:
    return ENVIRONMENT.program(ENVIRONMENT.compile(cel))


def cel_holds(rule: Rule, obj: dict[str, Any]) -> bool:
    """What the API server would say of an object with defaults filled in."""
    return bool(program(rule.cel).evaluate({"self": celpy.json_to_cel(obj)}))


def test_every_model_with_rules_has_a_world() -> None:
    assert {kind for kind in models() if kind.rules} == set(WORLDS)


@pytest.mark.parametrize("kind", WORLDS, ids=lambda kind: kind.__name__)
def test_both_judges_agree(kind: type[ApiModel]) -> None:
    @settings(max_examples=60, deadline=None)
    @given(WORLDS[kind])
    def judge(obj: dict[str, Any]) -> None:
        found = kind.model_validate(obj)
        for rule in kind.rules:
            assert cel_holds(rule, found.dump()) == rule.holds(found), (rule.cel, found.dump())

    judge()


@pytest.mark.parametrize("kind", WORLDS, ids=lambda kind: kind.__name__)
def test_every_rule_can_be_kept_and_broken(kind: type[ApiModel]) -> None:
    """A rule that holds for every object of the table of specs would be no rule."""
    kept, broken = set(), set()
    for obj in (MINIMAL, FULL, *(patched(case.patch) for case in (*GOOD, *BAD))):
        for found in objects(kind, obj):
            for rule in kind.rules:
                (kept if rule.holds(found) else broken).add(rule.message)
    assert kept == broken == {rule.message for rule in kind.rules}


def objects(kind: type[ApiModel], obj: dict[str, Any]) -> list[ApiModel]:
    """All objects of one kind in a deployment; none where its types or bounds do not hold."""
    try:
        spec = AFDDeploymentSpec.model_validate(obj["spec"])
    except ValueError:
        return []
    return list(_within(spec, kind))


def _within(value: object, kind: type[ApiModel]) -> Iterator[ApiModel]:
    if isinstance(value, kind):
        yield value
    if isinstance(value, ApiModel):
        for name in type(value).model_fields:
            yield from _within(getattr(value, name), kind)
    elif isinstance(value, list):
        for item in value:
            yield from _within(item, kind)


@pytest.mark.parametrize("kind", WORLDS, ids=lambda kind: kind.__name__)
def test_a_rule_blames_a_field_that_exists_and_says_what_must_hold(kind: type[ApiModel]) -> None:
    for rule in kind.rules:
        at = structural(kind)
        for part in rule.field.split("."):
            assert part in at["properties"], rule
            at = at["properties"][part]
        assert not re.search(r"\n|\.$", rule.message), (
            "Kubernetes allows no line break, and adds its own words around"
        )
