"""Logistic regression on a8a, a9a and w7a by the clipped methods: figures 4 to 6.

The files are those of LIBSVM Data (www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets):
a8a, a8a.t, a9a, a9a.t, w7a, w7a.t, in the folder DPSAMPLE_DATA.
"""

from ._clipped import declared

study = declared(
    name="clipped_logistic",
    loss="logistic",
    title="Logistic regression by clipped methods",
    question=(
        "The paper adds a ridge lambda |w|^2/2 (ours: lambda = 0.01) to the logistic"
        " loss. It changes no minimizer: the multiplier of the unit ball is above"
        " lambda, so both minimizers are the same point of the sphere. Who is best,"
        " and when?"
    ),
    answer="",
    figures="4 to 6",
    seed=42,
)
