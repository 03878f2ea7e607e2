"""Clips and pictures as files: frames, durations, encoders, and what is refused."""

import importlib.util
import os
import shutil
import stat
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
from PIL import Image, ImageSequence

from holdfast.cli.app import main
from holdfast.errors import SettingsError
from holdfast.view import clips, run_page
from holdfast.view.clips import PAUSE_MS, Files, find_encoder, frames_of, write_files
from holdfast.view.drawing import MEMORY, STRIPS_X, draw_step
from holdfast.view.drawing.canvas import CARD
from holdfast.view.selection import opening, select

from .made_pages import page_data

CARD_RGB = tuple(int(CARD[i : i + 2], 16) for i in (1, 3, 5))


def gif_frames(path):
    with Image.open(path) as image:
        for frame in ImageSequence.Iterator(image):
            yield np.asarray(frame.convert("RGB")), frame.info["duration"]


def test_a_gif_has_a_frame_per_step_and_pauses_where_it_matters(tmp_path):
    path = tmp_path / "clip.gif"
    assert write_files(page_data(lengths=(8, 9)), Files(gif=path)) == []
    frames, durations = zip(*gif_frames(path), strict=True)
    assert [*durations] == [250 + PAUSE_MS * (at in (5, 13, 16)) for at in range(17)]
    assert frames[0].shape == (450, 800, 3)
    with Image.open(path) as image:
        assert image.info["loop"] == 0
    y, height = (round(x) for x in MEMORY)
    grown = [(frame[y : y + height, round(STRIPS_X) :] != CARD_RGB).any(-1).mean() for frame in frames]
    assert all(after > before + 0.03 for before, after in pairwise(grown))


def test_colours_do_not_flicker(tmp_path):
    path = tmp_path / "clip.gif"
    data = page_data()
    write_files(data, Files(gif=path))
    shown = select(data)
    for position, (frame, _) in enumerate(gif_frames(path)):
        wanted = np.asarray(draw_step(shown, position)).astype(int)
        assert (frame[0, 0] == 255).all()
        assert abs(frame - wanted).mean() < 1
        assert np.quantile(abs(frame - wanted), 0.999) < 24


def test_speed():
    def durations(fps, *lengths):
        return [frame.duration_ms for frame in frames_of(select(page_data(lengths=lengths)), fps)]

    assert durations(10, 8)[0] == 100
    assert sum(durations(50, 8)) == 8 * 20 + 2 * PAUSE_MS
    assert sum(durations(None, 140)) == pytest.approx(20_000 + 2 * PAUSE_MS, rel=0.05)
    assert durations(None, 140)[0] < 250


def test_of_long_episodes_steps_are_skipped_but_not_the_decisive_one(tmp_path):
    data = page_data(lengths=(1000,), cue_back=2)
    shown = select(data)
    frames = frames_of(shown)
    assert len(frames) <= clips.MOST_FRAMES + 2
    assert {0, 3, 999} <= {frame.position for frame in frames}
    assert sum(frame.duration_ms for frame in frames) < 25_000


def test_notes_say_what_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(clips, "MOST_FRAMES", 4)
    data = page_data(lengths=(12,))
    data["tracks"][0]["reward"][8:] = 0
    for move in data["tracks"][0]["scene"]["moves"][8:]:
        move["objects"] = []
    notes = write_files(data, Files(gif=tmp_path / "clip.gif"))
    assert len(notes) == 2
    assert "1 of every 3 steps" in notes[0]
    assert "3 steps at the end" in notes[1]


def test_a_png_shows_the_decisive_step_or_the_one_that_is_named(tmp_path):
    data, path = page_data(), tmp_path / "step.png"
    shown = select(data)
    for files, position in (
        (Files(png=path), 13),
        (Files(png=path, step=2), 2),
        (Files(png=path, episode=0), 5),
    ):
        write_files(data, files)
        with Image.open(path) as image:
            wanted = draw_step(select(data, episode=files.episode) if files.episode == 0 else shown, position, 2)
            assert image.size == (1600, 900)
            assert (np.asarray(image) == np.asarray(wanted)).all()
    with pytest.raises(SettingsError, match="8 steps"):
        write_files(data, Files(png=path, step=8))


