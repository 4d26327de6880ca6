"""The command `afd`: one table of subcommands, each loaded only when it is asked for."""
