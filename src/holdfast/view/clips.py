"""Write what an agent did as a GIF, an MP4 or a PNG."""

from __future__ import annotations

import io
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageColor
from scipy.spatial import KDTree

from holdfast.errors import SettingsError, printable
from holdfast.outputs import check_output, write_output
from holdfast.view.drawing import draw_step
from holdfast.view.drawing.canvas import ACCENT, BLUE, CARD, GRID, INK, LINE, MUTED, ORANGE, PAPER
from holdfast.view.selection import Selection, check_step, select

STEPS_PER_S = 4.0  # of short episodes
LONGEST_S = 20.0  # of a clip at the default speed, without pauses
MOST_FRAMES = 200  # of a clip; of more steps, some are skipped
PAUSE_MS = 1500  # on decisive steps and at the end
COLORS = 256
EXACT = (PAPER, CARD, GRID, LINE, INK, MUTED, BLUE, ORANGE, ACCENT)
SAMPLES = 12  # frames that the palette is made from
VIDEO_FPS = 30
ZOOM = 2  # of PNG and MP4
SUFFIXES = {"--gif": ".gif", "--mp4": ".mp4", "--png": ".png"}

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Files:
    """The files to write, by option, and what they show.

    agent, episode, step: counted from 0; by default two episodes, and in a PNG the decisive step of the last one.
    step: of `episode`, or of the first. fps: steps per second.
    """

    gif: Path | None = None
    mp4: Path | None = None
    png: Path | None = None
    agent: int = 0
    episode: int | None = None
    step: int | None = None
    fps: float | None = None

    @property
    def paths(self) -> dict[str, Path]:
        found = {"--gif": self.gif, "--mp4": self.mp4, "--png": self.png}
        return {option: path for option, path in found.items() if path is not None}

    def check(self, episodes: int) -> None:
        """Raise SettingsError for what is wrong before anything is recorded. episodes: to record."""
        for option, path in self.paths.items():
            if path.suffix.lower() != SUFFIXES[option]:
                raise SettingsError(f"{option} {printable(str(path), 150)}: the name must end in {SUFFIXES[option]}.")
            check_output(option, path)
        if len({path.absolute() for path in self.paths.values()}) < len(self.paths):
            raise SettingsError("--gif, --mp4 and --png: name different files.")
        if self.step is not None and self.png is None:
            raise SettingsError("--step: only with --png FILE, which shows one step.")
        if self.fps is not None and not (self.gif or self.mp4):
            raise SettingsError("--fps: only with --gif FILE or --mp4 FILE.")
        if not self.paths and (self.episode is not None or self.agent):
            raise SettingsError("--agent, --episode: only with --gif, --mp4 or --png FILE.")
        if self.episode is not None and self.episode >= episodes:
            raise SettingsError(f"--episode {self.episode}: {episodes} recorded, counted from 0. Raise --episodes.")
        if self.mp4 is not None:
            find_encoder()


@dataclass(frozen=True)
class Frame:
    """A step of a clip and how long it is shown."""

    position: int
    duration_ms: int


def write_files(data: dict[str, Any], files: Files, progress: Progress = lambda doing: None) -> list[str]:
    """Write the files that show a page's data, and return notes for the user."""
    shown = select(data, files.agent, files.episode)
    notes = []
    if files.png is not None:
        whole = shown if files.step is None else select(data, files.agent, files.episode, whole=True)
        position = shown.decisive[-1] if files.step is None else check_step(whole, files.step)
        write_output("--png", files.png, _as_png(draw_step(whole, position, ZOOM)))
    if files.gif is None and files.mp4 is None:
        return notes
    frames = frames_of(shown, files.fps)
    if (stride := _stride(shown.steps)) > 1:
        notes.append(f"The clip shows 1 of every {stride} steps.")
    whole = select(data, files.agent, files.episode, whole=True)
    if whole.steps > shown.steps:
        notes.append(
            f"The clip leaves out {whole.steps - shown.steps} steps at the end of episodes: the agent stays as it is."
        )
    if files.gif is not None:
        write_output("--gif", files.gif, gif(shown, frames, progress))
    if files.mp4 is not None:
        write_output("--mp4", files.mp4, mp4(shown, frames, progress))
    return notes


def frames_of(shown: Selection, fps: float | None = None) -> list[Frame]:
    """Return the steps of a clip with their durations: a pause on decisive steps and at the end."""
    stride = _stride(shown.steps)
    kept = sorted({*range(0, shown.steps, stride), *shown.decisive, shown.steps - 1})
    each = 1000 / fps if fps else min(1000 / STEPS_PER_S, LONGEST_S * 1000 / len(kept))
    each = max(20, round(each / 10) * 10)  # GIF counts in hundredths of a second
    pauses = {position for position in shown.decisive if shown.strongest_past(position)} | {shown.steps - 1}
    return [Frame(position, each + PAUSE_MS * (position in pauses)) for position in kept]


