"""Who may do what, and how somebody shows who they are: pure rules without I/O.

Principals, ACLs and the authorizer are here, and the conversations by which a connection logs in. Sockets, TLS and the places
where brokers ask these rules are elsewhere (`runtime.tls`, `broker.server`, `broker.apis`). A node without security uses
nothing of it.
"""
