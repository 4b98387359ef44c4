"""Whole nodes of the product on simulated machines."""
