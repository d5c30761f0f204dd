"""Writes apply_sklearn.json: kernel PCA, kernel ridge regression, linear ridge regression, weighted classification and its measures by
scikit-learn on a small set."""
import json
import numpy as np
import sklearn
from sklearn.decomposition import KernelPCA
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge, RidgeClassifier
from sklearn.metrics import confusion_matrix, log_loss, precision_recall_fscore_support

rng = np.random.default_rng(0)
x = rng.normal(size=(30, 3)).round(4)
new = rng.normal(size=(5, 3)).round(4)
y = np.sin(x[:, 0]).round(4)
gamma = 0.5 / 1.5**2  # rbf(lengthscale=1.5)
pca = KernelPCA(n_components=4, kernel="rbf", gamma=gamma, eigen_solver="dense").fit(x)
ridge = KernelRidge(alpha=0.1, kernel="rbf", gamma=gamma).fit(x, y)
linear = Ridge(alpha=0.7).fit(x + 100, y)
labels = (x[:, 0] + 0.5 * x[:, 1] > 0.3).astype(int) + (x[:, 2] > 0.8)
balanced = RidgeClassifier(alpha=0.7, class_weight="balanced").fit(x, labels)
scores = balanced.decision_function(x)
predicted = balanced.predict(x)
p = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
precision, recall, _, support = precision_recall_fscore_support(labels, predicted)
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
        "linear_new": linear.predict(new + 100).tolist(),
        "labels": labels.tolist(),
        "balanced_new": balanced.decision_function(new).tolist(),
        "balanced_predicted": predicted.tolist(),
        "softmax": p.tolist(),
        "log_loss": log_loss(labels, p),
        "precision": precision.tolist(),
        "recall": recall.tolist(),
        "support": support.tolist(),
        "confusion": confusion_matrix(labels, predicted).tolist(),
    },
    open("apply_sklearn.json", "w"),
    indent=0,
)
