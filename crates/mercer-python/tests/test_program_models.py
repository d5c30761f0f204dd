"""Models of every kind that the program writes: `mercer.load` has the numbers of `mercer predict` and `mercer transform`, to the bit.

The tables have columns of very different scales, words, truth values, dates and missing values, and the program scales them as it does
unless it is told otherwise. MERCER_PROGRAM names the program.
"""

import csv
import datetime
import os
import pickle
import subprocess
import warnings

import numpy as np
import pytest

import mercer

PROGRAM = os.environ.get("MERCER_PROGRAM")
pytestmark = pytest.mark.skipif(not PROGRAM, reason="MERCER_PROGRAM does not name the program")
pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")


def table(n, seed):
    """Columns by name, None where a value is missing."""
    rng = np.random.default_rng(seed)
    size, weight, count = 4000 + 800 * rng.normal(size=n), 0.01 * rng.normal(size=n), rng.integers(0, 50, size=n)
    colour, sold = rng.choice(["red", "blue", "dark, green"], size=n), rng.random(n) < 0.5
    day = [datetime.date(2024, 1, 1) + datetime.timedelta(days=int(d)) for d in rng.integers(0, 300, size=n)]
    y = size / 1000 + 200 * weight + (colour == "red") + 0.5 * sold + 0.1 * rng.normal(size=n)
    columns = {
        "size": size.tolist(),
        "weight": weight.tolist(),
        "count": [None if i % 11 == 3 else int(c) for i, c in enumerate(count)],
        "colour": [None if i % 13 == 5 else str(c) for i, c in enumerate(colour)],
        "sold": sold.tolist(),
        "day": day,
        "y": y.tolist(),
        "kind": np.where(y > np.median(y), "large", "small").tolist(),
    }
    return columns


