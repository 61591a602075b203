"""The model file: exact, LIBLINEAR's, and refused when it is not whole."""

import errno
import io
import json
import os
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from liblinear import liblinearutil
from liblinear.liblinear import solver_names
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_iris

from acccocoa import losses
from acccocoa import model as model_module
from acccocoa.errors import AcccocoaError, DataError, NumericalError, UsageError
from acccocoa.examples import Examples
from acccocoa.model import Model, check_model_path, load, score, sidecar_path

CLASSIFIERS = [name for name in losses.NAMES if losses.loss(name).classifier]
REGRESSIONS = [name for name in losses.NAMES if name not in CLASSIFIERS]
FLOATS = st.floats(allow_nan=False, allow_infinity=False)

LIBLINEAR_TYPE = {
    "hinge": solver_names.L2R_L1LOSS_SVC_DUAL,
    "squared_hinge": solver_names.L2R_L2LOSS_SVC_DUAL,
    "logistic": solver_names.L2R_LR_DUAL,
    "epsilon_insensitive": solver_names.L2R_L1LOSS_SVR_DUAL,
    "squared_epsilon_insensitive": solver_names.L2R_L2LOSS_SVR_DUAL,
}


def labels_for(loss: str) -> tuple[str, ...]:
    return ("+1", "-1") if loss in CLASSIFIERS else ()


def examples_from(x: NDArray[np.float64], y: Sequence[float] | NDArray[np.float64] | None = None) -> Examples:
    """The non-zero entries of a dense matrix."""
    mask = x != 0
    return Examples(
        indptr=np.concatenate(([0], np.cumsum(mask.sum(axis=1)))).astype(np.int64),
        indices=np.nonzero(mask)[1].astype(np.int32),
        values=x[mask],
        labels=np.zeros(len(x)) if y is None else np.asarray(y, dtype=np.float64),
    )


def labelled(*y: float) -> Examples:
    return examples_from(np.zeros((len(y), 1)), y)


def sparse_matrix(n: int, d: int, seed: int = 0) -> NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    x: NDArray[np.float64] = rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.3)
    return x


def same(a: Model, b: Model) -> bool:
    """Every field, and the weights bit by bit (0.0 is not -0.0)."""
    return (a.loss, a.labels, a.bias, a.w.tobytes()) == (b.loss, b.labels, b.bias, b.w.tobytes())


def liblinear_reads(path: Path) -> Any:
    return liblinearutil.load_model(str(path))


def liblinear_decides(model: Any, x: NDArray[np.float64]) -> tuple[list[float], NDArray[np.float64]]:
    rows = [{j + 1: value for j, value in enumerate(row) if value} for row in x.tolist()]
    predictions, _, values = liblinearutil.predict([], rows, model, "-q")
    return predictions, np.ravel(values)


# --- the two files


@pytest.mark.parametrize("name", ["model", "model.npz", "MODEL.NPZ"])
@settings(deadline=None)  # a sync to disk takes what it takes
@given(
    loss=st.sampled_from(losses.NAMES),
    w=st.lists(FLOATS, min_size=1, max_size=20),
    bias=st.one_of(st.just(-1.0), FLOATS),
)
def test_round_trip_is_exact(
    tmp_path_factory: pytest.TempPathFactory, name: str, loss: str, w: list[float], bias: float
) -> None:
    path = tmp_path_factory.mktemp("model") / name
    model = Model(loss, labels_for(loss), np.array(w), bias)
    model.save(path, {})
    assert same(load(path), model)


@pytest.mark.parametrize("name", ["model", "model.npz"])
@pytest.mark.parametrize(
    "labels",
    [("+1", "-1"), ("1", "0"), ("1.0", "-1.00"), ("2", "1e0"), (".5", "5e-1000"), ("1e300", "3"), ("007", "-0")],
)
def test_labels_come_back_as_spelled(tmp_path: Path, name: str, labels: tuple[str, str]) -> None:
    Model("hinge", labels, np.ones(2)).save(tmp_path / name, {})
    assert load(tmp_path / name).labels == labels


@pytest.mark.parametrize(
    ("labels", "line", "read"),
    [
        (("+1", "-1"), "label +1 -1", [1, -1]),
        (("1.0", "2e0"), "label 1 2", [1, 2]),
        (("0", "007"), "label 0 007", [0, 7]),
        (("0.5", "1"), "label 0.5 1", None),
        (("1", "0.5"), "label 1 0.5", None),
        (("4294967297", "2"), "label 4294967297.0 2", None),  # not an int there: better refused than turned into 1
    ],
)
def test_labels_as_liblinear_reads_them(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], labels: tuple[str, str], line: str, read: list[int] | None
) -> None:
    path = tmp_path / "model"
    Model("hinge", labels, np.ones(2)).save(path, {})
    assert path.read_text().splitlines()[2] == line
    theirs = liblinear_reads(path)
    assert (theirs and theirs.get_labels()) == read
    sidecar_path(path).unlink()
    assert [float(label) for label in load(path).labels] == [float(label) for label in labels]
    capfd.readouterr()  # LIBLINEAR's complaints


