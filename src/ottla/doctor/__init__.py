"""What is wrong with a cluster, or soon will be: rules over its facts, and the bundle that a helper is sent.

A rule is a small pure function from a `Case` to findings. A finding says what is so, why it matters, and which command
mends it. Rules stand in modules by what they look at. Each module lists them in `RULES`, in the order in which findings of
the same severity are shown; `examination` runs all. The facts are gathered by `diagnosis`.
"""
