"""Published algorithms, one a file: spec, scales, plan, recipe, risk bound."""
