"""A recurrent PPO and a CartPole written in JAX, compiled together into one program: what is possible if the world can be compiled.

It does much less than the others: no Python or multi-agent worlds, no checkpoints or exact resume, no metrics, one fixed network,
and a time limit counts as the end of the world (its value is not bootstrapped). Compile time is reported apart.
"""

from __future__ import annotations

import os

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"  # one thread; read when JAX is imported

from time import perf_counter
from typing import Any, NamedTuple

import common
import jax
import jax.numpy as jnp
from common import Clock, parse_options, print_result
from jax import Array, lax, random
from jax.tree_util import tree_map

Params = dict[str, Array]


class Worlds(NamedTuple):
    physics: Array  # [B, 4]: position and velocity of the cart, angle and angular velocity of the pole
    steps: Array  # [B] since the episode began


class Carry(NamedTuple):
    """Everything that passes from one update to the next."""

    params: Params
    mean: Params  # of the gradient, by Adam
    square: Params
    num_steps: Array  # of Adam
    worlds: Worlds
    memory: tuple[Array, Array]
    first: Array  # [B] bool: this observation begins an episode
    key: Array


class Step(NamedTuple):
    obs: Array
    first: Array
    action: Array
    log_prob: Array
    value: Array
    reward: Array
    done: Array


def reset_worlds(key: Array, num_envs: int) -> Worlds:
    return Worlds(random.uniform(key, (num_envs, 4), minval=-0.05, maxval=0.05), jnp.zeros(num_envs, jnp.int32))


def step_worlds(worlds: Worlds, action: Array, key: Array) -> tuple[Worlds, Array]:
    """CartPole-v1's physics; a world that ends is reset in the same step."""
    x, v, angle, spin = worlds.physics.T
    force = jnp.where(action == 1, 10.0, -10.0)
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    push = (force + 0.05 * spin**2 * sin) / 1.1
    spin_change = (9.8 * sin - cos * push) / (0.5 * (4.0 / 3.0 - 0.1 * cos**2 / 1.1))
    v_change = push - 0.05 * spin_change * cos / 1.1
    moved = jnp.stack([x + 0.02 * v, v + 0.02 * v_change, angle + 0.02 * spin, spin + 0.02 * spin_change], 1)
    steps = worlds.steps + 1
    done = (jnp.abs(moved[:, 0]) > 2.4) | (jnp.abs(moved[:, 2]) > 12 * jnp.pi / 180) | (steps >= 500)
    new = reset_worlds(key, len(x))
    return Worlds(jnp.where(done[:, None], new.physics, moved), jnp.where(done, new.steps, steps)), done


def make_params(key: Array) -> Params:
    shapes = {
        "encoder": (2, common.HIDDEN),
        "lstm": (2 * common.HIDDEN, 4 * common.HIDDEN),
        "actor": (common.HIDDEN, 2),
        "critic": (common.HIDDEN, 1),
    }
    scales = {"encoder": 1.0, "lstm": 1.0, "actor": 0.01, "critic": 1.0}
    keys = random.split(key, len(shapes))
    params = {
        n: scales[n] * jax.nn.initializers.orthogonal()(k, s) for (n, s), k in zip(shapes.items(), keys, strict=True)
    }
    return params | {f"{name}_bias": jnp.zeros(shape[1]) for name, shape in shapes.items()}


def lstm_step(params: Params, memory: tuple[Array, Array], inputs: tuple[Array, Array]) -> tuple[Any, Array]:
    """One step of the LSTM on what the input contributes to the gates; memory is zero where `first` is true."""
    gates_of_x, first = inputs
    h, c = (jnp.where(first[:, None], 0.0, s) for s in memory)
    i, f, g, o = jnp.split(gates_of_x + h @ params["lstm"][common.HIDDEN :], 4, 1)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    h = jax.nn.sigmoid(o) * jnp.tanh(c)
    return (h, c), h


def run_policy(
    params: Params, memory: tuple[Array, Array], obs: Array, first: Array
) -> tuple[tuple[Array, Array], Array, Array]:
    """obs [T, B, 2], first [T, B] -> memory, log-probs [T, B, 2], values [T, B]."""
    x = jnp.tanh(obs @ params["encoder"] + params["encoder_bias"])
    gates = x @ params["lstm"][: common.HIDDEN] + params["lstm_bias"]
    memory, h = lax.scan(lambda m, inputs: lstm_step(params, m, inputs), memory, (gates, first))
    logits = h @ params["actor"] + params["actor_bias"]
    return memory, jax.nn.log_softmax(logits), (h @ params["critic"] + params["critic_bias"])[..., 0]


def taken(log_probs: Array, actions: Array) -> Array:
    return jnp.take_along_axis(log_probs, actions[..., None], -1)[..., 0]


def observe(worlds: Worlds) -> Array:
    return worlds.physics[:, jnp.array([0, 2])]


