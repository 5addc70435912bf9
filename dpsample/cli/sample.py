"""Command ``dpsample sample``: many draws from the Gibbs target, NOT PRIVATE."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.console import Console

import dpsample as dps
from dpsample.api.warm import public_samplers
from dpsample.cli import screen
from dpsample.cli.exit_codes import INTERRUPTED
from dpsample.cli.records import RecordOptions, build, describe_rules, read
from dpsample.core import check, files
from dpsample.privacy.budget import Relation
from dpsample.privacy.certificates.terms import Risk
from dpsample.running.convergence import are_many_and_short

if TYPE_CHECKING:
    from xarray import DataTree

    from dpsample.samplers import Sampler

# Maximum number of coefficients in the summary.
MAX_ROWS = 40


@dataclass(frozen=True, kw_only=True)
class SampleOptions(RecordOptions):
    """Options of the command, with its defaults."""

    epsilon: float | None
    delta: float | None
    k: float | None
    mu: float | None
    relation: Relation
    p: float
    risk: Risk
    sampler_share: float
    sampler: str
    draws: int
    warmup: int | None
    chains: int
    threads: int | None
    target_ess: float | None
    max_seconds: float | None
    checkpoint: Path | None
    output: Path | None
    overwrite: bool
    seed: int


def run(options: SampleOptions) -> int:
    """Draw, save the draws if asked to, and print a summary; 130 after Ctrl-C."""
    inputs = (options.file, options.bounds)
    screen.check_outputs(
        *inputs,
        options.checkpoint,
        output=options.output,
        overwrite=options.overwrite,
    )
    if options.checkpoint is not None:
        # A checkpoint may exist, because a run can go on from it.
        screen.check_outputs(*inputs, checkpoint=options.checkpoint)
    data = read(options, options.file)
    problem = build(options, data)
    console = screen.console()
    target, sampler = density(options, problem), parse_sampler(options.sampler)
    console.print("\n".join(describe_rules(data, problem)))
    with warnings.catch_warnings(record=True) as warmup_warnings:
        warnings.simplefilter("always", RuntimeWarning)
        draws = dps.sample(
            target,
            sampler=sampler,
            num_draws=options.draws,
            num_warmup=options.warmup,
            num_chains=options.chains,
            threads=options.threads,
            target_ess=options.target_ess,
            max_seconds=options.max_seconds,
            checkpoint=options.checkpoint,
            seed=options.seed,
        )
    for warning in warmup_warnings:
        console.print(str(warning.message))
    code = INTERRUPTED if draws.attrs["is_interrupted"] else 0
    if options.output is None:
        show(console, draws)
        return code
    with screen.keep_output(
        partial(write, draws), options.output, ".nc", overwrite=options.overwrite
    ) as path:
        show(console, draws)
        console.print(f"Draws saved, {screen.NOT_PRIVATE}: {path}")
    return code


def show(console: Console, draws: DataTree) -> None:
    """Print how the draws were made, and their summary."""
    attributes = draws.attrs
    console.print(f"{attributes['sampler']}: {attributes['sampler_reason']}")
    if attributes["is_interrupted"]:
        console.print("Interrupted: these are the draws so far.")
    print_summary(draws)


def write(draws: DataTree, path: Path) -> None:
    """Save a tree completely, or not at all."""
    with files.replacing(path, is_private=True) as draft:
        draws.to_netcdf(draft, engine="h5netcdf")


def density(options: SampleOptions, problem: dps.Problem) -> dps.Gibbs:
    """Return the target, with the density exp(-k (F + mu r)) on a ball.

    F is the mean loss and r half a squared norm. k and mu are given, or they are those
    from which ``dpsample release`` with this budget draws once.
    """
    epsilon, delta, k, mu = options.epsilon, options.delta, options.k, options.mu
    if epsilon is None and delta is None and k is not None and mu is not None:
        # Options that only calibration reads, with their defaults.
        defaults = {"relation": "replace_one", "risk": "population"}
        for name, default in {**defaults, "sampler_share": 0.1}.items():
            value = getattr(options, name)
            if value != default:
                option = f"--{name.replace('_', '-')}"
                check.fail(option, "left out beside --k and --mu", value)
        regularizer = dps.regularizers.SquaredNorm(options.p)
        return dps.Gibbs(problem, k=k, mu=mu, regularizer=regularizer)
    if epsilon is None or delta is None or k is not None or mu is not None:
        options_by_name = {"--epsilon": epsilon, "--delta": delta, "--k": k, "--mu": mu}
        seen = [name for name, value in options_by_name.items() if value is not None]
        alternatives = "either --epsilon and --delta, or --k and --mu"
        check.fail(
            "the density", f"given by {alternatives}", " ".join(seen) or "neither"
        )
    mechanism = dps.calibrate(
        problem,
        dps.Budget(epsilon=epsilon, delta=delta, relation=options.relation),
        p=options.p,
        risk=options.risk,
        sampler_share=options.sampler_share,
    )
    return mechanism.target(problem)


def parse_sampler(name: str) -> Sampler | Literal["auto"]:
    """Return "auto", or the sampler of that name with its default options."""
    if name == "auto":
        return "auto"
    samplers = {c.__name__.lower(): c for c in public_samplers()}
    check.one_of(["auto", *sorted(samplers)], sampler=name.lower().replace("-", ""))
    return samplers[name.lower().replace("-", "")]()


def print_summary(draws: DataTree) -> None:
    """Print means, standard deviations and effective sample sizes."""
    from dpsample.diagnostics.summaries import mixing, superchains

    theta = draws.posterior["theta"]
    values = theta.values
    head = ("name", "mean", "sd", "ESS", "R-hat")
    title = f"{screen.NOT_PRIVATE}, not releasable"
    is_short = are_many_and_short(*values.shape[:2])
    # ESS and R-hat split each chain in halves of at least two draws.
    if values.shape[1] < 4 and not is_short:
        screen.print_table(f"{title} (too few draws for a summary)", head, [])
        return
    convergence = mixing(values, superchains(theta))
    sizes, r_hats = convergence["ess_bulk"], convergence["r_hat"]
    columns = values.mean(axis=(0, 1)), values.std(axis=(0, 1)), sizes, r_hats
    names = theta.coords["coefficient"].values[:MAX_ROWS]
    formats = ("{:.5g}", "{:.3g}", "{:.0f}", "{:.3f}")
    rows = [
        (str(name), *(f.format(c[j]) for f, c in zip(formats, columns, strict=True)))
        for j, name in enumerate(names)
    ]
    hidden = values.shape[2] - len(names)
    if hidden:
        rows.append((f"and {hidden} more", *("",) * 4))
    screen.print_table(title, head, rows)
