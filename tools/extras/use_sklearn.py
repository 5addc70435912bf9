"""Fit an estimator in a pipeline of scikit-learn. It needs the extra ``sklearn``."""

import numpy as np
from sklearn.pipeline import make_pipeline

from dpsample.estimators import PrivateLogisticRegression

rng = np.random.default_rng(1)
rows = rng.uniform(-1.0, 1.0, (5_000, 2))
labels = np.where(rows[:, 0] > 0.0, 1, 0)
model = PrivateLogisticRegression(epsilon=1.0, delta=1e-6, bounds=(-1.0, 1.0))
fit = make_pipeline(model).fit(rows, labels)
assert np.mean(fit.predict(rows) == labels) > 0.9