def write_csv(path, columns):
    with open(path, "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(columns)
        rows.writerows(["" if value is None else repr(value) if isinstance(value, float) else value for value in row] for row in zip(*columns.values(), strict=True))


def run(*arguments):
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The rows to fit, and new rows with their columns in another order, a level that is not known, and no target."""
    folder = tmp_path_factory.mktemp("tables")
    write_csv(folder / "train.csv", table(160, 0))
    new = table(30, 1)
    del new["y"], new["kind"]
    new["colour"][4] = "violet"
    new = dict(reversed(new.items()))
    write_csv(folder / "new.csv", new)
    return folder, new


def frames(new):
    """The new rows as frames of both libraries; the columns of pandas are objects, nullable and categorical where they can be."""
    one = pandas.DataFrame(new)
    other = one.assign(count=one["count"].astype("Int64"), colour=one["colour"].astype("category"), day=pandas.to_datetime(one["day"]))
    return [one, other, polars.DataFrame(new), polars.DataFrame(new, schema_overrides={"colour": polars.Categorical})]


def evaluated(model, frame, what):
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        found = getattr(model, what)(frame)
    assert any("`violet`" in str(one.message) and one.category is mercer.MercerWarning for one in shown)
    return found


def agrees(path, folder, new):
    """The predictions of the program and of Python, with deviations, probabilities or scores where there are some."""
    run("predict", path, folder / "new.csv", "--out", folder / "p.csv")
    with open(folder / "p.csv", newline="") as file:
        (first, *names), *rows = csv.reader(file)
    assert first == "prediction" and len({row[0] for row in rows}) > 1
    model = mercer.load(path)
    for frame in frames(new):
        found = evaluated(model, frame, "predict")
        if not names or names == ["deviation"]:
            assert found.tolist() == [float(row[0]) for row in rows]
        else:
            assert found.tolist() == [row[0] for row in rows]
        if names:
            what = {"deviation": "deviations", "probability": "predict_proba", "score": "scores"}[names[0].split()[0]]
            want = [[float(cell) for cell in row[1:]] for row in rows]
            assert np.array_equal(np.reshape(evaluated(model, frame, what), (len(rows), -1)), want)
    return model


NUMBERS = [
    ["regress"],
    *(["regress", "--method", method] for method in ("ridge", "spectrum", "falkon", "krill", "askotch", "eigenpro", "richardson", "nadaraya-watson")),
    *(["regress", "--method", method, "--rank", "40"] for method in ("nystrom", "random-features", "eigenpro")),
    ["regress", "--kernel", "linear"],
    ["regress", "--method", "rfm", "--rounds", "1"],
    ["regress", "--method", "ntk-ensemble", "--kernel", "ntk(depth=3)"],
    ["gp", "--restarts", "0"],
    ["gp", "--method", "cg", "--restarts", "0"],
    *(["gp", "--method", method, "--restarts", "0", "--rank", "40"] for method in ("nystrom", "random-features", "spectrum")),
]


@pytest.mark.parametrize("way", NUMBERS, ids=" ".join)
def test_numbers(folder, way):
    folder, new = folder
    run(*way, folder / "train.csv", "--target", "y", "--drop", "kind", "--missing", "impute", "--model", folder / "m.mercer")
    model = agrees(folder / "m.mercer", folder, new)
    again = pickle.loads(pickle.dumps(model))
    frame = frames(new)[0]
    assert np.array_equal(evaluated(again, frame, "predict"), evaluated(model, frame, "predict"))


CLASSES = [
    ["regress"],
    ["regress", "--method", "nystrom", "--rank", "40", "--loss", "logistic"],
    ["regress", "--class-weight", "balanced", "--scale", "minmax"],
    ["regress", "--method", "rfm", "--rounds", "1"],
    ["regress", "--method", "nadaraya-watson"],
    ["gp", "--restarts", "0"],
]


@pytest.mark.parametrize("way", CLASSES, ids=" ".join)
def test_classes(folder, way):
    folder, new = folder
    run(*way, folder / "train.csv", "--target", "kind", "--drop", "y", "--missing", "impute", "--model", folder / "m.mercer")
    agrees(folder / "m.mercer", folder, new)


COORDINATES = [
    *(["fit", "--k", "4", "--method", method] for method in ("exact", "krylov", "nystrom", "rff")),
    ["fit", "--k", "2", "--method", "neuralef", "--steps", "20"],
    *(["embed", "--method", method] for method in ("kpca", "laplacian", "diffusion")),
    ["eigenmap", "--net", "dense(16) relu", "--k", "3", "--epochs", "2"],
]


@pytest.mark.parametrize("way", COORDINATES, ids=" ".join)
def test_coordinates(folder, way):
    folder, new = folder
    out = "--model" if way[0] == "embed" else "--out"
    run(*way, folder / "train.csv", "--drop", "y,kind", "--missing", "impute", out, folder / "m.mercer")
    run("transform", folder / "m.mercer", folder / "new.csv", "--out", folder / "z.npy")
    want = np.load(folder / "z.npy")
    assert (want.std(axis=0) > 0).all()
    model = mercer.load(folder / "m.mercer")
    for frame in frames(new):
        assert np.array_equal(evaluated(model, frame, "transform"), want)
    model.save(folder / "again.mercer")
    assert np.array_equal(evaluated(mercer.load(folder / "again.mercer"), frames(new)[0], "transform"), want)


@pytest.mark.parametrize(("target", "other", "outputs"), [("y", "kind", 1), ("kind", "y", 2)])
def test_networks_and_their_uncertainty(folder, target, other, outputs):
    folder, new = folder
    common = ["--target", target, "--drop", other, "--missing", "impute"]
    snapshots = ["--snapshots", folder / f"snapshots-{target}"]
    run("train", folder / "train.csv", *common, "--net", f"dense(8) tanh dense({outputs})", "--epochs", 8, *snapshots, "--out", folder / "n.safetensors")
    model = agrees(folder / "n.safetensors", folder, new)
    with pytest.raises(ValueError, match="copy its file"):
        pickle.dumps(model)
    for method in ("map", "last-layer", "kfac") if outputs == 2 else ("last-layer",):
        run("laplace", folder / "n.safetensors", folder / "train.csv", *common, "--method", method, "--out", folder / "l.mercer")
        agrees(folder / "l.mercer", folder, new)
    if outputs == 2:
        run("trajectory", snapshots[1], folder / "train.csv", *common, "--out", folder / "t.mercer")
        agrees(folder / "t.mercer", folder, new)


def test_arrays_have_the_columns_in_their_order(folder):
    """Numbers alone, scaled: arrays in double and single precision, and rows that are given as lists."""
    folder, _ = folder
    rng = np.random.default_rng(2)
    x, new = 1000 * rng.normal(size=(80, 3)) + [0, 5000, 7], 1000 * rng.normal(size=(9, 3))
    y = x[:, 0] + x[:, 1]
    np.save(folder / "xy.npy", np.c_[x, y])
    for precision in (np.float64, np.float32):
        np.save(folder / "new.npy", new.astype(precision))
        run("regress", folder / "xy.npy", "--target", "4", "--model", folder / "m.mercer")
        run("predict", folder / "m.mercer", folder / "new.npy", "--out", folder / "p.npy")
        model, want = mercer.load(folder / "m.mercer"), np.load(folder / "p.npy").ravel()
        assert want.std() > 100
        for rows in (new.astype(precision), new.astype(precision).tolist(), np.asfortranarray(new.astype(precision))):
            assert np.array_equal(model.predict(rows), want)
        run("fit", folder / "xy.npy", "--drop", "4", "--k", 3, "--out", folder / "s.mercer")
        run("transform", folder / "s.mercer", folder / "new.npy", "--out", folder / "z.npy")
        assert np.array_equal(mercer.load(folder / "s.mercer").transform(new.astype(precision)), np.load(folder / "z.npy"))


def test_what_does_not_fit_is_said(folder):
    folder, new = folder
    run("regress", folder / "train.csv", "--target", "y", "--drop", "kind", "--missing", "impute", "--model", folder / "m.mercer")
    model, frame = mercer.load(folder / "m.mercer"), pandas.DataFrame(new)
    with pytest.raises(ValueError, match="has no column `colour`, which was fitted; did you mean .color2"):
        model.predict(frame.rename(columns={"colour": "color2"}))
    with pytest.raises(ValueError, match="`size`.* is `big`, but the rows above hold numbers"):
        model.predict(frame.assign(size=frame["size"].astype(object).where(frame.index != 3, "big")))
    with pytest.raises(ValueError, match="row 3, column .*`weight`.* is infinite"):
        model.predict(frame.assign(weight=frame["weight"].where(frame.index != 2, np.inf)))
    with pytest.raises(ValueError, match="has 2 columns, where 6 were fitted"):
        model.predict(np.zeros((4, 2)))
    with pytest.raises(ValueError, match="gives? no coordinates"):
        model.transform(frame)


def test_names_of_columns_travel_with_models_of_python(folder):
    folder, _ = folder
    rng = np.random.default_rng(3)
    frame = pandas.DataFrame(rng.normal(size=(60, 3)), columns=["a", "b", "c"])
    new = pandas.DataFrame(rng.normal(size=(8, 3)), columns=["a", "b", "c"])
    y = 3 * frame["a"] - frame["b"] ** 2
    turned = new[["c", "a", "b"]]
    turned.to_csv(folder / "turned.csv", index=False)
    ridge = mercer.KernelRidge(kernel="rbf").fit(frame, y)
    pca = mercer.KernelPCA(n_components=2, kernel="rbf").fit(frame)
    ridge.save(folder / "perm.mercer")
    pca.save(folder / "pca.mercer")
    run("predict", folder / "perm.mercer", folder / "turned.csv", "--out", folder / "p.npy")
    run("transform", folder / "pca.mercer", folder / "turned.csv", "--out", folder / "z.npy")
    for found in (np.load(folder / "p.npy").ravel(), mercer.load(folder / "perm.mercer").predict(turned), mercer.load(folder / "perm.mercer").predict(new.to_numpy())):
        assert np.array_equal(found, ridge.predict(new))
    assert np.array_equal(np.load(folder / "z.npy"), pca.transform(new))
    spectrum = mercer.Spectrum(n_components=2, kernel="rbf(1)").fit(frame)
    spectrum.save(folder / "s.mercer")
    again = mercer.load(folder / "s.mercer")
    assert list(again.feature_names_in_) == ["a", "b", "c"] and np.array_equal(again.transform(turned), spectrum.transform(new))
    # A model whose points are rows of a matrix has no columns with names.
    matrix = pandas.DataFrame(mercer.kernel("rbf(1)")(frame.to_numpy()), columns=[f"p{i}" for i in range(60)])
    precomputed = mercer.KernelRidge(kernel="precomputed").fit(matrix, y)
    precomputed.save(folder / "k.mercer")
    assert np.array_equal(mercer.load(folder / "k.mercer").predict(matrix.to_numpy()), precomputed.predict(matrix))
