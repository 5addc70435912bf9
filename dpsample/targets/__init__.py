"""Targets: the Gibbs densities that samplers see."""
