"""What the operator and the runtime both need to know about a unit, and nothing else.

A *unit* is M attention nodes + N expert nodes + one coordinator that serve one copy of a model
inside one NVLink domain. The operator writes a unit down (`unitfile`), names its parts (`names`,
`labels`, `ports`), and reads back how it fares (`report`); the runtime does the mirror image. Both
publish metrics, so their names live here too (`metrics`), and write one kind of log (`logs`).

Neither side imports the other: this package is the whole of what they share. It imports the
standard library and msgspec only.
"""
