"""What every transport promises (`transport.contract`), one test a promise, each on all of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import pytest
import torch
from tests.unit.runtime_workers.unit_driver import Connect

from afd_runtime.protocol.plan import Phase
from afd_runtime.transport.contract import ExpertEndpoint, LaneEndpoint
from afd_runtime.transport.errors import EndpointClosed, Mismatch, RoundTimeout, SlotInUse, TransportError
from afd_runtime.transport.round import Arrived, Dispatch, Round, WireFormat

WIRE = WireFormat(hidden=6, top_k=2, max_rows=8, dtype=torch.float32)
EPOCH = 5
WAIT_S = 10.0


def round_of(
    step: int = 1, layer: int = 0, microbatch: int = 0, *, phase: Phase = Phase.DECODE, epoch: int = EPOCH
) -> Round:
    return Round(epoch, phase, step, layer, microbatch)


def rows(count: int, value: float = 0.0, wire: WireFormat = WIRE) -> Dispatch:
    """Rows that can be told apart: row i of `value` holds value + i."""
    hidden = (value + torch.arange(count, dtype=torch.float32)).unsqueeze(1).expand(count, wire.hidden)
    ids = torch.arange(count, dtype=torch.int32).unsqueeze(1).expand(count, wire.top_k).contiguous()
    return Dispatch(hidden.contiguous().to(wire.dtype), ids, torch.full((count, wire.top_k), value))


def arrive(expert: ExpertEndpoint) -> Arrived:
    found = expert.next_round(WAIT_S)
    assert found is not None, "no round became complete"
    return found


def answer(expert: ExpertEndpoint) -> Arrived:
    """Serve one round with a recognisable function of the rows: twice what came."""
    arrived = arrive(expert)
    expert.finish(arrived.round, {lane: dispatch.hidden * 2 for lane, dispatch in arrived.by_lane.items()})
    return arrived


class Link(Protocol):
    """Makes connected endpoints; they are closed after the test."""

    def __call__(
        self,
        lanes: Sequence[int] = (0,),
        workers: int = 1,
        wire: WireFormat = WIRE,
        timeout_s: float = WAIT_S,
    ) -> Links: ...


class Links:
    def __init__(
        self, connect: Connect, lanes: Sequence[int], workers: int, wire: WireFormat, timeout_s: float
    ) -> None:
        by_lane, experts = connect(wire, EPOCH, lanes, workers, timeout_s)
        self.lanes: dict[int, LaneEndpoint] = dict(by_lane)
        self.experts: list[ExpertEndpoint] = list(experts)

    def close(self) -> None:
        for endpoint in [*self.lanes.values(), *self.experts]:
            endpoint.close()


@pytest.fixture
def link(connect: Connect) -> Iterator[Link]:
    made: list[Links] = []

    def make(
        lanes: Sequence[int] = (0,), workers: int = 1, wire: WireFormat = WIRE, timeout_s: float = WAIT_S
    ) -> Links:
        made.append(Links(connect, lanes, workers, wire, timeout_s))
        return made[-1]

    yield make
    for links in made:
        links.close()


def test_rows_arrive_as_sent_and_come_back_in_their_order(link: Link) -> None:
    links = link()
    links.lanes[0].push(0, round_of(), rows(3, 7.0))
    arrived = answer(links.experts[0])
    received = arrived.by_lane[0]
    assert arrived.round == round_of()
    assert received.rows == 3
    assert received.ids.tolist() == [[0, 0], [1, 1], [2, 2]]
    assert received.weights.tolist() == [[7.0, 7.0]] * 3
    assert links.lanes[0].pull(0, round_of()).hidden[:, 0].tolist() == [14.0, 16.0, 18.0]


@pytest.mark.parametrize("count", [0, 1, WIRE.max_rows])
def test_any_number_of_rows_up_to_the_buffers_is_normal(link: Link, count: int) -> None:
    """Zero included: an idle lane or an unlucky worker takes part like any other."""
    links = link()
    links.lanes[0].push(0, round_of(), rows(count))
    assert answer(links.experts[0]).by_lane[0].rows == count
    assert tuple(links.lanes[0].pull(0, round_of()).hidden.shape) == (count, WIRE.hidden)


def test_a_round_starts_when_the_last_lane_has_delivered(link: Link) -> None:
    links = link(lanes=(0, 2, 5))
    links.lanes[0].push(0, round_of(), rows(2, 1.0))
    links.lanes[5].push(0, round_of(), rows(0))
    assert links.experts[0].next_round(0.05) is None
    links.lanes[2].push(0, round_of(), rows(4, 3.0))
    arrived = answer(links.experts[0])
    assert {lane: dispatch.rows for lane, dispatch in arrived.by_lane.items()} == {0: 2, 2: 4, 5: 0}
    for lane, count in ((0, 2), (2, 4), (5, 0)):
        assert links.lanes[lane].pull(0, round_of()).hidden.shape[0] == count


def test_rounds_of_different_microbatches_are_independent(link: Link) -> None:
    links = link()
    for microbatch in (0, 1, 2, 3):
        links.lanes[0].push(0, round_of(microbatch=microbatch), rows(1, float(microbatch)))
    for _ in range(4):
        answer(links.experts[0])
    for microbatch in (3, 1, 0, 2):
        pulled = links.lanes[0].pull(0, round_of(microbatch=microbatch))
        assert pulled.hidden[0, 0] == 2 * microbatch


def test_pushing_again_before_the_combine_was_pulled_raises(link: Link) -> None:
    links = link()
    links.lanes[0].push(0, round_of(layer=0), rows(1))
    with pytest.raises(SlotInUse, match=r"layer 1 .* before the combine of .* layer 0"):
        links.lanes[0].push(0, round_of(layer=1), rows(1))
    answer(links.experts[0])
    with pytest.raises(SlotInUse):
        links.lanes[0].push(0, round_of(layer=1), rows(1))
    links.lanes[0].pull(0, round_of(layer=0))
    links.lanes[0].push(0, round_of(layer=1), rows(1))


def test_more_rows_than_the_buffers_hold_names_both(link: Link) -> None:
    links = link()
    with pytest.raises(Mismatch, match="9 rows, the buffers hold 8"):
        links.lanes[0].push(0, round_of(), rows(9))


def test_pulling_what_was_not_pushed_names_both(link: Link) -> None:
    links = link()
    links.lanes[0].push(0, round_of(step=1), rows(1))
    with pytest.raises(Mismatch, match=r"pull of decode step 2 .* pushed was decode step 1 "):
        links.lanes[0].pull(0, round_of(step=2))


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (round_of(step=2, epoch=EPOCH + 1), "6.*5"),
        (round_of(step=1), r"step 1 layer 0 .* after step 1 layer 0"),
    ],
    ids=["another epoch", "a round that was already"],
)
def test_a_leftover_at_the_expert_worker_names_both(link: Link, wrong: Round, text: str) -> None:
    """Such a lane is not listened to any longer: it, or its worker, fails; nothing is computed."""
    links = link()
    links.lanes[0].push(0, round_of(step=1), rows(1))
    answer(links.experts[0])
    links.lanes[0].pull(0, round_of(step=1))

    def use() -> None:
        links.lanes[0].push(0, wrong, rows(1))
        links.experts[0].next_round(WAIT_S)

    with pytest.raises(Mismatch, match=text):
        use()


def test_a_combine_that_does_not_come_names_the_worker_and_the_round(link: Link) -> None:
    links = link(workers=2, timeout_s=0.2)
    links.lanes[0].push(1, round_of(layer=4), rows(1))
    with pytest.raises(RoundTimeout, match=r"expert worker 1: no combine of decode step 1 layer 4") as caught:
        links.lanes[0].pull(1, round_of(layer=4))
    assert caught.value.peer == 1


def test_a_lane_that_lets_others_wait_is_named(link: Link) -> None:
    links = link(lanes=(0, 1, 2), timeout_s=0.3)
    links.lanes[0].push(0, round_of(), rows(1))
    links.lanes[2].push(0, round_of(), rows(1))
    with pytest.raises(RoundTimeout, match=r"lane 1: no dispatch of decode step 1") as caught:
        arrive(links.experts[0])
    assert caught.value.peer == 1


def test_closing_ends_every_wait_and_may_be_done_twice(link: Link) -> None:
    links = link(workers=1)
    links.lanes[0].push(0, round_of(), rows(1))
    with ThreadPoolExecutor(2) as pool:
        pulling = pool.submit(links.lanes[0].pull, 0, round_of())
        links.lanes[0].close()
        with pytest.raises(EndpointClosed):
            pulling.result(WAIT_S)
        serving = pool.submit(lambda: [links.experts[0].next_round(WAIT_S) for _ in range(3)])
        links.experts[0].close()
        with pytest.raises(EndpointClosed):
            serving.result(WAIT_S)
    for endpoint in (links.lanes[0], links.experts[0]):
        endpoint.close()
    with pytest.raises(TransportError):
        links.lanes[0].push(0, round_of(layer=1), rows(1))


def test_waking_an_expert_worker_returns_it_to_its_caller(link: Link) -> None:
    """Before the wait or during it: a wake is never lost."""
    links = link()
    links.experts[0].wake()
    assert links.experts[0].next_round(WAIT_S) is None
    timer = threading.Timer(0.05, links.experts[0].wake)
    timer.start()
    assert links.experts[0].next_round(WAIT_S) is None
    timer.join()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_wire_formats(link: Link, dtype: torch.dtype) -> None:
    wire = WireFormat(hidden=6, top_k=1, max_rows=4, dtype=dtype)
    links = link(wire=wire)
    links.lanes[0].push(0, round_of(), rows(4, 1.0, wire))
    arrived = answer(links.experts[0])
    assert arrived.by_lane[0].hidden.dtype == dtype
    pulled = links.lanes[0].pull(0, round_of()).hidden
    assert (pulled.dtype, pulled[:, 0].tolist()) == (dtype, [2.0, 4.0, 6.0, 8.0])


def test_a_thousand_rounds_through_the_same_slots(link: Link) -> None:
    """Two lanes, two workers, uneven and empty dispatches, recycled slots: no row strays."""
    links = link(lanes=(0, 1), workers=2)
    steps = 250

    def drive(lane: int) -> None:
        for step in range(1, steps + 1):
            for microbatch in (0, 1):
                for worker in (0, 1):
                    count = (step * (lane + 1) + worker + microbatch) % (WIRE.max_rows + 1)
                    links.lanes[lane].push(
                        worker, round_of(step, 0, microbatch), rows(count, step + 0.5 * lane)
                    )
            for microbatch in (0, 1):
                for worker in (0, 1):
                    count = (step * (lane + 1) + worker + microbatch) % (WIRE.max_rows + 1)
                    got = links.lanes[lane].pull(worker, round_of(step, 0, microbatch)).hidden
                    assert torch.equal(got, rows(count, step + 0.5 * lane).hidden * 2)

    with ThreadPoolExecutor(4) as pool:
        driving = [pool.submit(drive, lane) for lane in (0, 1)]
        serving = [
            pool.submit(lambda expert=expert: [answer(expert) for _ in range(2 * steps)])
            for expert in links.experts
        ]
        for future in [*driving, *serving]:
            future.result(60)
