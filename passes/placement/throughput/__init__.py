"""Pipelined throughput: splits that minimise the largest load of a device.

In the steady state of a pipeline the slowest device sets the time per sample.
Source: Tarnawski et al., NeurIPS 2020 (arXiv 2006.16423), section 3.
"""
