"""Two chains moved by one compiled kernel until they meet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba.extending import register_jitable
from numpy.typing import NDArray

from dpsample._jit import kernel
from dpsample.samplers.errors import OK, raise_unless_ok

Array = NDArray[np.float64]


@kernel
def is_same(a, b):
    """Whether two positions are equal in every coordinate, exactly."""
    for j in range(a.shape[0]):
        if a[j] != b[j]:
            return False
    return True


@kernel
def follow(first, second):
    """Copy what the next step depends on from the first chain to the second."""
    second.position[:] = first.position
    second.energy[:] = first.energy
    second.memory[:] = first.memory


def compile_pair(couple: Callable[..., Any]) -> Any:
    """Loop of a coupled step (target, pieces, plan, first, second, rng).

    The kernel makes ``num_steps`` coupled steps per row, stops at the first row where
    the chains are equal, and returns a code of `errors`, the number of rows filled and
    whether they met. Chains that were equal stay equal: the second is a copy.
    """
    move = register_jitable(couple)

    def run(
        target: Any,
        pieces: Any,
        plan: Any,
        first: Any,
        second: Any,
        rng: np.random.Generator,
        num_steps: int,
        draws: Array,
        others: Array,
    ) -> tuple[int, int, bool]:
        for t in range(draws.shape[0]):
            for _ in range(num_steps):
                were_same = is_same(first.position, second.position)
                code = move(target, pieces, plan, first, second, rng)
                if code != OK:
                    return code, t, False
                if were_same:
                    follow(first, second)
            draws[t] = first.position
            others[t] = second.position
            if is_same(first.position, second.position):
                return OK, t + 1, True
        return OK, draws.shape[0], False

    return kernel(run)


@dataclass(frozen=True, kw_only=True, eq=False)
class Pair:
    """Coupled kernel of a prepared chain.

    Attributes
    ----------
    target : Gibbs
        The target.
    plan : NamedTuple
        Numbers of the coupled kernel.
    run : kernel
        What `compile_pair` returned.
    init_fn : callable
        (target, plan, position) to the state of either chain.
    num_steps : int
        Kernel steps per draw.
    """

    target: Any
    plan: Any
    run: Any
    init_fn: Callable[[Any, Any, Array], Any]
    num_steps: int

    def init(self, position: Array) -> Any:
        """State of one of the two chains."""
        return self.init_fn(self.target, self.plan, position)

    def advance(
        self,
        first: Any,
        second: Any,
        rng: np.random.Generator,
        draws: Array,
        others: Array,
    ) -> tuple[int, bool]:
        """Fill rows of both chains' draws; return how many, and whether they met."""
        numbers, pieces = self.target.numbers, self.target.pieces
        code, count, has_met = self.run(
            numbers,
            pieces,
            self.plan,
            first,
            second,
            rng,
            self.num_steps,
            draws,
            others,
        )
        raise_unless_ok(code)
        return int(count), bool(has_met)
