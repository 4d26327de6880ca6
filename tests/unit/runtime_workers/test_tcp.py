"""What only sockets can do to us: strangers, garbage, broken and silent connections."""

from __future__ import annotations

import contextlib
import signal
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch
from tests.unit.runtime_workers.test_transport_contract import WIRE, answer, rows
from tests.unit.runtime_workers.transports import TcpTransport

from afd_runtime.protocol.plan import Phase
from afd_runtime.transport.epoch import DataEpoch, split_address
from afd_runtime.transport.errors import EndpointClosed, Mismatch, PeerLost, TransportError
from afd_runtime.transport.handshake import Hello, greet, receive_greeting
from afd_runtime.transport.round import Round, WireFormat
from afd_runtime.transport.tcp_expert import TcpExpert
from afd_runtime.transport.tcp_lane import TcpLane
from afd_runtime.transport.wire import HEADER, Header, Kind, pack, send

EPOCH = 5
ROUND = Round(EPOCH, Phase.DECODE, 1, 0, 0)


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.005)


def worker(
    tcp: TcpTransport, lanes: tuple[int, ...] = (0,)
) -> tuple[TcpExpert, DataEpoch, list[TransportError]]:
    """One expert worker that listens, its epoch as lanes see it, and what it reports as lost."""
    epoch = tcp.epoch(EPOCH, lanes, 1)
    lost: list[TransportError] = []
    expert = TcpExpert(WIRE, epoch, 0, timeout_s=5.0, lost=lost.append)
    tcp.listeners[0].serve(expert)
    return expert, epoch, lost


def raw(tcp: TcpTransport) -> socket.socket:
    return socket.create_connection(("127.0.0.1", tcp.listeners[0].port), 5)


def authenticated(tcp: TcpTransport, epoch: DataEpoch) -> socket.socket:
    """A lane's connection, to say on it what a lane never would."""
    sock = raw(tcp)
    greet(sock, Hello(EPOCH, 0, epoch.lanes[0], 0, WIRE), epoch.key)
    return sock


def connect(epoch: DataEpoch, wire: WireFormat = WIRE, lane: int = 0) -> TcpLane:
    endpoint = TcpLane(wire, epoch, lane, timeout_s=5.0)
    endpoint.connect(0.5)
    return endpoint


REFUSED = (
    ("another key", lambda epoch: replace(epoch, key=b"x" * 32), WIRE, "does not hold the key"),
    ("an older epoch", lambda epoch: replace(epoch, number=EPOCH - 1), WIRE, "epoch 4, expected was 5"),
    ("another life", lambda epoch: replace(epoch, lanes={0: 7}), WIRE, "incarnation 7, expected was 1000"),
    (
        "a lane that is not in the table",
        lambda epoch: replace(epoch, lanes={0: 1, 9: 9}),
        WIRE,
        "incarnation",
    ),
    ("other widths", lambda epoch: epoch, replace(WIRE, hidden=8), "hidden=8.*hidden=6"),
    ("other buffers", lambda epoch: epoch, replace(WIRE, max_rows=9), "max_rows=9.*max_rows=8"),
    ("another dtype", lambda epoch: epoch, replace(WIRE, dtype=torch.bfloat16), "bfloat16.*float32"),
)


@pytest.mark.parametrize(
    ("change", "wire", "text"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED]
)
def test_who_does_not_belong_is_told_why(
    tcp: TcpTransport, change: Callable[[DataEpoch], DataEpoch], wire: WireFormat, text: str
) -> None:
    _, epoch, lost = worker(tcp)
    with pytest.raises(Mismatch, match=text) as caught:
        connect(change(epoch), wire)
    assert caught.value.peer == 0
    wait_until(
        lambda: tcp.listeners[0].refused["stranger"] + tcp.listeners[0].refused["silent"] == 1, "the count"
    )
    assert lost == []


def test_a_worker_that_does_not_know_the_epoch_yet_is_asked_again(tcp: TcpTransport) -> None:
    """The table reaches lanes and workers at different moments."""
    epoch = tcp.epoch(EPOCH, (0,), 1)
    tcp.listeners[0].serve(None)
    early = TcpLane(WIRE, epoch, 0)
    with pytest.raises(PeerLost, match=f"expert worker 0 .* not yet in {EPOCH}"):
        early.connect(0.1)
    expert, _, _ = worker(tcp)
    lane = connect(epoch)
    lane.push(0, ROUND, rows(1))
    answer(expert)
    lane.close()
    expert.close()