def test_text_is_liblinears(tmp_path: Path) -> None:
    path = tmp_path / "model"
    Model("squared_hinge", ("+1", "-1"), np.array([0.1, -2.0, 0.0]), 1.0).save(path, {})
    assert path.read_bytes() == (
        b"solver_type L2R_L2LOSS_SVC_DUAL\nnr_class 2\nlabel +1 -1\nnr_feature 2\nbias 1\nw\n"
        b"0.10000000000000001 \n-2 \n0 \n"
    )
    Model("squared", (), np.array([0.1])).save(path, {})
    assert path.read_bytes() == (
        b"solver_type L2R_L2LOSS_SVR_DUAL\nnr_class 2\nnr_feature 1\nbias -1\nw\n0.10000000000000001 \n"
    )


def test_sidecar_holds_the_report(tmp_path: Path) -> None:
    path = tmp_path / "model.txt"
    report = {
        "status": "converged",
        "rounds": np.int64(7),
        "gap": np.float32(0.5),
        "dual": -np.inf,
        "seconds": {"load": 1.5, "solve": np.nan},
        "workers": ({"steps": 3},),
        "labels": "replaced",
        "loss": "replaced",
    }
    Model("huber", (), np.ones(2)).save(path, report)
    sidecar = json.loads((tmp_path / "model.txt.json").read_bytes())
    assert len(sidecar.pop("model_sha256")) == 64
    assert sidecar == {
        "status": "converged",
        "rounds": 7,
        "gap": 0.5,
        "dual": None,
        "seconds": {"load": 1.5, "solve": None},
        "workers": [{"steps": 3}],
        "labels": [],
        "loss": "huber",
    }


def test_same_model_same_bytes(tmp_path: Path) -> None:
    for name in ("model", "model.npz"):
        contents = set()
        for _ in range(2):
            Model("hinge", ("+1", "-1"), np.ones(2)).save(tmp_path / name, {})
            contents.add((tmp_path / name).read_bytes())
        assert len(contents) == 1


def test_sidecar_of_another_model_is_ignored(tmp_path: Path) -> None:
    path, other = tmp_path / "model", tmp_path / "other"
    Model("smoothed_hinge", ("1.0", "-1.0"), np.ones(2)).save(path, {})
    Model("hinge", ("+1", "-1"), np.ones(3)).save(other, {})
    sidecar_path(other).replace(sidecar_path(path))
    model = load(path)
    assert (model.loss, model.labels) == ("hinge", ("1", "-1"))


