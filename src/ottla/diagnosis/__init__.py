"""What is wrong with a cluster, and why: facts gathered from it, and rules that put them into words.

`facts` says what is known of a cluster at one moment, `gathering` asks the cluster for it, `machine` looks at this
machine and at a cluster's directory on it. `doctor` turns facts into findings, `bundle` packs all of it for a helper.
Rules are pure: the same facts give the same words. It works with any Kafka.
"""
