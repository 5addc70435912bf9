"""What every sampler says of itself."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from dpsample.core import check
from dpsample.targets.gibbs import Gibbs
from dpsample.targets.reduced import has_equalities

Exactness = Literal["iid", "invariant", "biased"]


@dataclass(frozen=True, kw_only=True)
class Sampler:
    """Base of all samplers: frozen options, and what is true of every draw.

    Attributes
    ----------
    exactness : {"iid", "invariant", "biased"}
        Whether draws are independent and exact, have the target as invariant law, or
        have an invariant law off by a stated amount.
    is_reversible : bool
        Whether a draw's kernel satisfies detailed balance.
    """

    exactness: ClassVar[Exactness] = "invariant"
    is_reversible: ClassVar[bool] = True

    def supports(self, target: Gibbs) -> tuple[bool, str]:
        """Whether the sampler can draw from the target, and the reason if not.

        Parameters
        ----------
        target : Gibbs
            The target.

        Returns
        -------
        is_supported : bool
            Whether it can.
        reason : str
            Empty, or why not and what to use instead.
        """
        check.instance(Gibbs, target=target, remedy="Build a dps.Gibbs first.")
        if has_equalities(target):
            return False, (
                "dps.sample and dps.release draw on equalities in free coordinates: "
                "dpsample.targets.reduced.reduce gives the target there."
            )
        return self._supports(target)

    def _supports(self, target: Gibbs) -> tuple[bool, str]:
        """Answer for a Gibbs target; most need no more than an energy and a domain."""
        del target
        return True, ""

    def prepare(self, target: Gibbs, rng: np.random.Generator) -> Any:
        """Tune on a stream of its own; everything is fixed before the first draw."""
        raise NotImplementedError

    def require(self, target: Gibbs) -> None:
        """Raise a ValueError with the reason of `supports` unless the target is."""
        is_supported, reason = self.supports(target)
        if not is_supported:
            check.fail("sampler", "one that supports the target", repr(self), reason)
