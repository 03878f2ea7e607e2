"""Where a run's agent comes from: fresh weights, or those of another run."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from tensordict import TensorDict

from holdfast.audit import UnusableError, audit, failures_in_words, subject_of
from holdfast.audit.likeness import in_words
from holdfast.checkpoint import load_checkpoint, newest_checkpoint
from holdfast.config.settings import Settings
from holdfast.errors import SettingsError
from holdfast.policies import MettaAgent, OwnPolicySettings, Policy, Sampling
from holdfast.runs.files import fitting
from holdfast.runs.folder import runs_folder
from holdfast.spec import WorldSpec, keys


def make_agent(settings: Settings, spec: WorldSpec) -> MettaAgent:
    """An agent for this world. With policy.weights it knows what that run learned, and learns what is new here."""
    if not settings.policy.weights:
        agent = MettaAgent(settings.policy, spec)
        if isinstance(settings.policy, OwnPolicySettings):
            try_out(agent.policy, settings.policy.agent_word)
        return agent
    source = find_checkpoint(settings.policy.weights, runs_folder(settings))
    loaded = load_checkpoint(source)
    try:
        with fitting(f"policy.weights={settings.policy.weights}: its checkpoint is of no agent"):
            agent = MettaAgent(settings.policy, WorldSpec.from_json(loaded.facts["world"]))
            agent.take(loaded.facts["agent"], loaded.tensors["policy"])
    except SettingsError as error:
        raise SettingsError(f"policy.weights={settings.policy.weights}: {error}") from error
    new = agent.initialize_to_world(spec, learn=True)
    if new:
        say(f"policy.weights: new here, to be learned: {', '.join(new)}")
    return agent


def audit_first(settings: Settings) -> None:
    """A quick audit of another such policy. One that fails is refused, or trained with a warning if the user says so."""
    ours = not isinstance(settings.policy, OwnPolicySettings) and not settings.policy.agent_word.endswith(".yaml")
    if settings.audit == "off" or (settings.audit == "auto" and ours):
        return
    word = settings.policy.agent_word
    try:
        report = audit(subject_of(settings), quick=True, seed=settings.seed)
    except UnusableError as error:
        said = f"audit: {word} cannot be audited: {error}"
        if settings.audit == "warn":
            say(said)
            return
        raise SettingsError(f"{said}\naudit=off trains it without a look.") from error
    if report.sound:
        counts = report.counts()
        not_run = f", {counts['not run']} could not run" if counts["not run"] else ""
        say(
            f"audit: {word}: {counts['pass']} quick checks passed{not_run} in {report.seconds:.0f} s; "
            "`holdfast audit` has more"
        )
    elif settings.audit == "warn":
        say(f"audit: {failures_in_words(report)}")
    else:
        found, others = report.failures[0], len(report.failures) - 1
        more = f" (and {others} more)" if others else ""
        lines = [
            f"audit: {word} fails {found.check.name}{more}: {found.evidence}.",
            found.check.mend,
            in_words(report.known_bugs),
            "`holdfast audit` with the same words says more; audit=warn trains it all the same.",
        ]
        raise SettingsError("\n".join(line for line in lines if line))


def find_checkpoint(text: str, runs_dir: Path) -> Path:
    """A checkpoint by its own folder, or the newest of a run, given its folder or its name below `runs_dir`."""
    for path in (Path(text).expanduser(), runs_dir / text):
        if (path / "manifest.json").is_file():
            return path
        newest = newest_checkpoint(
            path / "checkpoints", on_damaged=lambda error: say(f"policy.weights: passed over: {error}")
        )
        if newest is not None:
            return newest
    raise SettingsError(f"policy.weights={text}: there is no checkpoint. Give a run, such as runs/first.")


@torch.no_grad()
def try_out(policy: Policy, agent: str) -> None:
    """Act once on an empty observation, so that a policy of a user's own that does not fit its world is refused early."""
    spec = policy.spec
    shapes = policy.get_agent_experience_spec()
    arrived = {key: torch.ones(2, *shape, dtype=getattr(torch, dtype)) for key, (shape, dtype) in shapes.items()}
    arrived[keys.OBS].zero_()
    flags = {keys.REWARDS: torch.zeros(2), keys.DONES: torch.ones(2) > 0, keys.TRUNCATEDS: torch.zeros(2) > 0}
    try:
        with policy.set_aside(Sampling(generator=torch.Generator())):
            policy(TensorDict({**arrived, **flags}, batch_size=[2]))
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        shows = f"observations {spec.obs.dtype} {[*spec.obs.shape]}, actions {type(spec.actions).__name__}"
        raise SettingsError(
            f"{agent} cannot act in {spec.name} ({shows}):\n{type(error).__name__}: {reason}\n"
            "Does it read what this world shows, and does encode_observations give input_size numbers?"
        ) from error


def say(text: str) -> None:
    print(text, file=sys.stderr)
