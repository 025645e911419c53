"""Log-likelihood contributions of exact, censored, truncated and discrete outcomes, with derivatives."""
