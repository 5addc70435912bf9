"""Contrast of every pair of colors by the formula of WCAG 2.2, level AA.

Text needs 4.5 and the parts of a picture that carry meaning need 3. Grid lines and
lines between the rows of a table carry none.
"""

import re
from pathlib import Path

import pytest

from dpsample.diagnostics import draw_pictures
from dpsample.experiments import report
from dpsample.privacy.certificates import page
from tests.support.golden_certificates import golden
from tests.support.project_files import ROOT

TEXT, GRAPHICS = 4.5, 3.0
# Lines of tables, grids and frames, in the style sheet and in figures of studies.
DECORATION = {"#c4c4c4", "#dddddd", "#b0b0b0", "#cccccc"}
# Backgrounds of notebooks with a dark theme: JupyterLab, VS Code, and the site.
DARK = ("#111111", "#1e1e1e", "#14181e")
HEX = r"#(?:[0-9a-fA-F]{6}|[0-9a-fA-F]{3})\b"


def luminance(color):
    """Return the relative luminance of #rgb or #rrggbb, between 0 and 1."""
    digits = color.removeprefix("#")
    if len(digits) == 3:
        digits = "".join(2 * digit for digit in digits)
    shares = [int(digits[i : i + 2], 16) / 255.0 for i in (0, 2, 4)]
    red, green, blue = (
        s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(first, second):
    """Return the contrast of two colors, between 1 and 21."""
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


def too_pale(colors, backgrounds, least):
    """Return pairs of colors whose contrast is below the least one."""
    return [
        (color, back)
        for color in colors
        for back in backgrounds
        if contrast(color, back) < least
    ]


def long_form(color):
    """Return a color as #rrggbb in small letters."""
    digits = color.lower().removeprefix("#")
    return "#" + ("".join(2 * d for d in digits) if len(digits) == 3 else digits)


def test_the_formula_is_that_of_wcag():
    assert contrast("#000", "#ffffff") == pytest.approx(21.0)
    assert contrast("#767676", "#fff") == pytest.approx(4.54, abs=0.005)
    assert contrast("#777777", "#fff") == pytest.approx(4.48, abs=0.005)
    assert too_pale(["#777777", "#000"], ["#fff"], TEXT) == [("#777777", "#fff")]


def colors_of_sheet(sheet):
    """Return colors of text, of backgrounds and of lines of a style sheet."""
    text = re.findall(rf"(?<![-\w])color:\s*({HEX})", sheet)
    backgrounds = re.findall(rf"background(?:-color)?:\s*({HEX})", sheet)
    rest = set(re.findall(HEX, sheet)) - set(text) - set(backgrounds)
    return set(text), set(backgrounds), rest


def test_text_and_lines_of_the_page_of_a_certificate():
    text, backgrounds, lines = colors_of_sheet(page.STYLE)
    assert len(text) >= 5 and backgrounds == {"#fff", "#f1f1f1"}
    # Each color of text is compared with each background, wherever it is used.
    assert too_pale(text, backgrounds, TEXT) == []
    meant = {long_form(color) for color in lines} - DECORATION
    assert meant and too_pale(meant, backgrounds, GRAPHICS) == []
    planted = page.STYLE.replace("color: #444", "color: #888")
    assert too_pale(colors_of_sheet(planted)[0], backgrounds, TEXT)


@pytest.mark.parametrize("name", ["noise/gaussian", "steps/full"])
def test_charts_of_the_page_of_a_certificate(name):
    shown = golden(name).to_html()
    assert "style=" not in shown.partition("</style>")[2]
    strokes = {long_form(c) for c in re.findall(rf'stroke="({HEX})"', shown)}
    assert too_pale(strokes - DECORATION, ["#fff"], GRAPHICS) == []
    words = re.findall(rf'<text[^>]*fill="({HEX})"', shown)
    assert words and too_pale(words, ["#fff"], TEXT) == []


def test_forms_for_notebooks_are_seen_on_light_and_dark_backgrounds():
    bars = page.coefficients("x", [page.Answered("a", -1.0), page.Answered("b", 2.0)])
    assert set(re.findall(HEX, bars)) == {page.BAR_COLOR}
    assert too_pale([page.BAR_COLOR], ["#fff", *DARK], GRAPHICS) == []
    # The former color was lost on a dark background.
    assert too_pale(["#0b4f8a"], DARK, GRAPHICS)


def source_lines():
    """Return lines of the package's source that draw with Matplotlib."""
    files = sorted((ROOT / "dpsample").rglob("*.py"))
    return [
        line
        for file in files
        for line in file.read_text("utf-8").splitlines()
        if re.search(r"\bcolor=|edgecolor=|\"C\d", line)
    ]


def test_colors_of_figures_are_seen_on_white():
    colors = pytest.importorskip("matplotlib.colors")
    named = [*report.COLORS, *draw_pictures.COLORS]
    for line in source_lines():
        named += re.findall(r'"(C\d)(?=["\-])', line)
        named += re.findall(r'(?:\bcolor=|edgecolor=|"color": )"([^"]+)"', line)
    shown = {name: colors.to_hex(name) for name in named}
    assert len(shown) > 12
    assert too_pale(shown.values(), ["#ffffff"], GRAPHICS) == []
    assert too_pale([colors.to_hex("C1"), "#E69F00"], ["#fff"], GRAPHICS) != []


def test_colors_of_stored_figures_are_seen_on_white():
    found = set()
    for file in sorted((ROOT / "studies" / "results").glob("*.svg")):
        text = file.read_text("utf-8")
        found |= {long_form(c) for c in re.findall(rf"(?:stroke|fill): ({HEX})", text)}
    meant = found - DECORATION - {"#ffffff"}
    assert len(meant) > 8
    assert too_pale(meant, ["#ffffff"], GRAPHICS) == []


def theme_sheet():
    """Return the style sheet of the site's theme, with the rules of the site."""
    theme = pytest.importorskip("pydata_sphinx_theme")
    static = Path(theme.__file__).parent / "theme" / "pydata_sphinx_theme" / "static"
    sheet = (static / "styles" / "pydata-sphinx-theme.css").read_text("utf-8")
    return sheet + (ROOT / "docs" / "_static" / "site.css").read_text("utf-8")


def theme_colors(sheet, theme):
    """Return the variables of a theme with their colors. Later rules win."""
    rules = re.findall(rf"html\[data-theme={theme}\]\s*{{([^}}]*)}}", sheet)
    values = dict(re.findall(r"--pst-color-([\w-]+):\s*([^;]+)", ";".join(rules)))
    for _ in range(3):  # variables that stand for others
        for name, value in values.items():
            if other := re.fullmatch(r"var\(--pst-color-([\w-]+)\)", value.strip()):
                values[name] = values.get(other[1], value)
    return {
        name: v.strip() for name, v in values.items() if re.fullmatch(HEX, v.strip())
    }


# What is written on what. A link on a surface, such as a row of a table, has a color of
# its own.
ALWAYS = "text-base", "text-muted", "heading", "inline-code", "link-hover"
WRITTEN = {
    "background": (*ALWAYS, "link"),
    "on-background": (*ALWAYS, "link"),
    "surface": (*ALWAYS, "on-surface", "link-higher-contrast"),
}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_of_the_site(theme):
    colors = theme_colors(theme_sheet(), theme)
    assert len(colors) > 50
    for back, names in WRITTEN.items():
        text = [colors[name] for name in names]
        assert too_pale(text, [colors[back]], TEXT) == [], (theme, back)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_code_of_the_site(theme):
    pytest.importorskip("pydata_sphinx_theme")
    styles = pytest.importorskip("pygments.styles")
    style = styles.get_style_by_name(f"a11y-high-contrast-{theme}")
    surface = theme_colors(theme_sheet(), theme)["surface"]
    tokens = {f"#{look['color']}" for _, look in style if look["color"]}
    assert len(tokens) > 5 and too_pale(tokens, [surface], TEXT) == []
