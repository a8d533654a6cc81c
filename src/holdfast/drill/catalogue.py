"""All drills there are."""

from __future__ import annotations

from holdfast.drill.drills import EPOCH_DRILLS, Drill
from holdfast.drill.operation_drills import OPERATION_DRILLS, OperationDrill

AnyDrill = Drill | OperationDrill
DRILLS: tuple[AnyDrill, ...] = (*EPOCH_DRILLS, *OPERATION_DRILLS)
