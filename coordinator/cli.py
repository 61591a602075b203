"""acccocoa-coordinator: argv -> settings -> run."""

import json
import logging
import sys
from collections.abc import Callable
from typing import NoReturn

import click

from acccocoa import __version__
from acccocoa.cli import ExitCodes, s3_endpoint, tell
from acccocoa.config import (
    AlgorithmConfig,
    ClusterConfig,
    CvConfig,
    DataConfig,
    ObjectiveConfig,
    OutputConfig,
    PathConfig,
    RecoveryConfig,
    StopConfig,
)
from acccocoa.options import options
from coordinator.generate import generate
from coordinator.predict import predict
from coordinator.shard import shard
from coordinator.validate import validate


@click.group(cls=ExitCodes, context_settings={"auto_envvar_prefix": "ACCCOCOA", "show_default": False})
@click.version_option(__version__)
def main() -> None:
    """Train linear models on LIBSVM data over worker services, with a certified duality gap."""
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s acccocoa-coordinator %(levelname)s %(message)s", stream=sys.stderr
    )


main.add_command(generate)
main.add_command(predict)
main.add_command(shard)
main.add_command(validate)


@main.command()
@click.argument("data", nargs=-1, envvar="ACCCOCOA_TRAIN_DATA")
@s3_endpoint
@options(ClusterConfig, DataConfig, ObjectiveConfig, AlgorithmConfig, StopConfig, OutputConfig, RecoveryConfig)
def train(
    data: tuple[str, ...],
    cluster_config: ClusterConfig,
    data_config: DataConfig,
    objective_config: ObjectiveConfig,
    algorithm_config: AlgorithmConfig,
    stop_config: StopConfig,
    output_config: OutputConfig,
    recovery_config: RecoveryConfig,
) -> None:
    """Train on DATA (LIBSVM files, also .gz .bz2 .xz .zst; - is standard input), or on what running workers hold.

    Minimises (1/n) sum_i loss(y_i, x_i'w) + lam (l1_ratio |w|_1 + (1 - l1_ratio)/2 |w|^2).

    Exit codes: 0 converged to --tol; 2 wrong usage; 3 stopped by a limit; 4 bad data; 5 a worker could not be reached
    or was lost; 6 numerically inconsistent; 130 interrupted (the model is written, if training had begun).
    """
    from coordinator import job  # gRPC and numba take a moment to import: not for --help
    from coordinator.settings import Settings

    settings = Settings(
        data,
        cluster_config,
        data_config,
        objective_config,
        algorithm_config,
        stop_config,
        output_config,
        recovery_config,
    )
    _end(lambda: job.train(settings))


@main.command()
@click.argument("data", nargs=-1, envvar="ACCCOCOA_PATH_DATA")
@s3_endpoint
@options(ClusterConfig, DataConfig, ObjectiveConfig, PathConfig, AlgorithmConfig, StopConfig, OutputConfig)
def path(
    data: tuple[str, ...],
    cluster_config: ClusterConfig,
    data_config: DataConfig,
    objective_config: ObjectiveConfig,
    path_config: PathConfig,
    algorithm_config: AlgorithmConfig,
    stop_config: StopConfig,
    output_config: OutputConfig,
) -> None:
    """Train as `train` does for falling strengths lam, each from the dual variables of the one before.

    Prints a table, with --json an object instead. With --model PATH the models are PATH.0, PATH.1, ...
    """
    from coordinator import path as module
    from coordinator.settings import Settings

    settings = Settings(
        data, cluster_config, data_config, objective_config, algorithm_config, stop_config, output_config
    )
    _end(lambda: module.run(settings, path_config))


@main.command()
@click.argument("data", nargs=-1, envvar="ACCCOCOA_CV_DATA")
@s3_endpoint
@options(ClusterConfig, DataConfig, ObjectiveConfig, PathConfig, CvConfig, AlgorithmConfig, StopConfig, OutputConfig)
def cv(
    data: tuple[str, ...],
    cluster_config: ClusterConfig,
    data_config: DataConfig,
    objective_config: ObjectiveConfig,
    path_config: PathConfig,
    cv_config: CvConfig,
    algorithm_config: AlgorithmConfig,
    stop_config: StopConfig,
    output_config: OutputConfig,
) -> None:
    """Cross-validate: train without each fold of the examples and score on it, for falling strengths lam.

    Prints a table, with --json an object instead. With --model PATH, trains on all examples with the best lam.
    """
    from coordinator import cv as module
    from coordinator.settings import Settings

    settings = Settings(
        data, cluster_config, data_config, objective_config, algorithm_config, stop_config, output_config
    )
    _end(lambda: module.run(settings, path_config, cv_config))


def _end(run: Callable[[], int]) -> NoReturn:
    """End the process with the run's exit code."""
    from coordinator import task

    try:
        code = run()
    except KeyboardInterrupt:  # click would make it exit code 1
        click.echo("interrupted", err=True)
        code = task.EXIT_CODES["interrupted"]
    sys.exit(code)


@main.command()
@click.argument("address", metavar="HOST:PORT")
@click.option("--insecure", is_flag=True, help="allow an unencrypted connection beyond the loopback interface")
@click.option("--json", "as_json", envvar="ACCCOCOA_WATCH_JSON", is_flag=True, help="a JSON object a line")
def watch(address: str, insecure: bool, as_json: bool) -> None:
    """Follow the job of the coordinator at HOST:PORT (its --listen) until it ends."""
    from google.protobuf.json_format import MessageToDict

    from coordinator import report, service

    for seen in service.watch(address, insecure):
        if as_json:
            fields = MessageToDict(seen, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
            tell(json.dumps(fields))
        else:
            tell(report.describe(service.from_wire(seen), None))