@pytest.mark.parametrize(
    "change",
    [
        {"labels": ["2.0", "-1.0"]},  # other values
        {"labels": ["-1.0", "1.0"]},  # the other way round
        {"labels": ["1.0", "-1.0", "0"]},
        {"labels": ["1.0", -1.0]},
        {"labels": ["one", "-1.0"]},
        {"labels": None},
        {"loss": "squared"},
        {"loss": "absent"},
        {"loss": []},
    ],
)
def test_sidecar_that_contradicts_the_model_is_ignored(tmp_path: Path, change: Mapping[str, object]) -> None:
    path = tmp_path / "model"
    Model("smoothed_hinge", ("1.0", "-1.0"), np.ones(2)).save(path, {})
    sidecar = json.loads(sidecar_path(path).read_bytes())
    sidecar_path(path).write_text(json.dumps({**sidecar, **change}))
    model = load(path)
    assert model.loss == ("hinge" if "loss" in change else "smoothed_hinge")
    assert model.labels == (("1", "-1") if "labels" in change else ("1.0", "-1.0"))


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff", b'{"labels": ["1.0", "-1.0"]}'])
def test_sidecar_that_is_none_of_ours_is_ignored(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model"
    Model("hinge", ("1.0", "-1.0"), np.ones(2)).save(path, {})
    sidecar_path(path).write_bytes(content)
    assert load(path).labels == ("1", "-1")


def test_model_without_sidecar(tmp_path: Path) -> None:
    path = tmp_path / "model"
    Model("hinge", ("+1", "-1"), np.ones(2)).save(path, {})
    sidecar_path(path).unlink()
    assert load(path).labels == ("+1", "-1")


def test_failure_between_the_two_files_leaves_the_new_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model"
    Model("hinge", ("1.0", "-1.0"), np.ones(2)).save(path, {})
    replace_file = Path.replace

    def fail_on_sidecar(source: Path, target: Path) -> Path:
        if target.name.endswith(".json"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return replace_file(source, target)

    monkeypatch.setattr(Path, "replace", fail_on_sidecar)
    with pytest.raises(UsageError):
        Model("hinge", ("1.0", "-1.0"), np.zeros(2)).save(path, {})
    model = load(path)
    assert model.w.tolist() == [0, 0]
    assert model.labels == ("1", "-1")  # the old sidecar no longer counts


def test_report_that_cannot_be_written_leaves_both_old_files(tmp_path: Path) -> None:
    path = tmp_path / "model"
    Model("hinge", ("1.0", "-1.0"), np.ones(2)).save(path, {"rounds": 1})
    with pytest.raises(TypeError):
        Model("hinge", ("1.0", "-1.0"), np.zeros(2)).save(path, {"rounds": object()})
    assert load(path).w.tolist() == [1, 1]
    assert json.loads(sidecar_path(path).read_bytes())["rounds"] == 1
    assert {entry.name for entry in tmp_path.iterdir()} == {"model", "model.json"}


def test_check_model_path_looks_at_both_files(tmp_path: Path) -> None:
    check_model_path(tmp_path / "model")
    with pytest.raises(UsageError, match="absent/model"):
        check_model_path(tmp_path / "absent" / "model")
    (tmp_path / "model.json").mkdir()
    with pytest.raises(UsageError, match=r"model\.json: is a directory"):
        check_model_path(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_millions_of_weights(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    w = np.where(rng.random(500_000) < 0.5, rng.standard_normal(500_000), 0.0)
    for name in ("model", "model.npz"):
        model = Model("logistic", ("+1", "-1"), w)
        model.save(tmp_path / name, {})
        assert same(load(tmp_path / name), model)


# --- LIBLINEAR


@pytest.mark.parametrize("bias", [-1.0, 0.0, 2.5])
@pytest.mark.parametrize("loss", losses.NAMES)
def test_liblinear_reads_ours_and_decides_alike(tmp_path: Path, loss: str, bias: float) -> None:
    rng = np.random.default_rng(1)
    model = Model(loss, labels_for(loss), rng.standard_normal(10 + (bias >= 0)), bias)
    model.save(tmp_path / "model", {})
    theirs = liblinear_reads(tmp_path / "model")
    assert theirs.get_nr_feature() == 10
    assert theirs.is_regression_model() == (loss in REGRESSIONS)
    assert theirs.is_probability_model() == (loss == "logistic")
    assert theirs.param.solver_type == LIBLINEAR_TYPE.get(loss, theirs.param.solver_type)
    x = np.vstack(
        (sparse_matrix(50, 12), np.zeros((1, 12)))
    )  # with features the model has never seen, and a row of none
    predictions, values = liblinear_decides(theirs, x)
    ours = model.decision_values(examples_from(x))
    np.testing.assert_allclose(ours, values, rtol=1e-14, atol=1e-14)
    assert model.predict_labels(ours).astype(float).tolist() == pytest.approx(predictions, rel=1e-14)


@pytest.mark.parametrize(
    ("solver", "loss"),
    [
        (solver_names.L2R_LR, "logistic"),
        (solver_names.L2R_LR_DUAL, "logistic"),
        (solver_names.L1R_LR, "logistic"),
        (solver_names.L2R_L1LOSS_SVC_DUAL, "hinge"),
        (solver_names.L2R_L2LOSS_SVC, "squared_hinge"),
        (solver_names.L2R_L2LOSS_SVC_DUAL, "squared_hinge"),
        (solver_names.L1R_L2LOSS_SVC, "squared_hinge"),
        (solver_names.L2R_L2LOSS_SVR, "squared_epsilon_insensitive"),
        (solver_names.L2R_L2LOSS_SVR_DUAL, "squared_epsilon_insensitive"),
        (solver_names.L2R_L1LOSS_SVR_DUAL, "epsilon_insensitive"),
    ],
)
@pytest.mark.parametrize("bias", ["-1", "1"])
def test_ours_reads_liblinears(tmp_path: Path, solver: int, loss: str, bias: str) -> None:
    x, y = load_breast_cancer(return_X_y=True)
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    theirs = liblinearutil.train(y * 2.0 - 1, x, f"-s {solver} -B {bias} -e 0.1 -q")
    liblinearutil.save_model(str(tmp_path / "theirs"), theirs)
    model = load(tmp_path / "theirs")
    assert model.loss == loss
    # LIBLINEAR's order is that of appearance (the first row here is of class -1), but of -1 and +1 it puts +1 first
    assert model.labels == (("1", "-1") if loss in CLASSIFIERS else ())
    predictions, values = liblinear_decides(theirs, x)
    ours = model.decision_values(examples_from(x))
    np.testing.assert_allclose(ours, values, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(model.predict_labels(ours).astype(float), predictions, rtol=1e-12)
    if loss in CLASSIFIERS:
        accuracy = score(model.predict_labels(ours), examples_from(x, y * 2.0 - 1))["accuracy"]
        assert accuracy is not None
        assert accuracy > 0.95

    if solver in LIBLINEAR_TYPE.values():  # the solver's name is one we write: nothing at all may change
        model.save(tmp_path / "ours", {})
        assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()


def test_liblinears_own_order_of_labels(tmp_path: Path) -> None:
    theirs = liblinearutil.train([3, 5, 5], [{1: 1.0}, {1: -1.0}, {1: -2.0}], "-s 3 -q")
    liblinearutil.save_model(str(tmp_path / "theirs"), theirs)
    model = load(tmp_path / "theirs")
    assert model.labels == ("3", "5")
    values = model.decision_values(examples_from(np.array([[1.0], [-1.0]])))
    assert model.predict_labels(values).tolist() == ["3", "5"]


@pytest.mark.parametrize(
    ("y", "solver", "message"),
    [
        ([1, 1, 1], 3, ":2: nr_class is 1, and only classifiers of 2 or more and regression (2) are read"),
        ([1, 2, 1], 4, ":1: solver_type 'MCSVM_CS' is not supported; those that are: L2R_LR, "),
        ([1, 1, 1], 21, ":5: is of a one-class model; only classifiers and regression are read"),
    ],
)
def test_liblinear_models_of_other_kinds(tmp_path: Path, y: list[int], solver: int, message: str) -> None:
    theirs = liblinearutil.train(y, [{1: 1.0}, {1: -1.0}, {2: -2.0}], f"-s {solver} -q")
    liblinearutil.save_model(str(tmp_path / "theirs"), theirs)
    with pytest.raises(DataError) as caught:
        load(tmp_path / "theirs")
    assert str(caught.value).startswith(f"{tmp_path / 'theirs'}{message}")


# --- more than two classes


@pytest.mark.parametrize("bias", [-1.0, 2.5])
@pytest.mark.parametrize(
    ("solver", "loss"),
    [
        (solver_names.L2R_LR_DUAL, "logistic"),
        (solver_names.L2R_L1LOSS_SVC_DUAL, "hinge"),
        (solver_names.L2R_L2LOSS_SVC_DUAL, "squared_hinge"),
    ],
)
def test_more_than_two_classes_as_liblinear_has_them(tmp_path: Path, solver: int, loss: str, bias: float) -> None:
    x, y = load_iris(return_X_y=True)
    theirs = liblinearutil.train(y * 10.0 - 3.0, x, f"-s {solver} -B {bias} -q")
    liblinearutil.save_model(str(tmp_path / "theirs"), theirs)
    model = load(tmp_path / "theirs")
    assert (model.loss, model.labels, model.classes) == (loss, ("-3", "7", "17"), 3)
    assert model.w.shape == (3, 4 + (bias >= 0))
    predictions, _, values = liblinearutil.predict([], x, theirs, "-q")
    ours = model.decision_values(examples_from(x))
    np.testing.assert_allclose(ours, values, rtol=1e-12, atol=1e-12)
    assert model.predict_labels(ours).astype(float).tolist() == predictions
    assert len(set(predictions)) == 3
    if loss == "logistic":
        _, _, probabilities = liblinearutil.predict([], x, theirs, "-q -b 1")
        np.testing.assert_allclose(model.probabilities(ours), probabilities, rtol=1e-12)
    model.save(tmp_path / "ours", {})
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()


@pytest.mark.parametrize("name", ["model", "model.npz"])
@pytest.mark.parametrize("bias", [-1.0, 1.0])
def test_round_trip_of_more_than_two_classes(tmp_path: Path, name: str, bias: float) -> None:
    w = np.random.default_rng(0).standard_normal((4, 7 + (bias >= 0)))
    model = Model("hinge", ("-1", "0", "2.0", "+5"), w, bias)
    assert (model.classes, model.nr_feature, model.is_classifier) == (4, 7, True)
    model.save(tmp_path / name, {})
    assert same(load(tmp_path / name), model)


def test_the_first_of_equal_values_wins() -> None:
    model = Model("hinge", ("3", "1", "2"), np.zeros((3, 2)))
    assert model.predict_labels(model.decision_values(examples_from(np.ones((2, 2))))).tolist() == ["3", "3"]


def test_probabilities_of_more_than_two_classes_that_all_underflow() -> None:
    model = Model("logistic", ("1", "2", "3"), np.array([[-1e4], [-1e4], [-1e4]]))
    assert model.probabilities(model.decision_values(examples_from(np.ones((1, 1))))).tolist() == [[1 / 3] * 3]


@pytest.mark.parametrize(
    ("labels", "w", "message"),
    [
        (("1", "2", "3"), np.zeros(4), "weights of shape (4,): "),
        (("1", "2", "3"), np.zeros((2, 4)), "2 vectors of weights: do not belong to 3 labels"),
        (("1", "2", "1.0"), np.zeros((3, 4)), "labels 1, 2, 1.0: "),
        (("1", "2"), np.zeros((2, 4)), "weights of shape (2, 4): "),
    ],
)
def test_shapes_that_do_not_fit(labels: tuple[str, ...], w: NDArray[np.float64], message: str) -> None:
    with pytest.raises(DataError) as caught:
        Model("hinge", labels, w)
    assert str(caught.value).startswith(message)


THREE = "solver_type L2R_LR\nnr_class 3\nlabel 1 2 3\nnr_feature 2\nbias -1\nw\n0.5 1 2 \n-1 0 1e-3 \n"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("-1 0 1e-3 \n", "", ":7: the file ends after 1 of 2 lines of weights; it is truncated"),
        ("-1 0 1e-3 \n", "-1 0 1e-3", ":8: '-1 0 1e-3' is not 3 weights"),
        ("-1 0 1e-3", "-1 0", ":8: '-1 0' is not 3 weights"),
        ("-1 0 1e-3", "-1 0 1_0", ":8: '-1 0 1_0' is not 3 weights"),
        ("-1 0 1e-3", "-1 0 inf", ":8: '-1 0 inf' is not 3 weights"),
        ("1e-3 \n", "1e-3 \n1 2 3\n", ":9: something follows the last of 2 lines"),
        ("label 1 2 3", "label 1 2 +2", ":3: two labels are +2"),
        ("label 1 2 3", "label 1 2", ":3: label is followed by 2 values instead of 3"),
        ("solver_type L2R_LR", "solver_type L2R_L2LOSS_SVR", ":2: nr_class is 3, and only classifiers"),
    ],
)
def test_text_that_is_not_a_whole_model_of_three_classes(tmp_path: Path, old: str, new: str, message: str) -> None:
    (tmp_path / "model").write_text(THREE)
    assert load(tmp_path / "model").w.tolist() == [[0.5, -1.0], [1.0, 0.0], [2.0, 1e-3]]
    (tmp_path / "model").write_text(THREE.replace(old, new))
    with pytest.raises(DataError) as caught:
        load(tmp_path / "model")
    assert str(caught.value).startswith(f"{tmp_path / 'model'}{message}")


# --- what is refused

WHOLE = "solver_type L2R_LR\nnr_class 2\nlabel 1 -1\nnr_feature 2\nbias 1\nw\n0.5 \n-1 \n2e-3 \n"


def test_whole_model_is_read(tmp_path: Path) -> None:
    (tmp_path / "model").write_text(WHOLE)
    assert same(load(tmp_path / "model"), Model("logistic", ("1", "-1"), np.array([0.5, -1, 0.002]), 1.0))
    (tmp_path / "model").write_bytes(WHOLE.replace("\n", "\r\n").encode())
    assert load(tmp_path / "model").w.tolist() == [0.5, -1, 0.002]
    lines = WHOLE.splitlines(keepends=True)
    (tmp_path / "model").write_text("".join(lines[4::-1] + lines[5:]))  # LIBLINEAR takes the header in any order
    assert load(tmp_path / "model").bias == 1


def test_model_without_features(tmp_path: Path) -> None:
    for w, bias, value in (((), -1.0, 0.0), ((2.0,), 1.5, 3.0)):
        Model("squared", (), np.array(w), bias).save(tmp_path / "model", {})
        model = load(tmp_path / "model")
        assert model.nr_feature == 0
        assert model.decision_values(examples_from(np.ones((2, 3)))).tolist() == [value, value]


TRUNCATED = "; it is truncated: copy or train it again"
CUT = "the file ends before its weights (line 'w'); it is truncated, or not a LIBLINEAR model"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (WHOLE, "", f":0: {CUT}"),
        ("w\n0.5 \n-1 \n2e-3 \n", "", f":5: {CUT}"),
        (
            "solver_type",
            "\x00",
            f":1: starts with {chr(0)!r}, where solver_type, nr_class, label, nr_feature, bias or w",
        ),
        ("nr_class 2", "", ":2: starts with '', where "),
        (WHOLE, "\xff" * 50, f":1: starts with {chr(0xFFFD) * 40 + '...'!r}, where "),
        ("w\n", "weights\n", ":6: starts with 'weights', where "),
        ("nr_class 2", "solver_type L2R_LR", ":2: solver_type is given a second time"),
        ("solver_type L2R_LR\n", "", ":5: the header ends without solver_type"),
        ("nr_class 2\n", "", ":5: the header ends without nr_class"),
        ("label 1 -1\n", "", ":5: the header ends without label"),
        ("nr_feature 2\n", "", ":5: the header ends without nr_feature"),
        ("bias 1\n", "", ":5: the header ends without bias"),
        ("L2R_LR", "", ":1: solver_type is followed by 0 values instead of 1"),
        ("nr_class 2", "nr_class 2 2", ":2: nr_class is followed by 2 values instead of 1"),
        ("label 1 -1", "label 1", ":3: label is followed by 1 values instead of 2"),
        ("L2R_LR", "L2R_LP", ":1: solver_type 'L2R_LP' is not supported; those that are: L2R_LR, "),
        ("nr_class 2", "nr_class two", ":2: nr_class 'two' is not a number of classes"),
        ("nr_class 2", "nr_class -2", ":2: nr_class '-2' is not a number of classes"),
        ("nr_class 2", "nr_class " + "9" * 9999, f":3: label is followed by 2 values instead of {'9' * 40}"),
        ("nr_class 2", "nr_class 3", ":3: label is followed by 2 values instead of 3"),
        ("nr_class 2", "nr_class 1", ":2: nr_class is 1, and only classifiers of 2 or more"),
        ("label 1 -1", "label 1 b", ":3: label 'b' is not a finite number"),
        ("label 1 -1", "label nan -1", ":3: label 'nan' is not a finite number"),
        ("label 1 -1", "label 1 +1", ":3: two labels are +1"),
        ("L2R_LR", "L2R_L2LOSS_SVR", ":3: a model of L2R_L2LOSS_SVR (regression) has no labels"),
        ("nr_feature 2", "nr_feature 2.0", ":4: nr_feature '2.0' is not a number of features"),
        ("nr_feature 2", "nr_feature -2", ":4: nr_feature '-2' is not a number of features"),
        ("bias 1", "bias one", ":5: bias 'one' is not a finite number"),
        ("bias 1", "bias inf", ":5: bias 'inf' is not a finite number"),
        ("2e-3 \n", "", f":8: the file ends after 2 of 3 weights{TRUNCATED}"),
        ("2e-3 \n", "2e-", f":8: the file ends after 2 of 3 weights{TRUNCATED}"),
        ("0.5 \n-1 \n2e-3 \n", "", f":6: the file ends after 0 of 3 weights{TRUNCATED}"),
        ("nr_feature 2", "nr_feature " + "9" * 9999, f":9: the file ends after 3 of {10**40} weights{TRUNCATED}"),
        ("bias 1", "bias -1", ":9: something follows the last of 2 weights"),
        ("2e-3 \n", "2e-3 \n1", ":10: something follows the last of 3 weights"),
        ("-1 \n", "nan \n", ":8: 'nan' is not a weight: one finite number a line"),
        ("-1 \n", "-inf \n", ":8: '-inf' is not a weight: one finite number a line"),
        ("2e-3", "2e999", ":9: '2e999' is not a weight: one finite number a line"),
        ("-1 \n", "\n", ":8: '' is not a weight: one finite number a line"),
        ("-1 \n", "1_0 \n", ":8: '1_0' is not a weight: one finite number a line"),
        ("-1 \n", "1 2 \n", ":8: '1 2' is not a weight: one finite number a line"),
        ("-1 \n", "\x1c-1 \n", f":8: {chr(0x1C) + '-1'!r} is not a weight: one finite number a line"),
        ("-1 \n", "0x1p3 \n", ":8: '0x1p3' is not a weight: one finite number a line"),
    ],
)
def test_text_that_is_not_a_whole_model(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert WHOLE.count(old) == 1
    (tmp_path / "model").write_bytes(WHOLE.replace(old, new).encode("latin-1"))
    with pytest.raises(DataError) as caught:
        load(tmp_path / "model")
    assert str(caught.value).startswith(f"{tmp_path / 'model'}{message}")
    assert message.startswith(":")
    assert len(str(caught.value)) < 500
    assert caught.value.exit_code == 4


def test_every_cut_of_a_model_is_noticed(tmp_path: Path) -> None:
    for size in range(len(WHOLE)):
        (tmp_path / "model").write_text(WHOLE[:size])
        with pytest.raises(DataError):
            load(tmp_path / "model")


@pytest.mark.parametrize("name", ["model", "model.npz"])
def test_file_that_cannot_be_read(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError) as caught:
        load(tmp_path / name)
    assert str(caught.value) == f"{tmp_path / name}: cannot be read: No such file or directory"


def archive(**arrays: Any) -> bytes:
    whole: dict[str, Any] = {"loss": "hinge", "labels": np.array(["+1", "-1"]), "w": np.ones(2), "bias": np.float64(-1)}
    buffer = io.BytesIO()
    np.savez(buffer, **{key: value for key, value in (whole | arrays).items() if value is not None})
    return buffer.getvalue()


def plain_array() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.ones(3))
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not a .npz model: "),
        (WHOLE.encode(), "is not a .npz model: "),
        (plain_array(), "is not a .npz model: "),
        (archive()[:-30], "is not a .npz model: "),
        (archive(w=None), "is not a .npz model: "),
        (archive(labels=np.array([object(), None])), "is not a .npz model: Object arrays cannot be loaded"),
        (archive(loss=1), "is not a .npz model: loss must be a string, and labels a vector of strings"),
        (archive(labels=np.ones(2)), "is not a .npz model: loss must be a string, and labels a vector of strings"),
        (archive(w=np.ones(2, np.float32)), "is not a .npz model: w must be a vector of float64, and bias a float64"),
        (archive(bias=1), "is not a .npz model: w must be a vector of float64, and bias a float64"),
        (archive(w=np.array([1, np.nan])), "is not a .npz model: weight 2 of 2: is nan, and must be finite"),
        (archive(w=np.ones((2, 2))), "is not a .npz model: weights of shape (2, 2): a model has one vector of weights"),
        (archive(loss="absent"), "is not a .npz model: loss 'absent': must be one of hinge, "),
    ],
)
def test_archive_that_is_not_a_whole_model(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "model.npz"
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}: {message}")


