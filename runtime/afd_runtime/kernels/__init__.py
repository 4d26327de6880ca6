"""The arithmetic of a model, one concept a file, in plain torch: what the CPU runs, and the
reference that a GPU kernel of the same name is held against. Rows are tokens of any sequences."""
