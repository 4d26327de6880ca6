"""The choice of a domain: best fit, or a reason in numbers why there is none.

    Chosen       a domain has room for the unit and its spares, and nobody holds it
    Full         some domain is large enough, but its nodes are taken, down or reserved: waiting can help
    Impossible   no domain has that many nodes that could serve: only a change of spec or cluster helps

Best fit is the domain that leaves the fewest free nodes behind, so that large domains stay whole for
large units; equal fits go by name, so that the same facts give the same choice.
"""

from __future__ import annotations

from dataclasses import dataclass

from afd_operator.placement.domains import Cluster, DomainView, Request, views

_LISTED = 5
"""Domains that a message names; a cluster of hundreds must still fit a condition people read."""


@dataclass(frozen=True)
class Chosen:
    domain: str


@dataclass(frozen=True)
class _Refused:
    request: Request
    domains: tuple[DomainView, ...]

    @property
    def need(self) -> str:
        request = self.request
        spares = f" + {request.spares} spare" if request.spares else ""
        return (
            f"{request.needed} nodes ({request.attention} attention + {request.expert} expert{spares})"
            f" with {request.gpus_per_node} GPUs each in one domain of {request.topology_key}"
        )


@dataclass(frozen=True)
class Full(_Refused):
    @property
    def message(self) -> str:
        return f"waits for {self.need}: {_listed(self.domains, self.request.needed)}"


@dataclass(frozen=True)
class Impossible(_Refused):
    @property
    def message(self) -> str:
        if not self.domains:
            return f"needs {self.need}, but no node that the selectors admit carries that label"
        return f"needs {self.need}, no domain can offer them: {_listed(self.domains, self.request.needed)}"


Choice = Chosen | Full | Impossible


def choose(cluster: Cluster, request: Request, *, prefer: str | None = None) -> Choice:
    """The domain for a unit. `prefer` (where it runs now) wins over a better fit if it has room."""
    found = views(cluster, request)
    fitting = [domain for domain in found if domain.held_by is None and domain.free >= request.needed]
    if fitting:
        best = min(fitting, key=lambda domain: (domain.name != prefer, domain.free, domain.name))
        return Chosen(best.name)
    if any(domain.usable >= request.needed for domain in found):
        return Full(request, found)
    return Impossible(request, found)


def has_room(cluster: Cluster, request: Request, domain: str) -> bool:
    """True if the unit's pods fit `domain` as things are, counting what they hold already.

    Spares are not asked for: they are wanted when a unit moves in, and being used up is their purpose.
    """
    return any(view.name == domain and view.free >= request.pods for view in views(cluster, request))


def _listed(domains: tuple[DomainView, ...], needed: int) -> str:
    """The most promising domains first: not held, most free."""
    ranked = sorted(domains, key=lambda d: (d.held_by is not None, -d.free, -d.usable, d.name))
    shown = [_why(domain, needed) for domain in ranked[:_LISTED]]
    more = len(ranked) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more else "")


def _why(domain: DomainView, needed: int) -> str:
    if domain.usable < needed:
        why = f"{domain.name} has {domain.nodes} {'node' if domain.nodes == 1 else 'nodes'}"
        return why if domain.usable == domain.nodes else f"{why}, {domain.usable} usable by these pods"
    if domain.held_by is not None:
        return f"{domain.name} is held by {domain.held_by}"
    return f"{domain.name} has {domain.free} of {domain.nodes} nodes free"
