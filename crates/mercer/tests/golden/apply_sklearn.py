"""Writes apply_sklearn.json: kernel PCA, kernel ridge regression, linear ridge regression, weighted classification and its measures, and
logistic regression by scikit-learn on a small set."""
import json
import numpy as np
import sklearn
from sklearn.decomposition import KernelPCA
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
from sklearn.metrics import confusion_matrix, log_loss, precision_recall_fscore_support
from sklearn.metrics.pairwise import rbf_kernel

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


def logistic(phi, new_phi, alpha, class_weight=None):
    """Probabilities of new rows; the intercept is the weight of a constant feature, as long as the others are on average."""
    weights = np.ones(len(labels))
    if class_weight == "balanced":
        weights = (len(labels) / (3 * np.bincount(labels)))[labels]
    mean = np.average(phi, axis=0, weights=weights)
    size = np.sqrt(np.average(((phi - mean) ** 2).sum(axis=1), weights=weights))
    with_constant = lambda phi: np.column_stack([np.full(len(phi), size), phi - mean])
    model = LogisticRegression(
        C=1 / alpha, fit_intercept=False, class_weight=class_weight, solver="newton-cg", tol=1e-12, max_iter=1000
    )
    return model.fit(with_constant(phi), labels).predict_proba(with_constant(new_phi))


values, vectors = np.linalg.eigh(rbf_kernel(x, gamma=gamma))
kept = values > 1e-12 * values[-1]
to_features = vectors[:, kept] / np.sqrt(values[kept])
kernel_features = [rbf_kernel(points, x, gamma=gamma) @ to_features for points in (x, new)]
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
        "logistic_new": logistic(x + 100, new + 100, 0.5).tolist(),
        "logistic_balanced_new": logistic(x, new, 0.02, "balanced").tolist(),
        "logistic_kernel_new": logistic(*kernel_features, 0.1).tolist(),
        "confusion": confusion_matrix(labels, predicted).tolist(),
    },
    open("apply_sklearn.json", "w"),
    indent=0,
)
