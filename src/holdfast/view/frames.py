"""Frames that environments render, scaled and compressed as they come, so that long recordings fit into memory and a page."""

from __future__ import annotations

import hashlib
import io
from typing import Any

import numpy as np
from PIL import Image

from holdfast.envs import World
from holdfast.errors import one_line

MAX_SIDE = 320  # pixels
MAX_BYTES = 4_500_000  # of all frames; above, every second one is dropped
QUALITY = 75


class FrameStore:
    """Distinct frames as WebP. If they grow too many, only every second, fourth, ... step is drawn."""

    def __init__(self) -> None:
        self.size: tuple[int, int] = (0, 0)  # width, height
        self.stride = 1
        self._images: dict[int, bytes] = {}  # by number
        self._numbers: dict[bytes, int] = {}
        self._bytes = 0  # of the frames of this stride
        self.failure = ""  # why environments are not drawn anymore
        self._drawn: dict[int, int] = {}  # the newest frame of each environment

    def picture_of(self, world: World, number: int, step: int, starts: bool) -> Any:
        """Return what an environment looks like: a picture of a grid, the number of a frame, or None.

        starts: an episode starts, so it is drawn in any case.
        """
        if not starts and step % self.stride and number in self._drawn:
            return self._drawn[number]
        if self.failure and number in self._drawn:
            return self._drawn[number]
        try:
            found = world.picture(number)
        except Exception as error:  # code of the user; it could draw before
            if number not in self._drawn:
                raise
            self.failure = one_line(error, 200)
            return self._drawn[number]
        if isinstance(found, np.ndarray):
            found = self._drawn[number] = self._add(found)
        return found

    def thinned(self, numbers: list[int], starts: list[int]) -> list[int]:
        """Return the numbers of the frames to show at these steps, with the final stride. starts: of the episodes."""
        shown: list[int] = []
        for step, number in enumerate(numbers):
            drawn = step in starts or step % self.stride == 0
            shown.append(number if drawn else shown[-1])
        return shown

    def image(self, number: int) -> bytes:
        return self._images[number]

    def __len__(self) -> int:
        return len(self._images)

    @property
    def notes(self) -> list[str]:
        found = [f"1 of every {self.stride} steps is drawn, to keep the page small."] if self.stride > 1 else []
        if self.failure:
            found.append(f"The environment's render() failed, so its last picture stays: {self.failure}")
        return found

    def _add(self, frame: np.ndarray) -> int:
        image = Image.fromarray(frame)
        image.thumbnail((MAX_SIDE, MAX_SIDE))
        self.size = image.size
        if (number := self._numbers.get(key := hashlib.blake2b(image.tobytes()).digest())) is not None:
            return number
        written = io.BytesIO()
        image.save(written, "webp", quality=QUALITY, method=2)
        number = len(self._numbers)
        self._images[number] = written.getvalue()
        self._numbers[key] = number
        self._bytes += written.tell()
        if self._bytes > MAX_BYTES:
            self.stride *= 2
            self._bytes //= 2
        return number