def test_a_page_opens_at_the_decisive_step_of_the_first_episode():
    assert opening(page_data(lengths=(8, 9), cue_back=3)) == {"track": 0, "step": 4, "agent": 0}


def test_progress_is_reported(tmp_path):
    said = []
    write_files(page_data(lengths=(8,)), Files(gif=tmp_path / "clip.gif"), said.append)
    assert len(said) == 8
    assert "8 of 8" in said[-1]


# ------------------------------------------------------------------------------------------------ videos


@pytest.fixture
def short_pauses(monkeypatch):
    monkeypatch.setattr(clips, "PAUSE_MS", 100)


def real_encoder():
    if found := shutil.which("ffmpeg"):
        return found
    if importlib.util.find_spec("imageio_ffmpeg"):
        return find_encoder()
    pytest.skip("needs ffmpeg or imageio-ffmpeg")


def stub_encoder(folder, code):
    """Put a program named ffmpeg into a folder, which runs this Python code."""
    program = folder / "ffmpeg"
    program.write_text(f"#!{sys.executable}\nimport sys\n{code}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


def test_a_video_is_encoded(tmp_path, short_pauses):
    encoder = real_encoder()
    path = tmp_path / "clip.mp4"
    data = page_data(lengths=(8,))
    write_files(data, Files(mp4=path, fps=10))
    raw = subprocess.run(
        [encoder, "-loglevel", "error", "-i", path, "-f", "rawvideo", "-pix_fmt", "rgb24", "-"],
        capture_output=True,
        check=True,
    ).stdout
    frames = np.frombuffer(raw, np.uint8).reshape(-1, 900, 1600, 3)
    assert len(frames) == (8 * 100 + 2 * 100) * clips.VIDEO_FPS // 1000
    last = np.asarray(draw_step(select(data), 7, 2)).astype(int)
    assert abs(frames[-1] - last).mean() < 4


def test_the_encoder_gets_every_frame_for_its_time(tmp_path, monkeypatch, short_pauses):
    count = "data = sys.stdin.buffer.read(); open(sys.argv[-1], 'w').write(f'{len(data)} {sys.argv}')"
    stub_encoder(tmp_path, count)
    monkeypatch.setenv("PATH", str(tmp_path))
    path = tmp_path / "clip.mp4"
    write_files(page_data(lengths=(8,)), Files(mp4=path, fps=10))
    size, arguments = path.read_text().split(" ", 1)
    assert int(size) == (8 * 100 + 2 * 100) * clips.VIDEO_FPS // 1000 * 1600 * 900 * 3
    assert "'1600x900'" in arguments


@pytest.mark.parametrize(
    "code",
    ["sys.exit('no such codec')", "sys.stdin.buffer.read(); sys.exit('no such codec')", "sys.stdin.buffer.read()"],
)
def test_an_encoder_that_fails(tmp_path, monkeypatch, short_pauses, code):
    stub_encoder(tmp_path, code)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SettingsError, match=r"no such codec|exit code 0"):
        write_files(page_data(lengths=(8,)), Files(mp4=tmp_path / "clip.mp4", fps=10))
    assert not (tmp_path / "clip.mp4").exists()


