"""How the driver and the tasks reach a cluster: connections, TLS and SASL, and what is asked of the brokers."""
