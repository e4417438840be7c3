"""What makes CPUs fast: convolution, pooling, dense products and loops, each with the plain form beside it."""
