# pyright: reportAttributeAccessIssue=false, reportCallIssue=false, reportArgumentType=false, reportIndexIssue=false
"""Play CartPole without velocities with an exported policy: onnxruntime and NumPy are all that is needed.

holdfast train settings=cartpole_no_velocity run=cart
holdfast export cart --onnx cartpole.onnx
python examples/play_onnx.py
"""

import numpy as np
import onnxruntime


def begin(seed):
    """Return the state of CartPole (place, speed, angle, spin) with which gymnasium begins the episode of this seed."""
    return np.random.default_rng(seed).uniform(-0.05, 0.05, 4)


def push(state, action):
    """Return the state 0.02 seconds later, and whether the pole has fallen: the equations of CartPole-v1."""
    place, speed, angle, spin = state
    force = 10.0 if action == 1 else -10.0
    cos, sin = np.cos(angle), np.sin(angle)
    pull = (force + 0.05 * np.square(spin) * sin) / 1.1
    turn = (9.8 * sin - cos * pull) / (0.5 * (4.0 / 3.0 - 0.1 * np.square(cos) / 1.1))
    push = pull - 0.05 * turn * cos / 1.1
    state = (place + 0.02 * speed, speed + 0.02 * push, angle + 0.02 * spin, spin + 0.02 * turn)
    return state, abs(state[0]) > 2.4 or abs(state[2]) > 12 * 2 * np.pi / 360


model = onnxruntime.InferenceSession("cartpole.onnx")
names = [output.name for output in model.get_outputs()]
shapes = {i.name: [1 if size == "batch" else size for size in i.shape] for i in model.get_inputs()}
memory = {name: np.zeros(shape, np.float32) for name, shape in shapes.items() if name.endswith("_in")}

for episode in range(10):
    # the seeds of `holdfast evaluate cart --episodes 10`
    state = begin(int(np.random.SeedSequence([1_000_000, episode, 0]).generate_state(1)[0] >> 1))
    first, fallen, steps = True, False, 0
    while not fallen and steps < 500:
        obs = np.array([[state[0], state[2]]], np.float32)  # no velocities: the policy needs its memory
        inputs = {"obs": obs, "first": np.array([first]), **memory}
        outputs = dict(zip(names, model.run(names, inputs), strict=True))
        memory = {name: outputs[name.removesuffix("_in") + "_out"] for name in memory}
        state, fallen = push(state, outputs["logits"].argmax())
        first, steps = False, steps + 1
    print(f"episode {episode}: return {steps}")