def test_damaged_archive_is_noticed(tmp_path: Path) -> None:
    content = bytearray(archive(w=np.arange(100.0)))
    content[content.index(np.float64(50).tobytes())] ^= 1
    (tmp_path / "model.npz").write_bytes(content)
    with pytest.raises(DataError, match="Bad CRC"):
        load(tmp_path / "model.npz")


def test_member_of_an_archive_that_is_no_array(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    path.write_bytes(archive(bias=None))
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("bias.npy", "-1")
    with pytest.raises(DataError, match="loss, labels, w and bias must be arrays"):
        load(path)


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda: Model("absent", (), np.ones(1)), UsageError, "loss 'absent': must be one of hinge, "),
        (
            lambda: Model("hinge", (), np.ones(1)),
            DataError,
            "labels none: a model of loss hinge has two different labels",
        ),
        (lambda: Model("hinge", ("1", "+1"), np.ones(1)), DataError, "labels 1, +1: a model of loss hinge has two"),
        (
            lambda: Model("squared", ("1", "2"), np.ones(1)),
            DataError,
            "labels 1, 2: a model of loss squared has no labels",
        ),
        (lambda: Model("hinge", ("1", "b"), np.ones(1)), DataError, "label 'b': must be a finite number"),
        (lambda: Model("hinge", ("1", "inf"), np.ones(1)), DataError, "label 'inf': must be a finite number"),
        (lambda: Model("hinge", ("1", "2 3"), np.ones(1)), DataError, "label '2 3': must be a finite number"),
        (
            lambda: Model("squared", (), np.ones((2, 3))),
            DataError,
            "weights of shape (2, 3): a model has one vector of",
        ),
        (lambda: Model("squared", (), np.ones(0), 1.0), DataError, "bias 1: needs a weight of its own"),
        (lambda: Model("squared", (), np.ones(1), np.nan), NumericalError, "bias nan: must be finite"),
        (
            lambda: Model("squared", (), np.array([0, np.inf])),
            NumericalError,
            "weight 2 of 2: is inf, and must be finite",
        ),
    ],
)
def test_model_that_makes_no_sense(make: Callable[[], Model], kind: type[AcccocoaError], message: str) -> None:
    with pytest.raises(kind) as caught:
        make()
    assert str(caught.value).startswith(message)


