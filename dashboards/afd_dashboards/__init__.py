"""Boards as code: a panel spec in Python, Grafana JSON out of it.

spec      what a board is: rows of panels, each with a question, a unit and queries; pure
promql    queries over the metrics table: a name that the table lacks cannot be written
unit      the board of one deployment's units
grafana   spec -> Grafana JSON
pages     the files made from all this, and docs/metrics.md from the same table
"""
