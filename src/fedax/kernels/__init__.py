"""What makes CPUs fast: convolution, pooling, dense products and loops, each with the plain form beside it.

`switch.enabled` says which of the two is taken: FEDAX_KERNELS=off takes XLA's own everywhere.
"""