def test_nobody_there_names_the_worker_and_its_address(tcp: TcpTransport) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        epoch = DataEpoch(number=1, key=b"k", lanes={0: 1}, workers=[address])
        with pytest.raises(PeerLost, match=f"expert worker 0 at {address}: not reached"):
            connect(epoch)


GARBAGE = (
    ("an HTTP request", b"GET / HTTP/1.1\r\nHost: expert\r\n\r\n" + b"x" * 100),
    ("zeros", bytes(4096)),
    ("nothing at all", b""),
    ("half a hello", b"AFD1" + bytes(10)),
)


@pytest.mark.parametrize("sent", [case[1] for case in GARBAGE], ids=[case[0] for case in GARBAGE])
def test_strangers_are_dropped_and_counted_and_lanes_go_on(tcp: TcpTransport, sent: bytes) -> None:
    expert, epoch, lost = worker(tcp)
    lane = connect(epoch)
    with raw(tcp) as stranger:
        with contextlib.suppress(OSError):  # it may have been sent away before it was done
            stranger.sendall(sent)
            stranger.shutdown(socket.SHUT_WR)
        wait_until(lambda: tcp.listeners[0].refused.total() == 1, "the stranger to be counted")
    lane.push(0, ROUND, rows(2))
    answer(expert)
    assert lane.pull(0, ROUND).hidden.shape[0] == 2
    assert lost == []
    lane.close()


def test_a_second_connection_of_a_lane_is_refused(tcp: TcpTransport) -> None:
    _, epoch, _ = worker(tcp)
    lane = connect(epoch)
    with pytest.raises(Mismatch, match="lane 0 is connected already"):
        connect(epoch)
    lane.close()


HEADERS = (
    ("bad magic", {"offset": 0, "value": b"HTTP"}, "magic b'HTTP', expected was b'AFD1'"),
    ("unknown kind", {"offset": 4, "value": b"\x09"}, "kind 9, expected was 1"),
    ("unknown phase", {"offset": 5, "value": b"\x05"}, "phase 5"),
    ("other dtype", {"offset": 6, "value": b"\x02"}, "dtype 2, expected was 0"),
    ("other epoch", {"offset": 8, "value": b"\x06"}, "epoch 6, expected was 5"),
    ("no such microbatch", {"offset": 28, "value": b"\x04"}, "microbatch 4"),
    ("somebody else's", {"offset": 32, "value": b"\x03"}, "source 3, expected was 0"),
    ("more rows than fit", {"offset": 36, "value": b"\xff\xff\xff\x7f"}, "2147483647 rows"),
    ("other width", {"offset": 40, "value": b"\x07"}, "hidden 7, expected was 6"),
    ("other top k", {"offset": 44, "value": b"\x09"}, "top_k 9, expected was 2"),
    ("a payload that does not match", {"offset": 48, "value": b"\x01"}, "payload 1, expected was 40"),
)


@pytest.mark.parametrize(
    ("change", "text"), [case[1:] for case in HEADERS], ids=[case[0] for case in HEADERS]
)
def test_a_wrong_header_ends_the_connection_and_names_both_values(
    tcp: TcpTransport, change: dict[str, object], text: str
) -> None:
    expert, epoch, lost = worker(tcp)
    good = bytearray(pack(WIRE, Header(Kind.DISPATCH, ROUND, 0, 1)))
    offset, value = change["offset"], change["value"]
    assert isinstance(offset, int)
    assert isinstance(value, bytes)
    good[offset : offset + len(value)] = value
    with authenticated(tcp, epoch) as sock:
        sock.sendall(good)
        with pytest.raises(Mismatch, match=text) as caught:
            expert.next_round(5)
        assert sock.recv(1) == b"", "the connection is closed"
    assert caught.value.peer == 0
    assert [error.peer for error in lost] == [0]


@pytest.mark.parametrize("sent", [0, 10, HEADER.size, HEADER.size + 7])
def test_a_lane_that_dies_is_noticed_at_once_wherever_it_was(tcp: TcpTransport, sent: int) -> None:
    """Between frames, in a header, in a payload."""
    expert, epoch, lost = worker(tcp)
    frame = pack(WIRE, Header(Kind.DISPATCH, ROUND, 0, 1)) + bytes(40)
    with authenticated(tcp, epoch) as sock:
        sock.sendall(frame[:sent])
    with pytest.raises(PeerLost, match="lane 0: connection ended"):
        expert.next_round(5)
    assert [error.peer for error in lost] == [0]


