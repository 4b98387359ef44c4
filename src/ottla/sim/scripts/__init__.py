"""Golden scripts: exchanges of the protocol, run step by step, with control over every message.

`script` is the text format, `commands` the language, `script_cluster` and `script_client` do what the commands say.
"""
