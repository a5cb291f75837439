"""Model families: one recipe file each, from a configuration to a program."""
