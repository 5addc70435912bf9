"""Generated pages of the site, which are the API by task and the command line."""

import importlib
import inspect
import re
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any

import typer

import dpsample
from dpsample.cli.commands import app
from dpsample.core.public import public_modules

# Tasks in the order in which users meet them. An entry is the path of a public name, or
# of a module, which stands for all of its names that no entry before it has.
TASKS: dict[str, tuple[str, ...]] = {
    "Fit a private model": (
        "dpsample.fit",
        "dpsample.advise",
        "dpsample.minimize",
        "dpsample.intervals",
        "dpsample.tune",
        "dpsample.estimators",
        "dpsample.Fit",
        "dpsample.Intervals",
    ),
    "Describe records and budget": (
        "dpsample.Problem",
        "dpsample.PublicFacts",
        "dpsample.Budget",
    ),
    "Read tables": ("dpsample.tables",),
    "Release a statistic": ("dpsample.stats", "dpsample.Statistic"),
    "Draw from the exponential mechanism": (
        "dpsample.release",
        "dpsample.calibrate",
        "dpsample.Release",
        "dpsample.privacy.ExponentialMechanism",
    ),
    "Check and publish": (
        "dpsample.verify",
        "dpsample.Certificate",
        "dpsample.privacy.EventCertificate",
        "dpsample.privacy.AttackRisk",
        "dpsample.privacy.VerificationReport",
        "dpsample.privacy.CertificateError",
        "dpsample.NoCertificate",
        "dpsample.SamplingError",
    ),
    "Keep a total budget": (
        "dpsample.privacy.Ledger",
        "dpsample.privacy.LedgerFile",
        "dpsample.privacy.Entry",
        "dpsample.privacy.Remaining",
    ),
    "Choose a loss": ("dpsample.losses",),
    "Choose a domain": ("dpsample.domains",),
    "Choose a regularizer": ("dpsample.regularizers",),
    "Choose an optimizer": ("dpsample.optimizers",),
    "Add noise": ("dpsample.noise",),
    "Account for privacy": ("dpsample.privacy",),
    "Test a claim": (
        "dpsample.audit",
        "dpsample.audits",
        "dpsample.audits.neighbors",
        "dpsample.papers",
        "dpsample.papers.clipping_instance",
    ),
    "Sample a density": (
        "dpsample.sample",
        "dpsample.Gibbs",
        "dpsample.Density",
        "dpsample.samplers",
        "dpsample.interop",
    ),
    "Diagnose draws": ("dpsample.diagnostics", "dpsample.diagnostics.couplings"),
    "Compare methods and run studies": (
        "dpsample.replicate",
        "dpsample.minimizer",
        "dpsample.Minimum",
        "dpsample.experiments",
        "dpsample.datasets",
    ),
    "Run the command line from Python": ("dpsample.cli",),
}


@cache
def load_modules() -> dict[str, ModuleType]:
    """Return the public modules by their names."""
    return {name: importlib.import_module(name) for name in public_modules(dpsample)}


def find_home(name: str, value: Any) -> str:
    """Return the innermost public module that offers a name."""
    offering = [
        path
        for path, module in load_modules().items()
        if name in module.__all__ and getattr(module, name) is value
    ]
    return max(offering, key=len)


def summarize(value: Any) -> str:
    """Return the first sentence of the documentation of a public name."""
    if not callable(value):
        return f"A constant of type `{type(value).__name__}`."
    first = (inspect.getdoc(value) or "").split("\n\n")[0]
    return " ".join(first.split())


def list_entry(path: str) -> Iterator[tuple[str, Any]]:
    """Yield the names, each with its object, for which an entry of a task stands."""
    module_name, _, name = path.rpartition(".")
    if path in load_modules():
        module = load_modules()[path]
        for public in module.__all__:
            yield public, getattr(module, public)
    else:
        yield name, getattr(importlib.import_module(module_name), name)


