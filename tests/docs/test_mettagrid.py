"""The page about MettaGrid: its file is trained on and evaluated by its commands."""

import json
import re
import shlex
from importlib.util import find_spec
from pathlib import Path

import pytest

from holdfast.cli.app import main

PAGE = (Path(__file__).parents[2] / "docs" / "mettagrid.md").read_text()
SMALL = ["env.num_envs=1", "trainer.horizon=8", "trainer.batch_size=64", "trainer.minibatch_size=32"]
SMALL += ["trainer.update_epochs=1"]
SHORT = {"train": [*SMALL, "trainer.total_timesteps=64", "progress=off"], "evaluate": ["--episodes", "1"]}


@pytest.mark.skipif(find_spec("mettagrid") is None, reason="needs mettagrid")
def test_the_page_trains_and_evaluates(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("\n".join(re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)))
    (block,) = re.findall(r"^```bash\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    for line in [*block.splitlines(), "holdfast train env=mettagrid:./mine.py:curriculum run=curriculum"]:
        _, verb, *words = shlex.split(line)
        given = {word.partition("=")[0] for word in words}
        with pytest.raises(SystemExit) as ended:
            main([verb, *words, *(word for word in SHORT[verb] if word.partition("=")[0] not in given)])
        assert not ended.value.code, line
    for run in ("jam", "jam_attention", "curriculum"):
        assert json.loads(Path("runs", run, "summary.json").read_text())["agent_steps"] >= 64
