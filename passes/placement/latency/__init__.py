"""Latency of one sample: splits into a few subgraphs per accelerator, the rest on the host.

Source: Tarnawski et al., NeurIPS 2020 (arXiv 2006.16423), section 4.
"""
