"""A rack in a box: a real Kubernetes control plane with NVL72 domains, on one machine.

    from tests.rack import rack

    with rack(domains=2, nodes=18, gpus=4) as r:
        r.kubectl("get", "nodes", "-L", "nvidia.com/gpu.clique")

`spec` says what a rack is made of, `lifecycle` brings it up and down, `handle` is what one holds.
"""

from tests.rack.handle import CommandError, Rack
from tests.rack.lifecycle import RackError, down, rack, up
from tests.rack.spec import RackSpec

__all__ = ["CommandError", "Rack", "RackError", "RackSpec", "down", "rack", "up"]
