"""Why the planner refuses. Every refusal names what is missing or wrong and what would cure it.

A plan that says "do not disaggregate" is an answer, not an error: see `verdict`. An error means that
there is no answer, because an input is malformed, out of the model's reach, or not measured.
"""

from __future__ import annotations


class PlannerError(Exception):
    """Base of all refusals; the text is for the person who asked."""


class InvalidModel(PlannerError):
    """A model's config lacks a field, or a field is absurd."""


class UnsupportedModel(PlannerError):
    """A well-formed model that the formulas do not cover (no experts, recurrent layers, ...)."""


class InvalidHardware(PlannerError):
    """A hardware record lacks a figure that the question needs, or the figure is absurd."""


class InvalidWorkload(PlannerError):
    """A trace or a length distribution that describes no traffic."""


class InvalidTarget(PlannerError):
    """A service level that no system could be measured against (zero, negative, not finite)."""


class MissingData(PlannerError):
    """No table, fit or published figure covers the question: refusing is better than guessing."""
