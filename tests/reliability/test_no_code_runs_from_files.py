"""Nothing in src/holdfast can turn the content of a file into code: read off the source, call by call.

Places that do run code run what the user named in so many words. They are listed here with their reason, and nowhere else.
"""

import ast
from pathlib import Path

import pytest
import yaml

import holdfast
from holdfast.config.values import SafeSettingsLoader

ROOT = Path(holdfast.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))

MODULES = (
    "pickle",
    "cPickle",
    "_pickle",
    "marshal",
    "shelve",
    "dill",
    "joblib",
    "cloudpickle",
    "jsonpickle",
    "runpy",
    "code",
)
CALLS = ("eval", "exec", "compile", "__import__")  # the builtins
# by their last two names, whatever the module was imported as
METHODS = {
    "load": ("torch", "export", "yaml", "numpy", "np", "ruamel"),  # export: torch.export
    "load_all": ("yaml",),
    "unsafe_load": None,  # None: of anything
    "unsafe_load_all": None,
    "full_load": None,
    "full_load_all": None,
    "UnsafeLoader": None,
    "FullLoader": None,
    "system": ("os",),
    "popen": ("os",),
    "import_module": None,
    "exec_module": None,
    "load_module": None,
    "spec_from_file_location": None,
    "allow_pickle": None,
    "get_class": ("hydra",),
    "instantiate": ("hydra", "utils"),
}
ALLOWED = {
    # (file, what): how often, and why that is safe
    ("user_code.py", "spec_from_file_location"): (
        1,
        "FILE.py of a word on the command line; a settings file cannot name it",
    ),
    ("user_code.py", "exec_module"): (1, "the same file"),
    ("export/proof.py", "load"): (
        1,
        "numpy's, with allow_pickle=False: see test_a_damaged_or_foreign_file_is_one_clear_line",
    ),
    ("export/program.py", "load"): (
        1,
        "torch.export's: a program just made, or named by the user with --check and documented as code",
    ),
    ("export/mettagrid_policy.py", "load"): (
        1,
        "torch.export's: the program of a bundle whose code MettaGrid has just imported",
    ),
    ("envs/packages.py", "import_module"): (
        2,
        "packages in a table of this file, by the prefix of an environment's id",
    ),
    ("__init__.py", "import_module"): (1, "modules of this package only, in a table of this file"),
    ("config/registry.py", "import_module"): (2, "modules of this package only, found in its own folders"),
    ("config/values.py", "load"): (1, "with a subclass of yaml.SafeLoader: see test_the_loader_of_settings_is_safe"),
    ("trainer/sinks.py", "import_module"): (1, "called with literals only: see test_sinks_import_literals"),
    ("envs/pettingzoo_world.py", "import_module"): (
        2,
        "env=pettingzoo:MODULE; only installed modules, and documented as trusted",
    ),
}


def findings(source: str) -> list[str]:
    """Every forbidden thing a file does or could do later, by its name."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                found += [alias.name for alias in names if alias.name.split(".")[0] in MODULES]
            case ast.ImportFrom(module=module, names=names):
                package = (module or "").split(".")
                found += [package[0]] if package[0] in MODULES else []
                # from torch import load; from importlib import import_module is judged where it is called
                found += [
                    a.name for a in names if package[-1] in (METHODS.get(a.name) or ()) or a.name.startswith("unsafe_")
                ]
            case ast.Call(func=ast.Name(id=name)) if METHODS.get(name, ()) is None:
                found.append(name)
            case ast.Name(id=name, ctx=ast.Load()) if name in CALLS:  # `f = eval` as well as eval(text)
                found.append(name)
            case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=str(name)), *_]) if name in CALLS:
                found.append(name)
            case ast.Attribute(attr=name, value=owner) if name in METHODS:
                owners = METHODS[name]
                last = (
                    owner.attr if isinstance(owner, ast.Attribute) else owner.id if isinstance(owner, ast.Name) else ""
                )
                root = ast.unparse(owner).split(".")[0]
                # safetensors.torch.load is what we want
                if owners is None or (last in owners and root != "safetensors"):
                    found.append(name)
            case ast.keyword(arg="allow_pickle" | "Loader" as name, value=value):
                if name == "allow_pickle" and not (isinstance(value, ast.Constant) and value.value is False):
                    found.append(name)
                if name == "Loader" and "Safe" not in ast.unparse(value):
                    found.append(f"Loader={ast.unparse(value)}")
            case ast.Constant(value=str(text)) if text in MODULES and text != "code":
                found.append(text)  # import_module("pickle") and the like
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_file_does(path):
    relative = path.relative_to(ROOT).as_posix()
    found = findings(path.read_text())
    for what in sorted(set(found)):
        allowed, reason = ALLOWED.get((relative, what), (0, "it is not on the list"))
        assert found.count(what) <= allowed, f"{relative} uses {what} {found.count(what)} times: {reason}"


def test_the_list_has_nothing_that_is_gone():
    for (file, what), (times, _) in ALLOWED.items():
        assert findings((ROOT / file).read_text()).count(what) == times, f"{file}: {what}"


def test_sinks_import_literals():
    """Of the helper that imports by name, every call names a module in so many words."""
    tree = ast.parse((ROOT / "trainer" / "sinks.py").read_text())
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and ast.unparse(n.func) == "_import"]
    assert len(calls) >= 2
    assert {ast.unparse(call.args[0]) for call in calls} == {"'torch.utils.tensorboard'", "'wandb'"}


def test_the_loader_of_settings_is_safe():
    """Settings are checked for tags before; but even if one came through, nothing would be called."""
    assert issubclass(SafeSettingsLoader, (yaml.SafeLoader, getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    with pytest.raises(yaml.YAMLError, match="could not determine a constructor"):
        yaml.load("a: !!python/object/apply:os.getcwd []", Loader=SafeSettingsLoader)


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "import pickle as p",
        "from pickle import loads",
        "def f():\n    import marshal",
        "import shelve",
        "import dill",
        "from joblib import load",
        "import torch\ntorch.load(path)",
        "import torch\ntorch.load(path, weights_only=False)",
        "f = torch.load",
        "from torch import load",
        "torch.export.load(path)",
        "np.load(path)",
        "numpy.load(path, allow_pickle=True)",
        "read(path, allow_pickle=flag)",
        "eval(text)",
        "exec(text)",
        "f = eval",
        "compile(text, '', 'exec')",
        "__import__(name)",
        "getattr(builtins, 'eval')(text)",
        "yaml.load(text)",
        "yaml.load(text, Loader=yaml.Loader)",
        "yaml.parse(text, Loader=yaml.UnsafeLoader)",
        "yaml.unsafe_load(text)",
        "yaml.full_load(text)",
        "from yaml import unsafe_load",
        "from yaml import load",
        "importlib.import_module(name)",
        "from importlib import import_module\nimport_module(name)",
        "importlib.import_module('pickle')",
        "spec.loader.exec_module(module)",
        "importlib.util.spec_from_file_location(name, path)",
        "os.system(text)",
        "import runpy",
    ],
)
def test_each_forbidden_form_is_seen(source):
    assert findings(source), source


@pytest.mark.parametrize(
    "source",
    [
        "safetensors.torch.load(data)",
        "policy.eval()",
        "self.load(x)",
        "re.compile('a')",
        "torch.compile(f)",
        "json.loads(text)",
        "yaml.safe_load(text)",
        "yaml.parse(text, Loader=yaml.SafeLoader)",
        "platform.system()",
        "'a model for evaluation'",
    ],
)
def test_what_is_harmless_passes(source):
    assert findings(source) == []
