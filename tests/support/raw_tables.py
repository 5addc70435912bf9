"""Raw tables as people have them: quotes, marks, dates, gaps, unknown levels."""

import csv

import numpy as np

WARDS = ("north", "south; upper", 'the "old" one', "unknown")
BOUNDS = """
ignore = ["patient; id", "constant"]
missing_indicator = ["n0", "c1"]

[file]
separator = ";"
decimal = ","
thousands = "."

[numeric]
{numeric}

[log]
cost = [0, 100000]

[date]
admitted = ["2010-01-01", "2024-12-31"]

[categorical]
c0 = ["north", "south; upper", 'the "old" one', "unknown"]
c1 = ["north", "south; upper", 'the "old" one', "unknown"]
grade = [1, 2, 3]
returned = ["no", "yes"]

[missing]
cost = 1000
admitted = "2017-01-01"
grade = 1
"""


def bounds(num_columns):
    """Text of the bounds file of `write`."""
    names = range(num_columns - 8)
    return BOUNDS.format(numeric="\n".join(f"n{j} = [-4, 4]" for j in names))


def records(num_records, num_columns, seed):
    """Raw text of every column; the label follows n1 and the ward."""
    rng = np.random.default_rng(seed)

    def gaps(texts, rate=0.02):
        gone = rng.uniform(size=num_records) < rate
        return np.where(gone, rng.choice(["", "NA", "?"], num_records), texts)

    def numbers(values, digits=3):
        return np.array([f"{v:.{digits}f}".replace(".", ",") for v in values])

    table = {"patient; id": np.arange(num_records).astype(str)}
    numeric = rng.normal(size=(num_columns - 8, num_records))
    wards = rng.integers(0, 4, num_records)
    names = np.array([*WARDS, "a level of nobody's bounds"])
    foreign = np.where(rng.uniform(size=num_records) < 0.01, 4, wards)
    for j, values in enumerate(numeric):
        table[f"n{j}"] = gaps(numbers(values)) if j == 0 else numbers(values)
    costs = rng.lognormal(6.0, 2.0, num_records)
    grouped = [f"{v:,.2f}".translate(str.maketrans(",.", ".,")) for v in costs]
    table["cost"] = gaps(np.array(grouped))
    days = rng.integers(0, 5000, num_records)
    table["admitted"] = gaps((np.datetime64("2010-01-01") + days).astype(str))
    table["c0"] = names[foreign]
    table["c1"] = gaps(names[wards])
    table["grade"] = gaps(rng.choice(["1", "2,0", " 3"], num_records))
    table["constant"] = np.full(num_records, "7")
    score = numeric[1] + 0.5 * (wards == 1) + 0.3 * rng.normal(size=num_records)
    table["returned"] = np.where(score > 0.2, "yes", "no")
    return table


def write(path, table, *, bom=True):
    """Write the columns of a table, separated by semicolons, quoted where needed."""
    encoding = "utf-8-sig" if bom else "utf-8"
    with path.open("w", encoding=encoding, newline="") as file:
        writer = csv.writer(file, delimiter=";", lineterminator="\r\n")
        writer.writerow(table)
        writer.writerows(zip(*(c.tolist() for c in table.values()), strict=True))