def list_tasks() -> dict[str, list[tuple[str, str]]]:
    """Return the rows of each task, which are paths of public names and summaries.

    Raises
    ------
    ValueError
        If a public name belongs to no task.
    """
    listed: set[int] = set()
    tasks = {}
    # A name that is an entry of its own belongs to that task, not to its module's.
    own = {
        id(value)
        for paths in TASKS.values()
        for path in paths
        if path not in load_modules()
        for _, value in list_entry(path)
    }
    for task, paths in TASKS.items():
        rows = []
        for path in paths:
            is_module = path in load_modules()
            for name, value in list_entry(path):
                is_elsewhere = is_module and id(value) in own
                if isinstance(value, ModuleType) or id(value) in listed or is_elsewhere:
                    continue
                # Equal constants are one object, although they are two names.
                if callable(value):
                    listed.add(id(value))
                home = find_home(name, value)
                rows.append((f"{home}.{name}", summarize(value)))
        tasks[task] = rows
    missing = [
        f"{path}.{name}"
        for path, module in load_modules().items()
        for name in module.__all__
        if callable(value := getattr(module, name)) and id(value) not in listed
    ]
    if missing:
        raise ValueError(f"TASKS must have an entry for every public name: {missing}")
    return tasks


def write_title(title: str, underline: str) -> list[str]:
    """Return a title of a page or section."""
    return [title, underline * len(title), ""]


def make_api_index() -> str:
    """Return the page with one line for each public name, by task."""
    lines = write_title("API by task", "=")
    lines += [
        "Every public name has one line here. The link leads to its parameters, errors",
        "and an example. In code ``import dpsample as dps``.",
        "",
    ]
    for task, rows in list_tasks().items():
        lines += write_title(task, "-")
        lines += [".. list-table::", "   :widths: 35 65", ""]
        for path, summary in rows:
            lines += [f"   * - :py:obj:`~{path}`", f"     - {escape_bars(summary)}"]
        lines.append("")
    lines += write_title("By module", "-")
    lines += [".. toctree::", "   :maxdepth: 1", ""]
    lines += [f"   {name}" for name in load_modules()]
    return "\n".join([*lines, ""])


def escape_bars(text: str) -> str:
    """Keep |x| outside of code from being a substitution of reStructuredText."""
    parts = re.split(r"(``.*?``|:math:`[^`]*`)", text)
    parts[::2] = [part.replace("|", r"\|") for part in parts[::2]]
    return "".join(parts)


def list_commands(command: Any = None, path: str = "dpsample") -> Iterator[Any]:
    """Yield all commands, each after the words by which it is called."""
    command = command or typer.main.get_command(app)
    yield path, command
    for name, part in getattr(command, "commands", {}).items():
        yield from list_commands(part, f"{path} {name}")


def name_type(parameter: Any) -> str:
    """Return the type of an option, which versions of typer keep in two places."""
    # Former versions of typer use the classes of click.
    if hasattr(parameter, "type"):
        return str(parameter.type.name)
    annotation = parameter.type_descriptor.annotation
    return {"str": "text", "Path": "path"}.get(annotation.__name__, annotation.__name__)


def describe_parameter(parameter: Any) -> list[str]:
    """Return the lines about an argument or option of a command."""
    if parameter.param_type_name == "argument":
        name = parameter.name.upper()
    else:
        name = " / ".join([*parameter.opts, *parameter.secondary_opts])
        if not parameter.is_flag:
            name += f" <{name_type(parameter)}>"
    text = parameter.help or ""
    if parameter.required:
        text += " Required."
    elif parameter.default not in (None, False) and not callable(parameter.default):
        value = parameter.opts[0] if parameter.default is True else parameter.default
        text += f" Default: ``{value}``."
    return [f"``{name}``", f"   {escape_bars(text.strip())}"]


def make_cli_page() -> str:
    """Return the page about all commands with all their arguments and options."""
    lines = write_title("Command line", "=")
    lines += [
        "``python -m dpsample`` is the same program. Every command has ``--help``.",
        "",
        "The exit code is 0 if all went well, 1 after an error or a certificate that",
        "is not consistent, and 2 for wrong arguments or a file of another kind.",
        "Results go to stdout, and progress and everything NOT PRIVATE to stderr. A",
        "file that exists is replaced with ``--overwrite`` only.",
        "",
    ]
    for path, command in list_commands():
        if path != "dpsample":
            lines += write_title(path, "-")
        lines += [*inspect.cleandoc(command.help or "").split("\n"), ""]
        words = [p.name.upper() for p in command.params if p.opts[0][0] != "-"]
        words += ["[OPTIONS]"] if len(words) < len(command.params) else []
        if hasattr(command, "commands"):
            words.append("COMMAND")
        lines += [".. code-block:: text", "", f"   {' '.join([path, *words])}", ""]
        for parameter in command.params:
            lines += describe_parameter(parameter)
        lines.append("")
    return "\n".join(lines)
