"""Ctrl-C, threads, forks and memory from Python."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

import mercer


def script(body):
    code = "import numpy as np, mercer, sys, time, warnings\nwarnings.simplefilter('ignore')\n" + textwrap.dedent(body)
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


NETWORKS = {
    "NeuralEigenfunctions": 'mercer.NeuralEigenfunctions(n_components=8, kernel="rbf(1)", steps=10_000_000, batch_size=500, net="dense(256) sincos dense(1) l2norm")',
    "Eigenmap": 'mercer.Eigenmap(n_components=4, net="dense(256) relu", epochs=1_000_000)',
}


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize("name", NETWORKS)
def test_a_fit_that_is_interrupted_raises_and_keeps_the_best_so_far(name):
    """Warnings as errors do not hide the interrupt, and what follows the fit is not run."""
    child = script(
        f"""
        warnings.simplefilter('error', mercer.MercerWarning)
        x = np.random.default_rng(0).normal(size=(2000, 3))
        s = {NETWORKS[name]}
        print("ready", flush=True)
        try:
            s.fit(x)
            print("went on")
        except KeyboardInterrupt:
            print("interrupted", s.transform(x[:3]).shape[0], len(s.eigenvalues_) > 0)
            if hasattr(s, "training_"):
                print(s.training_["stop"], s.training_["finished"], s.training_["rayleigh_ritz"])
        """
    )
    assert child.stdout.readline() == "ready\n"
    time.sleep(4)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=120)
    lines = out.splitlines()
    assert lines[0] == "interrupted 3 True", (out, err)
    assert lines[1:] == (["interrupted False True"] if name == "NeuralEigenfunctions" else []), err


def test_training_that_runs_to_its_end_is_finished():
    trained = mercer.NeuralEigenfunctions(n_components=2, kernel="rbf(1)", steps=5).fit(np.linspace(-2, 2, 100)[:, None])
    assert trained.training_["stop"] == "budget" and trained.training_["finished"] is True


FORKS = {
    "os.fork": """
        child = os.fork()
        if child == 0:
            os._exit(0 if same(0) else 1)
        assert os.waitpid(child, 0)[1] == 0
        """,
    "a fork of a fork": """
        child = os.fork()
        if child == 0:
            assert same(0)
            other = os.fork()
            if other == 0:
                os._exit(0 if same(0) else 1)
            os._exit(os.waitpid(other, 0)[1] >> 8)
        assert os.waitpid(child, 0)[1] == 0
        """,
    "a thread of a fork": """
        child = os.fork()
        if child == 0:
            answers = []
            thread = threading.Thread(target=lambda: answers.append(same(0)))
            thread.start()
            thread.join()
            os._exit(0 if answers == [True] else 1)
        assert os.waitpid(child, 0)[1] == 0
        """,
    "multiprocessing": """
        with multiprocessing.get_context("fork").Pool(2) as pool:
            assert all(pool.map(same, range(4)))
        """,
    "joblib": """
        with joblib.parallel_config("multiprocessing"):
            assert all(joblib.Parallel(n_jobs=2)(joblib.delayed(same)(i) for i in range(4)))
        """,
}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks of POSIX")
@pytest.mark.parametrize("how", FORKS)
def test_a_forked_process_computes_the_numbers_of_its_parent(how, tmp_path):
    """Everything that the library does in threads: evaluations, fits, models from bytes and files, operators, feature maps."""
    child = script(
        """
        import joblib, multiprocessing, os, pickle, threading
        x = np.random.default_rng(0).normal(size=(3000, 40))
        few = x[:300]
        ridge = mercer.KernelRidge(alpha='auto', kernel='rbf(lengthscale=median)').fit(few, few[:, 0])
        spectrum = mercer.Spectrum(n_components=3, kernel='rbf(9)', method='exact').fit(few)
        operator = mercer.operator('rbf(9)', x)
        ridge.save(PATH)

        def found():
            k = mercer.kernel('rbf(lengthscale=median)')
            nystroem = mercer.Nystroem(n_components=20, choice='kmeans++').fit(few)
            samples = few.T.copy()[:20]
            return [
                k(x).sum(), k(few).sum(), k.diagonal(x).sum(), k.resolve(x).expression,
                operator @ np.ones(3000), mercer.operator('rbf(lengthscale=median)', x) @ np.ones(3000), operator.diagonal(),
                ridge.predict(x), pickle.loads(pickle.dumps(ridge)).predict(x), mercer.load(PATH).predict(x),
                spectrum.transform(x), mercer.Spectrum(n_components=3, kernel='rbf(9)').fit(x[:1000]).eigenvalues_,
                mercer.KernelPCA(n_components=2, kernel='rbf').fit(few).embedding_, nystroem.transform(x),
                mercer.Spectrum(n_components=2).fit_samples(samples).transform_samples(samples),
                mercer.KernelClassifier().fit(few, few[:, 0] > 0).predict_proba(x),
            ]

        want = found()

        def same(_):
            return all(np.array_equal(one, other) for one, other in zip(found(), want, strict=True))

        assert same(0)
        """.replace("PATH", repr(str(tmp_path / "m.mercer")))
        + FORKS[how]
        + """
        assert same(0)
        print("same")
        """
    )
    try:
        out, err = child.communicate(timeout=240)
    finally:
        child.kill()
    assert out == "same\n", err


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_what_has_no_result_yet_raises_keyboard_interrupt_at_once():
    child = script(
        """
        x = np.random.default_rng(0).normal(size=(7000, 5))
        print("ready", flush=True)
        try:
            mercer.Spectrum(n_components=3, kernel="rbf(1)", method="exact").fit(x)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
            import os
            os._exit(0)
        """
    )
    assert child.stdout.readline() == "ready\n"
    time.sleep(1.5)
    start = time.time()
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=120)
    assert out == "interrupted\n", err
    assert time.time() - start < 5


def test_other_threads_run_while_a_fit_does():
    counted, done = [0], threading.Event()

    def count():
        while not done.is_set():
            counted[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    mercer.Spectrum(n_components=3, kernel="rbf(1)", method="exact", holdout=0).fit(np.random.default_rng(0).normal(size=(1500, 3)))
    done.set()
    thread.join()
    assert counted[0] > 10


def test_fits_run_on_several_threads_at_once():
    x = np.random.default_rng(0).normal(size=(300, 2))
    want = mercer.KernelPCA(n_components=2, kernel="rbf").fit(x).transform(x)
    found = [None] * 8

    def fit(i):
        found[i] = mercer.KernelPCA(n_components=2, kernel="rbf").fit(x).transform(x)

    threads = [threading.Thread(target=fit, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(one, want) for one in found)


def test_a_budget_is_kept():
    x = np.random.default_rng(0).normal(size=(4000, 3))
    with pytest.raises(ValueError, match="needs .* but the memory budget is 8.0 MiB"):
        mercer.KernelPCA(n_components=2, kernel="rbf", eigen_solver="dense", memory="8MiB").fit(x)
