"""Why a cluster is as it is: facts gathered from it, and rules that put them into words.

`facts` says what is known of a cluster at one moment, `gathering` asks the cluster for it, `machine` looks at this
machine and at a cluster's directory on it. The package `doctor` makes findings of them.

`explain_partition`, `explain_group` and `explain_broker` say why one thing is as it is. They read its state (`now`), found
by `looking` or on the disks of a stopped cluster (`directory`, `stored_groups`), and what happened (`history`).

Rules are pure: the same facts give the same words. It works with any Kafka.
"""
