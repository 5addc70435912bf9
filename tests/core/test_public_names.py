"""``dir`` of every public module shows its public names, and all of them exist."""

import importlib
import rlcompleter
import subprocess
import sys

import pytest

import dpsample as dps
from dpsample.core.public import public_modules

MODULES = public_modules(dps)


def test_the_list_of_modules_is_derived():
    assert len(MODULES) > 15
    for name in ("", ".audits.neighbors", ".problem", ".diagnostics.couplings", ".cli"):
        assert f"dpsample{name}" in MODULES


@pytest.mark.parametrize("name", MODULES)
def test_dir_shows_the_public_names_only(name):  # U8
    module = importlib.import_module(name)
    extra = {"__version__"} if module is dps else set()
    assert len(set(module.__all__)) == len(module.__all__)
    assert dir(module) == sorted({*module.__all__, *extra})
    assert not any(n.startswith("_") for n in module.__all__)


@pytest.mark.parametrize("name", MODULES)
def test_every_public_name_exists(name):
    module = importlib.import_module(name)
    assert all(getattr(module, each) is not None for each in module.__all__)


def completions(text):
    completer = rlcompleter.Completer({"dps": dps})
    found = []
    while (word := completer.complete(text, len(found))) is not None:
        found.append(word.removesuffix("(").removesuffix("()"))
    return found


@pytest.mark.parametrize("name", ["", "losses.", "privacy.", "audits.neighbors."])
def test_completion_offers_the_public_names(name):  # U8
    module = importlib.import_module(f"dpsample.{name}".rstrip("."))
    offered = completions(f"dps.{name}")
    assert offered == [f"dps.{name}{each}" for each in sorted(module.__all__)]


@pytest.mark.slow
def test_dir_imports_nothing():
    code = (
        "import sys, dpsample; before = set(sys.modules); names = dir(dpsample);"
        "assert 'release' in names and 'losses' in names;"
        "assert set(sys.modules) == before;"
        "assert 'dpsample.api.release' not in before;"
        "dpsample.losses; assert names == dir(dpsample)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("former", "present"),
    [
        ("samplers.couplings", "diagnostics.couplings"),
        ("privacy.printed.claim", "papers.claim"),
        ("verbs.release", "api.release"),
        ("verbs.sandwich", "inference.sandwich"),
    ],
)
def test_modules_that_moved_have_their_former_names_for_one_version(former, present):
    moved = importlib.import_module(f"dpsample.{present}")
    code = (
        "import warnings, importlib\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        f"    import dpsample.{former} as module\n"
        f"assert module.__name__ == {moved.__name__!r}\n"
        "last = caught[-1]\n"
        "assert last.category is DeprecationWarning and last.filename == '<string>'\n"
        f"assert 'is now {moved.__name__}.' in str(last.message), last\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_former_attribute_of_couplings_warns():
    with pytest.warns(DeprecationWarning, match=r"is now dpsample\.diagnostics"):
        samplers = dps.samplers
        assert samplers.couplings is dps.diagnostics.couplings
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(f"{dps.samplers.__name__}.nothing")
