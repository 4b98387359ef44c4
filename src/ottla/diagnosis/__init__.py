"""What is wrong with a cluster, and why: facts gathered from it, and rules that put them into words.

`facts` says what is known of a cluster at one moment, `gathering` asks the cluster for it, `machine` looks at this
machine and at a cluster's directory on it. `doctor` turns facts into findings, `bundle` packs all of it for a helper.

`explain_partition`, `explain_group` and `explain_broker` say why one thing is as it is. They read its state (`now`), found
by `looking` or on the disks of a stopped cluster (`directory`, `stored_groups`), and what happened (`history`).

Rules are pure: the same facts give the same words. It works with any Kafka.
"""
