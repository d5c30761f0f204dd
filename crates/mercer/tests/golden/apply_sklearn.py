"""Writes apply_sklearn.json: kernel PCA and kernel ridge regression by scikit-learn on a small set."""
import json
import numpy as np
import sklearn
from sklearn.decomposition import KernelPCA
from sklearn.kernel_ridge import KernelRidge

rng = np.random.default_rng(0)
x = rng.normal(size=(30, 3)).round(4)
new = rng.normal(size=(5, 3)).round(4)
y = np.sin(x[:, 0]).round(4)
gamma = 0.5 / 1.5**2  # rbf(lengthscale=1.5)
pca = KernelPCA(n_components=4, kernel="rbf", gamma=gamma, eigen_solver="dense").fit(x)
ridge = KernelRidge(alpha=0.1, kernel="rbf", gamma=gamma).fit(x, y)
json.dump(
    {
        "provenance": f"scikit-learn {sklearn.__version__}, numpy {np.__version__}, apply_sklearn.py",
        "x": x.tolist(),
        "new": new.tolist(),
        "y": y.tolist(),
        "kpca_eigenvalues": pca.eigenvalues_.tolist(),
        "kpca_projections": pca.transform(x).tolist(),
        "kpca_new": pca.transform(new).tolist(),
        "ridge_coefficients": ridge.dual_coef_.tolist(),
        "ridge_new": ridge.predict(new).tolist(),
    },
    open("apply_sklearn.json", "w"),
    indent=0,
)