def gif(shown: Selection, frames: list[Frame], progress: Progress = lambda doing: None) -> bytes:
    """Return a GIF that loops. All frames have the same palette, so that colours do not flicker."""
    samples = [draw_step(shown, frame.position) for frame in frames[:: max(1, len(frames) // SAMPLES)]]
    palette = _Palette(samples + [draw_step(shown, position) for position in shown.decisive])
    images = (palette.apply(image) for image in _drawn(shown, frames, 1, progress))
    written = io.BytesIO()
    next(images).save(
        written,
        "gif",
        save_all=True,
        append_images=images,
        duration=[frame.duration_ms for frame in frames],
        loop=0,
        optimize=False,
    )
    return written.getvalue()


def mp4(shown: Selection, frames: list[Frame], progress: Progress = lambda doing: None) -> bytes:
    """Return an H.264 video, made by ffmpeg."""
    encoder = find_encoder()
    first = draw_step(shown, frames[0].position, ZOOM)
    size = f"{first.width}x{first.height}"
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as errors:
        made = Path(folder) / "clip.mp4"
        source = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", size, "-r", str(VIDEO_FPS), "-i", "-"]
        target = [
            "-c:v",
            "libx264",
            "-preset",
            "veryfast",
            "-crf",
            "18",
            "-pix_fmt",
            "yuv420p",
            "-movflags",
            "+faststart",
        ]
        command = [encoder, "-loglevel", "error", "-y", *source, *target, str(made)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors) as process:
            assert process.stdin is not None
            due = 0.0
            try:
                for frame, image in zip(frames, _drawn(shown, frames, ZOOM, progress), strict=True):
                    before, due = round(due), due + frame.duration_ms * VIDEO_FPS / 1000
                    for _ in range(max(1, round(due) - before)):
                        process.stdin.write(image.tobytes())
            except BrokenPipeError:
                pass  # the encoder failed, and says why
            except BaseException:
                process.kill()
                raise
            with suppress(BrokenPipeError):
                process.stdin.close()
            process.wait()
        if process.returncode or not made.exists():
            errors.seek(0)
            said = errors.read().decode(errors="replace").strip()[-300:]
            raise SettingsError(
                f"--mp4: {encoder} failed: {said or f'exit code {process.returncode}'}. Use --gif instead."
            )
        return made.read_bytes()


def find_encoder() -> str:
    """Return the path of ffmpeg: the one on PATH, or the one that the package imageio-ffmpeg brings."""
    if found := shutil.which("ffmpeg"):
        return found
    try:
        import imageio_ffmpeg  # pyright: ignore[reportMissingImports]

        return imageio_ffmpeg.get_ffmpeg_exe()
    except Exception as error:  # not installed, or without a program for this machine
        raise SettingsError(
            "--mp4: needs ffmpeg. Install ffmpeg, or the package imageio-ffmpeg: pip install imageio-ffmpeg. --gif works without."
        ) from error


def _drawn(shown: Selection, frames: list[Frame], zoom: int, progress: Progress) -> Iterator[Image.Image]:
    for number, frame in enumerate(frames):
        progress(f"drawing: frame {number + 1} of {len(frames)}")
        yield draw_step(shown, frame.position, zoom)


def _stride(steps: int) -> int:
    return -(-steps // MOST_FRAMES)


class _Palette:
    """256 colours for all frames of a clip: the exact colours of surfaces and text, and those that suit the samples."""

    def __init__(self, samples: list[Image.Image]):
        width, height = samples[0].size
        joined = Image.new("RGB", (width, height * len(samples)))
        for place, sample in enumerate(samples):
            joined.paste(sample, (0, place * height))
        found = joined.quantize(COLORS - len(EXACT), Image.Quantize.MEDIANCUT, kmeans=1).getpalette() or []
        self.colors = [*(part for color in EXACT for part in ImageColor.getrgb(color)), *found]
        self._tree = KDTree(np.array(self.colors).reshape(-1, 3))

    def apply(self, image: Image.Image) -> Image.Image:
        """Return the image in these colours, the nearest ones; Pillow's own search is only approximate."""
        pixels = np.asarray(image).astype(np.int32)
        packed = pixels[..., 0] << 16 | pixels[..., 1] << 8 | pixels[..., 2]
        present, where = np.unique(packed, return_inverse=True)
        _, nearest = self._tree.query(np.stack([present >> 16, present >> 8 & 255, present & 255], -1))
        mapped = Image.fromarray(np.asarray(nearest, np.uint8)[where].reshape(packed.shape), "P")
        mapped.putpalette(self.colors)
        return mapped


def _as_png(image: Image.Image) -> bytes:
    written = io.BytesIO()
    image.save(written, "png", optimize=True)
    return written.getvalue()
