"""Ctrl-C, threads and memory from Python."""

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


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_an_iteration_ends_early_with_the_best_so_far():
    child = script(
        """
        x = np.linspace(-2, 2, 2000)[:, None]
        print("ready", flush=True)
        net = "dense(512) sincos dense(512) sincos dense(1) l2norm"
        s = mercer.NeuralEigenfunctions(n_components=8, kernel="rbf(1)", steps=10_000_000, batch_size=1000, net=net).fit(x)
        print(s.training_["stop"], s.training_["steps"] < 10_000_000)
        """
    )
    assert child.stdout.readline() == "ready\n"
    time.sleep(4)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=120)
    assert out == "interrupted True\n", err


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
