"""Writing models with quantised weights: block codes, the plan of a file, its metadata, and the check by divergence."""
