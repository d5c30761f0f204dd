"""Writes quantile_regression.json: linear quantiles by scikit-learn's QuantileRegressor without a penalty, a linear program.

Run: python quantile_regression.py > quantile_regression.json (scikit-learn 1.9.1)
"""

import json

import numpy as np
from sklearn.linear_model import QuantileRegressor

i = np.arange(60)
x = np.c_[(i * 0.618033988749895) % 1, (i * 0.754877666246693) % 1]
y = 3 * x[:, 0] - 2 * x[:, 1] + 1 + (0.5 + x[:, 0]) * np.sin(7 * i**1.3)
fits = []
for quantile in (0.2, 0.5, 0.9):
    model = QuantileRegressor(quantile=quantile, alpha=0, solver="highs").fit(x, y)
    fits.append({"quantile": quantile, "coefficients": model.coef_.tolist(), "intercept": float(model.intercept_)})
print(json.dumps({"x": x.tolist(), "y": y.tolist(), "fits": fits}))
