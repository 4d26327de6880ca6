"""Where gateways are served: sessions, submissions, cancellations.

    arrive --submit--> workload --tokens--> gateway          leave: all its requests end here

A gateway owns its requests and submits them again over every new session, so the coordinator keeps
nothing for a gateway that is gone.
"""

from __future__ import annotations

from afd_runtime.coordinator import admission, sentences
from afd_runtime.coordinator.admission import Limits
from afd_runtime.coordinator.gateways import Gateways
from afd_runtime.coordinator.members import Peer
from afd_runtime.coordinator.requests import Request
from afd_runtime.coordinator.workload import Workload
from afd_runtime.protocol.messages import GatewayHello, Rejected, Submit, Tokens


class Desk:
    def __init__(self, work: Workload) -> None:
        self.gateways = Gateways()
        self._work = work
        self._arrivals = 0

    def arrive(self, peer: Peer, hello: GatewayHello) -> None:
        for replaced in self.gateways.arrive(peer, hello):
            self._end_all(replaced)

    def leave(self, peer: Peer) -> None:
        """The mirror image of `arrive`."""
        self.gateways.leave(peer)
        self._end_all(peer)

    def cancel(self, peer: Peer, request_id: str) -> None:
        known = self._work.requests.get(request_id)
        if known is not None and known.gateway == peer:
            self._work.remove(known)

    def submit(
        self, peer: Peer, submit: Submit, limits: Limits | None, *, finished_per_s: float
    ) -> Rejected | Tokens | None:
        """Let a request in. Returns what there is to say at once, if anything: why it stays outside,
        or that what was committed before is all of the answer."""
        known = self._work.requests.get(submit.request_id)
        if known is not None and known.gateway != peer:
            return admission.rejected(submit, "invalid", "another gateway's request has this id")
        waiting = len(self._work.waiting)
        no = admission.refusal(submit, limits, waiting=waiting, finished_per_s=finished_per_s)
        if no is not None or limits is None:
            return no
        self._arrivals += 1
        request = Request.admitted(
            submit, gateway=peer, arrival=self._arrivals, eos=list(limits.eos_token_ids)
        )
        if known is not None:
            request.attempt = max(request.attempt, known.attempt + 1)
            self._work.remove(known)
        if reason := request.finish_reason():
            return sentences.tokens(request, request.answered, [], reason)
        self._work.add(request)
        return None

    def _end_all(self, peer: Peer) -> None:
        for request in [request for request in self._work.requests.values() if request.gateway == peer]:
            self._work.remove(request)
