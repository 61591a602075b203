"""What is minimised, as the command line says it: bias, intercept and weights, against LIBLINEAR and scikit-learn."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from liblinear import liblinearutil
from scipy.sparse import csr_matrix
from sklearn.linear_model import Lasso, LogisticRegression

from acccocoa import losses, model
from acccocoa.losses import Vector
from tests.integration.data import Loaded, load, only_json, sidecar
from tests.integration.processes import Launcher
from tests.integration.test_path import write

LAM = 0.01


def mean_loss(data: Loaded, loss: str, w: Vector, s: Vector, constant: float = 0.0) -> float:
    """(1/n) sum_i s_i loss(y_i, x_i'w), where the last weight is that of the constant feature, if there is one."""
    d = data.rows.shape[1]
    p = data.rows @ w[:d] + constant * w[d:].sum()
    return float((s * losses.value(losses.loss(loss), data.signs(1.0), p)).sum()) / data.n


def train(launch: Launcher, sparse: Path, *options: Any) -> dict[str, Any]:
    finished = launch.run(
        *(
            "coordinator",
            "train",
            sparse,
            "--local",
            2,
            "--lam",
            LAM,
            "--tol",
            1e-7,
            "--model",
            "m",
            "--json",
            "--quiet",
        ),
        *options,
    )
    assert finished.exit_code == 0, finished.stderr
    return only_json(finished.stdout)


def liblinear(data: Loaded, solver: int, options: str) -> Any:
    # first the label that LIBLINEAR is to take for positive
    order = np.argsort(-data.labels, kind="stable")
    arguments = f"-s {solver} -c {1 / (LAM * data.n):.17g} -e 1e-9 -q {options}"
    return liblinearutil.train(data.labels[order], csr_matrix(data.rows[order]), arguments)


def check(result: dict[str, Any], theirs: float, loss: str) -> None:
    """LIBLINEAR gives up after 1000 iterations, which are too few for the hinge."""
    assert result["primal"] == pytest.approx(theirs, rel=1e-3 if loss == "hinge" else 1e-6)
    assert result["dual"] <= theirs


@pytest.mark.parametrize(("loss", "solver"), [("hinge", 3), ("squared_hinge", 1), ("logistic", 7)])
def test_bias_is_liblinears(loss: str, solver: int, launch: Launcher, sparse: Path) -> None:
    result = train(launch, sparse, "--loss", loss, "--bias", 2)
    assert (result["bias"], result["intercept"], result["weighted"]) == (2.0, False, False)
    data = load(sparse)
    theirs = liblinear(data, solver, "-B 2")
    d = data.rows.shape[1]
    w = np.array([theirs.w[j] for j in range(d + 1)])
    expected = mean_loss(data, loss, w, np.ones(data.n), 2.0) + 0.5 * LAM * float(w @ w)
    check(result, expected, loss)

    ours = model.load(launch.directory / "m")
    assert (ours.bias, ours.nr_feature, len(ours.w)) == (2.0, d, d + 1)
    assert ours.w[-1] != 0.0
    own = mean_loss(data, loss, ours.w, np.ones(data.n), 2.0) + 0.5 * LAM * float(ours.w @ ours.w)
    assert own == pytest.approx(result["primal"], rel=1e-9)
    # LIBLINEAR reads it with its bias
    y, x = liblinearutil.svm_read_problem(str(sparse))
    predicted, _, values = liblinearutil.predict(y, x, liblinearutil.load_model(str(launch.directory / "m")), "-q")
    finished = launch.run("coordinator", "predict", "--model", "m", sparse)
    assert [float(line) for line in finished.stdout.splitlines()] == predicted
    assert len(set(predicted)) == 2
    assert np.std(values) > 0


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
def test_bias_by_features(loss: str, launch: Launcher, sparse: Path) -> None:
    result = train(launch, sparse, "--loss", loss, "--bias", 2, "--partition", "features")
    assert result["partition"] == "features"
    by_examples = train(launch, sparse, "--loss", loss, "--bias", 2, "--partition", "examples")
    assert by_examples["partition"] == "examples"
    assert result["primal"] == pytest.approx(by_examples["primal"], rel=1e-6)


def test_class_weight_is_liblinears(launch: Launcher, sparse: Path) -> None:
    result = train(launch, sparse, "--class-weight", "+1=3,-1=0.5")
    assert result["class_weight"] == "+1=3,-1=0.5"
    data = load(sparse)
    theirs = liblinear(data, 3, "-w1 3 -w-1 0.5")
    w = np.array([theirs.w[j] for j in range(data.rows.shape[1])])
    s = np.where(data.labels > 0, 3.0, 0.5)
    check(result, mean_loss(data, "hinge", w, s) + 0.5 * LAM * float(w @ w), "hinge")


@pytest.mark.parametrize("partition", ["examples", "features"])
def test_weights_of_the_examples(partition: str, launch: Launcher, sparse: Path) -> None:
    data = load(sparse)
    s = np.round(np.random.default_rng(1).uniform(0, 3, data.n), 2)
    (launch.directory / "w").write_text("".join(f"{weight}\n" for weight in s))
    options = ("--loss", "logistic", "--weights", "w", "--partition", partition, "--class-weight", "-1=2")
    result = train(launch, sparse, *options)
    assert (result["partition"], result["weighted"]) == (partition, True)
    s = np.where(data.labels < 0, 2.0, 1.0) * s
    theirs = LogisticRegression(C=1 / (LAM * data.n), fit_intercept=False, tol=1e-10, max_iter=10_000)
    w = np.ravel(theirs.fit(data.rows, data.labels, sample_weight=s).coef_)
    expected = mean_loss(data, "logistic", w, s) + 0.5 * LAM * float(w @ w)
    assert result["primal"] == pytest.approx(expected, rel=1e-6)
    assert sidecar(launch.directory / "m")["weighted"] is True


def test_a_shard_whose_examples_all_weigh_nothing(launch: Launcher, sparse: Path) -> None:
    data = load(sparse)
    s = np.zeros(data.n)
    s[3] = 2.0
    np.save(launch.directory / "w.npy", s)
    result = train(launch, sparse, "--loss", "squared_hinge", "--weights", "w.npy")
    assert (result["workers"], result["weighted"]) == (2, True)
    c = 2.0 / (LAM * data.n)  # max(0, 1 - p)^2 s/n + lam/2 |w|^2 for p = |x|^2 a: p = 2 c |x|^2 (1 - p)
    q = 2.0 * c * float((data.rows[3] ** 2).sum())
    assert result["primal"] == pytest.approx(s[3] / data.n / (1.0 + q), rel=1e-6)


def test_intercept_is_not_regularised(launch: Launcher, sparse: Path) -> None:
    result = train(launch, sparse, "--loss", "logistic", "--intercept")
    assert (result["partition"], result["intercept"], result["bias"]) == ("features", True, None)
    data = load(sparse)
    theirs = LogisticRegression(C=1 / (LAM * data.n), tol=1e-10, max_iter=10_000).fit(data.rows, data.labels)
    w = np.append(np.ravel(theirs.coef_), theirs.intercept_)
    expected = mean_loss(data, "logistic", w, np.ones(data.n), 1.0) + 0.5 * LAM * float(w[:-1] @ w[:-1])
    assert result["primal"] == pytest.approx(expected, rel=1e-6)
    ours = model.load(launch.directory / "m")
    assert ours.bias == 1.0
    assert ours.w[-1] == pytest.approx(float(theirs.intercept_[0]), abs=1e-3)


def test_with_an_intercept_means_cost_no_passes(launch: Launcher) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((300, 5))
    y = x @ np.array([2.0, -1.0, 0.5, 0.3, 0.0]) + rng.standard_normal(300)
    passes = []
    for mean in (0.0, 30.0):
        x[:, 0] += mean
        data = write(launch.directory / f"{mean:g}.svm", x, y)
        result = train(launch, data, "--loss", "squared", "--l1-ratio", 1, "--intercept", "--dtype", "float64")
        theirs = Lasso(alpha=LAM, tol=1e-12, max_iter=10**6).fit(x, y)
        off = theirs.predict(x) - y
        expected = 0.5 * float((off**2).mean()) + LAM * float(np.abs(theirs.coef_).sum())
        assert result["primal"] == pytest.approx(expected, rel=1e-6)
        passes.append(result["data_passes"])
    assert passes[1] <= 2.0 * passes[0]


@pytest.mark.parametrize(
    ("options", "offender"),
    [
        (("--intercept",), "--intercept"),
        (("--intercept", "--loss", "logistic", "--partition", "examples"), "--intercept"),
        (("--class-weight", "2=3"), "--class-weight 2=3: no example has that label; the labels are "),
        (("--weights", "nowhere"), "nowhere"),
        (("--weights", "w", "--deal", ".", "--workers", "127.0.0.1:1"), "--weights w"),
    ],
)
def test_refused(options: tuple[str, ...], offender: str, launch: Launcher, sparse: Path) -> None:
    finished = launch.run("coordinator", "train", sparse, "--quiet", *options)
    assert finished.exit_code == (4 if offender == "nowhere" else 2)
    assert offender in finished.stderr
    assert "Traceback" not in finished.stderr
    if "--intercept" in options:
        assert "--bias" in finished.stderr


def test_workers_with_weights_of_their_own(launch: Launcher, sparse: Path) -> None:
    data = load(sparse)
    s = np.round(np.random.default_rng(1).uniform(0, 3, data.n), 2)
    (launch.directory / "w").write_text("".join(f"{weight}\n" for weight in s))
    with_file = train(launch, sparse, "--weights", "w", "--bias", 1)
    workers = launch.workers(sparse, 2, "--weights", "w")
    addresses = ",".join(worker.address for worker in workers)
    served = launch.run(
        *("coordinator", "train", "--workers", addresses, "--lam", LAM, "--tol", 1e-7, "--json", "--quiet", "--bias", 1)
    )
    assert served.exit_code == 0, served.stderr
    assert only_json(served.stdout)["primal"] == pytest.approx(with_file["primal"], rel=1e-12)
    plain = launch.workers(sparse, 2)
    mixed = launch.run("coordinator", "train", "--workers", f"{workers[0].address},{plain[1].address}", "--quiet")
    assert mixed.exit_code == 5
    assert f"have weights of the examples, but not {plain[1].address}" in mixed.stderr
