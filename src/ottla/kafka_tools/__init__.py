"""Kafka's command-line tools under Kafka's names: `kafka-topics`, `kafka-configs` and the others.

Options, standard output and exit codes are those of Apache Kafka 4.3, so that scripts which parse them go on working.
Where Kafka prints a Java stack trace on standard error, these print its first line only. `names` has the list,
`options` reads a command line as Kafka's tools do, `session` connects; each tool is one module.
"""
