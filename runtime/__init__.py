"""The runtime: compiles the tasks of a plan for their devices and runs its instructions."""
