"""docker-compose.yml hands every option of `train` on, and none that does not exist; its health check is cheap."""

import re
import subprocess
import sys
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


def test_the_health_check_loads_nothing_to_compute_with() -> None:
    # with numpy and numba it took a second of a core; every worker is asked every few seconds
    program = "import sys, worker.cli; print(sorted({'numpy', 'numba'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"
