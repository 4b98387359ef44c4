"""What was lost, and what is kept of it: the manifest of kept records, merging the manifests of all brokers into losses,
and turning kept batches back into records.

Pure: the files are written by `log.kept_records`, served by `broker.apis.kept_records`, and read by the command line.
"""