def collect(carry: Carry) -> tuple[Carry, Step]:
    """HORIZON steps of every world, as Step of [T, B]."""

    def step(state: Any, key: Array) -> tuple[Any, Step]:
        worlds, memory, first = state
        key_action, key_world = random.split(key)
        obs = observe(worlds)
        memory, log_probs, value = run_policy(carry.params, memory, obs[None], first[None])
        action = random.categorical(key_action, log_probs[0])
        worlds, done = step_worlds(worlds, action, key_world)
        row = Step(obs, first, action, taken(log_probs[0], action), value[0], jnp.ones(len(obs)), done)
        return (worlds, memory, done), row

    key, *keys = random.split(carry.key, common.HORIZON + 1)
    (worlds, memory, first), rows = lax.scan(step, (carry.worlds, carry.memory, carry.first), jnp.stack(keys))
    return carry._replace(worlds=worlds, memory=memory, first=first, key=key), rows


def compute_advantages(carry: Carry, rows: Step) -> Array:
    """GAE, [T, B]."""
    _, _, last = run_policy(carry.params, carry.memory, observe(carry.worlds)[None], carry.first[None])

    def back(state: tuple[Array, Array], row: Step) -> tuple[tuple[Array, Array], Array]:
        advantage, next_value = state
        alive = 1.0 - row.done
        delta = row.reward + common.GAMMA * alive * next_value - row.value
        advantage = delta + common.GAMMA * common.GAE_LAMBDA * alive * advantage
        return (advantage, row.value), advantage

    return lax.scan(back, (jnp.zeros_like(last[0]), last[0]), rows, reverse=True)[1]


def loss(params: Params, memory: tuple[Array, Array], rows: Step, advantages: Array) -> Array:
    _, log_probs, values = run_policy(params, memory, rows.obs, rows.first)
    ratio = jnp.exp(taken(log_probs, rows.action) - rows.log_prob)
    normal = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    gain = jnp.minimum(ratio * normal, jnp.clip(ratio, 1 - common.CLIP, 1 + common.CLIP) * normal)
    return common.VALUE_COEF * jnp.square(values - (advantages + rows.value)).mean() - gain.mean()


def adam_step(carry: Carry, grads: Params) -> Carry:
    norm = jnp.sqrt(sum(jnp.sum(g * g) for g in grads.values()))
    grads = tree_map(lambda g: g * jnp.minimum(1.0, common.MAX_GRAD_NORM / (norm + 1e-6)), grads)
    n = carry.num_steps + 1
    mean = tree_map(lambda m, g: 0.9 * m + 0.1 * g, carry.mean, grads)
    square = tree_map(lambda s, g: 0.999 * s + 0.001 * g * g, carry.square, grads)
    params = tree_map(
        lambda p, m, s: p - common.LR * (m / (1 - 0.9**n)) / (jnp.sqrt(s / (1 - 0.999**n)) + 1e-8),
        carry.params,
        mean,
        square,
    )
    return carry._replace(params=params, mean=mean, square=square, num_steps=n)


def update(carry: Carry) -> tuple[Carry, Array]:
    """Collect a rollout and learn from it. Also returns the mean length of the episodes under way."""
    start = carry.memory
    carry, rows = collect(carry)
    advantages = compute_advantages(carry, rows)
    num_envs = rows.first.shape[1]

    def learn_minibatch(carry: Carry, envs: Array) -> tuple[Carry, None]:
        part, part_advantages = tree_map(lambda x: x[:, envs], (rows, advantages))
        grads = jax.grad(loss)(carry.params, tree_map(lambda s: s[envs], start), part, part_advantages)
        return adam_step(carry, grads), None

    def learn_epoch(carry: Carry, key: Array) -> tuple[Carry, None]:
        order = random.permutation(key, num_envs).reshape(common.MINIBATCHES, -1)
        return lax.scan(learn_minibatch, carry, order)

    key, *keys = random.split(carry.key, common.EPOCHS + 1)
    carry, _ = lax.scan(learn_epoch, carry._replace(key=key), jnp.stack(keys))
    return carry, carry.worlds.steps.mean()


def main() -> None:
    options = parse_options()
    key, key_params, key_worlds = random.split(random.key(options.seed), 3)
    params, zeros = make_params(key_params), jnp.zeros((options.envs, common.HIDDEN))
    nothing = tree_map(jnp.zeros_like, params)
    first = jnp.ones(options.envs, bool)
    worlds = reset_worlds(key_worlds, options.envs)
    carry = Carry(params, nothing, nothing, jnp.zeros(()), worlds, (zeros, zeros), first, key)
    began = perf_counter()
    compiled = jax.jit(update).lower(carry).compile()
    compile_seconds = perf_counter() - began
    clock, steps = Clock(options), 0
    while True:
        carry, length = compiled(carry)
        length = float(length)  # waits for the update
        steps += options.envs * common.HORIZON
        if clock.update_done(steps):
            break
    note = f"compiled in {compile_seconds:.1f} s; episodes under way last {length:.0f} steps"
    print_result({**clock.figures(), "compile_seconds": compile_seconds}, ("jax", "jaxlib"), note)


main()
