"""Check a proof by ball arithmetic, sign an answer. It needs the extra ``verify``."""

import secrets

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

import dpsample as dps

data = dps.datasets.logistic(500, 2, seed=1)
problem = dps.Problem(
    data.features,
    data.response,
    loss=dps.losses.Logistic(),
    domain=dps.domains.Ball(1.0),
    row_bound=1.0 + 1e-6,
)
budget = dps.Budget(epsilon=1.0, delta=1e-6)


answer = dps.release(problem, budget)
answer.verify(checker="ball")
secret = secrets.token_bytes(32)
public = ed25519.Ed25519PrivateKey.from_private_bytes(secret).public_key()
raw = public.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
answer.verify(signature=answer.sign(secret), public_key=raw)
