"""What is built and shipped: source, wheel, recipe, and the benchmarks of commits."""

import importlib.util
import itertools
import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile

import pytest
import yaml

import dpsample
from tests.support.project_files import PROJECT, ROOT

CODE = """
import sys
import dpsample as dps
from pathlib import Path
from dpsample.privacy import certificates
from dpsample.verification import ball_checker
assert Path(dps.__file__).is_relative_to(sys.argv[1]), dps.__file__
budget = dps.Budget(epsilon=1.0, delta=1e-6)
answer = dps.noise.laplace_mechanism(budget, sensitivity=1.0).release([0.5])
dps.verify(answer.certificate)
assert "May be published" in answer.certificate.to_html()
"""


@pytest.mark.slow  # a build installs its tools first
def test_source_and_wheel_work_outside_of_the_tree(tmp_path):
    pytest.importorskip("build")

    def run(*command, **options):
        done = subprocess.run(
            [sys.executable, *command],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            **options,
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout

    run("-m", "build", "--outdir", str(tmp_path), str(ROOT))  # wheel from source
    (source,) = tmp_path.glob("*.tar.gz")
    (wheel,) = tmp_path.glob("*.whl")
    with tarfile.open(source) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", readme)
    missing = {link for link in links if link.rstrip("/") not in inside}
    assert {"CITATION.cff", "docs/conf.py", "recipe/recipe.yaml"} <= inside
    assert not missing
    assert not any(name.startswith(("docs/api/", "build/")) for name in inside)
    packed = set(zipfile.ZipFile(wheel).namelist())
    assert not any(name.startswith(("tests/", "docs/")) for name in packed)
    assert "dpsample/privacy/certificates/registry.toml" in packed
    place = tmp_path / "place"
    run("-m", "pip", "install", "-q", "--no-deps", "--target", str(place), str(wheel))
    outside = {"env": os.environ | {"PYTHONPATH": str(place)}}
    run("-W", "error", "-c", CODE, str(place), **outside)
    call = "import sys; from dpsample.cli import main; sys.exit(main())"
    assert dpsample.__version__ in run("-c", call, "--version", **outside)


def test_the_recipe_agrees_with_the_project():
    text = (ROOT / "recipe" / "recipe.yaml").read_text(encoding="utf-8")
    context = yaml.safe_load(text)["context"]
    for name, value in context.items():
        text = text.replace(f"${{{{ {name} }}}}", value)
    version, recipe = context["version"], yaml.safe_load(text)
    assert recipe["package"] == {"name": PROJECT["name"], "version": version}
    assert version == dpsample.__version__
    assert "${{" not in text.replace("${{ PYTHON }}", "")
    run = {line.replace(" ", "") for line in recipe["requirements"]["run"]}
    needed = {re.sub(r"\[.*?\]", "", line) for line in PROJECT["dependencies"]}
    extras = {"h5py"}  # conda has no extras: what those above bring
    assert run == needed | extras | {f"python{PROJECT['requires-python']}"}
    (entry,) = recipe["build"]["python"]["entry_points"]
    assert dict([entry.split(" = ")]) == PROJECT["scripts"]


def test_the_recipe_follows_the_rules_of_conda_forge():
    text = (ROOT / "recipe" / "recipe.yaml").read_text(encoding="utf-8")
    recipe = yaml.safe_load(text)
    order = "schema_version context package source build requirements tests about extra"
    assert list(recipe) == order.split()
    assert recipe["about"].keys() >= {"homepage", "license", "license_file", "summary"}
    assert recipe["extra"]["recipe-maintainers"]
    assert recipe["build"].keys() >= {"number", "noarch"}
    assert "python ${{ python_min }}.*" in recipe["requirements"]["host"]
    assert "python >=${{ python_min }}" in recipe["requirements"]["run"]
    (least,) = (t["python"]["python_version"] for t in recipe["tests"] if "python" in t)
    assert least == "${{ python_min }}.*"
    assert text.endswith("\n") and not text.endswith("\n\n")


@pytest.fixture(scope="module")
def speed():
    spec = importlib.util.spec_from_file_location(
        "speed", ROOT / "benchmarks" / "asv" / "speed.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def timed(speed):
    """Benchmarks as (class, method, values of its parameters)."""
    for kind in vars(speed).values():
        if not isinstance(kind, type):
            continue
        given = getattr(kind, "params", ())
        grid = given if given and isinstance(given[0], list) else [given]
        for values in itertools.product(*grid) if given else [()]:
            for name in vars(kind):
                if name.startswith("time_"):
                    yield kind, name, values


def test_there_are_benchmarks_of_everything_that_takes_time(speed):
    assert len(list(timed(speed))) >= 12
    settings = json.loads((ROOT / "benchmarks" / "asv.conf.json").read_text())
    assert (ROOT / "benchmarks" / settings["benchmark_dir"] / "speed.py").is_file()


@pytest.mark.slow
def test_every_benchmark_runs(speed):
    for kind, name, values in timed(speed):
        if "cold" in values:  # compiles for a minute
            continue
        case = kind()
        case.setup(*values)
        getattr(case, name)(*values)
        if hasattr(case, "teardown"):
            case.teardown(*values)
