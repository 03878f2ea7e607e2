"""The order in which units are drawn."""

import numpy as np

from holdfast.view.units import order_of_units


def test_units_that_do_the_same_are_beside_each_other():
    generator = np.random.default_rng(0)
    causes = generator.normal(size=(500, 3))
    kinds = np.array([0, 1, 2, 0, 1, 2, 0, 1, 2])
    signs = np.array([1, 1, 1, -1, 1, -1, 1, -1, 1])
    activity = causes[:, kinds] * signs + 0.1 * generator.normal(size=(500, 9))
    order = order_of_units(activity, 9)
    assert sorted(order.tolist()) == [*range(9)]
    assert (np.diff(kinds[order]) != 0).sum() == 2


def test_of_many_units_those_that_vary_most_are_drawn():
    activity = np.random.default_rng(0).normal(size=(100, 6)) * [1, 5, 0, 4, 3, 0.1]
    assert sorted(order_of_units(activity, 3).tolist()) == [1, 3, 4]


def test_units_that_never_change_come_last():
    activity = np.random.default_rng(0).normal(size=(100, 5))
    activity[:, [1, 3]] = 0.5
    assert order_of_units(activity, 5)[-2:].tolist() == [1, 3]
    assert order_of_units(np.zeros((10, 4)), 4).tolist() == [0, 1, 2, 3]
    assert order_of_units(np.zeros((1, 2)), 4).tolist() == [0, 1]
