"""What a checkpoint must be of for a job to go on with it."""

import pytest

from acccocoa.config import RecoveryConfig
from acccocoa.errors import UsageError
from coordinator.checkpoint import Saved
from coordinator.job import Identity

OBJECTIVE: dict[str, object] = {"lam": 0.1, "shards": ["0a1b", "2c3d"]}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"lam": 0.2}, "lam was 0.1, is 0.2"),
        ({"shards": ["0a1b", "ffff"]}, "the data was another, or its weights, or how it is cut; there were 2 workers"),
    ],
)
def test_another_objective(changes: dict[str, object], told: str) -> None:
    saved = Saved("job", OBJECTIVE, {}, 0, {}, {})
    recovery = RecoveryConfig(checkpoint="kept", resume=True)
    assert Identity(OBJECTIVE, {}).same_objective(saved, recovery)
    other = Identity(OBJECTIVE | changes, {})
    with pytest.raises(UsageError) as caught:
        other.same_objective(saved, recovery)
    assert caught.value.offender == "--resume from kept"
    assert caught.value.requirement == f"the checkpoint is of another objective ({told})"
    assert not other.same_objective(saved, RecoveryConfig(checkpoint="kept", resume=True, allow_change=True))
