"""The benchmark compares two ways to compute the same function; if they differ, its ratio means nothing."""

import torch

from holdfast.envs import ArenaEnv
from holdfast.policies import Fast
from holdfast.spec import keys
from support.policies import random_actions, random_arrivals, score


def test_the_first_version_computes_the_same():
    from first_version import FirstVersionFast

    spec = ArenaEnv().describe()
    torch.manual_seed(0)
    # In double precision: what single precision blurs would hide a small difference.
    ours, first = Fast(spec).double(), FirstVersionFast(spec).double()
    first.load_state_dict(ours.state_dict())
    arrivals = random_arrivals(spec, 4, 3, seed=0)
    # One token per cell: where two of one feature share a cell, as no world sends them, a dense box overwrites and a sum adds.
    cell = torch.arange(arrivals[keys.OBS].shape[-2])
    arrivals[keys.OBS][..., 0] = torch.where(cell < 121, cell // 11 * 16 + cell % 11, 0xFF).byte()
    actions = random_actions(spec, (4, 3), torch.Generator().manual_seed(0))
    outs = [score(policy, arrivals, policy.initial_state(3), actions) for policy in (ours, first)]
    for key in (keys.LOG_PROB, keys.VALUES, keys.ENTROPY):
        torch.testing.assert_close(outs[0][key], outs[1][key], rtol=1e-9, atol=1e-9)
    for out in outs:
        (out[keys.LOG_PROB].sum() + out[keys.VALUES].sum()).backward()
    for (name, p), q in zip(ours.named_parameters(), first.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-7, atol=1e-7, msg=name)
