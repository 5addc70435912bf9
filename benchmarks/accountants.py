"""Epsilon of steps on Poisson samples by ours and by dp-accounting, under zero_out.

Prints rate, noise, steps, delta, both epsilons and both seconds of the processor. Ours
counts the rounding errors of its transforms; dp-accounting's have both signs. Its grid
has intervals of 1e-4, the library's default.
"""

import time

from dp_accounting import NeighboringRelation
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

from dpsample.privacy import PoissonGaussianEvent, epsilon_of

CASES = (
    (0.01, 1.0, 1_000, 1e-6),
    (0.05, 3.2, 200, 1e-6),
    (0.001, 0.8, 100_000, 1e-6),
    (0.001, 0.8, 100_000, 1e-12),
    (0.01, 40.0, 1_000_000, 1e-6),
    (1e-5, 0.8, 1_000_000, 1e-6),
)


def seconds(call):
    """Answer of a call, and seconds of the processor."""
    start = time.process_time()
    return call(), time.process_time() - start


def theirs(rate, noise, num_steps, delta):
    """Epsilon by dp-accounting."""
    pld = from_gaussian_mechanism(
        noise,
        sampling_prob=rate,
        neighboring_relation=NeighboringRelation.REPLACE_SPECIAL,
    )
    return pld.self_compose(num_steps).get_epsilon_for_delta(delta)


def ours(rate, noise, num_steps, delta):
    """Epsilon by `epsilon_of`."""
    event = PoissonGaussianEvent(
        sampling_rate=rate, noise_multiplier=noise, num_steps=num_steps
    )
    return epsilon_of(event, delta=delta, relation="zero_out")


def main():
    """Print a line for each case."""
    ours(0.5, 1.0, 1, 0.1)  # compiles
    print("     rate  noise    steps  delta     ours   theirs  seconds  theirs")
    for case in CASES:
        mine, mine_takes = seconds(lambda case=case: ours(*case))
        other, other_takes = seconds(lambda case=case: theirs(*case))
        rate, noise, num_steps, delta = case
        print(
            f"{rate:9.0e} {noise:6.1f} {num_steps:8d} {delta:6.0e} {mine:8.5f} "
            f"{other:8.5f} {mine_takes:8.2f} {other_takes:7.2f}"
        )


if __name__ == "__main__":
    main()
