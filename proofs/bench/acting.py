"""What an acting step costs: in training, through `Agent.act`, and as an exported ONNX model."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from timing import time_in_turns

from holdfast.config import load_settings
from holdfast.deploy import Agent
from holdfast.export import export_onnx
from holdfast.policies import make_policy
from holdfast.rollout import first_inputs
from holdfast.spec import keys

CASES = {
    "box, LSTM 64 (CartPole)": ["env=gym:CartPole-v1"],
    "fast, 2 x LSTM 128 (memory)": ["env=memory"],
    "latent_attn_tiny, 2 x LSTM 128 (memory)": ["env=memory", "py_agent=latent_attn_tiny"],
}
BATCHES = (1, 64)
CALLS = 50  # in a measurement


def measure_acting(repeats: int) -> list[dict[str, Any]]:
    """Measure microseconds per call, and the ratio of `Agent.act` to the policy's own acting row."""
    rows = []
    for name, words in CASES.items():
        for batch in BATCHES:
            took = measure_case(words, batch, repeats)
            row = {"agent": name, "observations": batch, "policy.act": took["policy"], "agent.act": took["agent"]}
            rows.append({**row, "ratio": took["agent"] / took["policy"], "onnxruntime": took["onnx"]})
    return rows


def measure_case(words: list[str], batch: int, repeats: int) -> dict[str, float]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    settings = load_settings(words)
    policy = make_policy(settings.policy, settings.env.describe())
    agent = Agent(policy)
    with settings.env.model_copy(update={"num_envs": batch}).build(range(batch)) as world:
        obs, info = world.reset(seed=0)
        obs, spec = obs[:batch], world.world_spec
    single = obs[0] if batch == 1 else obs
    first = first_inputs(spec, obs, {key: x[:batch] for key, x in info.items() if key == keys.ACTION_MASK})
    inputs = {key: torch.from_numpy(x.copy())[None] for key, x in first.items()}
    inputs[keys.DONES] = torch.zeros_like(inputs[keys.DONES])
    start, state = policy.initial_state(batch), agent.initial_state(batch)
    with tempfile.TemporaryDirectory() as folder:
        run = onnx_step(Path(folder) / "agent.onnx", policy, settings.env, obs)
        calls = {
            "policy": lambda: policy.act(inputs, start),
            "agent": lambda: agent.act(single, state),
            "onnx": run,
        }
        with torch.no_grad():
            took = time_in_turns({key: lambda call=call: repeat(call) for key, call in calls.items()}, repeats)
    torch.set_num_threads(threads)
    return {key: 1e3 * milliseconds / CALLS for key, milliseconds in took.items()}


def onnx_step(path: Path, policy: Any, env: Any, obs: np.ndarray) -> Any:
    """Export the policy and return a function that runs it once, on one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(export_onnx(policy, path, env).path, options)
    feeds = {
        port.name: np.zeros(
            [len(obs) if size == "batch" else size for size in port.shape], port.type[7:-1].replace("float", "float32")
        )
        for port in session.get_inputs()
    }
    feeds["obs"] = obs
    return lambda: session.run(None, feeds)


def repeat(call: Any) -> None:
    for _ in range(CALLS):
        call()