def test_an_expert_worker_that_dies_is_noticed_between_steps_too(tcp: TcpTransport) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        epoch = DataEpoch(
            number=EPOCH, key=b"k", lanes={0: 1}, workers=[f"127.0.0.1:{listening.getsockname()[1]}"]
        )
        lost: list[TransportError] = []
        lane = TcpLane(WIRE, epoch, 0, lost=lost.append)
        peer = TcpExpert(WIRE, epoch, 0)
        served = _serve_one(listening, peer, lane)
        served.shutdown(socket.SHUT_RDWR)
        wait_until(lambda: bool(lost), "the loss to be reported")
        assert (str(lost[0]), lost[0].peer) == ("expert worker 0: connection ended", 0)
        with pytest.raises(PeerLost, match="expert worker 0"):
            lane.push(0, ROUND, rows(1))
        lane.close()


def _serve_one(listening: socket.socket, peer: TcpExpert, lane: TcpLane) -> socket.socket:
    """Connect `lane` to a bare socket that passes the handshake and then does nothing."""
    with ThreadPoolExecutor(1) as pool:
        connecting = pool.submit(lane.connect, 5.0)
        sock, _ = listening.accept()
        receive_greeting(sock, peer.judge)
        connecting.result(5)
    return sock


def test_a_broken_connection_is_an_error_and_no_signal() -> None:
    """Whatever the process does with SIGPIPE: its default action would end the worker."""
    here, there = socket.socketpair()
    there.close()
    before = signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        with here, pytest.raises(PeerLost, match="connection broke"):
            send(here, b"header", [])
    finally:
        signal.signal(signal.SIGPIPE, before)


def test_a_goodbye_is_no_loss(tcp: TcpTransport) -> None:
    """At the end of an epoch everyone closes, in any order: nobody may look guilty."""
    expert, epoch, lost = worker(tcp)
    lane = connect(epoch)
    lane.close()
    assert expert.next_round(0.1) is None
    assert lost == []
    expert.close()
    with pytest.raises(EndpointClosed):
        expert.next_round(1)


def test_a_lane_that_takes_nothing_cannot_hold_an_expert_worker_for_ever(tcp: TcpTransport) -> None:
    """Its receive window fills, the send time-out ends the wait and names it."""
    wire = WireFormat(hidden=1 << 20, top_k=1, max_rows=4, dtype=torch.float32)
    epoch = tcp.epoch(EPOCH, (0,), 1)
    expert = TcpExpert(wire, epoch, 0, timeout_s=0.3)
    tcp.listeners[0].serve(expert)
    with raw(tcp) as sock:
        greet(sock, Hello(EPOCH, 0, epoch.lanes[0], 0, wire), epoch.key)
        dispatch = rows(4, 1.0, wire)
        sock.sendall(pack(wire, Header(Kind.DISPATCH, ROUND, 0, 4)))
        for part in (dispatch.hidden, dispatch.ids, dispatch.weights):
            sock.sendall(part.numpy().tobytes())
        with pytest.raises(TransportError, match=r"lane 0: combine of .* stays full") as caught:
            answer(expert)
        assert caught.value.peer == 0


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("10.0.0.7:7430", ("10.0.0.7", 7430)),
        ("[fd00::1]:7430", ("fd00::1", 7430)),
        ("host.svc:1", ("host.svc", 1)),
    ],
)
def test_addresses(address: str, expected: tuple[str, int]) -> None:
    assert split_address(address) == expected


@pytest.mark.parametrize("address", ["", "host", "host:", ":7430", "host:0", "host:65536", "host:http"])
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(ValueError, match="is not host:port"):
        split_address(address)


def test_a_hundred_epochs_in_a_row(tcp: TcpTransport) -> None:
    """A lane's first frame is often there before its connection is: it must be answered all the same."""
    for number in range(1, 101):
        lanes, [expert] = tcp.connect(WIRE, number, (0, 1), 1, timeout_s=10.0)
        round = Round(number, Phase.DECODE, 1, 0, 0)
        for lane in lanes.values():
            lane.push(0, round, rows(1))
        answer(expert)
        for lane in lanes.values():
            assert lane.pull(0, round).hidden.shape[0] == 1
            lane.close()
        expert.close()