# --- use


def test_model_cannot_be_changed() -> None:
    w = np.ones(2)
    model = Model("squared", (), w)
    w[0] = 5
    assert model.w.tolist() == [1, 1]
    with pytest.raises(ValueError, match="read-only"):
        model.w[0] = 5


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("bias", [-1.0, 0.5])
def test_decision_values_are_computed_in_float64(dtype: type[np.float32] | type[np.float64], bias: float) -> None:
    x = sparse_matrix(40, 15)
    exact = examples_from(x)
    values: Any = exact.values.astype(dtype)
    rounded = replace(exact, values=values)
    w = np.random.default_rng(2).standard_normal(15 + (bias >= 0))
    decided = Model("squared", (), w, bias).decision_values(rounded)
    expected = x.astype(dtype).astype(np.float64) @ w[:15] + (bias * w[15] if bias >= 0 else 0)
    assert decided.dtype == np.float64
    np.testing.assert_allclose(decided, expected, rtol=1e-14, atol=1e-14)


def test_features_the_model_lacks_count_for_nothing() -> None:
    model = Model("squared", (), np.array([1.0, 2.0, 100.0]), 1.0)
    far = Examples(
        indptr=np.array([0, 2, 3, 3]),
        indices=np.array([1, 2**31 - 1, 2], dtype=np.int32),
        values=np.array([3.0, 7.0, 9.0]),
        labels=np.zeros(3),
    )
    assert model.decision_values(far).tolist() == [106, 100, 100]


