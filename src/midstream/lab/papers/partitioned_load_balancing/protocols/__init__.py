"""Moving partition groups between machines while their query runs: the protocols, as pure state machines.

Three kinds of machine take part (D-CAPE sections 3 and 4). The *distribution manager* decides and coordinates. *Split
operators* route arriving rows to the machines that own their groups. *Processors* run the query over their groups. The
same physical machine may be all three.

Every machine is a value and some functions of it, `(state, event) -> (state, actions)`. Nothing here sends, waits,
reads a clock or touches rows. A host does, and it alone knows where it runs:

- `manager`: `begin(state, request)`, `receive(state, sender, message)`, `resend(state)`. Actions are messages to send.
- `split`: `receive(state, message, latest_end)`, `route(state, group)`. Actions are an answer to the manager, flags to
  put into the queues to processors, and buffers to empty.
- `processor`: `receive(state, message)`, `flag(state, split, flag)`, `observe(state, facts)`. Actions are messages,
  and what the host must do with rows: drop groups, ship them, install them.

A host must write a machine's new state together with what its actions change, before their messages leave; whatever
is lost by a crash in between is then asked for again. It calls `resend` from time to time and after a restart.

In a simulation, messages travel over links. Driven by batches, all three machines can be part of one manifest: the
driver is the manager and the only split operator, a slot is a processor. Before a batch the driver applies the
manager's messages to the split machine, whose `route` says where the batch's rows go and whether they are marked, and
hands the rest to the slots with their steps. A slot's step calls `receive`, `flag` (right before or right after the
rows, as the split machine's actions say) and `observe` with what it found, and its report carries the messages back.
Committing the manifest makes the manager's new state, the routing and the moved segments true together. A batch that
is run again starts from the same states and sends the same messages.

All states have `to_json` and `from_json`.
"""

from midstream.lab.papers.partitioned_load_balancing.protocols.manager import ManagerState, MoveRequest
from midstream.lab.papers.partitioned_load_balancing.protocols.processor import Facts, ProcessorState
from midstream.lab.papers.partitioned_load_balancing.protocols.split import SplitState

__all__ = ["Facts", "ManagerState", "MoveRequest", "ProcessorState", "SplitState"]
