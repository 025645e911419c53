"""Log-likelihood contributions of exact, censored, truncated and discrete outcomes, with derivatives.

Belongs here: what a row contributes, and its first two derivatives in the parameters.
May import: ``responses``, ``optimise`` and below.
Start reading at ``line``, then ``cutpoints``.
"""
