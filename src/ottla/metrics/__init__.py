"""What a node measures, in the forms in which others read it: families of samples, histograms, and their texts.

Nothing here measures: a collector is called when somebody asks, and returns families. So a node that nobody asks pays
for nothing but the plain counters that its parts keep. No clock, no I/O, no state but counts.
"""
