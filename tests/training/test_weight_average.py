"""Averaged weights: against plain sums, batch-norm statistics and counters included."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from attnknn.training.weight_average import Lookahead, MovingAverage


def network() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.random.manual_seed(0)
        return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def walk(module: nn.Module, step: int) -> None:
    """Something like a step of training, batch-norm statistics included."""
    module.train()
    with torch.no_grad():
        module(torch.full((6, 3), float(step)) + torch.arange(6.0)[:, None])
        for parameter in module.parameters():
            parameter.add_(torch.sin(torch.tensor(float(step))))


def floats(state):
    return {name: value for name, value in state.items() if value.is_floating_point()}


def test_a_moving_average_is_the_weighted_sum_of_what_was_seen():
    module = network()
    average = MovingAverage(module, decay=0.6)
    expected = {name: value.clone() for name, value in floats(module.state_dict()).items()}
    for step in range(1, 25):
        walk(module, step)
        average.update(module)
        decay = min(0.6, step / (step + 9))
        for name, value in floats(module.state_dict()).items():
            expected[name] = decay * expected[name] + (1 - decay) * value
    for name, value in expected.items():
        assert torch.allclose(average.state[name], value, atol=1e-5), name
    assert int(average.state["1.num_batches_tracked"]) == 24


def test_the_average_of_weights_that_stay_is_these_weights():
    module = network()
    average = MovingAverage(module, decay=0.9)
    for _ in range(30):
        average.update(module)
    for name, value in module.state_dict().items():
        assert torch.allclose(average.state[name].double(), value.double(), atol=1e-6)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_lookahead_returns_to_slow_weights(share):
    module = network()
    start, lookahead = copy.deepcopy(module), Lookahead(module, every=3, share=share)
    for step in range(1, 4):
        walk(module, step)
        fast = copy.deepcopy(module.state_dict())
        lookahead.update(module)
        if step < 3:
            assert torch.equal(module[0].weight, fast["0.weight"])
    for name, value in floats(start.state_dict()).items():
        met = value + share * (fast[name] - value)
        assert torch.allclose(module.state_dict()[name], met, atol=1e-5)
        assert torch.equal(module.state_dict()[name], lookahead.state[name])
    assert int(module.state_dict()["1.num_batches_tracked"]) == 3


def test_lookahead_holds_the_end_back_and_not_the_start():
    module = network()
    lookahead = Lookahead(module, every=1, share=0.25, n_steps=10)
    shares = []
    for step in range(1, 11):
        slow = lookahead.state["0.weight"].clone()
        walk(module, step)
        fast = module[0].weight.detach().clone()
        lookahead.update(module)
        moved = (module[0].weight.detach() - slow).norm() / (fast - slow).norm()
        shares.append(moved.item())
    assert shares == pytest.approx([1 - 0.75 * (step / 10) ** 3 for step in range(1, 11)], rel=1e-3)


def test_averaged_weights_are_lent_and_given_back():
    module = network()
    average = MovingAverage(module, decay=0.5)
    walk(module, 1)
    average.update(module)
    walk(module, 2)
    own = copy.deepcopy(module.state_dict())
    with average.applied(module):
        for name, value in module.state_dict().items():
            assert torch.equal(value, average.state[name])
    with pytest.raises(RuntimeError), average.applied(module):
        raise RuntimeError
    for name, value in module.state_dict().items():
        assert torch.equal(value, own[name])


@pytest.mark.parametrize("kind", [MovingAverage, Lookahead])
def test_a_saved_average_goes_on_as_if_never_saved(kind):
    module = network()
    setting = {"decay": 0.7} if kind is MovingAverage else {"every": 2}
    average = kind(module, **setting)
    for step in range(1, 4):
        walk(module, step)
        average.update(module)
    other_module = copy.deepcopy(module)
    other = kind(network(), **setting)
    other.load_state_dict(average.state_dict())
    for step in range(4, 8):
        for m, a in ((module, average), (other_module, other)):
            walk(m, step)
            a.update(m)
    for name, value in average.state.items():
        assert torch.equal(value, other.state[name])


def test_measured_statistics_are_the_mean_over_batches():
    module = network().eval()
    batches = [torch.randn(8, 3, generator=torch.Generator().manual_seed(i)) for i in range(4)]
    hidden = [module[0](batch) for batch in batches]
    torch.optim.swa_utils.update_bn(batches, module)
    assert not module.training
    assert module[1].momentum == 0.1
    means = torch.stack([h.mean(0) for h in hidden]).mean(0)
    variances = torch.stack([h.var(0) for h in hidden]).mean(0)
    assert torch.allclose(module[1].running_mean, means, atol=1e-5)
    assert torch.allclose(module[1].running_var, variances, atol=1e-5)
