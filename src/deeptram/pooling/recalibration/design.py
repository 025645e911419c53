"""The log-likelihood of a recalibrated distribution as a function of its intercepts and slopes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from deeptram._arrays import as_numpy
from deeptram._validation import first_rows
from deeptram.errors import InvalidInputError
from deeptram.latent import Latent
from deeptram.likelihood.linear_forms import LogCdf, LogForm, LogPdf, LogSf, Negated, Term, interval_terms
from deeptram.predictive.count import CountPredictive
from deeptram.predictive.discrete import DiscretePredictive
from deeptram.predictive.line import LinePredictive
from deeptram.responses.observations import encode_continuous, encode_count


def class_terms(pred: DiscretePredictive, y: Any, latent: Latent, slope: str) -> list[Term]:
    r"""Return the terms in :math:`(a_1, \dots, a_{K-1}, b_1, \dots, b_{K-1})`, or with one b for all.

    Parameters
    ----------
    pred : DiscretePredictive
    y : array-like, shape (n,)
    latent : Latent
    slope : {"threshold", "common", "only"}
        ``"only"`` has a single slope and no intercepts (temperature).
    """
    codes = pred.encode(y)
    refuse_impossible(pred.log_prob_of_codes_t(codes))
    h = pred.trafo_t(latent).detach().to(torch.float64)
    inner = h.shape[1]
    lower_code, upper_code = codes - 1, codes
    lower = _pick(h, lower_code)
    upper = _pick(h, upper_code)
    has_lower = (codes > 0) & torch.isfinite(lower)
    has_upper = (codes < inner) & torch.isfinite(upper)
    closed = has_lower & has_upper
    rows = torch.arange(len(codes))
    left, right = has_upper & ~has_lower, has_lower & ~has_upper
    low = _columns(lower, lower_code, inner, slope)
    high = _columns(upper, upper_code, inner, slope)
    gaps = pred.log_increments_t(latent).detach().to(torch.float64)
    gap = high - low
    if slope != "threshold" and gaps.shape[1]:
        gap[-1] = torch.where(closed, torch.exp(_pick(gaps, lower_code)), gap[-1])
    terms: list[Term] = []
    if bool(left.any()):
        terms.append(LogCdf(latent, rows[left], high[:, left]))
    if bool(right.any()):
        terms.append(LogSf(latent, rows[right], low[:, right]))
    if bool(closed.any()):
        zero = torch.zeros(int(closed.sum()), dtype=torch.float64)
        parts = (low[:, closed], high[:, closed], gap[:, closed], zero)
        terms.extend(interval_terms(latent, rows[closed], *parts))
    return terms


def line_terms(pred: LinePredictive | CountPredictive, y: Any, latent: Latent, intercept: bool) -> list[Term]:
    """Return the terms in (a, b), or in b alone; ``y`` may be censored and truncated."""
    if isinstance(pred, CountPredictive):
        k = torch.as_tensor(encode_count(y).upper, dtype=torch.float64).unsqueeze(1)
        refuse_impossible(pred.log_pmf_t(k)[:, 0])
        below = pred.trafo_t((k - 1).clamp(min=0), latent)
        lower = torch.where(k == 0, -torch.inf, below)[:, 0]
        return _interval_rows(torch.arange(len(k)), lower, pred.trafo_t(k, latent)[:, 0], latent, intercept)
    seen = encode_continuous(y)
    refuse_impossible(pred.log_prob_of_observations_t(seen))
    ends = [torch.as_tensor(end, dtype=torch.float64).unsqueeze(1) for end in (seen.lower, seen.upper)]
    exact = (ends[0] == ends[1])[:, 0]
    known, rest = torch.nonzero(exact)[:, 0], torch.nonzero(~exact)[:, 0]
    terms: list[Term] = []
    if len(known):
        h = pred[known].trafo_t(ends[0][known], latent)[:, 0]
        log_slope = pred[known].log_slope_t(ends[0][known], latent)[:, 0]
        unit = torch.zeros((1 + intercept, len(known)), dtype=torch.float64)
        unit[-1] = 1.0
        terms.append(LogPdf(latent, known, _line(h, intercept)))
        terms.append(LogForm(known, unit, log_slope.to(torch.float64)))
    if len(rest):
        part = pred[rest]
        lower, upper = (part.trafo_t(end[rest], latent)[:, 0] for end in ends)
        terms.extend(_interval_rows(rest, lower, upper, latent, intercept))
    if seen.entry is not None:
        entry = pred.trafo_t(torch.as_tensor(seen.entry, dtype=torch.float64).unsqueeze(1), latent)[:, 0]
        late = torch.isfinite(entry)
        if bool(late.any()):
            rows = torch.nonzero(late)[:, 0]
            terms.append(Negated(LogSf(latent, rows, _line(entry[late], intercept))))
    return terms


def refuse_impossible(log_prob: Tensor) -> None:
    """Raise if an outcome has probability zero: no straight line behind h can repair that."""
    impossible = as_numpy(torch.isneginf(log_prob))
    if impossible.any():
        raise InvalidInputError(
            "recalibration needs outcomes of positive probability, got probability zero in "
            f"{first_rows(impossible)}; leave these rows out, or mix the member with a less certain one first"
        )


def _interval_rows(rows: Tensor, lower: Tensor, upper: Tensor, latent: Latent, intercept: bool) -> list[Term]:
    lower, upper = lower.to(torch.float64), upper.to(torch.float64)
    has_lower, has_upper = torch.isfinite(lower), torch.isfinite(upper)
    closed, left, right = has_lower & has_upper, has_upper & ~has_lower, has_lower & ~has_upper
    terms: list[Term] = []
    if bool(left.any()):
        terms.append(LogCdf(latent, rows[left], _line(upper[left], intercept)))
    if bool(right.any()):
        terms.append(LogSf(latent, rows[right], _line(lower[right], intercept)))
    if bool(closed.any()):
        low, high = _line(lower[closed], intercept), _line(upper[closed], intercept)
        zero = torch.zeros(int(closed.sum()), dtype=torch.float64)
        terms.extend(interval_terms(latent, rows[closed], low, high, high - low, zero))
    return terms


def _line(h: Tensor, intercept: bool) -> Tensor:
    """Return the design of a + b h, or of b h, shape (2, m) or (1, m)."""
    h = h.detach().to(torch.float64)
    return torch.stack([torch.ones_like(h), h]) if intercept else h.unsqueeze(0)


def _columns(h: Tensor, code: Tensor, inner: int, slope: str) -> Tensor:
    """Return the design of a_k + b_k h for each row's threshold k, shape (p, n)."""
    n = len(h)
    values = torch.where(torch.isfinite(h), h, torch.zeros_like(h))
    if slope == "only":
        return values.unsqueeze(0)
    place = code.clamp(0, inner - 1).unsqueeze(0)
    indicator = torch.zeros((inner, n), dtype=torch.float64).scatter(0, place, 1.0)
    if slope == "common":
        return torch.cat([indicator, values.unsqueeze(0)])
    return torch.cat([indicator, indicator * values])


def _pick(values: Tensor, index: Tensor) -> Tensor:
    last = values.shape[1] - 1
    return values.gather(1, index.clamp(0, last).unsqueeze(1)).squeeze(1)
