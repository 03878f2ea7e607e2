"""`make export-table`: export every agent with every core, as ONNX and as a torch program, and compare with the policy.

Each exported file is replayed over 1,000 steps of 64 slots, with the episode ends of its world, in batches of 64, 7 and 1. The
policies are not trained: their weights are those of a new agent, but with biases, with the last layer of the actor as large as the
others, and with equal mean scores of all actions, so that the greedy action varies and equal actions say something. Normalisers have
the statistics of observations of the world.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import gymnasium
import numpy as np
import torch
from gymnasium import spaces

from holdfast.config import load_settings
from holdfast.config.registry import CELLS
from holdfast.config.sections import EnvSection
from holdfast.export import onnx, program
from holdfast.export.files import load
from holdfast.export.interface import metadata_of, num_choices
from holdfast.export.proof import TOLERANCE, prove
from holdfast.export.step import Step, prepared
from holdfast.export.trajectory import Trajectory, record
from holdfast.policies import GRID_AGENTS, BoxPolicy, MettaAgent, Policy
from holdfast.policies.actions import ILLEGAL
from holdfast.policies.parts.heads import ActionEmbedding, ActionHead, BilinearHead

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "export.md"
BEGIN, END = "<!-- export-table: begin -->", "<!-- export-table: end -->"
TOYS = ROOT / "tests" / "envs" / "toys"
STEPS, SLOTS, SEED = 1000, 64, 0
KINDS = ("onnx", "torch")
NEAR_ZERO = 0.1  # the gain of a last layer that begins near zero; others begin with about 1
SEEN = 100  # steps over which scores are made equal; in `arena`, what agents see changes for longer
MOST_COMMON = 0.9  # the share of the policy's greedy actions that no action may exceed
# what the row shows: words
BOX = {
    "vector: CartPole without velocities": ["env=gym:CartPole-v1", "env.hide=[1,3]"],
    "real actions: Pendulum": ["env=gym:Pendulum-v1"],
    "symbols and masks: Taxi": ["env=gym:Taxi-v4"],
    "masks of two choices": [f"env={TOYS / 'toy_masks.py'}:Gate", "env.kwargs.parts=true", "env.action_mask=true"],
    "image, 40 x 40 x 3": [f"env={__file__}:Camera"],
    "Dict, masks, choices and reals": [f"env={TOYS / 'toy_nested.py'}:Robot"],
    "sees action and reward": ["env=gym:CartPole-v1", "env.hide=[1,3]", "policy.sees=[action,reward]"],
}
ROWS = {f"`{key}={name}`": ["env=memory", f"{key}={name}"] for name in GRID_AGENTS for key in ("py_agent", "agent")}
ROWS |= {f"`py_agent={name}` in `arena`": ["env=arena", f"py_agent={name}"] for name in ("fast", "latent_attn_small")}
ROWS |= {f"`box`, {what}": ["py_agent=box", *words] for what, words in BOX.items()}


class Camera(gymnasium.Env):
    """A picture of random blocks that drift; an episode ends at random. Save for the picture, nothing matters."""

    observation_space = spaces.Box(0, 255, (40, 40, 3), np.uint8)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        blocks = self.np_random.integers(0, 256, (8, 8, 3), np.uint8)
        self.picture = blocks.repeat(5, 0).repeat(5, 1)
        return self.picture, {}

    def step(self, action):
        self.picture = np.roll(self.picture, int(action) - 1, 1)
        return self.picture, 0.0, bool(self.np_random.random() < 0.02), False, {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="rows that contain one of these texts (default: all)")
    parser.add_argument("--cores", nargs="*", default=list(CELLS))
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--json", type=Path, help="write the figures here, and do not measure again what the file has")
    parser.add_argument("--write", action="store_true", help="write the table into docs/export.md")
    options = parser.parse_args()
    if options.write and (options.names or options.steps != STEPS or set(options.cores) != set(CELLS)):
        parser.error("--write: only with all rows, cores and steps")
    torch.set_num_threads(1)
    chosen = [row for row in ROWS if not options.names or any(name in row for name in options.names)]
    known = json.loads(options.json.read_text()) if options.json and options.json.exists() else []
    for row, core in [(row, core) for row in chosen for core in options.cores]:
        if not any((f["row"], f["core"], f["steps"]) == (row, core, options.steps) for f in known):
            for figures in measure(row, core, options.steps):
                known.append(figures)
                print("  ".join(str(value) for value in figures.values()), flush=True)
            if options.json:
                options.json.write_text(json.dumps(known, indent=1) + "\n")
    found = [f for f in known if f["row"] in chosen and f["core"] in options.cores and f["steps"] == options.steps]
    met = all(max(f["largest_difference"], f["largest_lead"]) <= TOLERANCE for f in found)
    text = table(found, chosen, options.cores)
    print(text)
    print("met" if met else "MISSED")
    if options.write:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}")
    sys.exit(0 if met else 1)


def measure(row: str, core: str, steps: int) -> list[dict]:
    """Return the figures of one policy, one entry per kind of file."""
    settings = load_settings([*ROWS[row], f"policy.core={core}", "audit=off"])
    torch.manual_seed(SEED)
    policy = MettaAgent(settings.policy, settings.env.describe()).policy
    with prepared(policy):
        make_lively(policy, settings.env, steps if settings.env.name == "arena" else SEEN)
        recorded, interface = record(policy, settings.env, steps, SLOTS, SEED)
        share = most_common(recorded, policy)
        if share > MOST_COMMON:
            raise SystemExit(f"{row}, {core}: {share:.0%} of the greedy actions are the same")
        metadata = metadata_of(policy, interface, {})
        figures = []
        for kind in KINDS:
            began = time.perf_counter()
            traced = program.trace(Step(policy, interface))
            data = program.save(traced, metadata) if kind == "torch" else onnx.convert(traced, interface, metadata)
            exported = time.perf_counter()
            proof = prove(load(data, kind, row), interface, recorded)
            figures.append(
                {
                    "row": row,
                    "core": core,
                    "kind": kind,
                    "largest_difference": proof.largest_difference,
                    "place": proof.place,
                    "actions": proof.actions,
                    "other_actions": proof.other_actions,
                    "first_other_action": proof.first_other_action,
                    "largest_lead": proof.largest_lead,
                    "most_common_action": round(share, 2),
                    "episodes": proof.episodes,
                    "steps": proof.steps,
                    "batches": proof.batches,
                    "bytes": len(data),
                    "export_s": round(exported - began, 1),
                    "proof_s": round(time.perf_counter() - exported, 1),
                }
            )
    return figures


def make_lively(policy: Policy, env: EnvSection, steps: int) -> None:
    """Change the weights of a new policy so that its outputs depend on what it observes in these steps, see above."""
    for parameter in policy.parameters():
        gain = float(parameter.std()) * parameter[0].numel() ** 0.5 if parameter.dim() > 1 else 0.0
        if 0.0 < gain < NEAR_ZERO:
            parameter /= gain
        elif parameter.dim() == 1:
            parameter += 0.1 * torch.randn_like(parameter)
    if policy.absorbs:
        seen, _ = record(policy, env, 20, SLOTS, SEED + 1)
        policy.absorb(torch.from_numpy(seen.inputs["obs"]).flatten(0, 1))
    features: list[torch.Tensor] = []
    for module in policy.modules():
        if isinstance(module, BilinearHead):
            module.register_forward_pre_hook(lambda head, args: features.append(torch.tanh(args[0] @ head.W)))
    seen, _ = record(policy, env, steps, SLOTS, SEED + 2)
    if "logits" not in seen.outputs:
        return
    logits, legal = seen.outputs["logits"], seen.outputs["logits"] > ILLEGAL
    mean = torch.from_numpy(logits.sum((0, 1), where=legal) / legal.sum((0, 1)).clip(min=1))
    for module in policy.modules():
        if isinstance(module, BilinearHead):
            module._forward_pre_hooks.clear()
        elif isinstance(module, ActionEmbedding):  # its score is tanh(h W) . embedding
            middle = torch.cat(features).mean(0)
            module.weight[: len(mean)] -= torch.outer(mean - mean.mean(), middle) / middle.square().sum()
        elif isinstance(module, ActionHead):
            assert isinstance(module.bias, torch.Tensor)
            module.bias -= mean
        elif isinstance(module, BoxPolicy):
            last = module.actor[-1]
            assert isinstance(last, torch.nn.Linear)
            last.bias[: len(mean)] -= mean


def most_common(recorded: Trajectory, policy: Policy) -> float:
    """Return the share of the most common greedy choice, 0 if actions are real numbers only."""
    actions = recorded.actions.reshape(recorded.steps * recorded.slots, -1)[
        :, : num_choices(policy.spec.to_json()["actions"])
    ]
    return float(np.unique(actions, axis=0, return_counts=True)[1].max() / len(actions)) if actions.size else 0.0


def table(found: list[dict], rows: list[str], cores: list[str]) -> str:
    """Return the largest differences as a Markdown table, with a column per core and kind."""
    by_place = {(f["row"], f["core"], f["kind"]): f for f in found}
    columns = [(core, kind) for core in cores for kind in KINDS]
    names = {"onnx": "ONNX", "torch": "torch"}
    lines = ["| agent | episodes | " + " | ".join(f"{core}, {names[kind]}" for core, kind in columns) + " |"]
    lines.append("|---|---|" + "---|" * len(columns))
    for row in rows:
        cells = []
        for core, kind in columns:
            figures = by_place[row, core, kind]
            cells.append(
                f"{figures['largest_difference']:.1e}"
                + (f", {figures['other_actions']} other" if figures["other_actions"] else "")
            )
        episodes = min(f["episodes"] for f in found if f["row"] == row)
        lines.append(f"| {row} | {episodes:,} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", summary(found)])


def summary(found: list[dict]) -> str:
    """Return what the table says about actions, as a sentence."""
    others, compared = sum(f["other_actions"] for f in found), sum(f["actions"] for f in found)
    worst = max(f["largest_difference"] for f in found)
    text = f"The largest difference of {len(found)} files is {worst:.1e}."
    if not others:
        return f"{text} All {compared:,} greedy actions are the policy's."
    lead = max(f["largest_lead"] for f in found)
    return (
        f"{text} {others} of {compared:,} greedy actions are not the policy's (`other` in the table): there, the policy's scores of "
        f"the two actions differ by {lead:.1e} at most."
    )


if __name__ == "__main__":
    main()
