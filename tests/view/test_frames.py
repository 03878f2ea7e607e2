"""Frames of long recordings stay small."""

from typing import cast

import numpy as np

from holdfast.envs import World
from holdfast.view import frames
from holdfast.view.frames import FrameStore


class Noise:
    """In place of a world: frames that cannot be compressed."""

    def __init__(self):
        self.generator, self.drawn = np.random.default_rng(0), 0

    def picture(self, number):
        self.drawn += 1
        return self.generator.integers(0, 255, (40, 60, 3), np.uint8)


def test_above_the_limit_every_second_frame_is_dropped(monkeypatch):
    monkeypatch.setattr(frames, "MAX_BYTES", 50_000)
    store, world = FrameStore(), cast(World, noise := Noise())
    numbers = [store.picture_of(world, 0, step, starts=step % 50 == 0) for step in range(200)]
    assert store.stride > 1
    assert str(store.stride) in store.notes[0]
    assert noise.drawn < 200
    shown = store.thinned(numbers, [0, 50, 100, 150])
    assert shown[50] == numbers[50]  # the start of an episode, whatever the stride
    assert all(shown[step] == numbers[step] for step in range(0, 200, store.stride))
    assert all(shown[step] <= numbers[step] for step in range(200))
    assert sum(len(store.image(number)) for number in set(shown)) < 80_000


def test_large_frames_are_scaled():
    store = FrameStore()

    class Wide:
        def picture(self, number):
            return np.zeros((300, 1200, 3), np.uint8)

    store.picture_of(cast(World, Wide()), 0, 0, starts=True)
    assert store.size == (320, 80)


def test_an_environment_that_stops_drawing_keeps_its_last_picture():
    class Breaks(Noise):
        def picture(self, number):
            if self.drawn == 2:
                raise RuntimeError("no <b>screen</b>")
            return super().picture(number)

    store, world = FrameStore(), cast(World, Breaks())
    numbers = [store.picture_of(world, 0, step, starts=step == 0) for step in range(5)]
    assert numbers == [0, 1, 1, 1, 1]
    assert "no <b>screen</b>" in store.notes[-1]
