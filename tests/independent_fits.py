"""Random fitting problems, and their maximum likelihood found without deeptram.

Likelihoods are written down once more in NumPy, in orthonormal coordinates of the columns, and maximised by
SciPy's trust region from several starts; linear programs say whether the maximum is attained at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import linalg, optimize, special, stats

import deeptram as dt

KINDS = ("ordinal logit", "ordinal probit", "weibull", "normal")
TRAPS = ("plain", "near separation", "rare class", "scales", "near collinear", "offset", "duplicates")


@dataclass
class Case:
    """One problem: columns, outcome, the estimator that is to fit it."""

    seed: int
    kind: str
    trap: str
    x: np.ndarray
    y: np.ndarray
    event: np.ndarray | None
    model: Any

    @property
    def outcome(self) -> Any:
        """What ``fit`` takes as y."""
        return self.y if self.event is None else dt.Surv.right(self.y, self.event)


def random_case(seed: int) -> Case:
    """Draw a problem: n from 5, up to five columns, and one of the traps."""
    rng = np.random.default_rng(seed)
    kind, trap = KINDS[seed % len(KINDS)], TRAPS[seed // len(KINDS) % len(TRAPS)]
    n = int(np.exp(rng.uniform(np.log(5), np.log(200))))
    p = int(rng.integers(1, min(5, max(n // 4, 1)) + 1))
    x = rng.normal(size=(n, p))
    if rng.random() < 0.3:
        x[:, -1] = rng.integers(0, 2, size=n)
    beta = rng.normal(size=p) * (8.0 if trap == "near separation" else 1.0)
    if trap == "near collinear" and p > 1:
        x[:, -1] = x[:, :-1] @ rng.normal(size=p - 1) + 10 ** rng.uniform(-8, -2) * rng.normal(size=n)
    if trap == "duplicates" and p > 1:
        x[:, -1] = 3 * x[:, 0] - 1
    eta = x @ beta
    if trap == "scales":
        x = x * 10 ** rng.uniform(-8, 8, size=p)
    if trap == "offset":
        x = x + 10 ** rng.uniform(0, 6, size=p)
    if kind.startswith("ordinal"):
        noise = rng.logistic(size=n) if kind.endswith("logit") else rng.normal(size=n)
        z, classes = eta + noise, int(rng.integers(2, 7))
        share = np.sort(rng.uniform(size=classes - 1))
        if trap == "rare class":
            share = np.sort(np.concatenate([[1.5 / n], share[1:]]))
        y = np.digitize(z, np.unique(np.quantile(z, share)))
        y = np.unique(y, return_inverse=True)[1]
        if len(np.unique(y)) == 1:
            y[0] = 1 - y[0]
        return Case(seed, kind, trap, x, y, None, dt.Polr(latent=kind.split()[1]))
    size = 10 ** rng.uniform(-8, 8) if trap == "scales" else 1.0
    if kind == "normal":
        return Case(seed, kind, trap, x, size * (eta + rng.normal(size=n)), None, dt.Lm())
    time = size * np.exp((eta + np.log(rng.exponential(size=n))) / rng.uniform(0.5, 3))
    censored = size * rng.exponential(scale=4.0, size=n)
    event = time <= censored
    event[rng.integers(n)] = True
    return Case(seed, kind, trap, x, np.minimum(time, censored), event, dt.Survreg(dist="weibull"))


def orthonormal(x: np.ndarray) -> np.ndarray:
    """Return columns of length sqrt(n) that span the centred columns."""
    centred = x.astype(np.longdouble) - x.astype(np.longdouble).mean(axis=0)
    found: list[np.ndarray] = []
    for column in centred.T:
        size = np.sqrt((column**2).sum())
        if size == 0:
            continue
        rest = column / size
        for _ in range(2):
            for other in found:
                rest = rest - other * (other @ rest)
        left = np.sqrt((rest**2).sum())
        if left > 1e-12:
            found.append(rest / left)
    basis = np.array(found, dtype=np.longdouble).reshape(len(found), len(x)).T
    return np.asarray(basis * np.sqrt(len(x)), dtype=np.float64)


class Ordinal:
    """Minus the log-likelihood of P(Y <= k) = F(theta_k - u'gamma), with derivatives."""

    def __init__(self, u: np.ndarray, y: np.ndarray, probit: bool) -> None:
        self.u, self.y, self.probit, self.d = u, y, probit, int(y.max())
        shares = np.cumsum(np.bincount(y))[:-1] / len(y)
        self.start = np.concatenate(
            [stats.norm.ppf(shares) if probit else special.logit(shares), np.zeros(u.shape[1])]
        )
        n, d = len(y), self.d
        self.upper = np.hstack([np.eye(d + 1)[y][:, :d], -u])
        self.lower = np.hstack([np.eye(d + 1)[y][:, 1:], -u])
        self.top, self.bottom = y == d, y == 0
        self.n = n

    def _log_f(self, z):
        return stats.norm.logpdf(z) if self.probit else -np.abs(z) - 2 * np.log1p(np.exp(-np.abs(z)))

    def log_cdf_t(self, z):
        return special.log_ndtr(z) if self.probit else special.log_expit(z)

    def _slope(self, z):
        return -z if self.probit else -np.tanh(z / 2)

    def __call__(self, point):
        theta = point[: self.d]
        if (np.diff(theta) <= 0).any():
            return np.inf, np.full(len(point), np.nan), np.full((len(point),) * 2, np.nan)
        hi, lo = self.upper @ point, self.lower @ point
        flip = hi + lo > 0
        a, b = np.where(flip, -hi, lo), np.where(flip, -lo, hi)
        with np.errstate(all="ignore"):
            log_a, log_b = self.log_cdf_t(a), self.log_cdf_t(b)
            both = log_b + np.log(-np.expm1(log_a - log_b))
        value = np.where(self.top, self.log_cdf_t(-lo), np.where(self.bottom, self.log_cdf_t(hi), both))
        with np.errstate(all="ignore"):
            r_hi = np.where(self.top, 0.0, np.exp(self._log_f(hi) - value))
            r_lo = np.where(self.bottom, 0.0, np.exp(self._log_f(lo) - value))
        gradient = -(self.upper.T @ r_hi - self.lower.T @ r_lo)
        hh = r_hi * (self._slope(hi) - r_hi)
        ll = -r_lo * self._slope(lo) - r_lo**2
        cross = self.upper.T @ (self.lower * (r_hi * r_lo)[:, None])
        hessian = -(
            self.upper.T @ (self.upper * hh[:, None])
            + self.lower.T @ (self.lower * ll[:, None])
            + cross
            + cross.T
        )
        return -value.sum(), gradient, hessian

    def attained(self) -> bool:
        """Whether no direction raises some contribution and lowers none."""
        rows = np.vstack([self.upper[~self.top], -self.lower[~self.bottom]])
        answer = optimize.linprog(-rows.sum(axis=0), A_ub=-rows, b_ub=np.zeros(len(rows)), bounds=(-1, 1))
        return bool((rows @ answer.x).max() < 1e-7)


class Weibull:
    """Minus the log-likelihood of log(-log S(t)) = a + b log t - u'gamma, with derivatives."""

    def __init__(self, u, y, event) -> None:
        self.log_t = np.log(y)
        self.mid, spread = self.log_t.mean(), self.log_t.std()
        self.scaled = (self.log_t - self.mid) / spread
        self.spread = spread
        self.event = event.astype(float)
        self.rows = np.column_stack([np.ones(len(y)), self.scaled, -u])
        self.start = np.concatenate([[0.0, 1.0], np.zeros(u.shape[1])])

    def __call__(self, point):
        z, b = self.rows @ point, point[1]
        if b <= 0 or z.max() > 600:
            return np.inf, np.full(len(point), np.nan), np.full((len(point),) * 2, np.nan)
        rate = np.exp(z)
        value = (rate - self.event * (z + np.log(b / self.spread) - self.log_t)).sum()
        gradient = self.rows.T @ (rate - self.event)
        gradient[1] -= self.event.sum() / b
        hessian = self.rows.T @ (self.rows * rate[:, None])
        hessian[1, 1] += self.event.sum() / b**2
        return value, gradient, hessian

    def attained(self) -> bool:
        """Whether no direction keeps events, lowers censored z, and raises b or lowers something."""
        rows, seen = self.rows, self.event > 0
        gain = -rows[~seen].sum(axis=0)
        gain[1] += 1.0
        answer = optimize.linprog(
            -gain,
            A_ub=rows[~seen] if (~seen).any() else None,
            b_ub=np.zeros((~seen).sum()) if (~seen).any() else None,
            A_eq=rows[seen],
            b_eq=np.zeros(seen.sum()),
            bounds=[(-1, 1), (0, 1)] + [(-1, 1)] * (rows.shape[1] - 2),
        )
        return bool(gain @ answer.x < 1e-7)


def best_loglik(case: Case) -> tuple[float, bool]:
    """Return the largest log-likelihood found, and whether the maximum is attained at finite parameters."""
    u = orthonormal(case.x)
    if case.kind == "normal":
        n, full = len(case.y), np.column_stack([np.ones(len(case.y)), u])
        scaled = case.y / np.abs(case.y).max()
        rest = scaled - full @ linalg.lstsq(full, scaled)[0]
        variance = (rest**2).mean()
        if variance < 1e-28:
            return np.inf, False
        return -n / 2 * (np.log(2 * np.pi * variance) + 1) - n * np.log(np.abs(case.y).max()), True
    if case.event is None:
        objective: Any = Ordinal(u, case.y, case.kind.endswith("probit"))
    else:
        objective = Weibull(u, case.y, case.event)
    rng, best = np.random.default_rng(case.seed), np.inf
    for attempt in range(3):
        start = (
            objective.start
            + (attempt > 0) * np.r_[np.zeros(objective.start.size - u.shape[1]), rng.normal(size=u.shape[1])]
        )
        if not np.isfinite(objective(start)[0]):
            continue
        answer = optimize.minimize(
            lambda v: objective(v)[0],
            start,
            jac=lambda v: objective(v)[1],
            hess=lambda v: objective(v)[2],
            method="trust-exact",
            options={"gtol": 1e-9, "maxiter": 500},
        )
        best = min(best, float(answer.fun))
    return -best, objective.attained()
