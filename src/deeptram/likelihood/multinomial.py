"""Exact maximum likelihood for nominal outcomes: the multinomial logit."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]


class MultinomialLikelihood:
    r"""NLL of :math:`P(Y = y_k) \propto \exp(\alpha_k + x'\beta_k)`, first level the reference.

    Convex. Parameters are ordered by class: ``(alpha_2, beta_2, ..., alpha_K, beta_K)``.

    Parameters
    ----------
    codes : ndarray of int, shape (n,)
        Class of each row.
    n_classes : int
        K.
    x : Tensor, shape (n, p)
        Columns (without intercept).
    weights : Tensor or None, shape (n,)
        Case weights.
    """

    is_convex = True

    def __init__(self, codes: NDArray[np.int64], n_classes: int, x: Tensor, weights: Tensor | None) -> None:
        self._x = torch.cat([torch.ones(len(x), 1, dtype=torch.float64), x], dim=1)
        self._w = torch.ones(len(x), dtype=torch.float64) if weights is None else weights
        self._codes = torch.from_numpy(codes)
        self._k = n_classes
        self.n_parameters = (n_classes - 1) * self._x.shape[1]
        self._truth = torch.zeros(len(x), n_classes - 1, dtype=torch.float64)
        later = self._codes > 0
        self._truth[later, self._codes[later] - 1] = 1.0

    def _log_probabilities(self, parameters: Tensor) -> Tensor:
        logits = self._x @ parameters.reshape(self._k - 1, -1).T
        return torch.log_softmax(torch.cat([torch.zeros_like(logits[:, :1]), logits], dim=1), dim=1)

    def rows(self, parameters: Tensor) -> Tensor:
        """Return the log-likelihood of each row, unweighted."""
        return self._log_probabilities(parameters).gather(1, self._codes.unsqueeze(1)).squeeze(1)

    def value(self, parameters: Tensor) -> float:
        """Return the negative log-likelihood."""
        return -float(self._w @ self.rows(parameters))

    def evaluate(self, parameters: Tensor) -> tuple[float, Tensor, Tensor]:
        """Return the negative log-likelihood with gradient and Hessian."""
        log_p = self._log_probabilities(parameters)
        value = -float(self._w @ log_p.gather(1, self._codes.unsqueeze(1)).squeeze(1))
        p = torch.exp(log_p[:, 1:])
        gradient = ((p - self._truth) * self._w.unsqueeze(1)).T @ self._x
        size = self._x.shape[1]
        hessian = torch.zeros(self.n_parameters, self.n_parameters, dtype=torch.float64)
        for j in range(self._k - 1):
            for k in range(j, self._k - 1):
                weight = self._w * p[:, j] * ((1.0 if j == k else 0.0) - p[:, k])
                block = self._x.T @ (self._x * weight.unsqueeze(1))
                hessian[j * size : (j + 1) * size, k * size : (k + 1) * size] = block
                hessian[k * size : (k + 1) * size, j * size : (j + 1) * size] = block.T
        return value, gradient.ravel(), hessian

    def longest_step(self, parameters: Tensor, step: Tensor) -> float:
        """Return 1: every parameter value is allowed."""
        return 1.0

    def margin(self, parameters: Tensor) -> float:
        """Return by how much the truth's logit exceeds every other, at least."""
        log_p = self._log_probabilities(parameters)
        truth = log_p.gather(1, self._codes.unsqueeze(1))
        others = log_p.scatter(1, self._codes.unsqueeze(1), -torch.inf)
        return float((truth - others.max(dim=1, keepdim=True).values).min())

    def recession_rows(self) -> Tensor:
        """Return rows (truth's logit minus every other) whose growth raises the likelihood."""
        size, rows = self._x.shape[1], []
        for other in range(self._k):
            row = torch.zeros(len(self._x), self._k, size, dtype=torch.float64)
            row[torch.arange(len(self._x)), self._codes] += self._x
            row[:, other] -= self._x
            rows.append(row[self._codes != other][:, 1:].reshape(-1, self.n_parameters))
        return torch.cat(rows)
