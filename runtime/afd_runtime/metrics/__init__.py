"""Metrics of a process, made from the table that both sides of the project share (`afd_unit.metrics`).

registry     the objects of one owner's table; an unknown name, kind or label is an error
coordinator  what the coordinator counts, and the state it shows when scraped
gateway      what the gateway counts
"""
