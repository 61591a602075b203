"""docker-compose.yml hands every option of `train` on, and none that does not exist."""

import re
from pathlib import Path

from coordinator.cli import train

COMPOSE = (Path(__file__).parents[2] / "docker-compose.yml").read_text()

DECIDED_THERE = {
    # given in the command
    *("data", "workers", "deal", "insecure", "model", "checkpoint"),
    # of no use there: workers are containers
    *("local", "threads"),
    # not for data that is dealt
    "weights",
}


def test_options_of_train() -> None:
    handed_on = set(re.findall(r"^ +ACCCOCOA_TRAIN_(\w+):$", COMPOSE, re.MULTILINE))
    options = {str(parameter.name).upper() for parameter in train.params if parameter.name not in DECIDED_THERE}
    assert handed_on == options, "docker-compose.yml: environment of the coordinator"