def test_predictions() -> None:
    values = np.array([2.0, -1e-300, 0.0, 5e-324])
    predictions = Model("hinge", ("+1", "-1.00"), np.ones(1)).predict_labels(values)
    assert predictions.tolist() == ["+1", "-1.00", "-1.00", "+1"]
    assert Model("huber", (), np.ones(1)).predict_labels(values).tolist() == values.tolist()


def test_probabilities() -> None:
    model = Model("logistic", ("+1", "-1"), np.ones(1))
    with np.errstate(all="raise"):
        p = model.probabilities(np.array([0.0, 1.0, -40.0, 40.0, 1e6, -1e6]))
    assert p.shape == (6, 2)
    assert p[0].tolist() == [0.5, 0.5]
    np.testing.assert_allclose(p[1], [1 / (1 + np.exp(-1)), 1 / (1 + np.exp(1))], rtol=1e-15)
    np.testing.assert_allclose([p[2, 0], p[3, 1]], np.exp(-40), rtol=1e-15)
    assert p[4:].tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize("loss", [name for name in losses.NAMES if name != "logistic"])
def test_only_the_logistic_loss_gives_probabilities(loss: str) -> None:
    model = Model(loss, labels_for(loss), np.ones(1))
    assert not model.has_probabilities
    with pytest.raises(UsageError) as caught:
        model.probabilities(np.zeros(1))
    why = (
        "only the logistic loss gives them; train with --loss logistic, or see --calibrate"
        if model.is_classifier
        else "are of labels, and a regression has none; leave them out"
    )
    assert str(caught.value) == f"probabilities of a model of loss {loss}: {why}"


