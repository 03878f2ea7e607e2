"""docs/agents.md agrees with the code: the template, every component, the sizes of the agents."""

import itertools
import re
from pathlib import Path

import pytest

from holdfast.config import load_settings
from holdfast.config.values import parse_yaml
from holdfast.errors import SettingsError
from holdfast.policies import GRID_AGENTS, ComponentPolicy, make_policy
from holdfast.policies.components.component import BuildContext, Entry, Shape, WiringError
from holdfast.policies.components.cores import component_types
from holdfast.policies.settings import GRAPHS
from holdfast.policies.vocabulary import Vocabulary
from support.policies import TOKENS, VECTOR

PAGE = (Path(__file__).parents[2] / "docs" / "agents.md").read_text()
SHAPES = {
    "vector": Shape("vector", (8,)),
    "vectors": Shape("vectors", (3, 8)),
    "grid": Shape("grid", (4, 5, 5)),
    "token grid": Shape("token grid", (len(Vocabulary.of(TOKENS).channels), 11, 11)),
    "tokens": Shape("tokens", (len(Vocabulary.of(TOKENS).channels), 11)),
    "token features": Shape("token features", (8,)),
    "embeddings": Shape("embeddings", (16,)),
}


def rows(heading):
    """Return the table below a heading as a list of cells per row."""
    table = PAGE.split(f"\n{heading}\n")[1].split("\n#")[0]
    lines = [line for line in table.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


COMPONENTS = component_types()


def kinds_given(name):
    """Return every kind of output of a component, over all inputs it accepts and all parameters that affect it."""
    kind, found = COMPONENTS[name], set()
    needed = {key: 4 for key, field in kind.Params.model_fields.items() if field.is_required()}
    switches = {"num_queries": (1, 3), "use_cls_token": (True, False)}
    options = {key: values for key, values in switches.items() if key in kind.Params.model_fields}
    spec = VECTOR if name == "ObsVector" else TOKENS
    context = BuildContext(spec, Vocabulary.of(spec))
    for sources in itertools.product(*kind.reads):
        for values in itertools.product(*options.values()):
            params = {**needed, **dict(zip(options, values, strict=True))}
            entry = Entry(type=name, sources=list(sources), nn_params=params)
            try:
                built = kind(entry, kind.Params(**params), [SHAPES[source] for source in sources], context)
            except WiringError:
                continue  # this input is refused
            found.add(built.out.kind)
    return found


def kinds_in(cell):
    """Parse the kinds in a cell such as `vector or vectors` or `vector (one query), vectors (several)`."""
    return set(re.split(r" or |, ", re.sub(r" \([^)]*\)", "", cell)))


def test_the_page_shows_the_template():
    lines = (GRAPHS.parent / "plain" / "example.py").read_text().splitlines(keepends=True)
    assert "".join(line for line in lines if "AGENTS" not in line) in blocks("python"), "a copy is not registered"
    assert (GRAPHS / "example.yaml").read_text() in blocks("yaml")


@pytest.mark.parametrize("text", blocks("yaml"), ids=lambda text: text.splitlines()[0][:20])
def test_every_yaml_block_builds_an_agent(text):
    graph = parse_yaml(text)
    ComponentPolicy(VECTOR if graph["components"]["_obs_"]["type"] == "ObsVector" else TOKENS, graph)


def test_the_table_has_every_component_once():
    assert sorted(row[0] for row in rows("### Components")) == sorted(f"`{name}`" for name in COMPONENTS)


@pytest.mark.parametrize("name", COMPONENTS)
def test_the_table_describes_each_component(name):
    _, _, reads, gives, nn_params = next(row for row in rows("### Components") if row[0] == f"`{name}`")
    kind = COMPONENTS[name]
    accepted = [" or ".join(kinds) for kinds in kind.reads]
    assert reads == (", ".join(accepted) + " ..." * kind.reads_more if accepted else "no sources")
    assert kinds_in(gives) == kinds_given(name)
    fields = kind.Params.model_fields.items()
    shown = [f"`{key}`" if field.is_required() else f"`{key}: {field.default}`" for key, field in fields]
    assert nn_params == (", ".join(shown) or "none").replace("True", "true")


def test_which_components_take_a_nonlinearity():
    sentence = re.search(r"`nonlinearity` and `initialization` belong to (.*?)\.", PAGE, re.DOTALL)
    assert sentence is not None
    assert set(re.findall(r"`(\w+)`", sentence[1])) == {name for name, kind in COMPONENTS.items() if kind.has_weights}


def test_sizes_of_the_agents():
    spec = load_settings([]).env.describe()
    shown = {row[0].strip("`"): row[-1] for row in rows("## The ten agents")}
    assert set(shown) == set(GRID_AGENTS)
    for name in GRID_AGENTS:
        policy = make_policy(load_settings([f"py_agent={name}"]).policy, spec)
        assert shown[name] == f"{sum(p.numel() for p in policy.parameters()):,}"


def test_the_page_shows_real_messages():
    """Each mistake in the template raises the message on the page."""
    text = (GRAPHS / "example.yaml").read_text()
    (shown,) = [block for block in blocks("text") if block.startswith("agent=./mine.yaml")]
    mistakes = [
        ("sources: [cnn2]", "sources: [cn2]"),
        ("type: Flatten", "type: Identity"),
        ("kernel_size: 5", "kernel_size: 4"),
        ("stride: 3", "strde: 3"),
    ]
    found = []
    for right, wrong in mistakes:
        with pytest.raises(SettingsError) as caught:
            ComponentPolicy(TOKENS, parse_yaml(text.replace(right, wrong)), "agent=./mine.yaml")
        found.append(str(caught.value))
    assert shown.splitlines() == found
