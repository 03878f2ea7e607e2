"""Cores: sizes, initial weights, errors, and torch.compile."""

import pytest
import torch

from holdfast.recurrence import GRU, LSTM, Memoryless, MinGRU, make_core


def test_make_core_by_name():
    for kind, cls, leaves in (("lstm", LSTM, 2), ("gru", GRU, 1), ("mingru", MinGRU, 1), ("none", Memoryless, 0)):
        core = make_core(kind, 3, 4, 2)
        assert type(core) is cls
        assert (core.input_size, core.hidden_size, core.num_layers) == (3, 4, 2)
        assert core.state_shapes == ((2, 4),) * leaves
        assert [leaf.shape for leaf in core.initial_state(5)] == [(2, 5, 4)] * leaves
        assert all((leaf == 0).all() for leaf in core.initial_state(5))


def test_an_unknown_core_is_refused_with_the_choices():
    with pytest.raises(ValueError, match="lstn") as caught:
        make_core("lstn", 3, 4, 2)
    assert all(name in str(caught.value) for name in ("lstm", "gru", "mingru", "none"))


@pytest.mark.parametrize("kind", ["lstm", "gru", "mingru", "none"])
@pytest.mark.parametrize(
    ("sizes", "name"), [((0, 4, 1), "input_size"), ((3, 0, 1), "hidden_size"), ((3, 4, 0), "num_layers")]
)
def test_sizes_below_one_are_refused(kind, sizes, name):
    with pytest.raises(ValueError, match=f"{name} is 0"):
        make_core(kind, *sizes)


@pytest.mark.parametrize(("cell", "gates"), [(LSTM, 4), (GRU, 3)])
def test_initial_weights_are_orthogonal_gate_by_gate(cell, gates):
    for name, parameter in cell(6, 6, 2).named_parameters():
        if name.startswith("weight"):
            for gate in parameter.chunk(gates):
                torch.testing.assert_close(gate.t() @ gate, torch.eye(6))


def test_initial_biases_open_the_forget_gates_of_an_lstm_only():
    lstm, gru = LSTM(3, 4, 2), GRU(3, 4, 2)
    for layer in range(2):
        bias = getattr(lstm, f"bias_ih_l{layer}") + getattr(lstm, f"bias_hh_l{layer}")
        assert bias.view(4, 4)[1].eq(1).all()
        assert bias.view(4, 4)[[0, 2, 3]].eq(0).all()
        assert not getattr(gru, f"bias_ih_l{layer}").any()


def test_two_new_layers_pass_their_input_on():
    """With matrices orthogonal as a whole, two LSTM layers passed on a sixteenth of this."""
    torch.manual_seed(0)
    lstm = LSTM(64, 64, 2)
    x, none = torch.randn(1, 32, 64), torch.ones(1, 32, dtype=torch.bool)
    y, _ = lstm(x, lstm.initial_state(32), none)
    assert y.std(1).norm() > 0.02 * x.std(1).norm()


def test_initial_parameters_of_a_mingru():
    core = MinGRU(6, 6, 2)
    assert [(name, list(p.shape)) for name, p in core.named_parameters()] == [
        ("weight_l0", [12, 6]),
        ("bias_l0", [12]),
        ("weight_l1", [12, 6]),
        ("bias_l1", [12]),
    ]
    for layer in range(2):
        weight, bias = core.weights(layer)
        for half in weight.chunk(2):
            torch.testing.assert_close(half.t() @ half, torch.eye(6))
        assert bias.tolist() == [0.0, -1.0, -2.0, -3.0, -4.0, -5.0] + [0.0] * 6


def test_state_has_the_type_of_the_parameters():
    core = LSTM(3, 4, 1).double()
    assert core.initial_state(2)[0].dtype == torch.float64


@pytest.mark.parametrize("kind", ["lstm", "gru", "mingru", "none"])
def test_wrong_shapes_are_refused(kind):
    core = make_core(kind, 3, 4, 2)
    x, state, first = torch.zeros(5, 2, 3), core.initial_state(2), torch.zeros(5, 2)
    with pytest.raises(ValueError, match=r"`x` has shape \[5, 2, 4\]; it must be \[T, B, 3\]"):
        core(torch.zeros(5, 2, 4), state, first)
    with pytest.raises(ValueError, match=r"`x` has shape \[2, 3\]"):
        core(x[0], state, first)
    with pytest.raises(ValueError, match=r"`x` has shape \[0, 2, 3\]"):
        core(x[:0], state, first[:0])
    with pytest.raises(ValueError, match=r"`first` has shape \[2, 5\].*must be \[5, 2\]"):
        core(x, state, first.t())
    with pytest.raises(ValueError, match=r"`first` has shape \[5\]"):
        core(x, state, first[:, 0])
    with pytest.raises(ValueError, match=r"initial_state\(2\)"):
        core(x, (*state, torch.zeros(2, 2, 4)), first)
    if state:
        with pytest.raises(ValueError, match=r"`state` has shapes .* for 2 slots it must be"):
            core(x, core.initial_state(3), first)


def test_memoryless_depends_on_one_step_only():
    core = Memoryless(3, 4, 2)
    x, first = torch.randn(5, 2, 3), torch.zeros(5, 2)
    y, state = core(x, (), first)
    assert y.shape == (5, 2, 4)
    assert state == ()
    one = torch.tanh(core.layers[1](torch.tanh(core.layers[0](x[3:4]))))
    torch.testing.assert_close(y[3:4], one)
    changed = x.clone()
    changed[:3] = 9.0
    assert torch.equal(core(changed, (), first)[0][3:], y[3:])


@pytest.mark.compiles
@pytest.mark.parametrize("kind", ["lstm", "gru", "mingru", "none"])
def test_inside_torch_compile(kind):
    core = make_core(kind, 3, 4, 2)

    def caller(x, state, first):
        y, state = core(torch.tanh(x), state, first)
        return torch.relu(y), state

    x, first = torch.randn(7, 5, 3, requires_grad=True), torch.rand(7, 5) < 0.3
    expected, _ = caller(x, core.initial_state(5), first)
    y, _ = torch.compile(caller, backend="eager")(x, core.initial_state(5), first)
    torch.testing.assert_close(y, expected)
    y.sum().backward()
    assert (x.grad != 0).any()
