"""Targets on which remainders decide, and what a step of the factorized chain knows."""

from dataclasses import replace
from functools import cache

import numpy as np
from scipy import sparse

import dpsample as dps
from dpsample.samplers import FactorizedMetropolis
from dpsample.samplers.subsampled import factorized_events as events
from dpsample.samplers.subsampled import factorized_metropolis as module
from tests.support.gibbs_cases import Case, example

L, D = dps.losses, dps.domains
OFFSET = [0.5, -1.0, 2.0, 0.0, 1.0, -0.3]


def strong(loss, domain, *, num_records=12, k=8.0, mu=0.1, **rest):
    """Long rows and a small k, so that remainders decide."""
    case = example(loss, domain, num_records=num_records, k=k, mu=mu, **rest)
    rows = 4.0 * case.rows * (np.random.default_rng(2).random(case.rows.shape) < 0.8)
    return Case(loss, domain, rows, case.response, k, mu, case.p, case.offset)


def collinear():
    """Two features that are nearly one: a norm bounds margins, coordinates do not."""
    case = strong(L.Logistic(), D.WholeSpace(), mu=0.2)
    rows = case.rows @ [[1.0, 1.0], [0.03, -0.03]]
    return Case(case.loss, case.domain, rows, case.response, case.k, case.mu)


CASES = {
    "collinear": collinear(),
    "plane": strong(L.Logistic(), D.WholeSpace()),
    "ball off center, offset": strong(
        L.Logistic(), D.Ball(1.2, center=[0.5, -0.4]), num_records=6, offset=OFFSET
    ),
    "p = 1.5, box": strong(L.Logistic(), D.Box(-1.5, 1.0), p=1.5),
    "fourth power, ball": example(L.PowerFour(), D.Ball(1.0), k=5.0),
}


@cache
def target_of(name, is_sparse):
    case = CASES[name]
    if not is_sparse:
        return case.target
    problem = dps.Problem(
        sparse.csr_array(case.rows),
        case.response,
        loss=case.loss,
        domain=case.domain,
        row_bound=20.0,
        response_bound=5.0,
        offset=case.offset,
        offset_bound=0.0 if case.offset is None else 20.0,
    )
    regularizer = dps.regularizers.SquaredNorm(case.p)
    return dps.Gibbs(problem, k=case.k, mu=case.mu, regularizer=regularizer)


@cache
def prepared(name, is_sparse=False, step=None):
    sampler = FactorizedMetropolis(step_size=step)
    return sampler.prepare(target_of(name, is_sparse), np.random.default_rng(7))


def moved(chain, start, rng):
    """State at start and all that a step knows of a proposal in the domain."""
    state, plan = chain.init(start), chain.plan
    rank, dim = plan.factor.shape[1], len(start)
    there, noise = np.empty(rank), np.empty(rank)
    moves, proposal = state.vectors[3 : module.NUM_ROWS], None
    while proposal is None or not chain.target.domain.contains(proposal):
        module.propose(plan, rng, state.memory[:rank], noise, there, moves[1, :dim])
        proposal = plan.anchor + moves[1, :dim]
    moves[0, :dim] = state.position - plan.anchor
    return state, moves, there, proposal


def penalties(chain, start, end):
    """Every record's (rho(x') - rho(x))^+, from the kernel."""
    target, plan = chain.target, chain.plan
    data, out = target.problem.data, np.empty(2)
    rows = CASES_ROWS[id(target)]
    result = []
    for i, row in enumerate(rows):
        penalty, code = events.rejection_rate(
            target.pieces.loss_record,
            data.loss_params,
            data.response[i],
            plan.records[i],
            (plan.weight, plan.cubic),
            float(row @ (start - plan.anchor)),
            float(row @ (end - plan.anchor)),
            out,
        )
        assert code == 0
        result.append(penalty)
    return np.array(result)


CASES_ROWS = {
    id(target_of(name, kind)): CASES[name].rows
    for name in CASES
    for kind in (False, True)
}


def log_acceptance(chain, start, end):
    """Log of the product of all factors, domain aside."""
    rank = chain.plan.factor.shape[1]
    rest = chain.init(end).memory[rank] - chain.init(start).memory[rank]
    return -penalties(chain, start, end).sum() - max(rest, 0.0)


def log_gaussian(plan, x):
    """Log density of the Gaussian that proposals are reversible for."""
    gap = plan.whiten @ (x - plan.anchor) - plan.shift
    return -0.5 * gap @ gap


def replaced(chain, plan):
    """The same chain with another plan."""
    return replace(chain, plan=plan)
