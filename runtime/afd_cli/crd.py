"""`afd crd`: the CustomResourceDefinition as this version has it, for `kubectl apply -f -`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from afd_operator.api import crd, reference


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="afd crd", description=__doc__)
    parser.add_argument("--reference", action="store_true", help="print the API reference (Markdown) instead")
    options = parser.parse_args(argv)
    sys.stdout.write(reference.render() if options.reference else crd.render())
    return 0
