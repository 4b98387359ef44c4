"""What goes wrong in a run: the plan that a seed draws, and the faults of machines, disks, lines and operators."""
