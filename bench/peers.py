"""The jobs of the peers: `peers.py JOB DATA_FOLDER REPEATS` runs one job on stored arrays and prints one line of JSON: the
seconds of each repeat, the peak memory, and values of the result."""
import json
import pathlib
import resource
import sys
import time

import numpy as np
from threadpoolctl import threadpool_limits


def load(folder, name, dtype=np.float64):
    return np.load(pathlib.Path(folder) / f"{name}.npy").astype(dtype)


def gamma(lengthscale):
    """exp(-d^2 / 2 l^2) = exp(-gamma d^2)"""
    return 0.5 / lengthscale**2


def gemm(dtype):
    def setup(_):
        i, j = np.indices((2048, 2048))
        a = ((i * 31 + j * 17) % 101 / 101).astype(dtype)
        return lambda: a @ a, lambda c: {"flop": 2.0 * 2048**3, "check": float(c[5, 7])}
    return setup


def gram(dtype):
    def setup(folder):
        from sklearn.metrics.pairwise import rbf_kernel
        x = load(folder, "x8000x64", dtype)
        values = lambda k: {"check": [float(k[0, 1]), float(k[7999, 17]), float(k[123, 4567])]}
        return lambda: rbf_kernel(x, gamma=gamma(8)), values
    return setup


def kv(dtype):
    """Gram, then multiply, as a user of scikit-learn would do."""
    def setup(folder):
        from sklearn.metrics.pairwise import rbf_kernel
        x, v = load(folder, "x8000x64", dtype), load(folder, "v8000x16", dtype)
        return lambda: rbf_kernel(x, gamma=gamma(8)) @ v, lambda y: {"check": [float(y[0, 0]), float(y[-1, 15])]}
    return setup


def kv_keops(dtype):
    """KeOps compiles the formula into a loop that never stores K."""
    def setup(folder):
        import pykeops
        pykeops.set_verbose(False)
        from pykeops.numpy import Vi, Vj
        x, v = load(folder, "x8000x64", dtype), load(folder, "v8000x16", dtype)
        work = lambda: (Vi(x).sqdist(Vj(x)) * dtype(-gamma(8))).exp() @ v
        return work, lambda y: {"check": [float(y[0, 0]), float(y[-1, 15])], "keops": pykeops.__version__}
    return setup


def kv_compiled(dtype):
    """PyTorch's compiler fuses the formula between two matrix products; K is stored."""
    def setup(folder):
        import torch
        torch.set_num_threads(2)
        x, v = (torch.from_numpy(load(folder, name, dtype)) for name in ("x8000x64", "v8000x16"))

        @torch.compile
        def work(x, v):
            norms = (x * x).sum(1)
            squares = norms[:, None] + norms[None, :] - 2 * (x @ x.T)
            return torch.exp(-gamma(8) * squares.clamp(min=0)) @ v

        return lambda: work(x, v), lambda y: {"check": [float(y[0, 0]), float(y[-1, 15])], "torch": torch.__version__}
    return setup


def kpca(name, dtype):
    def setup(folder):
        from sklearn.decomposition import KernelPCA
        x = load(folder, name, dtype)
        def work():
            model = KernelPCA(10, kernel="rbf", gamma=gamma(7), eigen_solver="randomized", random_state=0)
            model.fit_transform(x)
            return model
        return work, lambda m: {"eigenvalues": m.eigenvalues_.tolist()}
    return setup


def nystrom(dtype):
    def setup(folder):
        from sklearn.kernel_approximation import Nystroem
        x = load(folder, "x100000x50", dtype)
        work = lambda: Nystroem(kernel="rbf", gamma=gamma(7), n_components=500, random_state=0).fit_transform(x)
        return work, lambda f: {"check": float((f[:1000] @ f[:1000].T).mean()), "kernel_error": kernel_error(f, x, 7)}
    return setup


def rff(dtype):
    def setup(folder):
        from sklearn.kernel_approximation import RBFSampler
        x = load(folder, "x100000x50", dtype)
        work = lambda: RBFSampler(gamma=gamma(7), n_components=1000, random_state=0).fit_transform(x)
        return work, lambda f: {"check": float((f[:1000] @ f[:1000].T).mean()), "kernel_error": kernel_error(f, x, 7)}
    return setup


def kernel_error(f, x, lengthscale):
    """Root mean square of f f' - K over the first 1000 points."""
    from sklearn.metrics.pairwise import rbf_kernel
    f, x = f[:1000].astype(np.float64), x[:1000].astype(np.float64)
    return float(np.sqrt(np.mean((f @ f.T - rbf_kernel(x, gamma=gamma(lengthscale)))**2)))


def ridge(folder):
    from sklearn.kernel_ridge import KernelRidge
    x, y, new = load(folder, "x5000x50"), load(folder, "y5000x1"), load(folder, "new100x50")
    work = lambda: KernelRidge(alpha=0.1, kernel="rbf", gamma=gamma(7)).fit(x, y)
    return work, lambda m: {"check": m.predict(new).ravel()[:5].tolist()}


