"""Root finding and the coordinates of sample spaces."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as hs

from deeptram.predictive.calculus import coordinate, coordinate_of, grid_bracket, solve_increasing

SPACES = {"line": (-np.inf, np.inf), "above": (3.0, np.inf), "below": (-np.inf, -2.0), "between": (-1.0, 4.0)}


def ends(name):
    return (torch.full((1, 1), end, dtype=torch.float64) for end in SPACES[name])


def solve(function, lower, upper, start, **options):
    return solve_increasing(
        function, *(torch.tensor(x, dtype=torch.float64) for x in (lower, upper, start)), **options
    )


@given(root=hs.floats(-1e6, 1e6), power=hs.sampled_from([1, 3]), start=hs.floats(-1e6, 1e6))
def test_polynomials(root, power, start):
    found = solve(lambda x: ((x - root) ** power, power * (x - root) ** (power - 1)), [-2e6], [2e6], [start])
    assert found.item() == pytest.approx(root, rel=1e-7, abs=1e-4 if power == 3 else 1e-9)


def test_hard_functions():
    jump = solve(lambda x: (torch.where(x < 0.3, -1.0, 1.0), torch.zeros_like(x)), [-5.0], [9.0], [1.0])
    assert jump.item() == pytest.approx(0.3, abs=1e-9)
    steep = solve(
        lambda x: (torch.tanh(1e8 * (x - 0.3)), 1e8 / torch.cosh(1e8 * (x - 0.3)) ** 2), [-5.0], [9.0], [1.0]
    )
    assert steep.item() == pytest.approx(0.3, abs=1e-9)
    infinite = solve(
        lambda x: (torch.where(x < 7, -torch.inf, torch.inf), torch.full_like(x, torch.nan)),
        [-5.0],
        [9.0],
        [1.0],
    )
    assert infinite.item() == pytest.approx(7.0, abs=1e-9)


def test_a_huge_slope_is_not_mistaken_for_a_root():
    found = solve(lambda x: (x - 5, torch.where(x == 0, torch.inf, 1.0)), [-10.0], [10.0], [0.0])
    assert found.item() == 5.0


def test_crawling_newton_steps_are_overtaken_by_bisection():
    """sinh from far out: Newton goes down by one at a time and halves the residual each time."""
    calls = []

    def function(x):
        calls.append(x)
        return torch.where(x < 1e-4, -torch.inf, torch.sinh(x) - 0.5), torch.cosh(x)

    assert solve(function, [-709.0], [709.0], [0.0], noise=1e-12).item() == pytest.approx(np.arcsinh(0.5))
    assert len(calls) < 60


def test_a_root_outside_is_moved_to_the_end():
    found = solve(lambda x: (x - 50, torch.ones_like(x)), [0.0], [10.0], [2.0])
    assert found.item() == pytest.approx(10.0)


@pytest.mark.parametrize("name", SPACES)
@given(u=hs.floats(-30, 30))
def test_coordinates_and_their_derivatives(name, u):
    low, high = ends(name)
    at = torch.tensor([[u]], dtype=torch.float64)
    y, dy, bend = coordinate(at, low, high)
    assert low.item() <= y.item() <= high.item()
    step = 1e-6
    (y1, d1, _), (y0, d0, _) = coordinate(at + step, low, high), coordinate(at - step, low, high)
    assert dy.item() == pytest.approx((y1 - y0).item() / (2 * step), rel=1e-5, abs=1e-8)
    assert bend.item() == pytest.approx(
        (torch.log(d1) - torch.log(d0)).item() / (2 * step), rel=1e-5, abs=1e-8
    )
    if abs(u) < 10:
        assert coordinate_of(y, low, high).item() == pytest.approx(u, rel=1e-9, abs=1e-9)


def test_rows_of_different_kinds():
    low = torch.tensor([[a] for a, _ in SPACES.values()], dtype=torch.float64)
    high = torch.tensor([[b] for _, b in SPACES.values()], dtype=torch.float64)
    u = torch.full((4, 1), 0.7, dtype=torch.float64)
    together = coordinate(u, low, high)
    for row in range(4):
        alone = coordinate(u[row : row + 1], low[row : row + 1], high[row : row + 1])
        for a, b in zip(together, alone, strict=True):
            assert a[row].item() == b.item()


def test_grid_bracket_of_shared_and_own_tables():
    table = torch.tensor([[0.0, 1.0, 3.0, 3.0]], dtype=torch.float64)
    target = torch.tensor([[-1.0, 0.25], [2.0, 3.0]], dtype=torch.float64)
    cell, position = grid_bracket(table, target)
    assert cell.tolist() == [[0, 0], [1, 2]]
    assert position.tolist() == [[0.0, 0.25], [0.5, 0.5]]
    own = grid_bracket(table.expand(2, -1), target)
    assert torch.equal(own[0], cell)
    assert torch.equal(own[1], position)