@pytest.mark.parametrize("convert", [list, np.array])
def test_accuracy_compares_labels_by_value(convert: Callable[[list[str]], Any]) -> None:
    predictions = convert(["+1", "-1.0", "+1", "-1.0"])
    assert score(predictions, labelled(1, -1, -1, 0)) == {"n": 4, "n_correct": 2, "accuracy": 0.5}


def test_mean_squared_error_and_r2() -> None:
    assert score(np.array([1.0, 2.0, 3.0]), labelled(1, 2, 6)) == {"n": 3, "mse": 3.0, "r2": pytest.approx(1 - 9 / 14)}
    assert score(np.array([1.0, 2.0]), labelled(1, 1)) == {"n": 2, "mse": 0.5, "r2": None}


def test_score_that_overflows() -> None:
    assert score(np.array([1e200, -1e200]), labelled(1, 2)) == {"n": 2, "mse": None, "r2": None}
    assert score(np.array([1e200, -1e200]), labelled(1e200, -1e200)) == {"n": 2, "mse": 0.0, "r2": None}
    assert score(np.array([np.inf, np.inf]), labelled(1, 2)) == {"n": 2, "mse": None, "r2": None}


def test_score_of_nothing() -> None:
    assert score(np.array([], dtype=np.str_), labelled()) == {"n": 0, "n_correct": 0, "accuracy": None}
    assert score(np.array([], dtype=np.float64), labelled()) == {"n": 0, "mse": None, "r2": None}


def test_score_wants_a_prediction_for_each_example() -> None:
    with pytest.raises(ValueError, match=r"\(1,\) predictions for 2 examples"):
        score(["1"], labelled(1, 1))


def test_every_loss_has_a_solver_name() -> None:
    assert set(model_module._SOLVER_TYPES) == set(losses.NAMES)
    for loss, solver in model_module._SOLVER_TYPES.items():
        assert losses.loss(model_module._LOSSES[solver]).classifier == losses.loss(loss).classifier