def covertype(logistic):
    """Fit and predictions of new rows; the lengthscale is the median distance of 1000 points."""
    def setup(folder):
        from sklearn.kernel_approximation import Nystroem
        from sklearn.linear_model import LogisticRegression, RidgeClassifier
        from sklearn.metrics import log_loss, pairwise_distances
        x, new = load(folder, "covertype-x"), load(folder, "covertype-new")
        y, truth = load(folder, "covertype-y").ravel(), load(folder, "covertype-truth").ravel()

        def work():
            some = np.random.default_rng(0).choice(len(x), min(1000, len(x)), replace=False)
            median = np.median(pairwise_distances(x[some])[np.triu_indices(len(some), 1)])
            features = Nystroem(kernel="rbf", gamma=gamma(median), n_components=min(1000, len(x)), random_state=0)
            head = LogisticRegression(C=100, max_iter=200) if logistic else RidgeClassifier(alpha=1e-2)
            head.fit(features.fit_transform(x), y)
            at_new = features.transform(new)
            return head, head.predict(at_new), head.predict_proba(at_new) if logistic else None

        def describe(result):
            head, predicted, p = result
            loss = {} if p is None else {"log_loss": float(log_loss(truth, p, labels=head.classes_))}
            return {"accuracy": float((predicted == truth).mean()), **loss}
        return work, describe
    return setup


def covertype_full(folder):
    """All of covertype, from the file to the accuracy on the test rows, in f32: in f64 the features of m = 2000 do not fit beside a copy of them
    into 16 GB. Columns are standardised; the kernel and the ridge are the defaults."""
    from sklearn.kernel_approximation import Nystroem
    from sklearn.linear_model import RidgeClassifier
    from sklearn.preprocessing import StandardScaler

    def work():
        train, test = (np.load(pathlib.Path(folder) / f"covertype-{part}.npy") for part in ("train", "test"))
        scaler = StandardScaler().fit(train[:, :-1])
        features = Nystroem(n_components=2000, random_state=0)
        head = RidgeClassifier().fit(features.fit_transform(scaler.transform(train[:, :-1])), train[:, -1])
        return np.mean(head.predict(features.transform(scaler.transform(test[:, :-1]))) == test[:, -1])

    return work, lambda accuracy: {"accuracy": float(accuracy)}


def search(metric, library):
    """The ten nearest of 100 000 items to each of 1000 queries; by numpy in blocks of 100 queries, which is faster than all at once."""
    def setup(folder):
        x, q = load(folder, "x100000x64", np.float32), load(folder, "q1000x64", np.float32)

        def numpy():
            if metric == "cosine":
                items, queries = (a / np.linalg.norm(a, axis=1, keepdims=True) for a in (x, q))
                keys = lambda z: -(z @ items.T)
            else:
                items, queries, half = x, q, 0.5 * np.einsum("ij,ij->i", x, x)
                keys = lambda z: half - z @ items.T
            places = []
            for start in range(0, len(queries), 100):
                key = keys(queries[start:start + 100])
                first = np.argpartition(key, 10, axis=1)[:, :10]
                order = np.argsort(np.take_along_axis(key, first, 1), axis=1)
                places.append(np.take_along_axis(first, order, 1))
            places = np.concatenate(places)
            near = x[places]
            if metric == "cosine":
                scores = np.einsum("qjd,qd->qj", near, q) / np.linalg.norm(near, axis=2) / np.linalg.norm(q, axis=1)[:, None]
            else:
                scores = np.linalg.norm(near - q[:, None], axis=2)
            return scores, places

        def sklearn():
            from sklearn.neighbors import NearestNeighbors
            scores, places = NearestNeighbors(n_neighbors=10, algorithm="brute", metric=metric, n_jobs=2).fit(x).kneighbors(q)
            return (1 - scores if metric == "cosine" else scores), places

        values = lambda r: {"check": [float(r[0][0, 0]), float(r[0][999, 9]), float(r[1].sum())]}
        return {"numpy": numpy, "scikit-learn": sklearn}[library], values
    return setup


JOBS = {
    "search-euclidean": search("euclidean", "scikit-learn"), "search-cosine": search("cosine", "scikit-learn"),
    "search-euclidean-numpy": search("euclidean", "numpy"), "search-cosine-numpy": search("cosine", "numpy"),
    "covertype-ridge": covertype(False), "covertype-logistic": covertype(True),
    "gemm-f32": gemm(np.float32), "gemm-f64": gemm(np.float64),
    "gram-f32": gram(np.float32), "gram-f64": gram(np.float64),
    "kv-f32": kv(np.float32), "kv-f64": kv(np.float64),
    "kv-f32-compiled": kv_compiled(np.float32), "kv-f64-compiled": kv_compiled(np.float64),
    "covertype-full": covertype_full,
    "kv-f32-keops": kv_keops(np.float32), "kv-f64-keops": kv_keops(np.float64),
    "kpca-5000": kpca("x5000x50", np.float64), "kpca-20000": kpca("x20000x50", np.float32),
    "nystrom-f32": nystrom(np.float32), "nystrom-f64": nystrom(np.float64),
    "rff-f32": rff(np.float32), "rff-f64": rff(np.float64),
    "ridge-5000": ridge,
}


def main(job, folder, repeats):
    work, describe = JOBS[job](folder)
    seconds = []
    with threadpool_limits(2):
        # What takes minutes, reading included, is run without a warm-up.
        result = None if job == "covertype-full" else work()
        for _ in range(repeats):
            del result
            start = time.perf_counter()
            result = work()
            seconds.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"seconds": seconds, "peak_bytes": peak, **describe(result)}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