def test_the_encoder_of_the_package_is_found(tmp_path, monkeypatch):
    (tmp_path / "imageio_ffmpeg.py").write_text("def get_ffmpeg_exe():\n    return 'its program'\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "imageio_ffmpeg", raising=False)
    assert find_encoder() == "its program"
    monkeypatch.delitem(sys.modules, "imageio_ffmpeg")


def test_without_an_encoder_it_is_said_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(SettingsError, match=r"imageio-ffmpeg.*--gif"):
        Files(mp4=tmp_path / "clip.mp4").check(20)
    Files(gif=tmp_path / "clip.gif").check(20)


# ------------------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"gif": "clip.png"}, "--gif"),
        ({"png": "clip"}, r"\.png"),
        ({"gif": "nowhere/clip.gif"}, "existing folder"),
        ({"gif": "folder.gif"}, "file path"),
        ({"gif": "clip.gif", "step": 3}, "--step"),
        ({"png": "clip.png", "fps": 3.0}, "--fps"),
        ({"agent": 1}, "--agent"),
        ({"episode": 0}, "--episode"),
        ({"gif": "clip.gif", "episode": 20}, "--episode 20"),
    ],
)
def test_what_is_refused_before_the_work(tmp_path, options, words):
    (tmp_path / "folder.gif").mkdir()
    named = {key: tmp_path / value if isinstance(value, str) else value for key, value in options.items()}
    with pytest.raises(SettingsError, match=words):
        Files(**named).check(20)


def test_a_folder_without_permission(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)  # root may write everywhere
    with pytest.raises(SettingsError, match="permission"):
        Files(gif=tmp_path / "clip.gif").check(20)


def test_a_file_that_cannot_be_written_in_the_end(tmp_path):
    (tmp_path / "step.png").mkdir()
    with pytest.raises(SettingsError, match="--png"):
        write_files(page_data(), Files(png=tmp_path / "step.png"))


def test_names_that_end_in_capitals(tmp_path):
    Files(gif=tmp_path / "CLIP.GIF").check(20)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return the folder of a run that was trained for one batch."""
    folder = tmp_path_factory.mktemp("runs")
    words = ["env=memory", "env.num_envs=1", "env.rooms=2", "trainer.total_timesteps=32", "trainer.horizon=16"]
    with pytest.raises(SystemExit) as ended:
        main(["train", *words, "run=small", f"runs_dir={folder}", "audit=off", "progress=off"])
    assert not ended.value.code
    return folder / "small"


def test_the_command_writes_all_files_of_one_recording(run, tmp_path, capsys):
    gif, png = tmp_path / "clip.gif", tmp_path / "step.png"
    with pytest.raises(SystemExit) as ended:
        main(["view", str(run), "--gif", str(gif), "--png", str(png), "--agent", "1", "--episodes", "3"])
    assert not ended.value.code
    assert capsys.readouterr().out.count("Wrote") == 2
    with Image.open(gif) as clip, Image.open(png) as picture:
        assert clip.size == (800, 450)
        assert picture.size == (1600, 900)
    assert not (run / "view.html").exists()


def test_files_and_the_page_are_made_of_one_recording(run, tmp_path, monkeypatch):
    recorded = []
    see_run = run_page.see_run
    monkeypatch.setattr(run_page, "see_run", lambda *args: recorded.append(see_run(*args)) or recorded[-1])
    png, html = tmp_path / "step.png", tmp_path / "page.html"
    with pytest.raises(SystemExit) as ended:
        main(["view", str(run), "--png", str(png), "--html", str(html), "--episodes", "3", "--no-certificate"])
    assert not ended.value.code
    assert len(recorded) == 1
    assert html.read_text().startswith("<!doctype html>")
    assert png.stat().st_size > 10_000


@pytest.mark.parametrize(("option", "value"), [("--agent", "2"), ("--step", "99"), ("--episode", "3")])
def test_the_command_names_what_does_not_exist(run, tmp_path, capsys, option, value):
    png = tmp_path / "step.png"
    with pytest.raises(SystemExit) as ended:
        main(["view", str(run), "--png", str(png), "--episodes", "3", option, value])
    assert ended.value.code == 2
    assert f"{option} {value}" in capsys.readouterr().err
    assert not png.exists()
