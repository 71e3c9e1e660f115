"""A small cluster on one machine: workers in network namespaces, joined by shaped networks.

- `network`: what a network is, and whether this machine can have any;
- `namespaces`: the system calls and the two tools, `ip` and `tc`, that make them;
- `delay`: takes the place of a switch where cables are to be long;
- `cluster`: forks workers, joins them, runs a function in each and brings back what it returned.
"""

from testbed.cluster import Cluster, Ran, WorkerFailedError
from testbed.network import Network, why_not

__all__ = ["Cluster", "Network", "Ran", "WorkerFailedError", "why_not"]
