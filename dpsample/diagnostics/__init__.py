"""Diagnostics: what chains show, and what they cannot show.

Nothing here is a proof of privacy: no diagnostic enters a certificate.
"""

from dpsample.diagnostics.summaries import summary

__all__ = ["summary"]
