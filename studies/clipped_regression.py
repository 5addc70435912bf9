"""Quartic regression on a8a, a9a and w7a by the clipped methods: figures 1 to 3.

The files are those of LIBSVM Data (www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets):
a8a, a8a.t, a9a, a9a.t, w7a, w7a.t, in the folder DPSAMPLE_DATA.
"""

from ._clipped import declared

study = declared(
    name="clipped_regression",
    loss="l4",
    title="Quartic regression by clipped methods",
    question="The loss is (<w, x> - y)^4, labels are -1 and 1: who is best, and when?",
    answer="",
    figures="1 to 3",
    seed=41,
)
