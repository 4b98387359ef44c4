"""The same conversations with ottla and with Apache Kafka, answers compared field by field.

`conversations` makes requests from a seed, `peer` sends them to one side, `answers` compares what both say, and `known` lists the
differences that are decided: who is right, and why ottla differs. A difference that is not on that list fails the test.
"""
