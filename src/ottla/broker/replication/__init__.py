"""The replicas of this broker: all of them in memory, followed, kept in sync, cleaned and placed on disks.

The rules of one replica are in `replica`, its files in `log`; here is what drives many of them by clock and network.
"""
