"""What is seen: one line that is rewritten on a terminal, plain lines anywhere else."""

import re

from tests.integration.processes import Launcher

SHORT = ("--lam", 1e-9, "--tol", 1e-14, "--max-rounds", 300)


def test_a_live_line_on_a_terminal(launch: Launcher, addresses: str) -> None:
    running = launch.start_in_terminal("coordinator", "train", "--workers", addresses, *SHORT)
    finished = running.finish()
    assert finished.exit_code == 3, finished.stdout
    assert "\r" in finished.stdout
    assert "\x1b[?25l" in finished.stdout  # the cursor is hidden ...
    assert finished.stdout.rindex("\x1b[?25h") > finished.stdout.rindex("\x1b[?25l")  # ... and shown again
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", finished.stdout)
    *_, last_round, sentence = text.splitlines()
    assert re.search(r"round 300  passes 30[0-3]\.\d  relative gap \d\.\d\de[+-]\d\d  primal ", last_round)
    assert sentence.startswith("max_rounds: primal ")
    assert finished.stderr == ""


def test_json_on_a_terminal_is_still_one_object(launch: Launcher, addresses: str) -> None:
    """Standard output redirected, standard error on the terminal."""
    running = launch.start_in_terminal("coordinator", "train", "--workers", addresses, *SHORT, "--quiet", "--json")
    finished = running.finish()
    assert finished.stdout.count("\n") == 1
    assert finished.stdout.startswith("{")


def test_plain_lines_elsewhere(launch: Launcher, addresses: str) -> None:
    finished = launch.run("coordinator", "train", "--workers", addresses, *SHORT)
    assert finished.exit_code == 3
    assert finished.stdout == ""
    assert "\r" not in finished.stderr
    assert "\x1b" not in finished.stderr
    lines = finished.stderr.splitlines()
    rounds = [int(match[1]) for line in lines if (match := re.match(r"round (\d+)  passes ", line))]
    assert rounds[0] == 0
    assert rounds[-1] == 300
    assert rounds == sorted(set(rounds))
    assert len(rounds) <= 5 + finished.seconds / 2 + 1  # not a line a certificate
    assert lines[-1].startswith("max_rounds: primal ")


def test_quiet_is_quiet(launch: Launcher, addresses: str) -> None:
    finished = launch.run("coordinator", "train", "--workers", addresses, *SHORT, "--quiet")
    assert (finished.exit_code, finished.stdout, finished.stderr) == (3, "", "")
