"""Executors: what runs a program over a step. The engine knows them by their interface only."""
